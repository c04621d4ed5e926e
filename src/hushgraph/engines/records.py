"""Owned records on disk, sorted out by owner and by place, for more edges than memory holds.

A record is a pair (owner, place) of row numbers below 2^31, packed into 64 bits. Owners, and places, are cut
into ranges of 2^bits numbers; every range has a file. Two passes over the disk are enough for any number of
records.
"""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numba
import numpy as np
import numpy.typing as npt

from hushgraph._files import write_whole

Packed = npt.NDArray[np.uint64]
Int64Array = npt.NDArray[np.int64]
Int32Array = npt.NDArray[np.int32]

# At most 2^8 files are open at a time.
_PARTS_BITS = 8
# Ranges of fewer numbers than this are not worth a file of their own.
_LEAST_BITS = 17
# Records of a file that are read at a time: 32 MiB.
_BLOCK = 1 << 22
# Bytes that sorting a record takes: the record, its sorted copy and a mask.
_BYTES_TO_SORT = 24

_32 = np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)


@dataclass(frozen=True, kw_only=True)
class Records:
    """The records of a graph without repeats and self-loops. Private: as much so as the edges.

    Attributes:
        folder: where they are.
        num_nodes: N; owners and places are numbered from 0 to N - 1.
        bits: a range has 2^bits numbers.
        count: how many records there are.
    """

    folder: Path
    num_nodes: int
    bits: int
    count: int

    @classmethod
    def write(
        cls,
        folder: Path,
        chunks: Iterable[Packed],
        *,
        num_nodes: int,
        most_in_memory: int,
        bits: int | None = None,
    ) -> Records:
        """Write records that come in any order, with repeats and self-loops.

        Args:
            folder: where to write; what an interrupted call left there is removed.
            chunks: records as owner << 32 | place; read once.
            num_nodes: N.
            most_in_memory: bytes that sorting may take.
            bits: numbers per range; chosen by N unless given.
        """
        if bits is None:
            bits = max(_LEAST_BITS, (num_nodes - 1).bit_length() - _PARTS_BITS)
        shutil.rmtree(folder, ignore_errors=True)
        for name in ("unsorted", "by_owner", "by_place"):
            (folder / name).mkdir(parents=True)
        with _Parts(folder / "unsorted", first=0, bits=bits) as parts:
            for chunk in chunks:
                parts.add(chunk)
        sizes = np.zeros(num_nodes, np.int32)
        places = _Parts(folder / "by_place", first=0, bits=bits)
        sorter = _Sorter(sizes, max(1, most_in_memory // _BYTES_TO_SORT), places)
        with sorter.places:
            for begin in range(0, num_nodes, 1 << bits):
                part = begin >> bits
                with (folder / "by_owner" / f"{part}").open("wb") as file:
                    sorter.sort(folder / "unsorted" / f"{part}", begin, bits, file)
        (folder / "unsorted").rmdir()
        np.save(folder / "list_sizes.npy", sizes)
        records = cls(folder=folder, num_nodes=num_nodes, bits=bits, count=int(sizes.sum(dtype=np.int64)))
        about = {"num_nodes": num_nodes, "bits": bits, "count": records.count}
        write_whole(folder / "records.json", json.dumps(about).encode())
        return records

    @classmethod
    def open(cls, folder: Path) -> Records | None:
        """The records that `write` finished writing; None if there are none."""
        try:
            about: dict[str, int] = json.loads((folder / "records.json").read_text())
        except FileNotFoundError:
            return None
        return cls(folder=folder, **about)

    def list_sizes(self) -> Int32Array:
        """int32 [N]: how many places every row lists."""
        sizes: Int32Array = np.load(self.folder / "list_sizes.npy")
        return sizes

    def ranges(self) -> Iterator[tuple[int, int]]:
        """The first number, and the end, of every range."""
        for begin in range(0, self.num_nodes, 1 << self.bits):
            yield begin, min(begin + (1 << self.bits), self.num_nodes)

    def of_owners(self, begin: int) -> Iterator[tuple[Int64Array, Int64Array]]:
        """Owners and places of the range of owners that begins there; an owner's places are ascending."""
        return _split_ends(self.folder / "by_owner" / f"{begin >> self.bits}")

    def of_places(self, begin: int) -> Iterator[tuple[Int64Array, Int64Array]]:
        """Owners and places of the range of places that begins there."""
        return _split_ends(self.folder / "by_place" / f"{begin >> self.bits}")


class _Parts:
    """Files of records, each for a range of 2^bits of the numbers in the upper half."""

    def __init__(self, folder: Path, *, first: int, bits: int, prefix: str = "") -> None:
        self.folder, self.first, self.bits, self.prefix = folder, first, bits, prefix
        self._open: dict[int, BinaryIO] = {}
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> _Parts:
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.close()

    def add(self, packed: Packed) -> None:
        """Append records in any order to their files, without self-loops."""
        ends = np.zeros((1 << _PARTS_BITS) + 1, np.int64)
        grouped = np.empty_like(packed)
        # Afterwards `ends` holds the end of each part.
        _group(packed, self.first, self.bits, ends, grouped)
        self._append(grouped, ends[:-1])

    def add_sorted(self, packed: Packed) -> None:
        """Append records that are sorted."""
        starts = np.arange(1, (1 << _PARTS_BITS) + 1, dtype=np.uint64) << np.uint64(self.bits)
        self._append(packed, np.searchsorted(packed, (starts + np.uint64(self.first)) << _32))

    def _append(self, packed: Packed, ends: Int64Array) -> None:
        begin = 0
        for part, end in enumerate(ends.tolist()):
            if end > begin:
                if part not in self._open:
                    file = (self.folder / f"{self.prefix}{part}").open("wb", buffering=0)
                    self._open[part] = self._stack.enter_context(file)
                _write_all(self._open[part], packed[begin:end])
            begin = end


@dataclass(eq=False)
class _Sorter:
    """Sorts the records of ranges of owners, counts lists, and passes records on to the ranges of places."""

    sizes: Int32Array
    most: int
    places: _Parts

    def sort(self, path: Path, first: int, bits: int, out: BinaryIO) -> None:
        """Sort one file of owners from `first` on into `out`; remove the file."""
        count = path.stat().st_size // 8 if path.exists() else 0
        if count > self.most:
            self._sort_large(path, first, bits, out)
        elif count:
            packed = np.fromfile(path, np.uint64)
            # The place comes first, so that records go on to the files of places in runs.
            packed = (packed << _32) | (packed >> _32)
            packed.sort()
            self._keep(packed[_is_first(packed)], out)
        path.unlink(missing_ok=True)

    def _sort_large(self, path: Path, first: int, bits: int, out: BinaryIO) -> None:
        """Cut a range into finer ones; of a single owner, mark the places."""
        if not bits:
            seen = np.zeros(len(self.sizes), np.bool_)
            for block in _blocks(path):
                seen[(block & _LOW).astype(np.int64)] = True
            self._keep((np.flatnonzero(seen).astype(np.uint64) << _32) | np.uint64(first), out)
            return
        finer = max(0, bits - _PARTS_BITS)
        with _Parts(path.parent, first=first, bits=finer, prefix=f"{path.name}-") as parts:
            for block in _blocks(path):
                parts.add(block)
        for part in range(1 << (bits - finer)):
            self.sort(path.with_name(f"{path.name}-{part}"), first + (part << finer), finer, out)

    def _keep(self, packed: Packed, out: BinaryIO) -> None:
        _count_owners(packed, self.sizes)
        _write_all(out, packed)
        self.places.add_sorted(packed)


def _blocks(path: Path) -> Iterator[Packed]:
    with path.open("rb") as file:
        while len(block := np.fromfile(file, np.uint64, _BLOCK)):
            yield block


def _split_ends(path: Path) -> Iterator[tuple[Int64Array, Int64Array]]:
    """Owners and places of a file of sorted records; a file that is missing has none."""
    if path.exists():
        for block in _blocks(path):
            yield (block & _LOW).astype(np.int64), (block >> _32).astype(np.int64)


def _is_first(packed: Packed) -> npt.NDArray[np.bool_]:
    """Which records of a sorted array differ from the one before."""
    first = np.ones(len(packed), np.bool_)
    np.not_equal(packed[1:], packed[:-1], out=first[1:])
    return first


def _write_all(file: BinaryIO, packed: Packed) -> None:
    """Write all of an array; an unbuffered file may take a part of it."""
    view = np.ascontiguousarray(packed).view(np.uint8).data
    while len(view):
        view = view[file.write(view) :]


@numba.njit(cache=True, nogil=True)
def swap_ends(packed):  # type: ignore[no-untyped-def]
    """The same records with owner and place exchanged."""
    out = np.empty_like(packed)
    for i in range(len(packed)):
        out[i] = (packed[i] << _32) | (packed[i] >> _32)
    return out


@numba.njit(cache=True, nogil=True)
def _count_owners(packed, sizes):  # type: ignore[no-untyped-def]
    for i in range(len(packed)):
        sizes[np.int64(packed[i] & _LOW)] += 1


@numba.njit(cache=True, nogil=True)
def _group(packed, first, bits, ends, out):  # type: ignore[no-untyped-def]
    """Group records by the range of their upper half, self-loops left out; fill `ends` with the ends."""
    for i in range(len(packed)):
        if (packed[i] >> _32) != (packed[i] & _LOW):
            ends[((np.int64(packed[i] >> _32) - first) >> bits) + 1] += 1
    for part in range(1, len(ends)):
        ends[part] += ends[part - 1]
    for i in range(len(packed)):
        if (packed[i] >> _32) != (packed[i] & _LOW):
            part = (np.int64(packed[i] >> _32) - first) >> bits
            out[ends[part]] = packed[i]
            ends[part] += 1
