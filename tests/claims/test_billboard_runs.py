"""Billboard runs end to end: given boards and weights, a prediction is a function of the node's own row."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import hushgraph as hg
from hushgraph import Graph
from hushgraph.billboard.ballots import GRID
from hushgraph.billboard.board import cast
from hushgraph.graph.graph import EdgeOwner
from hushgraph.privacy.ledger import Ledger
from hushgraph.tasks.classes import Classes
from hushgraph.training.boards import make_ballots
from run_folders import contents

DATA = Path(__file__).parents[2].parent / "shared" / "data"
SHORT: dict[str, Any] = {"epsilon": 4.0, "steps": 4, "hidden": 4, "device": "cpu"}
FIGURES = ("epsilon", "epsilon_group_of_two", "epsilon_edge", "epsilon_label", "board_share")
CASES: list[tuple[bool, EdgeOwner]] = [
    (False, "sender"),
    (False, "reader"),
    (True, "sender"),
    (True, "reader"),
]


def make_graph(*, directed: bool) -> Graph:
    """A small graph; a directed one has half of the records of an undirected one, and hubs."""
    graph = hg.datasets.synthetic(num_nodes=120, num_classes=3, num_features=4, average_degree=5, seed=2)
    if not directed:
        return graph
    source, target = next(graph.edge_chunks())
    kept = (source < target) | (source % 5 == 0)
    return Graph.from_arrays(
        edge_index=np.stack([source[kept], target[kept]]),
        x=graph.x,
        y=graph.y,
        train_idx=graph.train_idx,
        val_idx=graph.val_idx,
        test_idx=graph.test_idx,
        num_classes=3,
    )


@pytest.fixture(scope="module", params=CASES, ids=lambda case: f"{'un' * (not case[0])}directed-{case[1]}")
def trained(request: pytest.FixtureRequest) -> tuple[hg.Run, Graph, EdgeOwner]:
    directed, owner = request.param
    graph = make_graph(directed=directed)
    assert graph.is_directed is directed
    return hg.train(graph, edge_owner=owner, **SHORT), graph, owner


Trained = tuple[hg.Run, Graph, EdgeOwner]


def places_of(graph: Graph, node: int, owner: EdgeOwner) -> npt.NDArray[np.int64]:
    """What a node lists, from all records of the graph."""
    source, target = next(graph.edge_chunks())
    return target[source == node] if owner == "sender" else source[target == node]


def busy_node(graph: Graph, nodes: npt.NDArray[np.int64], owner: EdgeOwner) -> int:
    """The node among these that lists most."""
    return max(nodes.tolist(), key=lambda node: len(places_of(graph, node, owner)))


@pytest.mark.parametrize("split", ["train_idx", "val_idx", "test_idx"])
def test_an_emptied_row_changes_no_other_prediction(trained: Trained, split: str) -> None:
    """Boards and weights held fixed; bitwise, also for those whom the row lists and who list it."""
    run, graph, owner = trained
    node = busy_node(graph, getattr(graph, split), owner)
    assert split != "train_idx" or graph.y[node] >= 0
    before = run.predict_proba(graph)
    after = run.predict_proba(graph.with_row_emptied(node, owner))
    others = np.arange(graph.num_nodes) != node
    assert np.array_equal(before[others], after[others])
    assert not np.array_equal(before[node], after[node])


def test_read_in_the_clear_an_emptied_row_does_change_others(trained: Trained) -> None:
    """The check above can fail, and the output is right to say that these are not covered."""
    run, graph, owner = trained
    # Whom other nodes read most, whichever end owns the record.
    node = int(np.bincount(graph.indices, minlength=graph.num_nodes).argmax())
    before = run.predict_proba(graph, in_the_clear=True)
    after = run.predict_proba(graph.with_row_emptied(node, owner), in_the_clear=True)
    others = np.arange(graph.num_nodes) != node
    assert not np.array_equal(before[others], after[others])


def test_predictions_come_from_own_row_board_and_weights(trained: Trained) -> None:
    """Every other row replaced by random numbers, lists included: the prediction of one node stays."""
    run, graph, owner = trained
    node = busy_node(graph, graph.train_idx, owner)
    rng = np.random.default_rng(0)
    source, target = rng.integers(graph.num_nodes, size=(2, 600))
    foreign = (source if owner == "sender" else target) != node
    own = places_of(graph, node, owner)
    mine = np.full(len(own), node)
    records = np.stack([mine, own] if owner == "sender" else [own, mine])
    x, y = rng.normal(size=graph.x.shape), rng.integers(-1, 3, graph.num_nodes)
    x[node], y[node] = graph.x[node], graph.y[node]
    other = Graph.from_arrays(
        edge_index=np.concatenate([np.stack([source, target])[:, foreign], records], axis=1),
        x=x,
        y=y,
        train_idx=graph.train_idx,
        num_classes=3,
        directed=graph.is_directed,
    )
    before, after = run.predict_proba(graph), run.predict_proba(other)
    assert np.array_equal(before[node], after[node])
    assert not np.allclose(before, after)


def test_new_nodes_change_neither_predictions_nor_the_ledger(trained: Trained) -> None:
    run, graph, _ = trained
    before = run.predict_proba(graph)
    files = contents(run.folder.path)
    rng = np.random.default_rng(1)
    lists = [rng.integers(graph.num_nodes, size=5).tolist() for _ in range(50)]
    first, _ = run.predict_new(rng.normal(size=(50, 4)) * 1e3, lists)
    again, _ = run.predict_new(np.zeros((1, 4)), [list(range(graph.num_nodes))])
    assert np.isfinite(first).all()
    assert np.isfinite(again).all()
    assert np.array_equal(run.predict_proba(graph), before)
    assert contents(run.folder.path) == files


def test_labels_outside_the_training_split_cast_nothing(trained: Trained) -> None:
    """On both boards: on the second, such rows cast what the first model predicts, whatever their labels."""
    run, graph, _ = trained
    y = graph.y.copy()
    for nodes in (graph.val_idx, graph.test_idx):
        y[nodes] = (y[nodes] + 1) % 3
    changed = replace(graph, y=y)
    for place in range(run.folder.num_boards):
        wanted = cast(graph, make_ballots(run.folder, graph, place))
        assert np.array_equal(wanted, cast(changed, make_ballots(run.folder, changed, place)))
        assert wanted.any()
    assert np.array_equal(run.predict_proba(graph), run.predict_proba(changed))


def test_a_training_label_is_cast_and_taken_off_its_own_reading(trained: Trained) -> None:
    """Changing a label moves the first board by the distance of two ballots; the rest of a reading stays."""
    run, graph, owner = trained
    node = busy_node(graph, graph.train_idx, owner)
    y = graph.y.copy()
    y[node] = (y[node] + 1) % 3
    changed = replace(graph, y=y)
    tallies = [cast(each, make_ballots(run.folder, each, 0)) for each in (graph, changed)]
    moved = (tallies[1] - tallies[0]) / GRID
    assert np.square(moved).sum() == pytest.approx(2 * 3 / (3 - 1), rel=1e-5)
    touched = np.flatnonzero(np.abs(moved).sum(1))
    assert touched.tolist() == sorted(places_of(graph, node, owner).tolist())


def test_no_label_helps_to_predict_itself() -> None:
    """Boards without noise, own ballots on them: the reading of a row is the same whatever its own label."""
    from hushgraph.billboard.ballots import label_ballots
    from hushgraph.billboard.board import cast, release
    from hushgraph.billboard.reading import read

    graph = make_graph(directed=False)
    node = busy_node(graph, graph.train_idx, "sender")
    readings = []
    for label in range(3):
        y = graph.y.copy()
        y[node] = label
        each = replace(graph, y=y)
        ballots = label_ballots(each, "sender", task=Classes(num_classes=3))
        board = release(cast(each, ballots), noise_std=0.0)
        readings.append(read(board, each, "sender", own=ballots, damped=False)[node])
        left_on = read(board, each, "sender", own=None, damped=False)[node]
        assert not np.allclose(left_on, readings[-1])
    assert np.allclose(readings[0], readings[1], atol=1e-5)
    assert np.allclose(readings[0], readings[2], atol=1e-5)


@pytest.mark.parametrize(
    "name",
    [
        "planetoid_cora",
        "planetoid_citeseer",
        "planetoid_pubmed",
        "amazon_computers",
        "coauthor_physics",
        "ogbn_arxiv_hints",
        "facebook_32_schools",
    ],
)
def test_words_json_and_ledger_agree_on_real_graphs(name: str, tmp_path: Path) -> None:
    file = DATA / f"{name}.npz"
    if not file.exists():
        pytest.skip(f"{name}.npz is not in {DATA.name}")
    run = hg.train(file, symmetrize=True, out=tmp_path / "run", **SHORT)
    run.report(tmp_path / "report.html")
    report, result = json.loads((tmp_path / "report.json").read_text()), run.result
    ledger = Ledger.open(run.folder.ledger_path, plan=run.plan, read_only=True)
    assert result["guarantee"] == "holds"
    assert result["predictions"] == "covered towards everybody else"
    # Boards, and the tables of figures.
    assert (ledger.releases_charged, ledger.steps_charged) == (run.folder.num_boards + 1, 4)
    assert ledger.spent_epsilon() == pytest.approx(result["epsilon"], rel=1e-9)
    assert result["epsilon"] <= 4.0 < result["epsilon_group_of_two"]
    assert all(math.isfinite(result[key]) and report["guarantee"][key] == result[key] for key in FIGURES)
    page = (tmp_path / "report.html").read_text()
    assert "covered towards everybody else" in page
    assert "It does not hide that others list the person" in page
