"""What only people know about a release: its purpose, its owner, who gets it. Read from a TOML file."""

from __future__ import annotations

import os
from datetime import date, datetime
from pathlib import Path
from typing import Any

from hushgraph._files import read_toml
from hushgraph._text import suggest
from hushgraph._validate import show_value
from hushgraph.errors import InputError

# Keys of the file, with what the page calls them.
FIELDS = {
    "purpose": "purpose of the release",
    "owner": "owner of the data",
    "recipients": "recipients, and who has access",
    "retention": "retention: how long what is kept",
    "unit_of_privacy": "unit of privacy: who or what one row is",
    "data": "name of the data, on what is published",
    "approved_by": "approved by",
    "date": "date",
}


def read_about(path: str | os.PathLike[str] | None) -> dict[str, str | None]:
    """Read what is known about a release; None for every field that the file leaves out, or without a file.

    Args:
        path: a TOML file with the keys of `FIELDS`, all optional: strings, and a date.

    Raises:
        InputError: the file cannot be read, is not TOML, or has an unknown key or a value of another type.
    """
    content = {} if path is None else read_toml(Path(path), f"about={path}", keys=FIELDS)
    wrong = []
    for key, value in content.items():
        if key not in FIELDS:
            advice = suggest(key, FIELDS, cutoff=0.6) or f"; expected {', '.join(FIELDS)}"
            wrong.append(f"unknown key {show_value(key)}{advice}")
        elif _as_text(key, value) is None:
            expected = "a string that is not empty" + (", or a date" if key == "date" else "")
            wrong.append(f"{key}={show_value(value)}: expected {expected}")
    if wrong:
        raise InputError(f"about={path}: {'; '.join(wrong)}")
    return {key: _as_text(key, content.get(key)) for key in FIELDS}


def _as_text(key: str, value: Any) -> str | None:
    if isinstance(value, datetime):
        value = value.date()
    if key == "date" and isinstance(value, date):
        return value.isoformat()
    return (" ".join(value.split()) or None) if isinstance(value, str) else None
