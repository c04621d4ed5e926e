"""PyG's `Data`, as an object or in a `.pt` file, as arrays."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from scipy import sparse

from hushgraph.datasets.npz import NO_SPLIT, SPLITS, mask_of, nodes_of_mask
from hushgraph.datasets.paths import check_is_file
from hushgraph.errors import GraphError, MissingSplitError


def read_pt(path: Path) -> Any:
    """The fields of the `Data` in a `.pt` file; PermissionError where it may not be opened."""
    import torch
    from torch_geometric.data import Data
    from torch_geometric.data.data import DataEdgeAttr, DataTensorAttr
    from torch_geometric.data.storage import GlobalStorage

    check_is_file(path)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with torch.serialization.safe_globals([Data, DataEdgeAttr, DataTensorAttr, GlobalStorage]):
                found = torch.load(path, map_location="cpu", weights_only=True)
        # PyG's in-memory datasets store (data, slices, class), with slices only where graphs are several.
        if isinstance(found, tuple):
            found, several = found[0], len(found) > 1 and bool(found[1])
            if several:
                raise GraphError("several graphs in one file; expected one")
        fields = found if isinstance(found, Mapping) else found.to_dict() if isinstance(found, Data) else {}
        return SimpleNamespace(**fields)
    except (GraphError, PermissionError):
        raise
    except Exception as error:  # pickle, zipfile and torch raise a dozen types on damaged files
        raise GraphError(
            f"not a .pt file of tensors ({type(error).__name__}); it is damaged, or holds objects that only "
            "running code could restore; save it with torch.save(data.to_dict(), path)"
        ) from error


def arrays_from_pyg(data: Any, *, splits: bool = True, labels: bool = True) -> dict[str, Any]:
    """The arguments of `Graph.from_arrays` found in a PyG `Data`, as far as asked for.

    Args:
        data: with the fields of a `Data`.
        splits: whether a split must be there.
        labels: False reads `edge_index` and `x` alone.
    """
    wanted = ("edge_index", "x", "y") if labels else ("edge_index", "x")
    missing = [name for name in wanted if getattr(data, name, None) is None]
    if missing:
        raise GraphError(
            f"missing {', '.join(missing)}; expected a PyG Data with {', '.join(wanted[:-1])} and "
            f"{wanted[-1]}, a file or a dataset name"
        )
    arrays = {name: _numpy(name, getattr(data, name)) for name in ("edge_index", "x")}
    if not labels:
        return arrays
    arrays["y"] = _class_numbers(_numpy("y", data.y))
    if splits:
        found = {name: _split_from_pyg(data, name, arrays["y"].shape[:1]) for name in SPLITS}
        if found["train_idx"] is None:
            raise MissingSplitError(f"no train_mask and no train_idx: {NO_SPLIT}")
        arrays |= found
    return arrays


def _numpy(name: str, value: Any) -> Any:
    """A tensor as a numpy array, or as a scipy matrix if it is sparse."""
    try:
        if not hasattr(value, "detach"):
            return value if sparse.issparse(value) else np.asarray(value)
        tensor = value.detach().cpu()
        if "sparse" not in str(tensor.layout):
            return (tensor.float() if "bfloat16" in str(tensor.dtype) else tensor).numpy()
        entries = tensor.to_sparse_coo().coalesce()
        row, column = entries.indices().numpy()
        return sparse.coo_array((entries.values().float().numpy(), (row, column)), shape=tuple(entries.shape))
    except (AttributeError, RuntimeError, TypeError, ValueError) as error:
        raise GraphError(
            f"{name} is a {type(value).__name__} that cannot become an array; expected a dense tensor, or a "
            "sparse matrix for x"
        ) from error


def _class_numbers(labels: Any) -> Any:
    """Labels [N] from [N] or [N, 1]; floats must be whole, and NaN is no label."""
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim != 1 or labels.dtype.kind != "f":
        return labels
    labels = np.where(np.isnan(labels), -1.0, labels)
    odd = np.flatnonzero((labels != np.rint(labels)) | (np.abs(labels) > 2**31))
    if odd.size:
        raise GraphError(f"y[{odd[0]}]={labels[odd[0]]}; expected class numbers, or NaN for no label")
    return labels.astype(np.int64)


def _split_from_pyg(data: Any, name: str, shape: tuple[int, ...]) -> Any:
    """The ids of one split, from its mask of this shape or its index tensor; None if there is neither."""
    mask_name = mask_of(name)
    given, mask = getattr(data, name, None), getattr(data, mask_name, None)
    if given is not None and mask is not None:
        raise GraphError(f"both {mask_name} and {name}; expected one of them; delete the other")
    if mask is not None:
        return nodes_of_mask(mask_name, _numpy(mask_name, mask), shape)
    return None if given is None else _numpy(name, given)
