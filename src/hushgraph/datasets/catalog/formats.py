"""Readers of the official files: OGB, Planetoid, the graphs of Shchur et al., and both versions of Reddit.

Every reader returns the arguments of `Graph.from_arrays`. The files are read here and not by the packages of
their publishers: importing `ogb` contacts a server, its loader asks questions on standard input and its cache
is a pickle; PyG unpickles the files of Planetoid without restrictions.
"""

from __future__ import annotations

import codecs
import collections
import copyreg
import io
import json
import pickle
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from scipy import sparse

from hushgraph.errors import GraphError

_FETCH_AGAIN = "delete it to download it again"

# The tables of OGB. The heterogeneous ogbn-mag has one folder per type of node; only papers are read.
_OGB_TABLES = {
    "ogbn_arxiv": ("raw/edge.csv.gz", "raw/node-feat.csv.gz", "raw/node-label.csv.gz", "split/time"),
    "ogbn_products": (
        "raw/edge.csv.gz",
        "raw/node-feat.csv.gz",
        "raw/node-label.csv.gz",
        "split/sales_ranking",
    ),
    "ogbn_mag": (
        "raw/relations/paper___cites___paper/edge.csv.gz",
        "raw/node-feat/paper/node-feat.csv.gz",
        "raw/node-label/paper/node-label.csv.gz",
        "split/time/paper",
    ),
}
OGB_FILES = {
    folder: (*tables, *(f"{split}/{part}.csv.gz" for part in ("train", "valid", "test")))
    for folder, (*tables, split) in _OGB_TABLES.items()
}
"""The files that `read_ogb` reads, relative to the folder of the dataset."""

PLANETOID_PARTS = ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index")
PLANETOID_FILES = {
    name: tuple(f"ind.{name}.{part}" for part in PLANETOID_PARTS) for name in ("cora", "citeseer", "pubmed")
}
"""The eight files of Cora, CiteSeer and PubMed (Yang et al. 2016)."""
_VALIDATION_NODES = 500
_ARRAY_MODULES = ("numpy.core.multiarray", "numpy._core.multiarray")
_MATRIX_MODULES = ("scipy.sparse.csr", "scipy.sparse._csr")

_SHCHUR_PARTS = ("data", "indices", "indptr", "shape")

REDDIT_FILES = ("adj_full.npz", "feats.npy", "class_map.json", "role.json")
REDDIT_FULL_FILES = ("reddit_data.npz", "reddit_graph.npz")


def read_ogb(folder: Path) -> dict[str, Any]:
    """Read a node-classification dataset of the Open Graph Benchmark from the layout that `ogb` unpacks."""
    edges, features, labels, *splits = (folder / name for name in OGB_FILES[folder.name])
    arrays: dict[str, Any] = {
        "edge_index": read_table(edges, np.int32, columns=2).T,
        "x": read_table(features, np.float32),
        "y": read_table(labels, np.int64, columns=1)[:, 0],
    }
    for name, path in zip(("train_idx", "val_idx", "test_idx"), splits, strict=True):
        arrays[name] = read_table(path, np.int64, columns=1)[:, 0]
    return arrays


def read_planetoid(folder: Path, name: str) -> dict[str, Any]:
    """Read Cora, CiteSeer or PubMed with the public split.

    Guarantees:
        The files are pickles. Only NumPy arrays, SciPy matrices and plain containers are restored; anything
        else is refused.
    """
    *pickled, test_index = PLANETOID_FILES[name]
    parts = {part: _unpickle(folder / file) for part, file in zip(PLANETOID_PARTS, pickled, strict=False)}
    test_nodes = read_table(folder / test_index, np.int64, columns=1)[:, 0]
    try:
        return _assemble_planetoid(parts, test_nodes)
    except (AttributeError, IndexError, TypeError, ValueError) as error:
        raise GraphError(
            f"{folder}: the files of {name} do not fit together ({type(error).__name__}: {error}); delete "
            "them to download them again"
        ) from None


