"""Arrays from an `.npz` file, which may hold anything: nothing in it is unpickled."""

from __future__ import annotations

import math
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from hushgraph.datasets.paths import check_is_file
from hushgraph.errors import GraphError, MissingSplitError
from hushgraph.graph.checks import check_integers, check_range

SPLITS = ("train_idx", "val_idx", "test_idx")
NO_SPLIT = "no training split; give split='0.6/0.2/0.2' to draw train/val/test at random"
_SPARSE = ("x_indptr", "x_indices", "x_data", "x_shape")


def read_npz(path: Path, *, splits: bool, labels: bool = True) -> dict[str, Any]:
    """The arguments of `Graph.from_arrays` in the file, as far as asked for.

    Args:
        path: of the file; one that may not be opened is a PermissionError.
        splits: whether a split must be there.
        labels: False reads edges and features alone.
    """
    check_is_file(path)
    # A damaged header can make numpy warn before it fails; the one line of the error is what counts.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            # Opened here, since numpy leaves the files open that it cannot read.
            with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
                return _read_members(archive, splits=splits, labels=labels)
        except (GraphError, PermissionError):
            raise
        except Exception as error:  # zipfile and numpy raise a dozen types on damaged files
            raise GraphError(
                f"not an .npz archive ({type(error).__name__}); the file is damaged, or of another kind"
            ) from error


def _read_members(archive: Any, *, splits: bool, labels: bool) -> dict[str, Any]:
    keys = set(archive.files)
    sparse_keys = keys & set(_SPARSE)
    if "x" in keys and sparse_keys:
        raise GraphError(
            "both x and sparse features (x_indptr, ...); expected one of them; leave the other out"
        )
    wanted = ["edge_index", *(["y"] if labels else []), *(_SPARSE if sparse_keys else ["x"])]
    missing = [key for key in wanted if key not in keys]
    if missing:
        raise GraphError(f"missing {', '.join(missing)}; expected the keys {', '.join(wanted)}")
    arrays = {key: _read_member(archive, key) for key in wanted}
    if splits and labels:
        if not keys & {"train_idx", "train_mask"}:
            raise MissingSplitError(f"missing train_idx, or train_mask: {NO_SPLIT}")
        for name in SPLITS:
            # With node numbers there, masks are keys like any other that is not read.
            key = name if "train_idx" in keys else mask_of(name)
            if key in keys:
                array = _read_member(archive, key)
                arrays[name] = array if key == name else nodes_of_mask(key, array, arrays["y"].shape[:1])
    if sparse_keys:
        arrays["x"] = _sparse_rows(*(arrays.pop(key) for key in _SPARSE))
    return arrays


def mask_of(name: str) -> str:
    """What the mask of a split is called."""
    return name.replace("_idx", "_mask")


def nodes_of_mask(name: str, mask: npt.NDArray[Any], shape: tuple[int, ...]) -> npt.NDArray[np.int64]:
    """The nodes where a mask of this shape is true."""
    if mask.ndim == 2 and mask.shape[1] == 1:
        mask = mask[:, 0]
    if mask.ndim == 2:
        raise GraphError(
            f"{name} has {mask.shape[1]} columns; expected one split; pick a column of each mask"
        )
    if mask.dtype != np.bool_ or mask.shape != shape:
        raise GraphError(
            f"{name} has dtype {mask.dtype} and shape {list(mask.shape)}; expected bool {list(shape)}"
        )
    return np.flatnonzero(mask)


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
