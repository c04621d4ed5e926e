"""SQL that reads a cell: numbers as people write them, booleans, dates and parts of dates."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from typing import Any

from hushgraph.graph.cell_rules import CYCLES, EVERY_COLUMN, rule_for
from hushgraph.graph.columns import Columns

SPLITS = ("train", "val", "test")
SEPARATOR = ";"
"""What stands between the labels of a list, unless another one is declared."""
TRUE_WORDS = ("true", "yes", "t", "y", "1")
FALSE_WORDS = ("false", "no", "f", "n", "0")
FIRST_DAY = "2000-01-01"
"""The day that proposals count from; it must not depend on the dates that occur."""
DATE_FORMATS = ("%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y")
"""How dates are written besides year-month-day."""
# A date as DuckDB reads it without a format; it would also take words such as `epoch`.
_ISO = r"\s*\d{1,4}[-/]\d{1,2}[-/]\d{1,2}([T ]+\d{1,2}:\d{2}.*)?\s*"


def feature_sql(columns: Columns, name: str, cell: str) -> str:
    """Return SQL of a column of numbers as DOUBLE; NULL where the cell does not follow its rules.

    Args:
        columns: the rules.
        name: of the column.
        cell: SQL of the cell.
    """
    if name in columns.dates:
        return days_sql(cell, columns.dates[name], rule_for(columns.date_format, name))
    if name in columns.booleans:
        return boolean_sql(cell)
    return number_sql(
        cell,
        decimal=rule_for(columns.decimal, name),
        thousands=rule_for(columns.thousands, name),
        percent=name in columns.percent or EVERY_COLUMN in columns.percent,
    )


def number_sql(
    cell: str, *, decimal: str | None = None, thousands: str | None = None, percent: bool = False
) -> str:
    """Return SQL of a number; by a rule, only what the whole rule allows is a number."""
    if percent:
        text = f"rtrim(CAST({cell} AS VARCHAR))"
        short = f"left({text}, greatest(length({text}) - 1, 0))"
        number = number_sql(f"rtrim({short})", decimal=decimal, thousands=thousands)
        unsigned = number_sql(cell, decimal=decimal, thousands=thousands)
        return f"(CASE WHEN {text} LIKE '%\\%' ESCAPE '\\' THEN {number} / 100.0 ELSE {unsigned} END)"
    if decimal in (None, ".") and thousands is None:
        return f"TRY_CAST({cell} AS DOUBLE)"
    text, point = f"CAST({cell} AS VARCHAR)", decimal or "."
    digits = f"replace({text}, {quote(thousands)}, '')" if thousands else text
    if point != ".":
        digits = f"replace({digits}, {quote(point)}, '.')"
    groups = rf"|\d{{1,3}}({re.escape(thousands)}\d{{3}})+" if thousands else ""
    pattern = rf"\s*[+-]?(\d+{groups})?({re.escape(point)}\d*)?([eE][+-]?\d+)?\s*"
    return f"(CASE WHEN regexp_full_match({text}, {quote(pattern)}) THEN TRY_CAST({digits} AS DOUBLE) END)"


def boolean_sql(cell: str) -> str:
    """Return SQL that maps true and yes to 1 and false and no to 0, in any case."""
    word = f"lower(trim(CAST({cell} AS VARCHAR)))"
    yes, no = list_sql(TRUE_WORDS), list_sql(FALSE_WORDS)
    return f"(CASE WHEN {word} IN ({yes}) THEN 1.0 WHEN {word} IN ({no}) THEN 0.0 END)"


def flag_sql(cell: str) -> str:
    """Return SQL of 0 or 1, as a number or as a word of `boolean_sql`; NULL for others."""
    number = f"TRY_CAST({cell} AS DOUBLE)"
    return f"CAST(CASE WHEN {number} IN (0, 1) THEN {number} ELSE {boolean_sql(cell)} END AS INTEGER)"


def time_sql(cell: str, form: str | None) -> str:
    """Return SQL of a time; without a format, year, month and day in this order, and a time of day."""
    text = f"CAST({cell} AS VARCHAR)"
    if form is not None:
        return f"try_strptime(trim({text}), {quote(form)})"
    return f"(CASE WHEN regexp_full_match({text}, {quote(_ISO)}) THEN TRY_CAST({text} AS TIMESTAMP) END)"


def days_sql(cell: str, first: str, form: str | None) -> str:
    """Return SQL of the days since a day, with the time of day as a fraction."""
    return f"((epoch({time_sql(cell, form)}) - epoch(TIMESTAMP {quote(first)})) / 86400.0)"


def cycle_sql(cell: str, part: str, form: str | None) -> tuple[str, str]:
    """Return SQL of sine and cosine of a part of a date; both 0 where there is no date."""
    number = {
        "weekday": "isodow({0}) - 1",
        "month": "month({0}) - 1",
        "day": "day({0}) - 1",
        "hour": "hour({0}) + minute({0}) / 60.0",
    }[part].format(time_sql(cell, form))
    angle = f"2 * pi() * ({number}) / {CYCLES[part]}"
    return f"COALESCE(sin({angle}), 0.0)", f"COALESCE(cos({angle}), 0.0)"


def name_remedy(text: str, name: str) -> str | None:
    """Return the flag that reads a cell which is not a number; None where none does."""
    word, given = text.strip(), name
    name = shlex.quote(name)
    if word.endswith("%") and re.fullmatch(r"[+-]?[\d.,' ]+\s*%", word):
        return f"percentages are read with --percent {name}"
    if word.lower() in (*TRUE_WORDS, *FALSE_WORDS):
        return f"booleans are read with --boolean {name}"
    if re.fullmatch(r"\d{4}[-/]\d{1,2}[-/]\d{1,2}([T ].*)?", word):
        return f"dates are read with --date {shlex.quote(f'{given}={FIRST_DAY}')}"
    match = re.fullmatch(r"\d{1,2}([./-])\d{1,2}\1\d{4}", word)
    if match:
        form = "%m/%d/%Y" if match[1] == "/" else match[1].join(("%d", "%m", "%Y"))
        day, written = shlex.quote(f"{given}={FIRST_DAY}"), shlex.quote(f"{given}={form}")
        return f"dates are read with --date {day} --date-format {written}"
    if re.fullmatch(r"[+-]?\d{1,3}(\.\d{3})+,\d+", word):
        return "such numbers are read with --decimal , --thousands ."
    if re.fullmatch(r"[+-]?\d{1,3}(,\d{3})+(\.\d+)?", word) and (word.count(",") > 1 or "." in word):
        return "such numbers are read with --thousands ,"
    if re.fullmatch(r"[+-]?\d*,\d+", word):
        return "decimal commas are read with --decimal ,"
    match = re.fullmatch(r"[+-]?\d{1,3}(([ '_\u2019\u00a0\u202f])\d{3})+([.,]\d+)?", word)
    if match:
        comma = "--decimal , " if "," in word else ""
        return f"such numbers are read with {comma}--thousands {match[2]!r}"
    if re.fullmatch(r"[+-]?\d+\.\d+", word):
        return f"a number with a point is read with --decimal {shlex.quote(f'{given}=.')}"
    return None


def quote(text: Any) -> str:
    """Return a text as a string of SQL."""
    return "'" + str(text).replace("'", "''") + "'"


def list_sql(texts: Iterable[str]) -> str:
    """Return texts as strings of SQL between commas."""
    return ", ".join(map(quote, texts))
