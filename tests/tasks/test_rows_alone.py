"""What a row shows and casts depends on that row alone, to the last bit: not on how many rows come before."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from hushgraph.tasks.classes import Classes
from hushgraph.tasks.labels import Labels, find_probabilities
from hushgraph.tasks.number import Number
from hushgraph.tasks.task import Task
from hushgraph.tasks.two_classes import TwoClasses

TASKS: dict[str, Task] = {
    "classes": Classes(num_classes=5),
    "two classes": TwoClasses(),
    "rare": TwoClasses(rare=True),
    "labels": Labels(num_labels=3),
    "number": Number(low=-3.0, high=70.0),
}
ROWS = 1_000


@pytest.mark.parametrize("name", TASKS)
def test_a_row_before_changes_no_bit(name: str) -> None:
    """One row may be missing before it, as where it casts nothing or is scored elsewhere, or all others."""
    task = TASKS[name]
    outputs = 4 * torch.randn(ROWS, task.num_outputs, generator=torch.Generator().manual_seed(1))

    def compute(rows: torch.Tensor) -> list[np.ndarray[Any, Any]]:
        return [task.show(rows).numpy(), task.predict_ballots(rows)]

    whole = compute(outputs)
    cuts = [(begin, ROWS) for begin in range(1, 34)] + [(row, row + 1) for row in range(0, ROWS, 7)]
    for begin, end in cuts:
        for alone, among in zip(compute(outputs[begin:end]), whole, strict=True):
            np.testing.assert_array_equal(alone, among[begin:end])


def test_probabilities_of_labels_are_the_logistic_function() -> None:
    outputs = torch.linspace(-40, 40, 4_001, dtype=torch.float64)
    np.testing.assert_allclose(find_probabilities(outputs), 1 / (1 + np.exp(-outputs.numpy())), rtol=1e-14)
    edges = torch.tensor([-torch.inf, torch.inf, 0.0])
    assert find_probabilities(edges).tolist() == [0.0, 1.0, 0.5]
    assert find_probabilities(torch.tensor([torch.nan])).isnan().all()
