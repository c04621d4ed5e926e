"""The stable sampler: bounded lists that change little when one node's row is emptied."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from hushgraph.errors import GraphError, PlanError
from hushgraph.graph.chunks import PIECE, Edges, Int32Array, iter_pieces
from hushgraph.sampling.lists import BoundedLists
from hushgraph.sampling.rows import capped, loose, transposed
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
    held together, and `shard_records` lets several processes share the pass. Self-loops and
    duplicates are ignored, as are reads by nodes outside the training split.

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
    readers = _checked(num_nodes, train_mask, max_readers, max_reads, edge_owner)
    records = iter_pieces(edges, num_nodes)
    if edge_owner == "reader" and max_reads is not None:
        rows = SmallestKeys(num_nodes=num_nodes, slots=max_reads, rows_read=True, readers=readers, seed=seed)
        rows.add_all(records)
        by_reader = rows.rows()
        # The table is larger than what comes out of it, and the next one needs its room.
        del rows
        records = ((cols, row_ids) for row_ids, cols in loose(by_reader, PIECE))
    columns = SmallestKeys(
        num_nodes=num_nodes, slots=max_readers, rows_read=False, readers=readers, seed=seed
    )
    columns.add_all(records)
    word, by_sender = columns.word, columns.rows()
    del columns
    reads = transposed(by_sender)
    del by_sender
    if edge_owner == "sender" and max_reads is not None:
        reads = capped(reads, max_reads, rows_read=True, word=word)
    return BoundedLists(indptr=reads[0], indices=reads[1]).on_disk_if_large()


def shard_records(
    edges: Edges,
    *,
    num_nodes: int,
    train_mask: npt.NDArray[np.bool_],
    max_readers: int,
    max_reads: int | None,
    edge_owner: Literal["sender", "reader"],
    seed: int,
) -> tuple[Int32Array, Int32Array]:
    """Of one shard of the edges, the records (source, target) that may be in the lists of them all.

    Several processes or machines each take a shard, in any way the edges are dealt out. What they return,
    given together to `stable_lists` with the same arguments, gives the lists of the whole graph.

    Args:
        edges: the shard; otherwise as in `stable_lists`.
        num_nodes, train_mask, max_readers, max_reads, edge_owner, seed: as in `stable_lists`; of the whole
            graph, and the same for every shard.

    Guarantees:
        `stable_lists([shard_records(shard, ...) for shard in shards], ...)` equals `stable_lists` of all
        edges. A shard returns at most `max_readers` records a sender, or `max_reads` a reader if readers own
        the edges and it is not None.

    Examples:
        >>> import numpy as np
        >>> from hushgraph.sampling.stable import shard_records, stable_lists
        >>> source, target = np.array([0, 0, 0, 1]), np.array([1, 2, 3, 3])
        >>> caps = {"num_nodes": 4, "train_mask": np.ones(4, bool), "max_readers": 1, "max_reads": None}
        >>> caps |= {"edge_owner": "sender", "seed": 7}
        >>> parts = [shard_records((source[i::2], target[i::2]), **caps) for i in range(2)]
        >>> stable_lists(parts, **caps) == stable_lists((source, target), **caps)
        True
    """
    readers = _checked(num_nodes, train_mask, max_readers, max_reads, edge_owner)
    # Whichever cap comes first: the smallest keys of a row are among the smallest of the shards of the row.
    by_reader = edge_owner == "reader" and max_reads is not None
    slots = max_reads if by_reader else max_readers
    kept = SmallestKeys(num_nodes=num_nodes, slots=slots, rows_read=by_reader, readers=readers, seed=seed)
    kept.add_all(iter_pieces(edges, num_nodes))
    sources, targets = zip(*kept.records(), strict=True) if kept.rows()[0][-1] else ((), ())
    none = np.empty(0, np.int32)
    return np.concatenate([none, *sources]), np.concatenate([none, *targets])


def _checked(
    num_nodes: int, train_mask: Any, max_readers: int, max_reads: int | None, edge_owner: str
) -> npt.NDArray[np.bool_]:
    """Refuse what cannot be meant; the training split as booleans."""
    check_cap("max_readers", max_readers)
    if max_reads is not None:
        check_cap("max_reads", max_reads)
    if edge_owner not in ("sender", "reader"):
        raise PlanError(f"edge_owner={edge_owner!r}: expected 'sender' or 'reader'")
    return checked_mask(train_mask, num_nodes)


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
