"""One table on disk, in one file or several: its columns, the SQL that reads it, messages about its cells."""

from __future__ import annotations

import contextlib
import csv
import glob
import re
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from hushgraph._text import suggest
from hushgraph.datasets.paths import format_path
from hushgraph.datasets.tables.cells import quote
from hushgraph.errors import GraphError

# What a column of a DataFrame holds in which every cell is None; it may be of any type.
_NULL = '"NULL"'
_NUMBERS = re.compile(rf"U?(TINY|SMALL|BIG|HUGE)?INT(EGER)?|FLOAT|DOUBLE|BOOLEAN|DECIMAL\(.*|{_NULL}")
_INTEGERS = re.compile(r"(TINY|SMALL|BIG)?INT(EGER)?|U(TINYINT|SMALLINT|INTEGER)")
_FLOATS = ("FLOAT", "DOUBLE")
# Types that DuckDB gives to a column of Python objects after looking at all of them.
_GUESSED = re.compile(r"BOOLEAN|DECIMAL\(.*|DATE|TIME.*")
_TEXTS = re.compile(rf"VARCHAR|ENUM\(.*|UUID|DATE|TIMESTAMP.*|TIME.*|{_NULL}")
_TIMES = re.compile(r"DATE|TIMESTAMP.*")
# What DuckDB calls the number of a row in its Parquet file.
_ROW_NUMBER = "file_row_number"
# The columns whose default name is their role.
_DEFAULTS = ("id", "label", "source", "target")
FIXED = "a run keeps the columns of its training"
# How DuckDB says that a file of its own cannot be written, and why; those of tables are only read.
_CANNOT_WRITE = re.compile(r"Could not (?:write|truncate|ftruncate|fsync) .*: (\w.*)")


