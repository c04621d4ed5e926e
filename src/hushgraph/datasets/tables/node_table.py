"""The node table: ids, features, labels and splits as arrays, with every cell checked."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from hushgraph import _arrays
from hushgraph.datasets.tables.cell_errors import cell_text, number_error, value_error
from hushgraph.datasets.tables.cells import (
    SEPARATOR,
    SPLITS,
    cycle_sql,
    feature_sql,
    flag_sql,
    list_sql,
    quote,
)
from hushgraph.datasets.tables.feature_table import FeatureTable
from hushgraph.datasets.tables.table import Table
from hushgraph.errors import GraphError
from hushgraph.graph.cell_rules import rule_for
from hushgraph.graph.columns import EVERY_COLUMN, Columns

LabelKind = Literal["classes", "number", "labels"]
"""What a column of labels holds: a class, a number or a list of labels."""
# What a split column may hold, in lower case, by the number of the split.
SPLIT_WORDS = (
    ("train", "training", "0", "0.0"),
    ("val", "valid", "validation", "dev", "1", "1.0"),
    ("test", "testing", "2", "2.0"),
)
# The number of cells fetched at a time: 128 MiB of float32.
CELLS = 1 << 25
_LARGEST_LABEL = 2**31
# The code of a category that is not listed and becomes all zeros; -1 is the code of an empty cell.
_UNKNOWN = -2
_LABEL = f"""CASE WHEN {{0}} IS NULL OR isnan(TRY_CAST({{0}} AS DOUBLE)) THEN -1
    WHEN TRY_CAST({{0}} AS DOUBLE) >= 0 AND TRY_CAST({{0}} AS DOUBLE) < {_LARGEST_LABEL}
    AND TRY_CAST({{0}} AS DOUBLE) = floor(TRY_CAST({{0}} AS DOUBLE))
    THEN CAST(TRY_CAST({{0}} AS DOUBLE) AS BIGINT) END"""


@dataclass(frozen=True, kw_only=True)
class NodeTable:
    """Reads one node table.

    Attributes:
        connection: a DuckDB connection to a writable database.
        table: the file.
        columns: the roles of its columns, with features and split filled in.
        labels: whether labels are read; if not, every label is -1.
        splits: whether the split column is read.
        integer_ids: whether ids are compared as integers; otherwise as text.
        num_classes: labels must be below it, if it is known.
        kind: what labels are. Of numbers, an empty cell is NaN.
        edge_names: the columns of the edges, whose numbers may have rules too.
        is_part: whether these are some of the rows of a table, none of which may be in the training split.
    """

    connection: Any
    table: Table
    columns: Columns
    labels: bool
    splits: bool
    integer_ids: bool
    num_classes: int | None
    kind: LabelKind = "classes"
    edge_names: tuple[str, ...] = ()
    is_part: bool = False

    def arrays(self) -> dict[str, Any]:
        """Return `x`, `y`, `node_names` and the splits; create the table `nodes` (row_no, id) in DuckDB."""
        self._check_columns()
        self.table.execute(self.connection, self._create_sql)
        (count,) = self.connection.execute("SELECT count(*) FROM nodes").fetchone()
        if count == 0:
            raise GraphError(f"{self.table.place(None, self.columns.id)}: no rows; expected one node per row")
        self._check_ids()
        return self._fetch(int(count))

    def _check_columns(self) -> None:
        table, columns = self.table, self.columns
        features = columns.features or ()
        exists = (table.check_exists,)
        is_scalar = (*exists, table.check_scalar)
        is_exact = (*is_scalar, table.check_exact)
        # Checked even if it is not read: a name without a column is a mistake.
        split = (columns.split,) if (self.splits or self.labels) and columns.split is not None else ()
        roles: list[tuple[str, Iterable[str], Sequence[Callable[[str, str], None]]]] = [
            ("id", (columns.id,), is_scalar),
            ("split", split, exists),
            ("date", columns.dates, exists),
            ("boolean", columns.booleans, exists),
            ("feature", features, exists),
            ("categorical", columns.categorical, is_exact),
            ("hashed", columns.hashed, is_exact),
        ]
        if self.labels:
            roles += [
                ("label", columns.label_columns, exists if self._has_lists else is_scalar),
                ("person", () if columns.person is None else (columns.person,), is_scalar),
                ("group", columns.group, is_exact),
                # A graph to predict on may lack the columns that training ignored.
                ("ignore", columns.ignore, exists),
            ]
        for role, names, checks in roles:
            for name in names:
                for check in checks:
                    check(name, role)
        for name in features:
            if name in columns.dates:
                table.check_date(name)
            elif not self._has_text_rule(name):
                table.check_number(name)
        self._check_rules()
        if columns.num_features == 0:
            raise GraphError(
                f"{table.place(None, columns.id)}: no column is a feature; expected numbers, or columns "
                "given as categorical or hashed"
            )

    def _check_rules(self) -> None:
        """Raise GraphError for a rule for numbers that is given to a column of something else."""
        table, columns = self.table, self.columns
        rules: dict[str, Iterable[str]] = {"fill": columns.constants, "scale": columns.scale}
        of_text = ("decimal", "thousands", "percent")
        for role, names in (rules | {role: getattr(columns, role) for role in of_text}).items():
            known = {*(columns.features or ()), EVERY_COLUMN}
            if role in of_text:
                known |= {*self.edge_names} - {*table.names}
                # New rows lack the number that is predicted, and may keep its rules.
                known |= {*columns.label_columns} if self.kind == "number" or not self.labels else set()
            for name in names:
                if name not in known:
                    table.check_exists(name, role)
                    raise GraphError(
                        f"{table.place(None, name)}: it is given as {role}, but is not a column of numbers; "
                        f"give {role} to columns of numbers alone"
                    )

    def _create_sql(self, table: Table) -> str:
        """Return the SQL that creates the table `nodes`; an invalid cell becomes NULL."""
        sql, columns = self._cell_sql, self.columns
        kind = "BIGINT" if self.integer_ids else "VARCHAR"
        cells = ["row_no", f"CAST({self.table.sql_name(columns.id)} AS {kind}) AS id"]
        if self.labels:
            cells += self._label_cells()
            for name, values in columns.group.items():
                # A row of no declared group is counted nowhere; it never stops a run.
                cells.append(f"COALESCE({self._enum('group', values).format(sql(name))}, -1) AS group_no")
            if columns.person is not None:
                cells.append(f"trim(CAST({sql(columns.person)} AS VARCHAR)) AS person")
        if self._split is not None:
            cells.append(f"{_split_sql(sql(self._split))} AS split")
        for number, name in enumerate(columns.features or ()):
            value = f"TRY_CAST({feature_sql(columns, name, sql(name))} AS FLOAT)"
            if name in columns.constants:
                is_missing = missing_sql(sql(name))
                cells.append(f"{is_missing} AS m{number}")
                value = (
                    f"CASE WHEN {is_missing} THEN CAST({columns.constants[name]!r} AS FLOAT) ELSE {value} END"
                )
            cells.append(f"{value} AS f{number}")
        for number, (name, values) in enumerate(columns.categorical.items()):
            code = self._enum(f"categorical{number}", values).format(sql(name))
            if columns.unknown_category != "refuse":
                code = f"COALESCE({code}, {self._unknown_code(values)})"
            cells.append(f"{code} AS v{number}")
        for number, (name, buckets) in enumerate(columns.hashed.items()):
            digits = f"'0x' || substr(md5(CAST({sql(name)} AS VARCHAR)), 1, 15)"
            place = f"CAST({digits} AS BIGINT) % {buckets}"
            cells.append(f"CASE WHEN {sql(name)} IS NULL THEN -1 ELSE {place} END AS h{number}")
        waves = (wave for name, part in self._cycles for wave in self._wave_sql(name, part))
        cells += [f"{wave} AS w{number}" for number, wave in enumerate(waves)]
        return f"CREATE TABLE nodes AS SELECT {', '.join(cells)} FROM {table.rows}"

    def _label_cells(self) -> list[str]:
        """SQL of the labels: `label`, or a column for each of several, or `label` and the list `parts`."""
        columns, names = self.columns, self.columns.label_columns
        cell = self._cell_sql(names[0])
        if self.kind == "number":
            number = f"TRY_CAST({feature_sql(columns, names[0], cell)} AS DOUBLE)"
            return [f"CASE WHEN {missing_sql(cell)} THEN CAST('NaN' AS DOUBLE) ELSE {number} END AS label"]
        if self.kind == "classes":
            code = _LABEL if columns.classes is None else self._enum("class", columns.classes)
            return [f"{code.format(cell)} AS label"]
        if self.has_columns:
            flags = [(self._cell_sql(name), number) for number, name in enumerate(names)]
            return [
                f"CASE WHEN {missing_sql(cell)} THEN -1 ELSE {flag_sql(cell)} END AS label{number}"
                for cell, number in flags
            ]
        self._enum("class", columns.classes)
        if self._has_lists:
            return [f"CASE WHEN {cell} IS NULL THEN -1 ELSE 0 END AS label", f"{cell} AS parts"]
        text = f"CAST({cell} AS VARCHAR)"
        return [
            f"CASE WHEN {cell} IS NULL OR trim({text}) = '' THEN -1 ELSE 0 END AS label",
            f"string_split({text}, {quote(columns.separator or SEPARATOR)}) AS parts",
        ]

    @property
    def has_columns(self) -> bool:
        """Whether every label has a column of its own."""
        return self.kind == "labels" and not isinstance(self.columns.label, str)

    @property
    def _has_lists(self) -> bool:
        """Whether the column of labels has lists as its type."""
        name = self.columns.label_columns[0]
        is_one = self.kind == "labels" and not self.has_columns and name in self.table.names
        return is_one and self.table.type_of(name) == "VARCHAR[]"

    def _has_text_rule(self, name: str) -> bool:
        """Whether numbers are read from the text of a column by a declared rule."""
        return self.table.type_of(name) == "VARCHAR" and self.columns.name_text_rule(name) is not None

    @property
    def _cycles(self) -> list[tuple[str, str]]:
        """The columns of dates and the parts of them that are features, in order."""
        return [(name, part) for name, parts in self.columns.cycles.items() for part in parts]

    def _wave_sql(self, name: str, part: str) -> tuple[str, str]:
        return cycle_sql(self._cell_sql(name), part, rule_for(self.columns.date_format, name))

    def _enum(self, name: str, values: Any) -> str:
        """Return SQL that maps a cell to the position of its text in values, and an empty cell to -1."""
        self.connection.execute(f"DROP TYPE IF EXISTS {name}_values")
        self.connection.execute(f"CREATE TYPE {name}_values AS ENUM ({list_sql(values)})")
        code = f"enum_code(TRY_CAST(CAST({{0}} AS VARCHAR) AS {name}_values))"
        return f"CASE WHEN {{0}} IS NULL THEN -1 ELSE CAST({code} AS INTEGER) END"

    def _cell_sql(self, name: str) -> str:
        """Return SQL of a cell that is not an id; NULL if its text is declared as missing."""
        cell = self.table.sql_name(name)
        if not self.columns.missing:
            return cell
        is_missing = f"CAST({cell} AS VARCHAR) IN ({list_sql(self.columns.missing)})"
        numbers = [
            repr(number) for text in self.columns.missing if (number := _read_number(text)) is not None
        ]
        if numbers and self.table.is_numeric(name):
            # By value: one missing cell turns the integers of a DataFrame into floats, and -1 into -1.0.
            is_missing += f" OR TRY_CAST({cell} AS DOUBLE) IN ({', '.join(numbers)})"
        return f"(CASE WHEN {is_missing} THEN NULL ELSE {cell} END)"

    def _unknown_code(self, values: Any) -> int:
        """Return the code of a category that is not listed: the feature after the listed ones, or none."""
        return len(values) if self.columns.unknown_category == "other" else _UNKNOWN

    @property
    def _split(self) -> str | None:
        return self.columns.split if self.splits else None

    def _check_ids(self) -> None:
        execute, name = self.connection.execute, self.columns.id
        (empty,) = execute("SELECT min(row_no) FROM nodes WHERE id IS NULL").fetchone()
        if empty is not None:
            raise GraphError(f"{self.table.place(empty, name)}: empty; expected the id of a node")
        count, distinct = execute("SELECT count(*), count(DISTINCT id) FROM nodes").fetchone()
        if distinct < count:
            row, first = execute(
                "SELECT row_no, first FROM nodes JOIN (SELECT id, min(row_no) AS first FROM nodes "
                "GROUP BY id HAVING count(*) > 1) USING (id) WHERE row_no > first ORDER BY row_no LIMIT 1"
            ).fetchone()
            raise GraphError(
                f"{self.table.place(row, name)}: {cell_text(self, row, name)} is the id of "
                f"{self.table.row_name(first)} too; expected each id once"
            )

    def _fetch(self, count: int) -> dict[str, Any]:
        """Fetch the table `nodes` in blocks of rows and fill the arrays."""
        columns = self.columns
        features = FeatureTable(columns, count)
        names = _arrays.empty(count, self._id_type)
        y = self._empty_labels(count)
        split = _arrays.full(count, -1, np.int8)
        groups = _arrays.full(count, -1, np.int64) if self.labels and columns.group else None
        persons: npt.NDArray[Any] = np.full(count if self.labels and columns.person else 0, None, object)
        unknown = 0
        may_fill = bool(columns.constants)
        filled = _arrays.zeros((count if may_fill else 0, len(columns.features or ())), np.bool_)
        step = max(2048, CELLS // (columns.num_features + 4))
        for begin in range(0, count, step):
            block = self.connection.execute(
                f"SELECT * {self._left_out} FROM nodes WHERE row_no >= ? AND row_no < ?",
                [begin, begin + step],
            ).fetchnumpy()
            rows = block["row_no"]
            names[rows] = block["id"]
            if self.labels:
                y[rows] = self._read_labels(block, y)
            if groups is not None:
                groups[rows] = np.ma.getdata(block["group_no"])
            if len(persons):
                whose = np.ma.getdata(block["person"]).astype(object)
                whose[np.ma.getmaskarray(block["person"])] = None
                persons[rows] = whose
            if "split" in block:
                split[rows] = self._codes(block, "split", str(self._split))
            places = {name: number for number, name in enumerate(columns.features or ())}
            for name, number in places.items():
                features.put(rows, number, self._numbers(block, f"f{number}", name))
                if name in columns.constants:
                    filled[rows, number] = np.ma.getdata(block[f"m{number}"])
            first = len(places)
            for number, (name, values) in enumerate(columns.categorical.items()):
                codes = self._codes(block, f"v{number}", name)
                features.put_one_hot(rows, first, codes)
                unknown += int(np.sum(codes == self._unknown_code(values)))
                first += len(values) + (columns.unknown_category == "other")
            for number, (name, buckets) in enumerate(columns.hashed.items()):
                features.put_one_hot(rows, first, self._codes(block, f"h{number}", name))
                first += buckets
            for number, name in enumerate(columns.indicators):
                is_missing = np.ma.getdata(block[f"m{places[name]}"])
                features.put(rows, first + number, is_missing.astype(np.float32))
            first += len(columns.indicators)
            for number in range(columns.num_cycles):
                features.put(rows, first + number, np.ma.getdata(block[f"w{number}"]).astype(np.float32))
            features.close_rows(begin, min(begin + step, count))
        self._check_labels(y, split)
        arrays: dict[str, Any] = {"x": features.table(), "y": y, "node_names": names}
        if groups is not None:
            arrays["groups"] = groups
        if len(persons):
            arrays["persons"] = persons
        if may_fill:
            arrays["filled"] = filled
        arrays["clean_up"] = {"numbers filled": int(filled.sum()), "categories not listed": unknown}
        if self._split is not None:
            arrays |= {f"{name}_idx": np.flatnonzero(split == code) for code, name in enumerate(SPLITS)}
        return arrays

    def _numbers(self, block: dict[str, Any], key: str, name: str) -> npt.NDArray[np.float32]:
        """Return a numeric column of a block; raise GraphError for an invalid cell."""
        values: npt.NDArray[np.float32] = np.ma.filled(block[key], np.nan)
        invalid = ~np.isfinite(values)
        if invalid.any():
            raise number_error(self, int(block["row_no"][invalid].min()), name)
        return values

    def _empty_labels(self, count: int) -> npt.NDArray[Any]:
        """The labels of so many rows, none of which has any."""
        if self.kind == "number":
            return _arrays.full(count, np.nan, np.float64)
        shape = (count, len(self.columns.classes or ())) if self.kind == "labels" else (count,)
        return _arrays.full(shape, -1, np.int64)

    @property
    def _id_type(self) -> npt.DTypeLike:
        """The type of the names of nodes; a file has no objects, but texts of one length, by the longest."""
        if self.integer_ids or _arrays.find_disk() is None:
            return np.int64 if self.integer_ids else object
        (longest,) = self.connection.execute("SELECT max(length(id)) FROM nodes").fetchone()
        return f"U{max(1, longest)}"

    @property
    def _left_out(self) -> str:
        """SQL that leaves out lists, which are fetched one label a row."""
        is_list = self.labels and self.kind == "labels" and not self.has_columns
        return "EXCLUDE (parts)" if is_list else ""

    def _read_labels(self, block: dict[str, Any], y: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """The labels of a block, in the form of `y`; GraphError for an invalid cell."""
        names = self.columns.label_columns
        if self.kind == "number":
            return self._label_numbers(block, names[0])
        if self.has_columns:
            each = [self._codes(block, f"label{place}", name) for place, name in enumerate(names)]
            sets = np.stack(each, axis=1)
            sets[(sets < 0).any(axis=1)] = -1
            return sets
        codes = self._codes(block, "label", names[0])
        if self.kind == "classes":
            return codes
        return self._fetch_sets(block["row_no"], codes, y.shape[1])

    def _fetch_sets(
        self, rows: npt.NDArray[Any], codes: npt.NDArray[np.int64], width: int
    ) -> npt.NDArray[np.int64]:
        """The lists of a block as sets: what is not declared is left out."""
        sets = np.repeat(codes[:, None], width, axis=1)
        order = np.argsort(rows)
        members = self.connection.execute(
            "SELECT row_no, CAST(enum_code(code) AS INTEGER) AS code FROM (SELECT row_no, TRY_CAST("
            "trim(part) AS class_values) AS code FROM (SELECT row_no, unnest(parts) AS part FROM nodes WHERE "
            "label = 0 AND row_no >= ? AND row_no <= ?)) WHERE code IS NOT NULL",
            [int(rows.min()), int(rows.max())],
        ).fetchnumpy()
        places = order[np.searchsorted(rows, members["row_no"], sorter=order)]
        sets[places, np.ma.getdata(members["code"])] = 1
        return sets

    def _label_numbers(self, block: dict[str, Any], name: str) -> npt.NDArray[np.float64]:
        """The numbers to predict of a block, NaN where a cell is empty; GraphError for an invalid cell."""
        invalid = np.ma.getmaskarray(block["label"])
        if invalid.any():
            raise number_error(self, int(block["row_no"][invalid].min()), name)
        numbers: npt.NDArray[np.float64] = np.ma.getdata(block["label"]).astype(np.float64)
        return numbers

    def _codes(self, block: dict[str, Any], key: str, name: str) -> npt.NDArray[np.int64]:
        """Return a column of codes of a block; raise GraphError for an invalid cell."""
        values = block[key]
        invalid = np.ma.getmaskarray(values)
        if invalid.any():
            raise value_error(self, int(block["row_no"][invalid].min()), key, name)
        codes: npt.NDArray[np.int64] = np.ma.getdata(values).astype(np.int64)
        return codes

    def _check_labels(self, y: npt.NDArray[Any], split: npt.NDArray[np.int8]) -> None:
        most = _LARGEST_LABEL if self.num_classes is None else self.num_classes
        if self.kind == "classes" and int(y.max()) >= most:
            row = int((y >= most).argmax())
            where = self.table.place(row, self.columns.label_columns[0])
            raise GraphError(
                f"{where}: {y[row]}; expected 0..{most - 1}, or an empty cell for no label; raise num_classes"
            )
        if self._split is not None and not self.is_part and not (split == 0).any():
            raise GraphError(
                f"{self.table.place(None, self._split)}: no row holds train; expected training nodes"
            )


def _read_number(text: str) -> float | None:
    """The finite number that a text is; None for another text."""
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def missing_sql(cell: str) -> str:
    """Return SQL that says whether a cell of a numeric column is empty, blank or NaN."""
    return (
        f"({cell} IS NULL OR trim(CAST({cell} AS VARCHAR)) = '' "
        f"OR COALESCE(isnan(TRY_CAST({cell} AS DOUBLE)), false))"
    )


def _split_sql(cell: str) -> str:
    """Return SQL that maps a cell to the number of its split, an empty cell to -1, and others to NULL."""
    text = f"lower(trim(CAST({cell} AS VARCHAR)))"
    branches = [f"WHEN {text} IN ({list_sql(words)}) THEN {code}" for code, words in enumerate(SPLIT_WORDS)]
    return f"CASE WHEN {cell} IS NULL THEN -1 {' '.join(branches)} END"
