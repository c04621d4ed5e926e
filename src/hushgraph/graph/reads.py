"""Reads in compressed rows from edges in any order; beside the edges, at most the result is held."""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np
import numpy.typing as npt

from hushgraph import _arrays
from hushgraph._threads import map_in_order
from hushgraph.graph.checks import id_type
from hushgraph.graph.graph import Array, Chunks

# Rows up to this length are sorted by the kernel, longer ones by NumPy.
_SHORT = 32
# At most 2^10 blocks of rows are sorted one by one where reads are in files: each stays in the caches.
_BLOCK_BITS = 10
# Of the number that stands for a read, the last bits are its source, and those before the row in its block.
_SOURCE_BITS = 40


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
    if _arrays.find_disk() is not None:
        return _build_by_blocks(chunks, num_nodes, symmetrize)
    # A reverse that was added is told from an edge that was given by the last bit.
    dtype = id_type(2 * num_nodes if symmetrize else num_nodes)
    indptr = np.zeros(num_nodes + 1, np.int64)
    loops = sum(_count(source, target, symmetrize, indptr) for source, target in chunks())
    np.cumsum(indptr, out=indptr)
    codes, ends = np.empty(indptr[-1], dtype), indptr[:-1].copy()
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


def _build_by_blocks(chunks: Chunks, num_nodes: int, symmetrize: bool) -> BuiltReads:
    """The same in files: reads are put into blocks of rows, 8 bytes each, which are sorted one by one."""
    bits = max(0, int(num_nodes - 1).bit_length() - _BLOCK_BITS)
    num_blocks = ((num_nodes - 1) >> bits) + 1

    def count(chunk: tuple[Array, Array]) -> tuple[npt.NDArray[np.int64], int]:
        counts = np.zeros(num_blocks, np.int64)
        return counts, _count_blocks(*chunk, symmetrize, bits, counts)

    counted = list(map_in_order(count, chunks()))
    loops = sum(own for _, own in counted)
    counts = np.array([own for own, _ in counted], np.int64).reshape(-1, num_blocks)
    ends = _arrays.find_ends(counts.sum(axis=0))
    # Where the reads of every chunk go within every block: chunks do not wait for each other.
    free = np.cumsum(counts, axis=0) - counts + ends[:-1]
    keys = _arrays.empty(int(ends[-1]), np.int64)

    def put(numbered: tuple[int, tuple[Array, Array]]) -> None:
        number, chunk = numbered
        _put_in_blocks(*chunk, symmetrize, bits, free[number], keys)

    for _ in map_in_order(put, enumerate(chunks())):
        pass
    indptr, indices = _arrays.zeros(num_nodes + 1, np.int64), _arrays.empty(len(keys), id_type(num_nodes))

    def sort(block: int) -> tuple[Array, npt.NDArray[np.int64], int]:
        own = keys[ends[block] : ends[block + 1]]
        own.sort()
        sizes = np.zeros(min(num_nodes - (block << bits), 1 << bits), np.int64)
        sources = np.empty(len(own), indices.dtype)
        kept, repeated = _read_keys(own, symmetrize, sources, sizes)
        return sources[:kept], sizes, repeated

    at, repeats = 0, 0
    for block, (sources, sizes, repeated) in enumerate(map_in_order(sort, range(num_blocks))):
        indices[at : at + len(sources)] = sources
        first = (block << bits) + 1
        indptr[first : first + len(sizes)] = at + np.cumsum(sizes)
        at, repeats = at + len(sources), repeats + repeated
    return BuiltReads(indptr, indices[:at], repeats, loops)


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
def _fill(source, target, symmetrize, ends, codes):  # type: ignore[no-untyped-def]
    """Add the edges of all rows; `ends` is where the next one of each goes."""
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
def _count_blocks(source, target, symmetrize, bits, counts):  # type: ignore[no-untyped-def]
    """Count the reads of every block of rows; return the number of self-loops."""
    loops = 0
    for i in range(len(source)):
        if source[i] == target[i]:
            loops += 1
            continue
        counts[target[i] >> bits] += 1
        if symmetrize:
            counts[source[i] >> bits] += 1
    return loops


@numba.njit(cache=True, nogil=True)
def _put_in_blocks(source, target, symmetrize, bits, free, keys):  # type: ignore[no-untyped-def]
    """Write reads as numbers that sort by row, then by source; `free` is where the next of a block goes."""
    mask = (np.int64(1) << bits) - 1
    for i in range(len(source)):
        u, w = np.int64(source[i]), np.int64(target[i])
        if u == w:
            continue
        block = w >> bits
        keys[free[block]] = ((w & mask) << _SOURCE_BITS) | (2 * u if symmetrize else u)
        free[block] += 1
        if symmetrize:
            block = u >> bits
            keys[free[block]] = ((u & mask) << _SOURCE_BITS) | (2 * w + 1)
            free[block] += 1


@numba.njit(cache=True, nogil=True)
def _read_keys(keys, symmetrize, sources, sizes):  # type: ignore[no-untyped-def]
    """Distinct sources of the rows of a sorted block, how many each row has; all, and repeated edges."""
    mask = (np.int64(1) << _SOURCE_BITS) - 1
    at, repeats, last, last_row, last_node = 0, 0, np.int64(-1), np.int64(-1), np.int64(-1)
    for key in keys:
        row, code = key >> _SOURCE_BITS, key & mask
        if key == last and not (symmetrize and code & 1):
            repeats += 1
        node = code >> 1 if symmetrize else code
        if row != last_row or node != last_node:
            sources[at] = node
            sizes[row] += 1
            at += 1
        last, last_row, last_node = key, row, node
    return at, repeats


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


@numba.njit(cache=True, nogil=True)
def are_ascending(indptr, indices, num_nodes):  # type: ignore[no-untyped-def]
    """Whether every row is an ascending list of other nodes, without repeats."""
    for row in range(len(indptr) - 1):
        last = -1
        for i in range(indptr[row], indptr[row + 1]):
            node = indices[i]
            if node <= last or node == row or node >= num_nodes:
                return False
            last = node
    return True
