"""Reads in compressed rows from edges in any order; beside the edges, at most the result is held."""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np
import numpy.typing as npt

from hushgraph import _arrays
from hushgraph.graph.graph import Array, Chunks, id_type

# Rows up to this length are sorted by the kernel, longer ones by NumPy.
_SHORT = 32


class BuiltReads(NamedTuple):
    """Rows of sources, ascending and without repeats, and how many edges were dropped.

    Attributes:
        indptr: int64 [N + 1].
        indices: sources, int32 where ids fit.
        duplicates, self_loops: given edges that were dropped.
    """

    indptr: npt.NDArray[np.int64]
    indices: Array
    duplicates: int
    self_loops: int


def build_reads(chunks: Chunks, num_nodes: int, *, symmetrize: bool = False) -> BuiltReads:
    """Sort edges by target, then by source.

    Args:
        chunks: the edges; ids are checked.
        num_nodes: N.
        symmetrize: add the reverse of every edge.
    """
    # A reverse that was added is told from an edge that was given by the last bit.
    dtype = id_type(2 * num_nodes if symmetrize else num_nodes)
    starts = _arrays.zeros(num_nodes + 1, np.int64)
    loops = 0
    for source, target in chunks():
        loops += _count(source, target, symmetrize, starts)
    np.cumsum(starts, out=starts)
    ranges = _cut_rows(starts, np.dtype(dtype).itemsize)
    if len(ranges) == 1:
        codes, indptr, repeats = _sort_rows(chunks, starts, (0, num_nodes), symmetrize, dtype)
        # Made smaller where it is: a copy would be as large as the result.
        codes.resize(int(indptr[-1]), refcheck=False)
        return BuiltReads(indptr, codes.astype(id_type(num_nodes), copy=False), repeats, loops)
    indices = _arrays.empty(int(starts[-1]), id_type(num_nodes))
    indptr, repeats, at = _arrays.zeros(num_nodes + 1, np.int64), 0, 0
    for first, end in ranges:
        codes, own, repeated = _sort_rows(chunks, starts, (first, end), symmetrize, dtype)
        indices[at : at + own[-1]] = codes[: own[-1]]
        indptr[first : end + 1] = at + own
        at, repeats = at + int(own[-1]), repeats + repeated
    return BuiltReads(indptr, indices[:at], repeats, loops)


def _cut_rows(starts: npt.NDArray[np.int64], itemsize: int) -> list[tuple[int, int]]:
    """Ranges of rows that are sorted at a time: all where they are in memory, else as many as fit."""
    disk, num_rows = _arrays.find_disk(), len(starts) - 1
    if disk is None:
        return [(0, num_rows)]
    most, ranges = _most_sorted(disk, itemsize), list[tuple[int, int]]()
    while not ranges or ranges[-1][1] < num_rows:
        first = ranges[-1][1] if ranges else 0
        reach = int(np.searchsorted(starts, starts[first] + most, side="right")) - 1
        # A row that is larger is sorted by itself.
        ranges.append((first, min(num_rows, max(reach, first + 1))))
    return ranges


def _most_sorted(disk: _arrays.Disk, itemsize: int) -> int:
    """How many reads are sorted at a time."""
    return disk.memory // (4 * itemsize)


def _sort_rows(
    chunks: Chunks, starts: npt.NDArray[np.int64], rows: tuple[int, int], symmetrize: bool, dtype: type
) -> tuple[Array, npt.NDArray[np.int64], int]:
    """The sources that a range of rows read, with room behind them; where rows begin; repeated edges."""
    first, end = rows
    indptr = starts[first : end + 1] - starts[first]
    codes, ends = np.empty(indptr[-1], dtype), indptr[:-1].copy()
    for source, target in chunks():
        _fill(source, target, symmetrize, first, ends, codes)
    kept, repeated = np.empty(end - first, np.int64), np.empty(end - first, np.int64)
    for row in np.flatnonzero(np.diff(indptr) > _SHORT):
        codes[indptr[row] : indptr[row + 1]].sort()
    _sort_short_rows(indptr, codes)
    _drop_repeats(indptr, codes, symmetrize, kept, repeated)
    _close_gaps(indptr, codes, kept)
    return codes, indptr, int(repeated.sum())


