"""The stable sampler: bounded lists that change little when one node's row is emptied.

`SmallestKeys` keeps the records with the smallest keys of each row, in one pass over the edges.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal

import numba
import numpy as np
import numpy.typing as npt

from hushgraph.errors import GraphError, PlanError
from hushgraph.graph.chunks import PIECE, Edges, Int32Array, iter_pieces
from hushgraph.sampling.keys import key_reader, key_sender, packed_key, seed_word
from hushgraph.sampling.lists import (
    BoundedLists,
    Rows,
    cap_rows,
    group_records,
    iterate_records,
    transpose_rows,
)

# With more slots a table of rows x slots is mostly empty; compressed rows are used instead.
WIDEST_TABLE = 32

# Records collected before they are grouped with those kept.
_LOOSE = 1 << 22
# Records that justify a second thread.
_PARALLEL = 1 << 15
# A block of the table that stays in a core's own cache while its records are inserted.
_BLOCK_BYTES = 1 << 19
_MOST_BLOCKS = 1 << 11

_NO_KEY = np.uint64(0xFFFFFFFFFFFFFFFF)
_32 = np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)
_ONE = np.uint64(1)


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
    """Sample what every training node reads: at most `max_readers` readers of a node, `max_reads` reads.

    The edges are read once, in chunks that need not fit into memory together; `shard_records` lets several
    processes share the pass. Self-loops, duplicates and reads by nodes outside the training split are
    ignored.

    Args:
        edges: (source, target), two integer arrays of equal length where each target reads its source; or an
            iterable of such pairs; or an object whose `edge_chunks()` gives one.
        num_nodes: identifiers run from 0 to num_nodes - 1.
        train_mask: bool [num_nodes], the training split.
        max_readers: K, at least 0.
        max_reads: D, at least 0; None is unlimited, which with reader-owned edges has no price.
        edge_owner: whose row holds a record: "sender" caps readers first, "reader" caps reads first.
        seed: the seed of the keys; the same seed gives the same lists.

    Guarantees:
        The lists do not depend on the order of the edges or on how they are cut into chunks.
        Emptying one node's row changes at most N(K, r) trees of depth r if senders own the edges, and at most
        N(K, r) + D N(K, r - 1) if readers do, for every seed; N(K, r) = 1 + K + ... + K^r.
    """
    readers = _check_arguments(num_nodes, train_mask, max_readers, max_reads, edge_owner)
    if max_readers == 0 or max_reads == 0:
        # Nothing is read, so the edges need not be read either.
        return BoundedLists(indptr=np.zeros(num_nodes + 1, np.int64), indices=np.empty(0, np.int32))
    records = iter_pieces(edges, num_nodes)
    if edge_owner == "reader" and max_reads is not None:
        rows = SmallestKeys(num_nodes=num_nodes, slots=max_reads, rows_read=True, readers=readers, seed=seed)
        rows.add_all(records)
        by_reader = rows.rows()
        # Free the table, which is larger than its rows, before the next one is allocated.
        del rows
        records = ((cols, row_ids) for row_ids, cols in iterate_records(by_reader, PIECE))
    columns = SmallestKeys(
        num_nodes=num_nodes, slots=max_readers, rows_read=False, readers=readers, seed=seed
    )
    columns.add_all(records)
    word, by_sender = columns.word, columns.rows()
    del columns
    reads = transpose_rows(by_sender)
    del by_sender
    if edge_owner == "sender" and max_reads is not None:
        reads = cap_rows(reads, max_reads, rows_read=True, word=word)
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
    """Reduce one shard of the edges to the records (source, target) that the lists may contain.

    Several processes or machines take a shard each; how the edges are distributed does not matter. Their
    results together, given to `stable_lists` with the same arguments, produce the lists of the full graph.

    Args:
        edges: the shard; otherwise as in `stable_lists`.
        num_nodes, train_mask, max_readers, max_reads, edge_owner, seed: as in `stable_lists`, for the full
            graph; the same for every shard.

    Guarantees:
        `stable_lists([shard_records(shard, ...) for shard in shards], ...)` equals `stable_lists` of all
        edges. A shard returns at most `max_readers` records per sender, or `max_reads` per reader if readers
        own the edges and it is not None.

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
    readers = _check_arguments(num_nodes, train_mask, max_readers, max_reads, edge_owner)
    # Only the first cap can be applied: the smallest keys of a row are among the smallest of its shards.
    by_reader = edge_owner == "reader" and max_reads is not None
    slots = max_reads if by_reader else max_readers
    kept = SmallestKeys(num_nodes=num_nodes, slots=slots, rows_read=by_reader, readers=readers, seed=seed)
    kept.add_all(iter_pieces(edges, num_nodes))
    sources, targets = zip(*kept.records(), strict=True) if kept.rows()[0][-1] else ((), ())
    empty = np.empty(0, np.int32)
    return np.concatenate([empty, *sources]), np.concatenate([empty, *targets])


