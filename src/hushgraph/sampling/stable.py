"""The stable sampler: bounded lists that change little when one node's row is emptied."""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt

from hushgraph.sampling.keys import seed_word
from hushgraph.sampling.lists import BoundedLists, Rows, cap_rows, keep_rows, transpose_rows


def stable_lists(
    reads: Rows,
    *,
    train_mask: npt.NDArray[np.bool_],
    max_readers: int,
    max_reads: int | None,
    edge_owner: Literal["sender", "reader"],
    seed: int,
) -> BoundedLists:
    """Sample what every training node reads: at most `max_readers` readers of a node, `max_reads` reads.

    Reads by nodes outside the training split are ignored.

    Args:
        reads: what every node reads, as a graph has it: sorted, without repeats and self-loops.
        train_mask: bool [nodes], the training split.
        max_readers: K, at least 0.
        max_reads: D, at least 0; None is unlimited, which with reader-owned edges has no price.
        edge_owner: whose row holds a record: "sender" caps readers first, "reader" caps reads first.
        seed: the seed of the keys; the same seed gives the same lists.

    Guarantees:
        Emptying one node's row changes at most N(K, r) trees of depth r if senders own the edges, and at most
        N(K, r) + D N(K, r - 1) if readers do, for every seed; N(K, r) = 1 + K + ... + K^r.
    """
    if max_readers == 0 or max_reads == 0:
        # Nothing is read, so the edges need not be read either.
        return BoundedLists(indptr=np.zeros_like(reads[0]), indices=np.empty(0, np.int32))
    word = seed_word(seed)
    reads = keep_rows(reads, train_mask)
    if edge_owner == "reader" and max_reads is not None:
        reads = cap_rows(reads, max_reads, rows_read=True, word=word)
    readers = cap_rows(transpose_rows(reads), max_readers, rows_read=False, word=word)
    reads = transpose_rows(readers)
    if edge_owner == "sender" and max_reads is not None:
        reads = cap_rows(reads, max_reads, rows_read=True, word=word)
    return BoundedLists(indptr=reads[0], indices=reads[1])
