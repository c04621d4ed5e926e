"""One table on disk, CSV or Parquet: its columns, the SQL that reads it, and messages about its cells."""

from __future__ import annotations

import contextlib
import csv
import re
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from hushgraph.datasets.paths import check_is_file, format_path
from hushgraph.errors import GraphError
from hushgraph.graph.columns import suggest

_DELIMITERS = (",", ";", "\t", "|")
_NUMBERS = re.compile(r"U?(TINY|SMALL|BIG|HUGE)?INT(EGER)?|FLOAT|DOUBLE|BOOLEAN|DECIMAL\(.*")
_INTEGERS = re.compile(r"(TINY|SMALL|BIG)?INT(EGER)?|U(TINYINT|SMALLINT|INTEGER)")
_FLOATS = ("FLOAT", "DOUBLE")
# Types that DuckDB gives to a column of Python objects after looking at all of them.
_GUESSED = re.compile(r"BOOLEAN|DECIMAL\(.*|DATE|TIME.*")
_TEXTS = re.compile(r"VARCHAR|ENUM\(.*|UUID|DATE|TIMESTAMP.*|TIME.*")
_MAGIC = b"PAR1"
# The columns whose default name is their role.
_DEFAULTS = ("id", "label", "source", "target")
_FIXED = "a run keeps the columns of its training"


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table whose columns are known and whose rows have not been read yet.

    Attributes:
        path: the file.
        title: what messages call it; its path unless given.
        names: the names of its columns, in order; in SQL they are c0, c1 and so on.
        types: DuckDB's names of their types; always VARCHAR in CSV, where no type is guessed.
        delimiter: the delimiter of CSV; None for Parquet.
        is_fixed: whether the roles of the columns are fixed, as by a run, so that no flag can change them.
        has_mixed_line_ends: whether it is CSV with both LF and CRLF line ends.
    """

    path: Path
    names: tuple[str, ...]
    types: tuple[str, ...]
    delimiter: str | None
    is_fixed: bool = False
    has_mixed_line_ends: bool = False
    title: str | None = None

    @property
    def shown(self) -> str:
        """What messages call it."""
        return format_path(self.path) if self.title is None else self.title

    @property
    def rows(self) -> str:
        """SQL of its rows, numbered from 0 in file order (`row_no`); its parameter is `pattern`."""
        columns = ", ".join(f"c{number}" for number in range(len(self.names)))
        return f"(SELECT row_number() OVER () - 1 AS row_no, * FROM {self._reader} AS t({columns}))"

    @property
    def pattern(self) -> str:
        """The path with wildcards escaped for DuckDB, so that it matches no other file."""
        return re.sub(r"([\[*?])", r"[\1]", str(self.path.absolute()))

    @property
    def _reader(self) -> str:
        if self.delimiter is None:
            return "read_parquet(?, hive_partitioning = false)"
        columns = ", ".join(f"'c{number}': 'VARCHAR'" for number in range(len(self.names)))
        delimiter = self.delimiter.replace("'", "''")
        # This drops surplus cells, so `_reread` checks for them before it sets `has_mixed_line_ends`.
        lenient = ", strict_mode = false, parallel = false" if self.has_mixed_line_ends else ""
        return (
            f"read_csv(?, auto_detect = false, header = false, skip = 1, delim = '{delimiter}', "
            f"quote = '\"', escape = '\"', hive_partitioning = false, columns = {{{columns}}}{lenient})"
        )

    def sql_name(self, name: str) -> str:
        """Return the name of a column in SQL."""
        return f"c{self.names.index(name)}"

    def is_integer(self, name: str) -> bool:
        """Return whether the type of a column is an integer of at most 64 bits."""
        return _INTEGERS.fullmatch(self.type_of(name)) is not None

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
            is_default = role in _DEFAULTS and name == role
            what = f"no column {name!r}" + ("" if is_default else f", given as {role}")
            if self.is_fixed:
                what += f"; add or rename it ({_FIXED})"
            elif is_default:
                what += f"; name yours with --{name} (columns.{name})"
            raise GraphError(f"{self._header()}: {what}{near}")

    def check_number(self, name: str) -> None:
        """Raise GraphError if the type of a column is not numeric; cells of CSV are checked later."""
        if self.delimiter is None and _NUMBERS.fullmatch(self.type_of(name)) is None:
            raise GraphError(
                f"{self.shown}: column {name!r} holds {self.type_of(name)[:40]}; expected "
                "numbers; "
                + self.advice(
                    "list its values (--categorical), hash it (--hash) or leave it out (--ignore)",
                    "store numbers in it",
                )
            )

    def check_scalar(self, name: str, role: str) -> None:
        """Raise GraphError if a column holds lists, structures or bytes."""
        kind = self.type_of(name)
        if _NUMBERS.fullmatch(kind) is None and _TEXTS.fullmatch(kind) is None:
            raise GraphError(
                f"{self.shown}: column {name!r}, given as {role}, holds {kind[:40]}; expected text or numbers"
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
        return f"{self.shown} {self.row_name(row)}, column {name!r}"

    def row_name(self, row: int) -> str:
        """Return the line of a CSV file or the number of a Parquet row, both from 1."""
        return f"row {row + 1}" if self.delimiter is None else f"line {self._line(row)}"

    def cell(self, connection: Any, row: int, name: str) -> str | None:
        """Return the text of a cell for a message; None if it is empty."""
        create = f"CREATE OR REPLACE TABLE cell AS SELECT CAST({self.sql_name(name)} AS VARCHAR) FROM "
        self.execute(connection, lambda table: f"{create} {table.rows} WHERE row_no = {int(row)}")
        (text,) = connection.execute("SELECT * FROM cell").fetchone()
        return None if text is None else str(text)

    def advice(self, by_flags: str, in_file: str) -> str:
        """Return the advice about a column: to use flags, or to change the file if columns are fixed."""
        return f"{in_file} ({_FIXED})" if self.is_fixed else by_flags

    def execute(self, connection: Any, write_sql: Callable[[Table], str]) -> Table:
        """Execute SQL that reads this table; return it with the options that let DuckDB read it."""
        import duckdb

        try:
            connection.execute(write_sql(self), [self.pattern])
        except duckdb.Error as error:
            return self._reread(connection, error).execute(connection, write_sql)
        return self

    def _reread(self, connection: Any, error: Exception) -> Table:
        """Return this table with options that let DuckDB read it; raise GraphError if there are none."""
        import duckdb

        if isinstance(error, duckdb.OutOfMemoryException):
            raise error
        reason = " ".join(str(error).split("\n")[0].split())[:120]
        if self.delimiter is None:
            raise GraphError(f"{self.shown}: damaged Parquet ({reason}); write it again") from None
        rows, ends = self._check_csv()
        if len(ends) < 2 or self.has_mixed_line_ends:
            raise GraphError(f"{self.shown}: cannot be read as CSV ({reason})") from None
        table = replace(self, has_mixed_line_ends=True)
        # After a lone CR, DuckDB would drop the first character of the line.
        with contextlib.suppress(duckdb.Error):
            count = f"SELECT count(*) FROM {table._reader}"
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
                    column = next((n for n, cell in enumerate(cells) if not _is_utf8(cell)), None)
                    if column is not None:
                        raise GraphError(
                            f"{name} line {begin}, column {self._nth(column)}: not UTF-8; save it as UTF-8"
                        )
                    if cells and len(cells) != width and not (len(cells) == width + 1 and cells[-1] == ""):
                        last = self._nth(min(len(cells), width) - 1)
                        raise GraphError(
                            f"{name} line {begin}: {len(cells)} cells, the last under column {last}; "
                            f"expected {width}, as in line 1; quote a cell that holds {self.delimiter!r}"
                        )
                    begin, rows = lines.line_num + 1, rows + bool(cells)
            except csv.Error as error:
                raise GraphError(f"{name} line {begin}: not CSV ({error}); correct its quotes") from None
            ends = file.newlines or ()
            return rows, {ends} if isinstance(ends, str) else set(ends)

    def _nth(self, column: int) -> str:
        return repr(self.names[column]) if column < len(self.names) else str(column + 1)


def open_table(
    connection: Any,
    path: Path,
    *,
    delimiter: str | None,
    role: str,
    is_fixed: bool = False,
    title: str | None = None,
) -> Table:
    """Open a table and read its header or schema; a file that is not a table raises GraphError."""
    try:
        check_is_file(path)
        if path.suffix == ".parquet":
            return replace(_open_parquet(connection, path), is_fixed=is_fixed, title=title)
        if path.suffix not in (".csv", ".tsv"):
            raise GraphError(f"unknown kind of table for {role}; expected .parquet, .csv or .tsv")
        delimiter = delimiter or ("\t" if path.suffix == ".tsv" else ",")
        names = _read_csv_header(path, delimiter, is_fixed)
    except OSError as error:
        raise GraphError(f"{format_path(path)}: cannot be read ({error.strerror})") from None
    except GraphError as error:
        raise GraphError(f"{format_path(path)}: {error}") from None
    return Table(
        path=path,
        names=tuple(names),
        types=("VARCHAR",) * len(names),
        delimiter=delimiter,
        is_fixed=is_fixed,
    )


def _open_parquet(connection: Any, path: Path) -> Table:
    import duckdb

    with path.open("rb") as file:
        begin = file.read(4)
        if begin == b"":
            raise GraphError("the file is empty; expected Parquet")
        file.seek(-min(4, path.stat().st_size), 2)
        if begin != _MAGIC or file.read(4) != _MAGIC:
            raise GraphError("not a Parquet file, or cut short; a CSV file must have the ending .csv")
    table = Table(path=path, names=(), types=(), delimiter=None)
    try:
        columns = connection.execute(f"DESCRIBE SELECT * FROM {table._reader}", [table.pattern]).fetchall()
    except duckdb.Error as error:
        reason = " ".join(str(error).split("\n")[0].split())[:120]
        raise GraphError(f"damaged Parquet ({reason}); write it again") from None
    return Table(
        path=path,
        names=tuple(row[0] for row in columns),
        types=tuple(row[1] for row in columns),
        delimiter=None,
    )


def _read_csv_header(path: Path, delimiter: str, is_fixed: bool) -> list[str]:
    with path.open("rb") as file:
        begin = file.read(4)
    if begin == b"":
        raise GraphError("the file is empty; expected column names in line 1")
    if begin == _MAGIC:
        raise GraphError("this is a Parquet file; give it the ending .parquet")
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            first = file.readline(1 << 22)
    except UnicodeDecodeError:
        # Text is decoded in blocks: the error may be far below the header. Reading the rows reports it.
        with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
            first = file.readline(1 << 22)
    if not _is_utf8(first):
        raise GraphError("line 1 is not UTF-8; save the file as UTF-8")
    try:
        names = next(csv.reader([first], delimiter=delimiter, strict=True), [])
    except csv.Error as error:
        raise GraphError(f"line 1 is not CSV ({error}); correct its quotes") from None
    if not any(name.strip() for name in names):
        raise GraphError("line 1 is empty; expected column names")
    if len(names) == 1:
        others = [each for each in _DELIMITERS if each in names[0]]
        if others:
            flag = f"give --delimiter {'tab' if others[0] == chr(9) else repr(others[0])}"
            advice = f"write it with {delimiter!r} ({_FIXED})" if is_fixed else flag
            raise GraphError(
                f"line 1 is one column with delimiter {delimiter!r}, and holds {others[0]!r}; {advice}"
            )
    if "" in names:
        number = names.index("") + 1
        raise GraphError(f"line 1: column {number} has no name; name it, or write the file without an index")
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise GraphError(f"line 1: two columns are called {twice!r}; rename one")
    return names


def _is_utf8(text: str) -> bool:
    return not any("\ud800" <= c <= "\udfff" for c in text) if not text.isascii() else True
