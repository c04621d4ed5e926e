"""Squared norms of per-root gradients on a GPU: one Triton kernel, one program a root.

The same sums as `pairs_cpu`; see there for the formula and for what covers rounding. Without Triton
`AVAILABLE` is False and the padded form of `pairs` serves.
"""

from __future__ import annotations

import torch
from torch import Tensor

try:
    import triton
    import triton.language as tl

    AVAILABLE = True
except ImportError:
    AVAILABLE = False

# Small tiles win: most roots have few rows, and a tile is computed whole.
_TILE = 4
_COLUMNS = 128
_WARPS = 1

if AVAILABLE:

    @triton.jit
    def _input_rows(a, nodes, inside, columns, size_in):
        mask = inside[:, None] & (columns < size_in)[None, :]
        return tl.load(a + nodes[:, None] * size_in + columns[None, :], mask=mask, other=0.0)

    @triton.jit
    def _gradient_rows(
        upper,
        outputs,
        nodes,
        parents,
        factors,
        inside,
        columns,
        size_out,
        SHARED: tl.constexpr,
        RELU: tl.constexpr,
    ):
        mask = inside[:, None] & (columns < size_out)[None, :]
        d = tl.load(upper + parents[:, None] * size_out + columns[None, :], mask=mask, other=0.0)
        if SHARED:
            out = tl.load(outputs + nodes[:, None] * size_out + columns[None, :], mask=mask, other=0.0)
            slope = tl.where(out > 0, 1.0, 0.0) if RELU else 1.0 - out * out
            d = d * slope * factors[:, None]
        return d

    @triton.jit
    def _products(left, right):
        # Full float32: the clip must not rest on rounded products.
        return tl.sum(left[:, None, :] * right[None, :, :], 2)

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
        diagonals,
        size_in,
        size_out,
        bias,
        SHARED: tl.constexpr,
        RELU: tl.constexpr,
        SMALLEST: tl.constexpr,
        TILE: tl.constexpr,
        COLUMNS: tl.constexpr,
    ):
        root = tl.program_id(0)
        begin = tl.load(pointers + root)
        end = tl.load(pointers + root + 1)
        lane = tl.arange(0, TILE)
        same = lane[:, None] == lane[None, :]
        total = tl.zeros((), dtype=tl.float64)
        diagonal = tl.zeros((), dtype=tl.float64)
        underflow = tl.zeros((), dtype=tl.float64)
        for i0 in range(begin, end, TILE):
            ri = i0 + lane
            in_i = ri < end
            node_i = ri
            parent_i = ri
            factor_i = tl.zeros((TILE,), dtype=tl.float32)
            if SHARED:
                node_i = tl.load(index + ri, mask=in_i, other=0)
                parent_i = tl.load(parents + ri, mask=in_i, other=0)
                factor_i = tl.load(coefficients + ri, mask=in_i, other=0.0)
            # A tile with itself: rows are loaded once. Most roots have no other.
            of_inputs = tl.zeros((TILE, TILE), dtype=tl.float32)
            for k in range(0, size_in, COLUMNS):
                left = _input_rows(a, node_i, in_i, k + tl.arange(0, COLUMNS), size_in)
                of_inputs += _products(left, left)
            of_gradients = tl.zeros((TILE, TILE), dtype=tl.float32)
            for k in range(0, size_out, COLUMNS):
                columns = k + tl.arange(0, COLUMNS)
                left = _gradient_rows(
                    upper, outputs, node_i, parent_i, factor_i, in_i, columns, size_out, SHARED, RELU
                )
                of_gradients += _products(left, left)
            squares_in, squares_out = (of_inputs + bias).to(tl.float64), of_gradients.to(tl.float64)
            products = squares_in * squares_out
            total += tl.sum(tl.sum(products, 1), 0)
            diagonal += tl.sum(tl.sum(tl.where(same, products, 0.0), 1), 0)
            lost = tl.where(same & in_i[:, None], size_out * squares_in + size_in * squares_out, 0.0)
            underflow += tl.sum(tl.sum(lost, 1), 0)
            for j0 in range(begin, i0, TILE):
                rj = j0 + lane
                in_j = rj < end
                node_j = rj
                parent_j = rj
                factor_j = tl.zeros((TILE,), dtype=tl.float32)
                if SHARED:
                    node_j = tl.load(index + rj, mask=in_j, other=0)
                    parent_j = tl.load(parents + rj, mask=in_j, other=0)
                    factor_j = tl.load(coefficients + rj, mask=in_j, other=0.0)
                of_inputs = tl.zeros((TILE, TILE), dtype=tl.float32)
                for k in range(0, size_in, COLUMNS):
                    columns = k + tl.arange(0, COLUMNS)
                    left = _input_rows(a, node_i, in_i, columns, size_in)
                    right = _input_rows(a, node_j, in_j, columns, size_in)
                    of_inputs += _products(left, right)
                of_gradients = tl.zeros((TILE, TILE), dtype=tl.float32)
                for k in range(0, size_out, COLUMNS):
                    columns = k + tl.arange(0, COLUMNS)
                    left = _gradient_rows(
                        upper, outputs, node_i, parent_i, factor_i, in_i, columns, size_out, SHARED, RELU
                    )
                    right = _gradient_rows(
                        upper, outputs, node_j, parent_j, factor_j, in_j, columns, size_out, SHARED, RELU
                    )
                    of_gradients += _products(left, right)
                products = (of_inputs + bias).to(tl.float64) * of_gradients.to(tl.float64)
                total += 2.0 * tl.sum(tl.sum(products, 1), 0)
        count = (end - begin).to(tl.float64)
        total += SMALLEST * count * underflow
        size = diagonal * tl.maximum(count / 10.0, 1.0) * (1.0 + (size_in + size_out) / 2048.0)
        tl.store(norms + root, total.to(tl.float32))
        tl.store(diagonals + root, size.to(tl.float32))


def linear_norms(a: Tensor, d: Tensor, pointers: Tensor, bias: bool) -> tuple[Tensor, Tensor]:
    """As `pairs.linear_norms`."""
    # The tensors of the shared form are not read here; any will do in their place.
    return _launch(a, d, pointers, pointers, pointers, d, d, bias, shared=False, relu=False)


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
    return _launch(a, outputs, index, parents, pointers, upper, coefficients, True, shared=True, relu=relu)


def _launch(
    a: Tensor,
    outputs: Tensor,
    index: Tensor,
    parents: Tensor,
    pointers: Tensor,
    upper: Tensor,
    coefficients: Tensor,
    bias: bool,
    *,
    shared: bool,
    relu: bool,
) -> tuple[Tensor, Tensor]:
    roots = pointers.numel() - 1
    norms = torch.empty(roots, device=a.device)
    diagonals = torch.empty(roots, device=a.device)
    _pair_kernel[(roots,)](
        a,
        outputs,
        index,
        upper,
        parents,
        coefficients,
        pointers,
        norms,
        diagonals,
        a.shape[1],
        upper.shape[1],
        float(bias),
        SHARED=shared,
        RELU=relu,
        SMALLEST=torch.finfo(torch.float32).tiny,
        TILE=_TILE,
        COLUMNS=_COLUMNS,
        num_warps=_WARPS,
    )
    return norms, diagonals
