"""Rules for columns and cells: what each setting may hold, and what was read off rows to say so."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import date
from typing import Any

from hushgraph._text import suggest
from hushgraph._validate import as_float
from hushgraph.errors import InputError

EVERY_COLUMN = "*"
"""The key of a rule for every column of numbers without one of its own."""
DECIMALS = (".", ",")
THOUSANDS = (".", ",", " ", "'", "_", "\u2019", "\u00a0", "\u202f")
"""What may stand between groups of three digits."""
CYCLES = {"weekday": 7, "month": 12, "day": 31, "hour": 24}
"""Parts of a date that come round again, and after how many."""
LARGEST_BUCKETS = 1 << 20
LARGEST_FLOAT = 3.4e38
# These lists may be empty.
_MAY_BE_EMPTY = ("features", "ignore", "missing", "indicators", "percent", "booleans", "looked_up")
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


def rule_for(rules: Mapping[str, str] | str, name: str) -> str | None:
    """Return the rule of a column: its own, that of every column, or None."""
    if isinstance(rules, str):
        return rules
    return rules.get(name, rules.get(EVERY_COLUMN))


def check_texts(name: str, values: Any) -> tuple[str, ...]:
    """Check a list of distinct names; numbers become text, because cells are compared as text."""
    if isinstance(values, (str, bytes, Mapping)) or not isinstance(values, Iterable):
        raise InputError(f"{name}={values!r}: expected a list")
    given = list(values)
    odd = [each for each in given if isinstance(each, bool) or not isinstance(each, (str, int)) or each == ""]
    if odd:
        raise InputError(f"{name} holds {odd[0]!r}; expected names")
    texts = tuple(str(each) for each in given)
    if len(set(texts)) < len(texts):
        repeated = next(each for position, each in enumerate(texts) if each in texts[:position])
        raise InputError(f"{name} holds {repeated!r} more than once; give each value once")
    if not texts and name not in _MAY_BE_EMPTY:
        raise InputError(f"{name} is empty; expected at least one value")
    return texts


def check_mark(name: str, mark: Any, *, allowed: tuple[str, ...]) -> str:
    """Check a mark such as a decimal comma."""
    if mark not in allowed:
        example = "a comma" if allowed == DECIMALS else "a point"
        raise InputError(
            f"{name}={mark!r}: expected one of {', '.join(map(repr, allowed))}, such as {example}"
        )
    return str(mark)


def check_format(name: str, text: Any) -> str:
    """Check how dates are written."""
    is_date = isinstance(text, str) and all(f"%{part}" in text for part in "dm")
    if not is_date or not ("%Y" in text or "%y" in text):
        raise InputError(f"{name}={text!r}: expected day, month and year, as %d.%m.%Y")
    return str(text)


def check_first_day(name: str, given: Any) -> str:
    """Check the day from which the days of a date are counted."""
    try:
        # TOML has dates of its own.
        return (given if isinstance(given, date) else date.fromisoformat(given)).isoformat()[:10]
    except (TypeError, ValueError):
        raise InputError(
            f"{name}={given!r}: expected the day from which days are counted, as 2000-01-01"
        ) from None


def check_cycles(name: str, parts: Any) -> tuple[str, ...]:
    """Check the parts of a date that become features."""
    checked = check_texts(name, parts)
    for part in checked:
        if part not in CYCLES:
            advice = suggest(part, CYCLES) or f"; expected {', '.join(CYCLES)}"
            raise InputError(f"{name}={part!r}: no such part of a date{advice}")
    return checked


def check_buckets(name: str, buckets: Any) -> int:
    """Check a number of buckets."""
    if isinstance(buckets, bool) or not isinstance(buckets, int) or not 1 < buckets <= LARGEST_BUCKETS:
        raise InputError(f"{name}={buckets!r}: expected 2..{LARGEST_BUCKETS} buckets")
    return buckets


def check_constant(name: str, constant: Any) -> float:
    """Check the constant for an empty number."""
    number = as_float(constant)
    if number is None or not abs(number) <= LARGEST_FLOAT:
        raise InputError(f"{name}={constant!r}: expected a finite number, such as 0")
    return number


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


def check_looked_up(kinds: Iterable[str]) -> None:
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


def check_once(roles: Mapping[str, Iterable[str]]) -> None:
    """Raise InputError if a column has two roles; `roles` maps a role to its columns."""
    given: dict[str, str] = {}
    for role, columns in roles.items():
        for column in columns:
            if column != EVERY_COLUMN and column in given:
                raise InputError(f"column {column!r} is given as {given[column]} and as {role}; give it once")
            given[column] = role


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
