"""Bounded lists: what every training node reads after sampling, and operations on compressed rows."""

from __future__ import annotations

from dataclasses import dataclass

import numba
import numpy as np
import numpy.typing as npt

from hushgraph._arrays import Int32Array, Int64Array, find_ends
from hushgraph.errors import GraphError
from hushgraph.graph.shares import Shares
from hushgraph.sampling.keys import pair_key

# Records in compressed rows, as (indptr, columns).
Rows = tuple[Int64Array, Int32Array]


@dataclass(frozen=True, kw_only=True, eq=False)
class BoundedLists:
    """The nodes that each node reads, in compressed rows over all nodes.

    Every list is sorted by identifier without duplicates, so equal samples have equal arrays. A node outside
    the training split has an empty list: in a tree it is a leaf.

    Attributes:
        indptr: int64 [num_nodes + 1], where each reader's list begins and ends in `indices`.
        indices: int32 [records], the nodes that are read.
        shares: float32 [relations, records], as `find_shares` gives them; None where all count the same.
    """

    indptr: Int64Array
    indices: Int32Array
    shares: Shares | None = None


def keep_rows(rows: Rows, mask: npt.NDArray[np.bool_]) -> Rows:
    """Empty all rows but those of the mask."""
    if len(mask) > np.iinfo(np.int32).max:
        raise GraphError(f"num_nodes={len(mask)}: expected fewer than 2^31, as node ids have 32 bits")
    indptr, cols = rows
    counts = np.diff(indptr)
    return find_ends(counts * mask), cols[np.repeat(mask, counts)]


def transpose_rows(rows: Rows) -> Rows:
    """Turn columns into rows; every new row is sorted."""
    indptr, cols = rows
    starts = find_ends(np.bincount(cols, minlength=len(indptr) - 1))
    out = np.empty_like(cols)
    _place_transposed(indptr, cols, starts[:-1].copy(), out)
    return starts, out


def cap_rows(rows: Rows, cap: int, *, rows_read: bool, word: np.uint64) -> Rows:
    """Keep the `cap` records with the smallest keys of every row, in their order.

    Args:
        rows: the records.
        cap: how many records a row keeps, at most.
        rows_read: whether rows are readers and columns what they read, or the other way round.
        word: the seed of the keys, from `seed_word`.
    """
    indptr, cols = rows
    if len(cols) == 0 or cap >= int(np.diff(indptr).max()):
        return rows
    out_indptr = np.zeros_like(indptr)
    out = np.empty(int(np.minimum(np.diff(indptr), cap).sum()), dtype=np.int32)
    _cap(indptr, cols, cap, rows_read, word, out_indptr, out)
    return out_indptr, out


@numba.njit(cache=True, nogil=True)
def _place_transposed(indptr, cols, starts, out):  # type: ignore[no-untyped-def]
    """Put every record in its new row; going through the rows in order sorts the new ones."""
    for row in range(len(indptr) - 1):
        for j in range(indptr[row], indptr[row + 1]):
            col = cols[j]
            out[starts[col]] = row
            starts[col] += 1


@numba.njit(cache=True, nogil=True)
def _cap(indptr, cols, cap, rows_read, word, out_indptr, out):  # type: ignore[no-untyped-def]
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
            largest = _select_key(shuffled, length, cap - 1)
            for j in range(length):
                if keys[j] <= largest:
                    out[at] = cols[start + j]
                    at += 1
        out_indptr[row + 1] = at


@numba.njit(cache=True, nogil=True)
def _select_key(keys, length, rank):  # type: ignore[no-untyped-def]
    """Quickselect: the key of this rank among the first `length`, which are reordered."""
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
