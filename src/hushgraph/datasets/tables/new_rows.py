"""Tables of nodes that were not there at training, and of the places that they list."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from hushgraph._arrays import find_ends
from hushgraph.datasets.tables.files import find_tables
from hushgraph.datasets.tables.node_table import LabelKind, NodeTable
from hushgraph.datasets.tables.reading import check_records, choose_kind, open_database, open_pair
from hushgraph.datasets.tables.records import apply_weights, list_cells
from hushgraph.datasets.tables.table import Table
from hushgraph.errors import GraphError
from hushgraph.graph.columns import Columns

_CELLS = ("y", "persons", "train_idx")
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
        also_new: as in `TableFiles`.
        undeclared: how many records of undeclared relations are gone.
        cells: of rows of the graph, `y`, `persons` and splits as `NodeTable.arrays` gives them; else empty.
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
    also_new: npt.NDArray[Any] | None = None
    undeclared: int = 0
    cells: Mapping[str, Any] = MappingProxyType({})


@contextmanager
def new_rows_from_tables(
    data: Any,
    *,
    columns: Columns,
    listed_by: ListedBy,
    labels: bool = False,
    splits: bool = False,
    kind: LabelKind | None = None,
    num_classes: int | None = None,
) -> Iterator[NewRows]:
    """Yield the rows of a node table and what they list by an edge table; valid within the context.

    Args:
        data: a folder, a pair of files or DataFrames, or a TOML file.
        columns: the roles of the columns in training.
        listed_by: which end of an edge lists the other one.
        labels, splits: whether labels and persons, and the column of splits, are read: of rows of the graph.
        kind, num_classes: as in `arrays_from_tables`.

    Guarantees:
        The list of a row holds no repeats and not the row itself.
    """
    with open_database() as (connection, folder):
        files = find_tables(data, connection, folder, columns=columns)
        nodes, tables = open_pair(connection, files, columns, is_fixed=True)
        check_records(nodes, tables, columns)
        ends = (columns.source, columns.target)
        integer_ids = nodes.is_integer(columns.id) and all(
            edges.may_be_integer(end) for edges in tables for end in ends
        )
        reader = NodeTable(
            connection=connection,
            table=nodes,
            columns=columns,
            labels=labels,
            splits=splits,
            integer_ids=integer_ids,
            num_classes=num_classes,
            kind=choose_kind(kind, nodes, columns) if labels else "classes",
            is_part=files.also_new is not None,
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
            records, skipped = lists[0].read_pairs()
            rows = _join_records(arrays, [records], columns)._replace(edges_skipped=skipped)
        else:
            rows = _join_records(arrays, [each.read_records() for each in lists], columns)
        cells = {name: arrays[name] for name in _CELLS if labels and name in arrays}
        yield rows._replace(also_new=files.also_new, cells=cells)


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
        find_ends(np.bincount(joined["owner"], minlength=len(arrays["node_names"]))),
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

    def read_pairs(self) -> tuple[dict[str, npt.NDArray[Any]], int]:
        """Return owners and the places that they list, each pair once; how many records no row owns."""
        records = self._find_records()
        arrays = self._fetch(f"SELECT DISTINCT owner, place FROM ({records}) ORDER BY owner, place")
        (owned,) = self.connection.execute(f"SELECT count(DISTINCT row_no) FROM ({records})").fetchone()
        (others,) = self.connection.execute("SELECT count(*) FROM ends WHERE source <> target").fetchone()
        return arrays, int(others) - int(owned)

    def read_records(self) -> dict[str, npt.NDArray[Any]]:
        """Return every record of a row: owner, place, weight, name of the relation and whether it is reverse.

        What is undeclared or out of time is gone, as in training.
        """
        columns = self.columns
        arrays = self._fetch(f"SELECT * FROM ({self._find_records()}) ORDER BY owner, row_no")
        codes = np.ma.filled(np.ma.asarray(arrays["relation"]), -1).astype(np.int64)
        names = (
            np.array([*columns.relation_names, ""])
            if columns.relation
            else np.array([self.table.relation or ""])
        )
        return {
            **{name: np.ma.getdata(arrays[name]) for name in ("owner", "place", "is_reverse")},
            "weight": apply_weights(columns, arrays["weight"], arrays["decay"]),
            "relation": names[codes if columns.relation else np.zeros_like(codes)],
        }

    def _fetch(self, sql: str) -> dict[str, Any]:
        fetched: dict[str, Any] = self.connection.execute(sql).fetchnumpy()
        return fetched

    def _find_records(self) -> str:
        """Create the table `ends`; return SQL of every record that a row owns. No row lists itself."""
        self.table.execute(self.connection, self._create_sql)
        self._check_ends()
        asked = ["source", "target"] if self.listed_by == "either" else [self.listed_by]
        # A record of a place is owned by the end that is a node.
        ends = dict.fromkeys([*asked, *(["source", "target"] if self.columns.places is not None else [])])
        return " UNION ALL ".join(
            f"SELECT ends.*, nodes.row_no AS owner, {'target' if end == 'source' else 'source'} AS place, "
            f"{end not in asked} AS is_reverse FROM ends JOIN nodes ON {end} = id WHERE source <> target"
            for end in ends
        )

    def _create_sql(self, table: Table) -> str:
        kind, columns = "BIGINT" if self.integer_ids else "VARCHAR", self.columns
        cells = list_cells(table, columns)
        kept = cells.pop("in_time")
        for end, name in (("source", columns.source), ("target", columns.target)):
            cells[end] = table.id_sql(name, like=kind)
        listed = ", ".join(f"{sql} AS {name}" for name, sql in cells.items())
        return f"CREATE OR REPLACE TABLE ends AS SELECT row_no, {listed} FROM {table.rows} WHERE {kept}"

    def _check_ends(self) -> None:
        if self.columns.unknown_ids == "drop" or self.columns.places is not None:
            # A record without an end has no owner or no place, so that nobody lists anything by it.
            self.connection.execute("DELETE FROM ends WHERE source IS NULL OR target IS NULL")
            return
        row = self.connection.execute(
            "SELECT row_no, source FROM ends WHERE source IS NULL OR target IS NULL ORDER BY row_no LIMIT 1"
        ).fetchone()
        if row is not None:
            name = self.columns.source if row[1] is None else self.columns.target
            raise GraphError(f"{self.table.place(row[0], name)}: empty; expected the id of a node")
