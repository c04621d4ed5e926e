"""Lists of rows against a second way to make them, on a graph with more nodes than groups of owners."""

from __future__ import annotations

import numpy as np
import pytest

from hushgraph.billboard.ballots import GRID, Ballots, label_ballots
from hushgraph.billboard.board import Board, cast
from hushgraph.billboard.combined import place_weights
from hushgraph.billboard.lists import divide_records, find_starts, list_blocks, lists_of_rows
from hushgraph.billboard.reading import read
from hushgraph.graph.graph import EdgeOwner, Graph
from hushgraph.graph.records import Relation
from row_lists import list_rows

NODES, PLACES = 1500, 40


def make_graph() -> Graph:
    """Two relations between people, one with weights, and one of places with weights."""
    rng = np.random.default_rng(0)
    ends = [rng.integers(0, NODES, (2, 6000)) for _ in range(2)]
    people, places = rng.integers(0, NODES, 3000), rng.integers(0, PLACES, 3000)
    return Graph.from_arrays(
        edge_index=None,
        relations=[
            Relation.between_people("calls", ends[0], num_nodes=NODES),
            Relation.between_people("pays", ends[1], num_nodes=NODES, weights=rng.lognormal(size=6000)),
            Relation.to_places(
                "shops", people, places, num_nodes=NODES, num_places=PLACES, weights=rng.lognormal(size=3000)
            ),
        ],
        x=np.zeros((NODES, 1)),
        y=rng.integers(0, 3, NODES),
        train_idx=np.arange(900),
    )


def list_by_hand(graph: Graph, owner: EdgeOwner) -> list[dict[int, tuple[int, float]]]:
    """For every row: place on the whole board -> (relation, share)."""
    starts = find_starts(list_blocks(graph))
    rows: list[dict[int, tuple[int, float]]] = [{} for _ in range(graph.num_nodes)]
    for number, relation in enumerate(graph.relations):
        by_owner = relation.list_pairs()
        if relation.names_people and owner == "sender":
            by_owner = by_owner[::-1]
        weights = np.ones(by_owner.shape[1]) if relation.weights is None else relation.weights
        for (v, named), weight in zip(by_owner.T.tolist(), weights.tolist(), strict=True):
            rows[v][int(starts[number]) + named] = (number, weight)
    for row in rows:
        relations = {number for number, _ in row.values()}
        for number in relations:
            own = {place: weight for place, (of, weight) in row.items() if of == number}
            norm = np.sqrt(sum(weight**2 for weight in own.values()) * len(relations))
            for place, weight in own.items():
                row[place] = (number, weight / norm)
    return rows


@pytest.mark.parametrize("owner", ["sender", "reader"])
def test_rows_list_what_they_own_in_ascending_order(owner: EdgeOwner) -> None:
    graph = make_graph()
    lists, expected = list_rows(graph, owner), list_by_hand(graph, owner)
    for v, row in enumerate(expected):
        mine = slice(lists.indptr[v], lists.indptr[v + 1])
        assert lists.places[mine].tolist() == sorted(row)
        shares = lists.coefficients[mine] / GRID
        np.testing.assert_allclose(shares, [row[place][1] for place in sorted(row)], atol=3 / GRID)


