"""What rows read off the board: sums over the places they list, less what they cast there themselves.

    S_v = (sum over u in L_v of w_u B_u - sum over u in L_v that v cast onto of w_u b_v) / sqrt(sum of w_u^2)

and 0 for an empty list. Plain reading has w_u = 1. Damped reading has w_u = 1 / sqrt(1 + max(0, |B_u|^2 / s^2
- c) / c), which turns down places that are louder than noise alone.

Where rows have a coefficient a_vu for every place (`lists.py`), w_u a_vu stands for w_u and a_vu b_v for b_v,
and a row has such a reading of every relation. Relations are read one after another.

Of a person with several nodes, what any of them cast onto the places of L_v is taken off: no label of a
person helps to predict that person. (`read_rows` is for nodes that arrived later: they cast nothing, and no
label of theirs is on the board.)

Given the board, S_v is a function of the row of v, or of its person, alone. Sums are formed in float64 in
ascending order of places, one row at a time, so that a reading depends neither on threads nor on other rows.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numba
import numpy as np
import numpy.typing as npt

from hushgraph import _arrays
from hushgraph._arrays import Float32Array, FloatArray, Int64Array
from hushgraph._threads import count_threads, map_in_order
from hushgraph.billboard.ballots import Ballots
from hushgraph.billboard.board import Board
from hushgraph.billboard.combined import place_weights
from hushgraph.billboard.lists import GRID, check_blocks, find_records
from hushgraph.billboard.own_parts import take_off, take_off_others
from hushgraph.billboard.owned import NextRows, Records, find_share
from hushgraph.billboard.persons import PersonLists
from hushgraph.billboard.scaled import scale_readings
from hushgraph.errors import GraphError
from hushgraph.graph.graph import EdgeOwner, Graph

# Sums of readings that are held at a time: 16 MiB.
_HELD_SUMS = 1 << 21
# Numbers of the board that are read at random at a time, or twice the sums that are added to: 4 MiB.
_NEAR_NUMBERS = 1 << 20
# Rows that are divided by their norms at a time.
_DIVIDED_ROWS = 1 << 14


class RelationSums(NamedTuple):
    """What some rows see of one relation.

    Attributes:
        sums: float64 [R, c], of the board at the places that a row lists, by their weights.
        square: float64 [R], the summed squares of these weights.
        own_weight: float64 [R], how much of its own ballot a row sees.
    """

    sums: FloatArray
    square: FloatArray
    own_weight: FloatArray


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
    """Read combined boards for every node, float32 [N, width], in public units.

    Args:
        board: what `combine_boards` gave.
        graph, edge_owner, own, damped: as in `read`.
        scale, radius: as in `scale_readings`.
    """
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
    cast_records = owns[0][1].records if owns else None
    if cast_graph is None:
        now = then = find_records(graph, edge_owner, cast_records)
        persons = owns[0][1].person_lists if owns else None
    else:
        now, then = find_records(graph, edge_owner), find_records(cast_graph, edge_owner, cast_records)
        persons = PersonLists.of(graph, edge_owner, now) if owns else None
    check_blocks(now.blocks, board.blocks)
    _check_places(board, now.num_places)
    for _, ballots in owns:
        _check_own(ballots, board, graph, cast_graph or graph)
    weights = place_weights(board, damped=damped)
    readings = _arrays.empty((graph.num_nodes, board.num_relations * board.width), np.float32)

    def take_part(relation: int, begin: int, seen: RelationSums) -> None:
        """Write down what rows from `begin` on see of a relation."""
        for part, ballots in owns:
            take_off(seen.sums, part * seen.own_weight, ballots, begin)
            if persons is not None:
                places = now.starts[relation], now.starts[relation + 1]
                take_off_others(seen.sums, part, ballots, persons, weights, begin, places)
        columns = slice(relation * board.width, (relation + 1) * board.width)
        divide(seen, readings[begin : begin + len(seen.sums), columns])

    for relation, (first, last) in enumerate(itertools.pairwise(now.starts)):
        each = Placed(now.relations[relation], weights[first:last], board.values[first:last])
        before = each.records if then is now else then.relations[relation]
        if each.records.is_by_owner:
            _read_lists(each, before, partial(take_part, relation))
        elif now.blocks:
            _read_by_place(each, before, partial(take_part, relation))
        else:
            sizes = now.sizes, then.sizes
            _read_next_lists(each, before, sizes, partial(take_part, relation))
    return readings


class Placed(NamedTuple):
    """The records of one relation, with what is read at its places.

    Attributes:
        records: of the rows.
        weights: float64 [places].
        values: float32 [places, c], of the board.
    """

    records: Records
    weights: FloatArray
    values: Float32Array

    @property
    def width(self) -> int:
        """How many numbers a place has."""
        return int(self.values.shape[1])


Take = Callable[[int, RelationSums], None]
"""Called with the first of some rows and what they see; the sums are written over afterwards."""


def _read_lists(each: Placed, before: Records, take: Take) -> None:
    """Read records that are stored by their owners: what rows see is looked up at the places they list."""

    def read_part(rows: tuple[int, int]) -> None:
        begin, end = rows
        listed = each.records.of_rows(begin, end)
        cast = listed if before is each.records else before.of_rows(begin, end)
        take(begin, sum_lists(each._replace(records=listed), cast))

    for _ in map_in_order(read_part, _cut_rows(each.records.num_rows, _HELD_SUMS // each.width)):
        pass


def _read_next_lists(each: Placed, before: Records, sizes: tuple[Int64Array, Int64Array], take: Take) -> None:
    """Read the edges of a graph without relations by lists of some rows at a time, which are made for it."""

    def take_rows(begin: int, first: int, seen: RelationSums) -> None:
        take(begin + first, seen)

    now = then = NextRows(each.records, sizes[0])
    if before is not each.records:
        then = NextRows(before, sizes[1])
    for begin, end in itertools.pairwise(now.cut()):
        listed = now.of_rows(begin, end)
        cast = listed if then is now else then.of_rows(begin, end)
        _read_lists(each._replace(records=listed), cast, partial(take_rows, begin))


def _read_by_place(each: Placed, before: Records, take: Take) -> None:
    """Read records that are stored by place: what rows see is added up place by place, few rows at a time."""
    records, width = each.records, each.width
    count = records.num_rows
    # What is added to at random is then sums that caches hold.
    # And so many that most places have a row among them.
    most = max(_NEAR_NUMBERS // 2 // (width + 2), count * count // max(1, len(records.indices)))
    most = max(1, min(_HELD_SUMS // (width + 2), most))

    def read_strip(rows: tuple[int, int]) -> None:
        table = np.empty((min(most, rows[1] - rows[0]), width + 2))
        read_on = (*records.arrays, records.find_row(rows[0]))
        cast_on: tuple[Any, ...] = (None,) * 5
        if before is not records:
            cast_on = (*before.arrays, before.find_row(rows[0]))
        for begin, end in _cut_rows(rows[1] - rows[0], most):
            seen = table[: end - begin]
            seen.fill(0.0)
            first = rows[0] + begin
            _add_rows(*read_on, *cast_on, first, rows[0] + end, each.weights, each.values, seen)
            take(first, RelationSums(seen[:, :width], seen[:, width], seen[:, width + 1]))

    for _ in map_in_order(read_strip, _cut_rows(count, -(-count // count_threads()))):
        pass


def _cut_rows(count: int, most: int) -> Iterator[tuple[int, int]]:
    """Blocks of consecutive rows of limited size, at least one row each, as (begin, end)."""
    for begin in range(0, count, max(1, most)):
        yield begin, min(begin + max(1, most), count)


def sum_lists(each: Placed, before: Records, *, few: bool = False) -> RelationSums:
    """Sum what rows read of one relation, list by list.

    Args:
        each: records of these rows, stored by their owners.
        before: the records by which these rows cast; pass `each.records` itself if these have not changed.
        few: sum without loading a kernel, for a handful of entries; `before` is then ignored.
    """
    listed = each.records
    count, places = listed.num_rows, len(each.weights)
    sums, (square, own_weight) = np.zeros((count, each.width)), np.zeros((2, count))
    if few:
        _add_few(each, sums, square)
        return RelationSums(sums, square, own_weight)
    entries = int(listed.indptr[-1] - listed.indptr[0])
    read_on = (*listed.arrays, listed.indptr[:-1].astype(np.int64))
    cast_on: tuple[Any, ...] = (None,) * 5
    if before is not listed:
        cast_on = (*before.arrays, before.indptr[:-1].astype(np.int64))
    # What is read at random is then a part of the board that caches hold.
    # And large enough that most rows have an entry there.
    step = max(1, _NEAR_NUMBERS // each.width, places * count // max(1, entries))
    for behind in range(step, places + step, step):
        seen_so_far = (sums, square, own_weight)
        _add_places(*read_on, *cast_on, min(behind, places), each.weights, each.values, *seen_so_far)
    return RelationSums(sums, square, own_weight)


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


def _add_few(each: Placed, sums: FloatArray, square: FloatArray) -> None:
    """`_add_places` without a compiled kernel, for rows that cast nothing: the same sums bit for bit."""
    records = each.records
    for row, (begin, end) in enumerate(itertools.pairwise(records.indptr)):
        for i in range(begin, end):
            place, share = records.indices[i], 1.0
            if records.coefficients is not None:
                share = records.coefficients[i] / GRID
            elif records.shares is not None:
                share = records.shares[row] / GRID
            weight = each.weights[place] * share
            sums[row] += weight * each.values[place].astype(np.float64)
            square[row] += weight * weight


@numba.njit(cache=True, nogil=True)
def _add_places(  # type: ignore[no-untyped-def]
    indptr,
    places,
    shares,
    coefficients,
    cursors,
    cast_indptr,
    cast_places,
    cast_shares,
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
    for row in range(len(cursors)):
        i, end = cursors[row], indptr[row + 1]
        seen, squares, own = sums[row], square[row], own_weight[row]
        while i < end and places[i] < behind:
            place = places[i]
            share = find_share(shares, coefficients, row, i) / GRID
            weight = weights[place] * share
            for k in range(len(seen)):
                seen[k] += weight * values[place, k]
            squares += weight * weight
            if cast_indptr is None:
                own += weight * share
            else:
                at, cast_end = cast_cursors[row], cast_indptr[row + 1]
                while at < cast_end and cast_places[at] < place:
                    at += 1
                if at < cast_end and cast_places[at] == place:
                    own += weight * (find_share(cast_shares, cast_coefficients, row, at) / GRID)
                cast_cursors[row] = at
            i += 1
        square[row], own_weight[row], cursors[row] = squares, own, i


@numba.njit(cache=True, nogil=True)
def _add_rows(  # type: ignore[no-untyped-def]
    indptr,
    owners,
    shares,
    coefficients,
    cursors,
    cast_indptr,
    cast_owners,
    cast_shares,
    cast_coefficients,
    cast_cursors,
    begin,
    end,
    weights,
    values,
    seen,
):
    """`_add_places` of records that are stored by place: what rows from `begin` to the one before `end` see.

    `seen` has of every row its sums, its squares and how much of its own ballot it sees. Places come in
    ascending order, so every row adds in the order in which it does by its list.
    """
    width = values.shape[1]
    for place in range(len(cursors)):
        i, stop = cursors[place], indptr[place + 1]
        if i == stop or owners[i] >= end:
            continue
        loudness = weights[place]
        while i < stop and owners[i] < end:
            row = owners[i]
            share = find_share(shares, coefficients, row, i) / GRID
            weight = loudness * share
            sums = seen[row - begin]
            for k in range(width):
                sums[k] += weight * values[place, k]
            sums[width] += weight * weight
            if cast_indptr is None:
                sums[width + 1] += weight * share
            else:
                at, cast_stop = cast_cursors[place], cast_indptr[place + 1]
                while at < cast_stop and cast_owners[at] < row:
                    at += 1
                if at < cast_stop and cast_owners[at] == row:
                    sums[width + 1] += weight * (find_share(cast_shares, cast_coefficients, row, at) / GRID)
                cast_cursors[place] = at
            i += 1
        cursors[place] = i
