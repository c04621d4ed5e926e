"""Squared norms of per-root gradients from rows: the right kernel for the device."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from hushgraph.models import row_sums_gpu as rowsums_gpu
from hushgraph.models.blocks import RowGradient

# Floats a padded block of rows may hold at once.
_PADDED_FLOATS = 1 << 26


def linear_norms(
    a: Tensor, d: Tensor, pointers: Tensor, *, bias: bool, most_rows: int
) -> tuple[Tensor, Tensor]:
    """Squared norms [roots] of the gradient of a Linear layer, and what their rounding is measured against.

    Args:
        a: [rows, in], input rows; those of root v are pointers[v]:pointers[v + 1].
        d: [rows, out], gradients of the output rows.
        pointers: int64 [roots + 1].
        bias: whether the layer has one.
        most_rows: no root has more rows.
    """
    roots = pointers.numel() - 1
    if a.shape[0] == roots:
        # Products below the smallest normal number may vanish, although large inputs would make them count.
        tiny = torch.finfo(a.dtype).tiny
        # One pass over the rows; squaring first would take two.
        inputs = torch.linalg.vector_norm(a, dim=1).square() + (bias + a.shape[1] * tiny)
        squares = inputs * (torch.linalg.vector_norm(d, dim=1).square() + d.shape[1] * tiny)
        return squares, squares
    if a.dtype == torch.float32 and not a.is_cuda:
        from hushgraph.gradients import norms_cpu as pairs_cpu

        norms, diagonals = np.zeros(roots, np.float64), np.zeros(roots, np.float64)
        pairs_cpu.linear_norms(
            a.contiguous().numpy(),
            d.contiguous().numpy(),
            pointers.numpy(),
            np.float32(bias),
            norms,
            diagonals,
        )
        return torch.from_numpy(norms).float(), torch.from_numpy(diagonals).float()
    if a.is_cuda and a.dtype == torch.float32:
        from hushgraph.gradients import norms_gpu as pairs_gpu

        if rowsums_gpu.AVAILABLE:
            return pairs_gpu.linear_norms(a.contiguous(), d.contiguous(), pointers, bias, most_rows)
    return _padded_norms(a, d, pointers, bias)


def shared_linear_norms(
    a: Tensor,
    outputs: Tensor,
    relu: bool,
    index: Tensor,
    gradient: RowGradient,
    pointers: Tensor,
    *,
    most_rows: int,
) -> tuple[Tensor, Tensor]:
    """As `linear_norms`, with bias, for a layer and its activation that ran once per shared row.

    Args:
        a: [shared rows, in], its inputs.
        outputs: [shared rows, out], after the activation.
        relu: the activation is relu; tanh otherwise.
        index: int64 [entries], the shared row of every entry.
        gradient: of the activated output, per entry.
        pointers: int64 [roots + 1], entries of every root.
        most_rows: no root has more entries.
    """
    if a.dtype == torch.float32:
        parents, coefficients = gradient.parents, gradient.coefficients
        if parents is None:
            parents = torch.arange(index.numel(), device=a.device)
        if coefficients is None:
            coefficients = torch.ones(index.numel(), device=a.device)
        if not a.is_cuda:
            from hushgraph.gradients import norms_cpu as pairs_cpu

            roots = pointers.numel() - 1
            norms, diagonals = np.zeros(roots, np.float64), np.zeros(roots, np.float64)
            pairs_cpu.shared_linear_norms(
                a.contiguous().numpy(),
                outputs.contiguous().numpy(),
                relu,
                index.numpy(),
                gradient.upper.contiguous().numpy(),
                parents.numpy(),
                coefficients.numpy(),
                pointers.numpy(),
                np.float32(1),
                norms,
                diagonals,
            )
            return torch.from_numpy(norms).float(), torch.from_numpy(diagonals).float()
        from hushgraph.gradients import norms_gpu as pairs_gpu

        if rowsums_gpu.AVAILABLE:
            return pairs_gpu.shared_linear_norms(
                a,
                outputs,
                relu,
                index,
                gradient.upper.contiguous(),
                parents,
                coefficients,
                pointers,
                most_rows,
            )
    d = through_activation(entry_gradients(gradient), outputs[index], relu)
    return _padded_norms(a[index], d, pointers, True)


def entry_gradients(gradient: RowGradient) -> Tensor:
    """[entries, d]: the gradient of every entry, written out."""
    rows = gradient.upper if gradient.parents is None else gradient.upper[gradient.parents]
    return rows if gradient.coefficients is None else rows * gradient.coefficients[:, None].to(rows.dtype)


def through_activation(gradients: Tensor, outputs: Tensor, relu: bool) -> Tensor:
    """Gradients of the activation's inputs from those of its outputs."""
    if relu:
        result: Tensor = torch.ops.aten.threshold_backward(gradients, outputs, 0)
    else:
        result = torch.ops.aten.tanh_backward(gradients, outputs)
    return result


def _padded_norms(a: Tensor, d: Tensor, pointers: Tensor, bias: bool) -> tuple[Tensor, Tensor]:
    """Any device and precision: roots of similar size side by side, padded to the largest."""
    counts = torch.diff(pointers)
    order = torch.argsort(counts)
    norms, diagonals = a.new_zeros(counts.numel()), a.new_zeros(counts.numel())
    sizes = counts[order].tolist()
    width, tiny = a.shape[1] + d.shape[1], torch.finfo(a.dtype).tiny
    begin = 0
    while begin < len(sizes):
        end = begin + 1
        while (
            end < len(sizes) and (end + 1 - begin) * sizes[end] * (width + 4 * sizes[end]) <= _PADDED_FLOATS
        ):
            end += 1
        roots = order[begin:end]
        columns = torch.arange(max(1, sizes[end - 1]), device=a.device)
        rows = (pointers[:-1][roots][:, None] + columns).clamp(max=a.shape[0] - 1)
        inside = (columns < counts[roots][:, None])[:, :, None]
        # Both are cleared outside, as a neighbour's infinity times zero would spoil this root's norm.
        block_a, block_d = torch.where(inside, a[rows], 0), torch.where(inside, d[rows], 0)
        gram_a = torch.bmm(block_a, block_a.mT).double() + float(bias)
        gram_d = torch.bmm(block_d, block_d.mT).double()
        products = gram_a * gram_d
        underflow = _trace(gram_a) * d.shape[1] + _trace(gram_d) * a.shape[1]
        norms[roots] = (products.sum((1, 2)) + tiny * counts[roots] * underflow).to(a.dtype)
        diagonals[roots] = _trace(products).to(a.dtype)
        begin = end
    # The size that `pairs_cpu` gives for the same reasons.
    return norms, diagonals * (counts / 10).clamp(min=1) * (1 + width / 2048)


def _trace(blocks: Tensor) -> Tensor:
    return blocks.diagonal(dim1=1, dim2=2).sum(1, dtype=torch.float64)