def read_shchur(path: Path) -> dict[str, Any]:
    """Read a Coauthor or Amazon graph (Shchur et al. 2018), which has no split.

    Features become 0 or 1, as in PyG, and stay sparse.
    """
    arrays = read_arrays(
        path, [f"{kind}_{part}" for kind in ("adj", "attr") for part in _SHCHUR_PARTS] + ["labels"]
    )
    adjacency, features = (_build_matrix(path, arrays, kind) for kind in ("adj", "attr"))
    features.data = (features.data > 0).astype(np.float32)
    entries = adjacency.tocoo()
    return {"edge_index": np.stack([entries.row, entries.col]), "x": features, "y": arrays["labels"]}


def read_reddit(folder: Path) -> dict[str, Any]:
    """Read the Reddit posts of GraphSAGE from the files of GraphSAINT, which is the version of the paper."""
    adjacency = read_arrays(folder / "adj_full.npz", ("indices", "indptr", "shape"))
    x = read_array(folder / "feats.npy")
    nodes = np.arange(len(adjacency["indptr"]) - 1, dtype=np.int32)
    sources = np.repeat(nodes, np.diff(adjacency["indptr"]))
    roles = _read_json(folder / "role.json")
    y = np.full(len(x), -1, np.int64)
    try:
        for node, label in _read_json(folder / "class_map.json").items():
            y[int(node)] = label
        splits = [np.asarray(roles[key], np.int64) for key in ("tr", "va", "te")]
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise GraphError(
            f"{folder}: class_map.json and role.json do not fit feats.npy ({type(error).__name__}: {error}); "
            "expected one class per node, and lists tr, va, te"
        ) from None
    return {
        "edge_index": np.stack([sources, adjacency["indices"].astype(np.int32)]),
        "x": x,
        "y": y,
        **dict(zip(("train_idx", "val_idx", "test_idx"), splits, strict=True)),
    }


def read_reddit_full(folder: Path) -> dict[str, Any]:
    """Read the Reddit posts of DGL and PyG, with five times as many edges."""
    data = read_arrays(folder / "reddit_data.npz", ("feature", "label", "node_types"))
    # A SciPy matrix in coordinate format; the other formats have no `row`.
    graph = read_arrays(folder / "reddit_graph.npz", ("row", "col"))
    roles = data["node_types"]
    return {
        "edge_index": np.stack([graph["row"], graph["col"]]),
        "x": data["feature"],
        "y": data["label"].astype(np.int64),
        "train_idx": np.flatnonzero(roles == 1),
        "val_idx": np.flatnonzero(roles == 2),
        "test_idx": np.flatnonzero(roles == 3),
    }


def read_table(path: Path, dtype: Any, *, columns: int | None = None) -> npt.NDArray[Any]:
    """Read comma-separated numbers, compressed or not, as an array [rows, columns]."""
    try:
        with warnings.catch_warnings():
            # NumPy warns about an empty file, which is an error below.
            warnings.simplefilter("ignore")
            table = np.loadtxt(path, delimiter=",", dtype=dtype, ndmin=2, comments=None)
    except Exception as error:  # gzip, zlib and NumPy raise a dozen types on damaged files
        raise GraphError(
            f"{path} cannot be read ({type(error).__name__}); expected comma-separated numbers; "
            f"{_FETCH_AGAIN}"
        ) from error
    if table.size == 0 or (columns is not None and table.shape[1] != columns):
        expected = "at least one row" if columns is None else f"rows of {columns}"
        raise GraphError(
            f"{path} holds {table.shape[0]} rows of {table.shape[1]} numbers; expected {expected}"
        )
    return table


def read_arrays(path: Path, keys: Iterable[str]) -> dict[str, npt.NDArray[Any]]:
    """Read the named members of an `.npz` archive; nothing is unpickled."""
    names = tuple(keys)
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            missing = [name for name in names if name not in archive.files]
            if missing:
                raise GraphError(f"{path}: missing {', '.join(missing)}; expected {', '.join(names)}")
            return {name: archive[name] for name in names}
    except GraphError:
        raise
    except Exception as error:  # zipfile, zlib and NumPy raise a dozen types on damaged files
        raise _damaged(path, error) from error