def _check_arguments(
    num_nodes: int, train_mask: Any, max_readers: int, max_reads: int | None, edge_owner: str
) -> npt.NDArray[np.bool_]:
    """Check the arguments of a sampler; return the training split as booleans."""
    check_cap("max_readers", max_readers)
    if max_reads is not None:
        check_cap("max_reads", max_reads)
    if edge_owner not in ("sender", "reader"):
        raise PlanError(f"edge_owner={edge_owner!r}: expected 'sender' or 'reader'")
    return check_mask(train_mask, num_nodes)


def check_mask(train_mask: Any, num_nodes: int) -> npt.NDArray[np.bool_]:
    """Return the training split as booleans; raise GraphError for another type or shape."""
    mask = np.asarray(train_mask)
    if mask.dtype != np.bool_ or mask.shape != (num_nodes,):
        raise GraphError(
            f"train_mask has shape={mask.shape}, dtype={mask.dtype}: expected bool with shape ({num_nodes},)"
        )
    return mask


def check_cap(name: str, cap: int) -> None:
    """Raise PlanError for a negative cap."""
    if cap < 0:
        raise PlanError(f"{name}={cap}: expected 0 or more")


class SmallestKeys:
    """Accumulates records and keeps, of each row, the `slots` distinct ones with the smallest keys.

    Self-loops and records of readers outside `readers` are ignored.

    Args:
        num_nodes: identifiers run from 0 to num_nodes - 1.
        slots: how many records a row keeps, at most; None keeps all.
        rows_read: whether rows are readers (True) or senders (False).
        readers: bool [num_nodes], the nodes whose reads are kept.
        seed: the seed of the keys.

    Guarantees:
        The result depends neither on the order of the records nor on how they are cut into pieces.
    """

    def __init__(
        self, *, num_nodes: int, slots: int | None, rows_read: bool, readers: npt.NDArray[np.bool_], seed: int
    ) -> None:
        self.num_nodes = num_nodes
        self.slots = num_nodes if slots is None else min(slots, num_nodes)
        self.rows_read = rows_read
        self.readers = np.array(readers)
        self.word = seed_word(seed)
        self._kept: Rows = np.zeros(num_nodes + 1, dtype=np.int64), np.empty(0, dtype=np.int32)
        self._loose: list[tuple[Int32Array, Int32Array]] = []
        self._num_loose = 0
        self._has_table = 0 < self.slots <= WIDEST_TABLE
        if self._has_table:
            self._table = np.empty(num_nodes * self.slots, dtype=np.uint64)
            self._counts = np.zeros(num_nodes, dtype=np.uint8)
            self._limits = np.full(num_nodes, _NO_KEY)
            self._packed = np.empty(0, dtype=np.uint64)
            by_cache = (_BLOCK_BYTES // (8 * self.slots)).bit_length() - 1
            by_count = ((num_nodes - 1) // _MOST_BLOCKS).bit_length()
            self._block_bits = max(by_cache, by_count)
            self._threads = ThreadPoolExecutor(_cores())

    def add(self, source: Int32Array, target: Int32Array) -> None:
        """Add records, int32 [n] each, with identifiers in range."""
        if self._has_table:
            self._add_to_table(source, target)
        elif self.slots > 0:
            self._set_aside(source, target)

    def add_all(self, records: Iterable[tuple[Int32Array, Int32Array]]) -> None:
        """Add pieces of records, one after another."""
        for source, target in records:
            self.add(source, target)

    def records(self) -> Iterator[tuple[Int32Array, Int32Array]]:
        """Yield the records kept so far, as pieces of (source, target)."""
        for row_ids, cols in iterate_records(self.rows(), PIECE):
            yield (cols, row_ids) if self.rows_read else (row_ids, cols)

    def rows(self) -> Rows:
        """Return the records kept so far, as (indptr, columns); the columns of a row are in any order."""
        if not self._has_table:
            self._compact()
            return self._kept
        indptr = np.zeros(self.num_nodes + 1, dtype=np.int64)
        np.cumsum(self._counts, dtype=np.int64, out=indptr[1:])
        cols = np.empty(indptr[-1], dtype=np.int32)
        _extract(self._table, self.slots, self._counts, self.rows_read, self.word, cols)
        return indptr, cols

    def _add_to_table(self, source: Int32Array, target: Int32Array) -> None:
        """Sort records by block of rows, then insert block by block, so that random access stays in cache."""
        parts = _cores() if len(source) >= _PARALLEL else 1
        cuts = [len(source) * part // parts for part in range(parts + 1)]
        num_blocks = ((self.num_nodes - 1) >> self._block_bits) + 1
        sizes = np.zeros((parts, num_blocks), dtype=np.int64)
        if len(self._packed) < len(source):
            self._packed = np.empty(len(source), dtype=np.uint64)

        def count(part: int) -> None:
            rows = target if self.rows_read else source
            _count_blocks(rows[cuts[part] : cuts[part + 1]], self._block_bits, sizes[part])

        def order(part: int) -> None:
            piece = slice(cuts[part], cuts[part + 1])
            _to_blocks(
                source[piece],
                target[piece],
                self.rows_read,
                self.readers,
                self._block_bits,
                ends[part],
                self._packed,
            )

        def insert(part: int) -> None:
            kept = self._table, self._counts, self._limits
            slots = np.uint64(self.slots)
            _insert(begins, ends, part, parts, self._packed, self.rows_read, self.word, slots, *kept)

        self._each(count, parts)
        # The parts of a block follow one another, so that a block is contiguous in memory.
        begins = np.ascontiguousarray((np.cumsum(sizes.T) - sizes.T.ravel()).reshape(num_blocks, parts).T)
        ends = begins.copy()
        self._each(order, parts)
        self._each(insert, parts)

    def _each(self, work: Callable[[int], None], parts: int) -> None:
        if parts == 1:
            work(0)
        else:
            list(self._threads.map(work, range(parts)))

    def _set_aside(self, source: Int32Array, target: Int32Array) -> None:
        """Collect records until there are enough to be worth grouping with those kept."""
        counts = self.readers[target] & (source != target)
        records = source[counts], target[counts]
        self._loose.append(records[::-1] if self.rows_read else records)
        self._num_loose += len(records[0])
        if self._num_loose > max(_LOOSE, len(self._kept[1])):
            self._compact()

    def _compact(self) -> None:
        if not self._loose:
            return
        indptr, cols = self._kept
        kept = np.repeat(np.arange(self.num_nodes, dtype=np.int32), np.diff(indptr)), cols
        row_ids, cols = (np.concatenate(parts) for parts in zip(kept, *self._loose, strict=True))
        self._loose, self._num_loose = [], 0
        rows = group_records(row_ids, cols, self.num_nodes)
        self._kept = cap_rows(rows, self.slots, rows_read=self.rows_read, word=self.word)


def _cores() -> int:
    """Number of cores this process may use, at most 8."""
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return min(available or 1, 8)


@numba.njit(cache=True, nogil=True)
def _count_blocks(rows, bits, ends):  # type: ignore[no-untyped-def]
    """Count the records of each block of 2^bits rows."""
    for i in range(len(rows)):
        ends[rows[i] >> bits] += 1


@numba.njit(cache=True, nogil=True)
def _to_blocks(source, target, rows_read, readers, bits, ends, out):  # type: ignore[no-untyped-def]
    """Put the records to keep in their blocks, packed; `ends` moves from the start of a block to its end."""
    for i in range(len(source)):
        sender = source[i]
        reader = target[i]
        if sender != reader and readers[reader]:
            block = (reader if rows_read else sender) >> bits
            out[ends[block]] = (np.uint64(sender) << _32) | np.uint64(reader)
            ends[block] += 1


@numba.njit(cache=True, nogil=True)
def _insert(begins, ends, first, step, packed, rows_read, word, slots, table, counts, limits):  # type: ignore[no-untyped-def]
    """Insert the records of every `step`-th block; the keys of a row stay sorted."""
    for block in range(first, begins.shape[1], step):
        for part in range(begins.shape[0]):
            for i in range(begins[part, block], ends[part, block]):
                row = packed[i] & _LOW if rows_read else packed[i] >> _32
                key = packed_key(packed[i], word)
                if key > limits[row]:
                    continue
                start = row * slots
                count = np.uint64(counts[row])
                at = start + count
                while at > start and table[at - _ONE] > key:
                    at -= _ONE
                if at > start and table[at - _ONE] == key:
                    continue
                if count < slots:
                    count += _ONE
                    counts[row] = count
                last = start + count - _ONE
                j = last
                while j > at:
                    table[j] = table[j - _ONE]
                    j -= _ONE
                table[at] = key
                if count == slots:
                    limits[row] = table[last]


@numba.njit(cache=True, nogil=True)
def _extract(table, slots, counts, rows_read, word, cols):  # type: ignore[no-untyped-def]
    at = 0
    for row in range(len(counts)):
        for j in range(row * slots, row * slots + counts[row]):
            key = table[j]
            cols[at] = key_sender(key, word) if rows_read else key_reader(key, word)
            at += 1
