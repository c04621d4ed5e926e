"""Graphs from files and from PyG objects, without ever running code that a file brings along."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import replace
from os import PathLike
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from hushgraph.datasets.catalog import load, names
from hushgraph.datasets.splits import parse_fractions, random_split
from hushgraph.errors import GraphError
from hushgraph.graph import Graph
from hushgraph.graph_checks import check_integers, check_range

_SPLITS = ("train_idx", "val_idx", "test_idx")
_SPARSE = ("x_indptr", "x_indices", "x_data", "x_shape")
_NO_SPLIT = "no training split; give split='0.6/0.2/0.2' to draw train/val/test at random"


def load_graph(
    data: Any,
    *,
    symmetrize: bool = False,
    split: str | None = None,
    split_seed: int = 0,
    root: str | PathLike[str] | None = None,
    num_classes: int | None = None,
    directed: bool | None = None,
) -> Graph:
    """Turn whatever a user calls a graph into a checked `Graph`.

    Arguments:
        data: a `Graph`, a PyG `Data`, the path of an `.npz` or `.pt` file, or a catalog name.
        symmetrize: add the reverse of every edge.
        split: "0.6/0.2/0.2" draws a split with `random_split`, in place of any that the data has.
        split_seed: the seed of that draw.
        root: the folder where named datasets keep their files.
        num_classes, directed: as in `Graph.from_arrays`.
    """
    if isinstance(data, (str, Path)):
        path = Path(data)
        options: dict[str, Any] = {"split": split, "split_seed": split_seed, "symmetrize": symmetrize}
        options |= {"num_classes": num_classes, "directed": directed}
        if path.suffix == ".npz":
            return load_npz(path, **options)
        if path.suffix == ".pt":
            return load_pt(path, **options)
        # A folder that happens to be called like a dataset, as `make demo` leaves one, hides nothing.
        if isinstance(data, Path) or (data not in names() and _is_there(path)):
            raise GraphError(f"{_label(path)}: unknown kind of file; expected .npz, .pt or a dataset name")
        data = load(data, root)
    if not isinstance(data, Graph):
        return _build(
            arrays_from_pyg(data, splits=split is None),
            split=split,
            split_seed=split_seed,
            symmetrize=symmetrize,
            num_classes=num_classes,
            directed=directed,
        )
    if symmetrize:
        data = data.symmetrized()
    if num_classes is not None:
        data = replace(data, num_classes=num_classes)
    if directed is not None:
        data = replace(data, is_directed=directed)
    return data if split is None else _resplit(data, split, split_seed)


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
        arrays = _read_npz(path, splits=split is None)
        options: dict[str, Any] = {"num_classes": num_classes, "directed": directed, "symmetrize": symmetrize}
        return _build(arrays, split=split, split_seed=split_seed, **options)
    except GraphError as error:
        raise GraphError(f"{_label(path)}: {error}") from None


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
        raise GraphError(f"{_label(path)}: {error}") from None


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
        found = {name: _split_from_pyg(data, name, arrays["y"].shape[:1]) for name in _SPLITS}
        if found["train_idx"] is None:
            raise GraphError(f"no train_mask and no train_idx: {_NO_SPLIT}")
        arrays |= found
    return arrays


def _build(arrays: dict[str, Any], *, split: str | None, split_seed: int, **options: Any) -> Graph:
    if split is None:
        return Graph.from_arrays(**arrays, **options)
    return _resplit(Graph.from_arrays(**arrays, train_idx=[0], **options), split, split_seed)


def _resplit(graph: Graph, split: str, seed: int) -> Graph:
    parts = random_split(graph.num_nodes, parse_fractions(split), seed=seed, labels=graph.y)
    return replace(graph, train_idx=parts[0], val_idx=parts[1], test_idx=parts[2])


def _label(path: Path) -> str:
    """The path on one line, its end if it is long."""
    text = "".join(c if c.isprintable() else "?" for c in str(path))
    return text if len(text) <= 80 else f"...{text[-77:]}"


def _is_there(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):
        return False


def _check_is_file(path: Path) -> None:
    if not _is_there(path):
        raise GraphError("no such file")
    if not path.is_file():
        raise GraphError("not a file; expected the path of a file")


def _read_npz(path: Path, *, splits: bool) -> dict[str, Any]:
    _check_is_file(path)
    # A damaged header can make numpy warn before it fails; the one line of the error is what counts.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            # Opened here, since numpy leaves the files open that it cannot read.
            with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
                return _read_members(archive, splits=splits)
        except GraphError:
            raise
        except Exception as error:  # zipfile and numpy raise a dozen types on damaged files
            raise GraphError(
                f"not an .npz archive ({type(error).__name__}); the file is damaged, or of another kind"
            ) from error


def _read_members(archive: Any, *, splits: bool) -> dict[str, Any]:
    keys = set(archive.files)
    sparse_keys = keys & set(_SPARSE)
    if "x" in keys and sparse_keys:
        raise GraphError(
            "both x and sparse features (x_indptr, ...); expected one of them; leave the other out"
        )
    wanted = ["edge_index", "y", *(_SPARSE if sparse_keys else ["x"])]
    missing = [key for key in wanted if key not in keys]
    if missing:
        raise GraphError(f"missing {', '.join(missing)}; expected the keys {', '.join(wanted)}")
    if splits:
        if "train_idx" not in keys:
            raise GraphError(f"missing train_idx: {_NO_SPLIT}")
        wanted += [name for name in _SPLITS if name in keys]
    arrays = {key: _read_member(archive, key) for key in wanted}
    if sparse_keys:
        arrays["x"] = _sparse_rows(*(arrays.pop(key) for key in _SPARSE))
    return arrays


def _read_member(archive: Any, key: str) -> npt.NDArray[Any]:
    """One array, after its header was found to agree with the size of the archive member."""
    try:
        info = archive.zip.getinfo(f"{key}.npy")
        with archive.zip.open(info) as member:
            wide = np.lib.format.read_magic(member) != (1, 0)
            read = np.lib.format.read_array_header_2_0 if wide else np.lib.format.read_array_header_1_0
            shape, _, dtype = read(member)
            stored = info.file_size - member.tell()
        if dtype.hasobject:
            raise GraphError(f"{key} is an object array, which is never unpickled; expected numbers")
        # A false shape would make numpy reserve memory for values that are not there.
        if min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize != stored:
            raise GraphError(
                f"{key} declares shape {str(list(shape))[:60]}, {dtype.itemsize} bytes each, but holds "
                f"{stored} bytes; the file is damaged"
            )
        array: npt.NDArray[Any] = archive[key]
        return array
    except GraphError:
        raise
    except Exception as error:  # zipfile, zlib and numpy raise a dozen types on damaged members
        raise GraphError(f"{key} cannot be read ({type(error).__name__}); the file is damaged") from error


def _sparse_rows(indptr: Any, indices: Any, values: Any, shape: Any) -> Any:
    """Checked sparse rows as CSR float32."""
    size = check_integers("x_shape", shape, ndim=1)
    if len(size) != 2 or int(size.min()) < 0 or int(size.max()) >= 2**31:
        raise GraphError(f"x_shape={str(size.tolist())[:60]}; expected [nodes, features], each below 2^31")
    rows, columns = (int(n) for n in size)
    starts = check_integers("x_indptr", indptr, ndim=1)
    if len(starts) != rows + 1:
        raise GraphError(f"x_indptr has {len(starts)} values; expected {rows + 1}, the rows of x_shape + 1")
    places = check_integers("x_indices", indices, ndim=1)
    check_range("x_indptr", starts, 0, len(places), "it counts the values of x_indices")
    starts = starts.astype(np.int64)
    falling = np.flatnonzero(np.diff(starts) < 0)
    if starts[0] != 0 or starts[-1] != len(places) or falling.size:
        where = int(falling[0]) + 1 if falling.size else (0 if starts[0] != 0 else rows)
        raise GraphError(f"x_indptr[{where}]={starts[where]}; expected values rising from 0 to {len(places)}")
    check_range("x_indices", places, 0, columns - 1, f"x_shape has {columns} columns")
    if values.ndim != 1 or len(values) not in (1, len(places)):
        raise GraphError(f"x_data has shape {list(values.shape)}; expected [1] or [{len(places)}]")
    if values.dtype.kind not in "biuf":
        raise GraphError(f"x_data has dtype {str(values.dtype)[:40]}; expected real numbers")
    with np.errstate(over="ignore"):
        data = np.broadcast_to(values.astype(np.float32), len(places)).copy()
    width = np.int32 if len(places) < 2**31 else np.int64
    return sparse.csr_array((data, places.astype(width), starts.astype(width)), shape=(rows, columns))


def _read_pt(path: Path) -> Any:
    import torch
    from torch_geometric.data import Data
    from torch_geometric.data.data import DataEdgeAttr, DataTensorAttr
    from torch_geometric.data.storage import GlobalStorage

    _check_is_file(path)
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
