"""Arrays of nodes and edges: in memory or, where tables are larger than that, in files mapped into it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from hushgraph.errors import WriteError

Int32Array: TypeAlias = npt.NDArray[np.int32]
Int64Array: TypeAlias = npt.NDArray[np.int64]
Float32Array: TypeAlias = npt.NDArray[np.float32]
FloatArray: TypeAlias = npt.NDArray[np.float64]
Shape = int | tuple[int, ...]
# Smaller arrays are in memory in any case.
_LEAST_MAPPED = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Disk:
    """Where arrays are kept that may be larger than memory.

    Attributes:
        folder: on the disk for their files, which have no names and are gone with the arrays, also after a
            kill.
        memory: bytes that a database may use; each array that is looked up in any order takes a quarter of it
            at most.
    """

    folder: Path
    memory: int


_current: ContextVar[Disk | None] = ContextVar("disk", default=None)


@contextmanager
def keep_on_disk(folder: Path, *, memory: int) -> Iterator[Disk]:
    """Keep arrays that are made in this context in files; they stay valid after it."""
    disk = Disk(folder=folder, memory=memory)
    token = _current.set(disk)
    try:
        yield disk
    finally:
        _current.reset(token)


def find_disk() -> Disk | None:
    """Where arrays are kept at present; None where that is memory."""
    return _current.get()


def empty(shape: Shape, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """An array to be written to."""
    disk, kind = _current.get(), np.dtype(dtype)
    size = int(np.prod(shape, dtype=np.int64)) * kind.itemsize
    if disk is None or size < _LEAST_MAPPED or kind.hasobject:
        return np.empty(shape, kind)
    return _map(disk.folder, shape, kind, size)


def looked_up(shape: Shape, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """An array whose rows are read in any order: in memory where that takes a quarter of it at most."""
    disk, kind = _current.get(), np.dtype(dtype)
    is_small = disk is None or 4 * int(np.prod(shape, dtype=np.int64)) * kind.itemsize <= disk.memory
    return np.empty(shape, kind) if is_small else empty(shape, kind)


def zeros(shape: Shape, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """An array of zeros."""
    # What a new file holds is zero; of memory, the system gives pages of zeros when they are used.
    if _current.get() is None:
        return np.zeros(shape, dtype)
    array = empty(shape, dtype)
    if array.nbytes < _LEAST_MAPPED or array.dtype.hasobject:
        array[...] = 0
    return array


def full(shape: Shape, value: Any, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """An array of one value."""
    array = empty(shape, dtype)
    array[...] = value
    return array


def find_ends(sizes: npt.ArrayLike) -> Int64Array:
    """int64 [N + 1]: where lists of these sizes begin, and the end."""
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64, copy=False)


def take(values: npt.NDArray[Any], rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Some of the rows of an array, as an array of their own."""
    if _current.get() is None:
        own: npt.NDArray[Any] = values[rows]
        return own
    taken = empty((len(rows), *values.shape[1:]), values.dtype)
    # Any other mode would make a copy first; numbers of rows are checked where they come from.
    np.take(values, rows, axis=0, out=taken, mode="clip")
    return taken


def _map(folder: Path, shape: Shape, dtype: np.dtype[Any], size: int) -> npt.NDArray[Any]:
    """An array in a file without a name; WriteError where the disk has no room for it."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            # Room that is promised and missing later would end the process without a word.
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, size)
            else:
                file.truncate(size)
            return np.asarray(np.memmap(file, dtype, "r+", shape=shape))
    except OSError as error:
        raise WriteError(
            f"{folder}: no room for {size / 2**30:.1f} GiB of work space ({error.strerror or error}); free "
            "space, or choose another disk by --out"
        ) from None
