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
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numba
import numpy as np
import numpy.typing as npt

from hushgraph import _arrays
from hushgraph._threads import map_in_order
from hushgraph.billboard.ballots import GRID, Ballots, Int64Array, PersonLists
from hushgraph.billboard.board import Board
from hushgraph.billboard.lists import (
    Lists,
    build_lists,
    check_blocks,
    cut_rows,
    find_starts,
    lists_of_rows,
    restrict,
)
from hushgraph.errors import GraphError
from hushgraph.graph.graph import EdgeOwner, Graph
from hushgraph.graph.reads import contains

Float32Array = npt.NDArray[np.float32]
FloatArray = npt.NDArray[np.float64]
NOTHING = np.empty(0, np.int64)
# Places whose loudness is computed at a time, and rows whose own ballots are taken off.
_READ_BLOCK = 1 << 14
# Sums of readings that are held at a time: 16 MiB.
_HELD_SUMS = 1 << 21
# Rows that are scaled at a time.
_SCALED_ROWS = 1 << 14
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


@dataclass(frozen=True, kw_only=True, eq=False)
class CastLists:
    """What rows cast and where, for rows whose lists may have changed since.

    Attributes:
        ballots: int64 [R, c], what each row cast onto every place it listed, in units; see `Ballots.dense`.
        indptr: int64 [R + 1]; row i cast onto `places[indptr[i]:indptr[i + 1]]`.
        places: integers, ascending within a row.
    """

    ballots: Int64Array
    indptr: npt.NDArray[Any]
    places: npt.NDArray[Any]


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


def _split_relations(readings: Float32Array, board: Board) -> Float32Array:
    """[rows, relations * width] as [rows * relations, width]: each reading of a row by itself."""
    return readings.reshape(-1, board.width)


def scale_readings(
    readings: Float32Array, board: Board, *, scale: float, radius: float, in_place: bool = False
) -> Float32Array:
    """Scale readings for the model; the result of a row depends on its reading and public numbers alone.

    Args:
        readings: float32 [R, width], or of every relation, side by side; each is scaled by itself.
        board: the board that was read; without noise, one ballot is the unit.
        scale: the value of one standard deviation of the noise.
        radius: readings are shrunk so that their norm stays below this.
        in_place: whether `readings` are written over.
    """
    result = readings if in_place else readings.copy()
    scaled = _split_relations(result, board)
    scaled *= np.float32(scale / (board.noise_std or 1.0))
    for begin in range(0, len(scaled), _SCALED_ROWS):
        block = scaled[begin : begin + _SCALED_ROWS]
        squares = np.square(block).sum(axis=1, keepdims=True)
        block /= np.sqrt(1 + squares / np.float32(radius**2))
    return result


def add_free_inputs(
    readings: Float32Array,
    board: Board,
    sizes: npt.NDArray[Any],
    *,
    list_size: float,
    own_places: npt.NDArray[Any] | None,
    scale: float,
    radius: float,
) -> Float32Array:
    """Readings with what else is free: functions of a row's own list and of the board.

    Args:
        readings: float32 [R, width], scaled.
        board: the board that was read.
        sizes: [R], how many places every row lists.
        list_size: what their logarithm is multiplied by in one column more; 0 for none.
        own_places: [R], the number of every row among the nodes, -1 for a row that has none and reads 0
            there; None leaves out the columns of the board at one's own place, of every relation that has
            nodes as places.
        scale, radius: as in `scale_readings`.
    """
    starts = [] if own_places is None else _find_nodes(board)
    width = readings.shape[1] + len(starts) * board.width + bool(list_size)
    if width == readings.shape[1]:
        return readings
    joined = _arrays.empty((len(readings), width), np.float32)
    for begin in range(0, len(readings), _SCALED_ROWS):
        rows = slice(begin, begin + _SCALED_ROWS)
        columns = [readings[rows]]
        for start in starts:
            own = np.zeros((len(readings[rows]), board.width), np.float32)
            places = np.asarray(own_places)[rows]
            own[places >= 0] = board.values[start + places[places >= 0]]
            columns.append(scale_readings(own, board, scale=scale, radius=radius, in_place=True))
        if list_size:
            columns.append((np.log1p(sizes[rows]) * list_size).astype(np.float32)[:, None])
        joined[rows] = np.concatenate(columns, axis=1)
    return joined


