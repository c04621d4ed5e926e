"""Arrays in `.npy` files: written block by block, opened as memory maps, read by rows."""

from __future__ import annotations

import math
import mmap
import os
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from hushgraph.errors import GraphError

Array = npt.NDArray[Any]

# The two files of reads in order of their readers.
INDPTR, INDICES = "reads_indptr.npy", "reads_indices.npy"

# Rows of files up to this size are taken from their pages, which is faster. The pages are the system's to
# take back, yet they count as memory of the process, so of larger files none is mapped for rows.
MAPPED_BYTES = 3 << 30
# Rows that wait for the disk together; more threads than cores, since they mostly wait.
_THREADS = 8
# Rows that are worth several threads.
_MANY_ROWS = 1 << 14
_HEADER_BYTES = 128


class ArrayFile:
    """Writes a `.npy` file whose length is known only at the end; a context.

    Args:
        path: of a file that is not there yet.
        dtype: of its values.
        columns: of every row; None for one dimension.
    """

    def __init__(self, path: Path, dtype: npt.DTypeLike, columns: int | None = None) -> None:
        self.path, self.dtype, self.columns = path, np.dtype(dtype), columns
        self.rows = 0
        self._file = path.open("xb")
        self._file.write(bytes(_HEADER_BYTES))

    def append(self, block: Array) -> None:
        """Add rows, changed to the type of the file."""
        self._file.write(np.ascontiguousarray(block, self.dtype).data)
        self.rows += len(block)

    def close(self) -> None:
        """Write the header, now that the number of rows is known."""
        shape = (self.rows,) if self.columns is None else (self.rows, self.columns)
        about = {"descr": np.lib.format.dtype_to_descr(self.dtype), "fortran_order": False, "shape": shape}
        magic = np.lib.format.magic(1, 0)
        text = repr(about).encode("latin1").ljust(_HEADER_BYTES - len(magic) - 3) + b"\n"
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
    """Write an array of one or two dimensions, a block of rows at a time."""
    columns = values.shape[1] if values.ndim == 2 else None
    size = max(1, block_bytes // max(1, values.dtype.itemsize * (columns or 1)))
    with ArrayFile(path, values.dtype, columns) as file:
        for begin in range(0, len(values), size):
            file.append(values[begin : begin + size])


def open_mapped(path: Path, *, ndim: int, kinds: str) -> Array:
    """The array in a `.npy` file as a read-only memory map; GraphError, without the path, where it is none.

    Args:
        path: of the file.
        ndim: dimensions that it must have.
        kinds: numpy's letters of the kinds of values that it may hold, such as "iu".
    """
    try:
        with path.open("rb") as file:
            wide = np.lib.format.read_magic(file) != (1, 0)
            read = np.lib.format.read_array_header_2_0 if wide else np.lib.format.read_array_header_1_0
            shape, fortran, dtype = read(file)
            begin = file.tell()
        stored = path.stat().st_size - begin
    except FileNotFoundError:
        raise GraphError(f"no {path.name} in it; the folder is not complete, store the graph again") from None
    except OSError as error:
        raise GraphError(f"{path.name} cannot be read ({error.strerror})") from None
    except Exception as error:  # numpy raises several types on damaged headers
        raise GraphError(f"{path.name} is no .npy file ({type(error).__name__}); it is damaged") from None
    if dtype.hasobject or dtype.kind not in kinds or len(shape) != ndim or fortran:
        raise GraphError(
            f"{path.name} has dtype {str(dtype)[:40]} and shape {str(list(shape))[:60]}; expected {ndim} "
            f"dimension{'s' * (ndim > 1)} of kind {' or '.join(kinds)}, row by row"
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
    """Let go of the pages of a memory map; what is read again comes from the system's cache, or the disk."""
    mapped = getattr(array, "_mmap", None)
    if mapped is not None and hasattr(mmap, "MADV_DONTNEED"):
        mapped.madvise(mmap.MADV_DONTNEED)


class MappedRows:
    """Rows of a memory map by number; of a large file they are read and not mapped.

    Args:
        array: a memory map, or any array, which then is read as it is.
    """

    def __init__(self, array: Array) -> None:
        self._array = np.asarray(array).view(np.ndarray)
        self._file: int | None = None
        if isinstance(array, np.memmap) and array.nbytes > MAPPED_BYTES and hasattr(os, "pread"):
            self._begin = array.offset
            self._file = os.open(str(array.filename), os.O_RDONLY)
            weakref.finalize(self, os.close, self._file)

    def take(self, rows: Array) -> Array:
        """[len(rows), ...]: the rows, in the order asked for."""
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
        from hushgraph.graph.row_reads import read_rows

        row_bytes = self._array[:1].nbytes
        if len(rows) and read_rows(self._file, self._begin, row_bytes, rows.astype(np.int64), out) >= 0:
            raise GraphError("a file of the stored graph ended early; it was changed while in use")
