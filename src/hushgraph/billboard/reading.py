"""What rows read off the board: sums over the places they list, less what they cast there themselves.

    S_v = (sum over u in L_v of w_u B_u - sum over u in L_v that v cast onto of w_u b_v) / sqrt(sum of w_u^2)

and 0 for an empty list. Plain reading has w_u = 1. Damped reading has w_u = 1 / sqrt(1 + max(0, |B_u|^2 / s^2
- c) / c), which turns down places that are louder than noise alone.

Where rows have a coefficient a_vu for every place (`lists.py`), w_u a_vu stands for w_u and a_vu b_v for b_v,
and a row has such a reading of every relation.

Of a person with several nodes, what any of them cast onto the places of L_v is taken off: no label of a
person helps to predict that person. (`read_rows` is for nodes that arrived later: they cast nothing, and no
label of theirs is on the board.)

Given the board, S_v is a function of the row of v, or of its person, alone. Sums are formed in float64 in
ascending order of places, one row at a time, so that a reading depends neither on threads nor on other rows.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numba
import numpy as np
import numpy.typing as npt

from hushgraph import _arrays
from hushgraph._threads import map_in_order
from hushgraph.billboard.ballots import Ballots
from hushgraph.billboard.board import Board
from hushgraph.billboard.combined import combine_boards, place_weights
from hushgraph.billboard.lists import (
    GRID,
    Lists,
    RowLists,
    check_blocks,
    find_starts,
    split_relations,
)
from hushgraph.billboard.own_parts import take_off, take_off_others
from hushgraph.billboard.owned import cut_ends
from hushgraph.billboard.persons import PersonLists
from hushgraph.billboard.scaled import scale_readings
from hushgraph.errors import GraphError
from hushgraph.graph.graph import EdgeOwner, Graph

Float32Array = npt.NDArray[np.float32]
FloatArray = npt.NDArray[np.float64]
# Sums of readings that are held at a time: 16 MiB.
_HELD_SUMS = 1 << 21
# Numbers of the board that are read at random at a time: 4 MiB.
_NEAR_NUMBERS = 1 << 20
# Rows that are divided by their norms at a time.
_DIVIDED_ROWS = 1 << 14


class RelationSums(NamedTuple):
    """What some rows see of one relation.

    Attributes:
        places: the first place of the relation and the one behind its last.
        sums: float64 [R, c], of the board at the places that a row lists, by their weights.
        square: float64 [R], the summed squares of these weights.
        own_weight: float64 [R], how much of its own ballot a row sees.
    """

    places: tuple[int, int]
    sums: FloatArray
    square: FloatArray
    own_weight: FloatArray


def read_boards(
    boards: Sequence[Board],
    graph: Graph,
    edge_owner: EdgeOwner,
    *,
    own: Sequence[Ballots],
    scale: float,
    radius: float,
    centred: bool = True,
) -> Float32Array:
    """Read all boards together for every node, float32 [N, width], in public units.

    Args:
        boards: the released boards.
        graph: the graph whose lists are used.
        edge_owner: whose row holds an edge record.
        own: the ballots cast onto each board; a row's own ballot is subtracted from its reading.
        scale, radius: as in `scale_readings`.
        centred: as in `combine_boards`.
    """
    board, parts = combine_boards(boards, centred=centred)
    parts_and_ballots = list(zip(parts, own, strict=True))
    return read_scaled(board, graph, edge_owner, own=parts_and_ballots, scale=scale, radius=radius)


def read_scaled(
    board: Board,
    graph: Graph,
    edge_owner: EdgeOwner,
    *,
    own: Sequence[tuple[float, Ballots]],
    scale: float,
    radius: float,
    damped: bool = True,
) -> Float32Array:
    """What `read_boards` gives, from what `combine_boards` gave; `own` and `damped` as in `read`."""
    readings = read(board, graph, edge_owner, own=own, damped=damped)
    return scale_readings(readings, board, scale=scale, radius=radius, in_place=True)


def read(
    board: Board,
    graph: Graph,
    edge_owner: EdgeOwner,
    *,
    own: Ballots | Sequence[tuple[float, Ballots]] | None,
    cast_graph: Graph | None = None,
    damped: bool = True,
) -> npt.NDArray[np.float32]:
    """The readings of all nodes of the graph.

    Args:
        board: what was released.
        graph: whose lists are read. Its nodes are the places of the board.
        edge_owner: whose row holds an edge record.
        own: what was cast onto this board, taken off its casters' own readings; with its part in the board
            where several boards were combined. None if nobody's is to be taken off.
        cast_graph: the graph that `own` was cast from, where lists have changed since; the same if left out.
        damped: turn down loud places.

    Returns:
        float32 [N, c]; of several relations, c columns for each.

    Guarantees:
        Reads no row but the one the reading is for, or those of its person, and the board. What is taken off
        is what was cast: onto places that are listed now and were listed then, the ballot of then.
    """
    owns = [] if own is None else [(1.0, own)] if isinstance(own, Ballots) else list(own)
    cast_lists = owns[0][1].lists if owns else None
    if cast_graph is None:
        now = then = RowLists(graph, edge_owner, cast_lists)
        persons = owns[0][1].person_lists if owns else None
    else:
        now, then = RowLists(graph, edge_owner), RowLists(cast_graph, edge_owner, cast_lists)
        persons = PersonLists.of(graph, edge_owner, now.lists) if owns else None
    check_blocks(now.blocks, board.blocks)
    _check_places(board, now.num_places)
    for _, ballots in owns:
        _check_own(ballots, board, graph, cast_graph or graph)
    weights = place_weights(board, damped=damped)
    readings = _arrays.empty((graph.num_nodes, board.num_relations * board.width), np.float32)
    cuts = cut_ends(now.ends, most_rows=max(1, _HELD_SUMS // board.width), relations=board.num_relations)

    def read_part(rows: tuple[int, int]) -> None:
        begin, end = rows
        listed = now.take(begin, end)
        before = listed if then is now else then.take(begin, end)
        for relation, seen in enumerate(sum_lists(board, weights, listed, before)):
            for part, ballots in owns:
                take_off(seen.sums, part * seen.own_weight, ballots, begin)
                if persons is not None:
                    take_off_others(seen.sums, part, ballots, persons, weights, begin, seen.places)
            columns = slice(relation * board.width, (relation + 1) * board.width)
            divide(seen, readings[begin:end, columns])

    # Lists that are made when they are asked for come one after another.
    work = map if now.lists is None or then.lists is None else map_in_order
    for _ in work(read_part, itertools.pairwise(cuts)):
        pass
    return readings


def sum_lists(
    board: Board, weights: FloatArray, listed: Lists, before: Lists, *, few: bool = False
) -> Iterator[RelationSums]:
    """What rows see of one relation after another.

    Args:
        board: what was released.
        weights: of its places.
        listed: by these rows.
        before: what they cast their ballots onto; the same object where that is the same.
        few: there are so few entries that no kernel is loaded; `before` is not looked at.

    Yields:
        Arrays that are written over for the next relation.
    """
    count, starts = len(listed.sizes), [0, board.num_places]
    if board.blocks:
        starts = find_starts(board.blocks).tolist()
    entries = int(listed.indptr[-1] - listed.indptr[0])
    sums, (square, own_weight) = np.empty((count, board.width)), np.empty((2, count))
    near = max(1, _NEAR_NUMBERS // board.width)
    cast = itertools.repeat(None) if before is listed else split_relations(before)
    for (first, last), now, then in zip(
        itertools.pairwise(starts), split_relations(listed), cast, strict=False
    ):
        for each in (sums, square, own_weight):
            each.fill(0.0)
        if few:
            _add_few(now, weights, board.values, sums, square)
        else:
            read_on = (*now.arrays, now.indptr[:-1].astype(np.int64))
            if then is not None:
                cast_on: tuple[Any, ...] = (*then.arrays, then.indptr[:-1].astype(np.int64))
            else:
                cast_on = (None, None, None, None)
            # What is read at random is then a part of the board that caches hold.
            # And large enough that most rows have an entry there.
            step = max(near, (last - first) * count // max(1, entries))
            for behind in range(first + step, last + step, step):
                seen_so_far = (sums, square, own_weight)
                _add_places(*read_on, *cast_on, min(behind, last), weights, board.values, *seen_so_far)
        yield RelationSums((first, last), sums, square, own_weight)


def _check_places(board: Board, num_places: int) -> None:
    if board.num_places != num_places:
        raise GraphError(
            f"num_nodes={num_places}: the board has {board.num_places} places; expected the graph it was "
            "made on; read rows that are new by their lists"
        )


def _check_own(own: Ballots, board: Board, graph: Graph, cast_graph: Graph) -> None:
    expected, given = (graph.num_nodes, board.width), (own.num_nodes, own.width)
    if given != expected or cast_graph.num_nodes != graph.num_nodes:
        raise GraphError(
            f"own has {given[0]} rows and {given[1]} numbers a ballot, cast_graph {cast_graph.num_nodes} "
            f"nodes; expected {expected[0]} and {expected[1]}, as the graph and the board have"
        )


def divide(seen: RelationSums, readings: Float32Array) -> None:
    """Write down sums divided by the root of the summed squares of the weights; 0 for an empty list."""
    for first in range(0, len(readings), _DIVIDED_ROWS):
        rows = slice(first, first + _DIVIDED_ROWS)
        readings[rows] = normalise(seen.sums[rows], seen.square[rows])


def normalise(sums: FloatArray, square: FloatArray) -> npt.NDArray[np.float32]:
    """The sums divided by the root of the summed squares of the weights; 0 for an empty list."""
    sums /= np.sqrt(np.where(square > 0.0, square, 1.0))[:, None]
    return sums.astype(np.float32)


def _add_few(
    listed: Lists, weights: FloatArray, values: Float32Array, sums: FloatArray, square: FloatArray
) -> None:
    """`_add_places` without a compiled kernel, for rows that cast nothing: the same sums bit for bit."""
    for i, (begin, end) in enumerate(itertools.pairwise(listed.indptr)):
        for at in range(begin, end):
            place, share = listed.places[at], 1.0
            if listed.coefficients is not None:
                share = listed.coefficients[at] / GRID
            weight = weights[place] * share
            sums[i] += weight * values[place].astype(np.float64)
            square[i] += weight * weight


@numba.njit(cache=True, nogil=True)
def _add_places(  # type: ignore[no-untyped-def]
    indptr,
    places,
    coefficients,
    cursors,
    cast_indptr,
    cast_places,
    cast_coefficients,
    cast_cursors,
    behind,
    weights,
    values,
    sums,
    square,
    own_weight,
):
    """Add up what rows see from where `cursors` are, which move, to the place before `behind`.

    `cast_indptr` is None where what was cast is what is listed.
    """
    for i in range(len(cursors)):
        j, end = cursors[i], indptr[i + 1]
        seen, squares, own = sums[i], square[i], own_weight[i]
        while j < end and places[j] < behind:
            place = places[j]
            share = 1.0 if coefficients is None else coefficients[j] / GRID
            weight = weights[place] * share
            for k in range(len(seen)):
                seen[k] += weight * values[place, k]
            squares += weight * weight
            if cast_indptr is None:
                own += weight * share
            else:
                at, cast_end = cast_cursors[i], cast_indptr[i + 1]
                while at < cast_end and cast_places[at] < place:
                    at += 1
                if at < cast_end and cast_places[at] == place:
                    own += weight * (1.0 if cast_coefficients is None else cast_coefficients[at] / GRID)
                cast_cursors[i] = at
            j += 1
        square[i], own_weight[i], cursors[i] = squares, own, j
