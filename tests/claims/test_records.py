"""Claims about records with weights, of several relations, and of places that are not people.

Every claim is searched for a counterexample on small random graphs, and the bound is attained on one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hushgraph as hg
from hushgraph import Graph, PrivacyPlan
from hushgraph.billboard.ballots import GRID, Ballots, label_ballots, with_predictions
from hushgraph.billboard.board import Board, cast
from hushgraph.billboard.lists import build_lists, list_blocks
from hushgraph.billboard.reading import read
from hushgraph.datasets import load_graph
from hushgraph.graph.records import Relation
from hushgraph.privacy.changes import Change
from hushgraph.privacy.charges import BoardCharge
from hushgraph.tasks.classes import Classes

GRAPHS = 500
MODES = ("weights", "relations", "places", "together")
TASK = Classes(num_classes=3)
ODD = (np.nan, np.inf, -1.0, 0.0, 1e-300, 1e300, 1e-8, 1e8)


def draw_weights(rng: np.random.Generator, count: int) -> np.ndarray:
    """Weights of any size; what is not finite and above 0 counts as 0, as the declared function leaves it."""
    values = np.where(rng.random(count) < 0.3, rng.choice(ODD, count), rng.random(count))
    return np.where(np.isfinite(values) & (values > 0), values, 0.0)


def draw_graph(rng: np.random.Generator, mode: str) -> Graph:
    n = int(rng.integers(2, 6))
    is_weighted = mode in ("weights", "together")
    relations = []
    for number in range(1 if mode in ("weights", "places") else int(rng.integers(2, 4))):
        edges = rng.integers(0, n, (2, int(rng.integers(0, 8))))
        weights = draw_weights(rng, edges.shape[1]) if is_weighted else None
        relations.append(
            Relation.between_people(
                f"r{number}", edges, num_nodes=n, weights=weights, symmetrize=rng.random() < 0.5
            )
        )
    if mode in ("places", "together"):
        count, num_places = int(rng.integers(0, 8)), int(rng.integers(1, 4))
        ends = rng.integers(0, n, count), rng.integers(0, num_places, count)
        weights = draw_weights(rng, count) if is_weighted else None
        relations.append(
            Relation.to_places("places", *ends, num_nodes=n, num_places=num_places, weights=weights)
        )
    train = np.flatnonzero(rng.random(n) < 0.7)
    return Graph.from_arrays(
        edge_index=None,
        relations=relations,
        x=np.eye(n),
        y=rng.integers(-1, 3, n),
        train_idx=train if len(train) else [0],
        task=TASK,
    )


def draw_graphs(mode: str, count: int = GRAPHS) -> Iterator[tuple[Graph, str, np.random.Generator]]:
    rng = np.random.default_rng(MODES.index(mode))
    for _ in range(count):
        yield draw_graph(rng, mode), str(rng.choice(["sender", "reader"])), rng


def tally_of(graph: Graph, owner: str) -> np.ndarray:
    return cast(graph, label_ballots(graph, owner, task=TASK))


def squared(move: np.ndarray) -> int:
    """The squared Frobenius norm in exact integers."""
    return sum(int(value) ** 2 for value in move.ravel())


@pytest.mark.parametrize("mode", MODES)
def test_emptying_a_row_moves_a_board_by_at_most_1_and_nobody_elses_reading(mode: str) -> None:
    largest = 0
    for graph, owner, rng in draw_graphs(mode):
        ballots = label_ballots(graph, owner, task=TASK)
        tally = cast(graph, ballots)
        blocks = list_blocks(graph)
        values = rng.normal(size=tally.shape).astype(np.float32)
        board = Board(values=values, noise_std=1.0, blocks=blocks)
        before = read(board, graph, owner, own=ballots)
        v = int(rng.integers(graph.num_nodes))
        emptied = graph.with_row_emptied(v, owner)
        others = label_ballots(emptied, owner, task=TASK)
        move = squared(tally - cast(emptied, others))
        assert move <= GRID**2
        assert move == 0 or (v in graph.train_idx and graph.y[v] >= 0)
        largest = max(largest, move)
        assert [block.info for block in list_blocks(emptied)] == [block.info for block in blocks]
        after = read(board, emptied, owner, own=others)
        rest = np.arange(graph.num_nodes) != v
        assert np.array_equal(before[rest], after[rest])
        assert not after[v].any()
    assert largest > (1 - 1e-5) * GRID**2


@pytest.mark.parametrize("mode", MODES)
def test_predictions_on_a_second_board_move_it_by_at_most_1(mode: str) -> None:
    torch = pytest.importorskip("torch")
    for graph, owner, rng in draw_graphs(mode, 100):
        outputs = torch.from_numpy(rng.normal(size=(graph.num_nodes, 3)).astype(np.float32) * 10)
        outputs[0] = float("nan")
        v = int(rng.integers(graph.num_nodes))
        casts = [
            cast(each, with_predictions(label_ballots(each, owner, task=TASK), outputs, TASK))
            for each in (graph, graph.with_row_emptied(v, owner))
        ]
        assert squared(casts[0] - casts[1]) <= GRID**2


@pytest.mark.parametrize("mode", MODES)
def test_squares_of_coefficients_sum_to_at_most_1_shared_by_relations(mode: str) -> None:
    for graph, owner, _ in draw_graphs(mode, 200):
        lists = build_lists(graph, owner)
        starts = lists.starts
        for v in range(graph.num_nodes):
            mine = slice(lists.indptr[v], lists.indptr[v + 1])
            places, shares = lists.places[mine], [int(each) for each in lists.coefficients[mine]]
            assert sum(share**2 for share in shares) <= GRID**2
            assert len(set(places.tolist())) == len(places)
            relation = np.searchsorted(starts, places, side="right") - 1
            parts = [
                sum(share**2 for share, of in zip(shares, relation, strict=True) if of == each)
                for each in set(relation.tolist())
            ]
            for part in parts:
                assert part / GRID**2 == pytest.approx(1 / len(parts), abs=1e-5)


def make_pairs(graph: Graph, rng: np.random.Generator, kind: str) -> tuple[Graph, int, int] | None:
    """The graph with one edge of one relation, or of all, gone or of another weight; None without one."""
    people = [number for number, each in enumerate(graph.relations) if each.names_people]
    listed = [
        (number, *pair) for number in people for pair in graph.relations[number].list_pairs().T.tolist()
    ]
    if not listed:
        return None
    number, w, u = listed[int(rng.integers(len(listed)))]
    touched = people if kind == "pair" else [number]
    relations = list(graph.relations)
    for each in touched:
        relation = relations[each]
        ends = relation.list_pairs()
        is_pair = ((ends[0] == w) & (ends[1] == u)) | ((ends[0] == u) & (ends[1] == w))
        if relation.weights is not None and kind == "weight":
            new = np.where(is_pair, 10 ** rng.uniform(-9, 9), relation.weights)
            relations[each] = replace(relation, weights=new)
        else:
            relations[each] = relation._filter(~is_pair)
    return replace(graph, relations=tuple(relations)), u, w


def price(graph: Graph, u: int, w: int, *, what: str, is_weighted: bool) -> float:
    """The squared move that the charge of a board claims for an undirected edge or a pair."""
    kinds = tuple("training" if each in graph.train_idx else "other" for each in (u, w))
    charge = BoardCharge(name="board-1", noise_std=1.0, is_weighted=is_weighted)
    return charge.move(Change(what, kinds)) ** 2


@pytest.mark.parametrize(
    ("mode", "kind"),
    [
        ("weights", "edge"),
        ("weights", "weight"),
        ("relations", "edge"),
        ("relations", "pair"),
        ("together", "pair"),
    ],
)
def test_one_edge_moves_a_board_by_at_most_its_figure(mode: str, kind: str) -> None:
    for graph, owner, rng in draw_graphs(mode, 250):
        changed = make_pairs(graph, rng, kind)
        if changed is None:
            continue
        other, u, w = changed
        move = squared(tally_of(graph, owner) - tally_of(other, owner)) / GRID**2
        is_weighted = any(each.info.is_weighted for each in graph.relations)
        claimed = price(graph, u, w, what="pair" if kind == "pair" else "edge", is_weighted=is_weighted)
        assert move <= claimed * (1 + 1e-6) + 1e-9


def two_friends(first: float, *, relations: int = 1, is_weighted: bool = True) -> Graph:
    """Nodes 0 and 1 know each other and 2; how much they weigh for each other is given."""
    edges = np.array([[0, 0, 1], [1, 2, 2]])
    weights = np.array([first, 1.0, 1.0])
    made = [Relation.between_people("knows", edges, num_nodes=3, weights=weights, symmetrize=True)]
    return Graph.from_arrays(
        edge_index=None, relations=made, x=np.eye(3), y=[0, 0, -1], train_idx=[0, 1], task=TASK
    )


def test_the_figures_of_weighted_edges_are_attained() -> None:
    heavy, light = two_friends(1e9), two_friends(1e-9)
    move = squared(tally_of(heavy, "reader") - tally_of(light, "reader")) / GRID**2
    assert move == pytest.approx(6, abs=1e-4)
    one = heavy.relations[0]
    # The record of 0 alone.
    weights = np.where(one.list_pairs()[0] == 0, light.relations[0].weights, one.weights)
    record = replace(heavy, relations=(replace(one, weights=weights),))
    move = squared(tally_of(heavy, "reader") - tally_of(record, "reader")) / GRID**2
    assert move == pytest.approx(2, abs=1e-4)
    charge = BoardCharge(name="board-1", noise_std=1.0, is_weighted=True)
    assert charge.move(Change("edge", ("training", "training"))) == pytest.approx(math.sqrt(6))
    assert charge.move(Change("record", ("training",))) == pytest.approx(math.sqrt(2))
    assert charge.move(Change("record", ("other",))) == 0


def test_one_record_of_one_relation_moves_a_board_by_at_most_1() -> None:
    charge = BoardCharge(name="board-1", noise_std=1.0)
    assert charge.move(Change("record", ("training",))) == 1
    largest = 0.0
    for graph, _, rng in draw_graphs("relations", 250):
        number = int(rng.integers(len(graph.relations)))
        relation = graph.relations[number]
        if not len(relation.indices):
            continue
        kept = np.arange(len(relation.indices)) != int(rng.integers(len(relation.indices)))
        relations = list(graph.relations)
        relations[number] = relation._filter(kept)
        other = replace(graph, relations=tuple(relations))
        largest = max(largest, squared(tally_of(graph, "reader") - tally_of(other, "reader")) / GRID**2)
    assert 1 - 1e-5 < largest <= 1


def test_a_label_moves_a_board_by_its_figure() -> None:
    largest = 0.0
    for graph, owner, rng in draw_graphs("together", 200):
        v = int(rng.choice(graph.train_idx))
        if graph.y[v] < 0:
            continue
        y = graph.y.copy()
        y[v] = (y[v] + 1) % 3
        move = squared(tally_of(graph, owner) - tally_of(replace(graph, y=y), owner)) / GRID**2
        assert move <= 2 * 3 / 2 + 1e-9
        largest = max(largest, move)
    assert largest == pytest.approx(3, abs=1e-4)


def test_repeats_are_summed_before_anything_is_divided() -> None:
    repeated = Relation.between_people(
        "pays", np.array([[1, 1, 2], [0, 0, 0]]), num_nodes=3, weights=np.array([1.5, 2.5, 3.0])
    )
    assert repeated.weights.tolist() == [4.0, 3.0]
    graph = Graph.from_arrays(
        edge_index=None, relations=[repeated], x=np.eye(3), y=[1, -1, -1], train_idx=[0], task=TASK
    )
    lists = build_lists(graph, "reader")
    assert (lists.coefficients / GRID).tolist() == pytest.approx([0.8, 0.6], abs=1e-6)


def own_part(ballots: Ballots, v: int) -> np.ndarray:
    return ballots.dense(np.array([v]))[0] / GRID


def test_a_reading_is_that_of_the_contract() -> None:
    """S_v = sum a_vu B_u less (sum a_vu^2) b_v; of several relations, the own part of each is b_v / rho."""
    rng = np.random.default_rng(3)
    for mode in MODES:
        for _ in range(50):
            graph = draw_graph(rng, mode)
            ballots = label_ballots(graph, "reader", task=TASK)
            lists = ballots.lists
            values = rng.normal(size=(lists.num_places, 3)).astype(np.float32)
            board = Board(values=values, noise_std=1.0, blocks=lists.blocks)
            found = read(board, graph, "reader", own=ballots, damped=False).reshape(graph.num_nodes, -1, 3)
            for v in range(graph.num_nodes):
                mine = slice(lists.indptr[v], lists.indptr[v + 1])
                for relation, (start, end) in enumerate(zip(lists.starts, lists.starts[1:], strict=False)):
                    is_of = (lists.places[mine] >= start) & (lists.places[mine] < end)
                    a = lists.coefficients[mine][is_of] / GRID
                    total = (a[:, None] * values[lists.places[mine][is_of]]).sum(0)
                    total = total - (a**2).sum() * own_part(ballots, v)
                    # Every reading has noise of one size.
                    expected = total / math.sqrt((a**2).sum()) if a.any() else np.zeros(3)
                    np.testing.assert_allclose(found[v, relation], expected, atol=1e-5)


def write_tables(folder: Path, edges: str) -> Path:
    folder.mkdir()
    (folder / "nodes.csv").write_text("id,age,label,split\na,1,0,train\nb,2,1,train\nc,3,1,val\n")
    (folder / "edges.csv").write_text("source,target,amount\n" + edges)
    return folder


def test_names_are_hashed_before_anything_is_divided(tmp_path: Path) -> None:
    """Four names in one bucket are one place: divided before, they would cast 4 * 1/2 = 2 there."""
    edges = "".join(f"a,shop{number},1\n" for number in range(4))
    graph = load_graph(write_tables(tmp_path / "t", edges), columns={"places": "hash:1"}, num_classes=2)
    lists = build_lists(graph, "sender")
    assert lists.coefficients.tolist() == [GRID]
    assert squared(tally_of(graph, "sender")) <= GRID**2
    weighted = load_graph(tmp_path / "t", columns={"places": "hash:1"}, num_classes=2, edge_weight="amount")
    assert build_lists(weighted, "sender").coefficients.tolist() == [GRID]


@pytest.mark.parametrize("places", ["hash:5", ["shop", "cafe"]])
def test_places_are_declared_and_not_looked_up_in_rows(tmp_path: Path, places: str | list[str]) -> None:
    """A place that one person alone names is not on the board because of that person."""
    how: dict[str, Any] = {
        "columns": {"places": places},
        "split": "1/0/0",
        "num_classes": 2,
    }
    full = load_graph(write_tables(tmp_path / "full", "a,shop,1\nb,cafe,2\na,c,1\n"), **how)
    poor = load_graph(write_tables(tmp_path / "poor", "a,shop,1\na,c,1\n"), **how)
    assert [block.info for block in list_blocks(full)] == [block.info for block in list_blocks(poor)]
    assert tally_of(full, "sender").shape == tally_of(poor, "sender").shape
    rest = [0, 2]
    one, other = (build_lists(each, "sender") for each in (full, poor))
    for v in rest:
        mine = [slice(each.indptr[v], each.indptr[v + 1]) for each in (one, other)]
        assert one.places[mine[0]].tolist() == other.places[mine[1]].tolist()
        assert one.coefficients[mine[0]].tolist() == other.coefficients[mine[1]].tolist()


def test_a_run_charges_what_its_records_cost(tmp_path: Path) -> None:
    """The plan knows weights and relations: one edge of a weighted run is dearer, one row costs the same."""
    rng = np.random.default_rng(5)
    n = 60
    edges = rng.integers(0, n, (2, 300))
    base: dict[str, Any] = {"x": rng.normal(size=(n, 3)), "y": rng.integers(0, 3, n), "num_classes": 3}
    base["train_idx"] = np.arange(30)
    usual: dict[str, Any] = {"epsilon": 4.0, "steps": 3, "hidden": 4, "device": "cpu"}
    plain = hg.train(Graph.from_arrays(edge_index=edges, **base), **usual)
    parts = [
        Relation.between_people("pays", edges[:, ::2], num_nodes=n, weights=rng.random(150)),
        Relation.between_people("calls", edges[:, 1::2], num_nodes=n),
    ]
    graph = Graph.from_arrays(edge_index=None, relations=parts, **base)
    run = hg.train(graph, **usual, out=tmp_path / "run")
    assert run.epsilon == plain.epsilon
    assert run.result["epsilon_edge"] > plain.result["epsilon_edge"]
    assert run.result["epsilon_pair"] == run.result["epsilon_edge"]
    mu = 1 / run.plan.board_noise[0] ** 2
    plan = replace(run.plan, steps=0)
    assert [
        charge.move(Change("edge", ("training",) * 2)) ** 2 for charge in plan.charges[:1]
    ] == pytest.approx([6])
    assert mu > 0
    # What is published says which graph it is, and is enough to predict.
    again = hg.Run.load(tmp_path / "run" / "release", device="cpu")
    assert np.array_equal(again.predict_proba(graph), run.predict_proba(graph))
    assert [each.name for each in again.folder.relations] == ["pays", "calls"]
    assert PrivacyPlan.from_json(run.plan.to_json()) == run.plan
    run.report(tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert "Records are of 2 relations" in page
    assert "One pair of people in all relations" in page
    assert (
        "pays (nodes with weights), calls (nodes)" in (tmp_path / "run" / "release" / "README.md").read_text()
    )