@pytest.mark.parametrize("owner", ["sender", "reader"])
def test_parts_and_threads_do_not_matter(owner: EdgeOwner, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = make_graph()
    ballots = label_ballots(graph, owner, task=graph.task)
    values = np.random.default_rng(1).normal(size=(2 * NODES + PLACES, 3)).astype(np.float32)
    board = Board(values=values, noise_std=1.0, blocks=list_blocks(graph))
    # Rows of which some have lists that have changed since they cast.
    now = graph.with_row_emptied(1, owner).with_row_emptied(700, owner)
    everyone = read(board, graph, owner, own=ballots), read(board, now, owner, own=ballots, cast_graph=graph)
    for name, held in (("_HELD_SUMS", 350), ("_NEAR_NUMBERS", 70)):
        monkeypatch.setattr(f"hushgraph.billboard.reading.{name}", held)
    for threads in (1, 3):
        monkeypatch.setattr("hushgraph.billboard.reading.count_threads", lambda threads=threads: threads)
        assert np.array_equal(read(board, graph, owner, own=ballots), everyone[0])
        assert np.array_equal(read(board, now, owner, own=ballots, cast_graph=graph), everyone[1])


@pytest.mark.parametrize("owner", ["sender", "reader"])
def test_boards_and_readings_against_sums_by_hand(owner: EdgeOwner, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows and places in several parts read what sums over their lists give."""
    graph = make_graph()
    monkeypatch.setattr("hushgraph.billboard.reading._HELD_SUMS", 2000)
    monkeypatch.setattr("hushgraph.billboard.reading._NEAR_NUMBERS", 700)
    ballots, expected = label_ballots(graph, owner, task=graph.task), list_by_hand(graph, owner)
    tally = cast(graph, ballots) / GRID
    labels = np.eye(3)[graph.y] - 1 / 3
    own = labels / np.linalg.norm(labels, axis=1, keepdims=True)
    by_hand = np.zeros_like(tally)
    for v, row in enumerate(expected[:900]):
        for place, (_, share) in row.items():
            by_hand[place] += share * own[v]
    np.testing.assert_allclose(tally, by_hand, atol=1e-4)
    board = Board(values=tally.astype(np.float32), noise_std=0.3, blocks=list_blocks(graph))
    loudness = place_weights(board)
    wanted = np.random.default_rng(2).permutation(NODES)[:200]
    readings = read(board, graph, owner, own=ballots)
    for v in wanted.tolist():
        sums, squares = np.zeros((3, 3)), np.zeros(3)
        for place, (number, share) in expected[v].items():
            mine = share * own[v] if v < 900 else 0.0
            sums[number] += loudness[place] * share * (board.values[place] - mine)
            squares[number] += (loudness[place] * share) ** 2
        by_row = sums / np.sqrt(np.where(squares > 0, squares, 1.0))[:, None]
        np.testing.assert_allclose(readings[v].reshape(3, 3), by_row, atol=1e-3)


def test_rows_given_by_their_lists_have_the_coefficients_of_the_graph() -> None:
    """Bit for bit, where a pair is recorded often and some of its weights are 0."""
    rng = np.random.default_rng(0)
    rows, places = rng.integers(0, 30, 4000), rng.integers(0, 9, 4000)
    weights = np.where(rng.random(4000) < 0.2, 0.0, rng.lognormal(size=4000))
    relation = Relation.to_places("shops", rows, places, num_nodes=30, num_places=9, weights=weights)
    graph = Graph.from_arrays(
        edge_index=None, relations=[relation], x=np.zeros((30, 1)), y=np.arange(30) % 2, train_idx=[0]
    )
    order = np.argsort(rows, kind="stable")
    ends = np.searchsorted(rows[order], np.arange(31))
    given = lists_of_rows(list_blocks(graph), 9, ends, places[order], weights[order])
    expected = divide_records(graph, "sender")
    assert expected is not None
    assert np.array_equal(given.sizes, expected.sizes)
    assert np.array_equal(given.relations[0].indices, expected.relations[0].indices)
    assert np.array_equal(given.relations[0].coefficients, expected.relations[0].coefficients)


def test_a_person_is_looked_at_only_where_a_node_of_theirs_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are read in parts; what a person cast is added up once a part, not once for everybody's parts."""
    nodes, rng = 4000, np.random.default_rng(0)
    graph = Graph.from_arrays(
        edge_index=rng.integers(0, nodes, (2, 4 * nodes)),
        x=np.zeros((nodes, 1)),
        y=rng.integers(0, 3, nodes),
        train_idx=np.arange(nodes),
        persons=np.arange(nodes) // 2,
    )
    ballots = label_ballots(graph, "sender", task=graph.task)
    board = Board(values=rng.normal(size=(nodes, 3)).astype(np.float32), noise_std=1.0)
    at_once = read(board, graph, "sender", own=ballots)
    asked = []
    monkeypatch.setattr(
        Ballots, "dense", lambda own, rows, dense=Ballots.dense: asked.append(len(rows)) or dense(own, rows)
    )
    monkeypatch.setattr("hushgraph.billboard.reading._HELD_SUMS", 3 * 200)
    assert np.array_equal(read(board, graph, "sender", own=ballots), at_once)
    # Once as a row's own ballot, and once among those of its person.
    assert sum(asked) == 2 * nodes
