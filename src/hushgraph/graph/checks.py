"""What a graph's arrays must be: every check names the array, the place, what was found and what to do."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from hushgraph.errors import GraphError

Array = npt.NDArray[Any]


def as_array(name: str, values: Any) -> Array:
    try:
        return np.asarray(values)
    except (ValueError, TypeError, RuntimeError) as error:
        raise GraphError(f"{name} is not a rectangular array; expected one, with numbers in it") from error


def check_shape(name: str, values: Any, ndim: int) -> tuple[int, ...]:
    shape = values.shape if sparse.issparse(values) else as_array(name, values).shape
    if len(shape) != ndim:
        raise GraphError(f"{name} has shape {list(shape)}; expected {ndim} dimension{'s' * (ndim > 1)}")
    return tuple(shape)


def check_integers(name: str, values: Any, ndim: int) -> Array:
    """The values as an integer array of `ndim` dimensions, or a GraphError about `name`."""
    array = as_array(name, values)
    check_shape(name, array, ndim)
    if array.dtype.kind in "iu":
        return array
    # numpy makes an empty list float64: no value in it can be wrong.
    if array.size == 0 and array.dtype.kind == "f":
        return array.astype(np.int64)
    hint = "; turn a mask into ids with numpy.flatnonzero" if array.dtype.kind == "b" and ndim == 1 else ""
    raise GraphError(f"{name} has dtype {str(array.dtype)[:40]}; expected integers{hint}")


def check_range(name: str, array: Array, low: int, high: int, advice: str) -> None:
    """Refuse values outside low..high, naming the first."""
    if array.size == 0 or (int(array.min()) >= low and int(array.max()) <= high):
        return
    place = np.argwhere((array < low) | (array > high))[0]
    value = array[tuple(place)]
    where = ", ".join(str(i) for i in place)
    raise GraphError(f"{name}[{where}]={value}; expected {low}..{high}; {advice}")


def check_number_of_classes(num_classes: Any) -> None:
    if isinstance(num_classes, bool) or not isinstance(num_classes, (int, np.integer)) or num_classes < 1:
        raise GraphError(f"num_classes={str(num_classes)[:40]}; expected an integer of at least 1")


def checked_features(x: Any) -> Any:
    """Finite float32 features: a C-contiguous array, or CSR with sorted, unrepeated columns."""
    rows, columns = check_shape("x", x, ndim=2)
    if rows == 0 or columns == 0:
        raise GraphError(f"x has shape [{rows}, {columns}]; expected at least one node and one feature")
    values = x if sparse.issparse(x) else as_array("x", x)
    if values.dtype.kind not in "biuf":
        raise GraphError(f"x has dtype {str(values.dtype)[:40]}; expected real numbers")
    with np.errstate(over="ignore", invalid="ignore"):
        if sparse.issparse(values):
            # sum_duplicates works in place, so the caller's matrix must not be the one it works on.
            table = sparse.csr_array(values, dtype=np.float32)
            if not table.has_canonical_format:
                table = table.copy()
                table.sum_duplicates()
            flat = table.data
        else:
            table = np.ascontiguousarray(values, dtype=np.float32)
            flat = table
        finite = flat.size == 0 or bool(np.isfinite(flat.min()) and np.isfinite(flat.max()))
    if finite:
        return table
    if sparse.issparse(table):
        place = int(np.flatnonzero(~np.isfinite(flat))[0])
        row, column = int(np.searchsorted(table.indptr, place, side="right")) - 1, int(table.indices[place])
        values = sparse.csr_array(values)  # not every sparse format can look up one entry
    else:
        row, column = (int(i) for i in np.argwhere(~np.isfinite(table))[0])
    raise GraphError(
        f"x[{row}, {column}]={float(values[row, column])} is not a finite float32; expected finite features; "
        "replace it, for instance by 0"
    )


def disjoint_splits(num_nodes: int, splits: dict[str, Any]) -> dict[str, Array]:
    """Every split sorted, as int64, after checking that no node occurs twice."""
    taken = np.full(num_nodes, -1, np.int8)
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
        shared = nodes[taken[nodes] >= 0]
        if shared.size:
            other = list(splits)[int(taken[shared[0]])]
            raise GraphError(f"node {shared[0]} is in both {other} and {name}; expected disjoint splits")
        taken[nodes] = number
        checked[name] = nodes
    if checked["train_idx"].size == 0:
        raise GraphError("train_idx is empty; expected at least one training node")
    return checked


def reads_from_edges(edge_index: Any, num_nodes: int) -> tuple[Any, int, int]:
    """Reads as a boolean CSR matrix, one row per target, and how many repeats and self-loops were dropped."""
    edges = as_array("edge_index", edge_index)
    if edges.ndim != 2 or edges.shape[0] != 2:
        raise GraphError(f"edge_index has shape {list(edges.shape)}; expected [2, E]: sources, then targets")
    edges = check_integers("edge_index", edges, ndim=2)
    check_range("edge_index", edges, 0, num_nodes - 1, f"x has {num_nodes} rows, one per node")
    source, target = (row.astype(id_type(num_nodes), copy=False) for row in edges)
    proper = source != target
    if not proper.all():
        source, target = source[proper], target[proper]
    pairs = sparse.coo_array((np.ones(len(source), np.bool_), (target, source)), shape=(num_nodes, num_nodes))
    reads = pairs.tocsr()
    return reads, len(source) - reads.nnz, edges.shape[1] - len(source)


def id_type(num_nodes: int) -> type[np.signedinteger[Any]]:
    return np.int32 if num_nodes < 2**31 else np.int64


def lacks_reverse(reads: Any) -> bool:
    """Whether some read has no reverse."""
    reverse = reads.T.tocsr()
    return not (
        np.array_equal(reads.indptr, reverse.indptr) and np.array_equal(reads.indices, reverse.indices)
    )
