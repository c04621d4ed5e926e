"""Cora, CiteSeer and PubMed (Yang et al. 2016), from the eight files each of them consists of."""

from __future__ import annotations

import codecs
import collections
import copyreg
import io
import pickle
import warnings
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from scipy import sparse

from hushgraph.datasets.catalog.ogb import read_table
from hushgraph.errors import GraphError

_PARTS = ("x", "tx", "allx", "y", "ty", "ally", "graph")
_VALIDATION_NODES = 500
_ARRAY_MODULES = ("numpy.core.multiarray", "numpy._core.multiarray")
_MATRIX_MODULES = ("scipy.sparse.csr", "scipy.sparse._csr")


def planetoid_files(name: str) -> tuple[str, ...]:
    """The eight files of the dataset `name`."""
    return tuple(f"ind.{name}.{part}" for part in (*_PARTS, "test.index"))


def read_planetoid(folder: Path, name: str) -> dict[str, Any]:
    """The arguments of `Graph.from_arrays`, with the public split.

    Guarantees:
        The files are pickles; nothing but numpy arrays, scipy matrices and plain containers is restored, and
        anything else is refused.
    """
    parts = {part: _unpickled(folder / f"ind.{name}.{part}") for part in _PARTS}
    places = read_table(folder / f"ind.{name}.test.index", np.int64, columns=1)[:, 0]
    try:
        return _assembled(parts, places)
    except (AttributeError, IndexError, TypeError, ValueError) as error:
        raise GraphError(
            f"{folder}: the files of {name} do not fit together ({type(error).__name__}: {error}); delete "
            "them to have them fetched again"
        ) from None


def _assembled(parts: dict[str, Any], places: npt.NDArray[np.int64]) -> dict[str, Any]:
    """Known rows first, then the test rows, which the files hold in the order of `places`."""
    known, tested = _matrix(parts["allx"]).tocoo(), _matrix(parts["tx"]).tocoo()
    if len(places) != tested.shape[0]:
        raise ValueError(f"{len(places)} test nodes, {tested.shape[0]} rows of tx")
    count = int(places.max()) + 1
    # CiteSeer leaves out isolated test nodes: their rows stay zero, and their class is 0, as PyG has it.
    rows = np.concatenate([known.row, places[tested.row]])
    columns, values = np.concatenate([known.col, tested.col]), np.concatenate([known.data, tested.data])
    one_hot = np.zeros((count, parts["ally"].shape[1]))
    one_hot[: known.shape[0]] = parts["ally"]
    one_hot[places] = parts["ty"]
    labelled = len(parts["y"])
    ends = [(node, other) for node, others in parts["graph"].items() for other in others]
    return {
        "edge_index": np.array(ends, np.int64).reshape(-1, 2).T,
        "x": sparse.csr_array((values.astype(np.float32), (rows, columns)), shape=(count, known.shape[1])),
        "y": one_hot.argmax(1),
        "train_idx": np.arange(labelled),
        "val_idx": np.arange(labelled, labelled + _VALIDATION_NODES),
        "test_idx": np.sort(places),
    }


def _matrix(found: Any) -> Any:
    """A sparse matrix whose indices are known to be in range."""
    matrix = sparse.csr_array((found.data, found.indices, found.indptr), shape=found.shape)
    matrix.check_format(full_check=True)
    return matrix


def _new_array(kind: Any, shape: Any, code: Any) -> npt.NDArray[Any]:
    """What a pickle begins an array with; its state, which follows, brings shape, type and content."""
    return np.empty(0, np.int8)


class _Numbers(pickle.Unpickler):
    """An unpickler that knows arrays, sparse matrices and plain containers by all the names they have had."""

    _known: ClassVar[dict[tuple[str, str], Any]] = {
        ("numpy", "ndarray"): np.ndarray,
        ("numpy", "dtype"): np.dtype,
        ("collections", "defaultdict"): collections.defaultdict,
        ("_codecs", "encode"): codecs.encode,
        **{(module, "_reconstruct"): _new_array for module in _ARRAY_MODULES},
        **{(module, "csr_matrix"): sparse.csr_matrix for module in _MATRIX_MODULES},
        **{(module, "_reconstructor"): copyreg._reconstructor for module in ("copy_reg", "copyreg")},  # type: ignore[attr-defined]
        **{(module, "list"): list for module in ("__builtin__", "builtins")},
        **{(module, "object"): object for module in ("__builtin__", "builtins")},
    }

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in self._known:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}")
        return self._known[module, name]


def _unpickled(path: Path) -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return _Numbers(io.BytesIO(path.read_bytes()), encoding="latin1").load()
    except Exception as error:  # pickle raises whatever its content makes it raise
        raise GraphError(
            f"{path} cannot be read ({type(error).__name__}: {str(error)[:80]}); expected numbers and plain "
            "containers; delete it to have it fetched again"
        ) from None
