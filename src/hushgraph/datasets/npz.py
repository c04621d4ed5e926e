"""Arrays from an `.npz` file of unknown origin: nothing is unpickled."""

from __future__ import annotations

import math
import os
import warnings
import zipfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import sparse

from hushgraph._text import suggest
from hushgraph.datasets.paths import check_is_file, refuse_damage
from hushgraph.errors import GraphError, MissingSplitError
from hushgraph.graph.checks import check_ends, check_integers, check_range, id_type
from hushgraph.graph.graph import SPLITS, Array, Chunks
from hushgraph.graph.records import EdgeWeight

NO_SPLIT = "no training split; give split='0.6/0.2/0.2' to draw train/val/test at random"
# Fields of edges that PyG knows and nothing here reads.
UNREAD = ("edge_weight", "edge_attr")
_SPARSE = ("x_indptr", "x_indices", "x_data", "x_shape")
_SETS = ("y_indptr", "y_indices")
_EDGES = "edge_index"
_CLASSES = "num_classes"
# Edges that take more bytes stay in the file and are read in parts, of so many edges.
_HELD_BYTES = 1 << 26
_PART = 1 << 20


def read_npz(
    path: Path,
    *,
    splits: bool,
    labels: bool = True,
    edge_weight: str | None = None,
    person: str | None = None,
) -> dict[str, Any]:
    """Return the arguments of `Graph.from_arrays` from the file.

    Args:
        path: the file; one without permission raises PermissionError.
        splits: whether a split is required.
        labels: False reads only edges and features.
        edge_weight: as in `load_graph`; the weights are under "weights" then.
        person: the key that says whose every node is, where people have several.
    """
    column = None if edge_weight is None else EdgeWeight.of(edge_weight).column
    how: dict[str, Any] = {"splits": splits, "labels": labels, "column": column, "person": person}
    return _read_archive(path, partial(_read_members, **how))


def read_lists_npz(path: Path) -> dict[str, Any]:
    """Return `x`, `places_indptr` and `places`, and where they are there `weights` and `relations`.

    Args:
        path: the file; one without permission raises PermissionError.
    """

    def read(archive: Any) -> dict[str, Any]:
        arrays = _read_arrays(archive, ["places_indptr", "places"])
        more = [name for name in ("weights", "relations") if name in archive.files]
        return arrays | {name: _read_member(archive, name) for name in more}

    return _read_archive(path, read)


class SparseSets(NamedTuple):
    """Lists of labels: node i has `indices[indptr[i]:indptr[i + 1]]`."""

    indptr: npt.NDArray[np.int64]
    indices: npt.NDArray[np.int64]

    @property
    def shape(self) -> tuple[int]:
        """How many nodes there are."""
        return (len(self.indptr) - 1,)


@dataclass(frozen=True, kw_only=True)
class StoredEdges:
    """Edges that stay in an `.npz` file: beside the reads made of them, only a part is in memory.

    Attributes:
        path: the file.
        begin: bytes before the first id in the member of the archive.
        count: number of edges.
        dtype: of the ids.
        is_by_edges: whether the two ends of an edge stand side by side; else all sources come first.
        version: size and time of the file, which must not change while it is read.
    """

    path: Path
    begin: int
    count: int
    dtype: np.dtype[Any]
    is_by_edges: bool
    version: tuple[int, int]

    def __call__(self, num_nodes: int) -> Chunks:
        """The chunks of a graph of `num_nodes`; every id is checked when it is read."""
        return partial(self._read, num_nodes)

    def _read(self, num_nodes: int) -> Iterator[tuple[Array, Array]]:
        with _refuse_member(_EDGES):
            for first, edges in self._read_parts():
                check_ends(edges, num_nodes, first=first)
                ids = np.ascontiguousarray(edges, id_type(num_nodes))
                yield ids[0], ids[1]

    def _read_parts(self) -> Iterator[tuple[int, Array]]:
        """Number of the first edge and [2, edges] of every part."""
        # All sources come before all targets: both are read side by side.
        behind = self.begin if self.is_by_edges else self.begin + self.count * self.dtype.itemsize
        with self._open(self.begin) as member, self._open(behind) as targets:
            for first in range(0, self.count, _PART):
                size = min(_PART, self.count - first)
                if self.is_by_edges:
                    yield first, self._read_ids(member, 2 * size).reshape(size, 2).T
                else:
                    yield first, np.stack([self._read_ids(each, size) for each in (member, targets)])

    @contextmanager
    def _open(self, begin: int) -> Iterator[IO[bytes]]:
        """The edges in the file, from this byte on.

        Every caller has an archive of its own: in Python 3.12 before 3.12.9 and 3.13 before 3.13.2, skipping
        a part of a member gives wrong bytes where another member of the same archive is open.
        """
        with self.path.open("rb") as file, zipfile.ZipFile(file) as archive:
            if _version_of(file.fileno()) != self.version:
                raise GraphError("the file has changed while it was read; load it again")
            with archive.open(f"{_EDGES}.npy") as member:
                member.seek(begin)
                yield member

    def _read_ids(self, member: IO[bytes], count: int) -> Array:
        return np.frombuffer(member.read(count * self.dtype.itemsize), self.dtype, count)


