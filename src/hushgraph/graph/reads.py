"""Reads in compressed rows from edges in any order; beside the edges, only the result is held."""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np
import numpy.typing as npt

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
    indptr = np.zeros(num_nodes + 1, np.int64)
    loops = 0
    for source, target in chunks():
        loops += _count(source, target, symmetrize, indptr)
    np.cumsum(indptr, out=indptr)
    codes = np.empty(indptr[-1], dtype)
    ends = indptr[:-1].copy()
    for source, target in chunks():
        _fill(source, target, symmetrize, ends, codes)
    kept, repeated = np.empty(num_nodes, np.int64), np.empty(num_nodes, np.int64)
    for row in np.flatnonzero(np.diff(indptr) > _SHORT):
        codes[indptr[row] : indptr[row + 1]].sort()
    _sort_short_rows(indptr, codes)
    _drop_repeats(indptr, codes, symmetrize, kept, repeated)
    _close_gaps(indptr, codes, kept)
    # Made smaller where it is: a copy would be as large as the result.
    codes.resize(int(indptr[-1]), refcheck=False)
    return BuiltReads(indptr, codes.astype(id_type(num_nodes), copy=False), int(repeated.sum()), loops)


def lacks_reverse(indptr: Array, indices: Array) -> bool:
    """Return whether some read lacks its reverse."""
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
def _fill(source, target, symmetrize, ends, codes):  # type: ignore[no-untyped-def]
    for i in range(len(source)):
        u, w = source[i], target[i]
        if u == w:
            continue
        codes[ends[w]] = 2 * u if symmetrize else u
        ends[w] += 1
        if symmetrize:
            codes[ends[u]] = 2 * w + 1
            ends[u] += 1


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
def _lacks_reverse(indptr, indices):  # type: ignore[no-untyped-def]
    for row in range(len(indptr) - 1):
        for i in range(indptr[row], indptr[row + 1]):
            other = indices[i]
            if not contains(indices, indptr[other], indptr[other + 1], row):
                return True
    return False
