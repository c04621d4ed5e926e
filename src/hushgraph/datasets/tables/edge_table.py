"""The edge table: DuckDB joins ids to node numbers, and the result is fetched in chunks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from hushgraph import _arrays
from hushgraph.datasets.tables.records import (
    Records,
    apply_weights,
    create_places,
    decay_sql,
    in_time_sql,
    place_sql,
    relation_sql,
    weight_sql,
)
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
        is_dated = self.columns.edge_date is not None
        self.table.execute(
            self.connection, lambda table: self._create_sql(table, num_nodes, is_full=is_dated)
        )
        dropped = self._check_ends()
        if is_dated:
            dropped += self._keep("in_time")
        (count,) = self.connection.execute("SELECT count(*) FROM edges").fetchone()
        edges = _arrays.empty((2, int(count)), id_type(num_nodes))
        for begin, chunk in self._fetch("source, target"):
            edges[0, begin : begin + CHUNK] = chunk["source"]
            edges[1, begin : begin + CHUNK] = chunk["target"]
        return edges, dropped

    def records(self, num_nodes: int) -> tuple[Records, dict[str, int]]:
        """Return records with weights, relations and places, and how many were dropped or count as 0.

        Guarantees:
            What becomes of a record depends on that record, the ids of the nodes and what is declared.
        """
        create_places(self.connection, self.columns)
        self.table.execute(self.connection, lambda table: self._create_sql(table, num_nodes, is_full=True))
        counts = {}
        if self.columns.places is None:
            counts["edges to unknown ids dropped"] = self._check_ends()
        else:
            known = "(source IS NOT NULL AND target IS NOT NULL) OR place IS NOT NULL"
            counts["records of undeclared places dropped"] = self._keep(known)
        counts["records out of time dropped"] = self._keep("in_time")
        counts["records of undeclared relations dropped"] = self._keep(
            "relation IS NOT NULL OR source IS NULL OR target IS NULL"
        )
        chunks = [chunk for _, chunk in self._fetch("source, target, place, weight, decay, relation")]
        ends = {
            name: np.concatenate([np.ma.filled(np.ma.asarray(chunk[name]), -1) for chunk in chunks]).astype(
                np.int64
            )
            for name in ("source", "target", "place", "relation")
        }
        # Between nodes, an id that names a place too is a node.
        ends["place"][(ends["source"] >= 0) & (ends["target"] >= 0)] = -1
        weight = None
        if self.columns.is_weighted:
            weight = np.concatenate(
                [apply_weights(self.columns, chunk["weight"], chunk["decay"]) for chunk in chunks]
            )
            counts["weights that count as 0"] = int((weight == 0).sum())
        return Records(weight=weight, **ends), counts

    def _check_ends(self) -> int:
        """Drop edges with an end that is not a node, or refuse them; return how many were dropped."""
        count, sources, targets = self.connection.execute(
            "SELECT count(*), count(source), count(target) FROM edges"
        ).fetchone()
        # An empty table means no edges: refusing it would reveal that the last row was emptied.
        if min(sources, targets) == count:
            return 0
        if self.columns.unknown_ids == "refuse":
            self._raise_for_id()
        return self._keep("source IS NOT NULL AND target IS NOT NULL")

    def _fetch(self, names: str) -> Iterator[tuple[int, dict[str, Any]]]:
        """Columns of the table `edges` in chunks, at least one, each with the number of its first row."""
        (count,) = self.connection.execute("SELECT count(*) FROM edges").fetchone()
        for begin in range(0, max(count, 1), CHUNK):
            # A range of rowid is a contiguous part of the table, so it is read without a full scan.
            yield (
                begin,
                self.connection.execute(
                    f"SELECT {names} FROM edges WHERE rowid >= ? AND rowid < ?", [begin, begin + CHUNK]
                ).fetchnumpy(),
            )

    def _keep(self, condition: str) -> int:
        """Replace the table `edges` by its rows that meet a condition; return how many were dropped."""
        (before,) = self.connection.execute("SELECT count(*) FROM edges").fetchone()
        (after,) = self.connection.execute(f"SELECT count(*) FROM edges WHERE {condition}").fetchone()
        if after < before:
            self.connection.execute(f"CREATE OR REPLACE TABLE edges AS SELECT * FROM edges WHERE {condition}")
        return int(before) - int(after)

    def _create_sql(self, table: Table, num_nodes: int, *, is_full: bool) -> str:
        """Return the SQL that creates the table `edges`; an id that is not a node becomes NULL.

        Args:
            table: the edges.
            num_nodes: N.
            is_full: whether records have more than two ends.
        """
        number = "INTEGER" if id_type(num_nodes) is np.int32 else "BIGINT"
        ends = [
            f"{table.id_sql(name, like=self.nodes.type_of(self.columns.id))} AS {end}"
            for end, name in (("u", self.columns.source), ("w", self.columns.target))
        ]
        joins = "LEFT JOIN nodes AS s ON e.u = s.id LEFT JOIN nodes AS t ON e.w = t.id"
        more, shown = "", ""
        if is_full:
            cells = {
                "in_time": in_time_sql(table, self.columns),
                "decay": decay_sql(table, self.columns),
                "weight": weight_sql(table, self.columns),
                "relation": relation_sql(table, self.columns),
            }
            more = "".join(f", {sql} AS {name}" for name, sql in cells.items())
            more += "".join(
                f", {table.id_sql(name, like='VARCHAR')} AS {end}"
                for end, name in (("u_text", self.columns.source), ("w_text", self.columns.target))
            )
            places = [place_sql(f"e.{end}", self.columns) for end in ("w_text", "u_text")]
            shown = (
                ", e.in_time, e.decay, e.weight, e.relation, CASE WHEN s.row_no IS NOT NULL AND t.row_no "
                f"IS NULL THEN {places[0]} WHEN t.row_no IS NOT NULL AND s.row_no IS NULL THEN {places[1]} "
                "END AS place"
            )
        return (
            f"CREATE OR REPLACE TABLE edges AS SELECT e.row_no, CAST(s.row_no AS {number}) AS source, "
            f"CAST(t.row_no AS {number}) AS target{shown} FROM (SELECT row_no, {', '.join(ends)}{more} FROM "
            f"{table.rows}) AS e {joins}"
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
