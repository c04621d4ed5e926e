"""Open the files of a table: names of columns by the header of CSV or the schema of Parquet."""

from __future__ import annotations

import csv
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from hushgraph._text import suggest
from hushgraph.datasets.paths import check_is_file, format_path
from hushgraph.datasets.tables.table import FIXED, Origin, Table, is_utf8
from hushgraph.errors import GraphError

_DELIMITERS = (",", ";", "\t", "|")
_MAGIC = b"PAR1"


def open_table(
    connection: Any,
    path: Path | Sequence[Path],
    *,
    delimiter: str | None,
    role: str,
    is_fixed: bool = False,
    title: str | None = None,
    origins: Mapping[Path, Origin] | None = None,
) -> Table:
    """Open a table and read its header or schema; files that are no table raise GraphError.

    Args:
        connection: a DuckDB connection.
        path: its file, or several with the same columns, in any order.
        delimiter: of CSV. Without one, each file is read by its own first line, the names of its columns,
            which are public. Lines of data decide nothing.
        role: what messages call it.
        is_fixed, title: as in `Table`.
        origins: where the rows of folders are from that Spark wrote.
    """
    paths = [path] if isinstance(path, Path) else list(path)
    how: dict[str, Any] = {"delimiter": delimiter, "role": role, "is_fixed": is_fixed}
    tables = [
        _open_written(connection, each, origins[each], is_fixed=is_fixed)
        if origins
        else _open_file(connection, each, **how)
        for each in paths
    ]
    first, *others = tables
    for other in others:
        _check_fits(first, other)
    return replace(first, parts=tuple(tables) if others else (), title=title, num_rows=first.num_rows)


def _open_file(connection: Any, path: Path, *, delimiter: str | None, role: str, is_fixed: bool) -> Table:
    try:
        check_is_file(path)
        ending = path.suffix.casefold()
        if ending not in (".parquet", ".csv", ".tsv", ".txt"):
            raise GraphError(f"unknown kind of table for {role}; expected .parquet, .csv, .tsv or .txt")
        with path.open("rb") as file:
            begin = file.read(len(_MAGIC))
            file.seek(-len(begin), os.SEEK_END)
            end = file.read()
        if not begin:
            raise GraphError("the file is empty; expected column names")
        if ending == ".parquet":
            if (begin, end) != (_MAGIC, _MAGIC):
                raise GraphError("not a Parquet file, or cut short; a CSV file must have the ending .csv")
            table = Table(path=path, names=(), types=(), delimiter=None, is_fixed=is_fixed)
            return _read_schema(connection, table)
        if begin == _MAGIC:
            raise GraphError("this is a Parquet file; give it the ending .parquet")
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


def _open_written(connection: Any, path: Path, origin: Origin, *, is_fixed: bool) -> Table:
    """Open what Spark wrote; GraphError where executors wrote to a file system that is not this one."""
    table = Table(path=path, names=(), types=(), delimiter=None, origin=origin, is_fixed=is_fixed)
    if any(path.glob("*.parquet")):
        table = _read_schema(connection, table)
    if table.num_rows != origin.rows:
        raise GraphError(
            f"{origin.name}: executors of Spark wrote {origin.rows:,} rows to {path}, where this process "
            f"finds {table.num_rows or 0:,}; choose by --out a file system that driver and executors share, "
            "and remove that folder from the executors"
        )
    return table


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


def _read_schema(connection: Any, table: Table) -> Table:
    """A table of Parquet with its columns and its number of rows."""
    import duckdb

    try:
        columns = connection.execute(f"DESCRIBE SELECT * FROM {table.reader}", [table.pattern]).fetchall()
    except duckdb.Error as error:
        reason = " ".join(str(error).split("\n")[0].split())[:120]
        raise GraphError(f"damaged Parquet ({reason}); export it again") from None
    (rows,) = connection.execute(
        "SELECT sum(num_rows) FROM parquet_file_metadata(?)", [table.pattern]
    ).fetchone()
    names, types = tuple(row[0] for row in columns), tuple(row[1] for row in columns)
    return replace(table, names=names, types=types, num_rows=int(rows))


def _read_csv_header(path: Path, delimiter: str | None, is_fixed: bool) -> tuple[list[str], str]:
    """Return the names of the columns of a CSV file and its delimiter, from its first line alone."""
    # Text is decoded in blocks, and an error may be far below the header: reading the rows reports it.
    with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
        first = file.readline(1 << 22)
    if not is_utf8(first):
        raise GraphError("line 1 is not UTF-8; save the file as UTF-8")
    usual = "\t" if path.suffix.casefold() == ".tsv" else ","
    chosen = delimiter or usual
    fitting = [each for each in _DELIMITERS if each != chosen and _count_columns(first, each) > 1]
    if fitting and _count_columns(first, chosen) < 2:
        if delimiter is not None or len(fitting) > 1:
            raise GraphError(_explain_one_column(delimiter, usual, fitting, is_fixed))
        chosen = fitting[0]
    try:
        names = next(csv.reader([first], delimiter=chosen, strict=True), [])
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
        return f"{what}; write it with {delimiter or usual!r} ({FIXED})"
    if delimiter is None:
        return f"{what}; give --delimiter {shown[0]}"
    if len(others) == 1:
        return f"{what}; leave out --delimiter: each file is then read by its own first line"
    return f"{what}; give --delimiter {shown[0]}"