class Origin(NamedTuple):
    """Where the rows of Parquet files that Spark wrote are from.

    Attributes:
        name: what messages call it.
        is_text: whether it is CSV, whose cells are text.
        rows: how many were written, all of which must be here.
    """

    name: str
    is_text: bool
    rows: int


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table whose columns are known and whose rows have not been read yet.

    Attributes:
        path: the file; of several, the first.
        title: what messages call it; its path unless given.
        names: the names of its columns, in order; in SQL they are c0, c1 and so on.
        types: DuckDB's names of their types; always VARCHAR in CSV, where no type is guessed.
        delimiter: the delimiter of CSV; None for Parquet.
        is_fixed: whether the roles of the columns are fixed, as by a run, so that no flag can change them.
        has_mixed_line_ends: whether it is CSV with both LF and CRLF line ends.
        parts: the files of a table of several, in order; empty for one file.
        num_rows: how many rows a Parquet file has; unknown for CSV.
        relation: of a table of edges: the relation that all its records are of; None where it has no name.
        origin: of a folder of files that Spark wrote.
    """

    path: Path
    names: tuple[str, ...]
    types: tuple[str, ...]
    delimiter: str | None
    is_fixed: bool = False
    has_mixed_line_ends: bool = False
    title: str | None = None
    parts: tuple[Table, ...] = ()
    num_rows: int | None = None
    relation: str | None = None
    origin: Origin | None = None

    @property
    def shown(self) -> str:
        """What messages call it."""
        name = format_path(self.path) if self.origin is None else self.origin.name
        return name if self.title is None else self.title

    @property
    def short_name(self) -> str:
        """What messages call it where the folder is clear."""
        more = f" and {len(self.parts) - 1} more" if len(self.parts) > 1 else ""
        name = self.path.name if self.origin is None else self.origin.name
        return self.title or name + more

    @property
    def rows(self) -> str:
        """SQL of its rows, numbered from 0 in file order (`row_no`); its parameters are `patterns`."""
        return f"(SELECT row_number() OVER () - 1 AS row_no, * FROM {self.cells})"

    @property
    def cells(self) -> str:
        """SQL of its rows without numbers, which is faster; its parameters are `patterns`."""
        if not self.parts:
            columns = ", ".join(f"c{number}" for number in range(len(self.names)))
            return f"{self.reader} AS t({columns})"
        # Columns may be in another order in each file.
        selects = [
            f"SELECT {', '.join(f'{part.sql_name(name)} AS {self.sql_name(name)}' for name in self.names)} "
            f"FROM {part.cells}"
            for part in self.parts
        ]
        return f"({' UNION ALL '.join(selects)})"

    @property
    def patterns(self) -> list[str]:
        """The parameters of the SQL that reads it."""
        return [part.pattern for part in self.parts or (self,)]

    @property
    def pattern(self) -> str:
        """The path with wildcards escaped for DuckDB, so that it matches no other file."""
        files = "" if self.origin is None else "/*.parquet"
        return glob.escape(str(self.path.absolute())) + files

    @property
    def reader(self) -> str:
        """SQL that reads its file."""
        if self.delimiter is None:
            return "read_parquet(?, hive_partitioning = false)"
        columns = ", ".join(f"'c{number}': 'VARCHAR'" for number in range(len(self.names)))
        # This drops surplus cells, so `_reread` checks for them before it sets `has_mixed_line_ends`.
        lenient = ", strict_mode = false, parallel = false" if self.has_mixed_line_ends else ""
        return (
            f"read_csv(?, auto_detect = false, header = false, skip = 1, delim = {quote(self.delimiter)}, "
            f"quote = '\"', escape = '\"', hive_partitioning = false, columns = {{{columns}}}{lenient})"
        )

    def sql_name(self, name: str) -> str:
        """Return the name of a column in SQL."""
        return f"c{self.names.index(name)}"

    def is_integer(self, name: str) -> bool:
        """Return whether the type of a column is an integer of at most 64 bits."""
        return _INTEGERS.fullmatch(self.type_of(name)) is not None

    def may_be_integer(self, name: str) -> bool:
        """Return whether the type of a column is an integer, or a float, as integers with gaps are."""
        return self.is_integer(name) or self.type_of(name) in _FLOATS

    def id_sql(self, name: str, *, like: str) -> str:
        """Return SQL of an end of an edge, to be compared with node ids of the type `like`.

        An end that is no such id becomes NULL or a text that no node has. A missing end turns the integers of
        a DataFrame into floats, and must not turn all other ends into other ids.
        """
        cell, is_float = self.sql_name(name), self.type_of(name) in _FLOATS
        text, number = f"CAST({cell} AS VARCHAR)", f"TRY_CAST({cell} AS BIGINT)"
        is_same = f"{cell} = floor({cell})" if is_float else f"{text} = CAST({number} AS VARCHAR)"
        integer = f"CASE WHEN {is_same} THEN {number} END"
        if _INTEGERS.fullmatch(like) is not None:
            return f"CAST({cell} AS BIGINT)" if self.is_integer(name) else integer
        return f"COALESCE(CAST({integer} AS VARCHAR), {text})" if is_float and like not in _FLOATS else text

    def is_numeric(self, name: str) -> bool:
        """Return whether the type of a column is a number or a boolean."""
        return _NUMBERS.fullmatch(self.type_of(name)) is not None

    def check_exists(self, name: str, role: str) -> None:
        """Raise GraphError if there is no column of this name."""
        if name not in self.names:
            near = suggest(name, self.names) or f"; it has {', '.join(map(repr, self.names[:6]))}"
            near += ", ..." if near.startswith("; it") and len(self.names) > 6 else ""
            if near.startswith("; it") and not self.is_fixed:
                near += "; hushgraph check proposes roles"
            is_default = role in _DEFAULTS and name == role
            what = f"no column {name!r}" + ("" if is_default else f", given as {role}")
            if self.is_fixed:
                what += f"; add or rename it ({FIXED})"
            elif is_default:
                what += f"; name yours with --{name} (columns.{name})"
            raise GraphError(f"{self._header()}: {what}{near}")

    def check_number(self, name: str) -> None:
        """Raise GraphError if the type of a column is not numeric; cells of CSV are checked later."""
        is_text = self.delimiter is not None or (self.origin is not None and self.origin.is_text)
        if not is_text and _NUMBERS.fullmatch(self.type_of(name)) is None:
            raise GraphError(
                f"{self.shown}: column {name!r} holds {self.type_of(name)[:40]}; expected "
                "numbers; "
                + self.advice(
                    f"read it as dates (--date {name}=2000-01-01)"
                    if _TIMES.fullmatch(self.type_of(name))
                    else "list its values (--categorical), hash it (--hash) or leave it out (--ignore)",
                    "store numbers in it",
                )
            )

    def check_date(self, name: str, role: str = "date") -> None:
        """Raise GraphError if the type of a column can hold no dates; cells of text are checked later."""
        kind = self.type_of(name)
        if _TEXTS.fullmatch(kind) is None or kind == "UUID":
            raise GraphError(
                f"{self.shown}: column {name!r}, given as {role}, holds {kind[:40]}; expected dates or text; "
                + self.advice(f"leave out --{role} for it", "store dates in it")
            )

    def check_text(self, name: str, role: str, rules: str) -> None:
        """Raise GraphError if rules for text are given to a column whose type one cell can change.

        One fraction turns the integers of a DataFrame into floats, and one time of day its dates into times:
        by such rules, no other cell could then be read.
        """
        kind = self.type_of(name)
        if kind in _FLOATS or _GUESSED.fullmatch(kind):
            raise GraphError(
                f"{self.shown}: column {name!r}, given as {role}, holds {kind[:40]}; expected text where "
                f"{rules} is given; "
                + self.advice("give it by column, to columns of text alone", "store text in it")
            )

    def is_scalar(self, name: str) -> bool:
        """Whether the cells of a column are texts, numbers or times: no lists, structures or bytes."""
        kind = self.type_of(name)
        return bool(_NUMBERS.fullmatch(kind) or _TEXTS.fullmatch(kind))

    def check_scalar(self, name: str, role: str) -> None:
        """Raise GraphError if a column holds lists, structures or bytes."""
        if not self.is_scalar(name):
            kind = self.type_of(name)[:40]
            raise GraphError(
                f"{self.shown}: column {name!r}, given as {role}, holds {kind}; expected text or numbers"
            )

    def check_exact(self, name: str, role: str) -> None:
        """Raise GraphError if a column whose text counts has a type that one cell can change.

        One missing cell turns the integers of a DataFrame into floats, and 1 into 1.0 in every other row. The
        type of its objects is guessed from all of them: one time of day turns every date into a timestamp.
        """
        kind = self.type_of(name)
        is_guessed = self.title is not None and _GUESSED.fullmatch(kind) is not None
        if (kind in _FLOATS or is_guessed) and not self.is_fixed:
            to_type = "'Int64'" if kind in _FLOATS else "str"
            raise GraphError(
                f"{self.shown}: column {name!r}, given as {role}, holds {kind[:40]}; expected text or "
                f"integers; convert it, in pandas with .astype({to_type})"
            )

    def place(self, row: int | None, name: str) -> str:
        """Return the position of a cell for a message; without a row, that of the column name."""
        if row is None:
            return f"{self._header()}, column {name!r}"
        part, number = self._find_part(row)
        return f"{part.shown} {part.row_name(number)}, column {name!r}"

    def row_name(self, row: int) -> str:
        """Return the line of a CSV file or the number of a Parquet row, both from 1; of several, the file."""
        if self.parts:
            part, number = self._find_part(row)
            return f"{part.path.name} {part.row_name(number)}"
        return f"row {row + 1}" if self.delimiter is None else f"line {self._line(row)}"

    def _find_part(self, row: int) -> tuple[Table, int]:
        """Return the file that holds a row, and the number of the row in it."""
        for part in self.parts[:-1]:
            count = part.num_rows if part.num_rows is not None else part._count_lines()
            if row < count:
                return part, row
            row -= count
        return (self.parts[-1] if self.parts else self), row

    def _count_lines(self) -> int:
        with self.path.open(encoding="utf-8", errors="replace", newline="") as file:
            lines = csv.reader(file, delimiter=self.delimiter or ",")
            return sum(1 for _ in filter(None, lines)) - 1

    def cell(self, connection: Any, row: int, name: str) -> str | None:
        """Return the text of a cell for a message; None if it is empty."""
        create = f"CREATE OR REPLACE TABLE cell AS SELECT CAST({self.sql_name(name)} AS VARCHAR) FROM "
        self.execute(connection, lambda table: f"{create} {table.rows} WHERE row_no = {int(row)}")
        (text,) = connection.execute("SELECT * FROM cell").fetchone()
        return None if text is None else str(text)

    def advice(self, by_flags: str, in_file: str) -> str:
        """Return the advice about a column: to use flags, or to change the file if columns are fixed."""
        return f"{in_file} ({FIXED})" if self.is_fixed else by_flags

    def execute(self, connection: Any, write_sql: Callable[[Table], str]) -> Table:
        """Execute SQL that reads this table; return it with the options that let DuckDB read it."""
        import duckdb

        try:
            connection.execute(write_sql(self), self.patterns)
        except duckdb.Error as error:
            return self._reread(connection, error).execute(connection, write_sql)
        return self

    @property
    def is_streamed(self) -> bool:
        """Whether `read_rows` can read it: files of Parquet, whose rows have numbers in their file."""
        is_files = all(part.origin is None for part in self.parts or (self,))
        return is_files and self.delimiter is None and _ROW_NUMBER not in self.names

    def count_rows(self) -> int:
        """How many rows a Parquet table has."""
        return sum(part.num_rows or 0 for part in self.parts or (self,))

    def cut(self, size: int) -> Iterator[tuple[Table, int, int]]:
        """The files of a Parquet table in ranges of rows, in order: a file, the first row, the one behind."""
        for part in self.parts or (self,):
            for begin in range(0, part.num_rows or 0, size):
                yield part, begin, min(begin + size, part.num_rows or 0)

    def read_rows(self, connection: Any, names: Sequence[str], begin: int, end: int) -> list[Any]:
        """Some columns of one Parquet file, from one row to the one before another, in the order of rows.

        Returns:
            Arrays, masked where cells are empty.
        """
        import duckdb

        columns = ", ".join(f"c{number}" for number in range(len(self.names)))
        reader = f"{self.reader[:-1]}, {_ROW_NUMBER} = true) AS t({columns}, {_ROW_NUMBER})"
        chosen = ", ".join(self.sql_name(name) for name in names)
        sql = f"SELECT {chosen} FROM {reader} WHERE {_ROW_NUMBER} >= {begin} AND {_ROW_NUMBER} < {end}"
        try:
            fetched = connection.execute(sql, [self.pattern]).fetchnumpy()
        except duckdb.Error as error:
            self._reread(connection, error)
            raise
        return [fetched[self.sql_name(name)] for name in names]

    def _reread(self, connection: Any, error: Exception) -> Table:
        """Return this table with options that let DuckDB read it; raise GraphError if there are none."""
        import duckdb

        if isinstance(error, duckdb.OutOfMemoryException) or find_full_disk(error):
            raise error
        reason = " ".join(str(error).split("\n")[0].split())[:120]
        if self.parts:
            probe = "CREATE OR REPLACE TEMP TABLE probe AS SELECT count(COLUMNS(*)) FROM "
            parts = tuple(part.execute(connection, lambda each: probe + each.cells) for part in self.parts)
            if parts == self.parts:
                raise GraphError(f"{self.shown}: the files cannot be read together ({reason})") from None
            return replace(self, parts=parts)
        if self.delimiter is None:
            raise GraphError(f"{self.shown}: damaged Parquet ({reason}); export it again") from None
        rows, ends = self._check_csv()
        if len(ends) < 2 or self.has_mixed_line_ends:
            raise GraphError(f"{self.shown}: cannot be read as CSV ({reason})") from None
        table = replace(self, has_mixed_line_ends=True)
        # After a lone CR, DuckDB would drop the first character of the line.
        with contextlib.suppress(duckdb.Error):
            count = f"SELECT count(*) FROM {table.reader}"
            if "\r" not in ends and connection.execute(count, [table.pattern]).fetchone() == (rows,):
                return table
        raise GraphError(f"{self.shown}: mixed line endings; save it with one kind, LF or CRLF") from None

    def type_of(self, name: str) -> str:
        """Return DuckDB's name of the type of a column."""
        return self.types[self.names.index(name)]

    def _header(self) -> str:
        return self.shown + ("" if self.delimiter is None else " line 1")

    def _line(self, row: int) -> int:
        """Return the line on which a row ends: cells may span lines, and empty lines are not rows."""
        with self.path.open(encoding="utf-8", errors="replace", newline="") as file:
            lines = csv.reader(file, delimiter=self.delimiter or ",")
            deque(islice(filter(None, lines), row + 2), maxlen=0)
            return lines.line_num

    def _check_csv(self) -> tuple[int, set[str]]:
        """Raise GraphError for a line that is not CSV, not UTF-8 or of another length, after a failed read.

        Returns:
            The number of rows below the header, and the line ends that occur.
        """
        width, name, begin, rows = len(self.names), self.shown, 1, -1
        with self.path.open(encoding="utf-8", errors="surrogateescape", newline="") as file:
            lines = csv.reader(file, delimiter=self.delimiter or ",", strict=True)
            try:
                for cells in lines:
                    column = next((n for n, cell in enumerate(cells) if not is_utf8(cell)), None)
                    if column is not None:
                        raise GraphError(
                            f"{name} line {begin}, column {self._nth(column)}: not UTF-8; save it as UTF-8"
                        )
                    if cells and len(cells) != width and not (len(cells) == width + 1 and cells[-1] == ""):
                        last = self._nth(min(len(cells), width) - 1)
                        advice = f"quote a cell that holds {self.delimiter!r}"
                        if len(cells) < width:
                            advice = "write the cells that are missing"
                        raise GraphError(
                            f"{name} line {begin}: {len(cells)} cells, the last under column {last}; "
                            f"expected {width}, as in line 1; {advice}"
                        )
                    begin, rows = lines.line_num + 1, rows + bool(cells)
            except csv.Error as error:
                raise GraphError(f"{name} line {begin}: not CSV ({error}); correct its quotes") from None
            ends = file.newlines or ()
            return rows, {ends} if isinstance(ends, str) else set(ends)

    def _nth(self, column: int) -> str:
        return repr(self.names[column]) if column < len(self.names) else str(column + 1)


def find_full_disk(error: Exception) -> str | None:
    """Why DuckDB could not write a file of its own, as on a full disk; None for every other error."""
    import duckdb

    # Errors about cells, which may hold any text, are of other classes.
    match = _CANNOT_WRITE.search(str(error)) if isinstance(error, duckdb.OperationalError) else None
    return match and match[1].strip()


def is_utf8(text: str) -> bool:
    """Return whether a text that was read with `surrogateescape` is UTF-8."""
    return not any("\ud800" <= c <= "\udfff" for c in text) if not text.isascii() else True
