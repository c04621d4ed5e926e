"""Ballots: what every row casts onto the places it lists, in integers, so that sensitivity is exact.

A ballot is a vector in units of 1 / GRID, as wide as the task says: one number per class. A row that lists d
places casts the same ballot b onto each of them, and d |b|^2 <= GRID^2 holds in integers. So emptying the row
moves the tally of all places by at most GRID (Frobenius norm), whatever the other rows are.

Of a person with several nodes, what the k that cast onto a board cast is added up place by place, over all
relations, divided by the root of k and cut to a norm of GRID, checked in integers on the sum. (1/sqrt(k) each
without the cut is not enough: k nodes that list one place would move it by sqrt(k).)

The places of a row are the other ends of the records it owns. A `Graph` holds no repeats and no self-loops,
so its records are used as they are. Where records have weights, are of several relations or name places that
are not people, a row has a coefficient for each place (`lists.py`): what it casts there is its ballot, made
for a list of one place, times the coefficient, rounded towards zero.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numba
import numpy as np
import numpy.typing as npt

from hushgraph import _arrays
from hushgraph._arrays import Int32Array, Int64Array
from hushgraph.billboard.lists import GRID as GRID
from hushgraph.billboard.lists import GRID_BITS as GRID_BITS
from hushgraph.billboard.lists import RowRecords, divide_records, plain_records
from hushgraph.billboard.owned import find_share
from hushgraph.billboard.persons import PersonLists, cut_product
from hushgraph.errors import GraphError
from hushgraph.graph.checks import check_owner
from hushgraph.graph.graph import EdgeOwner, Graph
from hushgraph.tasks.task import Task, is_labelled, no_label

if TYPE_CHECKING:
    from torch import Tensor

_MOST_NODES = (1 << 31) - 1
# Rows whose ballots are made at a time.
_SOFT_ROWS = 1 << 14


@dataclass(frozen=True, kw_only=True, eq=False)
class Ballots:
    """What every row casts onto each place it lists. Private: it is never written to a file.

    Make them with `label_ballots`; `with_predictions` adds ballots for rows that have none.

    Attributes:
        width: how many numbers a ballot has; c for classes.
        edge_owner: whose row holds an edge record.
        list_sizes: int64 [N], how many places every row lists.
        labels: int64 [N], the class that a row casts its ballot for; -1 where it casts none for a class.
        own: int64 [N], what the class of a label ballot gets, in units; 0 without one.
        rest: int64 [N], what every other class loses, in units; 0 without one.
        soft_rows: int64 [N], the row of `soft` that a row casts instead; -1 where it casts none of these.
        soft: int32 [M, width], ballots of another form than a class against all others.
        records: what every row casts its ballot onto, with a coefficient for each place; None where it casts
            the same onto every place that the graph lists.
        person_lists: the lists of persons with several rows; None where nobody has.
        undivided: the same ballots as if every row were a person of its own, where somebody has several.
    """

    width: int
    edge_owner: EdgeOwner
    list_sizes: Int64Array
    labels: Int64Array
    own: Int64Array
    rest: Int64Array
    soft_rows: Int64Array
    soft: Int32Array
    records: RowRecords | None = None
    person_lists: PersonLists | None = None
    undivided: Ballots | None = None

    @property
    def divisors(self) -> Int64Array:
        """int64 [N]: what the square of a ballot's norm is divided by; 0 where a row casts nothing.

        The number of places where all get the same; 1 where coefficients divide a ballot among them.
        """
        return self.list_sizes if self.records is None else np.minimum(self.list_sizes, 1)

    @property
    def num_nodes(self) -> int:
        """N, the number of rows."""
        return len(self.list_sizes)

    @cached_property
    def is_cast(self) -> npt.NDArray[np.bool_]:
        """bool [N]: which rows cast a ballot, be it of zeros."""
        return (self.labels >= 0) | (self.soft_rows >= 0)

    def dense(self, rows: npt.NDArray[Any]) -> Int64Array:
        """int64 [len(rows), width]: the ballots of these rows, in units."""
        labels, soft_rows = self.labels[rows], self.soft_rows[rows]
        ballots = np.repeat(-self.rest[rows][:, None], self.width, axis=1)
        voters = np.flatnonzero(labels >= 0)
        ballots[voters, labels[voters]] = self.own[rows][voters]
        others = np.flatnonzero(soft_rows >= 0)
        ballots[others] = self.soft[soft_rows[others]]
        return ballots


def owned_records(graph: Graph, edge_owner: EdgeOwner) -> Iterator[tuple[npt.NDArray[Any], npt.NDArray[Any]]]:
    """Every record once, in chunks, as (row that owns it, place that the row lists).

    Within a row, places come in ascending order: chunks are sorted by reader, then by sender.
    """
    check_owner(edge_owner)
    for source, target in graph.edge_chunks():
        yield (source, target) if edge_owner == "sender" else (target, source)


def list_sizes(graph: Graph, edge_owner: EdgeOwner) -> Int64Array:
    """int64 [N]: |L_v|, how many places every row lists."""
    return plain_records(graph, edge_owner).count()


def ballot_entries(
    sizes: npt.NDArray[Any], squares: tuple[Fraction, Fraction]
) -> tuple[Int64Array, Int64Array]:
    """What a label ballot gives to its class and takes from every other, in units, for lists of these sizes.

    Args:
        sizes: d, integers of 0 or more; an empty list casts nothing.
        squares: of both for a list of one place, `Task.entry_squares`. For c classes they are (c-1)/c and
            1/(c (c-1)): the entries of (e_y - 1/c) / sqrt(1 - 1/c).

    Returns:
        The roots of GRID^2 square / d, rounded towards zero, int64; 0 where d is 0.

    Guarantees:
        d (own^2 + (c-1) rest^2) <= GRID^2, since the squares are at most GRID^2 (c-1) / (c d) and
        GRID^2 / (c (c-1) d): the two parts of GRID^2 / d.
    """
    d = np.asarray(sizes, np.int64)
    listed = np.maximum(d, 1)
    # Dividing twice and rounding down each time is dividing once: nothing of the size of c GRID^2 is formed.
    own, rest = (_isqrt(np.int64(GRID**2 * s.numerator // s.denominator) // listed) for s in squares)
    return np.where(d > 0, own, 0), np.where(d > 0, rest, 0)


def label_ballots(graph: Graph, edge_owner: EdgeOwner, *, task: Task) -> Ballots:
    """The ballots of training rows that have a label; nobody else casts anything.

    Args:
        graph: its lists and labels.
        edge_owner: whose row holds an edge record.
        task: what a label casts, which is public; of classes, at least as many as the graph has.

    Guarantees:
        Labels outside the training split are not looked at. What a row casts depends on that row alone.
    """
    task.check()
    if task.num_outputs < graph.task.num_outputs:
        raise GraphError(
            f"num_classes={task.num_outputs}: the graph has {graph.num_classes} classes; expected at least "
            "as many"
        )
    if graph.num_nodes > _MOST_NODES:
        raise GraphError(
            f"num_nodes={graph.num_nodes}: expected fewer than 2^31 nodes, as tallies are 64-bit"
        )
    labels = _arrays.full(graph.y.shape, no_label(graph.y.dtype), graph.y.dtype)
    labels[graph.train_idx] = graph.y[graph.train_idx]
    records = divide_records(graph, edge_owner)
    sizes = list_sizes(graph, edge_owner) if records is None else records.sizes
    ballots = ballots_of_lists(sizes, labels, edge_owner, task=task, records=records)
    return share_among_persons(ballots, PersonLists.of(graph, edge_owner, records))


def ballots_of_lists(
    sizes: Int64Array,
    labels: npt.NDArray[Any],
    edge_owner: EdgeOwner,
    *,
    task: Task,
    records: RowRecords | None = None,
) -> Ballots:
    """The ballots of rows that list this many places and have these training labels."""
    has_label = is_labelled(labels)
    nobody, nothing = _arrays.full(len(sizes), -1, np.int64), _arrays.zeros(len(sizes), np.int64)
    ballots = Ballots(
        width=task.ballot_width,
        edge_owner=edge_owner,
        list_sizes=sizes,
        labels=nobody,
        own=nothing,
        rest=nothing,
        soft_rows=nobody,
        soft=np.empty((0, task.ballot_width), np.int32),
        records=records,
    )
    if task.entry_squares is None:
        return _add_soft(ballots, has_label, lambda block, rows: task.make_ballots(labels[block][rows]))
    own, rest = _arrays.empty(len(sizes), np.int64), _arrays.empty(len(sizes), np.int64)
    listed = ballots.divisors
    for begin in range(0, len(sizes), _SOFT_ROWS):
        rows = slice(begin, begin + _SOFT_ROWS)
        divisors = np.where(has_label[rows], listed[rows], 0)
        own[rows], rest[rows] = ballot_entries(divisors, task.entry_squares)
    return replace(ballots, labels=labels, own=own, rest=rest)


def with_predictions(ballots: Ballots, outputs: Tensor, task: Task) -> Ballots:
    """Ballots for a board that everybody casts onto: labels where there are labels, else predictions.

    Args:
        ballots: from `label_ballots`.
        outputs: [N, outputs] of a released model for every row; rows that cast a label are not used.
        task: what predictions cast.

    Guarantees:
        d |b|^2 <= GRID^2 is checked in integers for every ballot, whatever the numbers are, and for all of a
        person together. A row of numbers that are not finite casts nothing: one row cannot stop a run.
    """
    expected = (ballots.num_nodes, task.num_outputs)
    if tuple(outputs.shape) != expected:
        raise GraphError(
            f"outputs have shape {list(outputs.shape)}; expected {list(expected)}: one row per node, one "
            "column per output"
        )
    undivided = ballots.undivided or ballots
    others = ~undivided.is_cast
    added = _add_soft(undivided, others, lambda block, rows: task.predict_ballots(outputs[block])[rows])
    return share_among_persons(added, ballots.person_lists)


def share_among_persons(ballots: Ballots, lists: PersonLists | None) -> Ballots:
    """Ballots of persons with several nodes: divided by the root of how many of them cast, cut to norm 1.

    Guarantees:
        What the nodes of one person cast together has norm at most GRID, which is checked in integers, and
        depends on the rows of that person alone.
    """
    if lists is None:
        return ballots
    nodes, pointers = lists.members
    person_of = np.repeat(np.arange(len(pointers) - 1), np.diff(pointers))
    dense = ballots.dense(nodes)
    casts = (ballots.is_cast & (ballots.list_sizes > 0))[nodes]
    counts = np.maximum(np.bincount(person_of[casts], minlength=len(pointers) - 1), 1)
    # Of many nodes, squares would be too large for integers.
    squares = lists.square(dense, np.float64)
    scales = np.minimum(1 / np.sqrt(counts), GRID / np.sqrt(np.maximum(squares, 1.0)))
    shrinking = 2.0**-40
    while True:
        # Rounding towards zero may lengthen a sum of ballots that cancel, by little.
        exact = np.trunc(dense * scales[person_of, None]).astype(np.int64)
        too_long = lists.square(exact, np.int64) > GRID**2
        if not too_long.any():
            break
        scales[too_long] *= 1 - shrinking
        shrinking = min(0.5, 4 * shrinking)
    own, rest, soft = ballots.own.copy(), ballots.rest.copy(), ballots.soft.copy()
    each = scales[person_of]
    own[nodes], rest[nodes] = (np.trunc(entries[nodes] * each) for entries in (own, rest))
    rows = ballots.soft_rows[nodes]
    soft[rows[rows >= 0]] = exact[rows >= 0]
    return replace(ballots, own=own, rest=rest, soft=soft, person_lists=lists, undivided=ballots)


def _add_soft(
    ballots: Ballots,
    casts: npt.NDArray[np.bool_],
    make: Callable[[slice, Int64Array], npt.NDArray[np.float64]],
) -> Ballots:
    """Add ballots that are no class against all others.

    Args:
        ballots: what is cast already.
        casts: bool [N], the rows that cast one of these, if they list a place.
        make: from a block of rows, and numbers of some within it, to the ballots of those, float64 [rows,
            width], of any length. Blocks do not depend on who casts: the last bit of what torch computes may
            depend on where a row stands.
    """
    rows, divisors = np.flatnonzero(casts & (ballots.list_sizes > 0)), ballots.divisors
    before = len(ballots.soft)
    soft = _arrays.zeros((before + len(rows), ballots.width), np.int32)
    soft[:before] = ballots.soft
    begins = np.arange(0, ballots.num_nodes + _SOFT_ROWS, _SOFT_ROWS)
    for begin, (first, last) in zip(begins, itertools.pairwise(np.searchsorted(rows, begins)), strict=False):
        if first < last:
            block, mine = slice(begin, begin + _SOFT_ROWS), rows[first:last]
            soft[before + first : before + last] = _round_onto_grid(make(block, mine - begin), divisors[mine])
    soft_rows = _arrays.empty(ballots.num_nodes, np.int64)
    soft_rows[:] = ballots.soft_rows
    soft_rows[rows] = before + np.arange(len(rows))
    return replace(ballots, soft=soft, soft_rows=soft_rows)


def _round_onto_grid(ballots: npt.NDArray[np.float64], sizes: Int64Array) -> Int32Array:
    """Scale every ballot to a norm of at most 1 / sqrt(size) and round it towards zero onto the grid."""
    squares = np.zeros(len(ballots))
    with np.errstate(over="ignore", invalid="ignore"):
        for column in ballots.T:
            squares += column * column
    # What is not finite casts nothing.
    ballots = np.where(np.isfinite(squares)[:, None], ballots, 0.0)
    scales = GRID / np.sqrt(sizes * np.where(squares > 1.0, squares, 1.0))
    while True:
        rounded = (ballots * scales[:, None]).astype(np.int32)
        fits = _fits(rounded, sizes)
        if fits.all():
            return rounded
        # Rounding errors of the scale are undone in a few tries; a ballot of zeros ends the loop at last.
        scales[~fits] *= 1.0 - 2.0**-40


def _fits(ballots: Int32Array, sizes: Int64Array) -> npt.NDArray[np.bool_]:
    """bool [rows]: whether the norm of a ballot, times the root of `size`, is at most GRID, in integers."""
    squares = np.square(ballots, dtype=np.int64).sum(axis=1)
    fits: npt.NDArray[np.bool_] = squares * sizes <= GRID**2
    return fits


def _isqrt(values: Int64Array) -> Int64Array:
    """The integer square root of numbers from 0 to 2^48, exactly."""
    root = np.sqrt(values.astype(np.float64)).astype(np.int64)
    root -= root * root > values
    root += (root + 1) * (root + 1) <= values
    return root


@numba.njit(cache=True, nogil=True)
def add_ballots(ends, casters, shares, coefficients, rows, soft, first, tally):  # type: ignore[no-untyped-def]
    """Add what is cast onto the places from `first` on; place u is listed by `casters[ends[u]:ends[u + 1]]`.

    `rows` has of every row its class or -1, what that gains, what all classes lose, and its row of `soft`;
    where rows have `shares`, gains and losses are multiplied already.

    A product of two numbers of at most GRID is cut to units towards zero, so that its size is at most that of
    the product: the squares of all that a row casts sum to at most those of its coefficients times those of
    its ballot, divided by GRID^2, which is at most GRID^2.
    """
    for place in range(len(tally)):
        taken = np.int64(0)
        for i in range(ends[first + place], ends[first + place + 1]):
            v = casters[i]
            label, row = rows[v, 0], rows[v, 3]
            if label >= 0:
                share = find_share(None, coefficients, v, i)
                loss = (share * rows[v, 2]) >> GRID_BITS
                tally[place, label] += ((share * rows[v, 1]) >> GRID_BITS) + loss
                taken += loss
            if row >= 0:
                share = find_share(shares, coefficients, v, i)
                for k in range(soft.shape[1]):
                    tally[place, k] += cut_product(share, soft[row, k])
        for k in range(tally.shape[1]):
            tally[place, k] -= taken


@numba.njit(cache=True, nogil=True)
def add_lists(indptr, places, shares, coefficients, cursors, rows, soft, first, tally):  # type: ignore[no-untyped-def]
    """`add_ballots` by the lists of rows: row v lists `places[indptr[v]:indptr[v + 1]]`, which are ascending.

    `cursors` are where rows have places from `first` on, or before that, and move to those behind the tally.
    """
    last, taken = first + len(tally), np.zeros(len(tally), np.int64)
    for v in range(len(cursors)):
        label, row = rows[v, 0], rows[v, 3]
        if label < 0 and row < 0:
            continue
        i, end = cursors[v], indptr[v + 1]
        while i < end and places[i] < first:
            i += 1
        while i < end and places[i] < last:
            u = places[i] - first
            if row >= 0:
                share = find_share(shares, coefficients, v, i)
                for k in range(soft.shape[1]):
                    tally[u, k] += cut_product(share, soft[row, k])
            else:
                share = find_share(None, coefficients, v, i)
                loss = (share * rows[v, 2]) >> GRID_BITS
                tally[u, label] += ((share * rows[v, 1]) >> GRID_BITS) + loss
                taken[u] += loss
            i += 1
        cursors[v] = i
    for u in range(len(tally)):
        for k in range(tally.shape[1]):
            tally[u, k] -= taken[u]
