"""The edge table: DuckDB joins ids to node numbers, and the result is fetched in chunks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from hushgraph import _arrays
from hushgraph._threads import map_in_order
from hushgraph.datasets.tables.records import (
    Records,
    apply_weights,
    create_places,
    list_cells,
    place_sql,
)
from hushgraph.datasets.tables.table import Table
from hushgraph.errors import GraphError
from hushgraph.graph.checks import id_type
from hushgraph.graph.columns import Columns

CHUNK = 1 << 22
# Ids that lie this close together, by the nodes, have a table with the number of each.
_SPAN = 4


@dataclass(frozen=True, kw_only=True)
class NodeNumbers:
    """The numbers of nodes whose ids are integers that lie close together.

    Attributes:
        low: the least id.
        count: how many nodes there are.
        table: the number of each id from `low` on, -1 where no node has it; empty where ids are in order and
            without gaps.
    """

    low: int
    count: int
    table: npt.NDArray[Any]

    @classmethod
    def of(cls, names: npt.NDArray[Any]) -> NodeNumbers | None:
        """Number ids that are in the order of nodes; None where the table would be large."""
        low, high = int(names.min()), int(names.max())
        if high - low >= _SPAN * len(names) + CHUNK:
            return None
        dtype = id_type(len(names))
        starts = range(0, len(names), CHUNK)
        own = [np.arange(begin, min(begin + CHUNK, len(names))) for begin in starts]
        if all(np.array_equal(names[part[0] : part[-1] + 1] - low, part) for part in own):
            return cls(low=low, count=len(names), table=np.empty(0, dtype))
        table = _arrays.looked_up(high - low + 1, dtype)
        table[:] = -1
        for part in own:
            table[names[part[0] : part[-1] + 1] - low] = part
        return cls(low=low, count=len(names), table=table)

    def find(self, ids: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """The number of every id, -1 where no node has it, or the cell is empty."""
        places = np.ma.getdata(ids).astype(np.int64)
        places -= self.low
        end = len(self.table) or self.count
        wrong = np.ma.getmaskarray(ids) if np.ma.is_masked(ids) else None
        if wrong is not None or places.min() < 0 or places.max() >= end:
            is_wrong = (places < 0) | (places >= end)
            places[is_wrong if wrong is None else is_wrong | wrong] = -1
            numbers = places if not len(self.table) else np.where(places < 0, -1, self.table[places])
        else:
            numbers = self.table[places] if len(self.table) else places
        return numbers.astype(self.table.dtype, copy=False)


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

    def array(self, names: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], int]:
        """Return node numbers [2, E], sources, then targets, and how many edges were dropped.

        Args:
            names: the ids of the nodes.
        """
        is_dated, num_nodes = self.columns.edge_date is not None, len(names)
        numbers = None if is_dated else self._find_numbers(names)
        if numbers is not None:
            return self._stream(numbers)
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

    def _find_numbers(self, names: npt.NDArray[Any]) -> NodeNumbers | None:
        """What turns the ends of edges into numbers without a join; None where that takes text or a join."""
        has_integers = self.nodes.is_integer(self.columns.id) and all(
            self.table.is_integer(name) for name in (self.columns.source, self.columns.target)
        )
        return NodeNumbers.of(names) if has_integers and self.table.is_streamed else None

    def _stream(self, numbers: NodeNumbers) -> tuple[npt.NDArray[Any], int]:
        """As `array`, some rows at a time, from several threads; nothing but the result is written."""
        ends = (self.columns.source, self.columns.target)
        edges = _arrays.empty((2, self.table.count_rows()), id_type(numbers.count))

        def read(rows: tuple[Table, int, int]) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
            part, begin, end = rows
            with self.connection.cursor() as cursor:
                source, target = (numbers.find(ids) for ids in part.read_rows(cursor, ends, begin, end))
            return source, target

        at, row = 0, 0
        for source, target in map_in_order(read, self.table.cut(CHUNK)):
            row += len(source)
            if min(source.min(), target.min()) < 0:
                is_known = (source >= 0) & (target >= 0)
                if self.columns.unknown_ids == "refuse":
                    first = int(is_known.argmin())
                    self._raise_for_id(row - len(source) + first, ends[0 if source[first] < 0 else 1])
                source, target = source[is_known], target[is_known]
            edges[0, at : at + len(source)], edges[1, at : at + len(source)] = source, target
            at += len(source)
        return edges[:, :at], row - at

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
            row, source = self.connection.execute(
                "SELECT row_no, source FROM edges WHERE source IS NULL OR target IS NULL ORDER BY row_no "
                "LIMIT 1"
            ).fetchone()
            self._raise_for_id(row, self.columns.source if source is None else self.columns.target)
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
            cells = list_cells(table, self.columns)
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

    def _raise_for_id(self, row: int, name: str) -> NoReturn:
        """Raise GraphError naming the first edge with an end that is not a node, and the column of that."""
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
