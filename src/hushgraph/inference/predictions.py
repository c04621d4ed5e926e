"""Files of predictions: node, class and, if asked for, probabilities."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from hushgraph._files import whole_file
from hushgraph.errors import InputError

NOT_COVERED = (
    "A prediction reads the node's neighbours in the clear: the guarantee is about the weights and does not "
    "cover predictions."
)


FORMATS = (".csv", ".npz", ".parquet")
_NODE, _CLASS, _NUMBER = "node", "class", "number"


def check_out(path: Path, *, force: bool) -> None:
    """Raise InputError for a path of unknown type, and for one that exists unless `force`."""
    if path.suffix not in FORMATS:
        raise InputError(
            f"out={path}: expected a name that ends in {', '.join(FORMATS[:-1])} or {FORMATS[-1]}"
        )
    if path.exists() and not force:
        raise InputError(f"out={path}: it exists already; choose another name, or give --force")
    if not path.parent.is_dir():
        raise InputError(f"out={path}: there is no folder {path.parent}; make it first")


def save(
    path: Path,
    probabilities: npt.NDArray[np.float32],
    *,
    with_probabilities: bool,
    node_names: npt.NDArray[Any] | None = None,
    class_names: Sequence[str] | None = None,
    id_name: str | None = None,
) -> None:
    """Write one row per node, in the order of the data. The file is replaced atomically.

    Args:
        path: `.csv` or `.parquet` with columns node, class, p_0, ..., or `.npz` with arrays node, class,
            probabilities.
        probabilities: float32 [num_nodes, num_classes].
        with_probabilities: whether the probabilities are written.
        node_names: the names of the nodes; numbers from 0 unless given.
        class_names: the names of the classes; numbers from 0 unless given.
        id_name: what the first column of a table is called.
    """
    names: dict[str, Any] = {"node_names": node_names, "class_names": class_names}
    if path.suffix == ".npz":
        _save_arrays(path, probabilities, with_probabilities=with_probabilities, **names)
        return
    columns = list_columns(probabilities, with_probabilities=with_probabilities, id_name=id_name, **names)
    write = _write_parquet if path.suffix == ".parquet" else _write_csv
    with whole_file(path) as file:
        write(file, columns)


def list_columns(
    probabilities: npt.NDArray[np.float32],
    *,
    with_probabilities: bool = True,
    node_names: npt.NDArray[Any] | None = None,
    class_names: Sequence[str] | None = None,
    id_name: str | None = None,
) -> dict[str, npt.NDArray[Any]]:
    """Return the columns of a table of predictions, by name; arguments as in `save`."""
    count, classes = probabilities.shape
    names = np.arange(classes) if class_names is None else np.asarray(class_names, np.str_)
    # One output is a number; classes have two or more.
    columns = {_NUMBER: probabilities[:, 0]} if classes == 1 else {_CLASS: names[probabilities.argmax(1)]}
    if with_probabilities and classes > 1:
        columns |= {f"p_{name}": column for name, column in zip(names, probabilities.T, strict=True)}
    # A column of the user's that has the name of one of ours would replace it.
    first = _NODE if id_name is None or id_name in columns else id_name
    return {first: _as_ids(count, node_names)} | columns


def _as_ids(count: int, node_names: npt.NDArray[Any] | None) -> npt.NDArray[Any]:
    nodes = np.arange(count) if node_names is None else node_names
    # NumPy text instead of objects, so that a file can be read without unpickling.
    return nodes if nodes.dtype.kind in "iu" else nodes.astype(np.str_)


def _save_arrays(
    path: Path,
    probabilities: npt.NDArray[np.float32],
    *,
    with_probabilities: bool,
    node_names: npt.NDArray[Any] | None,
    class_names: Sequence[str] | None,
) -> None:
    columns = list_columns(
        probabilities, with_probabilities=False, node_names=node_names, class_names=class_names
    )
    arrays: dict[str, Any] = dict(columns)
    if with_probabilities:
        arrays["probabilities"] = probabilities
        arrays |= {} if class_names is None else {"class_names": np.asarray(class_names, np.str_)}
    with whole_file(path) as file:
        np.savez(file, **arrays)


def _write_csv(file: BinaryIO, columns: Mapping[str, npt.NDArray[Any]]) -> None:
    quoted = [_quote_text(values) for values in columns.values()]
    forms = {"i": "%d", "u": "%d", "f": "%.6g"}
    header = ",".join(_quote_text(np.array(list(columns), np.str_)))
    table = np.empty(len(quoted[0]), [(f"c{place}", each.dtype) for place, each in enumerate(quoted)])
    for place, values in enumerate(quoted):
        table[f"c{place}"] = values
    np.savetxt(
        file,
        table,
        fmt=[forms.get(each.dtype.kind, "%s") for each in quoted],
        delimiter=",",
        header=header,
        comments="",
        encoding="utf-8",
    )


def _write_parquet(file: BinaryIO, columns: Mapping[str, npt.NDArray[Any]]) -> None:
    """Write by DuckDB, into the file that is open under its own name."""
    import duckdb

    table = {f"c{place}": np.ascontiguousarray(each) for place, each in enumerate(columns.values())}
    listed = ", ".join(f"c{place} AS {_quote_sql(name, chr(34))}" for place, name in enumerate(columns))
    try:
        with duckdb.connect() as connection:
            connection.register("predictions", table)
            target = _quote_sql(file.name, "'")
            connection.execute(f"COPY (SELECT {listed} FROM predictions) TO {target} (FORMAT parquet)")
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
