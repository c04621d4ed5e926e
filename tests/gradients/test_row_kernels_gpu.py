"""The kernels between the matrix products of rows, against operations of torch."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from hushgraph.gradients import row_kernels_gpu as kernels
from hushgraph.gradients.rows_torch import DeviceColumns
from hushgraph.gradients.sums import CHUNK
from hushgraph.models.blocks import transpose
from triton_kernels import DEVICE, NEEDS_TRITON

pytestmark = NEEDS_TRITON


def random_tensor(*shape: int, seed: int = 1) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE)


def test_gradients_of_scores() -> None:
    scores = random_tensor(70, 5).requires_grad_()
    labels = (torch.arange(70, device=DEVICE) % 7) - 2
    functional.cross_entropy(scores, labels.clamp(min=-1), ignore_index=-1, reduction="sum").backward()
    gradients = scores.detach().clone()
    squares = kernels.score_gradients(gradients, labels.clamp(min=-1))
    assert scores.grad is not None
    torch.testing.assert_close(gradients, scores.grad)
    torch.testing.assert_close(squares, gradients.double().square().sum(1))


@pytest.mark.parametrize("relu", [False, True])
def test_gradients_through_the_activation(relu: bool) -> None:
    gradients, outputs = random_tensor(70, 100), random_tensor(70, 100, seed=2)
    outputs = outputs.relu() if relu else outputs.tanh()
    outputs[3, 7], outputs[9, 2] = torch.inf, torch.nan
    expected = gradients * ((outputs > 0).float() if relu else (1 - outputs) * (1 + outputs))
    cleaned = torch.where(outputs.isfinite(), outputs, 0.0)
    of_outputs = outputs.double().square().sum(1)
    squares, output_squares = kernels.pass_activation(gradients, outputs, relu=relu)
    is_finite = of_outputs.isfinite()
    torch.testing.assert_close(gradients[is_finite], expected[is_finite])
    torch.testing.assert_close(squares[is_finite], expected.double().square().sum(1)[is_finite])
    torch.testing.assert_close(output_squares[is_finite], of_outputs[is_finite])
    assert not output_squares[[3, 9]].isfinite().any()
    torch.testing.assert_close(outputs, cleaned)


def test_weights_of_rows() -> None:
    rows, factors = random_tensor(3 * CHUNK, 37), random_tensor(3 * CHUNK, seed=2)
    factors[5] = 0
    expected = rows * factors[:, None]
    rows[5] = torch.inf
    total = kernels.weigh_rows(rows, factors, CHUNK)
    torch.testing.assert_close(rows, expected)
    torch.testing.assert_close(total, expected.double().sum(0))


def test_sums_of_columns() -> None:
    generator = torch.Generator().manual_seed(4)
    counts = torch.tensor([0, 3, 900, kernels.SEGMENT, 0, 1])
    indices = torch.repeat_interleave(torch.arange(6), counts)[torch.randperm(1160, generator=generator)]
    owners = torch.randint(200, (1160,), generator=generator)
    values, rows = random_tensor(1160), random_tensor(200, 70, seed=5)
    pointers, order = transpose(indices, 6)
    columns, segments = DeviceColumns.cut_segments(pointers)
    sums = kernels.sum_columns(
        rows, owners[order].to(DEVICE), values[order.to(DEVICE)], segments.to(DEVICE), columns.to(DEVICE)
    )
    expected = torch.zeros(6, 70, dtype=torch.float64, device=DEVICE)
    expected.index_add_(0, indices.to(DEVICE), values.double()[:, None] * rows.double()[owners.to(DEVICE)])
    torch.testing.assert_close(sums, expected)


def test_sums_of_parts() -> None:
    parts = random_tensor(150, 70)
    torch.testing.assert_close(kernels.sum_parts(parts), parts.double().sum(0))


@pytest.mark.parametrize("activation", [kernels.LINEAR, kernels.RELU, kernels.TANH])
def test_products_of_sparse_rows(activation: int) -> None:
    generator = torch.Generator().manual_seed(4)
    counts = torch.randint(9, (30,), generator=generator)
    pointers = torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)])
    indices = torch.randint(7, (int(counts.sum()),), generator=generator).to(DEVICE)
    values, weights, out = random_tensor(len(indices)), random_tensor(7, 70), random_tensor(30, 70, seed=3)
    owners = torch.repeat_interleave(torch.arange(30), counts).to(DEVICE)
    expected = out.index_add(0, owners, values[:, None] * weights[indices])
    expected[3, 5] = out[3, 5] = torch.nan
    kernels.add_sparse_products(out, weights, indices, values, pointers.to(DEVICE), activation)
    activate = {kernels.LINEAR: lambda x: x, kernels.RELU: torch.relu, kernels.TANH: torch.tanh}[activation]
    torch.testing.assert_close(out, activate(expected), equal_nan=True, rtol=1e-5, atol=1e-6)
