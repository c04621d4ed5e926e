"""External sort: reads ordered by reader, for more edges than memory holds."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numba
import numpy as np
import numpy.typing as npt

from hushgraph.graph.chunks import Edges, Int32Array, iter_pieces
from hushgraph.graph.mapped import INDICES, INDPTR, ArrayFile

# Reads are distributed over 2^8 files by reader: few enough to be open at the same time.
_PARTS_BITS = 8
# Reads sorted in memory at a time: 128 MiB.
LARGEST_PART = 1 << 24

_32 = np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)


def write_reads(
    folder: Path, edges: Edges, *, num_nodes: int, symmetrize: bool = False
) -> tuple[int, int, int]:
    """Write `reads_indptr.npy` and `reads_indices.npy`; every reader's list is sorted and without repeats.

    Reads are distributed over files by reader, and each file is sorted in memory. Two passes over the disk
    sort any number of edges. Memory is bounded by `LARGEST_PART`, or by the edges of one reader.

    Args:
        folder: an existing folder. A temporary folder is created in it and removed at the end.
        edges: any form that the samplers accept; read once.
        num_nodes: node ids run from 0 to num_nodes - 1.
        symmetrize: add the reverse of every edge.

    Returns:
        The numbers of reads kept, of repeats dropped and of self-loops dropped. With `symmetrize`, repeats
        cannot be distinguished from reverses that were given, and 0 is returned for them.
    """
    scratch = folder / "parts"
    scratch.mkdir()
    try:
        given = loops = 0
        bits = max(0, (num_nodes - 1).bit_length() - _PARTS_BITS)
        with _Parts(scratch, "", first=0, bits=bits) as parts:
            for source, target in iter_pieces(edges, num_nodes):
                kept = parts.add(_pack_reads(source, target))
                given, loops = given + kept, loops + len(source) - kept
                if symmetrize:
                    parts.add(_pack_reads(target, source))
        with ArrayFile(folder / INDPTR, np.int64) as indptr, ArrayFile(folder / INDICES, np.int32) as indices:
            indptr.append(np.zeros(1, np.int64))
            for path, first, width in parts.files(num_nodes):
                _sort_part(path, first, width, indptr, indices)
        return indices.rows, 0 if symmetrize else given - indices.rows, loops
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


class _Parts:
    """Reads distributed over files, each for a range of 2^bits readers, beginning at reader `first`."""

    def __init__(self, folder: Path, prefix: str, *, first: int, bits: int) -> None:
        self.folder, self.prefix, self.first, self.bits = folder, prefix, first, bits
        self._open: dict[int, BinaryIO] = {}
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> _Parts:
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.close()

    def add(self, packed: npt.NDArray[np.uint64]) -> int:
        """Append reads to their files; return their number."""
        ends = np.zeros((1 << _PARTS_BITS) + 1, dtype=np.int64)
        grouped = np.empty_like(packed)
        # Afterwards, `ends` holds the end of each part.
        _group_by_part(packed, self.first, self.bits, ends, grouped)
        begin = 0
        for part, end in enumerate(ends[:-1].tolist()):
            if end > begin:
                if part not in self._open:
                    file = (self.folder / f"{self.prefix}{part}").open("wb", buffering=0)
                    self._open[part] = self._stack.enter_context(file)
                self._open[part].write(grouped[begin:end].data)
            begin = end
        return len(packed)

    def files(self, end: int) -> Iterator[tuple[Path, int, int]]:
        """Yield the file, first reader and width of every range below `end`; an empty range has no file."""
        for part in range(1 << _PARTS_BITS):
            begin = self.first + (part << self.bits)
            if begin < end:
                yield self.folder / f"{self.prefix}{part}", begin, min(1 << self.bits, end - begin)


@numba.njit(cache=True, nogil=True)
def _pack(source, target, out):  # type: ignore[no-untyped-def]
    """Write reads as reader << 32 | sender without self-loops; return their number."""
    at = 0
    for i in range(len(source)):
        if source[i] != target[i]:
            out[at] = (np.uint64(target[i]) << _32) | np.uint64(source[i])
            at += 1
    return at


@numba.njit(cache=True, nogil=True)
def _group_by_part(packed, first, bits, ends, out):  # type: ignore[no-untyped-def]
    """Group reads by part, keeping their order within a part; fill `ends` with the end of each part."""
    for i in range(len(packed)):
        ends[((np.int64(packed[i] >> _32) - first) >> bits) + 1] += 1
    for part in range(1, len(ends)):
        ends[part] += ends[part - 1]
    for i in range(len(packed)):
        part = (np.int64(packed[i] >> _32) - first) >> bits
        out[ends[part]] = packed[i]
        ends[part] += 1


def _pack_reads(source: Int32Array, target: Int32Array) -> npt.NDArray[np.uint64]:
    out = np.empty(len(source), dtype=np.uint64)
    return out[: _pack(source, target, out)]


def _sort_part(path: Path, first: int, width: int, indptr: ArrayFile, indices: ArrayFile) -> None:
    """Append the rows of readers first..first + width - 1; a missing file means that they have no reads."""
    count = path.stat().st_size // 8 if path.exists() else 0
    if count > LARGEST_PART and width > 1:
        bits = max(0, (width - 1).bit_length() - _PARTS_BITS)
        with _Parts(path.parent, f"{path.name}-", first=first, bits=bits) as parts, path.open("rb") as file:
            while len(block := np.fromfile(file, np.uint64, LARGEST_PART)):
                parts.add(block)
        path.unlink()
        for finer in parts.files(first + width):
            _sort_part(*finer, indptr, indices)
        return
    packed = np.fromfile(path, np.uint64) if count else np.empty(0, np.uint64)
    path.unlink(missing_ok=True)
    packed.sort()
    if len(packed):
        is_first = np.empty(len(packed), np.bool_)
        is_first[0] = True
        np.not_equal(packed[1:], packed[:-1], out=is_first[1:])
        packed = packed[is_first]
    before = indices.rows
    counts = np.bincount((packed >> _32).astype(np.int64) - first, minlength=width)
    indices.append((packed & _LOW).astype(np.int32))
    indptr.append(np.cumsum(counts) + before)
