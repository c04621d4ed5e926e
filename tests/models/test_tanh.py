"""tanh on the CPU against torch's in float64."""

from __future__ import annotations

import math

import torch

from hushgraph.models.tanh import tanh_


def test_it_is_tanh() -> None:
    sizes = torch.logspace(-6, 3, 100_003, dtype=torch.float64).float()
    values = torch.cat([sizes, -sizes])
    exact = torch.tanh(values.double())
    torch.testing.assert_close(tanh_(values.clone()).double(), exact, rtol=5e-7, atol=0)


def test_special_numbers() -> None:
    values = torch.tensor([0.0, -0.0, math.inf, -math.inf, math.nan, 1e38, -1e-45])
    found = tanh_(values.clone())
    assert found[:2].tolist() == [0.0, -0.0]
    torch.testing.assert_close(found[2:4], torch.tensor([1.0, -1.0]), rtol=3e-7, atol=0)
    assert math.copysign(1, float(found[1])) == -1
    assert math.isnan(float(found[4]))
    assert abs(float(found[5]) - 1) < 1e-6
    assert abs(float(found[6])) <= 1e-45


def test_other_tensors_are_torchs() -> None:
    double, strided = torch.randn(5, dtype=torch.float64), torch.randn(6, 4)[:, ::2]
    for values in (double, strided):
        expected = torch.tanh(values)
        assert torch.equal(tanh_(values), expected)
