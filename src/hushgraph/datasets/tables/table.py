"""One table on disk, CSV or Parquet: its columns, how DuckDB reads it, and what is wrong with it."""

from __future__ import annotations

import contextlib
import csv
import re
from collections import deque
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from hushgraph.datasets.paths import check_is_file, shown
from hushgraph.errors import GraphError
from hushgraph.graph.columns import hint

_DELIMITERS = (",", ";", "\t", "|")
_NUMBERS = re.compile(r"U?(TINY|SMALL|BIG|HUGE)?INT(EGER)?|FLOAT|DOUBLE|BOOLEAN|DECIMAL\(.*")
_WHOLE = re.compile(r"(TINY|SMALL|BIG)?INT(EGER)?|U(TINYINT|SMALLINT|INTEGER)")
_TEXTS = re.compile(r"VARCHAR|ENUM\(.*|UUID|DATE|TIMESTAMP.*|TIME.*")
_MAGIC = b"PAR1"
# Columns that have these names unless others are given.
_USUAL = ("id", "label", "source", "target")
_KEPT = "a run keeps the columns of its training"


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table whose columns are known and whose rows are not read yet.

    Attributes:
        path: of the file.
        names: of its columns, in order; in SQL they are c0, c1 and so on.
        types: DuckDB's names of their types; VARCHAR throughout in CSV, where nothing is guessed.
        delimiter: of CSV; None for Parquet.
        settled: whether columns are given whole, as by a run, so that no flag adds to them.
        is_mixed: whether it is CSV whose lines end in LF here and in CRLF there.
    """

    path: Path
    names: tuple[str, ...]
    types: tuple[str, ...]
    delimiter: str | None
    settled: bool = False
    is_mixed: bool = False

    @property
    def rows(self) -> str:
        """SQL for its rows, numbered from 0 in the order of the file (`row_no`); it takes `pattern`."""
        columns = ", ".join(f"c{number}" for number in range(len(self.names)))
        return f"(SELECT row_number() OVER () - 1 AS row_no, * FROM {self._reader} AS t({columns}))"

    @property
    def pattern(self) -> str:
        """The path as DuckDB wants it, so that no character of it stands for other files."""
        return re.sub(r"([\[*?])", r"[\1]", str(self.path.absolute()))

    @property
    def _reader(self) -> str:
        if self.delimiter is None:
            return "read_parquet(?, hive_partitioning = false)"
        columns = ", ".join(f"'c{number}': 'VARCHAR'" for number in range(len(self.names)))
        delimiter = self.delimiter.replace("'", "''")
        # It would drop cells that are too many, so `reread` looks for them before it asks for this.
        lenient = ", strict_mode = false, parallel = false" if self.is_mixed else ""
        return (
            f"read_csv(?, auto_detect = false, header = false, skip = 1, delim = '{delimiter}', "
            f"quote = '\"', escape = '\"', hive_partitioning = false, columns = {{{columns}}}{lenient})"
        )

    def sql_name(self, name: str) -> str:
        return f"c{self.names.index(name)}"

    def is_whole(self, name: str) -> bool:
        """Whether a column holds integers of at most 64 bits by its type."""
        return _WHOLE.fullmatch(self.type_of(name)) is not None

    def check_there(self, name: str, purpose: str) -> None:
        """Refuse a name that no column has."""
        if name not in self.names:
            near = hint(name, self.names) or f"; it has {', '.join(map(repr, self.names[:6]))}"
            near += ", ..." if near.startswith("; it") and len(self.names) > 6 else ""
            is_usual = purpose in _USUAL and name == purpose
            what = f"no column {name!r}" + ("" if is_usual else f", given as {purpose}")
            if self.settled:
                what += f"; add or rename it ({_KEPT})"
            elif is_usual:
                what += f"; name yours with --{name} (columns.{name})"
            raise GraphError(f"{self._header()}: {what}{near}")

    def check_number(self, name: str) -> None:
        """Refuse a column whose type is none of numbers; in CSV every cell is checked later instead."""
        if self.delimiter is None and _NUMBERS.fullmatch(self.type_of(name)) is None:
            raise GraphError(
                f"{shown(self.path)}: column {name!r} holds {self.type_of(name)[:40]}; expected numbers; "
                + self.advice(
                    "list its values (--categorical), hash it (--hash) or leave it out (--ignore)",
                    "store numbers in it",
                )
            )

    def check_scalar(self, name: str, purpose: str) -> None:
        """Refuse lists, structures and bytes."""
        kind = self.type_of(name)
        if _NUMBERS.fullmatch(kind) is None and _TEXTS.fullmatch(kind) is None:
            raise GraphError(
                f"{shown(self.path)}: column {name!r}, given as {purpose}, holds {kind[:40]}; expected text "
                "or numbers"
            )

    def place(self, row: int | None, name: str) -> str:
        """Where a cell is, or with no row where the column is named."""
        if row is None:
            return f"{self._header()}, column {name!r}"
        return f"{shown(self.path)} {self.row_name(row)}, column {name!r}"

    def row_name(self, row: int) -> str:
        """The line of a CSV file or the number of a Parquet row, both from 1."""
        return f"row {row + 1}" if self.delimiter is None else f"line {self._line(row)}"

    def cell(self, connection: Any, row: int, name: str) -> str | None:
        """The text of one cell, for a message about it; None where it is empty."""
        (text,) = connection.execute(
            f"SELECT CAST({self.sql_name(name)} AS VARCHAR) FROM {self.rows} WHERE row_no = ?",
            [self.pattern, row],
        ).fetchone()
        return None if text is None else str(text)

    def advice(self, by_flags: str, in_file: str) -> str:
        """What to do about a column: flags may say what it is for, unless that is settled."""
        return f"{in_file} ({_KEPT})" if self.settled else by_flags

    def reread(self, connection: Any, error: Exception) -> Table:
        """This table in a way that DuckDB can read; otherwise say in one line why it could not."""
        import duckdb

        if isinstance(error, duckdb.OutOfMemoryException):
            raise error
        reason = " ".join(str(error).split("\n")[0].split())[:120]
        if self.delimiter is None:
            raise GraphError(f"{shown(self.path)}: damaged Parquet ({reason}); write it again") from None
        rows, ends = self._checked_csv()
        if len(ends) < 2 or self.is_mixed:
            raise GraphError(f"{shown(self.path)}: cannot be read as CSV ({reason})") from None
        table = replace(self, is_mixed=True)
        # After a CR alone DuckDB would drop the first character of a line.
        with contextlib.suppress(duckdb.Error):
            count = f"SELECT count(*) FROM {table._reader}"
            if "\r" not in ends and connection.execute(count, [table.pattern]).fetchone() == (rows,):
                return table
        raise GraphError(
            f"{shown(self.path)}: mixed line endings; save it with one kind, LF or CRLF"
        ) from None

    def type_of(self, name: str) -> str:
        return self.types[self.names.index(name)]

    def _header(self) -> str:
        return shown(self.path) + ("" if self.delimiter is None else " line 1")

    def _line(self, row: int) -> int:
        """The line on which a data row ends: cells may hold line breaks, and empty lines are no rows."""
        with self.path.open(encoding="utf-8", errors="replace", newline="") as file:
            lines = csv.reader(file, delimiter=self.delimiter or ",")
            deque(islice(filter(None, lines), row + 2), maxlen=0)
            return lines.line_num

    def _checked_csv(self) -> tuple[int, set[str]]:
        """Refuse a line that is not CSV, not UTF-8 or of another length; only after reading failed.

        Returns:
            How many rows there are below the header, and how lines end.
        """
        width, name, begin, rows = len(self.names), shown(self.path), 1, -1
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
    connection: Any, path: Path, *, delimiter: str | None, purpose: str, settled: bool = False
) -> Table:
    """The table in a file, its header or schema read, and one line for a file that is none."""
    try:
        check_is_file(path)
        if path.suffix == ".parquet":
            return replace(_open_parquet(connection, path), settled=settled)
        if path.suffix not in (".csv", ".tsv"):
            raise GraphError(f"unknown kind of table for {purpose}; expected .parquet, .csv or .tsv")
        delimiter = delimiter or ("\t" if path.suffix == ".tsv" else ",")
        names = _csv_header(path, delimiter, settled)
    except OSError as error:
        raise GraphError(f"{shown(path)}: cannot be read ({error.strerror})") from None
    except GraphError as error:
        raise GraphError(f"{shown(path)}: {error}") from None
    return Table(
        path=path,
        names=tuple(names),
        types=("VARCHAR",) * len(names),
        delimiter=delimiter,
        settled=settled,
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
        found = connection.execute(f"DESCRIBE SELECT * FROM {table._reader}", [table.pattern]).fetchall()
    except duckdb.Error as error:
        reason = " ".join(str(error).split("\n")[0].split())[:120]
        raise GraphError(f"damaged Parquet ({reason}); write it again") from None
    return Table(
        path=path, names=tuple(row[0] for row in found), types=tuple(row[1] for row in found), delimiter=None
    )


def _csv_header(path: Path, delimiter: str, settled: bool) -> list[str]:
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
        # Decoding goes by blocks, so the fault may be far below the header; reading the rows finds it.
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
            advice = f"write it with {delimiter!r} ({_KEPT})" if settled else flag
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
