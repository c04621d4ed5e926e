"""Readings against sums written out, the own part taken off exactly, and rows given by their lists."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import exact_normal
from hushgraph.billboard import new_rows
from hushgraph.billboard.ballots import GRID, Ballots, label_ballots
from hushgraph.billboard.board import Board, cast, release
from hushgraph.billboard.combined import combine_boards, place_weights
from hushgraph.billboard.new_rows import read_rows
from hushgraph.billboard.owned import NextRows
from hushgraph.billboard.reading import read
from hushgraph.errors import GraphError
from hushgraph.graph.graph import EdgeOwner, Graph
from hushgraph.tasks.classes import Classes
from soft_ballots import with_probabilities

NODES, CLASSES = 30, 3


def make_graph(seed: int = 0, **changes: Any) -> Graph:
    rng = np.random.default_rng(seed)
    arrays: dict[str, Any] = {"edge_index": rng.integers(0, NODES, (2, 120)), "x": np.zeros((NODES, 1))}
    arrays |= {"y": rng.integers(-1, CLASSES, NODES), "train_idx": np.arange(20), "num_classes": CLASSES}
    return Graph.from_arrays(**(arrays | changes))


def make_board(graph: Graph, ballots: Ballots, *, noise_std: float = 0.7) -> Board:
    source = np.random.default_rng(5).bytes
    return release(
        cast(graph, ballots), noise_std=noise_std, draws=lambda count: exact_normal.draw(count, source)
    )


def lists_of(graph: Graph, owner: str) -> list[list[int]]:
    lists: list[list[int]] = [[] for _ in range(graph.num_nodes)]
    for source, target in graph.edge_chunks():
        for u, w in zip(source.tolist(), target.tolist(), strict=True):
            v, place = (u, w) if owner == "sender" else (w, u)
            lists[v].append(place)
    return lists


def by_hand(
    board: Board, now: list[list[int]], then: list[list[int]], ballots: Ballots, damped: bool
) -> np.ndarray:
    values, c = board.values.astype(np.float64), board.width
    weights = np.ones(len(values))
    if damped:
        for u, value in enumerate(values):
            loud = max(0.0, float(value @ value) / board.noise_std**2 - c)
            weights[u] = 1 / math.sqrt(1 + loud / c)
    out = np.zeros((len(now), c))
    for v, places in enumerate(now):
        ballot = ballots.dense(np.array([v]))[0] / GRID
        for u in places:
            out[v] += weights[u] * (values[u] - (ballot if u in then[v] else 0))
        out[v] /= math.sqrt(sum(weights[u] ** 2 for u in places)) if places else 1
    return out


def flat(lists: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    return np.cumsum([0, *map(len, lists)]), np.array([u for places in lists for u in places], np.int64)


@pytest.mark.parametrize("damped", [True, False])
@pytest.mark.parametrize("owner", ["sender", "reader"])
@pytest.mark.parametrize("symmetrize", [True, False])
def test_readings_against_sums_by_hand(owner: EdgeOwner, symmetrize: bool, damped: bool) -> None:
    graph = make_graph(symmetrize=symmetrize)
    ballots = label_ballots(graph, owner, task=Classes(num_classes=CLASSES))
    board, lists = make_board(graph, ballots), lists_of(graph, owner)
    found = read(board, graph, owner, own=ballots, damped=damped)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, by_hand(board, lists, lists, ballots, damped), atol=1e-5)
    nobodys = [[] for _ in range(NODES)]
    left_in = read(board, graph, owner, own=None, damped=damped)
    np.testing.assert_allclose(left_in, by_hand(board, lists, nobodys, ballots, damped), atol=1e-5)


@pytest.mark.parametrize("damped", [True, False])
def test_a_lonely_caster_reads_nothing_of_its_own(damped: bool) -> None:
    """Only 0 casts, so all that is on the board is its own ballot, and none of it is left."""
    graph = make_graph(train_idx=[0], y=np.zeros(NODES, np.int64), symmetrize=True)
    ballots = label_ballots(graph, "sender", task=Classes(num_classes=CLASSES))
    board = make_board(graph, ballots, noise_std=0.0)
    assert np.abs(board.values).max() > 0.1
    assert np.abs(read(board, graph, "sender", own=ballots, damped=damped)[0]).max() < 1e-7
    assert np.abs(read(board, graph, "sender", own=None, damped=damped)[0]).max() > 0.1


@pytest.mark.parametrize("owner", ["sender", "reader"])
def test_what_is_taken_off_is_what_was_cast_when_lists_have_changed(owner: EdgeOwner) -> None:
    then, now = make_graph(0), make_graph(1)
    ballots = label_ballots(then, owner, task=Classes(num_classes=CLASSES))
    board = make_board(then, ballots)
    found = read(board, now, owner, own=ballots, cast_graph=then)
    lists = lists_of(now, owner), lists_of(then, owner)
    np.testing.assert_allclose(found, by_hand(board, *lists, ballots, damped=True), atol=1e-5)


@pytest.mark.parametrize("owner", ["sender", "reader"])
@pytest.mark.parametrize("damped", [True, False])
def test_the_same_list_gives_the_same_reading_wherever_it_comes_from(owner: EdgeOwner, damped: bool) -> None:
    graph = make_graph(symmetrize=owner == "sender")
    board = make_board(graph, label_ballots(graph, owner, task=Classes(num_classes=CLASSES)))
    nodes = read(board, graph, owner, own=None, damped=damped)
    rows = read_rows(board, *flat(lists_of(graph, owner)), damped=damped)
    np.testing.assert_array_equal(rows.values, nodes)
    assert rows.known.tolist() == [len(places) for places in lists_of(graph, owner)]
    assert not rows.unknown.any()


def test_soft_ballots_are_taken_off_too() -> None:
    graph = make_graph(symmetrize=True)
    said = np.random.default_rng(0).dirichlet(np.ones(CLASSES), NODES)
    ballots = with_probabilities(label_ballots(graph, "sender", task=Classes(num_classes=CLASSES)), said)
    board, lists = make_board(graph, ballots), lists_of(graph, "sender")
    found = read(board, graph, "sender", own=ballots)
    np.testing.assert_allclose(found, by_hand(board, lists, lists, ballots, damped=True), atol=1e-5)


@pytest.mark.parametrize("owner", ["sender", "reader"])
def test_parts_of_rows_and_places_do_not_matter(owner: EdgeOwner, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = make_graph()
    ballots = label_ballots(graph, owner, task=Classes(num_classes=CLASSES))
    board = make_board(graph, ballots)
    everyone = read(board, graph, owner, own=ballots)
    np.testing.assert_array_equal(read(board, graph, owner, own=ballots, cast_graph=graph), everyone)
    for name, held in (("reading._HELD_SUMS", 7), ("reading._NEAR_NUMBERS", 10), ("owned._HELD_ENTRIES", 5)):
        monkeypatch.setattr(f"hushgraph.billboard.{name}", held)
        np.testing.assert_array_equal(read(board, graph, owner, own=ballots), everyone)


def test_lists_are_made_for_more_rows_than_are_added_up_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every making goes through all places."""
    made = []
    of_rows = NextRows.of_rows
    monkeypatch.setattr(
        NextRows, "of_rows", lambda rows, begin, end: made.append((begin, end)) or of_rows(rows, begin, end)
    )
    monkeypatch.setattr("hushgraph.billboard.reading._HELD_SUMS", 2 * CLASSES)
    graph = make_graph()
    ballots = label_ballots(graph, "sender", task=graph.task)
    read(make_board(graph, ballots), graph, "sender", own=ballots)
    assert made == [(0, NODES)]


