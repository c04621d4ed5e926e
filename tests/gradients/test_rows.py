"""Clipped sums of rows against the sums by trees."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from hushgraph.gradients import ghost
from hushgraph.gradients.batch import TreeBatch
from hushgraph.gradients.clip import Clipping
from hushgraph.gradients.rows import RowSums
from hushgraph.models.gnn import ReadingMLP


def rows_batch(num_rows: int, width: int, num_classes: int, seed: int = 0) -> TreeBatch:
    """Rows with random features; every fifth has no label."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(num_classes, size=num_rows)
    labels[::5] = -1
    return TreeBatch(
        x=torch.from_numpy(rng.standard_normal((num_rows, width)).astype(np.float32)),
        blocks=(),
        labels=torch.from_numpy(labels),
        pointers=(torch.arange(num_rows + 1),),
        most_rows=(1,),
    )


def random_model(num_features: int, num_classes: int) -> ReadingMLP:
    """A model whose output layers do not start at zero."""
    model = ReadingMLP(num_features, num_classes, hidden=8)
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) / 2)
    return model


@pytest.mark.parametrize("kind", ["normalised", "flat", "groups"])
@pytest.mark.parametrize("num_rows", [1, 7, 9000])
def test_rows_give_the_clipped_sum_of_trees(kind: str, num_rows: int) -> None:
    batch, model = rows_batch(num_rows, 9, 4), random_model(5, 4)
    clipping = Clipping(kind=kind, clip=0.7)  # type: ignore[arg-type]
    expected, sums = ghost.clipped_sum(model, batch, clipping), RowSums()(model, batch, clipping)
    assert set(sums) == set(expected)
    for name, value in expected.items():
        # The two compute tanh in different ways, each right up to 3e-7.
        torch.testing.assert_close(sums[name], value, rtol=1e-5, atol=1e-5)


def test_norms_of_inputs_are_kept_for_one_input_only() -> None:
    model, clipping, row_sums = random_model(5, 4), Clipping(), RowSums()
    first, second = rows_batch(6, 9, 4, seed=1), rows_batch(6, 9, 4, seed=2)
    row_sums(model, first, clipping)
    again = row_sums(model, second, clipping)
    fresh = RowSums()(model, second, clipping)
    for name in fresh:
        assert torch.equal(again[name], fresh[name])


def test_one_row_never_exceeds_the_clipping_norm() -> None:
    model, clipping = random_model(5, 4), Clipping(kind="flat", clip=1.0)
    batch = rows_batch(2, 9, 4)
    batch.x[1] *= 1e6
    sums = RowSums()(model, batch, clipping)
    norm = torch.cat([value.reshape(-1) for value in sums.values()]).norm()
    assert 0.99 < norm <= 1 + 1e-6
