"""Readers of the official files; each returns the arguments of `Graph.from_arrays`.

OGB's tables are read here: its own loader asks questions on standard input and caches a pickle. The files of
Planetoid, Shchur et al. and Reddit are read by PyG.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from hushgraph.datasets.catalog.official import Source
from hushgraph.datasets.paths import refuse_damage
from hushgraph.datasets.pyg import arrays_from_pyg
from hushgraph.errors import GraphError
from hushgraph.graph.graph import SPLITS


def read_ogb(source: Source, root: Path) -> dict[str, Any]:
    """Read a node-classification dataset of the Open Graph Benchmark from the layout that `ogb` unpacks."""
    edges, features, labels, *splits = (root / source.folder / name for name in source.files)
    arrays: dict[str, Any] = {
        "edge_index": read_table(edges, np.int32, columns=2).T,
        "x": read_table(features, np.float32),
        "y": read_table(labels, np.int64, columns=1)[:, 0],
    }
    for name, path in zip(SPLITS, splits, strict=True):
        arrays[name] = read_table(path, np.int64, columns=1)[:, 0]
    return arrays


def read_with_pyg(source: Source, root: Path) -> dict[str, Any]:
    """Read a dataset with its class of PyG, from the raw files in its folder; it may have no split.

    Guarantees:
        Planetoid's files are pickles, which PyG unpickles without restrictions. Their SHA-256 is checked
        before.
    """
    try:
        from torch_geometric import datasets
    except ImportError:
        raise GraphError(
            f"{source.folder}: torch-geometric reads these files and is not installed; "
            "pip install 'hushgraph[pyg]'"
        ) from None
    is_collection = not source.reader.startswith("Reddit")
    arguments = (str(root), source.folder) if is_collection else (str(root / source.folder),)
    try:
        data = getattr(datasets, source.reader)(*arguments)[0]
    except Exception as error:  # pickle, zipfile, NumPy and PyG raise a dozen types on damaged files
        raise GraphError(
            f"{root / source.folder}: PyG cannot read it ({type(error).__name__}: {error}); delete the "
            "folder to download it again"
        ) from error
    arrays = arrays_from_pyg(data, splits="train_mask" in data)
    if is_collection:
        # Bags of words; sparse by declaration, not because many of them are zero.
        arrays["x"] = sparse.csr_array(arrays["x"])
    return arrays


def read_table(path: Path, dtype: Any, *, columns: int | None = None) -> npt.NDArray[Any]:
    """Read comma-separated numbers, compressed or not, as an array [rows, columns]."""
    expected = "expected comma-separated numbers; delete it to download it again"
    with warnings.catch_warnings(), refuse_damage(f"{path} cannot be read", expected):
        # NumPy warns about an empty file, which is an error below.
        warnings.simplefilter("ignore")
        table = np.loadtxt(path, delimiter=",", dtype=dtype, ndmin=2, comments=None)
    if table.size == 0 or (columns is not None and table.shape[1] != columns):
        expected = "at least one row" if columns is None else f"rows of {columns}"
        raise GraphError(
            f"{path} holds {table.shape[0]} rows of {table.shape[1]} numbers; expected {expected}"
        )
    return table
