"""Compressed rows of records: turn them round, sort them, cap them by key."""

from __future__ import annotations

from collections.abc import Iterator

import numba
import numpy as np

from hushgraph.graph.chunks import Int32Array, Int64Array
from hushgraph.sampling.keys import pair_key

Rows = tuple[Int64Array, Int32Array]


@numba.njit(cache=True, nogil=True)
def _place(indptr, rows, cols, out):  # type: ignore[no-untyped-def]
    """Put every record in its row, in the order given; `indptr` ends up shifted by one row."""
    for i in range(len(rows)):
        row = rows[i]
        out[indptr[row]] = cols[i]
        indptr[row] += 1


@numba.njit(cache=True, nogil=True)
def _place_turned(indptr, cols, turned, out):  # type: ignore[no-untyped-def]
    """As `_place` for the transpose: rows taken in order leave every turned row sorted."""
    for row in range(len(indptr) - 1):
        for j in range(indptr[row], indptr[row + 1]):
            col = cols[j]
            out[turned[col]] = row
            turned[col] += 1


@numba.njit(cache=True, nogil=True)
def _count(rows, counts):  # type: ignore[no-untyped-def]
    for i in range(len(rows)):
        counts[rows[i]] += 1


def _starts(rows: Int32Array, num_rows: int) -> Int64Array:
    """Where each row begins, one entry longer than the rows."""
    indptr = np.zeros(num_rows + 1, dtype=np.int64)
    _count(rows, indptr[1:])
    return np.cumsum(indptr, out=indptr)


def transposed(rows: Rows) -> Rows:
    """The same records by column; every new row is sorted."""
    indptr, cols = rows
    turned = _starts(cols, len(indptr) - 1)
    out = np.empty_like(cols)
    _place_turned(indptr, cols, turned[:-1].copy(), out)
    return turned, out


@numba.njit(cache=True, nogil=True)
def _distinct(indptr, cols, out_indptr):  # type: ignore[no-untyped-def]
    """Sort every row and keep each column once, in place; returns how many records are left."""
    at = 0
    for row in range(len(indptr) - 1):
        segment = cols[indptr[row] : indptr[row + 1]]
        segment.sort()
        last = -1
        for col in segment:
            if col != last:
                cols[at] = col
                at += 1
                last = col
        out_indptr[row + 1] = at
    return at


def grouped(row_ids: Int32Array, cols: Int32Array, num_rows: int) -> Rows:
    """Loose records as rows, sorted, every record once."""
    indptr = _starts(row_ids, num_rows)
    out = np.empty_like(cols)
    _place(indptr[:-1].copy(), row_ids, cols, out)
    distinct = np.zeros_like(indptr)
    return distinct, out[: _distinct(indptr, out, distinct)].copy()


@numba.njit(cache=True, nogil=True)
def _smallest(keys, length, rank):  # type: ignore[no-untyped-def]
    """The key of this rank among the first `length`, which get reordered; hashes need no clever pivot."""
    low, high = 0, length - 1
    while low < high:
        pivot = keys[(low + high) >> 1]
        i, j = low, high
        while i <= j:
            while keys[i] < pivot:
                i += 1
            while keys[j] > pivot:
                j -= 1
            if i <= j:
                keys[i], keys[j] = keys[j], keys[i]
                i += 1
                j -= 1
        if rank <= j:
            high = j
        elif rank >= i:
            low = i
        else:
            break
    return keys[rank]


@numba.njit(cache=True, nogil=True)
def _capped(indptr, cols, cap, rows_read, word, out_indptr, out):  # type: ignore[no-untyped-def]
    longest = 0
    for row in range(len(indptr) - 1):
        longest = max(longest, indptr[row + 1] - indptr[row])
    keys = np.empty(longest, dtype=np.uint64)
    shuffled = np.empty(longest, dtype=np.uint64)
    at = 0
    for row in range(len(indptr) - 1):
        start = indptr[row]
        length = indptr[row + 1] - start
        if length <= cap:
            for j in range(start, start + length):
                out[at] = cols[j]
                at += 1
        elif cap > 0:
            for j in range(length):
                col = cols[start + j]
                keys[j] = pair_key(col, row, word) if rows_read else pair_key(row, col, word)
                shuffled[j] = keys[j]
            largest = _smallest(shuffled, length, cap - 1)
            for j in range(length):
                if keys[j] <= largest:
                    out[at] = cols[start + j]
                    at += 1
        out_indptr[row + 1] = at


def capped(rows: Rows, cap: int, *, rows_read: bool, word: np.uint64) -> Rows:
    """Of every row the `cap` records with the smallest keys, still sorted by column.

    `rows_read`: whether a row is a reader and its columns what it reads, or the other way round.
    """
    indptr, cols = rows
    if len(cols) == 0 or cap >= int(np.diff(indptr).max()):
        return rows
    out_indptr = np.zeros_like(indptr)
    out = np.empty(int(np.minimum(np.diff(indptr), cap).sum()), dtype=np.int32)
    _capped(indptr, cols, cap, rows_read, word, out_indptr, out)
    return out_indptr, out


def loose(rows: Rows, size: int) -> Iterator[tuple[Int32Array, Int32Array]]:
    """The records as (row identifiers, columns), at most `size` at a time."""
    indptr, cols = rows
    for start in range(0, len(cols), size):
        stop = min(start + size, len(cols))
        first = int(np.searchsorted(indptr, start, side="right")) - 1
        last = int(np.searchsorted(indptr, stop, side="left"))
        ends: Int64Array = np.clip(indptr[first : last + 1], start, stop)
        yield np.repeat(np.arange(first, last, dtype=np.int32), np.diff(ends)), cols[start:stop]
