"""One table on disk, in one file or several: its columns, the SQL that reads it, messages about its cells."""

from __future__ import annotations

import contextlib
import csv
import re
from collections import deque
from collections.abc import Callable, Iterator, Sequence
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
_TIMES = re.compile(r"DATE|TIMESTAMP.*")
_MAGIC = b"PAR1"
# What DuckDB calls the number of a row in its Parquet file.
_ROW_NUMBER = "file_row_number"
# The columns whose default name is their role.
_DEFAULTS = ("id", "label", "source", "target")
_FIXED = "a run keeps the columns of its training"


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

    @property
    def shown(self) -> str:
        """What messages call it."""
        return format_path(self.path) if self.title is None else self.title

    @property
    def short_name(self) -> str:
        """What messages call it where the folder is clear."""
        more = f" and {len(self.parts) - 1} more" if len(self.parts) > 1 else ""
        return self.title or self.path.name + more

    @property
    def rows(self) -> str:
        """SQL of its rows, numbered from 0 in file order (`row_no`); its parameters are `patterns`."""
        return f"(SELECT row_number() OVER () - 1 AS row_no, * FROM {self.cells})"

    @property
    def cells(self) -> str:
        """SQL of its rows without numbers, which is faster; its parameters are `patterns`."""
        if not self.parts:
            columns = ", ".join(f"c{number}" for number in range(len(self.names)))
            return f"{self._reader} AS t({columns})"
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
            if near.startswith("; it") and not self.is_fixed:
                near += "; hushgraph check proposes roles"
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
                    f"read it as dates (--date {name}=2000-01-01)"
                    if _TIMES.fullmatch(self.type_of(name))
                    else "list its values (--categorical), hash it (--hash) or leave it out (--ignore)",
                    "store numbers in it",
                )
            )

    def check_date(self, name: str) -> None:
        """Raise GraphError if the type of a column can hold no dates; cells of text are checked later."""
        kind = self.type_of(name)
        if _TEXTS.fullmatch(kind) is None or kind == "UUID":
            raise GraphError(
                f"{self.shown}: column {name!r}, given as date, holds {kind[:40]}; expected dates or text; "
                + self.advice("leave out --date for it", "store dates in it")
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
        return f"{in_file} ({_FIXED})" if self.is_fixed else by_flags

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
        """Whether `read_rows` can read it: Parquet, whose rows have numbers in their file."""
        return self.delimiter is None and _ROW_NUMBER not in self.names

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
        reader = f"{self._reader[:-1]}, {_ROW_NUMBER} = true) AS t({columns}, {_ROW_NUMBER})"
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

        if isinstance(error, duckdb.OutOfMemoryException):
            raise error
        reason = " ".join(str(error).split("\n")[0].split())[:120]
        if self.parts:
            probe = "CREATE OR REPLACE TEMP TABLE probe AS SELECT count(COLUMNS(*)) FROM "
            parts = tuple(part.execute(connection, lambda each: probe + each.cells) for part in self.parts)
            if parts == self.parts:
                raise GraphError(f"{self.shown}: the files cannot be read together ({reason})") from None
            return replace(self, parts=parts)
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
    path: Path | Sequence[Path],
    *,
    delimiter: str | None,
    role: str,
    is_fixed: bool = False,
    title: str | None = None,
) -> Table:
    """Open a table and read its header or schema; files that are no table raise GraphError.

    Args:
        connection: a DuckDB connection.
        path: its file, or several with the same columns, in any order.
        delimiter: of CSV. Without one, each file is read by its own first line, the names of its columns,
            which are public. Lines of data decide nothing.
        role: what messages call it.
        is_fixed, title: as in `Table`.
    """
    paths = [path] if isinstance(path, Path) else list(path)
    tables = [
        _open_file(connection, each, delimiter=delimiter, role=role, is_fixed=is_fixed) for each in paths
    ]
    first, *others = tables
    for other in others:
        _check_fits(first, other)
    return replace(first, parts=tuple(tables) if others else (), title=title, num_rows=first.num_rows)


