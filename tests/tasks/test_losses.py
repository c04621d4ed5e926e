"""The loss of every task is written once for torch and once in the kernels: both give the same sums."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from hushgraph.gradients.clip import Clipping
from hushgraph.gradients.rows import RowPass, RowSums, find_chain
from hushgraph.inputs.rows import Rows
from hushgraph.models.gnn import ReadingMLP
from hushgraph.tasks.classes import Classes
from hushgraph.tasks.labels import Labels
from hushgraph.tasks.number import Number
from hushgraph.tasks.task import Task
from hushgraph.tasks.two_classes import TwoClasses

COUNT = 150
TASKS: list[Task] = [
    Classes(num_classes=5),
    TwoClasses(positive=0),
    TwoClasses(rare=True),
    Labels(num_labels=4),
    Number(low=0.0, high=8.0),
]


def draw_labels(task: Task, rng: np.random.Generator) -> np.ndarray:
    """Labels of the task, some rows without one."""
    if isinstance(task, Number):
        labels = task.scale(rng.uniform(-1, 9, COUNT))
        labels[::7] = np.nan
        return labels
    shape = (COUNT, task.num_outputs) if isinstance(task, Labels) else (COUNT,)
    labels = rng.integers(0, 2 if isinstance(task, Labels) else task.num_outputs, shape)
    labels[::7] = -1
    return labels


@pytest.mark.parametrize("kind", ["normalised", "flat", "groups"])
@pytest.mark.parametrize("task", TASKS, ids=["classes", "two", "rare", "labels", "number"])
def test_kernels_compute_what_torch_does(task: Task, kind: str) -> None:
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    width = task.ballot_width + 1
    model = ReadingMLP(5, task.num_outputs, reading_width=width, hidden=8)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_()
    dense = rng.normal(size=(COUNT, 5 + width)).astype(np.float32)
    rows = Rows(dense=dense, labels=draw_labels(task, rng), loss=task.loss)
    weights = (0.25, 1.0) if isinstance(task, TwoClasses) and task.rare else None
    clipping = Clipping(kind=kind, class_weights=weights)
    chain = find_chain(model)
    assert chain is not None
    by_kernel = RowPass(chain).clipped_sum(rows, clipping)
    by_torch = RowSums(model)._by_torch(model, rows, clipping)
    for name, value in by_kernel.items():
        assert torch.allclose(value, by_torch[name], atol=2e-4), name
    assert max(float(value.abs().max()) for value in by_kernel.values()) > 0.1


@pytest.mark.parametrize("task", TASKS, ids=["classes", "two", "rare", "labels", "number"])
def test_one_row_by_the_gradient_of_the_loss(task: Task) -> None:
    """A third method: autograd on the loss of single rows, clipped by hand."""
    torch.manual_seed(1)
    rng = np.random.default_rng(1)
    width = task.ballot_width
    model = ReadingMLP(5, task.num_outputs, reading_width=width, hidden=4)
    dense = rng.normal(size=(COUNT, 5 + width)).astype(np.float32)
    labels = draw_labels(task, rng)
    chain = find_chain(model)
    assert chain is not None
    kernel = RowPass(chain).clipped_sum
    for row in range(30):
        one = Rows(dense=dense[row : row + 1], labels=labels[row : row + 1], loss=task.loss)
        found = kernel(one, Clipping(kind="flat", clip=0.5))
        model.zero_grad()
        task.loss(model(torch.from_numpy(one.dense), []), torch.from_numpy(one.labels)).sum().backward()
        exact = {name: p.grad.double() for name, p in model.named_parameters() if p.grad is not None}
        norm = float(sum(value.square().sum() for value in exact.values())) ** 0.5
        factor = min(1.0, 0.5 / norm) if norm else 0.0
        for name, value in exact.items():
            assert torch.allclose(found[name].double(), factor * value, atol=2e-5), (row, name)
