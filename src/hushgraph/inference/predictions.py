"""Files of predictions: a table as CSV or Parquet, or arrays."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from hushgraph._files import check_parent, whole_file
from hushgraph._text import is_elsewhere
from hushgraph.datasets.tables.reading import open_database
from hushgraph.errors import InputError

NOT_COVERED = (
    "A prediction reads the node's neighbours in the clear: the guarantee is about the weights and does not "
    "cover predictions."
)


FORMATS = (".csv", ".npz", ".parquet")
Columns = Mapping[str, npt.NDArray[Any]]
"""The columns of a table, or the arrays of a file, by name."""
NODE = "node"
"""The column of nodes without a name of their own for it."""


def check_out(out: str | os.PathLike[str], *, force: bool) -> None:
    """Raise InputError for a path of unknown type, and for one that exists unless `force`.

    Where an address leads is known to Spark alone.
    """
    if is_elsewhere(str(out)):
        return
    path = Path(out)
    if path.suffix not in FORMATS:
        raise InputError(
            f"out={path}: expected a name that ends in {', '.join(FORMATS[:-1])} or {FORMATS[-1]}"
        )
    if path.exists() and not force:
        raise InputError(f"out={path}: it exists already; choose another name, or give --force")
    check_parent(path)


def save(path: Path, parts: Iterable[Columns]) -> None:
    """Write named columns of one length, some rows at a time. The file is replaced atomically.

    Args:
        path: `.csv` or `.parquet`, a table, or `.npz`, which also takes arrays of other shapes.
        parts: columns by name, the same in every part; of `.npz` one part.
    """
    write = {".parquet": _write_parquet, ".npz": _write_arrays}.get(path.suffix, _write_csv)
    with whole_file(path) as file:
        write(file, parts)


def name_nodes(
    columns: Mapping[str, npt.NDArray[Any]],
    count: int,
    *,
    node_names: npt.NDArray[Any] | None = None,
    id_name: str | None = None,
) -> dict[str, npt.NDArray[Any]]:
    """Return columns with that of the nodes in front: their names, or numbers from 0."""
    nodes = np.arange(count) if node_names is None else node_names
    # A column of the user's that has the name of one of ours would replace it.
    first = NODE if id_name is None or id_name in columns else id_name
    # NumPy text instead of objects, so that a file can be read without unpickling.
    return {first: nodes if nodes.dtype.kind in "iu" else nodes.astype(np.str_), **columns}


def _write_arrays(file: BinaryIO, parts: Iterable[Columns]) -> None:
    arrays: dict[str, Any] = {name: values for columns in parts for name, values in columns.items()}
    np.savez(file, **arrays)


def _write_csv(file: BinaryIO, parts: Iterable[Columns]) -> None:
    for number, columns in enumerate(parts):
        _write_lines(file, columns, with_names=number == 0)


def _write_lines(file: BinaryIO, columns: Columns, *, with_names: bool) -> None:
    quoted = [_quote_text(values) for values in columns.values()]
    # True and false are 1 and 0, as in columns that are read.
    forms = {"b": "%d", "i": "%d", "u": "%d", "f": "%.6g"}
    header = ",".join(_quote_text(np.array(list(columns), np.str_)))
    table = np.empty(len(quoted[0]), [(f"c{place}", each.dtype) for place, each in enumerate(quoted)])
    for place, values in enumerate(quoted):
        table[f"c{place}"] = values
    np.savetxt(
        file,
        table,
        fmt=[forms.get(each.dtype.kind, "%s") for each in quoted],
        delimiter=",",
        header=header if with_names else "",
        comments="",
        encoding="utf-8",
    )


def _write_parquet(file: BinaryIO, parts: Iterable[Columns]) -> None:
    """Write by DuckDB, into the file that is open under its own name."""
    import duckdb

    with open_database() as (connection, _):
        for number, columns in enumerate(parts):
            values = {f"c{place}": np.ascontiguousarray(each) for place, each in enumerate(columns.values())}
            connection.register("part", values)
            # Texts of one part would be a type of their own: a list of those that occur.
            cells = [
                f"CAST(c{place} AS VARCHAR)" if each.dtype.kind == "U" else f"c{place}"
                for place, each in enumerate(columns.values())
            ]
            names = [
                f"{cell} AS {_quote_sql(name, chr(34))}" for cell, name in zip(cells, columns, strict=True)
            ]
            chosen = f"SELECT {', '.join(names)} FROM part"
            connection.execute(
                f"INSERT INTO predictions {chosen}" if number else f"CREATE TABLE predictions AS {chosen}"
            )
            connection.unregister("part")
        try:
            target = _quote_sql(file.name, "'")
            connection.execute(f"COPY predictions TO {target} (FORMAT parquet)")
        except duckdb.IOException as error:
            raise OSError(str(error)) from None


def _quote_sql(text: str, quote: str) -> str:
    return f"{quote}{text.replace(quote, 2 * quote)}{quote}"


def _quote_text(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Quote text for CSV where it contains a comma, a quote or a line break."""
    if values.dtype.kind != "U":
        return values
    is_special = np.zeros(values.shape, np.bool_)
    for character in ',"\n\r':
        is_special |= np.char.find(values, character) >= 0
    if not is_special.any():
        return values
    doubled = np.char.replace(values[is_special], '"', '""')
    quoted = np.char.add(np.char.add('"', doubled), '"')
    result = values.astype(np.result_type(values.dtype, quoted.dtype))
    result[is_special] = quoted
    return result
