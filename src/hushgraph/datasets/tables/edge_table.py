"""The edge table: DuckDB joins ids to node numbers, and the result is fetched in chunks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from hushgraph.datasets.tables.table import Table
from hushgraph.errors import GraphError
from hushgraph.graph.columns import Columns
from hushgraph.graph.graph import id_type

CHUNK = 1 << 22


@dataclass(frozen=True, kw_only=True)
class EdgeTable:
    """Reads one edge table.

    Attributes:
        connection: a DuckDB connection to a database that holds the table `nodes` (row_no, id).
        table: the file.
        nodes: the node table, for messages.
        columns: the roles of its columns.
    """

    connection: Any
    table: Table
    nodes: Table
    columns: Columns

    def array(self, num_nodes: int) -> tuple[npt.NDArray[Any], int]:
        """Return node numbers [2, E], sources, then targets, and how many edges were dropped."""
        self.table.execute(self.connection, lambda table: self._create_sql(table, num_nodes))
        count, sources, targets = self.connection.execute(
            "SELECT count(*), count(source), count(target) FROM edges"
        ).fetchone()
        # An empty table means no edges: refusing it would reveal that the last row was emptied.
        dropped = 0
        if min(sources, targets) < count:
            if self.columns.unknown_ids == "refuse":
                self._raise_for_id()
            dropped = count - self._drop_unknown()
            count -= dropped
        edges = np.empty((2, int(count)), id_type(num_nodes))
        for begin in range(0, count, CHUNK):
            # A range of rowid is a contiguous part of the table, so it is read without a full scan.
            chunk = self.connection.execute(
                "SELECT source, target FROM edges WHERE rowid >= ? AND rowid < ?", [begin, begin + CHUNK]
            ).fetchnumpy()
            edges[0, begin : begin + CHUNK] = chunk["source"]
            edges[1, begin : begin + CHUNK] = chunk["target"]
        return edges, int(dropped)

    def _drop_unknown(self) -> int:
        """Replace the table `edges` by its rows between nodes; return how many there are."""
        self.connection.execute(
            "CREATE OR REPLACE TABLE edges AS SELECT * FROM edges "
            "WHERE source IS NOT NULL AND target IS NOT NULL"
        )
        (kept,) = self.connection.execute("SELECT count(*) FROM edges").fetchone()
        return int(kept)

    def _create_sql(self, table: Table, num_nodes: int) -> str:
        """Return the SQL that creates the table `edges`; an id that is not a node becomes NULL."""
        number = "INTEGER" if id_type(num_nodes) is np.int32 else "BIGINT"
        ends = [
            f"{table.id_sql(name, like=self.nodes.type_of(self.columns.id))} AS {end}"
            for end, name in (("u", self.columns.source), ("w", self.columns.target))
        ]
        return (
            f"CREATE TABLE edges AS SELECT e.row_no, CAST(s.row_no AS {number}) AS source, "
            f"CAST(t.row_no AS {number}) AS target FROM (SELECT row_no, {', '.join(ends)} FROM "
            f"{table.rows}) AS e LEFT JOIN nodes AS s ON e.u = s.id LEFT JOIN nodes AS t ON e.w = t.id"
        )

    def _raise_for_id(self) -> NoReturn:
        """Raise GraphError naming the first edge with an end that is not a node."""
        row, source = self.connection.execute(
            "SELECT row_no, source FROM edges WHERE source IS NULL OR target IS NULL ORDER BY row_no LIMIT 1"
        ).fetchone()
        name = self.columns.source if source is None else self.columns.target
        text = self.table.cell(self.connection, row, name)
        where = self.table.place(row, name)
        drop = self.table.advice("drop such edges (--unknown-ids drop)", "remove the edge")
        if text is None:
            raise GraphError(f"{where}: empty; expected the id of a node; or {drop}")
        kinds = self.nodes.type_of(self.columns.id), self.table.type_of(name)
        advice = f"ids are {kinds[0]} there and {kinds[1]} here" if kinds[0] != kinds[1] else "add the node"
        advice += f", or {drop}"
        raise GraphError(
            f"{where}: {text[:40]!r} is not an id in {self.nodes.short_name}, column "
            f"{self.columns.id!r}; {advice}"
        )
