"""Node-classification datasets of the Open Graph Benchmark, from the files of its archives.

They are read here and not by the `ogb` package: importing that package contacts a server, its loader asks
questions on standard input, and its cache is a pickle.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hushgraph.errors import GraphError

# The heterogeneous ogbn-mag keeps one folder per kind of node; its papers cite each other.
_PLACES = {
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


def ogb_files(folder_name: str) -> tuple[str, ...]:
    """What `read_ogb` reads, relative to the folder of the dataset."""
    edges, features, labels, split = _PLACES[folder_name]
    return (edges, features, labels, *(f"{split}/{part}.csv.gz" for part in ("train", "valid", "test")))


def read_ogb(folder: Path) -> dict[str, Any]:
    """The arguments of `Graph.from_arrays` from a folder in the layout that `ogb` unpacks."""
    edges, features, labels, *splits = (folder / name for name in ogb_files(folder.name))
    arrays: dict[str, Any] = {
        "edge_index": read_table(edges, np.int32, columns=2).T,
        "x": read_table(features, np.float32),
        "y": read_table(labels, np.int64, columns=1)[:, 0],
    }
    for name, path in zip(("train_idx", "val_idx", "test_idx"), splits, strict=True):
        arrays[name] = read_table(path, np.int64, columns=1)[:, 0]
    return arrays


def read_table(path: Path, dtype: Any, *, columns: int | None = None) -> npt.NDArray[Any]:
    """Numbers separated by commas, compressed or not, as an array [rows, columns]."""
    try:
        with warnings.catch_warnings():
            # numpy warns of an empty file, which is an error below.
            warnings.simplefilter("ignore")
            table = np.loadtxt(path, delimiter=",", dtype=dtype, ndmin=2, comments=None)
    except Exception as error:  # gzip, zlib and numpy raise a dozen types on damaged files
        raise GraphError(
            f"{path} cannot be read ({type(error).__name__}); expected numbers separated by commas; delete "
            "it to have it fetched again"
        ) from error
    if table.size == 0 or (columns is not None and table.shape[1] != columns):
        wanted = "at least one row" if columns is None else f"rows of {columns}"
        raise GraphError(f"{path} holds {table.shape[0]} rows of {table.shape[1]} numbers; expected {wanted}")
    return table
