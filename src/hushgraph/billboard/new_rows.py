"""What new rows read, which are given by their lists: nodes that arrived after the board was released."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hushgraph._arrays import Int64Array, find_ends
from hushgraph.billboard.board import Board
from hushgraph.billboard.combined import place_weights
from hushgraph.billboard.lists import find_starts, lists_of_rows
from hushgraph.billboard.reading import Placed, divide, sum_lists
from hushgraph.errors import GraphError

# Entries of lists up to which loading a compiled kernel, half a second, takes longer than adding them up.
_FEW_ENTRIES = 1000


@dataclass(frozen=True, kw_only=True, eq=False)
class Readings:
    """What rows see, and how much of what they list the board knows.

    Attributes:
        values: float32 [R, c].
        known: int64 [R], how many different places of the row are on the board.
        unknown: int64 [R], how many entries of its list are not; they are skipped.
    """

    values: npt.NDArray[np.float32]
    known: Int64Array
    unknown: Int64Array


def read_rows(
    board: Board,
    indptr: npt.ArrayLike,
    places: npt.ArrayLike,
    *,
    place_shares: npt.ArrayLike | None = None,
    damped: bool = True,
) -> Readings:
    """The readings of rows given as lists of places, such as nodes that arrived after the board.

    They cast nothing, so nothing is taken off.

    Args:
        board: what was released.
        indptr: integers [R + 1]; row i lists `places[indptr[i]:indptr[i + 1]]`.
        places: numbers of places, in any order; repeats count once. A number that is no place, such as -1
            from `Board.places_of`, is counted and skipped. On a board of several relations, they are numbers
            on the whole board.
        place_shares: the weight of every entry, after the declared function, on a board whose rows have
            weights; 1 unless given.
        damped: turn down loud places.

    Guarantees:
        Each reading is a function of the board and that row alone. A list read here and the same list read
        from a graph give the same numbers.

    Examples:
        >>> import numpy as np
        >>> board = Board(values=np.array([[1, -1], [0, 2]], np.float32), noise_std=1.0)
        >>> seen = read_rows(board, [0, 2, 5], [0, 1, 1, 1, 7], damped=False)
        >>> print(seen.values.round(3), seen.known, seen.unknown)
        [[0.707 0.707]
         [0.    2.   ]] [2 1] [0 1]
    """
    starts, given = _checked_lists(indptr, places)
    listed = lists_of_rows(board.blocks, board.num_places, starts, given, place_shares)
    values = np.empty((len(listed.sizes), board.num_relations, board.width), np.float32)
    weights, few = place_weights(board, damped=damped), listed.sizes.sum() <= _FEW_ENTRIES
    blocks = find_starts(board.blocks).tolist() if board.blocks else [0, board.num_places]
    for relation, (first, last) in enumerate(itertools.pairwise(blocks)):
        records = listed.relations[relation]
        each = Placed(records, weights[first:last], board.values[first:last])
        divide(sum_lists(each, records, few=few), values[:, relation])
    unknown = find_ends((given < 0) | (given >= board.num_places))
    return Readings(
        values=values.reshape(len(values), -1), known=listed.sizes, unknown=np.diff(unknown[starts])
    )


def _checked_lists(indptr: npt.ArrayLike, places: npt.ArrayLike) -> tuple[Int64Array, Int64Array]:
    starts, listed = np.asarray(indptr), np.asarray(places)
    for name, array in (("indptr", starts), ("places", listed)):
        if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
            raise GraphError(
                f"{name} has dtype {array.dtype}, ndim={array.ndim}; expected a list of integers"
            )
    if not len(starts) or starts[0] != 0 or starts[-1] != len(listed) or np.any(np.diff(starts) < 0):
        raise GraphError(f"indptr must be non-decreasing from 0 to {len(listed)}, the ends of all lists")
    return starts.astype(np.int64), listed.astype(np.int64)