def _version_of(file: int) -> tuple[int, int]:
    status = os.fstat(file)
    return status.st_size, status.st_mtime_ns


def _read_archive(path: Path, read: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
    check_is_file(path)
    damaged = "the file is damaged, or of another format"
    with warnings.catch_warnings(), refuse_damage("not an .npz archive", damaged):
        # A damaged header can make NumPy warn before it fails; the error alone is enough.
        warnings.simplefilter("ignore")
        # Opened here, because NumPy does not close files that it cannot read.
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            return read(archive)


def _read_members(
    archive: Any, *, splits: bool, labels: bool, column: str | None, person: str | None
) -> dict[str, Any]:
    keys = set(archive.files)
    has_sets = "y" not in keys and keys & set(_SETS)
    arrays = _read_arrays(archive, [_EDGES, *((_SETS if has_sets else ["y"]) if labels else [])])
    arrays["unread"] = tuple(name for name in UNREAD if name in keys and name != column)
    if labels and _CLASSES in keys:
        arrays[_CLASSES] = int(check_integers(_CLASSES, _read_member(archive, _CLASSES), ndim=0))
    if labels and has_sets:
        arrays["y"] = _build_sets(*(arrays.pop(key) for key in _SETS))
    for name, key, role in (("weights", column, "edge_weight"), ("persons", person, "person")):
        if key is not None and key not in keys:
            near = suggest(key, archive.files, cutoff=0.6)
            raise GraphError(f"no array {key!r}, given as {role}{near}")
        if key is not None:
            arrays[name] = _read_member(archive, key)
    if splits and labels:
        if not keys & {"train_idx", "train_mask"}:
            raise MissingSplitError(f"missing train_idx, or train_mask: {NO_SPLIT}")
        for name in SPLITS:
            # Masks are ignored if there are node ids.
            key = name if "train_idx" in keys else mask_name(name)
            if key in keys:
                array = _read_member(archive, key)
                arrays[name] = array if key == name else nodes_of_mask(key, array, arrays["y"].shape[:1])
    return arrays


def _read_arrays(archive: Any, names: list[str]) -> dict[str, Any]:
    """Return these arrays and the features `x`, which may be stored dense or as sparse rows."""
    keys = set(archive.files)
    sparse_keys = keys & set(_SPARSE)
    if "x" in keys and sparse_keys:
        raise GraphError(
            "both x and sparse features (x_indptr, ...); expected one of them; leave the other out"
        )
    wanted = [*names, *(_SPARSE if sparse_keys else ["x"])]
    missing = [key for key in wanted if key not in keys]
    if missing:
        raise GraphError(f"missing {', '.join(missing)}; expected the keys {', '.join(wanted)}")
    arrays = {key: _read_member(archive, key) for key in wanted}
    if sparse_keys:
        arrays["x"] = _build_sparse_rows(*(arrays.pop(key) for key in _SPARSE))
    return arrays


def mask_name(name: str) -> str:
    """Return the name of the mask of a split."""
    return name.replace("_idx", "_mask")


def nodes_of_mask(name: str, mask: npt.NDArray[Any], shape: tuple[int, ...]) -> npt.NDArray[np.int64]:
    """Return the nodes where a mask of this shape is true."""
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


def _read_member(archive: Any, key: str) -> Any:
    """Read one array, after checking that its header agrees with the size of the archive member.

    Many edges are left where they are.
    """
    with _refuse_member(key):
        info = archive.zip.getinfo(f"{key}.npy")
        with archive.zip.open(info) as member:
            is_version_1 = np.lib.format.read_magic(member) == (1, 0)
            header_1, header_2 = np.lib.format.read_array_header_1_0, np.lib.format.read_array_header_2_0
            read = header_1 if is_version_1 else header_2
            shape, is_by_edges, dtype = read(member)
            begin = member.tell()
        stored = info.file_size - begin
        if dtype.hasobject:
            raise GraphError(f"{key} is an object array, which is never unpickled; expected numbers")
        # A wrong shape would make NumPy allocate memory for values that do not exist.
        if min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize != stored:
            raise GraphError(
                f"{key} declares shape {str(list(shape))[:60]}, {dtype.itemsize} bytes each, but holds "
                f"{stored} bytes; the file is damaged"
            )
        is_edges = key == _EDGES and len(shape) == 2 and shape[0] == 2 and dtype.kind in "iu"
        if is_edges and stored > _HELD_BYTES:
            return StoredEdges(
                path=Path(archive.zip.filename),
                begin=begin,
                count=shape[1],
                dtype=dtype,
                is_by_edges=is_by_edges,
                version=_version_of(archive.zip.fp.fileno()),
            )
        return archive[key]


def _refuse_member(key: str) -> AbstractContextManager[None]:
    return refuse_damage(f"{key} cannot be read", "the file is damaged")


def _build_sets(indptr: Any, indices: Any) -> SparseSets:
    """Check the arrays of lists of labels."""
    starts, labels = check_integers("y_indptr", indptr, ndim=1), check_integers("y_indices", indices, ndim=1)
    is_rising = len(starts) > 0 and starts[0] == 0 and not (np.diff(starts.astype(np.int64)) < 0).any()
    if not is_rising or starts[-1] != len(labels):
        raise GraphError(
            f"y_indptr: expected values increasing from 0 to {len(labels)}, one for each node and one more"
        )
    return SparseSets(starts.astype(np.int64), labels.astype(np.int64))


def _build_sparse_rows(indptr: Any, indices: Any, values: Any, shape: Any) -> Any:
    """Check the arrays of sparse rows and return them as CSR float32."""
    size = check_integers("x_shape", shape, ndim=1)
    if len(size) != 2 or int(size.min()) < 0 or int(size.max()) >= 2**31:
        raise GraphError(f"x_shape={str(size.tolist())[:60]}: expected [nodes, features], each below 2^31")
    rows, columns = (int(n) for n in size)
    starts = check_integers("x_indptr", indptr, ndim=1)
    if len(starts) != rows + 1:
        raise GraphError(f"x_indptr has {len(starts)} values; expected {rows + 1}, the rows of x_shape + 1")
    column_ids = check_integers("x_indices", indices, ndim=1)
    check_range("x_indptr", starts, 0, len(column_ids), "it holds positions in x_indices")
    starts = starts.astype(np.int64)
    decreasing = np.flatnonzero(np.diff(starts) < 0)
    if starts[0] != 0 or starts[-1] != len(column_ids) or decreasing.size:
        where = int(decreasing[0]) + 1 if decreasing.size else (0 if starts[0] != 0 else rows)
        raise GraphError(
            f"x_indptr[{where}]={starts[where]}: expected values increasing from 0 to {len(column_ids)}"
        )
    check_range("x_indices", column_ids, 0, columns - 1, f"x_shape has {columns} columns")
    if values.ndim != 1 or len(values) not in (1, len(column_ids)):
        raise GraphError(f"x_data has shape {list(values.shape)}; expected [1] or [{len(column_ids)}]")
    if values.dtype.kind not in "biuf":
        raise GraphError(f"x_data has dtype {str(values.dtype)[:40]}; expected real numbers")
    with np.errstate(over="ignore"):
        data = values.astype(np.float32, copy=False)
    if len(data) != len(column_ids):
        data = np.broadcast_to(data, len(column_ids)).copy()
    width = np.int32 if len(column_ids) < 2**31 else np.int64
    indices = column_ids.astype(width, copy=False)
    return sparse.csr_array((data, indices, starts.astype(width)), shape=(rows, columns))
