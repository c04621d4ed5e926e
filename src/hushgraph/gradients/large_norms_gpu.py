"""Squared norms on a GPU of the roots that have many rows: their gradients are formed, a tile a program.

Pairs cost the square of the rows: one root with ten thousand of them would keep a whole step waiting.
"""

from __future__ import annotations

import torch
from torch import Tensor

from hushgraph.models.row_sums_gpu import AVAILABLE

if AVAILABLE:
    import triton
    import triton.language as tl

    from hushgraph.gradients.rows_gpu import entries, gradient_rows, input_rows

# Rows whose products are added up in float32; the margin for rounding covers twice as many.
_ROWS = 64
_OUT, _IN = 32, 64
_COLUMNS = 128

if AVAILABLE:

    @triton.jit
    def _formed_kernel(
        a,
        outputs,
        index,
        upper,
        parents,
        coefficients,
        pointers,
        large,
        squares,
        size_in,
        size_out,
        bias,
        SHARED: tl.constexpr,
        RELU: tl.constexpr,
        ROWS: tl.constexpr,
        OUT: tl.constexpr,
        IN: tl.constexpr,
    ):
        """The sum of squares of one tile of one root's gradient; the bias goes with the first inputs."""
        slot, tile_out, tile_in = tl.program_id(0), tl.program_id(1), tl.program_id(2)
        root = tl.load(large + slot)
        begin = tl.load(pointers + root)
        end = tl.load(pointers + root + 1)
        columns_out = tile_out * OUT + tl.arange(0, OUT)
        columns_in = tile_in * IN + tl.arange(0, IN)
        gradient = tl.zeros((OUT, IN), dtype=tl.float64)
        of_bias = tl.zeros((OUT,), dtype=tl.float64)
        for first in range(begin, end, ROWS):
            rows = first + tl.arange(0, ROWS)
            inside = rows < end
            nodes, above, factors = entries(index, parents, coefficients, rows, inside, SHARED)
            left = input_rows(a, nodes, inside, columns_in, size_in)
            right = gradient_rows(
                upper, outputs, nodes, above, factors, inside, columns_out, size_out, SHARED, RELU
            )
            # Full float32: the clip must not rest on rounded products.
            gradient += tl.dot(tl.trans(right), left, input_precision="ieee").to(tl.float64)
            of_bias += tl.sum(right.to(tl.float64), 0)
        total = tl.sum(tl.sum(gradient * gradient, 1), 0)
        if tile_in == 0:
            total += bias * tl.sum(of_bias * of_bias, 0)
        at = (slot * tl.num_programs(1) + tile_out) * tl.num_programs(2) + tile_in
        tl.store(squares + at, total)

    @triton.jit
    def _length_kernel(
        a,
        outputs,
        index,
        upper,
        parents,
        coefficients,
        pointers,
        large,
        lengths,
        underflow,
        size_in,
        size_out,
        bias,
        SHARED: tl.constexpr,
        RELU: tl.constexpr,
        SMALLEST: tl.constexpr,
        ROWS: tl.constexpr,
        COLUMNS: tl.constexpr,
    ):
        """The sum over some rows of one root of the norm of the row's own gradient, and what may vanish."""
        slot, part = tl.program_id(0), tl.program_id(1)
        root = tl.load(large + slot)
        end = tl.load(pointers + root + 1)
        rows = tl.load(pointers + root) + part * ROWS + tl.arange(0, ROWS)
        inside = rows < end
        nodes, above, factors = entries(index, parents, coefficients, rows, inside, SHARED)
        of_inputs = tl.zeros((ROWS,), dtype=tl.float64)
        for k in range(0, size_in, COLUMNS):
            left = input_rows(a, nodes, inside, k + tl.arange(0, COLUMNS), size_in)
            of_inputs += tl.sum(left * left, 1).to(tl.float64)
        of_gradients = tl.zeros((ROWS,), dtype=tl.float64)
        for k in range(0, size_out, COLUMNS):
            columns = k + tl.arange(0, COLUMNS)
            right = gradient_rows(
                upper, outputs, nodes, above, factors, inside, columns, size_out, SHARED, RELU
            )
            of_gradients += tl.sum(right * right, 1).to(tl.float64)
        squares = of_inputs + bias
        lost = size_out * (squares + size_in * SMALLEST) + size_in * of_gradients
        at = slot * tl.num_programs(1) + part
        tl.store(lengths + at, tl.sum(tl.sqrt(squares * of_gradients), 0))
        tl.store(underflow + at, tl.sum(tl.where(inside, lost, 0.0), 0))


def norms_of_large(
    tensors: tuple[Tensor, ...], large: Tensor, most_rows: int, bias: bool, *, shared: bool, relu: bool
) -> tuple[Tensor, Tensor]:
    """Squared norms of the roots in `large`, and what their rounding is measured against.

    Args:
        tensors: inputs, outputs, index, gradients, parents, coefficients, pointers, as in `pairs_gpu`.
        large: int64, roots.
        most_rows: no root has more rows.
        bias, shared, relu: as in `pairs_gpu`.
    """
    size_in, size_out = tensors[0].shape[1], tensors[3].shape[1]
    form = {"SHARED": shared, "RELU": relu, "ROWS": _ROWS}
    tiles = (large.numel(), triton.cdiv(size_out, _OUT), triton.cdiv(size_in, _IN))
    squares = torch.empty(tiles, dtype=torch.float64, device=large.device)
    _formed_kernel[tiles](*tensors, large, squares, size_in, size_out, float(bias), OUT=_OUT, IN=_IN, **form)
    parts = (large.numel(), triton.cdiv(most_rows, _ROWS))
    lengths = torch.empty(parts, dtype=torch.float64, device=large.device)
    underflow = torch.empty_like(lengths)
    smallest = torch.finfo(torch.float32).tiny
    _length_kernel[parts](
        *tensors,
        large,
        lengths,
        underflow,
        size_in,
        size_out,
        float(bias),
        SMALLEST=smallest,
        COLUMNS=_COLUMNS,
        **form,
    )
    counts = torch.diff(tensors[-1])[large]
    norms = squares.sum((1, 2)) + smallest * counts * underflow.sum(1)
    return norms, lengths.sum(1).square()
