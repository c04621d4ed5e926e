"""Posts on Reddit, in the two versions that circulate."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from hushgraph.datasets.catalog.numbers import read_array, read_arrays
from hushgraph.errors import GraphError

GRAPHSAINT_FILES = ("adj_full.npz", "feats.npy", "class_map.json", "role.json")
FULL_FILES = ("reddit_data.npz", "reddit_graph.npz")


def read_graphsaint(folder: Path) -> dict[str, Any]:
    """The version of GraphSAGE in the files of GraphSAINT, which is the one the paper uses."""
    adjacency = read_arrays(folder / "adj_full.npz", ("indices", "indptr", "shape"))
    x = read_array(folder / "feats.npy")
    places = np.arange(len(adjacency["indptr"]) - 1, dtype=np.int32)
    sources = np.repeat(places, np.diff(adjacency["indptr"]))
    roles = _read_json(folder / "role.json")
    y = np.full(len(x), -1, np.int64)
    try:
        for node, label in _read_json(folder / "class_map.json").items():
            y[int(node)] = label
        splits = [np.asarray(roles[key], np.int64) for key in ("tr", "va", "te")]
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise GraphError(
            f"{folder}: class_map.json and role.json do not fit feats.npy ({type(error).__name__}: {error}); "
            "expected one class a node, and lists tr, va, te"
        ) from None
    return {
        "edge_index": np.stack([sources, adjacency["indices"].astype(np.int32)]),
        "x": x,
        "y": y,
        **dict(zip(("train_idx", "val_idx", "test_idx"), splits, strict=True)),
    }


def read_full(folder: Path) -> dict[str, Any]:
    """The version of DGL and PyG, with five times as many edges."""
    data = read_arrays(folder / "reddit_data.npz", ("feature", "label", "node_types"))
    path = folder / "reddit_graph.npz"
    # The file is a scipy matrix in coordinate form; in other forms it has no `row`.
    graph = read_arrays(path, ("row", "col"))
    kinds = data["node_types"]
    return {
        "edge_index": np.stack([graph["row"], graph["col"]]),
        "x": data["feature"],
        "y": data["label"].astype(np.int64),
        "train_idx": np.flatnonzero(kinds == 1),
        "val_idx": np.flatnonzero(kinds == 2),
        "test_idx": np.flatnonzero(kinds == 3),
    }


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise GraphError(
            f"{path} cannot be read ({type(error).__name__}); the file is damaged; delete it to have it "
            "fetched again"
        ) from None
