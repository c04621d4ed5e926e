"""A task from outside the package: a number between bounds, trained through the ordinary path."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor

import hushgraph as hg
from hushgraph.billboard.ballots import GRID, label_ballots
from hushgraph.billboard.board import cast
from hushgraph.errors import InputError
from hushgraph.graph.graph import Graph
from hushgraph.tasks import task as tasks
from hushgraph.tasks.classes import Classes
from hushgraph.tasks.task import Evaluation, Task, is_labelled, no_label, read_task


@dataclass(frozen=True, kw_only=True)
class Number(Task):
    """A number between declared bounds: one output, one number a ballot, squared error; shown times 100."""

    name: ClassVar[str] = "number"
    headline: ClassVar[str] = "r2"

    low: float
    high: float

    @property
    def num_outputs(self) -> int:
        return 1

    @property
    def ballot_width(self) -> int:
        return 1

    @property
    def label_change(self) -> float:
        return 4.0

    def check_labels(self, labels: Any) -> np.ndarray:
        return np.asarray(labels, np.float32)

    def scale(self, numbers: Any) -> Any:
        return 2 * (numbers.clip(self.low, self.high) - self.low) / (self.high - self.low) - 1

    def make_ballots(self, labels: np.ndarray) -> np.ndarray:
        return self.scale(labels.astype(np.float64))[:, None]

    def predict_ballots(self, outputs: Tensor) -> np.ndarray:
        return outputs.double().clip(-1, 1).numpy()

    @staticmethod
    def loss(outputs: Tensor, labels: Tensor) -> Tensor:
        errors = outputs[:, 0] - torch.nan_to_num(labels)
        return torch.where(labels.isnan(), 0.0, errors.square())

    def show(self, outputs: Tensor) -> Tensor:
        return 100 * ((outputs.clip(-1, 1) + 1) / 2 * (self.high - self.low) + self.low)

    def predict(self, shown: Tensor) -> Tensor:
        return shown[:, 0] / 100

    def evaluate(self, predicted: np.ndarray, labels: np.ndarray) -> Evaluation:
        lost = np.square(predicted - labels).sum() / np.square(labels - labels.mean()).sum()
        return Evaluation(figures={"r2": float(1 - lost)})


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(tasks._TASKS, "number", Number)


def numbers_graph(num_nodes: int = 400) -> Graph:
    """Numbers in [-1, 1] that features tell, with noise, and that neighbours share."""
    base = hg.datasets.synthetic(num_nodes=num_nodes, num_classes=2, num_features=8, seed=3)
    rng = np.random.default_rng(0)
    y = np.where(base.y > 0, 0.6, -0.6) + 0.1 * rng.normal(size=num_nodes)
    y = y.clip(-1, 1).astype(np.float32)
    y[base.y < 0] = np.nan
    y[base.train_idx[0]] = np.nan
    sources, targets = (np.concatenate(ends) for ends in zip(*base.edge_chunks(), strict=True))
    return Graph.from_arrays(
        edge_index=np.stack([sources, targets]),
        x=base.x,
        y=y,
        train_idx=base.train_idx,
        val_idx=base.val_idx,
        test_idx=base.test_idx,
        task=Number(low=-1.0, high=1.0),
    )


def test_a_task_is_read_back_from_its_settings() -> None:
    for task in (Number(low=0.0, high=2.0), Classes(num_classes=3)):
        assert read_task(task.to_json()) == task
    with pytest.raises(InputError, match=r"task='ranking': expected one of .*classes, .*import the module"):
        read_task({"name": "ranking"})


def test_missing_labels_are_known_by_the_type_of_labels() -> None:
    assert is_labelled(np.array([0, -1, 2])).tolist() == [True, False, True]
    assert is_labelled(np.array([0.0, np.nan])).tolist() == [True, False]
    assert is_labelled(np.array([[0.0, 1.0], [np.nan, 1.0]])).tolist() == [True, False]
    assert no_label(torch.int64) == -1
    assert np.isnan(no_label(np.dtype(np.float32)))


def test_a_row_moves_the_tally_of_numbers_by_at_most_one_ballot() -> None:
    graph = numbers_graph(60)
    tally = cast(graph, label_ballots(graph, "sender", task=graph.task))
    assert tally.shape == (60, 1)
    largest = 0
    for v in range(60):
        other = graph.with_row_emptied(v, "sender")
        moved = tally - cast(other, label_ballots(other, "sender", task=other.task))
        largest = max(largest, int(np.square(moved).sum()))
    assert 0.3 * GRID**2 < largest <= GRID**2


@pytest.mark.parametrize("method", ["billboard", "trees"])
def test_a_number_is_trained_and_predicted(method: str, tmp_path: Any) -> None:
    graph = numbers_graph()
    how: dict[str, Any] = {"max_readers": 2} if method == "trees" else {}
    run = hg.train(
        graph, epsilon=50.0, method=method, steps=250, seed=1, out=tmp_path / "run", hidden=16, **how
    )
    assert run.folder.task == graph.task
    assert run.result["test_r2"] > {"billboard": 0.3, "trees": 0.02}[method]
    if method == "billboard":
        # A changed number moves its ballot by 2, as a label of two classes does.
        assert run.plan.label_change == 4.0
        assert run.plan.epsilon_label == replace(run.plan, label_change=None, num_classes=2).epsilon_label
    assert run.result["test_accuracy"] is None
    evaluation = run.evaluate(graph)
    assert evaluation is not None
    assert evaluation.figures["r2"] == pytest.approx(run.result["test_r2"], abs=1e-4)
    again = hg.Run.load(tmp_path / "run")
    assert np.array_equal(again.predict_proba(graph), run.predict_proba(graph))
    assert np.ptp(run.predict_proba(graph)) > 0.2


def test_a_number_is_trained_without_privacy() -> None:
    run = hg.train(numbers_graph(), private=False, steps=60, seed=1, hidden=16)
    assert run.result["test_r2"] > 0.5
