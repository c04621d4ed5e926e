"""Squared norms from rows: numba, Triton, padded torch and gradients written out, root by root."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from hushgraph.gradients import norms as pairs
from hushgraph.gradients.clip import ROUNDING_MARGIN
from hushgraph.models.blocks import RowGradient
from triton_kernels import DEVICE, NEEDS_TRITON

# 300 rows of 6 and 4 columns are beyond where forming the gradient is cheaper; 1 to 3 rows are not.
COUNTS = [1, 3, 300, 2, 1, 17]
BIAS = pytest.mark.parametrize("bias", [True, False])
TRITON = pytest.param("triton", marks=NEEDS_TRITON)


def norms_by(path: str, a: Tensor, d: Tensor, pointers: Tensor, *, bias: bool) -> tuple[Tensor, Tensor]:
    """Squared norms and sizes as the named kernel finds them."""
    most_rows = int(torch.diff(pointers).max())
    if path == "padded":
        return pairs._padded_norms(a, d, pointers, bias)
    if path == "triton":
        given = [tensor.to(DEVICE) for tensor in (a, d, pointers)]
        norms, sizes = pairs._norms_on_gpu(*given, bias, most_rows)
        return norms.cpu(), sizes.cpu()
    return pairs.linear_norms(a, d, pointers, bias=bias, most_rows=most_rows)


def pointers_of(counts: list[int]) -> Tensor:
    return torch.tensor([0, *counts]).cumsum(0)


def formed(a: Tensor, d: Tensor, pointers: Tensor, bias: bool) -> Tensor:
    """Squared norms of gradients that are written out, float64."""
    squares = []
    for begin, end in zip(pointers[:-1].tolist(), pointers[1:].tolist(), strict=True):
        inputs, gradients = a[begin:end].double(), d[begin:end].double()
        square = sum(torch.outer(d_i, a_i) for d_i, a_i in zip(gradients, inputs, strict=True)).square().sum()
        squares.append(square + (gradients.sum(0).square().sum() if bias else 0))
    return torch.stack(squares)


def rows(counts: list[int], size_in: int = 6, size_out: int = 4) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    total = sum(counts)
    a = torch.randn(total, size_in, generator=generator)
    return a, torch.randn(total, size_out, generator=generator), pointers_of(counts)


def relative(found: Tensor, expected: Tensor) -> float:
    return float(((found.double() - expected).abs() / expected.abs()).max())


@BIAS
@pytest.mark.parametrize(("size_in", "size_out"), [(6, 4), (1, 1), (70, 33)])
@pytest.mark.parametrize("path", ["numba", "padded", TRITON])
def test_every_kernel_agrees_with_gradients_written_out(
    bias: bool, size_in: int, size_out: int, path: str
) -> None:
    a, d, pointers = rows(COUNTS, size_in, size_out)
    expected = formed(a, d, pointers, bias)
    in_double, _ = norms_by("padded", a.double(), d.double(), pointers, bias=bias)
    assert relative(in_double, expected) < 1e-12
    norms, sizes = norms_by(path, a, d, pointers, bias=bias)
    assert relative(norms, expected) < (1e-5 if path == "padded" else 2e-6)
    single = (a.double().square().sum(1) + bias) * d.double().square().sum(1)
    owners = torch.arange(len(COUNTS)).repeat_interleave(torch.tensor(COUNTS))
    diagonal = torch.zeros(len(COUNTS), dtype=torch.float64).index_add(0, owners, single)
    assert bool((sizes >= diagonal * (1 - 1e-6)).all())


@BIAS
def test_a_padded_block_is_cut_where_memory_ends(bias: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    a, d, pointers = rows(COUNTS)
    whole, _ = pairs._padded_norms(a.double(), d.double(), pointers, bias)
    monkeypatch.setattr(pairs, "_PADDED_FLOATS", 100)
    parts, _ = pairs._padded_norms(a.double(), d.double(), pointers, bias)
    torch.testing.assert_close(parts, whole, rtol=1e-12, atol=0)


@BIAS
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("one_row", [True, False])
def test_one_row_a_root_is_a_product_of_norms(bias: bool, dtype: torch.dtype, one_row: bool) -> None:
    a, d, pointers = rows([1] * 20)
    norms, _ = pairs.linear_norms(a.to(dtype), d.to(dtype), pointers, bias=bias, most_rows=1, one_row=one_row)
    assert relative(norms, formed(a, d, pointers, bias)) < 1e-6


@pytest.mark.parametrize("relu", [True, False])
@pytest.mark.parametrize("written_out", [True, False])
@pytest.mark.parametrize("path", ["numba", "float64", TRITON])
def test_shared_rows_are_those_of_every_entry(relu: bool, written_out: bool, path: str) -> None:
    dtype = torch.float64 if path == "float64" else torch.float32
    generator = torch.Generator().manual_seed(1)
    entries = sum(COUNTS)
    pointers = pointers_of(COUNTS)
    a = torch.randn(9, 6, generator=generator).to(dtype)
    outputs = torch.randn(9, 4, generator=generator).to(dtype)
    outputs = outputs.relu() if relu else outputs.tanh()
    # Nine rows for 324 entries: most roots read a row several times.
    index = torch.randint(0, 9, (entries,), generator=generator)
    upper = torch.randn(len(COUNTS), 4, generator=generator).to(dtype)
    parents = torch.arange(len(COUNTS)).repeat_interleave(torch.tensor(COUNTS))
    coefficients = torch.rand(entries, generator=generator)
    gradient = RowGradient(upper, parents, coefficients)
    of_entries = upper[parents] * coefficients[:, None]
    torch.testing.assert_close(pairs.entry_gradients(gradient), of_entries)
    if written_out:
        gradient = RowGradient(of_entries, None, None)
    slope = (outputs > 0).to(dtype) if relu else 1 - outputs.square()
    torch.testing.assert_close(
        pairs.through_activation(of_entries, outputs[index], relu), of_entries * slope[index]
    )
    if path == "triton":
        whole = (gradient.upper, gradient.parents, gradient.coefficients)
        if written_out:
            whole = (of_entries, torch.arange(entries), torch.ones(entries))
        given = [tensor.to(DEVICE) for tensor in (a, outputs, index, *whole, pointers)]
        norms, _ = pairs._shared_norms_on_gpu(*given[:2], relu, tuple(given[2:]), max(COUNTS))
        norms = norms.cpu()
    else:
        norms, _ = pairs.shared_linear_norms(
            a, outputs, relu, index, gradient, pointers, most_rows=max(COUNTS)
        )
    assert relative(norms, formed(a[index], of_entries * slope[index], pointers, True)) < 2e-6


def cancelling(count: int, width: int, apart: float, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Rows that repeat and nearly cancel, which is where products of rows lose all their digits."""
    a, d = torch.randn(1, width, generator=generator), torch.randn(1, width, generator=generator)
    other = a + apart * torch.randn(1, width, generator=generator)
    half = (count // 2, width)
    return torch.cat([a.expand(half), other.expand(half)]), torch.cat([d.expand(half), -d.expand(half)])


@pytest.mark.parametrize("path", ["numba", "padded", TRITON])
@pytest.mark.parametrize("width", [24, 256])
def test_the_norm_with_its_margin_is_never_below_the_truth(path: str, width: int) -> None:
    generator = torch.Generator().manual_seed(2)
    counts = [2, 16, 64, 200, 600]
    if width == 256:
        counts = counts[:-1]
    for apart in (1e-6, 1e-4, 3e-4, 1e-3, 1e-2, 1e-1):
        parts = [cancelling(count, width, apart, generator) for count in counts]
        a, d = torch.cat([part[0] for part in parts]), torch.cat([part[1] for part in parts])
        pointers = pointers_of(counts)
        norms, sizes = norms_by(path, a, d, pointers, bias=True)
        used = norms.double().clamp(min=0) + ROUNDING_MARGIN * sizes.double()
        inputs = torch.cat([a.double(), torch.ones(len(a), 1, dtype=torch.float64)], 1)
        truth = torch.stack(
            [
                (d[begin:end].double().T @ inputs[begin:end]).square().sum()
                for begin, end in zip(pointers[:-1].tolist(), pointers[1:].tolist(), strict=True)
            ]
        )
        assert float((truth / used).sqrt().max()) <= 1 + 1e-6


@pytest.mark.parametrize("counts", [[1, 1], [2, 3], [400, 1]])
@pytest.mark.parametrize("path", ["numba", "padded", TRITON])
def test_products_too_small_for_float32_are_not_lost(counts: list[int], path: str) -> None:
    pointers = pointers_of(counts)
    a = torch.full((sum(counts), 64), 1e18)
    d = torch.full((sum(counts), 64), 1e-23)
    norms, _ = norms_by(path, a, d, pointers, bias=True)
    assert float(d[0] @ d[0]) == 0
    assert bool((norms >= formed(a, d, pointers, True) * (1 - 1e-12)).all())


@pytest.mark.filterwarnings("ignore:(overflow|invalid value) encountered:RuntimeWarning")
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e30])
@pytest.mark.parametrize("where", ["inputs", "gradients", "both"])
@pytest.mark.parametrize("path", ["numba", "padded", "float64", TRITON])
def test_what_is_not_finite_shows_in_its_own_root_alone(value: float, where: str, path: str) -> None:
    a, d, pointers = rows(COUNTS)
    clean, _ = norms_by("numba", a, d, pointers, bias=True)
    hit = [1, 2]
    for root in hit:
        row = int(pointers[root]) + 1
        if where != "gradients":
            a[row, 2] = value
        if where != "inputs":
            d[row, 1] = value
    if path == "float64":
        a, d = a.double(), d.double()
    norms, sizes = norms_by(path, a, d, pointers, bias=True)
    others = [root for root in range(len(COUNTS)) if root not in hit]
    assert relative(norms[others], clean[others].double()) < 1e-5
    # In float64 nothing is too large.
    if path != "float64" or not math.isfinite(value):
        assert not (norms[hit].isfinite() & sizes[hit].isfinite()).any()