def read_array(path: Path) -> npt.NDArray[Any]:
    """Read the array of an `.npy` file; nothing is unpickled."""
    try:
        with path.open("rb") as file:
            array = np.load(file, allow_pickle=False)
    except Exception as error:  # NumPy raises a dozen types on damaged files
        raise _damaged(path, error) from error
    if not isinstance(array, np.ndarray):
        raise GraphError(f"{path} is an archive; expected one array")
    return array


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise _damaged(path, error) from None


def _damaged(path: Path, error: Exception) -> GraphError:
    return GraphError(f"{path} cannot be read ({type(error).__name__}); the file is damaged; {_FETCH_AGAIN}")


def _build_matrix(path: Path, arrays: dict[str, Any], kind: str) -> Any:
    data, indices, indptr, shape = (arrays[f"{kind}_{part}"] for part in _SHCHUR_PARTS)
    try:
        matrix = sparse.csr_array((data, indices, indptr), shape=tuple(shape))
        matrix.check_format(full_check=True)
    except (TypeError, ValueError) as error:
        raise GraphError(f"{path}: {kind}_* is not a sparse matrix ({error}); the file is damaged") from None
    return matrix


def _assemble_planetoid(parts: dict[str, Any], test_nodes: npt.NDArray[np.int64]) -> dict[str, Any]:
    """Put the known rows first, then the test rows, which the files hold in the order of `test_nodes`."""
    known, tested = _check_matrix(parts["allx"]).tocoo(), _check_matrix(parts["tx"]).tocoo()
    if len(test_nodes) != tested.shape[0]:
        raise ValueError(f"{len(test_nodes)} test nodes, {tested.shape[0]} rows of tx")
    count = int(test_nodes.max()) + 1
    # CiteSeer omits isolated test nodes: their rows stay zero and their class is 0, as in PyG.
    rows = np.concatenate([known.row, test_nodes[tested.row]])
    columns, values = np.concatenate([known.col, tested.col]), np.concatenate([known.data, tested.data])
    one_hot = np.zeros((count, parts["ally"].shape[1]))
    one_hot[: known.shape[0]] = parts["ally"]
    one_hot[test_nodes] = parts["ty"]
    labelled = len(parts["y"])
    ends = [(node, other) for node, others in parts["graph"].items() for other in others]
    return {
        "edge_index": np.array(ends, np.int64).reshape(-1, 2).T,
        "x": sparse.csr_array((values.astype(np.float32), (rows, columns)), shape=(count, known.shape[1])),
        "y": one_hot.argmax(1),
        "train_idx": np.arange(labelled),
        "val_idx": np.arange(labelled, labelled + _VALIDATION_NODES),
        "test_idx": np.sort(test_nodes),
    }


def _check_matrix(unpickled: Any) -> Any:
    """Return a sparse matrix after checking that its indices are in range."""
    matrix = sparse.csr_array((unpickled.data, unpickled.indices, unpickled.indptr), shape=unpickled.shape)
    matrix.check_format(full_check=True)
    return matrix


def _new_array(kind: Any, shape: Any, code: Any) -> npt.NDArray[Any]:
    """Stand in for NumPy's `_reconstruct`; the state that follows sets shape, type and content."""
    return np.empty(0, np.int8)


class _ArrayUnpickler(pickle.Unpickler):
    """An unpickler that knows only arrays, sparse matrices and containers, by all names they have had."""

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


def _unpickle(path: Path) -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return _ArrayUnpickler(io.BytesIO(path.read_bytes()), encoding="latin1").load()
    except Exception as error:  # pickle raises whatever its content makes it raise
        raise GraphError(
            f"{path} cannot be read ({type(error).__name__}: {str(error)[:80]}); expected numbers and plain "
            f"containers; {_FETCH_AGAIN}"
        ) from None
