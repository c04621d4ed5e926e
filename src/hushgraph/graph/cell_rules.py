"""Rules for cells: how numbers, booleans and dates are written, and what was read off rows to say so."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import date
from typing import Any

from hushgraph._text import find_nearest
from hushgraph.errors import InputError

EVERY_COLUMN = "*"
"""The key of a rule for every column of numbers without one of its own."""
DECIMALS = (".", ",")
THOUSANDS = (".", ",", " ", "'", "_", "\u2019", "\u00a0", "\u202f")
"""What may stand between groups of three digits."""
CYCLES = {"weekday": 7, "month": 12, "day": 31, "hour": 24}
"""Parts of a date that come round again, and after how many."""
LOOKED_UP: dict[str, tuple[str, ...]] = {
    "classes": ("classes",),
    "id": ("id",),
    "ends": ("source", "target"),
    "split": ("split",),
    "person": ("person",),
    "roles": ("categorical", "hashed", "ignore", "features"),
    "numbers": ("decimal", "thousands", "percent", "booleans"),
    "dates": ("dates", "date_format"),
    "missing": ("missing",),
    "records": ("edge_weight", "edge_date", "relation", "places"),
    "task": ("separator",),
    "bounds": (),
    "rare": (),
}
"""What can be read off rows, and the fields of `Columns` that hold it."""


def suggest(name: str, known: Iterable[str], *, cutoff: float = 0.7) -> str:
    """Return "; did you mean ...?" with the nearest known name, or an empty string if none is near."""
    # The least similarity of a suggested name: `north` must not suggest `south`, which has 3 of 5 letters.
    near = find_nearest(name, known, cutoff=cutoff)
    return f"; did you mean {near!r}?" if near else ""


def rule_for(rules: Mapping[str, str] | str, name: str) -> str | None:
    """Return the rule of a column: its own, that of every column, or None."""
    if isinstance(rules, str):
        return rules
    return rules.get(name, rules.get(EVERY_COLUMN))


def check_marks(name: str, value: Any, allowed: tuple[str, ...]) -> dict[str, str]:
    """Check a mark such as a decimal comma; return it by column."""
    example = "a comma" if name == "decimal" else "a point"
    marks = _by_column(name, value)
    for column, mark in marks.items():
        if mark not in allowed:
            where = name if column == EVERY_COLUMN else f"{name} {column}"
            raise InputError(
                f"{where}={mark!r}: expected one of {', '.join(map(repr, allowed))}, such as {example}"
            )
    return marks


def check_formats(value: Any) -> dict[str, str]:
    """Check how dates are written; return the formats by column."""
    formats = _by_column("date_format", value)
    for column, text in formats.items():
        if not all(f"%{part}" in text for part in "dm") or not ("%Y" in text or "%y" in text):
            where = "date_format" if column == EVERY_COLUMN else f"date_format {column}"
            raise InputError(f"{where}={text!r}: expected day, month and year, as %d.%m.%Y")
    return formats


def check_dates(value: Any) -> dict[str, str]:
    """Check the days from which dates are counted; return them by column."""
    if not isinstance(value, Mapping):
        raise InputError(f"dates={value!r}: expected one entry per column, as opened = 2000-01-01")
    days = {}
    for column, given in value.items():
        try:
            # TOML has dates of its own.
            days[column] = (given if isinstance(given, date) else date.fromisoformat(given)).isoformat()[:10]
        except (TypeError, ValueError):
            raise InputError(
                f"date {column}={given!r}: expected the day from which days are counted, as "
                f"{column}=2000-01-01"
            ) from None
    return dict(sorted(days.items()))


def check_cycles(value: Any, dates: Iterable[str], check_texts: Callable[[str, Any], Any]) -> dict[str, Any]:
    """Check the parts of dates that become features; return them by column."""
    if not isinstance(value, Mapping):
        raise InputError(f"cycles={value!r}: expected one entry per column")
    known = list(dates)
    cycles = {}
    for column, parts in value.items():
        if column not in known:
            raise InputError(
                f"cycles holds {column!r}, which is no date; declare it, as --date {column}=2000-01-01 "
                f"(columns.dates){suggest(column, known)}"
            )
        cycles[column] = check_texts(f"cycles {column}", parts)
        for part in cycles[column]:
            if part not in CYCLES:
                advice = suggest(part, CYCLES) or f"; expected {', '.join(CYCLES)}"
                raise InputError(f"cycles {column}={part!r}: no such part of a date{advice}")
    return dict(sorted(cycles.items()))


def check_day(name: str, value: Any) -> None:
    """Raise InputError unless a day is written as 2024-01-31."""
    if value is None:
        return
    try:
        is_day = date.fromisoformat(value).isoformat() == value
    except (TypeError, ValueError):
        is_day = False
    if not is_day:
        raise InputError(f"{name}={value!r}: expected a day, as 2024-01-31")


def check_looked_up(kinds: tuple[str, ...]) -> None:
    """Raise InputError for what is no kind of thing that can be looked up."""
    for kind in kinds:
        if kind not in LOOKED_UP:
            advice = suggest(kind, LOOKED_UP) or f"; expected {', '.join(LOOKED_UP)}"
            raise InputError(f"looked_up holds {kind!r}{advice}")


def check_marks_differ(decimal: Mapping[str, str] | str, thousands: Mapping[str, str] | str) -> None:
    """Raise InputError if one mark is both, so that a number could be read in two ways."""
    for column in (*decimal, *thousands):
        mark = rule_for(thousands, column)
        point = rule_for(decimal, column) or "."
        if mark == point:
            other = "," if point == "." else "."
            prefix = "" if column == EVERY_COLUMN else f"{column}="
            raise InputError(
                f"decimal and thousands are both {mark!r}{'' if not prefix else f' in column {column!r}'}; "
                f"give another one, as --decimal {prefix}{other}"
            )


def check_one_rule(rules: Mapping[str, Iterable[str]]) -> None:
    """Raise InputError if a column has two rules; `rules` maps a rule to its columns."""
    given: dict[str, str] = {}
    for rule, columns in rules.items():
        for column in columns:
            if column != EVERY_COLUMN and column in given:
                raise InputError(f"column {column!r} is given as {given[column]} and as {rule}; give it once")
            given[column] = rule


def merge_looked_up(file: Mapping[str, Any], flags: Mapping[str, Any]) -> list[str]:
    """Return what is looked up: in the file, but for what flags declare anew as a whole, and by flags."""

    def is_declared(name: str) -> bool:
        given, in_file = flags.get(name), file.get(name)
        # Flags add to rules by column: those of the other columns stay as they were found.
        if isinstance(in_file, Mapping) and isinstance(given, Mapping):
            return in_file.keys() <= given.keys()
        return name in flags

    kept = []
    for kind in file.get("looked_up") or ():
        names = LOOKED_UP.get(kind, ())
        if not any(name in flags for name in names) or not all(map(is_declared, filter(file.get, names))):
            kept.append(kind)
    return [*kept, *(kind for kind in flags.get("looked_up") or () if kind not in kept)]


def _by_column(name: str, value: Any) -> dict[str, str]:
    given = dict(value) if isinstance(value, Mapping) else {EVERY_COLUMN: value}
    for column, each in given.items():
        if not isinstance(each, str) or not each:
            raise InputError(f"{name}={each!r}: expected text, for all columns or by column")
        if not isinstance(column, str) or not column:
            raise InputError(f"{name}: expected names of columns, got {column!r}")
    return given