def lacks_reverse(indptr: Array, indices: Array) -> bool:
    """Return whether some read lacks its reverse.

    Reads are gone through once, in order, for they may be in a file: words of reads and of their reverses add
    up to the same number, modulo 2^64, where all have one and, but for one case in 2^64, only there.
    """
    return bool(_lacks_reverse(indptr, indices))


@numba.njit(cache=True, nogil=True)
def _count(source, target, symmetrize, indptr):  # type: ignore[no-untyped-def]
    """Count the reads of every node one place further on; return the number of self-loops."""
    loops = 0
    for i in range(len(source)):
        if source[i] == target[i]:
            loops += 1
            continue
        indptr[target[i] + 1] += 1
        if symmetrize:
            indptr[source[i] + 1] += 1
    return loops


@numba.njit(cache=True, nogil=True)
def _fill(source, target, symmetrize, first, ends, codes):  # type: ignore[no-untyped-def]
    """Add the edges of the rows from `first` on, of which there are as many as `ends`."""
    last = first + len(ends)
    for i in range(len(source)):
        u, w = source[i], target[i]
        if u == w:
            continue
        if first <= w < last:
            codes[ends[w - first]] = 2 * u if symmetrize else u
            ends[w - first] += 1
        if symmetrize and first <= u < last:
            codes[ends[u - first]] = 2 * w + 1
            ends[u - first] += 1


@numba.njit(cache=True, nogil=True)
def _sort_short_rows(indptr, codes):  # type: ignore[no-untyped-def]
    """Sort rows of at most `_SHORT` entries in place, by moving every entry to its place."""
    for row in range(len(indptr) - 1):
        begin, end = indptr[row], indptr[row + 1]
        if end - begin > _SHORT:
            continue
        for i in range(begin + 1, end):
            code, at = codes[i], i
            while at > begin and codes[at - 1] > code:
                codes[at] = codes[at - 1]
                at -= 1
            codes[at] = code


@numba.njit(cache=True, nogil=True)
def _drop_repeats(indptr, codes, symmetrize, kept, repeated):  # type: ignore[no-untyped-def]
    """Move the distinct ids of every sorted row to its front; count them and repeated edges."""
    for row in range(len(kept)):
        begin, repeats, last = indptr[row], 0, 0
        end = begin
        for i in range(begin, indptr[row + 1]):
            code = codes[i]
            if i > begin and code == last and not (symmetrize and code & 1):
                repeats += 1
            last = code
            node = code >> 1 if symmetrize else code
            if end == begin or codes[end - 1] != node:
                codes[end] = node
                end += 1
        kept[row], repeated[row] = end - begin, repeats


@numba.njit(cache=True, nogil=True)
def _close_gaps(indptr, codes, kept):  # type: ignore[no-untyped-def]
    """Move rows together, in place; `indptr` becomes that of what is kept."""
    at = 0
    for row in range(len(kept)):
        begin = indptr[row]
        indptr[row] = at
        if at != begin:
            for i in range(kept[row]):
                codes[at + i] = codes[begin + i]
        at += kept[row]
    indptr[len(kept)] = at


@numba.njit(cache=True, nogil=True)
def contains(numbers, low, high, wanted):  # type: ignore[no-untyped-def]
    """Whether ascending numbers have `wanted` from place `low` to place `high`."""
    end = high
    while low < high:
        middle = (low + high) >> 1
        if numbers[middle] < wanted:
            low = middle + 1
        else:
            high = middle
    return low < end and numbers[low] == wanted


@numba.njit(cache=True, nogil=True)
def _mix(u, w):  # type: ignore[no-untyped-def]
    """A word of a pair, from which the exchanged pair has another."""
    word = (np.uint64(u) << np.uint64(32)) ^ np.uint64(w)
    word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return word ^ (word >> np.uint64(31))


@numba.njit(cache=True, nogil=True)
def _lacks_reverse(indptr, indices):  # type: ignore[no-untyped-def]
    total = np.uint64(0)
    for row in range(len(indptr) - 1):
        for i in range(indptr[row], indptr[row + 1]):
            total += _mix(indices[i], row) - _mix(row, indices[i])
    return total != np.uint64(0)
