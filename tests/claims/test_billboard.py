"""The billboard: an emptied row moves the tally by at most one ballot, and no reading but its own."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pytest

from effort import choose
from hushgraph.billboard.ballots import (
    GRID,
    Ballots,
    _fits,
    ballot_entries,
    label_ballots,
)
from hushgraph.billboard.board import cast, release
from hushgraph.billboard.reading import read
from hushgraph.graph.graph import EdgeOwner, Graph
from hushgraph.tasks.classes import Classes
from soft_ballots import with_probabilities

GRAPHS = choose(500, 2000)
# Rounding towards zero loses less than this much of a squared norm on such small graphs.
NEARLY = 1 - 1e-5


@dataclass(frozen=True, kw_only=True)
class Case:
    """A random graph, with what was drawn for it."""

    graph: Graph
    owner: EdgeOwner
    rng: np.random.Generator

    def ballots(self, graph: Graph | None = None) -> Ballots:
        graph = self.graph if graph is None else graph
        return label_ballots(graph, self.owner, task=Classes(num_classes=graph.num_classes))

    def tally(self, graph: Graph | None = None) -> npt.NDArray[np.int64]:
        graph = self.graph if graph is None else graph
        return cast(graph, self.ballots(graph))


def graph_from(edges: npt.NDArray[np.int64], like: Graph, *, directed: bool) -> Graph:
    return Graph.from_arrays(
        edge_index=edges,
        x=like.x,
        y=like.y,
        train_idx=like.train_idx,
        num_classes=like.num_classes,
        directed=directed,
    )


def cases(*, count: int = GRAPHS, directed: bool | None = None) -> Iterator[Case]:
    """Small graphs with hubs, repeats, self-loops, missing labels, and rows outside the training split."""
    for number in range(count):
        rng = np.random.default_rng(number)
        nodes, classes = int(rng.integers(2, 12)), int(rng.integers(2, 6))
        is_directed = number % 2 == 0 if directed is None else directed
        size, power = int(rng.integers(0, 4 * nodes)), rng.choice([1.0, 2.5])
        edges = (nodes * rng.random((2, size)) ** power).astype(np.int64)
        graph = Graph.from_arrays(
            edge_index=edges,
            x=np.zeros((nodes, 1)),
            y=rng.integers(-1, classes, nodes),
            train_idx=np.union1d(0, np.flatnonzero(rng.random(nodes) < rng.choice([0.5, 1.0]))),
            num_classes=classes,
            symmetrize=not is_directed,
            directed=is_directed or None,
        )
        owner: EdgeOwner = "sender" if rng.random() < 0.5 else "reader"
        yield Case(graph=graph, owner=owner, rng=rng)


def square(moved: npt.NDArray[np.int64]) -> int:
    """The squared Frobenius norm, without overflow."""
    return sum(int(value) ** 2 for value in moved.flat)


def test_an_emptied_row_moves_the_tally_by_at_most_one_ballot() -> None:
    largest = 0
    for number, case in enumerate(cases()):
        v = int(case.rng.integers(case.graph.num_nodes))
        moved = square(case.tally() - case.tally(case.graph.with_row_emptied(v, case.owner)))
        assert moved <= GRID**2, number
        if case.graph.y[v] < 0 or v not in case.graph.train_idx:
            assert moved == 0, number
        largest = max(largest, moved)
    assert largest > NEARLY * GRID**2


def test_no_other_reading_changes_given_the_board() -> None:
    for number, case in enumerate(cases()):
        v = int(case.rng.integers(case.graph.num_nodes))
        emptied = case.graph.with_row_emptied(v, case.owner)
        board = release(
            case.tally(), noise_std=2.0, draws=lambda n, rng=case.rng: rng.integers(-(2**41), 2**41, n)
        )
        others = np.delete(np.arange(case.graph.num_nodes), v)
        damped = bool(number % 3)
        before = read(board, case.graph, case.owner, own=case.ballots(), damped=damped)
        after = read(board, emptied, case.owner, own=case.ballots(emptied), damped=damped)
        assert np.array_equal(before[others], after[others]), number
        assert not after[v].any()


def test_one_undirected_edge_moves_the_tally_by_at_most_the_root_of_two() -> None:
    largest = 0
    for number, case in enumerate(cases(directed=False)):
        source, target = next(case.graph.edge_chunks(), (np.empty(0), np.empty(0)))
        if not len(source):
            continue
        pick = int(case.rng.integers(len(source)))
        u, w = int(source[pick]), int(target[pick])
        kept = ~(((source == u) & (target == w)) | ((source == w) & (target == u)))
        without = graph_from(np.stack([source[kept], target[kept]]), case.graph, directed=False)
        moved = square(case.tally() - case.tally(without))
        assert moved <= 2 * GRID**2, number
        largest = max(largest, moved)
    assert largest > 2 * NEARLY * GRID**2


def test_one_directed_record_moves_the_tally_by_at_most_one_ballot() -> None:
    largest = 0
    for number, case in enumerate(cases(directed=True)):
        source, target = next(case.graph.edge_chunks(), (np.empty(0), np.empty(0)))
        if not len(source):
            continue
        kept = np.delete(np.arange(len(source)), case.rng.integers(len(source)))
        without = graph_from(np.stack([source[kept], target[kept]]), case.graph, directed=True)
        moved = square(case.tally() - case.tally(without))
        assert moved <= GRID**2, number
        largest = max(largest, moved)
    assert largest > NEARLY * GRID**2


def test_one_changed_label_and_two_emptied_rows() -> None:
    flips = pairs = 0.0
    for number, case in enumerate(cases()):
        graph, c = case.graph, case.graph.num_classes
        v = int(case.rng.integers(graph.num_nodes))
        if graph.y[v] >= 0:
            labels = graph.y.copy()
            labels[v] = (labels[v] + 1) % c
            moved = square(case.tally() - case.tally(replace(graph, y=labels)))
            assert moved * (c - 1) <= 2 * c * GRID**2, number
            flips = max(flips, moved * (c - 1) / (2 * c * GRID**2))
        u = (v + 1) % graph.num_nodes
        both = graph.with_row_emptied(v, case.owner).with_row_emptied(u, case.owner)
        moved = square(case.tally() - case.tally(both))
        assert moved <= 4 * GRID**2, number
        pairs = max(pairs, moved / (4 * GRID**2))
    assert flips > NEARLY
    assert pairs > NEARLY


def test_a_board_by_everybody_moves_by_at_most_one_ballot() -> None:
    largest = 0
    for number, case in enumerate(cases()):
        graph = case.graph
        v = int(case.rng.integers(graph.num_nodes))
        # Anything a model may say: nearly certain, flat, not normalised, not finite.
        said = case.rng.dirichlet(np.full(graph.num_classes, 0.05), graph.num_nodes)
        said *= case.rng.choice([1.0, 1e9], graph.num_nodes)[:, None]
        said[case.rng.random(graph.num_nodes) < 0.05] = np.nan
        tallies = []
        for world in (graph, graph.with_row_emptied(v, case.owner)):
            tallies.append(cast(world, with_probabilities(case.ballots(world), said)))
        moved = square(tallies[0] - tallies[1])
        assert moved <= GRID**2, number
        largest = max(largest, moved)
    assert largest > NEARLY * GRID**2


@pytest.mark.parametrize("classes", [2, 3, 7, 10, 40, 47, 172, 349, 999, 1000])
def test_no_list_is_long_enough_to_exceed_the_norm(classes: int) -> None:
    """Every size up to a million, and some beyond."""
    sizes = np.concatenate([np.arange(1, 1_000_001), 2 ** np.arange(20, 31), [2**31 - 1]])
    own, rest = ballot_entries(sizes, Classes(num_classes=classes).entry_squares)
    norms = sizes * (own**2 + (classes - 1) * rest**2)
    assert norms.max() <= GRID**2
    # A list of ten thousand places still casts more than 99.9% of what it may.
    assert norms[:10_000].min() > 0.998 * GRID**2


def test_every_number_of_classes() -> None:
    sizes = np.concatenate([np.arange(1, 2000), np.random.default_rng(0).integers(1, 10**7, 2000)])
    for classes in range(2, 1001):
        own, rest = ballot_entries(sizes, Classes(num_classes=classes).entry_squares)
        assert (sizes * (own**2 + (classes - 1) * rest**2)).max() <= GRID**2, classes


@pytest.mark.parametrize("size", [1, 4, 9, 1024, 10**6])
def test_soft_ballots_are_checked_to_the_last_unit(size: int) -> None:
    """Rounding never makes a ballot too large by itself, so the check is tried on ballots that are."""
    largest = math.isqrt(GRID**2 // size)
    left = math.isqrt(GRID**2 // size - largest**2)
    for ballot, is_small in (
        ([largest, left, 0], True),
        ([largest, left + 1, 0], False),
        ([-largest, 0, -left - 1], False),
        ([largest + 1, 0, 0], False),
        ([largest, largest, 0], False),
    ):
        assert (size * sum(value**2 for value in ballot) <= GRID**2) == is_small
        assert _fits(np.array([ballot], np.int32), np.array([size])).tolist() == [is_small]


def test_soft_ballots_lose_what_exceeds_the_norm() -> None:
    """Whatever the size of what a model says, one list of places gets a ballot of norm 1 and no more."""
    sizes = np.array([1, 2, 3, 9, 1000])
    edges = np.stack([np.repeat(np.arange(5), sizes), 5 + np.concatenate([np.arange(d) for d in sizes])])
    nodes = 5 + sizes.max()
    graph = Graph.from_arrays(
        edge_index=edges, x=np.zeros((nodes, 1)), y=np.full(nodes, -1), train_idx=[0], num_classes=3
    )
    for scale in (1 + 2.0**-20, 2.0, 1e9):
        said = np.full((nodes, 3), 1 / 3)
        said[:5] += scale * np.array([2, -1, -1]) / 3
        soft = with_probabilities(label_ballots(graph, "sender", task=Classes(num_classes=3)), said).dense(
            np.arange(5)
        )
        norms = sizes * np.square(soft).sum(1)
        assert norms.max() <= GRID**2
        assert norms.min() > NEARLY * GRID**2


def test_the_check_sees_ballots_that_are_too_large() -> None:
    """The same ballot however many places are listed: the move grows with the list."""
    largest = 0
    for case in cases(count=100):
        emptied = case.graph.with_row_emptied(0, case.owner)
        tallies = []
        for world in (case.graph, emptied):
            ballots = case.ballots(world)
            own, rest = ballot_entries(
                np.minimum(ballots.list_sizes, 1), Classes(num_classes=ballots.width).entry_squares
            )
            casting = ballots.labels >= 0
            tallies.append(cast(world, replace(ballots, own=own * casting, rest=rest * casting)))
        largest = max(largest, square(tallies[0] - tallies[1]))
    assert largest > 2 * GRID**2
