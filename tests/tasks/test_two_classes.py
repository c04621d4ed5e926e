"""Two classes: votes as ballots, weights of classes, ranking; compared with scikit-learn and by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from sklearn import metrics

import hushgraph as hg
from hushgraph.billboard.ballots import GRID, label_ballots
from hushgraph.billboard.board import cast
from hushgraph.errors import GraphError, InputError, PlanError
from hushgraph.figures.tables import Scored, count_rows
from hushgraph.gradients.clip import Clipping
from hushgraph.gradients.rows import RowPass, RowSums, find_chain
from hushgraph.graph.graph import Graph
from hushgraph.inputs.rows import Rows
from hushgraph.models.gnn import ReadingMLP
from hushgraph.tasks.choose import choose_class_task, read_class_weights
from hushgraph.tasks.classes import Classes
from hushgraph.tasks.two_classes import TwoClasses, rank_scores

TASKS = [TwoClasses(), TwoClasses(rare=True), TwoClasses(positive=0, rare=True)]


def draw_graph(rng: np.random.Generator, nodes: int = 8) -> Graph:
    edges = rng.integers(nodes, size=(2, 3 * nodes))
    return Graph.from_arrays(
        edge_index=edges,
        x=np.ones((nodes, 1)),
        y=rng.integers(-1, 2, nodes),
        train_idx=np.arange(nodes // 2),
        num_classes=2,
    )


@pytest.mark.parametrize("task", TASKS, ids=["votes", "rare", "rare first"])
def test_emptying_a_row_moves_the_tally_by_at_most_one_ballot(task: TwoClasses) -> None:
    rng, largest = np.random.default_rng(1), 0
    for _ in range(60):
        graph = draw_graph(rng)
        tally = cast(graph, label_ballots(graph, "sender", task=task))
        for v in range(graph.num_nodes):
            other = graph.with_row_emptied(v, "sender")
            moved = tally - cast(other, label_ballots(other, "sender", task=task))
            largest = max(largest, int(np.square(moved).sum()))
    assert 0.99 * GRID**2 < largest <= GRID**2


@pytest.mark.parametrize("task", TASKS, ids=["votes", "rare", "rare first"])
def test_a_changed_label_moves_a_ballot_as_far_as_the_task_says(task: TwoClasses) -> None:
    ballots = task.make_ballots(np.array([0, 1]))
    assert np.square(ballots[0] - ballots[1]).sum() == task.label_change
    assert np.square(ballots).sum(1).max() == 1
    predicted = task.predict_ballots(torch.randn(50, 2) * 5)
    assert predicted.shape == (50, task.ballot_width)
    assert np.square(predicted).sum(1).max() <= 1 + 1e-6


def test_only_the_rare_class_casts() -> None:
    graph = Graph.from_arrays(
        edge_index=np.array([[0, 1], [2, 2]]),
        x=np.ones((3, 1)),
        y=[0, 1, -1],
        train_idx=[0, 1],
        num_classes=2,
    )
    assert (cast(graph, label_ballots(graph, "sender", task=TwoClasses(rare=True))) / GRID).tolist() == [
        [0.0],
        [0.0],
        [1.0],
    ]
    votes = cast(graph, label_ballots(graph, "sender", task=TwoClasses()))
    assert (votes[2] / GRID).tolist() == [1.0, 1.0]


def test_exact_ranking_is_that_of_scikit_learn() -> None:
    rng = np.random.default_rng(0)
    scores = rng.random(400).round(2)
    y = (rng.random(400) < scores).astype(int)
    figures = rank_scores(scores, y == 1)
    assert figures["auc"] == pytest.approx(metrics.roc_auc_score(y, scores), abs=1e-12)
    assert figures["average_precision"] == pytest.approx(metrics.average_precision_score(y, scores))
    assert rank_scores(scores, np.zeros(400, bool)) == {}


def test_figures_are_about_the_positive_class() -> None:
    rng = np.random.default_rng(2)
    scores = rng.random(3000).astype(np.float32)
    y = (rng.random(3000) < scores).astype(int)
    shown = np.stack([1 - scores, scores], 1)
    tables = {p: count_rows(TwoClasses(positive=p), [Scored(shown, y)]) for p in (0, 1)}
    figures = {
        p: TwoClasses(positive=p).compute_figures([table[None] for table in tables[p]]) for p in (0, 1)
    }
    # Both areas are the same; precision at a threshold is that of the class.
    assert figures[0]["roc_auc"][0] == pytest.approx(figures[1]["roc_auc"][0], abs=2e-3)
    assert np.allclose(figures[0]["recall"], figures[1]["recall"])
    assert figures[1]["roc_auc"][0] == pytest.approx(metrics.roc_auc_score(y, scores), abs=2e-3)
    assert figures[0]["average_precision"][0] == pytest.approx(
        metrics.average_precision_score(1 - y, 1 - scores), abs=0.02
    )


@pytest.mark.parametrize("clipping", [Clipping(), Clipping(kind="flat"), Clipping(kind="groups")])
def test_weights_multiply_clipped_gradients(clipping: Clipping) -> None:
    torch.manual_seed(0)
    rng, weights = np.random.default_rng(0), (1.0, 0.25)
    model = ReadingMLP(5, 2, reading_width=3, hidden=8, activation="tanh")
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_()
    rows = Rows(dense=rng.normal(size=(300, 8)).astype(np.float32), labels=rng.integers(-1, 2, 300))
    weighted = Clipping(kind=clipping.kind, class_weights=weights)
    expected: dict[str, Any] = {}
    for label, weight in enumerate(weights):
        part = rows.take(np.flatnonzero(rows.labels == label))
        for name, value in RowPass(_chain(model)).clipped_sum(part, clipping).items():
            expected[name] = expected.get(name, 0.0) + weight * value
    for sums in (RowPass(_chain(model)).clipped_sum(rows, weighted), RowSums(model)(model, rows, weighted)):
        for name, value in sums.items():
            assert torch.allclose(value, expected[name], atol=1e-4, rtol=1e-5)


def _chain(model: ReadingMLP) -> Any:
    chain = find_chain(model)
    assert chain is not None
    return chain


@pytest.mark.parametrize("weight", [-0.1, 1.01, float("nan")])
def test_no_weight_lifts_a_contribution(weight: float) -> None:
    with pytest.raises(PlanError, match="expected numbers from 0 to 1"):
        Clipping(class_weights=(1.0, weight))
    with pytest.raises(InputError, match="expected a number from 0 to 1"):
        read_class_weights({"0": weight}, 2, None)


def test_a_balanced_weight_is_refused_with_the_reason() -> None:
    with pytest.raises(InputError, match="would count labels, which are private"):
        read_class_weights("balanced", 2, None)
    assert read_class_weights({"fraud": 1.0, "other": 0.02}, 2, ["other", "fraud"]) == (0.02, 1.0)
    with pytest.raises(InputError, match="class_weight='fruad': no such class; did you mean 'fraud'"):
        read_class_weights({"fruad": 1.0}, 2, ["other", "fraud"])


def test_the_task_follows_from_what_is_declared() -> None:
    assert choose_class_task(2, None) == TwoClasses()
    assert choose_class_task(3, None) == Classes(num_classes=3)
    assert choose_class_task(2, None, task="classes") == Classes(num_classes=2)
    assert choose_class_task(2, ["yes", "no"], positive="yes", rare=True) == TwoClasses(positive=0, rare=True)
    with pytest.raises(InputError, match="the data has 3 classes; expected two"):
        choose_class_task(3, None, rare=True)
    with pytest.raises(InputError, match="they belong to task='binary'"):
        choose_class_task(2, None, task="classes", rare=True)
    with pytest.raises(InputError, match="positive='maybe': no such class; expected one of yes, no"):
        choose_class_task(2, ["yes", "no"], positive="maybe")
    with pytest.raises(GraphError, match="expected two classes"):
        TwoClasses(positive=2)


@pytest.mark.parametrize("settings", [{}, {"rare": True, "class_weight": {"0": 0.1}}], ids=["votes", "rare"])
def test_two_classes_are_trained_published_and_predicted(settings: dict[str, Any], tmp_path: Any) -> None:
    data = hg.datasets.synthetic(num_nodes=600, num_classes=2, seed=4)
    run = hg.train(data, epsilon=8.0, steps=40, device="cpu", out=tmp_path / "run", **settings)
    assert run.result["task"] == "binary"
    assert run.plan.num_tables == 1
    assert {"roc_auc", "average_precision"} <= {row["figure"] for row in run.figures}
    loaded = hg.Run.load(tmp_path / "run" / "release", device="cpu")
    assert np.array_equal(loaded.predict_proba(data), run.predict_proba(data))
    assert loaded.folder.task == run.folder.task
    assert loaded.predict_new(data.x[:2], [[1, 2], []])[0].shape == (2, 2)
