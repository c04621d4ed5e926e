"""The stable sampler: bounded lists that change little when one node's row is emptied."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from hushgraph.errors import GraphError, PlanError
from hushgraph.sampling.chunks import Edges, pieces
from hushgraph.sampling.lists import BoundedLists
from hushgraph.sampling.rows import capped, transposed
from hushgraph.sampling.slots import SmallestKeys


def stable_lists(
    edges: Edges,
    *,
    num_nodes: int,
    train_mask: npt.NDArray[np.bool_],
    max_readers: int,
    max_reads: int | None,
    edge_owner: Literal["sender", "reader"],
    seed: int,
) -> BoundedLists:
    """What every training node reads, at most `max_readers` readers a node and `max_reads` reads a reader.

    One pass over the edges with a fixed number of slots a row, so edges may come in chunks that are never
    held together. Self-loops and duplicates are ignored, as are reads by nodes outside the training split.

    Args:
        edges: (source, target), two integer arrays of equal length where each target reads its source; or an
            iterable of such pairs; or an object whose `edge_chunks()` gives one.
        num_nodes: identifiers run from 0 to num_nodes - 1.
        train_mask: bool [num_nodes], the training split.
        max_readers: K, at least 0.
        max_reads: D, at least 0; None is unlimited, which with reader-owned edges has no price.
        edge_owner: whose row holds a record: "sender" caps readers first, "reader" caps reads first.
        seed: of the keys; the same seed gives the same lists.

    Guarantees:
        The lists do not depend on the order of the edges or on how they are cut into chunks.
        Emptying one node's row changes at most N(K, r) trees of depth r if senders own the edges, and at most
        N(K, r) + D N(K, r - 1) if readers do, for every seed; N(K, r) = 1 + K + ... + K^r.
    """
    check_cap("max_readers", max_readers)
    if max_reads is not None:
        check_cap("max_reads", max_reads)
    if edge_owner not in ("sender", "reader"):
        raise PlanError(f"edge_owner={edge_owner!r}: expected 'sender' or 'reader'")
    readers = checked_mask(train_mask, num_nodes)
    records = pieces(edges, num_nodes)
    if edge_owner == "reader" and max_reads is not None:
        rows = SmallestKeys(num_nodes=num_nodes, slots=max_reads, rows_read=True, readers=readers, seed=seed)
        rows.add_all(records)
        records = rows.records()
    columns = SmallestKeys(
        num_nodes=num_nodes, slots=max_readers, rows_read=False, readers=readers, seed=seed
    )
    columns.add_all(records)
    reads = transposed(columns.rows())
    if edge_owner == "sender" and max_reads is not None:
        reads = capped(reads, max_reads, rows_read=True, word=columns.word)
    return BoundedLists(indptr=reads[0], indices=reads[1])


def checked_mask(train_mask: Any, num_nodes: int) -> npt.NDArray[np.bool_]:
    """The training split as booleans, or what is wrong with it."""
    mask = np.asarray(train_mask)
    if mask.dtype != np.bool_ or mask.shape != (num_nodes,):
        raise GraphError(
            f"train_mask has shape={mask.shape}, dtype={mask.dtype}: expected bool with shape ({num_nodes},)"
        )
    return mask


def check_cap(name: str, cap: int) -> None:
    """Refuse a negative cap."""
    if cap < 0:
        raise PlanError(f"{name}={cap}: expected 0 or more")
