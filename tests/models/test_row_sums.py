"""Sums of rows: numba in float32, torch in float64 and Triton against sums written out."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from hushgraph.models import blocks as rowsums
from hushgraph.models import row_sums_gpu as rowsums_gpu
from triton_kernels import DEVICE, NEEDS_TRITON

# Row 0 has entries 0 and 1, row 1 has entry 2, row 2 has entries 3, 4 and 5.
INDPTR = torch.tensor([0, 2, 3, 6])
INDEX = torch.tensor([4, 0, 0, 2, 2, 1])
COEFFICIENTS = torch.tensor([1.0, 0.5, 2.0, -1.0, 0.0, 3.0])
# Entries by lower row; nobody reads row 3.
MATRIX = torch.tensor(
    [[0.5, 0.0, 0.0, 0.0, 1.0], [2.0, 0.0, 0.0, 0.0, 0.0], [0.0, 3.0, -1.0, 0.0, 0.0]], dtype=torch.float64
)
PARENTS = torch.tensor([0, 0, 1, 2, 2, 2])
DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.float64])


def rows(count: int, dtype: torch.dtype) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(count, 3, generator=generator, dtype=torch.float64).to(dtype)


def assert_close(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found.double(), expected.double(), rtol=1e-6, atol=1e-6)


@DTYPES
def test_shared_rows_are_gathered(dtype: torch.dtype) -> None:
    h = rows(5, dtype)
    found = rowsums.gather_sum(h, INDEX, COEFFICIENTS, INDPTR)
    assert found.dtype == dtype
    assert_close(found, MATRIX @ h.double())


@DTYPES
def test_rows_of_a_tree_are_gathered_in_place(dtype: torch.dtype) -> None:
    h = rows(6, dtype)
    assert_close(
        rowsums.gather_sum(h, None, COEFFICIENTS, INDPTR),
        rowsums.gather_sum(h, torch.arange(6), COEFFICIENTS, INDPTR),
    )


@DTYPES
def test_one_entry_a_row_is_a_product(dtype: torch.dtype) -> None:
    h = rows(5, dtype)
    found = rowsums.gather_sum(h, torch.tensor([3, 3, 0]), torch.tensor([1.0, 2.0, 0.0]), torch.arange(4))
    assert_close(found, torch.stack([h[3], 2 * h[3], 0 * h[0]]))


@DTYPES
def test_the_transposed_sum_is_the_transposed_matrix(dtype: torch.dtype) -> None:
    upper = rows(3, dtype)
    pointers, entries = rowsums.transpose(INDEX, 5)
    assert pointers.tolist() == [0, 2, 3, 5, 5, 6]
    assert entries.tolist() == [1, 2, 5, 3, 4, 0]
    found = rowsums.scatter_sum(upper, PARENTS, COEFFICIENTS, pointers, entries)
    assert found.dtype == dtype
    assert_close(found, MATRIX.T @ upper.double())


def test_no_rows_give_no_rows() -> None:
    found = rowsums.gather_sum(
        rows(0, torch.float32), None, torch.empty(0), torch.zeros(1, dtype=torch.int64)
    )
    assert found.shape == (0, 3)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_is_not_finite_stays_in_its_rows(value: float) -> None:
    h = rows(5, torch.float32)
    h[4] = value
    found = rowsums.gather_sum(h, INDEX, COEFFICIENTS, INDPTR)
    assert not found[0].isfinite().any()
    assert found[1:].isfinite().all()


@NEEDS_TRITON
@pytest.mark.parametrize("width", [1, 5, 300])
def test_the_kernel_for_gpus_agrees_for_rows_of_every_length(width: int) -> None:
    generator = torch.Generator().manual_seed(0)
    counts = torch.tensor([0, 1, 7, 8, 9, 0, 100])
    indptr = torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)])
    total = int(indptr[-1])
    h = torch.randn(20, width, generator=generator)
    index = torch.randint(20, (total,), generator=generator)
    entries = torch.randperm(total, generator=generator)
    coefficients = torch.rand(total, generator=generator)
    values = coefficients[:, None].double() * h[index].double()
    rows = torch.arange(len(counts)).repeat_interleave(counts)

    def sums(listed: Tensor) -> Tensor:
        return torch.zeros(len(counts), width, dtype=torch.float64).index_add(0, rows, listed)

    def found(source: Tensor, index: Tensor | None, entries: Tensor | None) -> Tensor:
        given = [t if t is None else t.to(DEVICE) for t in (source, index, coefficients, indptr, entries)]
        return rowsums_gpu.entry_sums(*given).cpu().double()

    torch.testing.assert_close(found(h, index, None), sums(values), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(found(h, index, entries), sums(values[entries]), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(found(h[index], None, None), sums(values), rtol=1e-5, atol=1e-6)
