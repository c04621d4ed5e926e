"""Rows of a file by number, read without mapping the file: no page of it counts as memory of the process."""

from __future__ import annotations

import numba
from numba import types

_pread = types.ExternalFunction("pread", types.int64(types.int32, types.uintp, types.uintp, types.int64))


@numba.njit(cache=True, nogil=True)
def read_rows(file, begin, row_bytes, rows, out):  # type: ignore[no-untyped-def]
    """Fill `out` with rows of the open file; returns where a read stopped short, or -1."""
    address = out.ctypes.data
    for i in range(len(rows)):
        place = begin + rows[i] * row_bytes
        if _pread(file, address + i * row_bytes, row_bytes, place) != row_bytes:
            return i
    return -1
