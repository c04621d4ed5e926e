"""Boards that stay open for many small readings: only the places that rows list are looked at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from hushgraph._arrays import Int64Array
from hushgraph.billboard.board import Board
from hushgraph.billboard.combined import combine_boards
from hushgraph.billboard.lists import find_starts
from hushgraph.billboard.names import NameIndex
from hushgraph.billboard.new_rows import Readings, read_rows
from hushgraph.graph.checks import check_integers


class ReadyBoards:
    """The released boards of a run, as rows read them that were not there at training.

    Args:
        boards: of one run. Their numbers may be mapped from a file: a reading touches few of them.
        centred: as in `combine_boards`.

    Guarantees:
        A reading is that of `read_rows` from the combined boards, number for number: what a place shows, and
        its weight, are functions of its own numbers. Nothing changes after the object was made, so several
        threads may read.
    """

    def __init__(self, boards: Sequence[Board], *, centred: bool) -> None:
        self.boards = tuple(boards)
        self.centred = centred
        self._index = NameIndex(self.names, self.num_places)

    @property
    def names(self) -> npt.NDArray[Any] | None:
        """What the places are called; None where they are numbered from 0."""
        return self.boards[0].names

    @property
    def num_places(self) -> int:
        """N, the number of places."""
        return self.boards[0].num_places

    def places_of(self, identifiers: npt.ArrayLike) -> Int64Array:
        """Like `Board.places_of`, but its index is built once and kept."""
        return self._index.find(identifiers)

    def read_rows(
        self,
        indptr: npt.ArrayLike,
        places: npt.ArrayLike,
        *,
        damped: bool,
        shares: npt.ArrayLike | None = None,
    ) -> tuple[Board, Readings]:
        """The listed places of all boards together, as one small board, and what the rows read there.

        Args:
            indptr, places, damped: as in the function `read_rows`.
            shares: as `place_shares` there.
        """
        listed = check_integers("places", places, ndim=1)
        is_place = (listed >= 0) & (listed < self.num_places)
        taken, numbers = np.unique(listed[is_place], return_inverse=True)
        blocks = self.boards[0].blocks
        ends = np.searchsorted(taken, find_starts(blocks))
        # Numbers are as good as names here.
        small = tuple(
            replace(block, size=size, names=None)
            for block, size in zip(blocks, np.diff(ends).tolist(), strict=True)
        )
        parts = [replace(each, values=each.values[taken], names=None, blocks=small) for each in self.boards]
        board, _ = combine_boards(parts, centred=self.centred, in_place=True)
        # Ascending as the places are, so that sums are formed in the same order.
        renumbered = np.full(len(listed), -1, np.int64)
        renumbered[is_place] = numbers
        return board, read_rows(board, indptr, renumbered, place_shares=shares, damped=damped)