def _open_file(connection: Any, path: Path, *, delimiter: str | None, role: str, is_fixed: bool) -> Table:
    try:
        check_is_file(path)
        ending = path.suffix.casefold()
        if ending == ".parquet":
            return replace(_open_parquet(connection, path), is_fixed=is_fixed)
        if ending not in (".csv", ".tsv", ".txt"):
            raise GraphError(f"unknown kind of table for {role}; expected .parquet, .csv, .tsv or .txt")
        names, delimiter = _read_csv_header(path, delimiter, is_fixed)
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


def _check_fits(first: Table, other: Table) -> None:
    """Raise GraphError unless two files can be parts of one table."""
    if (first.delimiter is None) != (other.delimiter is None):
        raise GraphError(
            f"{other.shown}: Parquet and CSV in one table, with {first.shown}; store all files as one of them"
        )
    for here, there in ((first, other), (other, first)):
        missing = [name for name in here.names if name not in there.names]
        if missing:
            own = [name for name in there.names if name not in here.names]
            holds = f", and has {own[0]!r}, which {here.shown} has not" if own else ""
            near = suggest(missing[0], own)
            raise GraphError(
                f"{there.shown}: no column {missing[0]!r}, which {here.shown} has{holds}; name the columns "
                f"of all files alike{near}"
            )
    for name in first.names:
        kinds = first.type_of(name), other.type_of(name)
        if kinds[0] != kinds[1] and not (first.is_integer(name) and other.is_integer(name)):
            raise GraphError(
                f"{other.shown}: column {name!r} holds {kinds[1][:40]}, and {kinds[0][:40]} in "
                f"{first.shown}; store one type in all files"
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
    (rows,) = connection.execute(
        "SELECT sum(num_rows) FROM parquet_file_metadata(?)", [table.pattern]
    ).fetchone()
    return Table(
        path=path,
        names=tuple(row[0] for row in columns),
        types=tuple(row[1] for row in columns),
        delimiter=None,
        num_rows=int(rows),
    )


def _read_csv_header(path: Path, delimiter: str | None, is_fixed: bool) -> tuple[list[str], str]:
    """Return the names of the columns of a CSV file and its delimiter, from its first line alone."""
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
    usual = "\t" if path.suffix.casefold() == ".tsv" else ","
    if first.strip() == "":
        raise GraphError("line 1 is empty; expected column names")
    chosen = delimiter or usual
    fitting = [each for each in _DELIMITERS if each != chosen and _count_columns(first, each) > 1]
    if fitting and _count_columns(first, chosen) < 2:
        if delimiter is not None or len(fitting) > 1:
            raise GraphError(_explain_one_column(delimiter, usual, fitting, is_fixed))
        chosen = fitting[0]
    try:
        names = next(csv.reader([first], delimiter=chosen, strict=True))
    except csv.Error as error:
        raise GraphError(f"line 1 is not CSV ({error}); correct its quotes") from None
    if not any(name.strip() for name in names):
        raise GraphError("line 1 is empty; expected column names")
    if "" in names:
        number = names.index("") + 1
        raise GraphError(f"line 1: column {number} has no name; name it, or write the file without an index")
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise GraphError(f"line 1: two columns are called {twice!r}; rename one")
    return names, chosen


def _count_columns(line: str, delimiter: str) -> int:
    """Return how many columns a header has by a delimiter; 0 if it is not CSV by it."""
    try:
        return len(next(csv.reader([line], delimiter=delimiter, strict=True), []))
    except csv.Error:
        return 0


def _explain_one_column(delimiter: str | None, usual: str, others: list[str], is_fixed: bool) -> str:
    """Say that a header is one column by its delimiter, and what to do."""
    shown = ["tab" if each == "\t" else repr(each) for each in others]
    what = f"line 1 is one column with delimiter {delimiter or usual!r}, and holds {' and '.join(shown)}"
    if is_fixed:
        return f"{what}; write it with {delimiter or usual!r} ({_FIXED})"
    if delimiter is None:
        return f"{what}; give --delimiter {shown[0]}"
    if len(others) == 1:
        return f"{what}; leave out --delimiter: each file is then read by its own first line"
    return f"{what}; give --delimiter {shown[0]}"


def _is_utf8(text: str) -> bool:
    return not any("\ud800" <= c <= "\udfff" for c in text) if not text.isascii() else True
