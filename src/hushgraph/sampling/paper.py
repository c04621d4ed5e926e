"""The sampler of the paper: keep every record at random, then drop nodes that are still read too often."""

from __future__ import annotations

import numba
import numpy as np
import numpy.typing as npt

from hushgraph.sampling.keys import pair_key, seed_word
from hushgraph.sampling.lists import BoundedLists, Rows, keep_rows, transpose_rows

_UNIT_BITS = np.uint64(11)
_UNIT = 2.0**-53


def paper_lists(
    reads: Rows, *, train_mask: npt.NDArray[np.bool_], max_readers: int, seed: int
) -> BoundedLists:
    """Sample what every training node reads, by the paper's SAMPLE-EDGELISTS.

    Each of the distinct training readers RE_u of a node u is kept with probability min(1, K / (2 |RE_u|)). A
    node with more than K readers left is dropped from all lists: nobody reads it. The number of nodes that
    one reader reads is not bounded.

    Args:
        reads: what every node reads, as a graph has it: sorted, without repeats and self-loops.
        train_mask: bool [nodes], the training split.
        max_readers: K, at least 0.
        seed: the seed of the keys; the same seed gives the same lists.

    Guarantees:
        No node occurs in more than N(K, r) = 1 + K + ... + K^r trees of depth r.
        If senders own the edges, emptying one node's row changes at most N(K, r) trees. If readers own them,
        as in the paper, no such bound holds: RE_u counts the emptied node's own record.
    """
    indptr, cols = transpose_rows(keep_rows(reads, train_mask))
    kept_indptr = np.zeros_like(indptr)
    num_kept = _sample_rows(indptr, cols, max_readers, seed_word(seed), kept_indptr)
    by_reader, indices = transpose_rows((kept_indptr, cols[:num_kept]))
    return BoundedLists(indptr=by_reader, indices=indices)


@numba.njit(cache=True, nogil=True)
def _sample_rows(indptr, cols, max_readers, word, out_indptr):  # type: ignore[no-untyped-def]
    """Sample every sender's row and drop the senders left with too many readers, in place."""
    at = 0
    for row in range(len(indptr) - 1):
        start = at
        degree = indptr[row + 1] - indptr[row]
        for j in range(indptr[row], indptr[row + 1]):
            uniform = (pair_key(row, cols[j], word) >> _UNIT_BITS) * _UNIT
            if uniform * (2 * degree) < max_readers:
                cols[at] = cols[j]
                at += 1
        if at - start > max_readers:
            at = start
        out_indptr[row + 1] = at
    return at
