"""Coauthor and Amazon graphs (Shchur et al. 2018), from their .npz files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from hushgraph.datasets.catalog.numbers import read_arrays
from hushgraph.errors import GraphError

_PARTS = ("data", "indices", "indptr", "shape")


def read_shchur(path: Path) -> dict[str, Any]:
    """The arguments of `Graph.from_arrays` but for the split, which these graphs do not have.

    Features become 0 or 1, as PyG makes them, and stay sparse.
    """
    found = read_arrays(path, [f"{kind}_{part}" for kind in ("adj", "attr") for part in _PARTS] + ["labels"])
    adjacency, features = (_matrix(path, found, kind) for kind in ("adj", "attr"))
    features.data = (features.data > 0).astype(np.float32)
    places = adjacency.tocoo()
    return {"edge_index": np.stack([places.row, places.col]), "x": features, "y": found["labels"]}


def _matrix(path: Path, found: dict[str, Any], kind: str) -> Any:
    data, indices, indptr, shape = (found[f"{kind}_{part}"] for part in _PARTS)
    try:
        matrix = sparse.csr_array((data, indices, indptr), shape=tuple(shape))
        matrix.check_format(full_check=True)
    except (TypeError, ValueError) as error:
        raise GraphError(f"{path}: {kind}_* is not a sparse matrix ({error}); the file is damaged") from None
    return matrix
