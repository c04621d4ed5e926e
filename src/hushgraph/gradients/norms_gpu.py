"""Squared norms of per-root gradients on a GPU: one Triton kernel, one program a root that has few rows.

The same sums as `pairs_cpu`; see there for the formula and for what covers rounding. Without Triton the
padded form of `pairs` serves.
"""

from __future__ import annotations

import torch
from torch import Tensor

from hushgraph.models.row_sums_gpu import AVAILABLE

if AVAILABLE:
    import triton
    import triton.language as tl

# Small tiles win: most roots have few rows, and a tile is computed whole.
_TILE = 4
_COLUMNS = 128
_WARPS = 1
# One warp walks over all pairs of a root. Roots with more rows are left to others, and get 0 here.
MOST_PAIRED = 64

if AVAILABLE:

    @triton.jit
    def entries(index, parents, coefficients, rows, inside, SHARED: tl.constexpr):
        """Where the input and the gradient of each row stand, and the factor of the gradient."""
        nodes = rows
        above = rows
        factors = tl.zeros_like(rows).to(tl.float32)
        if SHARED:
            nodes = tl.load(index + rows, mask=inside, other=0)
            above = tl.load(parents + rows, mask=inside, other=0)
            factors = tl.load(coefficients + rows, mask=inside, other=0.0)
        return nodes, above, factors

    @triton.jit
    def input_rows(a, nodes, inside, columns, size_in):
        mask = inside[:, None] & (columns < size_in)[None, :]
        return tl.load(a + nodes[:, None] * size_in + columns[None, :], mask=mask, other=0.0)

    @triton.jit
    def gradient_rows(
        upper,
        outputs,
        nodes,
        above,
        factors,
        inside,
        columns,
        size_out,
        SHARED: tl.constexpr,
        RELU: tl.constexpr,
    ):
        mask = inside[:, None] & (columns < size_out)[None, :]
        d = tl.load(upper + above[:, None] * size_out + columns[None, :], mask=mask, other=0.0)
        if SHARED:
            out = tl.load(outputs + nodes[:, None] * size_out + columns[None, :], mask=mask, other=0.0)
            # As a product it keeps its digits where the activation is near 1.
            slope = tl.where(out > 0, 1.0, 0.0) if RELU else (1.0 - out) * (1.0 + out)
            d = d * slope * factors[:, None]
        return d

    @triton.jit
    def _products(left, right):
        # Full float32: the clip must not rest on rounded products. Sums are no longer than COLUMNS.
        return tl.sum(left[:, None, :] * right[None, :, :], 2).to(tl.float64)

    @triton.jit
    def _pair_kernel(
        a,
        outputs,
        index,
        upper,
        parents,
        coefficients,
        pointers,
        norms,
        sizes,
        size_in,
        size_out,
        bias,
        SHARED: tl.constexpr,
        RELU: tl.constexpr,
        SMALLEST: tl.constexpr,
        MOST_PAIRED: tl.constexpr,
        TILE: tl.constexpr,
        COLUMNS: tl.constexpr,
    ):
        root = tl.program_id(0)
        begin = tl.load(pointers + root)
        end = tl.load(pointers + root + 1)
        # Roots with too many rows are left to others.
        end = tl.where(end - begin > MOST_PAIRED, begin, end)
        lane = tl.arange(0, TILE)
        same = lane[:, None] == lane[None, :]
        total = tl.zeros((), dtype=tl.float64)
        lengths = tl.zeros((), dtype=tl.float64)
        underflow = tl.zeros((), dtype=tl.float64)
        for i0 in range(begin, end, TILE):
            ri = i0 + lane
            in_i = ri < end
            node_i, parent_i, factor_i = entries(index, parents, coefficients, ri, in_i, SHARED)
            # A tile with itself: rows are loaded once. Most roots have no other.
            of_inputs = tl.zeros((TILE, TILE), dtype=tl.float64)
            for k in range(0, size_in, COLUMNS):
                left = input_rows(a, node_i, in_i, k + tl.arange(0, COLUMNS), size_in)
                of_inputs += _products(left, left)
            of_gradients = tl.zeros((TILE, TILE), dtype=tl.float64)
            for k in range(0, size_out, COLUMNS):
                columns = k + tl.arange(0, COLUMNS)
                left = gradient_rows(
                    upper, outputs, node_i, parent_i, factor_i, in_i, columns, size_out, SHARED, RELU
                )
                of_gradients += _products(left, left)
            squares_in = of_inputs + bias
            products = squares_in * of_gradients
            total += tl.sum(tl.sum(products, 1), 0)
            lengths += tl.sum(tl.sum(tl.sqrt(tl.where(same, products, 0.0)), 1), 0)
            lost = size_out * (squares_in + size_in * SMALLEST) + size_in * of_gradients
            lost = tl.where(same & in_i[:, None], lost, 0.0)
            underflow += tl.sum(tl.sum(lost, 1), 0)
            for j0 in range(begin, i0, TILE):
                rj = j0 + lane
                in_j = rj < end
                node_j, parent_j, factor_j = entries(index, parents, coefficients, rj, in_j, SHARED)
                of_inputs = tl.zeros((TILE, TILE), dtype=tl.float64)
                for k in range(0, size_in, COLUMNS):
                    columns = k + tl.arange(0, COLUMNS)
                    left = input_rows(a, node_i, in_i, columns, size_in)
                    right = input_rows(a, node_j, in_j, columns, size_in)
                    of_inputs += _products(left, right)
                of_gradients = tl.zeros((TILE, TILE), dtype=tl.float64)
                for k in range(0, size_out, COLUMNS):
                    columns = k + tl.arange(0, COLUMNS)
                    left = gradient_rows(
                        upper, outputs, node_i, parent_i, factor_i, in_i, columns, size_out, SHARED, RELU
                    )
                    right = gradient_rows(
                        upper, outputs, node_j, parent_j, factor_j, in_j, columns, size_out, SHARED, RELU
                    )
                    of_gradients += _products(left, right)
                products = (of_inputs + bias) * of_gradients
                total += 2.0 * tl.sum(tl.sum(products, 1), 0)
        count = (end - begin).to(tl.float64)
        total += SMALLEST * count * underflow
        tl.store(norms + root, total)
        tl.store(sizes + root, lengths * lengths)


