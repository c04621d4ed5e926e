"""How the cells of a column are likely to be written: decimal commas, percentages, booleans and dates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from hushgraph.datasets.tables.cells import (
    DATE_FORMATS,
    FALSE_WORDS,
    FIRST_DAY,
    TRUE_WORDS,
    list_sql,
    number_sql,
    time_sql,
)
from hushgraph.datasets.tables.profile import Profile, empty_sql
from hushgraph.datasets.tables.roles import is_amount
from hushgraph.graph.cell_rules import EVERY_COLUMN, LOOKED_UP, rule_for

# Different values of a column that are tried.
_TRIED = 20_000
_GROUPS = r"[+-]?\d{1,3}(\.\d{3})+"
_FIELDS = (*LOOKED_UP["numbers"], *LOOKED_UP["dates"], "cycles")
# A column is written in some way if nine of ten different values are, and so are all that are not numbers.
_MOST = 0.9


@dataclass
class Formats:
    """Rules for cells, as fields of `Columns`, and what the columns are.

    Attributes:
        settings: the rules to propose.
        words: "number", "boolean" or "date", by column.
        amounts: columns of edges that are numbers, though no plain ones.
    """

    settings: dict[str, Any] = field(default_factory=dict)
    words: dict[str, str] = field(default_factory=dict)
    amounts: set[str] = field(default_factory=set)


def guess_formats(
    connection: Any,
    profiles: Mapping[str, Profile],
    edge_profiles: Mapping[str, Profile],
    given: Mapping[str, Any],
    missing: tuple[str, ...],
) -> Formats:
    """Return how columns of `raw_nodes` are written that are no plain numbers; what is given stays.

    Of `raw_edges`, columns are looked at that are named like amounts, and that of the dates of records.
    """
    formats = Formats(settings={name: given[name] for name in _FIELDS if given.get(name)})
    taken = _list_taken(given)
    numeric = _list_numeric(given)
    commas: dict[str, bool] = {}
    points: dict[str, bool] = {}
    for name, profile in profiles.items():
        if name in taken:
            continue
        is_label = name == given.get("label")
        if name in (given.get("dates") or ()) or name in (given.get("booleans") or ()):
            formats.words[name] = "date" if name in (given.get("dates") or ()) else "boolean"
            continue
        has_texts = profile.numbers + profile.infinite < profile.filled
        if profile.filled and (has_texts or profile.fractions):
            counts = _count_ways(connection, "raw_nodes", profile, missing)
            if not has_texts or (profile.is_number and not _has_marks(counts)):
                points[name] = counts["grouped"] >= counts["fractional"]
            else:
                _choose(name, counts, formats, commas, is_label=is_label)
        if name in numeric:
            # Cells that do not follow the rule are listed as such.
            formats.words[name] = "number"
    of_edges = Formats(settings=formats.settings)
    for name, profile in edge_profiles.items():
        if profile.filled and name == given.get("edge_date"):
            known = rule_for(formats.settings.get("date_format", {}), name)
            form = find_date_format(connection, profile, (), known=known)
            _add_date_format(formats.settings, name, form)
        if not profile.filled or not is_amount(name):
            continue
        counts = _count_ways(connection, "raw_edges", profile, ())
        if profile.is_number and not _has_marks(counts):
            points[name] = counts["grouped"] >= counts["fractional"]
        else:
            # What a label may be: no date and no boolean.
            _choose(name, counts, of_edges, commas, is_label=True)
    formats.amounts = {*of_edges.words}
    if given.get("decimal") is None and given.get("thousands") is None:
        _propose_marks(formats, commas, points)
    return formats


def find_date_format(
    connection: Any, profile: Profile, missing: tuple[str, ...], *, known: str | None
) -> str | None:
    """How a column of `raw_edges` writes dates: a format, "" for year-month-day, None where it has none.

    `known` is a format that is tried first.
    """
    forms = dict.fromkeys([known or "", "", *DATE_FORMATS])
    ways = [f"{time_sql('v', form or None)} IS NOT NULL" for form in forms]
    *counts, tried = _count(connection, "raw_edges", profile, missing, [*ways, "true"])
    best, count = max(zip(forms, counts, strict=True), key=lambda pair: pair[1])
    return best if count and count >= _MOST * tried else None


def _list_taken(given: Mapping[str, Any]) -> set[str]:
    """Columns with a role in which the text counts."""
    names = {given[role] for role in ("id", "split") if isinstance(given.get(role), str)}
    if not isinstance(given.get("label"), str):
        names |= {*(given.get("label") or ())}
    return names.union(*(given.get(key) or () for key in ("ignore", "categorical", "hashed")))


def _list_numeric(given: Mapping[str, Any]) -> set[str]:
    """Columns with a rule that numbers alone have."""
    marks = (given.get("decimal"), given.get("thousands"))
    return {*(given.get("percent") or ())}.union(*(each for each in marks if isinstance(each, Mapping)))


def _add_date_format(settings: dict[str, Any], name: str, form: str | None) -> None:
    """Propose how the dates of a column are written, unless the rules that are given read them so."""
    rules = settings.get("date_format", {})
    if form and rule_for(rules, name) != form:
        settings["date_format"] = {**rules, name: form}


def _has_marks(counts: Mapping[str, int]) -> bool:
    """Whether every value is a number, and some have marks that a plain number has not."""
    ways = ("comma", "comma_groups", "point_groups", "percent", "percent_comma")
    return max(counts[way] for way in ways) == counts["tried"] > counts["plain"]


def _are_thousands(counts: Mapping[str, int]) -> bool:
    """Whether commas stand between thousands rather than before decimals.

    "5,467" may be either. Decimals are as many in every value, and thousands are missing in small ones.
    """
    groups, decimals = counts["point_groups"], max(counts["comma"], counts["comma_groups"])
    return groups > decimals or (groups == decimals and counts["plain"] > 0)


def _choose(
    name: str, counts: Mapping[str, int], formats: Formats, commas: dict[str, bool], *, is_label: bool
) -> None:
    """Choose the way in which a column of text is written, if there is one; labels can be numbers alone."""
    tried = counts["tried"]

    def fits(way: str) -> bool:
        return counts[way] > 0 and counts[way] >= _MOST * tried

    settings = formats.settings
    if is_label and (fits("iso") or counts["boolean"] == tried):
        return
    if counts["boolean"] == tried <= 4 and counts["boolean_word"]:
        settings["booleans"] = [*settings.get("booleans", ()), name]
        formats.words[name] = "boolean"
    elif fits("iso"):
        settings["dates"] = {**settings.get("dates", {}), name: FIRST_DAY}
        formats.words[name] = "date"
    elif fits("point_groups") and counts["point_groups"] > counts["plain"] and _are_thousands(counts):
        settings["thousands"] = {**settings.get("thousands", {}), name: ","}
        formats.words[name] = "number"
    elif (fits("comma") or fits("comma_groups")) and counts["comma_groups"] > counts["plain"]:
        commas[name] = counts["comma_groups"] > counts["comma"]
        formats.words[name] = "number"
    elif counts["percent_sign"] and (fits("percent") or fits("percent_comma")):
        known = settings.get("percent", ())
        if name not in known and EVERY_COLUMN not in known:
            settings["percent"] = [*known, name]
        formats.words[name] = "number"
        if counts["percent_comma"] > counts["percent"]:
            commas[name] = False
    elif not is_label:
        best = max(DATE_FORMATS, key=lambda form: counts[form])
        if fits(best):
            settings["dates"] = {**settings.get("dates", {}), name: FIRST_DAY}
            _add_date_format(settings, name, best)
            formats.words[name] = "date"


def _propose_marks(formats: Formats, commas: Mapping[str, bool], points: Mapping[str, bool]) -> None:
    """Propose decimal commas: for the table where no column has decimal points, else for their columns."""
    if not commas:
        return
    settings = formats.settings
    grouped = any(commas.values()) or any(points.values())
    if all(points.values()) and "thousands" not in settings:
        settings["decimal"] = {EVERY_COLUMN: ","}
        if grouped:
            settings["thousands"] = {EVERY_COLUMN: "."}
        return
    settings["decimal"] = dict.fromkeys(commas, ",")
    with_groups = [name for name, has_groups in commas.items() if has_groups]
    if with_groups:
        settings["thousands"] = {**settings.get("thousands", {}), **dict.fromkeys(with_groups, ".")}


def _count_ways(connection: Any, table: str, profile: Profile, missing: tuple[str, ...]) -> dict[str, int]:
    """Count the different values of a column that can be read in each way."""
    word = "lower(trim(v))"
    ways = {
        "tried": "true",
        "plain": "TRY_CAST(v AS DOUBLE) IS NOT NULL",
        "boolean": f"{word} IN ({list_sql((*TRUE_WORDS, *FALSE_WORDS))})",
        "boolean_word": f"{word} IN ({list_sql((*TRUE_WORDS[:-1], *FALSE_WORDS[:-1]))})",
        "comma": f"{number_sql('v', decimal=',')} IS NOT NULL",
        "comma_groups": f"{number_sql('v', decimal=',', thousands='.')} IS NOT NULL",
        "point_groups": f"{number_sql('v', thousands=',')} IS NOT NULL",
        "percent_sign": "rtrim(v) LIKE '%\\%' ESCAPE '\\'",
        "percent": f"{number_sql('v', percent=True)} IS NOT NULL",
        "percent_comma": f"{number_sql('v', decimal=',', percent=True)} IS NOT NULL",
        "iso": f"{time_sql('v', None)} IS NOT NULL",
        "fractional": "TRY_CAST(v AS DOUBLE) <> floor(TRY_CAST(v AS DOUBLE))",
        "grouped": f"regexp_full_match(v, '{_GROUPS}')",
        **{form: f"{time_sql('v', form)} IS NOT NULL" for form in DATE_FORMATS},
    }
    return dict(zip(ways, _count(connection, table, profile, missing, ways.values()), strict=True))


def _count(
    connection: Any, table: str, profile: Profile, missing: tuple[str, ...], conditions: Iterable[str]
) -> list[int]:
    """Count the different values `v` of a column that meet each of these conditions in SQL."""
    counts = ", ".join(f"count(*) FILTER (WHERE {each})" for each in conditions)
    values = connection.execute(
        f"SELECT {counts} FROM (SELECT DISTINCT CAST({profile.sql} AS VARCHAR) AS v FROM {table} WHERE NOT "
        f"{empty_sql(profile.sql, missing)} LIMIT {_TRIED})"
    ).fetchone()
    return [int(value) for value in values]
