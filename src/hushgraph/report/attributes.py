"""Which attributes of a person a model was trained on, and what was done to them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from hushgraph.graph.records import count_buckets

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
        "relations": [asdict(each) for each in folder.relations],
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
    if "classes" in columns.looked_up:
        declared = ", read off the rows"
    roles.append(("label, which is predicted", f"{folder.task.question}{declared}", [*columns.label_columns]))
    for name, values in columns.group.items():
        roles.append(("group", f"one of {len(values)} declared values, for figures alone", [name]))
    roles.append(("identifier", "public", [columns.id]))
    if columns.person is not None:
        roles.append(("person", "public; all nodes of one are protected together", [columns.person]))
    if columns.split:
        roles.append(("split", "public", [columns.split]))
    roles.append(("edges", "list the ends of each edge", [columns.source, columns.target]))
    roles += _list_records(columns)
    if columns.ignore:
        roles.append(("not used", "not read", list(columns.ignore)))
    return [{"role": role, "columns": listed, "treatment": how} for role, how, listed in roles]


def _list_records(columns: Columns) -> list[tuple[str, str, list[str]]]:
    """List the roles of what else is read from a record."""
    roles = []
    weight = columns.weight
    if weight is not None and weight.column is not None:
        how = "as it is" if weight.function == "none" else f"as {weight.function}"
        roles.append(("weight of a record", f"a number, {how}; repeats are summed", [weight.column]))
    if columns.edge_date is not None:
        limits = [f"{name} {each}" for name in ("since", "until") if (each := getattr(columns, name))]
        half = [] if columns.half_life is None else [f"half-life {columns.half_life:g} days"]
        roles.append(("date of a record", ", ".join([*limits, *half]), [columns.edge_date]))
    for name, values in columns.relation.items():
        roles.append(("relation of a record", f"declared: {', '.join(values)}; others are dropped", [name]))
    if columns.places is not None:
        is_hashed = isinstance(columns.places, str)
        count = count_buckets(str(columns.places)) if is_hashed else len(columns.places)
        how = f"hashed into {count:,}" if is_hashed else f"{count:,} declared names, others are dropped"
        roles.append(("places that are not people", how, [columns.source, columns.target]))
    return roles


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


def write_relations(relations: list[Mapping[str, Any]]) -> str:
    """Say which graph it is, where records are more than a list of nodes."""
    if not relations:
        return ""
    listed = []
    for each in relations:
        places = (
            "nodes" if each["num_places"] is None else f"{each['num_places']:,} places that are not people"
        )
        weighted = " with weights" if each["is_weighted"] else ""
        listed.append(f"{each['name']} ({places}{weighted})")
    noun = "relation" if len(listed) == 1 else "relations"
    return f" Records are of {len(listed)} {noun}: {', '.join(listed)}."
