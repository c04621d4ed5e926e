"""The graph.toml that `check` proposes: names of columns, rules and comments, and no value of the data."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hushgraph.datasets.tables.check import Check

_COMMENTS = {
    "id": "who a row is about; each id once",
    "label": "what to predict; an empty cell is no label",
    "classes": "names of the classes in the order of their numbers; public",
    "split": "train, val or test (or 0, 1, 2); public",
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
}
_TABLES = ("fill", "scale", "categorical", "hashed")


def format_proposal(check: Check) -> str:
    """Return the text of graph.toml."""
    settings = check.settings
    lines = [
        "# Proposed by hushgraph check. Change what is wrong: what stays is declared by you, is kept with a",
        "# run and is public. It holds names of columns and rules, and nothing that was read off the rows.",
    ]
    if check.files is not None:
        nodes, edges = check.files
        lines.append(f"nodes = {_toml(nodes.name)}")
        lines.append(f"edges = {_toml(os.path.relpath(edges, nodes.parent))}")
    lines += ["", "[columns]"]
    numbers = [each.name for each in check.columns if each.table == "nodes" and each.looks_like == "number"]
    for key, comment in _COMMENTS.items():
        value = settings.get(key)
        if value is not None and not isinstance(value, Mapping):
            lines.append(f"{key} = {_toml(value)}  # {comment}")
        elif key == "label" and "label" in check.missing_roles:
            lines.append('# label = "..."  # which column to predict')
        elif key == "classes" and "classes" in check.declared:
            lines.append(f'# classes = ["..."]  # {comment}; or --classes')
        elif key == "features" and numbers:
            lines.append("# Every column without another role is a number: a feature.")
    for key in _TABLES:
        value = settings.get(key)
        if isinstance(value, Mapping):
            lines += ["", f"[columns.{key}]  # {_COMMENTS[key]}"]
            lines += [
                f"{json.dumps(str(name), ensure_ascii=False)} = {_toml(each)}" for name, each in value.items()
            ]
    return "\n".join(lines) + "\n"


def _toml(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(_toml(each) for each in value)}]"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key} = {_toml(each)}' for key, each in value.items())}}}"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, float)):
        return f"{value:g}" if float(f"{value:g}") == value else repr(value)
    # A JSON string is a TOML string, but for one control character.
    return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")
