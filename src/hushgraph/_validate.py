"""Checks of arguments that every room uses: numbers of any library in, Python numbers or an error out."""

from __future__ import annotations

import math
import numbers
import operator
from collections.abc import Mapping
from typing import Any

from hushgraph.errors import InputError


def as_int(value: Any) -> int | None:
    """Convert an integer of any library to int; None for anything else, such as a string or a bool."""
    if isinstance(value, bool):
        return None
    try:
        return operator.index(value)
    except TypeError:
        return None


def as_float(value: Any) -> float | None:
    """Convert a real number of any library to float; None for anything else, such as a string or a bool."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf


def show_value(value: Any) -> str:
    """Format a value for a message: on one line, and cut short."""
    text = " ".join(repr(value).split())
    return text if len(text) <= 60 else f"{text[:57]}..."


def convert_numbers(values: Mapping[str, Any], types: Mapping[str, Any]) -> dict[str, Any]:
    """Convert NumPy and torch scalars to int or float; raise InputError listing the invalid ones.

    Args:
        values: arguments by name.
        types: their annotations as text; only "int" and "float", with or without "| None", are looked at.
    """
    converted, invalid = dict(values), []
    for name, value in values.items():
        kind, _, optional = types[name].partition(" | ")
        if kind not in ("int", "float") or (value is None and optional == "None"):
            continue
        converted[name] = as_int(value) if kind == "int" else as_float(value)
        if converted[name] is None:
            invalid.append(f"{name}={show_value(value)}: expected a {'whole ' * (kind == 'int')}number")
    if invalid:
        raise InputError("; ".join(invalid))
    return converted
