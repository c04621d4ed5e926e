"""What `check` proposes: graph.toml, with names of columns and rules and no value of the data; and flags."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hushgraph._text import join_list, join_pair, write_toml
from hushgraph.datasets.tables.problems import NUMERIC
from hushgraph.graph.cell_rules import EVERY_COLUMN

if TYPE_CHECKING:
    from hushgraph.datasets.tables.check import Check

_COMMENTS = {
    "id": "who a row is about; each id once",
    "label": "what to predict; an empty cell is no label",
    "classes": "names of the classes in the order of their numbers; public",
    "separator": "between the labels of a cell that lists several",
    "split": "train, val or test (or 0, 1, 2); public",
    "person": "whose a node is, where people have several; public, and persons are protected",
    "source": "of an edge: who is read",
    "target": "of an edge: who reads",
    "features": "columns of numbers",
    "ignore": "not read",
    "delimiter": "between the cells of a line",
    "missing": "texts that count as an empty cell",
    "fill": "an empty number becomes this constant; [columns.fill] names one for a column",
    "indicators": "these columns get a feature that says whether the number was filled",
    "scale": "numbers are scaled with these constants, which are public and free",
    "unknown_category": "a value that is not listed in [columns.categorical]: refuse, zeros or other",
    "unknown_ids": "edges with an end that is not a node: refuse or drop",
    "categorical": "one feature for each value listed; list values that are public",
    "hashed": "text columns, each with a number of buckets",
    "decimal": "what stands before decimals",
    "thousands": "what may stand between groups of three digits",
    "percent": "columns where 12% is 0.12",
    "booleans": "columns of true or yes, 1, and false or no, 0",
    "dates": "columns of dates, as days since this day",
    "date_format": "how dates are written",
    "cycles": "parts of dates that are features too: weekday, month, day or hour",
    "group": "figures are given for each of these groups too",
    "edge_weight": "how much a record counts: a column, perhaps with :log1p or :sqrt; or count",
    "edge_date": "of an edge: when it was recorded",
    "since": "the first day of records that count",
    "until": "the last day of records that count",
    "half_life": "days after which a record counts half",
    "relation": "kinds of records between people; public",
    "places": "what records name that is no person: a list, a file of names, or hash:N; public",
    "looked_up": "read off the rows: a guarantee assumes it to be public; delete what you know to be public",
}
_TABLES = (
    *("fill", "scale", "categorical", "hashed", "decimal", "thousands", "dates", "date_format", "cycles"),
    *("group", "relation"),
)


FLAGS = {"split": "split-column", "hashed": "hash", "booleans": "boolean", "dates": "date"}
"""The flags of fields of `Columns` that have another name."""


def format_proposal(check: Check, folder: Path | None) -> str:
    """Return the text of graph.toml for this folder; that of the nodes if it is None."""
    settings = check.settings
    lines = [
        "# Proposed by hushgraph check. Change what is wrong: what stays is declared by you, is kept with a",
        "# run and is public. It holds names of columns and rules, and no value of a row.",
    ]
    if check.files is not None:
        for role, paths in zip(("nodes", "edges"), check.files, strict=True):
            names = [os.path.relpath(path, folder or check.target().parent) for path in paths]
            lines.append(f"{role} = {write_toml(names[0] if len(names) == 1 else names)}")
        if check.relations:
            base = folder or check.target().parent
            files = {
                name: [os.path.relpath(path, base) for path in paths]
                for name, paths in check.relations.items()
            }
            lines[-1] = f"edges = {write_toml({json.dumps(name): each for name, each in files.items()})}"
    lines += ["", "[columns]"]
    numbers = [each.name for each in check.columns if each.table == "nodes" and each.looks_like in NUMERIC]
    for key, comment in _COMMENTS.items():
        value = _shorten(settings.get(key))
        if value is not None and not isinstance(value, Mapping):
            lines.append(f"{key} = {write_toml(value)}  # {comment}")
        elif key == "label" and "label" in check.missing_roles:
            lines.append('# label = "..."  # which column to predict')
        elif key == "classes" and "classes" in check.declared:
            lines.append(f'# classes = ["..."]  # {comment}; or --classes')
        elif key == "features" and numbers:
            lines.append("# Every column without another role is a number: a feature.")
    for key in _TABLES:
        value = _shorten(settings.get(key))
        if isinstance(value, Mapping):
            lines += ["", f"[columns.{key}]  # {_COMMENTS[key]}"]
            lines += [f"{write_toml(str(name))} = {write_toml(each)}" for name, each in value.items()]
    return "\n".join(lines) + "\n"


def format_flags(settings: Mapping[str, Any]) -> list[str]:
    """Return fields of `Columns`, or settings of the task, as flags of a command line."""
    words = []
    for key in (*_COMMENTS, *(name for name in settings if name not in _COMMENTS)):
        value = _shorten(settings.get(key))
        if value is None or (not value and value != 0):
            continue
        flag = FLAGS.get(key, key.replace("_", "-"))
        if value is True:
            words.append(f"--{flag}")
            continue
        texts: Iterable[str]
        if isinstance(value, Mapping):
            texts = [
                _text(each)
                if name == EVERY_COLUMN
                else join_pair(name, join_list(each, "|") if isinstance(each, (list, tuple)) else _text(each))
                for name, each in value.items()
            ]
        elif isinstance(value, (list, tuple)):
            # Places are declared in a file.
            texts = ["FILE"] if key == "places" else [join_list(map(_text, value))]
        else:
            texts = ["tab" if value == "\t" else _text(value)]
        for text in texts:
            # A value that begins with a dash would be taken for a flag.
            between = "=" if text.startswith("-") else " "
            words.append(f"--{flag}{between}{shlex.quote(text)}")
    return words


def _shorten(value: Any) -> Any:
    """Return a rule for every column alone as that rule."""
    return value[EVERY_COLUMN] if isinstance(value, Mapping) and set(value) == {EVERY_COLUMN} else value


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) and float(f"{value:g}") == value else str(value)
