"""Node and edge tables through DuckDB, within a memory limit: Parquet or CSV, one file or many."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hushgraph.billboard.board import digest_board
from hushgraph.datasets.tables.table import open_table
from hushgraph.engines.plan import SPLITS, board_folder, read_about, resolve_columns
from hushgraph.engines.records import Packed, swap_ends
from hushgraph.errors import GraphError
from hushgraph.graph.columns import Columns
from hushgraph.graph.graph import EdgeOwner
from hushgraph.runs.folder import RunFolder

# Rows of a table that are fetched at a time.
CHUNK = 1 << 23
_MOST_NODES = (1 << 31) - 1
_INTEGERS = re.compile(r"(TINY|SMALL|BIG)?INT(EGER)?|U(TINYINT|SMALLINT|INTEGER)")
_NUMBERS = re.compile(r"U?(TINY|SMALL|BIG|HUGE)?INT(EGER)?|FLOAT|DOUBLE|BOOLEAN|DECIMAL\(.*")


@contextmanager
def open_database(work: Path, *, memory: int, threads: int | None) -> Iterator[Any]:
    """Yield a DuckDB connection that keeps to `memory` bytes and spills into `work`; errors become ours."""
    import duckdb

    settings: dict[str, Any] = {
        "memory_limit": f"{memory // 2**20}MiB",
        "temp_directory": str(work / "spill"),
        # DuckDB would download extensions.
        "autoinstall_known_extensions": "false",
        "autoload_known_extensions": "false",
    }
    if threads is not None:
        settings["threads"] = threads
    # Joined identifiers are a cache of the tables: a call that was interrupted may have left half of them.
    database = work / "tables.duckdb"
    for path in (database, database.with_name(f"{database.name}.wal")):
        path.unlink(missing_ok=True)
    try:
        with duckdb.connect(str(database), config=settings) as connection:
            yield connection
    except duckdb.Error as error:
        reason = " ".join(str(error).split("\n")[0].split())[:200]
        raise GraphError(f"the tables cannot be read ({reason}); correct them, or give more memory") from None
    finally:
        database.unlink(missing_ok=True)


@dataclass(frozen=True, kw_only=True)
class ParquetTable:
    """Parquet files that are one table: their rows are numbered from 0, file after file.

    Attributes:
        files: the files in order, with the number of rows of each.
        types: the columns with DuckDB's names of their types.
    """

    files: tuple[tuple[str, int], ...]
    types: Mapping[str, str]

    @classmethod
    def open(
        cls, connection: Any, path: str | os.PathLike[str], *, delimiter: str | None, copy: Path
    ) -> ParquetTable:
        """Open a Parquet file or a pattern of them; a CSV file is copied to Parquet at `copy` first.

        CSV cells are text; roles of columns convert them.
        """
        pattern = os.fspath(path)
        files = sorted(
            name for (name,) in connection.execute("SELECT file FROM glob(?)", [pattern]).fetchall()
        )
        if not files:
            raise GraphError(f"{pattern}: no such file; expected Parquet or CSV")
        endings = {Path(name).suffix for name in files}
        if endings <= {".csv", ".tsv"}:
            _copy_csv(connection, files, delimiter, copy)
            files = [str(copy)]
        elif endings != {".parquet"}:
            raise GraphError(f"{pattern}: expected files that end in .parquet, or in .csv or .tsv")
        counts = dict(
            connection.execute(
                f"SELECT file_name, num_rows FROM parquet_file_metadata({quote_list(files)})"
            ).fetchall()
        )
        described = connection.execute(
            f"DESCRIBE SELECT * FROM read_parquet({quote_list(files)}, hive_partitioning = false)"
        ).fetchall()
        return cls(
            files=tuple((name, int(counts[name])) for name in files),
            types={row[0]: row[1] for row in described},
        )

    @property
    def num_rows(self) -> int:
        """How many rows all files have."""
        return sum(count for _, count in self.files)

    def is_integer(self, name: str) -> bool:
        """Whether a column holds integers of at most 64 bits."""
        return _INTEGERS.fullmatch(self.types[name]) is not None

    def select(self, begin: int, end: int) -> str:
        """SQL of the rows from `begin` to `end`, with their numbers as `row_no`; row groups are skipped."""
        parts, first = [], 0
        for name, count in self.files:
            low, high = max(begin - first, 0), min(end - first, count)
            if low < high:
                parts.append(
                    f"SELECT *, file_row_number + {first} AS row_no FROM read_parquet({quote(name)}, "
                    f"file_row_number = true, hive_partitioning = false) "
                    f"WHERE file_row_number >= {low} AND file_row_number < {high}"
                )
            first += count
        return f"({' UNION ALL '.join(parts)})" if parts else f"({self._nothing})"

    @property
    def _nothing(self) -> str:
        name = self.files[0][0]
        return f"SELECT *, 0 AS row_no FROM read_parquet({quote(name)}) LIMIT 0"

    def check_columns(self, names: Mapping[str, str]) -> None:
        """Refuse a role that is given to no column; `names` maps roles to columns."""
        for role, name in names.items():
            if name not in self.types:
                known = ", ".join(map(repr, list(self.types)[:8]))
                raise GraphError(
                    f"{self.files[0][0]}: no column {name!r} for {role}; it has {known}; name yours in "
                    "columns"
                )


@dataclass(frozen=True, kw_only=True)
class Tables:
    """A node table and an edge table whose identifiers are joined to row numbers by DuckDB.

    Attributes:
        connection: of `open_database`.
        nodes, edges: the two tables; a node is numbered by its place in the node table.
        columns: the roles of the columns, with features and split filled in.
        num_classes: c, which is public.
    """

    connection: Any
    nodes: ParquetTable
    edges: ParquetTable
    columns: Columns
    num_classes: int

    @classmethod
    def open(
        cls,
        connection: Any,
        nodes: str | os.PathLike[str],
        edges: str | os.PathLike[str],
        *,
        work: Path,
        columns: Columns | Mapping[str, Any] | None,
        num_classes: int | None,
    ) -> Tables:
        """Open both tables and check their columns."""
        given, num_classes = resolve_columns(columns, num_classes)
        node_table = ParquetTable.open(
            connection, nodes, delimiter=given.delimiter, copy=work / "nodes.parquet"
        )
        edge_table = ParquetTable.open(
            connection, edges, delimiter=given.delimiter, copy=work / "edges.parquet"
        )
        given = given.resolve_names(node_table.types)
        if given.split is None:
            raise GraphError(f"{nodes}: no column 'split'; name one that holds train, val or test")
        roles = {"id": given.id, "label": given.label_columns[0], "split": given.split}
        node_table.check_columns(roles | {f"feature {name}": name for name in given.features or ()})
        edge_table.check_columns({"source": given.source, "target": given.target})
        tables = cls(
            connection=connection, nodes=node_table, edges=edge_table, columns=given, num_classes=num_classes
        )
        tables._check_nodes()
        return tables

    @property
    def num_nodes(self) -> int:
        """N, the number of rows of the node table."""
        return self.nodes.num_rows

    @property
    def features(self) -> tuple[str, ...]:
        """The names of the feature columns, in order."""
        return tuple(self.columns.features or ())

    @property
    def _has_integer_ids(self) -> bool:
        """By the nodes alone, whose ids are public: one edge can change the type of a column of edges."""
        return self.nodes.is_integer(self.columns.id)

    @property
    def _id(self) -> str:
        return f"CAST({quote_name(self.columns.id)} AS {'BIGINT' if self._has_integer_ids else 'VARCHAR'})"

    def _end(self, name: str) -> str:
        """SQL of an end of an edge; NULL, or a text that no node has, where it is no such id."""
        cell = quote_name(name)
        if not self._has_integer_ids:
            return f"CAST({cell} AS VARCHAR)"
        if self.edges.is_integer(name):
            return f"CAST({cell} AS BIGINT)"
        number = f"TRY_CAST({cell} AS BIGINT)"
        is_text = self.edges.types[name] == "VARCHAR"
        return f"CASE WHEN {cell} = {f'CAST({number} AS VARCHAR)' if is_text else number} THEN {number} END"

    def _check_nodes(self) -> None:
        """Refuse nodes without identifiers, features that are no numbers, and splits of other names."""
        if not 0 < self.num_nodes <= _MOST_NODES:
            raise GraphError(f"{self.num_nodes} nodes; expected at least one and less than 2^31")
        texts = [name for name in self.features if self.nodes.types[name] == "VARCHAR"]
        kinds = [
            f"{name} ({self.nodes.types[name]})"
            for name in self.features
            if name not in texts and not _NUMBERS.fullmatch(self.nodes.types[name])
        ]
        if kinds:
            raise GraphError(f"features {', '.join(kinds)}: expected numbers; leave them out with ignore")
        checks = {
            f"column {self.columns.id!r} has empty cells": f"{quote_name(self.columns.id)} IS NULL",
            f"column {self.columns.split!r} holds other values than train, val and test": (
                f"{self._split} IS NOT NULL AND {self._split} NOT IN {SPLITS}"
            ),
        }
        for name in self.features:
            number = f"TRY_CAST({quote_name(name)} AS FLOAT)"
            checks[f"column {name!r} has cells that are not finite numbers"] = (
                f"{number} IS NULL OR NOT isfinite({number})"
            )
        counts = ", ".join(f"count(*) FILTER ({wrong})" for wrong in checks.values())
        row = self.connection.execute(
            f"SELECT {counts} FROM {self.nodes.select(0, self.num_nodes)}"
        ).fetchone()
        wrong = [f"{what} ({count} rows)" for what, count in zip(checks, row, strict=True) if count]
        if wrong:
            raise GraphError(f"{self.nodes.files[0][0]}: {'; '.join(wrong)}; correct them")

    @property
    def _split(self) -> str:
        return f"CAST({quote_name(str(self.columns.split))} AS VARCHAR)"

    @property
    def _label(self) -> str:
        """SQL of the class of a node: its number, -1 for an empty cell, NULL for anything else."""
        cell = quote_name(self.columns.label_columns[0])
        if self.columns.classes is not None:
            number = f"list_position({quote_list(self.columns.classes)}, CAST({cell} AS VARCHAR)) - 1"
            return f"CASE WHEN {cell} IS NULL THEN -1 ELSE CAST({number} AS INTEGER) END"
        number = f"TRY_CAST({cell} AS INTEGER)"
        is_class = f"{number} >= 0 AND {number} < {self.num_classes}"
        return f"CASE WHEN {cell} IS NULL THEN -1 WHEN {is_class} THEN {number} END"

    def ranges(self) -> Iterator[tuple[int, int]]:
        """Row numbers of nodes in pieces that are fetched at a time."""
        for begin in range(0, self.num_nodes, CHUNK):
            yield begin, min(begin + CHUNK, self.num_nodes)

    def training_labels(self) -> npt.NDArray[np.int32]:
        """int32 [N]: the class of every training node, -1 for none. Other labels are not looked at."""
        labels = np.full(self.num_nodes, -1, np.int32)
        for begin, end in self.ranges():
            wanted = f"CASE WHEN {self._split} = 'train' THEN {self._label} ELSE -1 END"
            values = self._fetch(f"SELECT {wanted} AS v FROM {self.nodes.select(begin, end)} ORDER BY row_no")
            if np.ma.is_masked(values):
                raise GraphError(
                    f"column {self.columns.label_columns[0]!r} holds labels that are no class; expected "
                    f"numbers from 0 to {self.num_classes - 1}, or the names in classes"
                )
            labels[begin:end] = values
        return labels

    def count_training_nodes(self) -> int:
        """How many nodes are in the training split, which is public."""
        rows = self.nodes.select(0, self.num_nodes)
        (count,) = self.connection.execute(
            f"SELECT count(*) FROM {rows} WHERE {self._split} = 'train'"
        ).fetchone()
        if not count:
            raise GraphError("no node is in the training split; expected 'train' in the split column")
        return int(count)

    def split_id(self) -> str:
        """The digest of what is public about the nodes, as `hushgraph.runs.folder.split_id` gives it."""
        digest = hashlib.sha256(np.array([self.num_nodes], "<i8").tobytes())
        for begin, end in self.ranges():
            rows = self.nodes.select(begin, end)
            numbers = self._fetch(
                f"SELECT row_no AS v FROM {rows} WHERE {self._split} = 'train' ORDER BY row_no"
            )
            digest.update(np.asarray(numbers).astype("<i8").tobytes())
        return digest.hexdigest()[:32]

    def records(self, edge_owner: EdgeOwner, *, symmetrize: bool) -> Iterator[Packed]:
        """Every edge as a record, owner << 32 | place, in chunks; with `symmetrize` in both directions."""
        chunks = self._numbered_records(edge_owner) if self._is_numbered else self._joined_records(edge_owner)
        for chunk in chunks:
            yield chunk
            if symmetrize:
                yield swap_ends(chunk)

    @cached_property
    def _is_numbered(self) -> bool:
        """Whether identifiers are the row numbers themselves, so that nothing needs to be joined."""
        if not self._has_integer_ids:
            return False
        rows = self.nodes.select(0, self.num_nodes)
        (same,) = self.connection.execute(f"SELECT bool_and({self._id} = row_no) FROM {rows}").fetchone()
        return bool(same)

    def _ends(self, edge_owner: EdgeOwner) -> tuple[str, str]:
        ends = self.columns.source, self.columns.target
        return ends if edge_owner == "sender" else (ends[1], ends[0])

    def _numbered_records(self, edge_owner: EdgeOwner) -> Iterator[Packed]:
        owner, place = map(self._end, self._ends(edge_owner))
        last = self.num_nodes - 1
        is_known = f"{owner} BETWEEN 0 AND {last} AND {place} BETWEEN 0 AND {last}"
        packed = f"CASE WHEN {is_known} THEN (CAST({owner} AS UBIGINT) << 32) | CAST({place} AS UBIGINT) END"
        for begin in range(0, self.edges.num_rows, CHUNK):
            rows = self.edges.select(begin, begin + CHUNK)
            yield self._checked(self._fetch(f"SELECT {packed} AS v FROM {rows}"))

    def _joined_records(self, edge_owner: EdgeOwner) -> Iterator[Packed]:
        owner, place = map(self._end, self._ends(edge_owner))
        self._create_places()
        edges = self.edges.select(0, self.edges.num_rows)
        self.connection.execute(
            "CREATE TABLE records AS "
            "SELECT (CAST(o.row_no AS UBIGINT) << 32) | CAST(p.row_no AS UBIGINT) AS v "
            f"FROM (SELECT {owner} AS o, {place} AS p FROM {edges}) AS e LEFT JOIN places AS o ON e.o = o.id "
            "LEFT JOIN places AS p ON e.p = p.id"
        )
        for begin in range(0, self.edges.num_rows, CHUNK):
            # A range of rowid is a contiguous part of the table, so it is read without a full scan.
            wanted = f"SELECT v FROM records WHERE rowid >= {begin} AND rowid < {begin + CHUNK}"
            yield self._checked(self._fetch(wanted))
        self.connection.execute("DROP TABLE records")

    def _create_places(self) -> None:
        """Create the table `places` (row_no, id); refuse identifiers that occur twice."""
        rows = self.nodes.select(0, self.num_nodes)
        self.connection.execute(
            f"CREATE TABLE places AS SELECT CAST(row_no AS INTEGER) AS row_no, {self._id} AS id FROM {rows}"
        )
        (different,) = self.connection.execute("SELECT count(DISTINCT id) FROM places").fetchone()
        if different < self.num_nodes:
            raise GraphError(
                f"column {self.columns.id!r}: {self.num_nodes - different} rows repeat an identifier; "
                "expected each once"
            )

    def _checked(self, packed: Any) -> Packed:
        if np.ma.is_masked(packed):
            raise GraphError(
                f"{int(packed.mask.sum())} edges of a block name nodes that are not in the node "
                "table; add the nodes, or leave out the edges"
            )
        return np.asarray(packed, np.uint64)

    def _fetch(self, sql: str) -> Any:
        return self.connection.execute(sql).fetchnumpy()["v"]

    def write_board(self, path: Path, begin: int, values: npt.NDArray[np.float32]) -> None:
        """Write what is released of the places from `begin` on: their identifiers and one number a class."""
        columns = {f"class_{k}": np.ascontiguousarray(values[:, k]) for k in range(values.shape[1])}
        self._write(path, begin, len(values), [f"{self._id} AS {quote_name(self.columns.id)}"], columns, [])

    def read_ids(self, files: list[str]) -> npt.NDArray[Any]:
        """The identifiers of the places of a released board: integers or text."""
        sql = f"SELECT {quote_name(self.columns.id)} AS v FROM read_parquet({quote_list(files)})"
        names = np.asarray(self._fetch(sql))
        return names if names.dtype.kind in "iu" else names.astype(np.str_)

    def write_rows(self, path: Path, begin: int, readings: npt.NDArray[np.float32]) -> None:
        """Write identifier, features, reading, label and split of the rows from `begin` on."""
        columns = {f"reading_{k}": np.ascontiguousarray(readings[:, k]) for k in range(readings.shape[1])}
        features = [f"CAST({quote_name(name)} AS FLOAT) AS {quote_name(name)}" for name in self.features]
        label = f"coalesce({self._label}, -1) AS label"
        first = [f"{self._id} AS {quote_name(self.columns.id)}", *features]
        self._write(path, begin, len(readings), first, columns, [label, f"{self._split} AS split"])

    def _write(
        self,
        path: Path,
        begin: int,
        count: int,
        before: list[str],
        columns: Mapping[str, npt.NDArray[Any]],
        after: list[str],
    ) -> None:
        """Write rows of the node table with columns of ours in between, in the order of the table."""
        table = {"row_no": np.arange(begin, begin + count), **columns}
        self.connection.register("columns_of_rows", table)
        nodes = self.nodes.select(begin, begin + count)
        listed = ", ".join([*before, *(f"r.{name}" for name in columns), *after])
        self.connection.execute(
            f"COPY (SELECT {listed} FROM {nodes} AS n JOIN columns_of_rows AS r USING (row_no) "
            f"ORDER BY row_no) TO {quote(str(path))} (FORMAT parquet)"
        )
        self.connection.unregister("columns_of_rows")


def _copy_csv(connection: Any, files: list[str], delimiter: str | None, copy: Path) -> None:
    """Copy CSV files to one Parquet file, every cell as text.

    Names of columns come from the first line and nothing is guessed: DuckDB would look at rows to decide
    which lines to skip, so that one row could remove others.
    """
    table = open_table(connection, [Path(name) for name in files], delimiter=delimiter, role="tables")
    cells = ", ".join(f"{table.sql_name(name)} AS {quote_name(name)}" for name in table.names)
    connection.execute(
        f"COPY (SELECT {cells} FROM {table.cells}) TO {quote(str(copy))} (FORMAT parquet)", table.patterns
    )


def board_files(folder: RunFolder) -> list[str]:
    """The Parquet files of the released board of a run, in order."""
    count = read_about(folder)["files"]
    return [str(board_folder(folder.path) / f"part-{i:05d}.parquet") for i in range(count)]


def read_board_values(connection: Any, folder: RunFolder) -> Iterator[npt.NDArray[np.float32]]:
    """float32 [rows, c] of every file of the released board of a run, in order."""
    classes = [f"class_{k}" for k in range(folder.num_classes)]
    for file in board_files(folder):
        part = connection.execute(f"SELECT {', '.join(classes)} FROM read_parquet(?)", [file]).fetchnumpy()
        yield np.stack([np.asarray(part[name]) for name in classes], axis=1)


def digest_files(connection: Any, folder: RunFolder) -> str:
    """The digest of the released board of a run, from its Parquet files."""
    return digest_board(read_board_values(connection, folder), read_about(folder)["noise_std"])


def quote(text: str) -> str:
    """A text in SQL."""
    return "'" + text.replace("'", "''") + "'"


def quote_list(texts: Any) -> str:
    """A list of texts in SQL."""
    return f"[{', '.join(quote(text) for text in texts)}]"


def quote_name(name: str) -> str:
    """The name of a column in SQL."""
    return '"' + name.replace('"', '""') + '"'
