"""The K smallest keys of each row, in one pass over the records."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor

import numba
import numpy as np
import numpy.typing as npt

from hushgraph.errors import InputError
from hushgraph.graph.chunks import PIECE, Int32Array
from hushgraph.sampling.keys import key_reader, key_sender, packed_key, seed_word
from hushgraph.sampling.rows import Rows, capped, grouped, loose

# Above this many slots a table of rows x slots is mostly air; compressed rows hold what is kept instead.
WIDEST_TABLE = 32

# Records set aside before they are grouped with those kept.
_LOOSE = 1 << 22
# Records that are worth a second thread.
_PARALLEL = 1 << 15
# A block of the table that stays in a core's own cache while its records are inserted.
_BLOCK_BYTES = 1 << 19
_MOST_BLOCKS = 1 << 11

_NO_KEY = np.uint64(0xFFFFFFFFFFFFFFFF)
_32 = np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)
_ONE = np.uint64(1)


@numba.njit(cache=True, nogil=True)
def _count_blocks(rows, bits, ends):  # type: ignore[no-untyped-def]
    """How many records fall in each block of 2^bits rows."""
    for i in range(len(rows)):
        ends[rows[i] >> bits] += 1


@numba.njit(cache=True, nogil=True)
def _to_blocks(source, target, rows_read, readers, bits, ends, out):  # type: ignore[no-untyped-def]
    """Put the wanted records in their blocks, packed; `ends` moves from a block's begin to its end."""
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


class SmallestKeys:
    """Accumulates records and keeps, of each row, the `slots` distinct ones with the smallest keys.

    Only records whose reader is wanted count; self-loops never do.

    Args:
        num_nodes: identifiers run from 0 to num_nodes - 1.
        slots: how many records a row keeps, at most; None keeps all.
        rows_read: rows are readers (True) or senders (False).
        readers: bool [num_nodes], whose reads count.
        seed: of the keys.

    Guarantees:
        What is kept does not depend on the order of the records, on how they are cut into pieces, or on which
        of several merged accumulators saw them.
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
        """Take in records: int32 [n] each, identifiers in range."""
        if self._has_table:
            self._add_to_table(source, target)
        elif self.slots > 0:
            self._set_aside(source, target)

    def add_all(self, records: Iterable[tuple[Int32Array, Int32Array]]) -> None:
        """Take in pieces of records, one after another."""
        for source, target in records:
            self.add(source, target)

    def merge(self, other: SmallestKeys) -> None:
        """Take in what another accumulator of the same kind has kept."""
        if self._kind() != other._kind():
            raise InputError(
                f"other=(num_nodes, slots, rows_read, seed word)={other._kind()}: expected {self._kind()}; "
                "merge accumulators of the same kind"
            )
        self.add_all(other.records())

    def records(self) -> Iterator[tuple[Int32Array, Int32Array]]:
        """What is kept so far, as pieces of (source, target)."""
        for row_ids, cols in loose(self.rows(), PIECE):
            yield (cols, row_ids) if self.rows_read else (row_ids, cols)

    def rows(self) -> Rows:
        """What is kept so far, as (indptr, columns); the columns of a row come in no particular order."""
        if not self._has_table:
            self._compact()
            return self._kept
        indptr = np.zeros(self.num_nodes + 1, dtype=np.int64)
        np.cumsum(self._counts, dtype=np.int64, out=indptr[1:])
        cols = np.empty(indptr[-1], dtype=np.int32)
        _extract(self._table, self.slots, self._counts, self.rows_read, self.word, cols)
        return indptr, cols

    def _kind(self) -> tuple[int, int, bool, int]:
        return self.num_nodes, self.slots, self.rows_read, int(self.word)

    def _add_to_table(self, source: Int32Array, target: Int32Array) -> None:
        """Order the records by block of rows, then insert block by block: random access stays in cache."""
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
        # Within a block the parts follow one another, so that a block is one stretch of memory.
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
        """Keep wanted records loose until there are enough to pay for grouping them with those kept."""
        wanted = self.readers[target] & (source != target)
        records = source[wanted], target[wanted]
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
        rows = grouped(row_ids, cols, self.num_nodes)
        self._kept = capped(rows, self.slots, rows_read=self.rows_read, word=self.word)


def _cores() -> int:
    """Cores this process may use, at most 8."""
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return min(available or 1, 8)
