"""Checks of the arrays of a graph; every error names the array, the position, the value and what to do."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from hushgraph.errors import GraphError

Array = npt.NDArray[Any]
Chunks = Callable[[], Iterable[tuple[Array, Array]]]
"""Gives all edges as (sources, targets), in chunks; called twice."""


def check_owner(edge_owner: str) -> None:
    """Raise GraphError unless it names one end of an edge."""
    if edge_owner not in ("sender", "reader"):
        raise GraphError(f"edge_owner={edge_owner!r}: expected 'sender' or 'reader'")


def as_array(name: str, values: Any) -> Array:
    """Convert to a NumPy array; raise GraphError about `name` where that is impossible."""
    try:
        return np.asarray(values)
    except (ValueError, TypeError, RuntimeError) as error:
        raise GraphError(f"{name} is not a rectangular array; expected one that holds numbers") from error


def check_shape(name: str, values: Any, ndim: int) -> tuple[int, ...]:
    """Return the shape; raise GraphError unless it has `ndim` dimensions."""
    shape = values.shape if sparse.issparse(values) else as_array(name, values).shape
    if len(shape) != ndim:
        raise GraphError(f"{name} has shape {list(shape)}; expected {ndim} dimension{'s' * (ndim > 1)}")
    return tuple(shape)


def check_integers(name: str, values: Any, ndim: int) -> Array:
    """Return the values as an integer array; raise GraphError unless they are one of `ndim` dimensions."""
    array = as_array(name, values)
    check_shape(name, array, ndim)
    if array.dtype.kind in "iu":
        return array
    # NumPy converts an empty list to float64; it holds no value that could be wrong.
    if array.size == 0 and array.dtype.kind == "f":
        return array.astype(np.int64)
    hint = "; turn a mask into ids with numpy.flatnonzero" if array.dtype.kind == "b" and ndim == 1 else ""
    raise GraphError(f"{name} has dtype {str(array.dtype)[:40]}; expected integers{hint}")


def check_range(name: str, array: Array, low: int, high: int, advice: str, *, first: int = 0) -> None:
    """Raise GraphError naming the first value outside low..high; columns are counted from `first` on."""
    if array.size == 0 or (int(array.min()) >= low and int(array.max()) <= high):
        return
    position = np.argwhere((array < low) | (array > high))[0]
    value = array[tuple(position)]
    position[-1] += first
    where = ", ".join(str(i) for i in position)
    raise GraphError(f"{name}[{where}]={value}: expected {low}..{high}; {advice}")


def check_features(x: Any) -> Any:
    """Convert to finite float32: a C-contiguous array, or CSR whose rows are sorted and without repeats."""
    rows, columns = check_shape("x", x, ndim=2)
    if rows == 0 or columns == 0:
        raise GraphError(f"x has shape [{rows}, {columns}]; expected at least one node and one feature")
    values = x if sparse.issparse(x) else as_array("x", x)
    if values.dtype.kind not in "biuf":
        raise GraphError(f"x has dtype {str(values.dtype)[:40]}; expected real numbers")
    with np.errstate(over="ignore", invalid="ignore"):
        if sparse.issparse(values):
            # sum_duplicates works in place: do not let it change the caller's matrix.
            table = sparse.csr_array(values, dtype=np.float32)
            if not table.has_canonical_format:
                table = table.copy()
                table.sum_duplicates()
            flat = table.data
        else:
            table = np.ascontiguousarray(values, dtype=np.float32)
            flat = table
        is_finite = flat.size == 0 or bool(np.isfinite(flat.min()) and np.isfinite(flat.max()))
    if is_finite:
        return table
    if sparse.issparse(table):
        position = int(np.flatnonzero(~np.isfinite(flat))[0])
        row = int(np.searchsorted(table.indptr, position, side="right")) - 1
        column = int(table.indices[position])
        values = sparse.csr_array(values)  # not every sparse format supports indexing
    else:
        row, column = (int(i) for i in np.argwhere(~np.isfinite(table))[0])
    raise GraphError(
        f"x[{row}, {column}]={float(values[row, column])} is not a finite float32; expected finite features; "
        "replace it, for example by 0"
    )


def check_splits(num_nodes: int, splits: dict[str, Any], *, is_part: bool = False) -> dict[str, Array]:
    """Return every split sorted, as int64; raise GraphError if a node occurs twice.

    A part of a graph (`is_part`) need not have a training node.
    """
    split_of = np.full(num_nodes, -1, np.int8)
    checked: dict[str, Array] = {}
    for number, (name, values) in enumerate(splits.items()):
        nodes = check_integers(name, values, ndim=1)
        check_range(name, nodes, 0, num_nodes - 1, f"the graph has {num_nodes} nodes")
        nodes = np.sort(nodes.astype(np.int64, copy=False))
        repeated = nodes[1:][nodes[1:] == nodes[:-1]]
        if repeated.size:
            raise GraphError(
                f"{name} holds node {repeated[0]} more than once; expected every node at most once"
            )
        shared = nodes[split_of[nodes] >= 0]
        if shared.size:
            other = list(splits)[int(split_of[shared[0]])]
            raise GraphError(f"node {shared[0]} is in both {other} and {name}; expected disjoint splits")
        split_of[nodes] = number
        checked[name] = nodes
    if checked["train_idx"].size == 0 and not is_part:
        raise GraphError("train_idx is empty; expected at least one training node")
    return checked


def check_edges(edge_index: Any, num_nodes: int) -> Array:
    """Return edges as an integer array [2, E] of ids below `num_nodes`."""
    edges = as_array("edge_index", edge_index)
    if edges.ndim != 2 or edges.shape[0] != 2:
        raise GraphError(f"edge_index has shape {list(edges.shape)}; expected [2, E]: sources, then targets")
    edges = check_integers("edge_index", edges, ndim=2)
    check_ends(edges, num_nodes)
    return edges


def check_ends(edges: Array, num_nodes: int, *, first: int = 0) -> None:
    """Raise GraphError unless edges, which begin with edge number `first`, are between nodes."""
    advice = f"x has {num_nodes} rows, one per node"
    check_range("edge_index", edges, 0, num_nodes - 1, advice, first=first)


def cut_edges(edges: npt.NDArray[Any], num_nodes: int, size: int = 1 << 20) -> Chunks:
    """The chunks of an array [2, E] of ids, in the smallest type of ids."""

    def chunks() -> Iterable[tuple[Array, Array]]:
        dtype = id_type(num_nodes)
        for begin in range(0, edges.shape[1], size):
            part = edges[:, begin : begin + size]
            yield part[0].astype(dtype, copy=False), part[1].astype(dtype, copy=False)

    return chunks


def id_type(num_nodes: int) -> type[np.signedinteger[Any]]:
    """Return the smallest type of node ids: int32 where they fit, else int64."""
    return np.int32 if num_nodes < 2**31 else np.int64
