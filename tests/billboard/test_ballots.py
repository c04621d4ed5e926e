"""Ballots on graphs checkable by eye, and tallies against sums written out from the raw edges."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partialmethod
from typing import Any

import numpy as np
import pytest
import torch

import hushgraph as hg
from hushgraph.billboard.ballots import (
    GRID,
    ballot_entries,
    label_ballots,
    list_sizes,
    owned_records,
    with_predictions,
)
from hushgraph.billboard.board import cast
from hushgraph.errors import GraphError
from hushgraph.graph.graph import EdgeOwner, Graph
from hushgraph.tasks.classes import Classes
from hushgraph.tasks.labels import Labels
from soft_ballots import with_probabilities

# Repeats and a self-loop. 1 and 2 read 0, 0 reads 2, 3 reads 1.
EDGES = np.array([[0, 0, 0, 2, 1, 1, 3], [1, 1, 2, 0, 3, 3, 3]])


def small(**changes: Any) -> Graph:
    arrays: dict[str, Any] = {"edge_index": EDGES, "x": np.zeros((4, 1)), "y": [0, 1, 1, 0]}
    arrays |= {"train_idx": [0, 1], "val_idx": [2], "test_idx": [3], "num_classes": 2}
    return Graph.from_arrays(**(arrays | changes))


def random_graph(seed: int, *, symmetrize: bool) -> tuple[Graph, np.ndarray]:
    rng = np.random.default_rng(seed)
    edges = rng.integers(0, 30, (2, 150))
    graph = Graph.from_arrays(
        edge_index=edges,
        x=np.zeros((30, 1)),
        y=rng.integers(-1, 4, 30),
        train_idx=rng.permutation(30)[:20],
        num_classes=4,
        symmetrize=symmetrize,
    )
    return graph, np.concatenate([edges, edges[::-1]], axis=1) if symmetrize else edges


def lists_by_hand(edges: np.ndarray, owner: str, nodes: int) -> list[set[int]]:
    """L_v from raw edges: the other ends of the records v owns."""
    lists: list[set[int]] = [set() for _ in range(nodes)]
    for u, w in edges.T.tolist():
        if u != w:
            v, place = (u, w) if owner == "sender" else (w, u)
            lists[v].add(place)
    return lists


def test_a_ballot_by_eye() -> None:
    own, rest = ballot_entries(np.array([1, 4, 0]), Classes(num_classes=2).entry_squares)
    assert own.tolist() == rest.tolist() == [math.isqrt(GRID**2 // 2), math.isqrt(GRID**2 // 8), 0]


@pytest.mark.parametrize("classes", [2, 3, 40, 1000, 10**6])
def test_entries_are_those_of_the_contract(classes: int) -> None:
    sizes = [1, 2, 3, 7, 100, 12_345, 10**6, 2**31 - 1]
    own, rest = ballot_entries(np.array(sizes), Classes(num_classes=classes).entry_squares)
    assert own.tolist() == [math.isqrt(GRID**2 * (classes - 1) // (classes * d)) for d in sizes]
    assert rest.tolist() == [math.isqrt(GRID**2 // (classes * (classes - 1) * d)) for d in sizes]


def test_whose_list_holds_what() -> None:
    assert list_sizes(small(), "sender").tolist() == [2, 1, 1, 0]
    assert list_sizes(small(), "reader").tolist() == [1, 1, 1, 1]
    [(owners, places)] = owned_records(small(), "sender")
    assert sorted(zip(owners.tolist(), places.tolist(), strict=True)) == [(0, 1), (0, 2), (1, 3), (2, 0)]
    [(owners, places)] = owned_records(small(), "reader")
    assert sorted(zip(owners.tolist(), places.tolist(), strict=True)) == [(0, 2), (1, 0), (2, 0), (3, 1)]


def test_a_tally_by_eye() -> None:
    """Senders own: 0, of class 0, casts onto 1 and 2; 1, of class 1, onto 3. Nobody else trains."""
    graph = small()
    half, full = math.isqrt(GRID**2 // 4), math.isqrt(GRID**2 // 2)
    tally = cast(graph, label_ballots(graph, "sender", task=Classes(num_classes=2)))
    assert tally.tolist() == [[0, 0], [half, -half], [half, -half], [-full, full]]


@pytest.mark.parametrize("owner", ["sender", "reader"])
@pytest.mark.parametrize("symmetrize", [True, False])
@pytest.mark.parametrize("seed", range(5))
def test_tallies_against_sums_by_hand(owner: EdgeOwner, symmetrize: bool, seed: int) -> None:
    graph, edges = random_graph(seed, symmetrize=symmetrize)
    expected = np.zeros((30, 4))
    for v, places in enumerate(lists_by_hand(edges, owner, 30)):
        if v in graph.train_idx and graph.y[v] >= 0 and places:
            ballot = (np.eye(4)[graph.y[v]] - 1 / 4) / math.sqrt(1 - 1 / 4)
            expected[sorted(places)] += ballot / math.sqrt(len(places))
    tally = cast(graph, label_ballots(graph, owner, task=Classes(num_classes=4)))
    assert tally.dtype == np.int64
    np.testing.assert_allclose(tally / GRID, expected, atol=30 / GRID)


@pytest.mark.parametrize("owner", ["sender", "reader"])
def test_labels_outside_the_training_split_change_nothing(owner: EdgeOwner) -> None:
    graph, _ = random_graph(0, symmetrize=True)
    labels = graph.y.copy()
    outside = np.setdiff1d(np.arange(30), graph.train_idx)
    labels[outside] = (labels[outside] + 2) % 4
    other = replace(graph, y=labels)
    before, after = (cast(g, label_ballots(g, owner, task=Classes(num_classes=4))) for g in (graph, other))
    assert np.array_equal(before, after)


def test_more_classes_than_the_labels_show() -> None:
    graph = small()
    tally = cast(graph, label_ballots(graph, "sender", task=Classes(num_classes=5)))
    assert tally.shape == (4, 5)
    assert (tally[3] < 0).tolist() == [True, False, True, True, True]


@pytest.mark.parametrize("owner", ["sender", "reader"])
def test_small_chunks_give_the_same_tally(owner: EdgeOwner, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = hg.datasets.synthetic(num_nodes=300, num_classes=3, seed=1)
    said = np.random.default_rng(0).dirichlet(np.ones(3), 300)

    def both(g: Graph) -> np.ndarray:
        ballots = label_ballots(g, owner, task=Classes(num_classes=3))
        return np.stack([cast(g, ballots), cast(g, with_probabilities(ballots, said))])

    expected = both(graph)
    monkeypatch.setattr(Graph, "edge_chunks", partialmethod(Graph.edge_chunks, chunk_edges=7))
    assert np.array_equal(both(graph), expected)


@pytest.mark.parametrize("owner", ["sender", "reader"])
def test_tallies_of_some_places_are_rows_of_the_whole_tally(owner: EdgeOwner) -> None:
    graph, _ = random_graph(5, symmetrize=False)
    said = np.random.default_rng(0).dirichlet(np.ones(4), 30)
    ballots = with_probabilities(label_ballots(graph, owner, task=Classes(num_classes=4)), said)
    whole = cast(graph, ballots)
    for first, end in ((0, 30), (0, 7), (7, 8), (8, 30), (4, 4)):
        assert np.array_equal(cast(graph, ballots, places=(first, end)), whole[first:end])


def test_probabilities_become_centred_ballots() -> None:
    graph = small(y=[-1, 1, 1, 0])
    said = np.array([[0.9, 0.1], [0.0, 1.0], [0.5, 0.5], [1.0, 0.0]])
    ballots = with_probabilities(label_ballots(graph, "reader", task=Classes(num_classes=2)), said)
    dense = ballots.dense(np.arange(4)) / GRID
    root = math.sqrt(2)
    expected = [[0.8 / root, -0.8 / root], [-1 / root, 1 / root], [0, 0], [1 / root, -1 / root]]
    np.testing.assert_allclose(dense, expected, atol=2 / GRID)
    # 0 and 2 and 3 list one place each: 2, 0 and 1; 1 has a label and lists 0.
    places = np.zeros((4, 2), np.int64)
    places[[2, 0, 1]] += ballots.dense(np.array([0, 2, 3]))
    places[0] += ballots.dense(np.array([1]))[0]
    assert np.array_equal(cast(graph, ballots), places)


def test_certain_probabilities_are_nearly_labels() -> None:
    graph, _ = random_graph(3, symmetrize=True)
    ballots = label_ballots(graph, "sender", task=Classes(num_classes=4))
    unlabelled = replace(graph, y=np.full(30, -1))
    said = np.eye(4)[np.maximum(graph.y, 0)]
    soft = with_probabilities(label_ballots(unlabelled, "sender", task=Classes(num_classes=4)), said)
    rows = np.flatnonzero(ballots.labels >= 0)
    np.testing.assert_allclose(soft.dense(rows), ballots.dense(rows), atol=2)


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
def test_soft_ballots_never_exceed_the_norm(kind: type) -> None:
    """Whatever a model says, in integers, for lists of one place to thousands."""
    rng = np.random.default_rng(1)
    graph = hg.datasets.synthetic(num_nodes=2000, num_classes=5, seed=0, average_degree=30)
    ballots = replace(
        label_ballots(replace(graph, y=np.full(2000, -1)), "sender", task=Classes(num_classes=5)),
        list_sizes=rng.integers(0, 100_000, 2000) // rng.choice([1, 1000, 50_000], 2000),
    )
    said = rng.dirichlet(np.full(5, 0.1), 2000) * rng.choice([1.0, 30.0, -7.0], 2000)[:, None]
    said[::50] = [np.nan, 0, 0, 0, 1]
    said[1::50] = [np.inf, 0, 0, 0, 1]
    soft = with_probabilities(ballots, said.astype(kind))
    dense = soft.dense(np.arange(2000))
    norms = soft.list_sizes * np.square(dense).sum(axis=1)
    assert norms.max() <= GRID**2
    assert norms.max() > 0.999 * GRID**2
    assert not dense[::50].any()
    assert not dense[1::50].any()
    assert not dense[soft.list_sizes == 0].any()


def test_predictions_are_made_of_blocks_of_rows_that_do_not_depend_on_who_casts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The last bit of what torch computes may depend on where a number stands among others."""
    monkeypatch.setattr("hushgraph.billboard.ballots._SOFT_ROWS", 8)
    seen: list[list[float]] = []

    class Watched(Labels):
        def predict_ballots(self, outputs: torch.Tensor) -> np.ndarray:
            seen.append(outputs[:, 0].tolist())
            return super().predict_ballots(outputs)

    task, outputs = Watched(num_labels=2), torch.arange(60.0).reshape(30, 2)
    graph, _ = random_graph(0, symmetrize=True)
    graph = replace(graph, y=np.full((30, 2), -1), num_classes=2, declared_task=task)
    for each in (graph, graph.with_row_emptied(3, "sender")):
        with_predictions(label_ballots(each, "sender", task=task), outputs, task)
    assert seen[:4] == seen[4:] == [outputs[begin : begin + 8, 0].tolist() for begin in (0, 8, 16, 24)]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda g: label_ballots(g, "sender", task=Classes(num_classes=1)),
            "num_classes=1: expected 2 or more",
        ),
        (
            lambda g: label_ballots(replace(g, num_classes=3), "sender", task=Classes(num_classes=2)),
            "num_classes=2: the graph has 3 classes",
        ),
        (
            lambda g: label_ballots(g, "nobody", task=Classes(num_classes=2)),
            "edge_owner='nobody': expected 'sender'",
        ),
        (lambda g: next(owned_records(g, "nobody")), "edge_owner='nobody'"),
        (
            lambda g: with_predictions(label_ballots(g, "sender", task=g.task), torch.ones(4, 3), g.task),
            r"outputs have shape \[4, 3\]; expected \[4, 2\]",
        ),
        (
            lambda g: cast(g.symmetrized(), label_ballots(g, "sender", task=Classes(num_classes=2))),
            "num_nodes=4, num_edges=6: the ballots belong to a graph with 4 and 4",
        ),
    ],
)
def test_what_fits_nothing_is_refused(call: Any, message: str) -> None:
    with pytest.raises(GraphError, match=message) as caught:
        call(small())
    assert "\n" not in str(caught.value)


def test_too_many_nodes_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hushgraph.billboard.ballots._MOST_NODES", 3)
    with pytest.raises(GraphError, match=r"num_nodes=4: expected fewer than 2\^31 nodes"):
        label_ballots(small(), "sender", task=Classes(num_classes=2))
