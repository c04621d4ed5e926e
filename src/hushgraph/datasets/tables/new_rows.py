"""Tables of nodes that were not there at training, and of the places that they list."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from hushgraph.datasets.tables.files import find_tables
from hushgraph.datasets.tables.node_table import NodeTable
from hushgraph.datasets.tables.reading import check_ids, open_database, open_pair
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
    """

    names: npt.NDArray[Any] | None
    x: Any
    indptr: npt.NDArray[Any]
    places: npt.NDArray[Any]
    edges_skipped: int = 0
    filled: npt.NDArray[np.bool_] | None = None


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
        files = find_tables(data, connection, folder)
        nodes, edges = open_pair(connection, files, columns, is_fixed=True)
        check_ids(nodes, edges, columns)
        ends = (columns.source, columns.target)
        integer_ids = nodes.is_integer(columns.id) and all(map(edges.is_integer, ends))
        reader = NodeTable(
            connection=connection,
            table=nodes,
            columns=columns,
            labels=False,
            splits=False,
            integer_ids=integer_ids,
            num_classes=None,
        )
        arrays = reader.arrays()
        lists = _ListTable(
            connection=connection,
            table=edges,
            columns=columns,
            integer_ids=integer_ids,
            listed_by=listed_by,
        )
        owners, places, skipped = lists.read()
        count = len(arrays["node_names"])
        indptr = np.concatenate([[0], np.cumsum(np.bincount(owners, minlength=count))]).astype(np.int64)
        yield NewRows(arrays["node_names"], arrays["x"], indptr, places, skipped, arrays.get("filled"))


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

    def _create_sql(self, table: Table) -> str:
        kind = "BIGINT" if self.integer_ids else "VARCHAR"
        ends = [
            f"CAST({table.sql_name(name)} AS {kind}) AS {end}"
            for end, name in (("source", self.columns.source), ("target", self.columns.target))
        ]
        return f"CREATE TABLE ends AS SELECT row_no, {', '.join(ends)} FROM {table.rows}"

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
