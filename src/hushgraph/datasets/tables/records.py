"""Records of edge tables: SQL of weights, dates, relations and places, and the relations made of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from hushgraph.datasets.tables.cells import days_sql, feature_sql, quote, time_sql
from hushgraph.datasets.tables.table import Table
from hushgraph.graph.cell_rules import rule_for
from hushgraph.graph.columns import Columns
from hushgraph.graph.records import PEOPLE, PLACES, EdgeWeight, Relation, count_buckets


class Records(NamedTuple):
    """Records of one table; what is undeclared or out of time is gone.

    Attributes:
        source, target: numbers of nodes, -1 for an end that is a place.
        place: numbers of places, -1 for a record between nodes.
        weight: after the declared function; None where records have none.
        relation: numbers of relations of records between nodes; 0 throughout where none are declared.
    """

    source: npt.NDArray[np.int64]
    target: npt.NDArray[np.int64]
    place: npt.NDArray[np.int64]
    weight: npt.NDArray[np.float64] | None
    relation: npt.NDArray[np.int64]


def check_columns(table: Table, columns: Columns) -> None:
    """Raise GraphError unless the edges have the columns that are declared about records."""
    weight = None if columns.weight is None else columns.weight.column
    roles = [(weight, "edge-weight"), (columns.edge_date, "edge-date")]
    for name, role in (*roles, *((name, "relation") for name in columns.relation)):
        if name is not None:
            table.check_exists(name, role)
            check_type(table, columns, name, role)


def check_type(table: Table, columns: Columns, name: str, role: str) -> None:
    """Raise GraphError unless a column of edges has a type that its role allows."""
    table.check_scalar(name, role)
    if role == "relation":
        table.check_exact(name, role)
    if role == "edge-weight" and (rule := columns.name_text_rule(name)):
        table.check_text(name, role, f"--{rule}")
    if role == "edge-date":
        table.check_date(name, role)
        if rule_for(columns.date_format, name) is not None:
            table.check_text(name, role, "--date-format")


def list_cells(table: Table, columns: Columns) -> dict[str, str]:
    """SQL of what a record holds beside its ends, by name."""
    return {
        "in_time": _in_time_sql(table, columns),
        "decay": _decay_sql(table, columns),
        "weight": _weight_sql(table, columns),
        "relation": _relation_sql(table, columns),
    }


def _weight_sql(table: Table, columns: Columns) -> str:
    """SQL of the number in the column of weights; NULL where it is none, 1 without a column."""
    weight = columns.weight
    if weight is None or weight.column is None:
        return "1.0::DOUBLE"
    return feature_sql(columns, weight.column, table.sql_name(weight.column))


def _in_time_sql(table: Table, columns: Columns) -> str:
    """SQL that says whether a record is between the declared days; a record without a date is not."""
    if columns.edge_date is None:
        return "true"
    time = _date_sql(table, columns)
    first = f" AND {time} >= TIMESTAMP {quote(columns.since)}" if columns.since else ""
    last = f" AND {time} < TIMESTAMP {quote(columns.until)} + INTERVAL 1 DAY" if columns.until else ""
    return f"COALESCE({time} IS NOT NULL{first}{last}, false)"


def _decay_sql(table: Table, columns: Columns) -> str:
    """SQL of what age leaves of a weight: 1 at the end of the last day, half of it after the half-life."""
    if columns.edge_date is None or columns.half_life is None or columns.until is None:
        return "1.0::DOUBLE"
    form = rule_for(columns.date_format, columns.edge_date)
    days = f"({days_sql(table.sql_name(columns.edge_date), columns.until, form)} - 1.0)"
    return f"pow(2.0, {days} / {columns.half_life!r})"


def _date_sql(table: Table, columns: Columns) -> str:
    name = str(columns.edge_date)
    return time_sql(table.sql_name(name), rule_for(columns.date_format, name))


def _relation_sql(table: Table, columns: Columns) -> str:
    """SQL of the number of the declared relation of a record; NULL for others."""
    for name, values in columns.relation.items():
        cases = " ".join(f"WHEN {quote(value)} THEN {number}" for number, value in enumerate(values))
        return f"CAST(CASE CAST({table.sql_name(name)} AS VARCHAR) {cases} END AS INTEGER)"
    return "0::INTEGER"


def place_sql(name: str, columns: Columns) -> str:
    """SQL of the number of a place, from the text that names it; the table `places` holds declared names."""
    if columns.places is None:
        return "NULL::BIGINT"
    if isinstance(columns.places, str):
        return f"CAST('0x' || substr(md5({name}), 1, 15) AS BIGINT) % {count_buckets(columns.places)}"
    return f"(SELECT place FROM places WHERE places.name = {name})"


def create_places(connection: Any, columns: Columns) -> None:
    """Make the table of declared places, if there are any."""
    if columns.places is None or isinstance(columns.places, str):
        return
    names = np.array(columns.places, object)
    connection.register("given_places", {"name": names, "place": np.arange(len(names))})
    connection.execute(
        "CREATE OR REPLACE TABLE places AS SELECT CAST(name AS VARCHAR) AS name, place FROM given_places"
    )
    connection.unregister("given_places")


def apply_weights(columns: Columns, raw: Any, decay: Any) -> npt.NDArray[np.float64]:
    """Weights after the declared function and age, 0 for what is not finite and above 0."""
    declared = columns.weight or EdgeWeight(column=None)
    with np.errstate(all="ignore"):
        weights = declared.apply(np.ma.filled(np.ma.asarray(raw, np.float64), np.nan))
        weights = weights * np.ma.filled(np.ma.asarray(decay, np.float64), 0.0)
    return np.where(np.isfinite(weights), weights, 0.0)


def build_relations(
    tables: Sequence[tuple[str, Records]], columns: Columns, num_nodes: int
) -> list[Relation]:
    """The relations of one table of edges, or of several with a name each.

    Args:
        tables: names and records; one table has the name "".
        columns: what is declared.
        num_nodes: N.
    """
    names = columns.relation_names or tuple(name or PEOPLE for name, _ in tables)
    relations = []
    for number, name in enumerate(names):
        records = tables[number if len(tables) > 1 else 0][1]
        kept = (records.place < 0) & (records.relation == (number if columns.relation else 0))
        relations.append(
            Relation.between_people(
                name,
                np.stack([records.source[kept], records.target[kept]]),
                num_nodes=num_nodes,
                weights=None if records.weight is None else records.weight[kept],
            )
        )
    return relations if columns.places is None else [*relations, _build_places(tables, columns, num_nodes)]


def _build_places(tables: Sequence[tuple[str, Records]], columns: Columns, num_nodes: int) -> Relation:
    """The relation of records that name places, of all tables together."""
    names = columns.places or ()
    is_hashed = isinstance(names, str)
    parts = [(each, each.place >= 0) for _, each in tables]
    persons = np.concatenate([np.maximum(each.source, each.target)[kept] for each, kept in parts])
    weights = [each.weight[kept] for each, kept in parts if each.weight is not None]
    return Relation.to_places(
        PLACES,
        persons,
        np.concatenate([each.place[kept] for each, kept in parts]),
        num_nodes=num_nodes,
        num_places=count_buckets(names) if isinstance(names, str) else len(names),
        weights=np.concatenate(weights) if weights else None,
        place_names=None if is_hashed else np.array(names, np.str_),
        is_hashed=is_hashed,
    )
