"""Graphs from files and from PyG objects, without ever running code that a file brings along."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from scipy import sparse

from hushgraph.datasets.catalog import load, names
from hushgraph.datasets.columns import Columns
from hushgraph.datasets.networks import arrays_from_networkx, is_networkx
from hushgraph.datasets.npz import NO_SPLIT, SPLITS, read_npz
from hushgraph.datasets.paths import check_is_file, is_there, shown
from hushgraph.datasets.splits import USUAL_SPLIT, parse_fractions, random_split
from hushgraph.datasets.stored import is_stored, open_stored
from hushgraph.datasets.table_files import is_tables
from hushgraph.errors import GraphError, MissingSplitError
from hushgraph.graph import Graph


def load_graph(
    data: Any,
    *,
    symmetrize: bool = False,
    split: str | None = None,
    split_seed: int = 0,
    root: str | PathLike[str] | None = None,
    num_classes: int | None = None,
    directed: bool | None = None,
    columns: Columns | Mapping[str, Any] | None = None,
    labels: bool = True,
) -> Graph:
    """Turn whatever a user calls a graph into a checked `Graph`.

    Arguments:
        data: a `Graph`, a PyG `Data`, a NetworkX graph (as `Graph.from_networkx` takes it by default), the
            path of an `.npz` or `.pt` file, the folder of a stored graph, a folder or a pair of tables or the
            TOML file that names them, or a catalog name.
        symmetrize: add the reverse of every edge.
        split: "0.6/0.2/0.2" draws a split with `random_split`, in place of any that the data has.
        split_seed: the seed of that draw.
        root: the folder where named datasets keep their files.
        num_classes, directed: as in `Graph.from_arrays`.
        columns: what the columns of tables mean; a mapping of some of them goes before a TOML file. Other
            data has no use for it.
        labels: False reads tables and NetworkX graphs without labels, for predictions.
    """
    options: dict[str, Any] = {"split": split, "split_seed": split_seed, "symmetrize": symmetrize}
    options |= {"num_classes": num_classes, "directed": directed}
    is_name = isinstance(data, str) and data in names()
    if is_stored(data) and not is_name:
        data = open_stored(Path(data), num_classes=num_classes)
    if is_tables(data) and not is_name:
        return _load_tables(data, columns, labels, **options)
    if is_networkx(data):
        return load_networkx(data, labels=labels, **options | {"split": split or "split"})
    if isinstance(data, (str, Path)):
        path = Path(data)
        if path.suffix == ".npz":
            return load_npz(path, **options)
        if path.suffix == ".pt":
            return load_pt(path, **options)
        # A folder that happens to be called like a dataset, as `make demo` leaves one, hides nothing.
        if isinstance(data, Path) or (data not in names() and is_there(path)):
            raise GraphError(
                f"{shown(path)}: unknown kind of file; expected .npz, .pt, tables or a dataset name"
            )
        data = load(data, root)
    if not isinstance(data, Graph):
        return _build(arrays_from_pyg(data, splits=split is None), **options)
    if symmetrize:
        data = data.symmetrized()
    if num_classes is not None:
        data = replace(data, num_classes=num_classes)
    if directed is not None:
        data = replace(data, is_directed=directed)
    return data if split is None else _resplit(data, split, split_seed)


def load_for_training(data: Any, *, split: str | None = None, **how: Any) -> tuple[Graph, str | None]:
    """The graph and the split drawn for it: the one asked for, or the usual one where it has none."""
    try:
        return load_graph(data, split=split, **how), split
    except MissingSplitError:
        return load_graph(data, split=USUAL_SPLIT, **how), USUAL_SPLIT


def load_npz(
    path: str | PathLike[str],
    *,
    symmetrize: bool = False,
    num_classes: int | None = None,
    directed: bool | None = None,
    split: str | None = None,
    split_seed: int = 0,
) -> Graph:
    """Read a graph from an `.npz` file.

    Keys: `edge_index` int [2, E]; features `x` [N, d], or sparse rows `x_indptr`, `x_indices`, `x_data`
    (length 1 means that every value is that one) and `x_shape`; `y` int [N], -1 for no label; `train_idx`,
    `val_idx`, `test_idx`, unless `split` is given. Other keys are not read. The arguments are those of
    `load_graph`.

    Guarantees:
        Whatever the file holds, the outcome is a checked graph or a `GraphError` that names the file; nothing
        in it is unpickled.
    """
    path = Path(path)
    try:
        arrays = read_npz(path, splits=split is None)
        options: dict[str, Any] = {"num_classes": num_classes, "directed": directed, "symmetrize": symmetrize}
        return _build(arrays, split=split, split_seed=split_seed, **options)
    except GraphError as error:
        raise type(error)(f"{shown(path)}: {error}") from None


def load_pt(
    path: str | PathLike[str],
    *,
    symmetrize: bool = False,
    num_classes: int | None = None,
    directed: bool | None = None,
    split: str | None = None,
    split_seed: int = 0,
) -> Graph:
    """Read a graph from a `.pt` file: a PyG `Data`, or a dictionary of tensors with the names of its fields.

    Guarantees:
        Only tensors, plain containers and PyG's own `Data` are unpickled (`torch.load(weights_only=True)`).
    """
    path = Path(path)
    try:
        arrays = arrays_from_pyg(_read_pt(path), splits=split is None)
        options: dict[str, Any] = {"num_classes": num_classes, "directed": directed, "symmetrize": symmetrize}
        return _build(arrays, split=split, split_seed=split_seed, **options)
    except GraphError as error:
        raise type(error)(f"{shown(path)}: {error}") from None


def load_networkx(
    graph: Any,
    *,
    features: str | Sequence[str] = "x",
    label: str = "y",
    classes: Sequence[str] | None = None,
    labels: bool = True,
    split: str = "split",
    split_seed: int = 0,
    **options: Any,
) -> Graph:
    """A graph from NetworkX: arguments as in `Graph.from_networkx`, and `labels` as in `load_graph`."""
    drawn = split if "/" in split else None
    arrays = arrays_from_networkx(
        graph,
        features=features,
        label=label,
        classes=classes,
        split=None if drawn else split,
        labels=labels,
    )
    return _build(arrays, split=drawn, split_seed=split_seed, **options)


def arrays_from_pyg(data: Any, *, splits: bool = True) -> dict[str, Any]:
    """The arguments of `Graph.from_arrays` found in a PyG `Data`, its splits included if `splits`."""
    missing = [name for name in ("edge_index", "x", "y") if getattr(data, name, None) is None]
    if missing:
        raise GraphError(
            f"missing {', '.join(missing)}; expected a PyG Data with edge_index, x and y, a file or a "
            "dataset name"
        )
    arrays = {name: _numpy(name, getattr(data, name)) for name in ("edge_index", "x")}
    arrays["y"] = _class_numbers(_numpy("y", data.y))
    if splits:
        found = {name: _split_from_pyg(data, name, arrays["y"].shape[:1]) for name in SPLITS}
        if found["train_idx"] is None:
            raise MissingSplitError(f"no train_mask and no train_idx: {NO_SPLIT}")
        arrays |= found
    return arrays


def _build(arrays: dict[str, Any], *, split: str | None, split_seed: int, **options: Any) -> Graph:
    if split is None:
        return Graph.from_arrays(**arrays, **options)
    return _resplit(Graph.from_arrays(**arrays, train_idx=[0], **options), split, split_seed)


def _load_tables(
    data: Any, columns: Columns | Mapping[str, Any] | None, labels: bool, **options: Any
) -> Graph:
    from hushgraph.datasets.tables import arrays_from_tables

    how = {"splits": options["split"] is None, "num_classes": options.pop("num_classes")}
    with arrays_from_tables(data, columns=columns, labels=labels, **how) as arrays:
        try:
            return _build(arrays, **options)
        except GraphError as error:
            nodes = data[0] if isinstance(data, (tuple, list)) else data
            raise GraphError(f"{shown(Path(nodes))}: {error}") from None


def _resplit(graph: Graph, split: str, seed: int) -> Graph:
    parts = random_split(graph.num_nodes, parse_fractions(split), seed=seed, labels=graph.y)
    return replace(graph, train_idx=parts[0], val_idx=parts[1], test_idx=parts[2])


def _read_pt(path: Path) -> Any:
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
    except GraphError:
        raise
    except Exception as error:  # pickle, zipfile and torch raise a dozen types on damaged files
        raise GraphError(
            f"not a .pt file of tensors ({type(error).__name__}); it is damaged, or holds objects that only "
            "running code could restore; save it with torch.save(data.to_dict(), path)"
        ) from error


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
    mask_name = name.replace("_idx", "_mask")
    given, mask = getattr(data, name, None), getattr(data, mask_name, None)
    if given is not None and mask is not None:
        raise GraphError(f"both {mask_name} and {name}; expected one of them; delete the other")
    if mask is None:
        return None if given is None else _numpy(name, given)
    mask = _numpy(mask_name, mask)
    if mask.ndim == 2 and mask.shape[1] == 1:
        mask = mask[:, 0]
    if mask.ndim == 2:
        raise GraphError(
            f"{mask_name} has {mask.shape[1]} columns; expected one split; pick a column of each mask"
        )
    if mask.dtype != np.bool_ or mask.shape != shape:
        raise GraphError(
            f"{mask_name} has dtype {mask.dtype} and shape {list(mask.shape)}; expected bool {list(shape)}"
        )
    return np.flatnonzero(mask)
