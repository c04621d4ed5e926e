"""Bounded lists: what every training node reads after sampling, and operations on compressed rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numba
import numpy as np

from hushgraph._arrays import Int32Array, Int64Array
from hushgraph.errors import GraphError
from hushgraph.graph.checks import check_edges, cut_edges
from hushgraph.graph.graph import Array, Graph
from hushgraph.graph.reads import build_reads
from hushgraph.graph.shares import Shares
from hushgraph.sampling.keys import pair_key

# Records in compressed rows, as (indptr, columns).
Rows = tuple[Int64Array, Int32Array]
# A graph, or sources and targets: each target reads its source.
Edges = Graph | tuple[Array, Array]
_NO_SHARES = np.empty((0, 0), np.float32)


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

    @property
    def num_nodes(self) -> int:
        return len(self.indptr) - 1

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, BoundedLists):
            return NotImplemented
        mine, others = (_NO_SHARES if each.shares is None else each.shares for each in (self, other))
        return (
            np.array_equal(self.indptr, other.indptr)
            and np.array_equal(self.indices, other.indices)
            and np.array_equal(mine, others)
        )

    __hash__ = None  # type: ignore[assignment]


def rows_by_reader(edges: Edges, num_nodes: int, train_mask: Any) -> Rows:
    """The distinct records of training readers without self-loops, in rows by reader, each sorted."""
    if num_nodes > np.iinfo(np.int32).max:
        raise GraphError(f"num_nodes={num_nodes}: expected fewer than 2^31, as node ids have 32 bits")
    mask = np.asarray(train_mask)
    if mask.dtype != np.bool_ or mask.shape != (num_nodes,):
        raise GraphError(
            f"train_mask has shape={mask.shape}, dtype={mask.dtype}: expected bool with shape ({num_nodes},)"
        )
    if isinstance(edges, Graph):
        indptr, indices = edges.indptr, edges.indices
    else:
        pairs = check_edges(np.stack(edges), num_nodes)
        indptr, indices, _, _ = build_reads(cut_edges(pairs, num_nodes), num_nodes)
    counts = np.diff(indptr)
    kept_indptr = np.zeros(num_nodes + 1, np.int64)
    np.cumsum(counts * mask, out=kept_indptr[1:])
    return kept_indptr, indices[np.repeat(mask, counts)]


def transpose_rows(rows: Rows) -> Rows:
    """Turn columns into rows; every new row is sorted."""
    indptr, cols = rows
    starts = _find_starts(cols, len(indptr) - 1)
    out = np.empty_like(cols)
    _place_transposed(indptr, cols, starts[:-1].copy(), out)
    return starts, out


def _find_starts(row_ids: Int32Array, num_rows: int) -> Int64Array:
    """int64 [num_rows + 1]: where each row begins and ends."""
    indptr = np.zeros(num_rows + 1, dtype=np.int64)
    _count(row_ids, indptr[1:])
    return np.cumsum(indptr, out=indptr)


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
def _count(rows, counts):  # type: ignore[no-untyped-def]
    for i in range(len(rows)):
        counts[rows[i]] += 1


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
