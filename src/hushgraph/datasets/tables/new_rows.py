"""Tables of nodes that were not there at training, and of the places that they list."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from hushgraph.datasets.tables.files import find_tables
from hushgraph.datasets.tables.node_table import NodeTable
from hushgraph.datasets.tables.reading import check_ids, open_database, open_pair
from hushgraph.datasets.tables.records import (
    apply_weights,
    check_columns,
    decay_sql,
    in_time_sql,
    relation_sql,
    weight_sql,
)
from hushgraph.datasets.tables.table import Table
from hushgraph.errors import GraphError
from hushgraph.graph.columns import Columns

ListedBy = Literal["source", "target", "either"]
"""The end of an edge that lists the other one."""


class NewRows(NamedTuple):
    """Rows that list places.

    Attributes:
        names: the ids of the rows, integers or text [R]; None where they have none.
        x: features [R, d], dense or CSR.
        indptr: integers [R + 1]; row i lists `places[indptr[i]:indptr[i + 1]]`.
        places: identifiers.
        edges_skipped: how many records no row owns: they say whom other nodes list.
        filled: bool [R, numbers], which numbers were empty; None where none may be.
        weights: float64 of every record, after the declared function; None where records have none.
        relations: the name of the relation of every record, where there are several.
        is_reverse: whether the row is the other end than the one that lists: such a record is the row's own
            only where the other end is no node. None where there are no places.
    """

    names: npt.NDArray[Any] | None
    x: Any
    indptr: npt.NDArray[Any]
    places: npt.NDArray[Any]
    edges_skipped: int = 0
    filled: npt.NDArray[np.bool_] | None = None
    weights: npt.NDArray[np.float64] | None = None
    relations: npt.NDArray[Any] | None = None
    is_reverse: npt.NDArray[np.bool_] | None = None


@contextmanager
def new_rows_from_tables(data: Any, *, columns: Columns, listed_by: ListedBy) -> Iterator[NewRows]:
    """Yield the rows of a node table and what they list by an edge table; valid within the context.

    Args:
        data: a folder, a pair of files or DataFrames, or a TOML file. Label and split columns are not read.
        columns: the roles of the columns in training.
        listed_by: which end of an edge lists the other one.

    Guarantees:
        The list of a row holds no repeats and not the row itself.
    """
    with open_database() as (connection, folder):
        files = find_tables(data, connection, folder, columns=columns)
        nodes, tables = open_pair(connection, files, columns, is_fixed=True)
        for edges in tables:
            check_ids(nodes, edges, columns)
            check_columns(edges, columns)
        ends = (columns.source, columns.target)
        integer_ids = nodes.is_integer(columns.id) and all(
            edges.is_integer(end) for edges in tables for end in ends
        )
        reader = NodeTable(
            connection=connection,
            table=nodes,
            columns=columns,
            labels=False,
            splits=False,
            integer_ids=integer_ids,
            num_classes=None,
            edge_names=tuple(name for edges in tables for name in edges.names),
        )
        arrays = reader.arrays()
        lists = [
            _ListTable(
                connection=connection,
                table=edges,
                columns=columns,
                integer_ids=integer_ids,
                listed_by=listed_by,
            )
            for edges in tables
        ]
        if len(tables) == 1 and not columns.has_relations:
            owners, places, skipped = lists[0].read()
            indptr = _end_lists(owners, len(arrays["node_names"]))
            yield NewRows(arrays["node_names"], arrays["x"], indptr, places, skipped, arrays.get("filled"))
        else:
            yield _join_records(arrays, [each.read_records() for each in lists], columns)


def _end_lists(owners: npt.NDArray[np.int64], count: int) -> npt.NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(np.bincount(owners, minlength=count))]).astype(np.int64)


def _join_records(
    arrays: dict[str, Any], tables: Sequence[dict[str, npt.NDArray[Any]]], columns: Columns
) -> NewRows:
    """The records of all tables, sorted by rows."""
    joined = {name: np.concatenate([each[name] for each in tables]) for name in tables[0]}
    order = np.argsort(joined["owner"], kind="stable")
    joined = {name: values[order] for name, values in joined.items()}
    return NewRows(
        arrays["node_names"],
        arrays["x"],
        _end_lists(joined["owner"], len(arrays["node_names"])),
        joined["place"],
        filled=arrays.get("filled"),
        weights=joined["weight"] if columns.is_weighted else None,
        relations=joined["relation"] if columns.relation or len(tables) > 1 else None,
        is_reverse=joined["is_reverse"] if columns.places is not None else None,
    )


@dataclass(frozen=True, kw_only=True)
class _ListTable:
    """Reads an edge table as lists of places; the database holds the table `nodes` (row_no, id)."""

    connection: Any
    table: Table
    columns: Columns
    integer_ids: bool
    listed_by: ListedBy

    def read(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[Any], int]:
        """Return owners, ascending; the identifiers that they list; how many records no row owns."""
        execute = self.connection.execute
        self.table.execute(self.connection, self._create_sql)
        self._check_ends()
        listed = execute(f"SELECT DISTINCT owner, place FROM ({self._records_sql()}) ORDER BY owner, place")
        arrays = listed.fetchnumpy()
        (owned,) = execute(f"SELECT count(DISTINCT row_no) FROM ({self._records_sql()})").fetchone()
        (others,) = execute("SELECT count(*) FROM ends WHERE source <> target").fetchone()
        return (
            np.ma.getdata(arrays["owner"]).astype(np.int64),
            np.ma.getdata(arrays["place"]),
            int(others) - int(owned),
        )

    def read_records(self) -> dict[str, npt.NDArray[Any]]:
        """Return every record of a row: owner, place, weight, name of the relation and whether it is reverse.

        What is undeclared or out of time is gone, as in training.
        """
        columns = self.columns
        self.table.execute(self.connection, self._create_sql)
        self._check_ends()
        asked = [] if self.listed_by == "either" else [self.listed_by]
        others = (
            [end for end in ("source", "target") if end not in asked] if columns.places is not None else []
        )
        ends = asked or ["source", "target"]
        records = " UNION ALL ".join(
            f"SELECT ends.row_no, nodes.row_no AS owner, ends.{'target' if end == 'source' else 'source'} "
            f"AS place, weight, decay, relation, {bool(asked) and end in others} AS is_reverse FROM "
            f"ends JOIN nodes ON ends.{end} = nodes.id WHERE ends.source <> ends.target AND in_time"
            for end in dict.fromkeys([*ends, *others])
        )
        arrays = self.connection.execute(f"SELECT * FROM ({records}) ORDER BY owner, row_no").fetchnumpy()
        codes = np.ma.filled(np.ma.asarray(arrays["relation"]), -1).astype(np.int64)
        names = (
            np.array([*columns.relation_names, ""])
            if columns.relation
            else np.array([self.table.relation or ""])
        )
        return {
            "owner": np.ma.getdata(arrays["owner"]).astype(np.int64),
            "place": np.ma.getdata(arrays["place"]),
            "weight": apply_weights(columns, arrays["weight"], arrays["decay"]),
            "relation": names[codes if columns.relation else np.zeros_like(codes)],
            "is_reverse": np.ma.getdata(arrays["is_reverse"]).astype(np.bool_),
        }

    def _create_sql(self, table: Table) -> str:
        kind = "BIGINT" if self.integer_ids else "VARCHAR"
        ends = [
            f"CAST({table.sql_name(name)} AS {kind}) AS {end}"
            for end, name in (("source", self.columns.source), ("target", self.columns.target))
        ]
        more = ""
        if self.columns.has_relations or table.relation is not None:
            cells = {
                "in_time": in_time_sql(table, self.columns),
                "decay": decay_sql(table, self.columns),
                "weight": weight_sql(table, self.columns),
                "relation": relation_sql(table, self.columns),
            }
            more = "".join(f", {sql} AS {name}" for name, sql in cells.items())
        kept = f" WHERE {in_time_sql(table, self.columns)}" if self.columns.edge_date is not None else ""
        return (
            f"CREATE OR REPLACE TABLE ends AS SELECT row_no, {', '.join(ends)}{more} FROM {table.rows}{kept}"
        )

    def _records_sql(self) -> str:
        """SQL of every record that a row owns, as (row_no, owner, place); no row lists itself."""
        owners = ("source", "target") if self.listed_by == "either" else (self.listed_by,)
        return " UNION ALL ".join(
            f"SELECT ends.row_no, nodes.row_no AS owner, ends.{'target' if end == 'source' else 'source'} "
            f"AS place FROM ends JOIN nodes ON ends.{end} = nodes.id WHERE ends.source <> ends.target"
            for end in owners
        )

    def _check_ends(self) -> None:
        if self.columns.unknown_ids == "drop":
            # A record without an end has no owner or no place, so that nobody lists anything by it.
            self.connection.execute("DELETE FROM ends WHERE source IS NULL OR target IS NULL")
            return
        row = self.connection.execute(
            "SELECT row_no, source FROM ends WHERE source IS NULL OR target IS NULL ORDER BY row_no LIMIT 1"
        ).fetchone()
        if row is not None:
            name = self.columns.source if row[1] is None else self.columns.target
            raise GraphError(f"{self.table.place(row[0], name)}: empty; expected the id of a node")
