"""Opening a stored graph: a folder of arrays that are checked block by block and never loaded whole."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from hushgraph.datasets.paths import is_there, shown
from hushgraph.errors import GraphError, InputError
from hushgraph.graph.checks import Array, check_range, id_type
from hushgraph.graph.columns import Columns
from hushgraph.graph.graph import SPLITS
from hushgraph.graph.mapped import INDICES, INDPTR, open_mapped, release
from hushgraph.graph.stored import StoredGraph

ABOUT = "graph.json"
VERSION = 1
COUNTS = ("num_nodes", "num_reads", "num_features", "num_classes", "duplicates_removed", "self_loops_removed")
# Values checked at a time.
_BLOCK = 1 << 23


def is_stored(data: Any) -> bool:
    """Whether this is the path of a stored graph."""
    if not isinstance(data, (str, os.PathLike)):
        return False
    return is_there(Path(data) / ABOUT)


def open_stored(path: Path, *, num_classes: int | None = None) -> StoredGraph:
    """The graph in a folder that `store` wrote.

    Args:
        path: of the folder.
        num_classes: in place of what the folder says.

    Guarantees:
        Whatever the files hold, the outcome is a checked graph or a `GraphError` of one line that names the
        folder. Every array is read once, in blocks.
    """
    try:
        about = _read_about(path / ABOUT)
        columns = Columns.of(about["columns"]) if about["columns"] is not None else None
        graph = StoredGraph(
            folder=path,
            num_nodes=about["num_nodes"],
            indptr=_opened(path / INDPTR, about["num_nodes"] + 1, kinds="i"),
            indices=_opened(path / INDICES, about["num_reads"], kinds="i"),
            x=_opened(path / "x.npy", about["num_nodes"], about["num_features"], kinds="biuf"),
            y=_opened(path / "y.npy", about["num_nodes"], kinds="iu"),
            num_classes=about["num_classes"] if num_classes is None else num_classes,
            is_directed=about["directed"],
            duplicates_removed=about["duplicates_removed"],
            self_loops_removed=about["self_loops_removed"],
            node_names=_opened(path / "node_names.npy", about["num_nodes"], kinds="iuU")
            if about["has_names"]
            else None,
            columns=columns,
            **{name: open_mapped(path / f"{name}.npy", ndim=1, kinds="iu") for name in SPLITS},
        )
        _check_features(graph.x)
        _check_reads(graph)
    except InputError as error:
        raise GraphError(f"{shown(path)}: {error}") from None
    return graph


def _read_about(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise GraphError(f"{ABOUT} cannot be read ({error.strerror})") from None
    except (ValueError, RecursionError):
        raise GraphError(f"{ABOUT} is not JSON; it is damaged, store the graph again") from None
    version = found.get("version") if isinstance(found, dict) else None
    if version != VERSION:
        raise GraphError(
            f"{ABOUT} has version={str(version)[:20]}; expected {VERSION}, store the graph again"
        )
    missing = [key for key in (*COUNTS, "directed", "has_names", "columns") if key not in found]
    if missing:
        raise GraphError(f"{ABOUT} lacks {', '.join(missing)}; it is damaged, store the graph again")
    for key in COUNTS:
        least = 1 if key in ("num_nodes", "num_features", "num_classes") else 0
        value = found[key]
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise GraphError(f"{ABOUT} has {key}={str(value)[:40]}; expected an integer of at least {least}")
    for key in ("directed", "has_names"):
        if not isinstance(found[key], bool):
            raise GraphError(f"{ABOUT} has {key}={str(found[key])[:40]}; expected true or false")
    if found["columns"] is not None and not isinstance(found["columns"], dict):
        raise GraphError(f"{ABOUT} has columns={str(found['columns'])[:40]}; expected an object or null")
    return dict(found)


def _opened(path: Path, *shape: int, kinds: str) -> Array:
    array = open_mapped(path, ndim=len(shape), kinds=kinds)
    if array.shape != shape:
        raise GraphError(
            f"{path.name} has shape {list(array.shape)}; {ABOUT} says {list(shape)}; store the graph again"
        )
    return array


def _check_features(x: Array) -> None:
    if x.dtype.kind != "f":
        return
    size = max(1, _BLOCK // x.shape[1])
    for begin in range(0, len(x), size):
        with np.errstate(over="ignore", invalid="ignore"):
            block = x[begin : begin + size].astype(np.float32, copy=False)
            finite = bool(np.isfinite(block.min()) and np.isfinite(block.max()))
        if not finite:
            row, column = (int(i) for i in np.argwhere(~np.isfinite(block))[0])
            raise GraphError(
                f"x[{begin + row}, {column}]={float(x[begin + row, column])} is not a finite float32; "
                "expected finite features; replace it, for instance by 0"
            )
        release(x)


def _check_reads(graph: StoredGraph) -> None:
    """Refuse rows that are not ascending lists of other nodes."""
    n, indptr = graph.num_nodes, graph.indptr
    rises = int(indptr[0]) == 0 and int(indptr[-1]) == graph.num_edges
    for begin in range(0, n, _BLOCK):
        piece = indptr[begin : begin + _BLOCK + 1]
        rises = rises and not np.any(piece[1:] < piece[:-1])
    if not rises:
        raise GraphError(f"{INDPTR} does not rise from 0 to {graph.num_edges}; it is damaged")
    if graph.indices.dtype != id_type(n):
        raise GraphError(f"{INDICES} has dtype {graph.indices.dtype}; expected {np.dtype(id_type(n))}")
    last = -1
    for source, target in graph.edge_chunks():
        check_range(INDICES, source, 0, n - 1, f"the graph has {n} nodes")
        place = target.astype(np.int64) * n + source
        if place[0] <= last or np.any(place[1:] <= place[:-1]) or np.any(source == target):
            raise GraphError(f"{INDICES} repeats a read, holds a self-loop or is not ascending in a row")
        last = place[-1]