def test_repeats_unknown_places_and_empty_lists() -> None:
    board = Board(values=np.array([[1, 0], [0, 2], [4, 4]], np.float32), noise_std=1.0)
    lists = [[1, 0, 1, 1], [], [-1, 2, 3, 2, 10**12], [2, 0], [-1]]
    rows = read_rows(board, *flat(lists), damped=False)
    root = np.float32(math.sqrt(2))
    assert rows.values.tolist() == [[1 / root, 2 / root], [0, 0], [4, 4], [5 / root, 4 / root], [0, 0]]
    assert rows.known.tolist() == [2, 0, 1, 2, 0]
    assert rows.unknown.tolist() == [0, 0, 3, 0, 1]


def test_a_row_reads_the_same_in_any_company() -> None:
    graph = make_graph()
    board = make_board(graph, label_ballots(graph, "reader", task=Classes(num_classes=CLASSES)))
    lists = lists_of(graph, "reader")
    together = read_rows(board, *flat(lists)).values
    for v in range(NODES):
        np.testing.assert_array_equal(read_rows(board, *flat([lists[v][::-1]])).values[0], together[v])


def test_a_few_entries_are_added_up_as_the_kernel_does(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    for width in (1, 7, 40):
        values = (rng.normal(size=(50, width)) * 10.0 ** rng.integers(-6, 6, (50, 1))).astype(np.float32)
        board = Board(values=values, noise_std=1.0)
        lists = [rng.integers(-2, 55, size).tolist() for size in (0, 1, 2, 30, 60)]
        few = read_rows(board, *flat(lists))
        with monkeypatch.context() as patch:
            patch.setattr(new_rows, "_FEW_ENTRIES", -1)
            compiled = read_rows(board, *flat(lists))
        for name in ("values", "known", "unknown"):
            np.testing.assert_array_equal(getattr(few, name), getattr(compiled, name))


def test_boards_are_combined_in_place_or_not() -> None:
    first, second = (
        Board(values=np.random.default_rng(n).normal(size=(40, 3)).astype(np.float32), noise_std=1.0 + n)
        for n in range(2)
    )
    before = first.values.copy()
    apart, parts = combine_boards([first, second])
    assert np.array_equal(first.values, before)
    assert parts == (0.8, 0.2)
    np.testing.assert_allclose(apart.values.mean(axis=1), 0, atol=1e-6)
    joined, _ = combine_boards([first, second], in_place=True)
    assert joined.values is first.values
    assert np.array_equal(joined.values, apart.values)


def test_weights_by_eye() -> None:
    board = Board(values=np.array([[0, 0], [2, 2], [6, 2]], np.float32), noise_std=2.0)
    # |B|^2 / s^2 is 0, 2 and 10; c is 2.
    np.testing.assert_allclose(place_weights(board), [1, 1, 1 / math.sqrt(5)])
    assert place_weights(board, damped=False).tolist() == [1, 1, 1]
    bare = replace(board, noise_std=0.0)
    np.testing.assert_allclose(place_weights(bare), [1, 1 / 2, 1 / math.sqrt(20)])


def test_ten_thousand_new_rows_are_read_at_once() -> None:
    rng = np.random.default_rng(0)
    board = Board(values=rng.normal(size=(5000, 10)).astype(np.float32), noise_std=1.0)
    places = rng.integers(0, 5000, 300_000)
    rows = read_rows(board, np.arange(0, 300_001, 30), places, damped=False)
    for i in (0, 7777, 9999):
        distinct = np.unique(places[30 * i : 30 * i + 30])
        expected = board.values[distinct].astype(np.float64).sum(axis=0) / math.sqrt(len(distinct))
        np.testing.assert_allclose(rows.values[i], expected, rtol=1e-5, atol=1e-6)


@pytest.fixture(scope="module")
def graph() -> Graph:
    return make_graph()


@pytest.fixture(scope="module")
def board(graph: Graph) -> Board:
    return make_board(graph, label_ballots(graph, "sender", task=Classes(num_classes=CLASSES)))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda board, graph: read(
                Board(values=board.values[:5], noise_std=1.0), graph, "sender", own=None
            ),
            "num_nodes=30: the board has 5 places",
        ),
        (
            lambda board, graph: read(
                board, graph, "sender", own=label_ballots(graph, "sender", task=Classes(num_classes=4))
            ),
            "own has 30 rows and 4 numbers a ballot.*expected 30 and 3",
        ),
        (lambda board, graph: read(board, graph, "both", own=None), "edge_owner='both'"),
        (lambda board, graph: read_rows(board, [0, 2], [0]), "indptr must be non-decreasing from 0 to 1"),
        (lambda board, graph: read_rows(board, [0, 2, 1], [0]), "indptr must be non-decreasing from 0 to 1"),
        (lambda board, graph: read_rows(board, [], []), "indptr must be non-decreasing from 0 to 0"),
        (lambda board, graph: read_rows(board, [0, 1], [0.5]), "places has dtype float64"),
    ],
)
def test_what_does_not_fit_the_board_is_refused(
    call: Callable[[Board, Graph], Any], message: str, board: Board, graph: Graph
) -> None:
    with pytest.raises(GraphError, match=message) as caught:
        call(board, graph)
    assert "\n" not in str(caught.value)
