"""Records of a relation by the rows that own them, some rows at a time: their places and weights."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numba
import numpy as np
import numpy.typing as npt

from hushgraph import _arrays

Int64Array = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
# Entries of lists that are sorted at a time, for each relation: 16 MiB of places.
_HELD_ENTRIES = 1 << 22


@dataclass(eq=False)
class OwnedRecords:
    """The records of a relation by the rows that own them.

    Attributes:
        indptr, indices, weights: of the relation; weights are None where every record counts 1.
        is_by_owner: whether row v owns `indices[indptr[v]:indptr[v + 1]]`; else they own it who are named.
    """

    indptr: npt.NDArray[Any]
    indices: npt.NDArray[Any]
    weights: FloatArray | None
    is_by_owner: bool

    @cached_property
    def _cursors(self) -> Int64Array:
        """The next record of every name."""
        return self.indptr[:-1].astype(np.int64)

    def count(self) -> Int64Array:
        """int64 [N]: how many records every row owns."""
        if self.is_by_owner:
            return np.diff(self.indptr).astype(np.int64, copy=False)
        sizes = _arrays.zeros(len(self.indptr) - 1, np.int64)
        _count_owners(self.indices, sizes)
        return sizes

    def put(
        self,
        rows: tuple[int, int],
        free: Int64Array,
        places: npt.NDArray[Any],
        weights: FloatArray | None = None,
        *,
        start: int = 0,
    ) -> None:
        """Put the records of consecutive rows behind those that these rows have already.

        Args:
            rows: the first row and the one behind the last. Where `is_by_owner` is not, calls begin at row 0
                and go on where the last one ended.
            free: int64 [rows], the next free entry of every row, which moves.
            places, weights: what is written.
            start: added to every place.
        """
        if self.is_by_owner:
            _put_rows(self.indptr, self.indices, self.weights, start, *rows, free, places, weights)
        else:
            names = (self.indptr, self.indices, self.weights, start, self._cursors)
            _put_names(*names, *rows, free, places, weights)


def cut_ends(ends: Int64Array, *, most_rows: int, relations: int = 1) -> list[int]:
    """Where parts of consecutive rows begin, and the end: few enough rows and, but for one row, entries.

    Args:
        ends: int64 [N + 1], where the entries of rows begin, and the end.
        most_rows: of a part.
        relations: that rows have entries of.
    """
    by_entries = np.searchsorted(ends, np.arange(0, ends[-1], relations * _HELD_ENTRIES))
    return sorted({*by_entries.tolist(), *range(0, len(ends) - 1, most_rows), len(ends) - 1})


@numba.njit(cache=True, nogil=True)
def _count_owners(owners, sizes):  # type: ignore[no-untyped-def]
    for owner in owners:
        sizes[owner] += 1


@numba.njit(cache=True, nogil=True)
def _put_rows(indptr, indices, given, start, first, end, free, places, weights):  # type: ignore[no-untyped-def]
    """`OwnedRecords.put` of rows that own what they name."""
    for row in range(first, end):
        at = free[row - first]
        for i in range(indptr[row], indptr[row + 1]):
            places[at] = start + indices[i]
            if weights is not None:
                weights[at] = 1.0 if given is None else given[i]
            at += 1
        free[row - first] = at


@numba.njit(cache=True, nogil=True)
def _put_names(indptr, indices, given, start, cursors, first, end, free, places, weights):  # type: ignore[no-untyped-def]
    """`OwnedRecords.put` of records that those own who are named, which are ascending.

    What is written at random is few rows wide, and every record is looked at once.
    """
    for row in range(len(indptr) - 1):
        i, stop = cursors[row], indptr[row + 1]
        while i < stop and indices[i] < end:
            owner = indices[i] - first
            at = free[owner]
            free[owner] = at + 1
            places[at] = start + row
            if weights is not None:
                weights[at] = 1.0 if given is None else given[i]
            i += 1
        cursors[row] = i
