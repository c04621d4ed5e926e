"""Ballots: what every row casts onto the places it lists, in integers, so that sensitivity is exact.

A ballot is a vector of one number per class, in units of 1 / GRID. A row that lists d places casts the same
ballot b onto each of them, and d |b|^2 <= GRID^2 holds in integers. So emptying the row moves the tally of
all places by at most GRID (Frobenius norm), whatever the other rows are.

The places of a row are the other ends of the records it owns. A `Graph` holds no repeats and no self-loops,
so its records are used as they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numba
import numpy as np
import numpy.typing as npt

from hushgraph.errors import GraphError
from hushgraph.graph.graph import EdgeOwner, Graph

# One unit is 2^-24 of a ballot's norm. With fewer than 2^31 rows, sums stay below 2^56: int64 holds them.
GRID_BITS = 24
GRID = 1 << GRID_BITS
_MOST_NODES = (1 << 31) - 1

Int64Array = npt.NDArray[np.int64]
Int32Array = npt.NDArray[np.int32]


@dataclass(frozen=True, kw_only=True, eq=False)
class Ballots:
    """What every row casts onto each place it lists. Private: it is never written to a file.

    Make them with `label_ballots`; `with_probabilities` adds ballots for rows that have none.

    Attributes:
        num_classes: c.
        edge_owner: whose row holds an edge record.
        list_sizes: int64 [N], how many places every row lists.
        labels: int64 [N], the class that a row casts its ballot for; -1 where it casts none for a class.
        own: int64 [N], what the class of a label ballot gets, in units; 0 without one.
        rest: int64 [N], what every other class loses, in units; 0 without one.
        soft_rows: int64 [N], the row of `soft` that a row casts instead; -1 where it casts none of these.
        soft: int32 [M, c], ballots made of probabilities.
    """

    num_classes: int
    edge_owner: EdgeOwner
    list_sizes: Int64Array
    labels: Int64Array
    own: Int64Array
    rest: Int64Array
    soft_rows: Int64Array
    soft: Int32Array

    @property
    def num_nodes(self) -> int:
        """N, the number of rows."""
        return len(self.list_sizes)

    def dense(self, rows: npt.NDArray[Any]) -> Int64Array:
        """int64 [len(rows), c]: the ballots of these rows, in units."""
        labels, soft_rows = self.labels[rows], self.soft_rows[rows]
        ballots = np.repeat(-self.rest[rows][:, None], self.num_classes, axis=1)
        voters = np.flatnonzero(labels >= 0)
        ballots[voters, labels[voters]] = self.own[rows][voters]
        others = np.flatnonzero(soft_rows >= 0)
        ballots[others] = self.soft[soft_rows[others]]
        return ballots


def owned_records(graph: Graph, edge_owner: EdgeOwner) -> Iterator[tuple[npt.NDArray[Any], npt.NDArray[Any]]]:
    """Every record once, in chunks, as (row that owns it, place that the row lists).

    Within a row, places come in ascending order: chunks are sorted by reader, then by sender.
    """
    _check_owner(edge_owner)
    for source, target in graph.edge_chunks():
        yield (source, target) if edge_owner == "sender" else (target, source)


def list_sizes(graph: Graph, edge_owner: EdgeOwner) -> Int64Array:
    """int64 [N]: |L_v|, how many places every row lists.

    Readers' own lists are the rows of the graph. Senders' lists are its columns, which are counted.
    """
    _check_owner(edge_owner)
    if edge_owner == "reader":
        return np.diff(graph.indptr).astype(np.int64, copy=False)
    sizes = np.zeros(graph.num_nodes, np.int64)
    for owners, _ in owned_records(graph, edge_owner):
        _count(owners, sizes)
    return sizes


def ballot_entries(sizes: npt.NDArray[Any], num_classes: int) -> tuple[Int64Array, Int64Array]:
    """What a label ballot gives to its class and takes from every other, in units, for lists of these sizes.

    (e_y - 1/c) / sqrt((1 - 1/c) d) on the grid, every entry rounded towards zero.

    Args:
        sizes: d, integers of 0 or more; an empty list casts nothing.
        num_classes: c, 2 or more.

    Returns:
        isqrt(GRID^2 (c-1) // (c d)) and isqrt(GRID^2 // (c (c-1) d)), int64; 0 where d is 0.

    Guarantees:
        d (own^2 + (c-1) rest^2) <= GRID^2, since the squares are at most GRID^2 (c-1) / (c d) and
        GRID^2 / (c (c-1) d): the two parts of GRID^2 / d.
    """
    check_classes(num_classes)
    c, d = num_classes, np.asarray(sizes, np.int64)
    listed = np.maximum(d, 1)
    # Dividing twice and rounding down each time is dividing once: nothing of the size of c GRID^2 is formed.
    own = _isqrt(np.int64(GRID**2 * (c - 1) // c) // listed)
    rest = _isqrt(np.int64(GRID**2 // (c * (c - 1))) // listed)
    return np.where(d > 0, own, 0), np.where(d > 0, rest, 0)


def label_ballots(graph: Graph, edge_owner: EdgeOwner, *, num_classes: int) -> Ballots:
    """The ballots of training rows that have a label; nobody else casts anything.

    Args:
        graph: its lists and labels.
        edge_owner: whose row holds an edge record.
        num_classes: how many classes there are, which is public: at least `graph.num_classes`.

    Guarantees:
        Labels outside the training split are not looked at. What a row casts depends on that row alone.
    """
    check_classes(num_classes)
    if num_classes < graph.num_classes:
        raise GraphError(
            f"num_classes={num_classes}: the graph has {graph.num_classes} classes; expected at least as many"
        )
    if graph.num_nodes > _MOST_NODES:
        raise GraphError(f"num_nodes={graph.num_nodes}: tallies are 64-bit; expected less than 2^31 nodes")
    labels = np.full(graph.num_nodes, -1, np.int64)
    labels[graph.train_idx] = graph.y[graph.train_idx]
    return ballots_of_lists(list_sizes(graph, edge_owner), labels, edge_owner, num_classes=num_classes)


def ballots_of_lists(
    sizes: Int64Array, labels: Int64Array, edge_owner: EdgeOwner, *, num_classes: int
) -> Ballots:
    """The ballots of rows that list this many places and have these training labels, -1 for none."""
    own, rest = ballot_entries(np.where(labels >= 0, sizes, 0), num_classes)
    return Ballots(
        num_classes=num_classes,
        edge_owner=edge_owner,
        list_sizes=sizes,
        labels=labels,
        own=own,
        rest=rest,
        soft_rows=np.full(len(sizes), -1, np.int64),
        soft=np.empty((0, num_classes), np.int32),
    )


def with_probabilities(ballots: Ballots, probabilities: npt.NDArray[Any]) -> Ballots:
    """Ballots for a board that everybody casts onto: labels where there are labels, else probabilities.

    Args:
        ballots: from `label_ballots`.
        probabilities: [N, c], what a released model says of every row; rows that cast a label are not used.

    Guarantees:
        d |b|^2 <= GRID^2 is checked in integers for every ballot, whatever the numbers are. A row of numbers
        that are not finite casts nothing: one row cannot stop a run.
    """
    expected = (ballots.num_nodes, ballots.num_classes)
    if np.shape(probabilities) != expected:
        raise GraphError(
            f"probabilities have shape {list(np.shape(probabilities))}; expected {list(expected)}: one row "
            "per node, one column per class"
        )
    beliefs = np.asarray(probabilities)
    # Kernels know two kinds of floating-point numbers; others, such as float16, are converted.
    beliefs = beliefs if beliefs.dtype in (np.float32, np.float64) else beliefs.astype(np.float64)
    rows = np.flatnonzero((ballots.labels < 0) & (ballots.list_sizes > 0))
    soft = np.zeros((len(rows), ballots.num_classes), np.int32)
    _round_soft(beliefs, rows, ballots.list_sizes, soft)
    soft_rows = np.full(ballots.num_nodes, -1, np.int64)
    soft_rows[rows] = np.arange(len(rows))
    return replace(ballots, soft=soft, soft_rows=soft_rows)


def check_classes(num_classes: int) -> None:
    """Refuse fewer classes than a ballot can choose from."""
    if num_classes < 2:
        raise GraphError(
            f"num_classes={num_classes}: expected 2 or more; one class leaves nothing to predict"
        )


def _check_owner(edge_owner: str) -> None:
    if edge_owner not in ("sender", "reader"):
        raise GraphError(f"edge_owner={edge_owner!r}; expected 'sender' or 'reader'")


def _isqrt(values: Int64Array) -> Int64Array:
    """The integer square root of numbers from 0 to 2^48, exactly."""
    root = np.sqrt(values.astype(np.float64)).astype(np.int64)
    root -= root * root > values
    root += (root + 1) * (root + 1) <= values
    return root


@numba.njit(cache=True, nogil=True)
def _count(owners, sizes):  # type: ignore[no-untyped-def]
    for i in range(len(owners)):
        sizes[owners[i]] += 1


@numba.njit(cache=True, nogil=True)
def add_label_ballots(owners, places, labels, gain, rest, tally, taken):  # type: ignore[no-untyped-def]
    """Add the ballots of these records: `gain` to the class of the owner, `rest` to what all classes lose."""
    for i in range(len(owners)):
        v, u = owners[i], places[i]
        if labels[v] >= 0:
            tally[u, labels[v]] += gain[v]
            taken[u] += rest[v]


@numba.njit(cache=True, nogil=True)
def add_soft_ballots(owners, places, soft_rows, soft, tally):  # type: ignore[no-untyped-def]
    for i in range(len(owners)):
        row = soft_rows[owners[i]]
        if row >= 0:
            u = places[i]
            for k in range(soft.shape[1]):
                tally[u, k] += soft[row, k]


@numba.njit(cache=True, nogil=True)
def _round_soft(probabilities, rows, sizes, out):  # type: ignore[no-untyped-def]
    """Centre every row, scale it to a norm of at most 1 and round it towards zero onto the grid."""
    c = out.shape[1]
    centred = np.empty(c)
    for i in range(len(rows)):
        size = sizes[rows[i]]
        square = 0.0
        for k in range(c):
            centred[k] = (probabilities[rows[i], k] - 1.0 / c) / np.sqrt(1.0 - 1.0 / c)
            square += centred[k] * centred[k]
        if not np.isfinite(square):
            continue
        scale = GRID / np.sqrt(size * max(1.0, square))
        # Rounding errors of the scale are undone in a few tries; a ballot of zeros ends the loop at last.
        while not _fits(centred, scale, size, out[i]):
            scale *= 1.0 - 2.0**-40


@numba.njit(cache=True, nogil=True)
def _fits(centred, scale, size, out):  # type: ignore[no-untyped-def]
    """Write the scaled ballot; whether its norm, times the root of `size`, is at most GRID in integers."""
    total = np.int64(0)
    for k in range(len(out)):
        out[k] = np.int32(centred[k] * scale)
        total += np.int64(out[k]) * np.int64(out[k])
    return total * size <= np.int64(GRID) * np.int64(GRID)