def _find_nodes(board: Board) -> list[int]:
    """Where blocks of nodes begin on a board."""
    starts = find_starts(board.blocks).tolist()
    nodes = [start for start, block in zip(starts, board.blocks, strict=False) if block.kind == "nodes"]
    return nodes if board.blocks else [0]


def place_weights(board: Board, *, damped: bool = True) -> FloatArray:
    """float64 [N]: the weight of every place; a function of the board alone.

    Args:
        board: what was released.
        damped: turn down loud places; else every weight is 1.

    A board without noise is damped as if its noise were as large as one ballot.
    """
    if not damped:
        return np.ones(board.num_places)
    std, c = board.noise_std or 1.0, board.width
    weights = _arrays.looked_up(board.num_places, np.float64)
    for begin in range(0, board.num_places, _READ_BLOCK):
        block = board.values[begin : begin + _READ_BLOCK].astype(np.float64) / std
        loudness = np.maximum(np.square(block).sum(axis=1) - c, 0.0) / c
        weights[begin : begin + _READ_BLOCK] = 1 / np.sqrt(1 + loudness)
    return weights


def combine_boards(
    boards: Sequence[Board], *, centred: bool = True, in_place: bool = False
) -> tuple[Board, tuple[float, ...]]:
    """The mean of several boards by precision, and the part of each in it; a function of the boards alone.

    Args:
        boards: of one graph, all with noise or all without.
        centred: whether ballots add up to 0, as `Task.is_centred` says. The mean over the numbers of a place
            is then noise and is taken off.
        in_place: whether the first of them is written over, where that is possible.
    """
    precisions = np.array([1 / board.noise_std**2 if board.noise_std else 1.0 for board in boards])
    parts = tuple((precisions / precisions.sum()).tolist())
    first = boards[0].values
    # What is mapped from a file of a run is not written to.
    is_own = in_place and first.flags.writeable
    values = first if is_own else _arrays.looked_up(first.shape, np.float32)
    for begin in range(0, len(values), _READ_BLOCK):
        block = np.zeros_like(values[begin : begin + _READ_BLOCK])
        for part, board in zip(parts, boards, strict=True):
            block += np.float32(part) * board.values[begin : begin + _READ_BLOCK]
        values[begin : begin + _READ_BLOCK] = block - block.mean(axis=1, keepdims=True) if centred else block
    std = float(precisions.sum() ** -0.5) if boards[0].noise_std else 0.0
    return replace(boards[0], values=values, noise_std=std), parts


