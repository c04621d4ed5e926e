"""A number between declared bounds: ballots, sums for figures; compared with a second method."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn import metrics

import hushgraph as hg
from hushgraph.errors import GraphError
from hushgraph.figures.describe import describe_figures
from hushgraph.figures.tables import Scored, count_rows
from hushgraph.graph.graph import Graph
from hushgraph.tasks.labels import Labels
from hushgraph.tasks.number import Number

TASK = Number(low=10.0, high=50.0)


def test_numbers_are_scaled_and_cut() -> None:
    assert TASK.scale([10, 30, 50, 70, -5, np.nan])[:5].tolist() == [-1, 0, 1, 1, -1]
    assert np.isnan(TASK.scale([np.nan])).all()
    assert TASK.show(torch.tensor([[-1.0], [0.0], [2.0]]))[:, 0].tolist() == [10, 30, 50]
    with pytest.raises(GraphError, match="expected two finite numbers"):
        Number(low=3, high=3)


def test_what_a_row_adds_has_norm_at_most_one_in_integers() -> None:
    rng = np.random.default_rng(0)
    y = np.concatenate([rng.uniform(-1, 1, 20_000), [-1, 1, 1, -1, np.nan]]).astype(np.float32)
    shown = np.concatenate([rng.uniform(-100, 200, 20_000), [50, 10, np.inf, np.nan, 30]])[:, None]
    added = TASK.measure(shown, y)
    grid = TASK.tables[0].grid
    squares = np.square(added.astype(object)).sum(1)
    assert max(squares) <= grid**2
    # Attained: a number at one bound that is predicted at the other.
    assert max(squares) > 0.999 * grid**2
    assert TASK.locate(shown, y)[-2:].tolist() == [[0, 1, 2, 3, 4, 5], [-1] * 6]
    # A changed prediction or label moves it by at most sqrt(2).
    for place in rng.integers(20_000, size=200):
        other = TASK.measure(rng.uniform(-100, 200, (50, 1)), rng.uniform(-1, 1, 50).astype(np.float32))
        assert np.square((other - added[place]).astype(object)).sum(1).max() <= 2 * grid**2


def test_figures_of_exact_sums_are_those_of_scikit_learn() -> None:
    rng = np.random.default_rng(1)
    truth = rng.uniform(12, 48, 500)
    predicted = np.clip(truth + 4 * rng.normal(size=500), 10, 50)
    labels = TASK.scale(truth)
    (sums,) = count_rows(
        TASK, [Scored(predicted[:200, None], labels[:200]), Scored(predicted[200:, None], labels[200:])]
    )
    figures = TASK.compute_figures([sums[None] / TASK.tables[0].grid])
    assert figures["r2"][0] == pytest.approx(metrics.r2_score(truth, predicted), abs=1e-3)
    assert figures["mae"][0] == pytest.approx(metrics.mean_absolute_error(truth, predicted), rel=1e-3)
    assert figures["rmse"][0] ** 2 == pytest.approx(metrics.mean_squared_error(truth, predicted), rel=1e-3)
    exact = TASK.evaluate(predicted, labels).figures
    assert exact["r2"] == pytest.approx(metrics.r2_score(truth, predicted), abs=1e-5)


def test_rounding_to_a_fine_grid_adds_nothing_to_the_noise_of_figures() -> None:
    """By hand: the error of a ratio of two sums, each with noise s times the root of 6, which scales them."""
    rows, share, std = 1000.0, 0.25, 0.05
    sums = np.array([rows, 0.0, rows / 2, 0.0, rows / 8, share * rows]) / np.sqrt(6)
    described = describe_figures(TASK, {"test": [sums]}, noise_std=std)
    mae = next(each for each in described if each["figure"] == "mae")
    assert mae["value"] == pytest.approx(40 * share)
    assert mae["noise_std"] == pytest.approx(40 / rows * std * np.sqrt(6 * (1 + share**2)), rel=0.05)


def make_graph(task: Number | Labels, nodes: int = 1500) -> Graph:
    base = hg.datasets.synthetic(num_nodes=nodes, num_classes=2, num_features=8, seed=3)
    rng = np.random.default_rng(0)
    if isinstance(task, Number):
        y = task.scale(30 + 12 * (2 * base.y - 1) + rng.normal(size=nodes))
        y[base.train_idx[:5]] = np.nan
    else:
        y = np.stack([base.y, 1 - base.y, rng.integers(0, 2, nodes)], 1)
        y[base.train_idx[:5]] = -1
    sources, targets = (np.concatenate(ends) for ends in zip(*base.edge_chunks(), strict=True))
    splits = {name: getattr(base, name) for name in ("train_idx", "val_idx", "test_idx")}
    return Graph.from_arrays(
        edge_index=np.stack([sources, targets]), x=base.x, y=y, task=task, symmetrize=True, **splits
    )


@pytest.mark.parametrize(
    "settings", [{}, {"model": "mlp"}, {"max_readers": 2}], ids=["board", "mlp", "trees"]
)
@pytest.mark.parametrize("task", [TASK, Labels(num_labels=3)], ids=["number", "labels"])
def test_other_tasks_are_trained_evaluated_and_published(
    task: Number | Labels, settings: dict[str, object], tmp_path: object
) -> None:
    graph = make_graph(task)
    # What trees have learned is not looked at.
    steps = 20 if "max_readers" in settings else 250
    run = hg.train(
        graph, epsilon=20.0, steps=steps, device="cpu", out=f"{tmp_path}/run", exact_figures=True, **settings
    )
    key = f"test_{task.headline}"
    if "max_readers" in settings:
        assert run.result["figures"] == "not covered"
        assert np.isfinite(run.result[key])
    else:
        assert run.result["figures"] == "covered"
        assert {row["figure"] for row in run.figures} >= {task.judged_by}
        loaded = hg.Run.load(f"{tmp_path}/run/release", device="cpu")
        assert np.array_equal(loaded.predict_proba(graph), run.predict_proba(graph))
        exact = run.result["exact_figures"][key]
        # Of the number, features alone say nothing here.
        least = 0.55 if isinstance(task, Labels) else 0.1 if not settings else -0.2
        assert exact > least
    assert run.predict_proba(graph).shape == (1500, task.num_outputs)


def test_labels_cast_their_set_and_are_counted_once_each() -> None:
    task = Labels(num_labels=4)
    ballots = task.make_ballots(np.array([[1, 1, 0, 0], [0, 0, 0, 0], [1, 1, 1, 1]]))
    assert np.allclose(np.square(ballots).sum(1), [1, 0, 1])
    rng = np.random.default_rng(0)
    y, shown = rng.integers(0, 2, (50, 4)), rng.random((50, 4))
    y[3] = -1
    (table,) = count_rows(task, [Scored(shown, y)])
    assert table.sum() == 4 * 49
    assert task.num_tables == 4
    assert np.array_equal(table[:, :, 1].sum(1), np.where(y > 0, 1, 0).sum(0))
    with pytest.raises(GraphError, match="expected 0 or 1 for each of 4 labels"):
        task.check_labels(np.zeros((3, 2), int))
    with pytest.raises(GraphError, match="use -1 throughout for an unlabelled row"):
        task.check_labels(np.full((3, 4), 2))
