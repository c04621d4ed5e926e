"""Squared norms of per-root gradients from rows: the right kernel for the device."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from hushgraph._arrays import find_ends
from hushgraph.inputs.sparse_inputs import SparseInputs, write_out
from hushgraph.models import row_sums_gpu
from hushgraph.models.blocks import RowGradient

# Floats a padded block of rows may hold at once.
_PADDED_FLOATS = 1 << 26


def linear_norms(
    a: Tensor, d: Tensor, pointers: Tensor, *, bias: bool, most_rows: int, one_row: bool = False
) -> tuple[Tensor, Tensor]:
    """Squared norms [roots] of the gradient of a Linear layer, and what their rounding is measured against.

    Both are float64. With `one_row`, norms are right up to 2^-30 and the second is zero.

    Args:
        a: [rows, in], input rows; those of root v are pointers[v]:pointers[v + 1].
        d: [rows, out], gradients of the output rows.
        pointers: int64 [roots + 1].
        bias: whether the layer has one.
        most_rows: no root has more rows.
        one_row: whether every root has one row by the plan; never read off the rows.
    """
    roots = pointers.numel() - 1
    if one_row and a.shape[0] == roots:
        squares = (row_squares(a) + float(bias)) * row_squares(d)
        return squares, torch.zeros_like(squares)
    if a.dtype == torch.float32 and not a.is_cuda:
        from hushgraph.gradients import norms_cpu as pairs_cpu

        norms, sizes = np.zeros(roots, np.float64), np.zeros(roots, np.float64)
        pairs_cpu.linear_norms(
            a.contiguous().numpy(),
            row_squares(a).numpy(),
            d.contiguous().numpy(),
            pointers.numpy(),
            np.float32(bias),
            norms,
            sizes,
        )
        return torch.from_numpy(norms), torch.from_numpy(sizes)
    if a.is_cuda and a.dtype == torch.float32 and row_sums_gpu.AVAILABLE:
        return _norms_on_gpu(a.contiguous(), d.contiguous(), pointers, bias, most_rows)
    return _padded_norms(a, d, pointers, bias)


def shared_linear_norms(
    a: Tensor | SparseInputs,
    outputs: Tensor,
    relu: bool,
    index: Tensor,
    gradient: RowGradient,
    pointers: Tensor,
    *,
    most_rows: int,
    kept: PairProducts | None = None,
) -> tuple[Tensor, Tensor]:
    """As `linear_norms`, with bias, for a layer and its activation that ran once per shared row.

    Args:
        a: [shared rows, in], its inputs; sparse ones on the CPU alone.
        outputs: [shared rows, out], after the activation.
        relu: the activation is relu; tanh otherwise.
        index: int64 [entries], the shared row of every entry.
        gradient: of the activated output, per entry.
        pointers: int64 [roots + 1], entries of every root.
        most_rows: no root has more entries.
        kept: the products of `a`, where they were kept; used on the CPU.
    """
    if a.dtype == torch.float32:
        parents, coefficients = gradient.parents, gradient.coefficients
        if parents is None:
            parents = torch.arange(index.numel(), device=a.device)
        if coefficients is None:
            coefficients = torch.ones(index.numel(), device=a.device)
        entries = (index, gradient.upper.contiguous(), parents, coefficients, pointers)
        if a.device.type == "cpu":
            kept = PairProducts.of(a, index, pointers) if kept is None else kept
            return _shared_norms_on_cpu(a, outputs, relu, entries, kept)
        if row_sums_gpu.AVAILABLE:
            return _shared_norms_on_gpu(write_out(a), outputs, relu, entries, most_rows)
    d = through_activation(entry_gradients(gradient), outputs[index], relu)
    return _padded_norms(write_out(a)[index], d, pointers, True)


def _norms_on_gpu(
    a: Tensor, d: Tensor, pointers: Tensor, bias: bool, most_rows: int
) -> tuple[Tensor, Tensor]:
    """Pairs of rows by a kernel; roots with more rows than it takes, padded."""
    from hushgraph.gradients import norms_gpu as pairs_gpu

    norms, sizes = pairs_gpu.linear_norms(a, d, pointers, bias)
    if most_rows > pairs_gpu.MOST_PAIRED:
        large, rows, ends = _find_large(pointers, pairs_gpu.MOST_PAIRED)
        norms[large], sizes[large] = _padded_norms(a[rows], d[rows], ends, bias)
    return norms, sizes


def _shared_norms_on_gpu(
    a: Tensor, outputs: Tensor, relu: bool, entries: tuple[Tensor, ...], most_rows: int
) -> tuple[Tensor, Tensor]:
    """As `_norms_on_gpu`; entries are index, upper gradients, parents, coefficients and pointers."""
    from hushgraph.gradients import norms_gpu as pairs_gpu

    index, upper, parents, coefficients, pointers = entries
    norms, sizes = pairs_gpu.shared_linear_norms(a, outputs, relu, *entries)
    if most_rows > pairs_gpu.MOST_PAIRED:
        large, rows, ends = _find_large(pointers, pairs_gpu.MOST_PAIRED)
        nodes = index[rows]
        # In float64, where the slope keeps its digits although the activation is near 1.
        d = (upper[parents[rows]] * coefficients[rows, None]).double()
        d = through_activation(d, outputs[nodes].double(), relu)
        norms[large], sizes[large] = _padded_norms(a[nodes], d, ends, True)
    return norms, sizes


def _find_large(pointers: Tensor, most_rows: int) -> tuple[Tensor, Tensor, Tensor]:
    """The roots with more rows than `most_rows`, their rows, and pointers to the rows of each. Waits."""
    counts = torch.diff(pointers)
    large = torch.nonzero(counts > most_rows).flatten()
    ends = torch.cat([counts.new_zeros(1), counts[large].cumsum(0)])
    rows = torch.arange(int(ends[-1]), device=pointers.device)
    rows += torch.repeat_interleave(pointers[:-1][large] - ends[:-1], counts[large])
    return large, rows, ends


@dataclass(frozen=True, eq=False)
class PairProducts:
    """What of squared norms depends on the inputs of a layer alone: it serves every step on the same trees.

    Attributes:
        squares: float64 [shared rows], squared norms.
        places: int32 [entries], the place of an entry's row among the distinct ones of its root.
        counts: int64 [roots], how many distinct rows a root has.
        starts: int64 [roots + 1], where the products of a root begin.
        products: float32, of the distinct rows of a root with those before it; none of large roots.
    """

    squares: npt.NDArray[np.float64]
    places: npt.NDArray[np.int32]
    counts: npt.NDArray[np.int64]
    starts: npt.NDArray[np.int64]
    products: npt.NDArray[np.float32]

    @classmethod
    def of(cls, a: Tensor | SparseInputs, index: Tensor, pointers: Tensor) -> PairProducts:
        """Compute them on the CPU, from inputs, the shared row of every entry and the entries of roots."""
        from hushgraph.gradients import norms_cpu as pairs_cpu

        rows, ends = index.numpy(), pointers.numpy()
        places, counts = np.empty(len(rows), np.int32), np.empty(len(ends) - 1, np.int64)
        pairs_cpu.find_places(rows, ends, places, counts)
        pairs = np.where(counts <= pairs_cpu.KEPT_ROWS, counts * (counts - 1) // 2, 0)
        starts = find_ends(pairs)
        products = np.empty(starts[-1], np.float32)
        where = (rows, ends, places, counts, starts, products)
        if isinstance(a, SparseInputs):
            pairs_cpu.multiply_sparse_pairs(*a.arrays, a.num_columns, *where)
            return cls(a.squares.numpy(), places, counts, starts, products)
        pairs_cpu.multiply_pairs(a.contiguous().numpy(), *where)
        return cls(row_squares(a).numpy(), places, counts, starts, products)


def _shared_norms_on_cpu(
    a: Tensor | SparseInputs, outputs: Tensor, relu: bool, entries: tuple[Tensor, ...], kept: PairProducts
) -> tuple[Tensor, Tensor]:
    from hushgraph.gradients import norms_cpu as pairs_cpu

    roots = len(kept.counts)
    norms, sizes = np.zeros(roots, np.float64), np.zeros(roots, np.float64)
    index, upper, parents, coefficients, pointers = (tensor.numpy() for tensor in entries)
    shared = pairs_cpu.Shared(
        outputs=outputs.numpy(),
        relu=relu,
        index=index,
        upper=upper,
        parents=parents,
        coefficients=coefficients,
        pointers=pointers,
        squares=kept.squares,
        places=kept.places,
        counts=kept.counts,
        bias=np.float32(1),
    )
    pairs_cpu.shared_linear_norms(kept.starts, kept.products, a.shape[1], shared, norms, sizes)
    large = np.flatnonzero(kept.counts > pairs_cpu.KEPT_ROWS)
    # Compiled only where a run has such roots.
    if len(large):
        inputs = a.arrays if isinstance(a, SparseInputs) else (None, None, a.contiguous().numpy())
        pairs_cpu.large_norms(large, *inputs, a.shape[1], shared, norms, sizes)
    return torch.from_numpy(norms), torch.from_numpy(sizes)


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


def row_squares(rows: Tensor) -> Tensor:
    """float64 [rows]: squared norms; infinite beyond float32, where products of rows are not told apart."""
    if rows.dtype != torch.float32:
        return rows.square().sum(1)
    if rows.is_cuda:
        squares = torch.linalg.vector_norm(rows, dim=1, dtype=torch.float64).square()
    else:
        from hushgraph.gradients import norms_cpu as pairs_cpu

        squares = torch.empty(rows.shape[0], dtype=torch.float64)
        pairs_cpu.row_squares(rows.contiguous().numpy(), squares.numpy())
    return torch.where(squares <= torch.finfo(torch.float32).max, squares, torch.inf)


def _padded_norms(a: Tensor, d: Tensor, pointers: Tensor, bias: bool) -> tuple[Tensor, Tensor]:
    """Any device and precision: roots of similar size side by side, padded to the largest."""
    counts = torch.diff(pointers)
    order = torch.argsort(counts)
    norms = torch.zeros(counts.numel(), dtype=torch.float64, device=a.device)
    lengths = torch.zeros_like(norms)
    sizes = counts[order].tolist()
    width = a.shape[1] + d.shape[1]
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
        block_a = torch.where(inside, a[rows], 0).double()
        block_d = torch.where(inside, d[rows], 0).double()
        products = (torch.bmm(block_a, block_a.mT) + float(bias)) * torch.bmm(block_d, block_d.mT)
        norms[roots] = products.sum((1, 2))
        if a.dtype == torch.float32:
            # As in `row_squares`: what float32 does not hold contributes zero, whichever kernel meets it.
            largest = torch.finfo(torch.float32).max
            lines = torch.maximum(block_a.square().sum(2), block_d.square().sum(2))
            norms[roots[~(lines <= largest).all(1)]] = torch.inf
        lengths[roots] = products.diagonal(dim1=1, dim2=2).sqrt().sum(1)
        begin = end
    return norms, lengths.square()
