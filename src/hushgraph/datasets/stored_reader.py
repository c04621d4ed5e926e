"""Open a stored graph: its arrays are checked block by block and never loaded in full."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from hushgraph.datasets.paths import format_path, path_exists
from hushgraph.errors import GraphError, InputError
from hushgraph.graph.columns import Columns
from hushgraph.graph.graph import SPLITS, Array, check_range, id_type
from hushgraph.graph.mapped import INDICES, INDPTR, open_mapped, release
from hushgraph.graph.stored import StoredGraph

ABOUT = "graph.json"
# Sparse features are of version 2; everything else is as it was in version 1.
DENSE_VERSION, SPARSE_VERSION = 1, 2
X_DENSE = "x.npy"
X_SPARSE = ("x_indptr.npy", "x_indices.npy", "x_data.npy")
DECLARED = "classes_declared"
COUNTS = ("num_nodes", "num_reads", "num_features", "num_classes", "duplicates_removed", "self_loops_removed")
# The number of values checked at a time.
_BLOCK = 1 << 23


def is_stored(data: Any) -> bool:
    """Return whether this is the path of a stored graph."""
    if not isinstance(data, (str, os.PathLike)):
        return False
    return path_exists(Path(data) / ABOUT)


def open_stored(path: Path, *, num_classes: int | None = None) -> StoredGraph:
    """Open the graph in a folder that `store` wrote.

    Args:
        path: the folder.
        num_classes: declares the number of classes, and replaces that of the folder.

    Guarantees:
        Whatever the files contain, the result is a checked graph or a `GraphError` of one line that names the
        folder. Every array is read once, in blocks.
    """
    try:
        about = _read_description(path / ABOUT)
        columns = Columns.of(about["columns"]) if about["columns"] is not None else None
        splits: dict[str, Any] = {
            name: open_mapped(path / f"{name}.npy", ndim=1, kinds="iu") for name in SPLITS
        }
        graph = StoredGraph(
            folder=path,
            num_nodes=about["num_nodes"],
            indptr=_open_array(path / INDPTR, about["num_nodes"] + 1, kinds="i"),
            indices=_open_array(path / INDICES, about["num_reads"], kinds="i"),
            x=_open_features(path, about),
            y=_open_array(path / "y.npy", about["num_nodes"], kinds="iu"),
            num_classes=about["num_classes"] if num_classes is None else num_classes,
            is_directed=about["directed"],
            has_declared_classes=num_classes is not None or _has_declared_classes(about, columns),
            duplicates_removed=about["duplicates_removed"],
            self_loops_removed=about["self_loops_removed"],
            node_names=_open_array(path / "node_names.npy", about["num_nodes"], kinds="iuU")
            if about["has_names"]
            else None,
            columns=columns,
            **splits,
        )
        _check_features(graph)
        _check_reads(graph)
    except InputError as error:
        raise GraphError(f"{format_path(path)}: {error}") from None
    return graph


def _read_description(path: Path) -> dict[str, Any]:
    """Read and check the JSON file that describes the arrays."""
    try:
        about = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise GraphError(f"{ABOUT} cannot be read ({error.strerror})") from None
    except (ValueError, RecursionError):
        raise GraphError(f"{ABOUT} is not JSON; it is damaged, store the graph again") from None
    version = about.get("version") if isinstance(about, dict) else None
    if isinstance(version, bool) or version not in (DENSE_VERSION, SPARSE_VERSION):
        raise GraphError(
            f"{ABOUT} has version={str(version)[:20]}; expected {DENSE_VERSION} or {SPARSE_VERSION}, store "
            "the graph again"
        )
    missing = [key for key in (*COUNTS, "directed", "has_names", "columns") if key not in about]
    if missing:
        raise GraphError(f"{ABOUT} lacks {', '.join(missing)}; it is damaged, store the graph again")
    for key in COUNTS:
        least = 1 if key in ("num_nodes", "num_features", "num_classes") else 0
        value = about[key]
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise GraphError(f"{ABOUT} has {key}={str(value)[:40]}; expected an integer of at least {least}")
    for key in ("directed", "has_names"):
        if not isinstance(about[key], bool):
            raise GraphError(f"{ABOUT} has {key}={str(about[key])[:40]}; expected true or false")
    if about["columns"] is not None and not isinstance(about["columns"], dict):
        raise GraphError(f"{ABOUT} has columns={str(about['columns'])[:40]}; expected an object or null")
    return dict(about)


def _has_declared_classes(about: dict[str, Any], columns: Columns | None) -> bool:
    """Whether the number of classes was declared; older folders do not say, unless classes have names."""
    return bool(about.get(DECLARED, columns is not None and columns.classes is not None))


def _open_array(path: Path, *shape: int, kinds: str) -> Array:
    """Open an array; raise GraphError unless it has this shape."""
    array = open_mapped(path, ndim=len(shape), kinds=kinds)
    if array.shape != shape:
        raise GraphError(
            f"{path.name} has shape {list(array.shape)}; {ABOUT} says {list(shape)}; store the graph again"
        )
    return array


def _open_features(path: Path, about: dict[str, Any]) -> Any:
    """Open features: an array, or sparse rows whose arrays are memory maps."""
    nodes, columns = about["num_nodes"], about["num_features"]
    if about["version"] == DENSE_VERSION:
        return _open_array(path / X_DENSE, nodes, columns, kinds="biuf")
    indptr = _open_array(path / X_SPARSE[0], nodes + 1, kinds="i")
    indices = open_mapped(path / X_SPARSE[1], ndim=1, kinds="i")
    data = open_mapped(path / X_SPARSE[2], ndim=1, kinds="f")
    if indptr.dtype != indices.dtype or data.dtype != np.float32 or len(data) != len(indices):
        raise GraphError(
            f"{', '.join(X_SPARSE)} have types {indptr.dtype}, {indices.dtype}, {data.dtype}, the last two "
            f"{len(indices)} and {len(data)} values; expected integers of one type, float32, and as many "
            "values; store the graph again"
        )
    _check_increasing(X_SPARSE[0], indptr, len(indices))
    return sparse.csr_array((data, indices, indptr), shape=(nodes, columns), copy=False)


def _check_features(graph: StoredGraph) -> None:
    """Raise GraphError naming the first value that is not a finite float32."""
    if sparse.issparse(graph.x):
        _check_sparse_features(graph)
        return
    x = graph.x
    if x.dtype.kind != "f":
        return
    size = max(1, _BLOCK // x.shape[1])
    for begin in range(0, len(x), size):
        with np.errstate(over="ignore", invalid="ignore"):
            block = x[begin : begin + size].astype(np.float32, copy=False)
            is_finite = bool(np.isfinite(block.min()) and np.isfinite(block.max()))
        if not is_finite:
            row, column = (int(i) for i in np.argwhere(~np.isfinite(block))[0])
            raise GraphError(
                f"x[{begin + row}, {column}]={float(x[begin + row, column])} is not a finite float32; "
                "expected finite features; replace it, for example by 0"
            )
        release(x)


def _check_sparse_features(graph: StoredGraph) -> None:
    """Raise GraphError unless columns are ascending in every row and values finite."""
    x = graph.x
    for begin in range(0, len(x.data), _BLOCK):
        block = slice(begin, begin + _BLOCK + 1)
        columns, values = x.indices[block], x.data[block]
        check_range(
            X_SPARSE[1], columns, 0, graph.num_features - 1, f"there are {graph.num_features} columns"
        )
        if not np.isfinite(values).all():
            place = begin + int(np.flatnonzero(~np.isfinite(values))[0])
            row = int(np.searchsorted(x.indptr, place, side="right")) - 1
            raise GraphError(
                f"x[{row}, {int(x.indices[place])}]={float(x.data[place])} is not a finite float32; expected "
                "finite features; replace it, for example by 0"
            )
        # Columns may fall where a row begins.
        falls = begin + 1 + np.flatnonzero(columns[1:] <= columns[:-1])
        starts = np.searchsorted(x.indptr, falls)
        if np.any(x.indptr[starts] != falls):
            raise GraphError(f"{X_SPARSE[1]} repeats a column or is not ascending in a row; it is damaged")
        graph.release_features()


def _check_increasing(name: str, indptr: Array, last: int) -> None:
    """Raise GraphError unless the ends of rows increase from 0 to `last`."""
    is_increasing = int(indptr[0]) == 0 and int(indptr[-1]) == last
    for begin in range(0, len(indptr) - 1, _BLOCK):
        piece = indptr[begin : begin + _BLOCK + 1]
        is_increasing = is_increasing and not np.any(piece[1:] < piece[:-1])
    if not is_increasing:
        raise GraphError(f"{name} does not increase from 0 to {last}; it is damaged")


def _check_reads(graph: StoredGraph) -> None:
    """Raise GraphError unless rows are ascending lists of other nodes."""
    n = graph.num_nodes
    _check_increasing(INDPTR, graph.indptr, graph.num_edges)
    if graph.indices.dtype != id_type(n):
        raise GraphError(f"{INDICES} has dtype {graph.indices.dtype}; expected {np.dtype(id_type(n))}")
    last = -1
    for source, target in graph.edge_chunks():
        check_range(INDICES, source, 0, n - 1, f"the graph has {n} nodes")
        key = target.astype(np.int64) * n + source
        if key[0] <= last or np.any(key[1:] <= key[:-1]) or np.any(source == target):
            raise GraphError(f"{INDICES} repeats a read, holds a self-loop or is not ascending in a row")
        last = key[-1]