def linear_norms(a: Tensor, d: Tensor, pointers: Tensor, bias: bool) -> tuple[Tensor, Tensor]:
    """As `pairs.linear_norms`."""
    # The tensors of the shared form are not read here; any will do in their place.
    return _norms((a, d, pointers, d, pointers, d, pointers), bias, shared=False, relu=False)


def shared_linear_norms(
    a: Tensor,
    outputs: Tensor,
    relu: bool,
    index: Tensor,
    upper: Tensor,
    parents: Tensor,
    coefficients: Tensor,
    pointers: Tensor,
) -> tuple[Tensor, Tensor]:
    """As `pairs.shared_linear_norms`."""
    tensors = (a, outputs, index, upper, parents, coefficients, pointers)
    return _norms(tensors, True, shared=True, relu=relu)


def _norms(tensors: tuple[Tensor, ...], bias: bool, *, shared: bool, relu: bool) -> tuple[Tensor, Tensor]:
    a, upper, pointers = tensors[0], tensors[3], tensors[-1]
    roots = pointers.numel() - 1
    norms = torch.empty(roots, dtype=torch.float64, device=a.device)
    sizes = torch.empty_like(norms)
    _pair_kernel[(roots,)](
        *tensors,
        norms,
        sizes,
        a.shape[1],
        upper.shape[1],
        float(bias),
        SHARED=shared,
        RELU=relu,
        SMALLEST=torch.finfo(torch.float32).tiny,
        MOST_PAIRED=MOST_PAIRED,
        TILE=_TILE,
        COLUMNS=_COLUMNS,
        num_warps=_WARPS,
    )
    return norms, sizes
