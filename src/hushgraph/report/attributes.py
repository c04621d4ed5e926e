"""Which attributes of a person a model was trained on, and what was done to them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hushgraph.report.pages import Table

if TYPE_CHECKING:
    from hushgraph.graph.columns import Columns
    from hushgraph.runs.folder import RunFolder


def describe_attributes(folder: RunFolder) -> dict[str, Any]:
    """Return what the model reads of a row, as JSON values; names of columns where the data was tables."""
    norm = folder.config.feature_norm
    columns = folder.columns
    return {
        "features": folder.num_features,
        "scaled_to_norm": norm or None,
        "columns": None if columns is None else _list_columns(folder, columns),
    }


def _list_columns(folder: RunFolder, columns: Columns) -> list[dict[str, Any]]:
    """List roles in the order in which a reader asks for them: columns of one role and treatment together."""
    names = columns.features or ()
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(_describe_number(folder, columns, name), []).append(name)
    roles = [("feature", treatment, listed) for treatment, listed in groups.items()]
    unknown = {"refuse": "", "zeros": ", others become zeros", "other": ", others become one more feature"}
    for name, values in columns.categorical.items():
        roles.append(
            ("feature", f"one of {len(values)} declared values{unknown[columns.unknown_category]}", [name])
        )
    for name, buckets in columns.hashed.items():
        roles.append(("feature", f"text, hashed into {buckets:,} buckets", [name]))
    declared = "" if columns.classes is None else ", declared"
    roles.append(("label, which is predicted", f"{folder.task.question}{declared}", [*columns.label_columns]))
    for name, values in columns.group.items():
        roles.append(("group", f"one of {len(values)} declared values, for figures alone", [name]))
    roles.append(("identifier", "public", [columns.id]))
    if columns.split:
        roles.append(("split", "public", [columns.split]))
    roles.append(("edges", "list the ends of each edge", [columns.source, columns.target]))
    if columns.ignore:
        roles.append(("not used", "not read", list(columns.ignore)))
    return [{"role": role, "columns": listed, "treatment": how} for role, how, listed in roles]


def _describe_number(folder: RunFolder, columns: Columns, name: str) -> str:
    """Say what becomes of a numeric column."""
    what = "a number"
    if name in columns.booleans:
        what = "true or false, as 1 or 0"
    elif name in columns.dates:
        parts = "".join(f", and its {part} as sine and cosine" for part in columns.cycles.get(name, ()))
        what = f"a date, as days since {columns.dates[name]}{parts}"
    scaled = ""
    if name in folder.paid_columns:
        scaled = ", scaled with constants from a noisy histogram, which is paid for"
    elif name in columns.scale and folder.config.numbers != "as-is":
        scaled = ", scaled with declared constants"
    constants = columns.constants
    constant = constants.get(name, constants.get("*"))
    if constant is None:
        return f"{what}{scaled}" if scaled or what != "a number" else "a number, taken as it is"
    flag = ", and one more feature says so" if name in columns.indicators else ""
    return f"{what}{scaled}; an empty cell is filled with {constant:g}{flag}"


def tabulate_attributes(attributes: Mapping[str, Any]) -> Table | None:
    """Return the columns by role; None where the data came as arrays."""
    if attributes["columns"] is None:
        return None
    return Table(
        caption="Attributes by role",
        heads=("role", "columns", "how it is used"),
        rows=[
            (each["role"], ", ".join(each["columns"]), each["treatment"]) for each in attributes["columns"]
        ],
    )


def write_attributes(attributes: Mapping[str, Any]) -> str:
    """Say how many features there are and how rows are scaled."""
    count = f"The model reads {attributes['features']:,} features of a node"
    source = "." if attributes["columns"] is not None else "; the data came as arrays, without names."
    scaled = attributes["scaled_to_norm"]
    scale = (
        " The features are not scaled."
        if scaled is None
        else f" The features of each row are scaled to norm {scaled:g}, from that row alone."
    )
    return count + source + scale
