"""Sums of rows: numba in float32 and torch in float64 against a matrix written out."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from hushgraph.models import rowsums

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
