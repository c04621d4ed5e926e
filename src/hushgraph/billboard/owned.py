"""The records of one relation, as they are stored and with what each counts, and lists of some rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numba
import numpy as np
import numpy.typing as npt

from hushgraph import _arrays
from hushgraph._arrays import Int32Array, Int64Array

# One unit is 2^-24 of a ballot's norm. With fewer than 2^31 rows, sums stay below 2^56: int64 holds them.
GRID_BITS = 24
GRID = 1 << GRID_BITS
# Entries of lists that are made at a time: 16 MiB of places.
_HELD_ENTRIES = 1 << 22


@dataclass(frozen=True, kw_only=True, eq=False)
class Records:
    """The records of one relation and what each counts. Private.

    Attributes:
        indptr, indices: in compressed rows, ascending within each; they are not copied.
        is_by_owner: whether row v owns `indices[indptr[v]:indptr[v + 1]]`, which are places; else these are
            the rows that list place v.
        shares: int32 [N], the coefficient of all records that a row owns, in units of 1 / GRID; None where
            records differ.
        coefficients: int32, of every record; None where `shares` has them. Both are None where each is GRID.
    """

    indptr: npt.NDArray[Any]
    indices: npt.NDArray[Any]
    is_by_owner: bool
    shares: Int32Array | None = None
    coefficients: Int32Array | None = None

    @property
    def arrays(self) -> tuple[Any, ...]:
        """`indptr`, `indices`, `shares` and `coefficients`, as kernels take them."""
        return self.indptr, self.indices, self.shares, self.coefficients

    @property
    def num_rows(self) -> int:
        """N: how many rows or, as places are rows where records are stored by place, places there are."""
        return len(self.indptr) - 1

    def count(self) -> Int64Array:
        """int64 [N]: how many records every row owns."""
        if self.is_by_owner:
            sizes = _arrays.empty(self.num_rows, np.int64)
            np.subtract(self.indptr[1:], self.indptr[:-1], out=sizes)
        else:
            sizes = _arrays.zeros(self.num_rows, np.int64)
            _count_owners(self.indices, sizes)
        return sizes

    def shorten(self, is_long: npt.NDArray[np.bool_], bits: int) -> None:
        """Scale down the coefficients of these rows by 2^-bits, and by one unit at least."""
        owners = (
            np.repeat(np.arange(self.num_rows), np.diff(self.indptr)) if self.is_by_owner else self.indices
        )
        for kept, at in ((self.shares, is_long), (self.coefficients, is_long[owners])):
            if kept is not None:
                kept[at] -= (kept[at] >> bits) + (kept[at] > 0)

    def of_rows(self, begin: int, end: int) -> Records:
        """Those of consecutive rows, numbered from 0, where they are stored by owner."""
        shares = None if self.shares is None else self.shares[begin:end]
        return replace(self, indptr=self.indptr[begin : end + 1], shares=shares)

    def find_row(self, row: int) -> Int64Array:
        """For every place the first of its records that this row or a later one owns, stored by place."""
        cursors = self.indptr[:-1].astype(np.int64)
        if row:
            _find_row(self.indptr, self.indices, row, cursors)
        return cursors

    def put(
        self, start: int, wanted: Int64Array, free: Int64Array, places: npt.NDArray[Any], shares: Int32Array
    ) -> None:
        """Put the records of some rows behind those that these rows have already.

        Args:
            start: added to every place.
            wanted: int64 [N], the number of every row among those that are wanted, -1 for others.
            free: the next free entry of every wanted row, which moves.
            places, shares: what is written.
        """
        _put(*self.arrays, self.is_by_owner, start, wanted, free, places, shares)


class NextRows:
    """The lists of rows, made from records that are stored by place when they are asked for, first to last.

    All of them would be as large as the records.
    """

    def __init__(self, records: Records, sizes: Int64Array) -> None:
        self._records = records
        self.ends = _arrays.find_ends(sizes)
        self._cursors = records.find_row(0)

    def of_rows(self, begin: int, end: int) -> Records:
        """Those of the next rows: from `begin`, where the last call ended, to the one before `end`."""
        indptr = self.ends[begin : end + 1] - self.ends[begin]
        places = np.empty(indptr[-1], self._records.indices.dtype)
        names = (self._records.indptr, self._records.indices, self._cursors)
        _put_names(*names, begin, end, indptr[:-1].copy(), places)
        return Records(indptr=indptr, indices=places, is_by_owner=True)

    def cut(self) -> list[int]:
        """Where parts of the rows begin, and the end: few enough rows and, but for one row, entries.

        All places are gone through for every part, so that parts are as large as memory allows.
        """
        by_entries = np.searchsorted(self.ends, np.arange(0, self.ends[-1], _HELD_ENTRIES))
        rows = len(self.ends) - 1
        return sorted({*by_entries.tolist(), *range(0, rows, _HELD_ENTRIES), rows})


@numba.njit(cache=True, nogil=True)
def find_share(shares, coefficients, row, i):  # type: ignore[no-untyped-def]
    """The coefficient of record i, which `row` owns, in units."""
    if coefficients is not None:
        return np.int64(coefficients[i])
    if shares is not None:
        return np.int64(shares[row])
    return np.int64(GRID)


@numba.njit(cache=True, nogil=True)
def _count_owners(owners, sizes):  # type: ignore[no-untyped-def]
    for owner in owners:
        sizes[owner] += 1


@numba.njit(cache=True, nogil=True)
def _find_row(indptr, owners, row, cursors):  # type: ignore[no-untyped-def]
    for place in range(len(cursors)):
        cursors[place] += np.searchsorted(owners[indptr[place] : indptr[place + 1]], row)


@numba.njit(cache=True, nogil=True)
def _put(indptr, indices, shares, coefficients, is_by_owner, start, wanted, free, places, kept):  # type: ignore[no-untyped-def]
    """`Records.put`; what a row gets is ascending, whichever way records are stored."""
    for number in range(len(indptr) - 1):
        for i in range(indptr[number], indptr[number + 1]):
            row, place = (number, indices[i]) if is_by_owner else (indices[i], number)
            if wanted[row] >= 0:
                at = free[wanted[row]]
                free[wanted[row]] = at + 1
                places[at], kept[at] = start + place, find_share(shares, coefficients, row, i)


@numba.njit(cache=True, nogil=True)
def _put_names(indptr, owners, cursors, first, end, free, places):  # type: ignore[no-untyped-def]
    """Put what rows from `first` to the one before `end` list where `free` says.

    What is written at random is few rows wide, and every record is looked at once.
    """
    for place in range(len(indptr) - 1):
        i, stop = cursors[place], indptr[place + 1]
        while i < stop and owners[i] < end:
            row = owners[i] - first
            at = free[row]
            free[row] = at + 1
            places[at] = place
            i += 1
        cursors[place] = i
