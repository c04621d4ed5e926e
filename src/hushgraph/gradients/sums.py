"""Sums of weighted gradients over roots, with a proven bound on what rounding changes of them.

Rows of trees are added up in float64. Where every root has one row, products of at most `CHUNK` rows are
float32 on the CPU and added up in float64: rounding then reaches no further than the chunk of a changed root.
docs/secure-noise.md has the bounds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numba
import numpy as np
import torch
from torch import Tensor

from hushgraph.gradients import sums_gpu
from hushgraph.gradients.clip import ROUNDING_MARGIN
from hushgraph.models import row_sums_gpu
from hushgraph.models.blocks import FASTMATH

# Roots whose gradients are added up in float32. Batches must be cut at multiples of it, and roots keep their
# places in a batch whether they have a label or not: a root must not change the chunk of another.
CHUNK = 128
# Numbers of chunks' sums that are held at once. Many small parts would keep threads waiting for each other.
_HELD = 1 << 22
# Rows that are held in float64 at once: on a CPU they should stay in the cache of a core.
_BLOCK = {"cpu": 1 << 10, "cuda": 1 << 16}
_UNIT_32, _UNIT_64 = 2.0**-24, 2.0**-53


def sum_error(*, num_roots: int, num_rows: int) -> float:
    """What rounding may move the clipped sum of a batch by, in units of C, for each changed root.

    Args:
        num_roots: no batch has more roots.
        num_rows: the trees of no batch have more rows together, those of all levels.

    Guarantees:
        Let x and x' be the computed sums of two batches that differ in the trees of |S| >= 1 roots, and y, y'
        the exact sums of the same clipped gradients. Then |x - x'| <= |y - y'| + 2 |S| C sum_error.
    """
    local = (CHUNK + 2) * _UNIT_32 * CHUNK
    # A piece of a batch, and there may be as many as roots, ends with a block that is not full.
    blocks = num_rows / _BLOCK["cpu"] + num_roots
    # Rows of a block, entries of a shared row, blocks and pieces, processes.
    additions = (2 * _BLOCK["cuda"] + blocks + 1024) * _UNIT_64
    return 1.001 * (local + additions * num_roots / math.sqrt(ROUNDING_MARGIN))


def sums_of_roots(
    gradients: Tensor, inputs: Tensor, factors: Tensor, *, clean: bool
) -> tuple[Tensor, Tensor]:
    """float64 [out, in] and [out]: sums over rows of factor times gradient times input, and without input.

    Every root has one row.
    """
    if gradients.is_cuda or gradients.dtype != torch.float32:
        weight = torch.zeros(gradients.shape[1], inputs.shape[1], dtype=torch.float64, device=inputs.device)
        bias = torch.zeros(gradients.shape[1], dtype=torch.float64, device=inputs.device)
        for part, weighted in weighted_blocks(gradients, factors, clean=clean):
            weight.addmm_(weighted.T, exact_rows(inputs[part], clean=clean))
            bias += weighted.sum(0)
        return weight, bias
    weighted = torch.empty(gradients.shape, dtype=torch.float32)
    parts = torch.zeros((_PARTS, gradients.shape[1]), dtype=torch.float64)
    _weigh(gradients.contiguous().numpy(), factors.numpy(), weighted.numpy(), parts.numpy())
    if clean:
        weighted, inputs = (torch.where(rows.isfinite(), rows, 0) for rows in (weighted, inputs))
        return _sum_of_chunks(weighted, inputs), weighted.sum(0, dtype=torch.float64)
    return _sum_of_chunks(weighted, inputs.contiguous()), parts.sum(0)


def weighted_blocks(gradients: Tensor, factors: Tensor, *, clean: bool) -> Iterator[tuple[slice, Tensor]]:
    """Rows of gradients times the factor of each row, in float64, a block of them at a time."""
    block = _BLOCK[gradients.device.type]
    for begin in range(0, gradients.shape[0], block):
        part = slice(begin, begin + block)
        weighted = gradients[part].double() * factors[part, None]
        # Zero times infinity is not zero.
        yield part, torch.where(factors[part, None] == 0, 0.0, weighted) if clean else weighted


def exact_rows(rows: Tensor, *, clean: bool, ones: bool = False) -> Tensor:
    """Rows in float64; with `clean` without what is not finite, which only rows of factor 0 have.

    With `ones` there is a column of ones behind them.
    """
    width = rows.shape[1]
    exact = torch.empty(rows.shape[0], width + ones, dtype=torch.float64, device=rows.device)
    exact[:, :width] = torch.where(rows.isfinite(), rows, 0.0) if clean else rows
    if ones:
        exact[:, width] = 1
    return exact


def weighted_shared_rows(
    upper: Tensor,
    parents: Tensor,
    weights: Tensor,
    pointers: Tensor,
    entries: Tensor,
    *,
    outputs: Tensor,
    relu: bool,
) -> Iterator[tuple[slice, Tensor]]:
    """float64 rows, a block at a time: per shared row, the weighted sum over its entries times the slope.

    Args:
        upper: [rows, out]; entry e has the gradient upper[parents[e]].
        parents: int64 [entries].
        weights: float64 [entries]; entries of weight 0 are left out, finite or not.
        pointers, entries: the entries of every shared row.
        outputs: [shared rows, out], after the activation.
        relu: the activation is relu; tanh otherwise.
    """
    block = _BLOCK[outputs.device.type]
    tensors = (upper.contiguous(), parents, weights, pointers, entries, outputs)
    arrays = None if outputs.is_cuda else tuple(tensor.numpy() for tensor in tensors)
    for begin in range(0, outputs.shape[0], block):
        part = slice(begin, min(begin + block, outputs.shape[0]))
        if outputs.dtype != torch.float32 or (outputs.is_cuda and not row_sums_gpu.AVAILABLE):
            yield part, _torch_rows(*tensors, relu, part)
        elif arrays is None:
            yield part, sums_gpu.shared_rows(*tensors, relu, part)
        else:
            rows = torch.empty((part.stop - begin, outputs.shape[1]), dtype=torch.float64)
            _shared_rows(*arrays, relu, begin, rows.numpy())
            yield part, rows


def _torch_rows(
    upper: Tensor,
    parents: Tensor,
    weights: Tensor,
    pointers: Tensor,
    entries: Tensor,
    outputs: Tensor,
    relu: bool,
    part: slice,
) -> Tensor:
    """A block of `weighted_shared_rows` with torch alone."""
    first = pointers[part.start]
    mine = entries[first : pointers[part.stop]]
    counts = torch.diff(pointers[part.start : part.stop + 1])
    c = weights[mine][:, None]
    values = torch.where(c == 0, 0.0, upper[parents[mine]].double() * c)
    owners = torch.repeat_interleave(torch.arange(counts.numel(), device=c.device), counts)
    rows = torch.zeros((counts.numel(), upper.shape[1]), dtype=torch.float64, device=c.device)
    rows.index_add_(0, owners, values)
    y = outputs[part].double()
    return torch.where(rows == 0, 0.0, rows * ((y > 0).double() if relu else 1 - y.square()))


def _sum_of_chunks(weighted: Tensor, inputs: Tensor) -> Tensor:
    total = torch.zeros(weighted.shape[1], inputs.shape[1], dtype=torch.float64)
    chunks = weighted.shape[0] // CHUNK
    left = weighted[: chunks * CHUNK].view(chunks, CHUNK, weighted.shape[1]).mT
    right = inputs[: chunks * CHUNK].view(chunks, CHUNK, inputs.shape[1])
    held = max(1, min(_HELD // max(1, total.numel()), chunks))
    products = torch.empty(held, *total.shape)
    for begin in range(0, chunks, held):
        part = products[: min(held, chunks - begin)]
        torch.bmm(left[begin : begin + held], right[begin : begin + held], out=part)
        _accumulate(part.view(part.shape[0], -1).numpy(), total.view(-1).numpy())
    if chunks * CHUNK < weighted.shape[0]:
        total += weighted[chunks * CHUNK :].T @ inputs[chunks * CHUNK :]
    return total


_PARTS = 32
_COLUMNS = 2048


@numba.njit(cache=True, nogil=True, parallel=True)
def _weigh(gradients, factors, weighted, parts):  # type: ignore[no-untyped-def]
    """factor * gradient, rounded to float32 once, and the sums of these rows for every part of them."""
    rows, width = gradients.shape
    for part in numba.prange(_PARTS):
        for i in range(rows * part // _PARTS, rows * (part + 1) // _PARTS):
            c = factors[i]
            if c == 0:
                weighted[i] = 0
                continue
            for k in range(width):
                value = np.float32(c * np.float64(gradients[i, k]))
                weighted[i, k] = value
                parts[part, k] += np.float64(value)


@numba.njit(cache=True, nogil=True, parallel=True)
def _accumulate(products, total):  # type: ignore[no-untyped-def]
    """Add every row of `products` to `total`, which is float64."""
    for part in numba.prange(-(-len(total) // _COLUMNS)):
        begin, end = part * _COLUMNS, min((part + 1) * _COLUMNS, len(total))
        for chunk in range(len(products)):
            for k in range(begin, end):
                total[k] += np.float64(products[chunk, k])


@numba.njit(cache=True, nogil=True, parallel=True, fastmath=FASTMATH)
def _shared_rows(  # type: ignore[no-untyped-def]
    upper, parents, weights, pointers, entries, outputs, relu, begin, out
):
    """The block of `weighted_shared_rows` that begins at shared row `begin`, written to `out`."""
    width = out.shape[1]
    # Not by slices, which count references.
    for row in numba.prange(len(out)):
        node = begin + row
        is_read = False
        for at in range(pointers[node], pointers[node + 1]):
            entry = entries[at]
            c, source = weights[entry], parents[entry]
            if c == 0:
                continue
            if is_read:
                for k in range(width):
                    out[row, k] += c * np.float64(upper[source, k])
            else:
                is_read = True
                for k in range(width):
                    out[row, k] = c * np.float64(upper[source, k])
        if not is_read:
            for k in range(width):
                out[row, k] = 0
        elif relu:
            for k in range(width):
                if not outputs[node, k] > 0:
                    out[row, k] = 0
        else:
            for k in range(width):
                y = np.float64(outputs[node, k])
                out[row, k] *= 1.0 - y * y
