"""Weighted sums: their values, the bound on what rounding changes, and how far it reaches."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
import torch
from torch import Tensor

from hushgraph.gradients import sums, sums_gpu
from hushgraph.models.blocks import transpose
from triton_kernels import DEVICE, NEEDS_TRITON


def rows(count: int, size_in: int = 5, size_out: int = 3, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return (
        torch.randn(count, size_out, generator=generator),
        torch.randn(count, size_in, generator=generator),
        torch.rand(count, generator=generator, dtype=torch.float64),
    )


def exact(gradients: Tensor, inputs: Tensor) -> Tensor:
    """The sum of outer products with fractions, rounded once."""
    total = [[Fraction(0)] * inputs.shape[1] for _ in range(gradients.shape[1])]
    for d, a in zip(gradients.tolist(), inputs.tolist(), strict=True):
        for o, d_o in enumerate(d):
            for k, a_k in enumerate(a):
                total[o][k] += Fraction(d_o) * Fraction(a_k)
    return torch.tensor([[float(value) for value in row] for row in total], dtype=torch.float64)


@pytest.mark.parametrize("count", [0, 1, 127, 128, 129, 2500])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_sums_of_roots_are_those_of_float64(
    count: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The sums of four chunks at a time.
    monkeypatch.setattr(sums, "_HELD", 60)
    gradients, inputs, factors = rows(count)
    weight, bias = sums.sums_of_roots(gradients.to(dtype), inputs.to(dtype), factors, clean=False)
    weighted = gradients.double() * factors[:, None]
    assert (weight.dtype, bias.dtype) == (torch.float64, torch.float64)
    torch.testing.assert_close(weight, weighted.T @ inputs.double(), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(bias, weighted.sum(0), rtol=1e-5, atol=1e-5)


def test_a_chunk_is_within_its_bound_of_the_exact_sum() -> None:
    """All terms of one sign, so that rounding is as large as it gets."""
    for seed in range(20):
        gradients, inputs, _ = rows(sums.CHUNK, seed=seed)
        gradients, inputs = gradients.abs(), inputs.abs()
        found, _ = sums.sums_of_roots(
            gradients, inputs, torch.ones(sums.CHUNK, dtype=torch.float64), clean=False
        )
        error = float((found - exact(gradients, inputs)).norm())
        sizes = float((gradients.norm(dim=1) * inputs.norm(dim=1)).sum())
        assert 0 < error <= (sums.CHUNK + 2) * 2.0**-24 * sizes


def test_rounding_reaches_no_further_than_the_chunk_of_a_changed_root() -> None:
    """A root that is emptied changes its chunk alone: two sums differ by little more than the root."""
    gradients, inputs, factors = rows(4096, 40, 30)
    before, _ = sums.sums_of_roots(gradients, inputs, factors, clean=False)
    lost = []
    for root in (0, 127, 128, 2000, 4095):
        emptied = gradients.clone()
        emptied[root] = 0
        after, _ = sums.sums_of_roots(emptied, inputs, factors, clean=False)
        own = torch.outer((gradients[root].double() * factors[root]).float().double(), inputs[root].double())
        begin = root // sums.CHUNK * sums.CHUNK
        chunk = slice(begin, begin + sums.CHUNK)
        sizes = float((gradients[chunk].norm(dim=1) * inputs[chunk].norm(dim=1) * factors[chunk]).sum())
        lost.append(float((before - after - own).norm()) / (2 * (sums.CHUNK + 2) * 2.0**-24 * sizes))
    assert 0 < max(lost) <= 1


def test_the_bound_is_small_for_large_batches() -> None:
    assert 2 * sums.sum_error(num_roots=200_000, num_rows=200_000) < 0.005
    assert 2 * sums.sum_error(num_roots=200_000, num_rows=60_000_000) < 0.005
    assert sums.sum_error(num_roots=10**6, num_rows=10**7) > sums.sum_error(num_roots=10, num_rows=100)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rows_of_factor_zero_are_left_out_whatever_they_hold(bad: float, dtype: torch.dtype) -> None:
    gradients, inputs, factors = (value.to(dtype) for value in rows(300))
    factors = factors.double()
    factors[[7, 200]] = 0
    expected = sums.sums_of_roots(gradients, inputs, factors, clean=False)
    gradients[7, 1], inputs[7, 2], inputs[200, 0] = bad, bad, bad
    found = sums.sums_of_roots(gradients, inputs, factors, clean=True)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=0)


PATHS = pytest.mark.parametrize("path", ["numba", "torch", pytest.param("triton", marks=NEEDS_TRITON)])


@PATHS
@pytest.mark.parametrize("relu", [True, False])
def test_shared_rows_add_up_what_their_entries_give(path: str, relu: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    nodes, entries, roots, width = 9000, 20_000, 40, 7
    index = torch.randint(0, nodes - 100, (entries,), generator=generator)
    parents = torch.randint(0, roots, (entries,), generator=generator)
    upper = torch.randn(roots, width, generator=generator)
    weights = torch.rand(entries, generator=generator, dtype=torch.float64)
    outputs = torch.randn(nodes, width, generator=generator)
    outputs = outputs.relu() if relu else outputs.tanh()
    # One row of gradients and one output are not numbers; all entries that see them have weight 0.
    upper[3, 1], outputs[9, 2] = math.nan, math.inf
    weights[(parents == 3) | (index == 9)] = 0
    values = torch.where(weights[:, None] == 0, 0, upper[parents].double() * weights[:, None])
    slopes = (outputs > 0).double() if relu else 1 - outputs.double().square()
    expected = torch.zeros(nodes, width, dtype=torch.float64).index_add_(0, index, values)
    expected = torch.where(expected == 0, 0, expected * slopes)
    tensors = (upper, parents, weights, *transpose(index, nodes))
    if path == "triton":
        given = [tensor.to(DEVICE) for tensor in (*tensors, outputs)]
        found = sums_gpu.shared_rows(*given, relu, slice(0, nodes)).cpu()
    elif path == "torch":
        found = sums._torch_rows(*tensors, outputs, relu, slice(0, nodes))
    else:
        parts = list(sums.weighted_shared_rows(*tensors, outputs=outputs, relu=relu))
        assert [part.start for part, _ in parts] == list(range(0, nodes, 1024))
        found = torch.cat([part for _, part in parts])
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-15)