def read(
    board: Board,
    graph: Graph,
    edge_owner: EdgeOwner,
    *,
    own: Ballots | Sequence[tuple[float, Ballots]] | None,
    cast_graph: Graph | None = None,
    rows: npt.ArrayLike | None = None,
    damped: bool = True,
) -> npt.NDArray[np.float32]:
    """The readings of nodes of the graph, from one pass over its lists.

    Args:
        board: what was released.
        graph: whose lists are read. Its nodes are the places of the board.
        edge_owner: whose row holds an edge record.
        own: what was cast onto this board, taken off its casters' own readings; with its part in the board
            where several boards were combined. None if nobody's is to be taken off.
        cast_graph: the graph that `own` was cast from, where lists have changed since; the same if left out.
        rows: the nodes whose readings are wanted, without repeats; all of them if left out.
        damped: turn down loud places.

    Returns:
        float32 [len(rows), c]; of several relations, c columns for each.

    Guarantees:
        Reads no row but the one the reading is for, or those of its person, and the board. What is taken off
        is what was cast: onto places that are listed now and were listed then, the ballot of then.
    """
    if graph.relations or board.blocks:
        return _read_relations(board, graph, edge_owner, own, cast_graph, rows, damped=damped)
    _check_places(board, graph.num_nodes)
    owns = [] if own is None else [(1.0, own)] if isinstance(own, Ballots) else list(own)
    for _, ballots in owns:
        _check_own(ballots, board, cast_graph or graph)
    picked = None if rows is None else np.asarray(rows, np.int64)
    if picked is not None:
        _slots(picked, graph.num_nodes)
    weights = place_weights(board, damped=damped)
    ends, places = graph.lists_of(edge_owner)
    then = (NOTHING, NOTHING) if cast_graph is None else cast_graph.lists_of(edge_owner)
    lists = PersonLists.of(graph, edge_owner, None) if owns else None
    readings = _arrays.empty((graph.num_nodes if picked is None else len(picked), board.width), np.float32)

    # Taking off what other nodes of a person cast begins with a number for every node.
    step = _READ_BLOCK if lists is None else max(_READ_BLOCK, _HELD_SUMS // board.width)

    def read_part(begin: int) -> None:
        """Read some rows, one after another, so that few sums are held."""
        end = min(begin + step, len(readings))
        part = np.arange(begin, end) if picked is None else picked[begin:end]
        sums, square, own_weight = (
            np.zeros((len(part), board.width)),
            np.zeros(len(part)),
            np.zeros(len(part)),
        )
        add_lists(part, ends, places, *then, weights, board.values, sums, square, own_weight)
        for share, ballots in owns:
            take_off(sums, share * own_weight, ballots, part)
            if lists is not None:
                slots = _slots(part, graph.num_nodes)
                blocks = np.array([0, board.num_places])
                take_off_others(sums[:, None], share, ballots, lists, weights, slots, blocks)
        readings[begin:end] = normalise(sums, square)

    for _ in map_in_order(read_part, range(0, len(readings), step)):
        pass
    return readings


def _read_relations(
    board: Board,
    graph: Graph,
    edge_owner: EdgeOwner,
    own: Ballots | Sequence[tuple[float, Ballots]] | None,
    cast_graph: Graph | None,
    rows: npt.ArrayLike | None,
    *,
    damped: bool,
) -> npt.NDArray[np.float32]:
    """`read` where every row has coefficients for its places."""
    owns = [] if own is None else [(1.0, own)] if isinstance(own, Ballots) else list(own)
    # What was cast has lists of its own; those of this graph may be the same ones.
    then = next((ballots.lists for _, ballots in owns), None)
    is_same = cast_graph is None and then is not None
    now = then if is_same else build_lists(graph, edge_owner)
    if now is None or (owns and then is None):
        raise GraphError("the board has relations and the graph has none; read the data as in training")
    check_blocks(now.blocks, board.blocks)
    picked = np.arange(graph.num_nodes) if rows is None else np.asarray(rows, np.int64)
    _slots(picked, graph.num_nodes)
    # Of all nodes: what the others of a person cast is taken off too.
    lists = PersonLists.of(graph, edge_owner, now) if owns else None
    if rows is not None:
        now = restrict(now, picked)
    cast = now if then is None or is_same else then if rows is None else restrict(then, picked)
    weights = place_weights(board, damped=damped)
    readings = _arrays.empty((len(picked), board.num_relations * board.width), np.float32)
    step = max(1, _HELD_SUMS // readings.shape[1])
    for begin in range(0, len(picked), step):
        part = picked[begin : begin + step]
        listed, before = (cut_rows(each, begin, begin + len(part)) for each in (now, cast))
        sums, square, own_weight = _sum_lists(board, listed, weights, before)
        for share, ballots in owns:
            _take_off_shares(sums, own_weight, share, ballots.dense(part) / float(GRID))
            if lists is not None:
                slots = _slots(part, graph.num_nodes)
                take_off_others(sums, share, ballots, lists, weights, slots, now.starts)
        block = normalise(sums.reshape(-1, board.width), square.reshape(-1))
        readings[begin : begin + step] = block.reshape(len(part), -1)
    return readings


def _sum_lists(
    board: Board, now: Lists, weights: FloatArray, then: Lists
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """For every row and relation: weighted sums of the board, squares of weights, weight of what was cast."""
    count, relations = len(now.indptr) - 1, board.num_relations
    sums = np.zeros((count, relations, board.width))
    square, own_weight = np.zeros((count, relations)), np.zeros((count, relations))
    _read_shares(
        now.indptr,
        now.places,
        now.coefficients,
        now.starts,
        weights,
        board.values,
        then.indptr,
        then.places,
        then.coefficients,
        then.places is now.places,
        sums,
        square,
        own_weight,
    )
    return sums, square, own_weight


def read_rows(
    board: Board,
    indptr: npt.ArrayLike,
    places: npt.ArrayLike,
    *,
    place_shares: npt.ArrayLike | None = None,
    own_places: npt.ArrayLike | None = None,
    cast: CastLists | None = None,
    damped: bool = True,
) -> Readings:
    """The readings of rows given as lists of places, such as nodes that arrived after the board.

    Args:
        board: what was released.
        indptr: integers [R + 1]; row i lists `places[indptr[i]:indptr[i + 1]]`.
        places: numbers of places, in any order; repeats count once. A number that is no place, such as -1
            from `Board.places_of`, is counted and skipped. On a board of several relations, they are numbers
            on the whole board.
        place_shares: the weight of every entry, after the declared function, on a board whose rows have
            weights; 1 unless given.
        own_places: integers [R], the place of each row itself, -1 for a new one; no row reads its own place.
        cast: what these rows cast onto the board and where; new rows cast nothing.
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
    starts, listed = _checked_lists(indptr, places)
    count = len(starts) - 1
    if board.blocks:
        return _read_new_lists(board, starts, listed, place_shares, damped=damped)
    own = np.full(count, -1, np.int64) if own_places is None else np.asarray(own_places, np.int64)
    if own.shape != (count,) or (cast is not None and cast.ballots.shape != (count, board.width)):
        raise GraphError(f"own_places and cast describe other rows; expected {count} of them, one per list")
    weights = place_weights(board, damped=damped)
    sums = np.zeros((count, board.width))
    square, own_weight = np.zeros(count), np.zeros(count)
    known, unknown = np.zeros(count, np.int64), np.zeros(count, np.int64)
    if cast is None and len(listed) <= _FEW_ENTRIES:
        _read_few(starts, listed, own, weights, board.values, sums, square, known, unknown)
    else:
        then = (NOTHING, NOTHING) if cast is None else (np.asarray(cast.indptr), np.asarray(cast.places))
        _read_lists(
            starts, listed, own, weights, board.values, *then, sums, square, own_weight, known, unknown
        )
    if cast is not None:
        sums -= own_weight[:, None] * (cast.ballots / float(GRID))
    return Readings(values=normalise(sums, square), known=known, unknown=unknown)


def _read_few(
    indptr: Int64Array,
    places: Int64Array,
    own_places: Int64Array,
    weights: FloatArray,
    values: npt.NDArray[Any],
    sums: FloatArray,
    square: FloatArray,
    known: Int64Array,
    unknown: Int64Array,
) -> None:
    """`_read_lists` without a compiled kernel, for rows that cast nothing: the same sums bit for bit."""
    for i, (begin, end) in enumerate(itertools.pairwise(indptr)):
        is_place = (places[begin:end] >= 0) & (places[begin:end] < len(weights))
        unknown[i] = np.count_nonzero(~is_place)
        row = np.unique(places[begin:end][is_place])
        for place in row[row != own_places[i]]:
            sums[i] += weights[place] * values[place].astype(np.float64)
            square[i] += weights[place] * weights[place]
            known[i] += 1


def _read_new_lists(
    board: Board,
    starts: Int64Array,
    listed: Int64Array,
    shares: npt.ArrayLike | None,
    *,
    damped: bool,
) -> Readings:
    """`read_rows` where every row has coefficients for its places; these rows have cast nothing."""
    lists = lists_of_rows(board.blocks, starts, listed, shares)
    sums, square, _ = _sum_lists(board, lists, place_weights(board, damped=damped), lists)
    is_unknown = (listed < 0) | (listed >= board.num_places)
    unknown = np.bincount(np.repeat(np.arange(len(starts) - 1), np.diff(starts)), is_unknown, len(starts) - 1)
    values = normalise(sums.reshape(-1, board.width), square.reshape(-1)).reshape(len(starts) - 1, -1)
    return Readings(values=values, known=lists.sizes, unknown=unknown.astype(np.int64))


def take_off_others(
    sums: FloatArray,
    part: float,
    own: Ballots,
    now: PersonLists,
    weights: FloatArray,
    slots: Int64Array,
    starts: Int64Array,
) -> None:
    """Subtract from every sum what the other nodes of its person cast onto the places it lists.

    Args:
        sums: [rows, relations, width].
        part: of the board in those that were combined.
        own: what was cast, with the lists of then.
        now: the lists that are read.
        weights: of places.
        slots: the row of every node, -1 for none.
        starts: where relations begin on the board, and the end.
    """
    then = own.person_lists
    if then is None:
        return
    nodes, pointers = now.members
    ends = np.append(np.searchsorted(pointers, np.arange(0, len(nodes), _READ_BLOCK)), len(pointers) - 1)
    local = np.full(len(weights), -1, np.int64)
    lists = [(each.pointers, each.places, each.coefficients) for each in (now, then)]
    for first, last in itertools.pairwise(ends):
        block = nodes[pointers[first] : pointers[last]]
        if (slots[block] >= 0).any():
            ballots = own.dense(block) * (part / float(GRID))
            who = pointers[first : last + 1]
            _take_off_others(who, slots[block], *lists[0], *lists[1], ballots, weights, starts, local, sums)


def _check_places(board: Board, num_nodes: int) -> None:
    if board.num_places != num_nodes:
        raise GraphError(
            f"num_nodes={num_nodes}: the board has {board.num_places} places; expected the graph it was made "
            "on; read rows that are new by their lists"
        )


def _check_own(own: Ballots, board: Board, cast_graph: Graph) -> None:
    expected, given = (board.num_places, board.width), (len(own.labels), own.width)
    if given != expected or cast_graph.num_nodes != board.num_places:
        raise GraphError(
            f"own has {given[0]} rows and {given[1]} numbers a ballot, cast_graph {cast_graph.num_nodes} "
            f"nodes; expected {expected[0]} and {expected[1]}, as the board has"
        )


def _slots(picked: Int64Array, num_nodes: int) -> Int64Array:
    """int64 [N]: where the reading of every node goes; -1 for those that are not wanted."""
    slots = _arrays.full(num_nodes, -1, np.int64)
    wrong = (picked < 0) | (picked >= num_nodes)
    if not wrong.any():
        slots[picked] = np.arange(len(picked))
        wrong = slots[picked] != np.arange(len(picked))
    if wrong.any():
        raise GraphError(
            f"rows hold {int(picked[wrong][0])}; expected different nodes from 0 to {num_nodes - 1}"
        )
    return slots


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


def take_off(
    sums: FloatArray,
    own_weight: FloatArray,
    own: Ballots,
    picked: Int64Array,
) -> None:
    """Subtract the own part of every row that cast a ballot."""
    casters = np.flatnonzero((own.labels[picked] >= 0) | (own.soft_rows[picked] >= 0))
    sums[casters] -= own_weight[casters, None] * (own.dense(picked[casters]) / float(GRID))


def normalise(sums: FloatArray, square: FloatArray) -> npt.NDArray[np.float32]:
    """The sums divided by the root of the summed squares of the weights; 0 for an empty list."""
    sums /= np.sqrt(np.where(square > 0.0, square, 1.0))[:, None]
    return sums.astype(np.float32)


@numba.njit(cache=True, nogil=True, inline="always")
def _add_place(values, weight, place, row):  # type: ignore[no-untyped-def]
    for k in range(len(row)):
        row[k] += weight * values[place, k]


@numba.njit(cache=True, nogil=True)
def add_lists(rows, ends, places, then, then_places, weights, values, sums, square, own_weight):  # type: ignore[no-untyped-def]
    """Add up what rows list, the squares of its weights, and the weights of what they listed at casting.

    `then` and `then_places` are the lists of then; empty where those are what is listed now.
    """
    for i in range(len(rows)):
        row = rows[i]
        seen, squares, own = sums[i], 0.0, 0.0
        for j in range(ends[row], ends[row + 1]):
            place = places[j]
            weight = weights[place]
            _add_place(values, weight, place, seen)
            squares += weight * weight
            if not len(then) or contains(then_places, then[row], then[row + 1], place):
                own += weight
        square[i], own_weight[i] = squares, own


@numba.njit(cache=True, nogil=True)
def _take_off_others(  # type: ignore[no-untyped-def]
    who,
    slots,
    now,
    now_places,
    now_coefficients,
    then,
    then_places,
    then_coefficients,
    ballots,
    weights,
    starts,
    local,
    sums,
):
    """For every person, add up what was cast by place, and take off what a node did not cast itself.

    `local` is -1 for every place before and after.
    """
    width, start = ballots.shape[1], who[0]
    for person in range(len(who) - 1):
        first, last = who[person], who[person + 1]
        cast = np.zeros((then[last] - then[first], width))
        touched = 0
        for i in range(first, last):
            for at in range(then[i], then[i + 1]):
                place = then_places[at]
                if local[place] < 0:
                    local[place] = touched
                    touched += 1
                for k in range(width):
                    cast[local[place], k] += then_coefficients[at] / GRID * ballots[i - start, k]
        for i in range(first, last):
            slot = slots[i - start]
            if slot < 0:
                continue
            relation, mine = 0, then[i]
            for at in range(now[i], now[i + 1]):
                place = now_places[at]
                while place >= starts[relation + 1]:
                    relation += 1
                if local[place] < 0:
                    continue
                while mine < then[i + 1] and then_places[mine] < place:
                    mine += 1
                is_mine = mine < then[i + 1] and then_places[mine] == place
                share = then_coefficients[mine] / GRID if is_mine else 0.0
                weight = weights[place] * (now_coefficients[at] / GRID)
                for k in range(width):
                    others = cast[local[place], k] - share * ballots[i - start, k]
                    sums[slot, relation, k] -= weight * others
        for at in range(then[first], then[last]):
            local[then_places[at]] = -1


@numba.njit(cache=True, nogil=True)
def _read_lists(  # type: ignore[no-untyped-def]
    indptr,
    places,
    own_places,
    weights,
    values,
    cast_indptr,
    cast_places,
    sums,
    square,
    own_weight,
    known,
    unknown,
):
    for i in range(len(indptr) - 1):
        row = np.sort(places[indptr[i] : indptr[i + 1]])
        for j in range(len(row)):
            place = row[j]
            if place < 0 or place >= len(weights):
                unknown[i] += 1
                continue
            if place == own_places[i] or (j and row[j - 1] == place):
                continue
            weight = weights[place]
            _add_place(values, weight, place, sums[i])
            square[i] += weight * weight
            known[i] += 1
            if len(cast_indptr) and contains(cast_places, cast_indptr[i], cast_indptr[i + 1], place):
                own_weight[i] += weight


@numba.njit(cache=True, nogil=True)
def _read_shares(  # type: ignore[no-untyped-def]
    indptr,
    places,
    coefficients,
    starts,
    weights,
    values,
    cast_indptr,
    cast_places,
    cast_coefficients,
    is_same,
    sums,
    square,
    own_weight,
):
    """Add up what rows see of every relation, in the order of their places.

    `is_same` where what was cast is what is listed.

    One relation after another: what is read at random is then a block of the board, not all of it.
    """
    count = len(indptr) - 1
    now, then = indptr[:-1].copy(), cast_indptr[:-1].copy()
    for relation in range(len(starts) - 1):
        behind = starts[relation + 1]
        for i in range(count):
            j, at, end, cast_end = now[i], then[i], indptr[i + 1], cast_indptr[i + 1]
            seen, squares, own = sums[i, relation], 0.0, 0.0
            while j < end and places[j] < behind:
                place, share = places[j], coefficients[j] / GRID
                weight = weights[place] * share
                _add_place(values, weight, place, seen)
                squares += weight * weight
                if is_same:
                    own += weight * share
                else:
                    while at < cast_end and cast_places[at] < place:
                        at += 1
                    if at < cast_end and cast_places[at] == place:
                        own += weight * (cast_coefficients[at] / GRID)
                j += 1
            square[i, relation], own_weight[i, relation] = squares, own
            now[i], then[i] = j, at


@numba.njit(cache=True, nogil=True)
def _take_off_shares(sums, own_weight, share, ballots):  # type: ignore[no-untyped-def]
    """Subtract what every row cast onto the places it reads, by relation."""
    for i in range(len(sums)):
        for relation in range(sums.shape[1]):
            weight = share * own_weight[i, relation]
            for k in range(sums.shape[2]):
                sums[i, relation, k] -= weight * ballots[i, k]
