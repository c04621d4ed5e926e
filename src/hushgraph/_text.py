"""Text for readers and of flags: numbers that never read better than they are, near names, and lists."""

from __future__ import annotations

import csv
import difflib
import json
import math
import re
from collections.abc import Iterable, Mapping
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from typing import Any

from hushgraph.errors import InputError

SPARK_TABLE = "spark-table:"
"""What the name of a table in the catalog of Spark begins with."""


def is_elsewhere(text: str) -> bool:
    """Whether this is no path: an address such as s3://..., or a table of the catalog of Spark."""
    return "://" in text or text.startswith(SPARK_TABLE)


def rounded_up(value: float, *, decimals: int = 2) -> str:
    """Format a number with fixed decimals, rounded up; numbers below 1 have three significant digits."""
    if math.isinf(value):
        return "infinity"
    short = digits_up(value, digits=3)
    # A number that rounds up to 1 is written like 1.
    if value != 0 and Decimal(short) < 1:
        return short
    exact = Decimal(repr(float(value)))
    return str(exact.quantize(Decimal(1).scaleb(-decimals), rounding=ROUND_CEILING, context=Context(400)))


def digits_up(value: float, *, digits: int = 5) -> str:
    """Format a number with significant digits, rounded up; trailing zeros are dropped."""
    return _format_digits(value, digits, ROUND_CEILING)


def digits_down(value: float, *, digits: int = 5) -> str:
    """As `digits_up`, rounded down: for noise that was added."""
    return _format_digits(value, digits, ROUND_FLOOR)


def _format_digits(value: float, digits: int, rounding: str) -> str:
    if not math.isfinite(value):
        return "infinity"
    rounded = Context(prec=digits, rounding=rounding).create_decimal(repr(float(value))).normalize()
    is_extreme = rounded != 0 and (rounded.adjusted() < -4 or rounded.adjusted() > 15)
    return f"{rounded:e}" if is_extreme else f"{rounded:f}"


def find_nearest(name: str, known: Iterable[str], *, cutoff: float = 0.6) -> str | None:
    """Return the known name that is most like `name`, whatever its case; None if none is similar enough."""
    folded = {each.casefold(): each for each in known}
    near = difflib.get_close_matches(name.casefold(), folded, n=1, cutoff=cutoff)
    return folded[near[0]] if near else None


def suggest(name: str, known: Iterable[str], *, cutoff: float = 0.7) -> str:
    """Return "; did you mean ...?" with the nearest known name, or an empty string if none is near."""
    # The least similarity of a suggested name: `north` must not suggest `south`, which has 3 of 5 letters.
    near = find_nearest(name, known, cutoff=cutoff)
    return f"; did you mean {near!r}?" if near else ""


def split_list(text: str, separator: str = ",") -> list[str]:
    """The values of a flag such as `--classes a,b`; a value with a comma stands in double quotes."""
    try:
        return next(csv.reader([text], delimiter=separator), [""])
    except csv.Error:
        raise InputError(
            f"{text[:40]!r}: holds the end of a line; put a value that does in double quotes"
        ) from None


def join_list(values: Iterable[str], separator: str = ",") -> str:
    """The text of a flag that `split_list` reads as these values."""
    special = (separator, '"', "\r", "\n")
    return separator.join(
        '"' + value.replace('"', '""') + '"' if any(each in value for each in special) else value
        for value in values
    )


def write_toml(value: Any) -> str:
    """A value as TOML has it: a text, number, boolean, list or table on one line."""
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(write_toml(each) for each in value)}]"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key} = {write_toml(each)}' for key, each in value.items())}}}"
    if isinstance(value, (bool, int)):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:g}" if float(f"{value:g}") == value else repr(value)
    # A JSON string is a TOML string, but for one control character.
    return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")


def join_pair(column: str, value: str) -> str:
    """The text of a flag such as `--hash city=16`; a column with = in its name stands in double quotes."""
    quoted = '"' + column.replace('"', '""') + '"' if "=" in column or column.startswith('"') else column
    return f"{quoted}={value}"


def split_pair(text: str) -> tuple[str, str, str]:
    """Take apart what `join_pair` joins: the column, = or nothing, and the value."""
    quoted = re.match(r'"((?:[^"]|"")*)"=', text)
    if quoted:
        return quoted[1].replace('""', '"'), "=", text[quoted.end() :]
    return text.partition("=")
