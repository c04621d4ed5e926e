"""Weighted sums of rows along lists of reads, forwards and transposed: numba on the CPU, torch on a GPU."""

from __future__ import annotations

import numba
import numpy as np
import torch
from torch import Tensor

from hushgraph.models import row_sums_gpu as rowsums_gpu

# Sums may be reordered for speed, but NaN and infinity keep their meaning: clipping relies on seeing them.
FASTMATH = {"reassoc", "contract", "nsz", "arcp"}


@numba.njit(cache=True, nogil=True, parallel=True, fastmath=FASTMATH)
def _gather_sum(h, index, coefficients, indptr, out):  # type: ignore[no-untyped-def]
    width = h.shape[1]
    shared = len(index) > 0
    for row in numba.prange(len(indptr) - 1):
        target = out[row]
        target[:] = 0
        for entry in range(indptr[row], indptr[row + 1]):
            c = coefficients[entry]
            if c != 0:
                source = h[index[entry] if shared else entry]
                for k in range(width):
                    target[k] += c * source[k]


@numba.njit(cache=True, nogil=True, parallel=True, fastmath=FASTMATH)
def _scatter_sum(upper, parents, coefficients, pointers, entries, out):  # type: ignore[no-untyped-def]
    width = upper.shape[1]
    for row in numba.prange(len(pointers) - 1):
        target = out[row]
        target[:] = 0
        for at in range(pointers[row], pointers[row + 1]):
            entry = entries[at]
            c = coefficients[entry]
            source = upper[parents[entry]]
            for k in range(width):
                target[k] += c * source[k]


@numba.njit(cache=True, nogil=True)
def _transpose(index, pointers, entries):  # type: ignore[no-untyped-def]
    for lower in index:
        pointers[lower + 1] += 1
    for row in range(len(pointers) - 1):
        pointers[row + 1] += pointers[row]
    at = pointers[:-1].copy()
    for entry in range(len(index)):
        lower = index[entry]
        entries[at[lower]] = entry
        at[lower] += 1


def _on_triton(values: Tensor) -> bool:
    return values.is_cuda and values.dtype == torch.float32 and rowsums_gpu.AVAILABLE


_NO_INDEX = np.empty(0, dtype=np.int64)


def transpose(index: Tensor, num_lower: int) -> tuple[Tensor, Tensor]:
    """Entries sorted by lower row: (pointers int64 [num_lower + 1], entries int64 [len(index)])."""
    if index.is_cuda:
        entries = torch.argsort(index, stable=True)
        pointers = torch.zeros(num_lower + 1, dtype=torch.int64, device=index.device)
        pointers[1:] = torch.bincount(index, minlength=num_lower).cumsum(0)
        return pointers, entries
    pointers = torch.zeros(num_lower + 1, dtype=torch.int64)
    entries = torch.empty(index.numel(), dtype=torch.int64)
    _transpose(index.numpy(), pointers.numpy(), entries.numpy())
    return pointers, entries


def gather_sum(h: Tensor, index: Tensor | None, coefficients: Tensor, indptr: Tensor) -> Tensor:
    """[rows, d]: the sum over each row's entries e of coefficients[e] * h[index[e]]."""
    rows = indptr.numel() - 1
    if _on_triton(h):
        return rowsums_gpu.entry_sums(h.detach(), index, coefficients, indptr, None)
    if h.is_cuda or h.dtype != torch.float32:
        entries = h if index is None else h[index]
        # Equal segments of one entry are the common case of training that reads no edges.
        if entries.shape[0] == rows:
            return entries * coefficients[:, None].to(h.dtype)
        return torch.segment_reduce(
            entries * coefficients[:, None].to(h.dtype), "sum", offsets=indptr, axis=0
        )
    out = torch.empty((rows, h.shape[1]), dtype=h.dtype)
    _gather_sum(
        h.detach().contiguous().numpy(),
        _NO_INDEX if index is None else index.numpy(),
        coefficients.numpy(),
        indptr.numpy(),
        out.numpy(),
    )
    return out


def scatter_sum(
    upper: Tensor, parents: Tensor, coefficients: Tensor, pointers: Tensor, entries: Tensor
) -> Tensor:
    """[lower rows, d]: the sum over each lower row's entries e of coefficients[e] * upper[parents[e]]."""
    if _on_triton(upper):
        return rowsums_gpu.entry_sums(upper.detach(), parents, coefficients, pointers, entries)
    if upper.is_cuda or upper.dtype != torch.float32:
        values = upper[parents[entries]] * coefficients[entries, None].to(upper.dtype)
        return torch.segment_reduce(values, "sum", offsets=pointers, axis=0, initial=0.0)
    out = torch.empty((pointers.numel() - 1, upper.shape[1]), dtype=upper.dtype)
    _scatter_sum(
        upper.detach().contiguous().numpy(),
        parents.numpy(),
        coefficients.numpy(),
        pointers.numpy(),
        entries.numpy(),
        out.numpy(),
    )
    return out
