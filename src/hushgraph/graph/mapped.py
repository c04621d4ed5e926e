"""Arrays in `.npy` files: written block by block, opened as memory maps, read by rows."""

from __future__ import annotations

import functools
import math
import mmap
import os
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from hushgraph.errors import GraphError

Array = npt.NDArray[Any]

# The two files that hold the reads, ordered by reader.
INDPTR, INDICES = "reads_indptr.npy", "reads_indices.npy"

# Rows of files up to this size come from mapped pages, which is faster. The operating system may reclaim the
# pages, but they count as memory of the process, so larger files are not mapped for row access.
MAPPED_BYTES = 3 << 30
# Reads that wait for the disk at the same time; more threads than cores, since they mostly wait.
_THREADS = 8
# Fewer rows than this are read by one thread.
_MANY_ROWS = 1 << 14
_HEADER_BYTES = 128


class ArrayFile:
    """Writes a `.npy` file whose number of rows is known only at the end. Use it as a context manager.

    Args:
        path: the file, which must not exist yet.
        dtype: the type of its values.
        columns: the length of every row; None for one dimension.
    """

    def __init__(self, path: Path, dtype: npt.DTypeLike, columns: int | None = None) -> None:
        self.path, self.dtype, self.columns = path, np.dtype(dtype), columns
        self.rows = 0
        self._file = path.open("xb")
        self._file.write(bytes(_HEADER_BYTES))

    def append(self, block: Array) -> None:
        """Add rows, converted to the type of the file."""
        self._file.write(np.ascontiguousarray(block, self.dtype).data)
        self.rows += len(block)

    def close(self) -> None:
        """Write the header, now that the number of rows is known."""
        shape = (self.rows,) if self.columns is None else (self.rows, self.columns)
        header = {"descr": np.lib.format.dtype_to_descr(self.dtype), "fortran_order": False, "shape": shape}
        magic = np.lib.format.magic(1, 0)
        text = repr(header).encode("latin1").ljust(_HEADER_BYTES - len(magic) - 3) + b"\n"
        with self._file:
            self._file.seek(0)
            self._file.write(magic + len(text).to_bytes(2, "little") + text)

    def __enter__(self) -> ArrayFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self._file.close()


def write_array(path: Path, values: Array, *, block_bytes: int = 1 << 26) -> None:
    """Write an array of one or two dimensions, one block of rows at a time."""
    columns = values.shape[1] if values.ndim == 2 else None
    size = max(1, block_bytes // max(1, values.dtype.itemsize * (columns or 1)))
    with ArrayFile(path, values.dtype, columns) as file:
        for begin in range(0, len(values), size):
            file.append(values[begin : begin + size])


def open_mapped(path: Path, *, ndim: int, kinds: str) -> Array:
    """Open the array of a `.npy` file as a read-only memory map.

    A damaged file raises GraphError. The message names the file but not its folder, which the caller adds.

    Args:
        path: the file.
        ndim: the number of dimensions it must have.
        kinds: NumPy's letters of the kinds of values it may hold, such as "iu".
    """
    try:
        with path.open("rb") as file:
            is_version_1 = np.lib.format.read_magic(file) == (1, 0)
            header_1, header_2 = np.lib.format.read_array_header_1_0, np.lib.format.read_array_header_2_0
            read = header_1 if is_version_1 else header_2
            shape, fortran, dtype = read(file)
            begin = file.tell()
        stored = path.stat().st_size - begin
    except FileNotFoundError:
        raise GraphError(f"{path.name} is missing; the folder is incomplete, store the graph again") from None
    except OSError as error:
        raise GraphError(f"{path.name} cannot be read ({error.strerror})") from None
    except Exception as error:  # NumPy raises several types on damaged headers
        raise GraphError(f"{path.name} is not a .npy file ({type(error).__name__}); it is damaged") from None
    if dtype.hasobject or dtype.kind not in kinds or len(shape) != ndim or fortran:
        raise GraphError(
            f"{path.name} has dtype {str(dtype)[:40]} and shape {str(list(shape))[:60]}; expected {ndim} "
            f"dimension{'s' * (ndim > 1)} of kind {' or '.join(kinds)}, in row order"
        )
    if min(shape) < 0 or math.prod(shape) * dtype.itemsize != stored:
        raise GraphError(
            f"{path.name} declares shape {str(list(shape))[:60]}, {dtype.itemsize} bytes each, but holds "
            f"{stored} bytes; it is damaged"
        )
    if 0 in shape:
        return np.empty(shape, dtype)
    return np.memmap(path, dtype, "r", begin, shape)


def release(array: Array) -> None:
    """Release the pages of a memory map; the next access reads them from the system's cache or the disk."""
    owner: Any = array
    # Sparse matrices hold views of views of a memory map.
    while isinstance(owner, np.ndarray) and not isinstance(owner, np.memmap):
        owner = owner.base
    mapped = getattr(owner, "_mmap", None)
    if mapped is not None and hasattr(mmap, "MADV_DONTNEED"):
        mapped.madvise(mmap.MADV_DONTNEED)


class MappedRows:
    """Random access to the rows of a memory map. Large files are read with `pread` instead of mapped.

    Args:
        array: a memory map, or any other array, which is indexed directly.
    """

    def __init__(self, array: Array) -> None:
        self._array = np.asarray(array).view(np.ndarray)
        self._file: int | None = None
        if isinstance(array, np.memmap) and array.nbytes > MAPPED_BYTES and hasattr(os, "pread"):
            self._begin = array.offset
            self._file = os.open(str(array.filename), os.O_RDONLY)
            weakref.finalize(self, os.close, self._file)

    def take(self, rows: Array) -> Array:
        """Return the given rows, in the given order, as an array [len(rows), ...]."""
        out = np.empty((len(rows), *self._array.shape[1:]), self._array.dtype)
        parts = _THREADS if len(rows) >= _MANY_ROWS else 1
        cuts = [len(rows) * part // parts for part in range(parts + 1)]

        def fetch(part: int) -> None:
            piece = slice(cuts[part], cuts[part + 1])
            if self._file is None:
                np.take(self._array, rows[piece], axis=0, out=out[piece], mode="clip")
            else:
                self._read(rows[piece], out[piece])

        if parts == 1:
            fetch(0)
        else:
            with ThreadPoolExecutor(parts) as threads:
                list(threads.map(fetch, range(parts)))
        return out

    def _read(self, rows: Array, out: Array) -> None:
        row_bytes = self._array[:1].nbytes
        read_rows = _compile_read_rows()
        if len(rows) and read_rows(self._file, self._begin, row_bytes, rows.astype(np.int64), out) >= 0:
            raise GraphError("a file of the stored graph ended early; it was changed while in use")


@functools.cache
def _compile_read_rows() -> Callable[..., int]:
    """Compile the loop over `pread`; only files too large to be mapped need it, so numba is imported here."""
    import numba
    from numba import types

    pread = types.ExternalFunction("pread", types.int64(types.int32, types.uintp, types.uintp, types.int64))

    @numba.njit(nogil=True)
    def read_rows(file, begin, row_bytes, rows, out):  # type: ignore[no-untyped-def]
        """Fill `out` with rows of the open file; return the number of the row cut short, or -1."""
        address = out.ctypes.data
        for i in range(len(rows)):
            place = begin + rows[i] * row_bytes
            if pread(file, address + i * row_bytes, row_bytes, place) != row_bytes:
                return i
        return -1

    compiled: Callable[..., int] = read_rows
    return compiled
