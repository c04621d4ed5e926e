"""The steps between the matrix products of `rows_torch`, each as one Triton kernel."""

from __future__ import annotations

import torch
from torch import Tensor

from hushgraph.models.row_sums_gpu import AVAILABLE

if AVAILABLE:
    import triton
    import triton.language as tl

# Entries of a column whose products are added up by one program, and those it loads together.
SEGMENT = 256
_ENTRIES = 16
# Parts that one program adds up.
_PARTS = 64
# Squared norms beyond float32 count as not finite.
LARGEST_SQUARE = torch.finfo(torch.float32).max
_ROWS = 16
_FEW_ROWS = 4
LINEAR, RELU, TANH = 0, 1, 2

if AVAILABLE:

    @triton.jit
    def _limit(squares, LARGEST: tl.constexpr):
        return tl.where(squares <= LARGEST, squares, float("inf"))

    @triton.jit
    def _forward_kernel(
        out,
        weights,
        indices,
        values,
        pointers,
        num_rows,
        width,
        ACTIVATION: tl.constexpr,
        ROWS: tl.constexpr,
        COLUMNS: tl.constexpr,
    ):
        rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
        columns = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
        is_row = rows < num_rows
        inside = is_row[:, None] & (columns < width)[None, :]
        places = rows[:, None] * width + columns[None, :]
        begin = tl.load(pointers + rows, mask=is_row, other=0)
        count = tl.load(pointers + rows + 1, mask=is_row, other=0) - begin
        total = tl.load(out + places, mask=inside, other=0.0)
        for number in range(tl.max(count, 0)):
            exists = number < count
            column = tl.load(indices + begin + number, mask=exists, other=0)
            value = tl.load(values + begin + number, mask=exists, other=0.0)
            mask = exists[:, None] & inside
            weight = tl.load(weights + column[:, None] * width + columns[None, :], mask=mask, other=0.0)
            total += value[:, None] * weight
        if ACTIVATION == 1:
            # Not the maximum with zero, which hides what is not a number.
            total = tl.where(total < 0, 0.0, total)
        elif ACTIVATION == 2:
            # Of -|x|, so that no power overflows.
            power = tl.exp(-2.0 * tl.abs(total))
            tanh = (1.0 - power) / (1.0 + power)
            total = tl.where(total < 0, -tanh, tanh)
        tl.store(out + places, total, mask=inside)

    @triton.jit
    def _score_kernel(
        scores,
        labels,
        squares,
        num_rows,
        width,
        LARGEST: tl.constexpr,
        ROWS: tl.constexpr,
        COLUMNS: tl.constexpr,
    ):
        rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
        columns = tl.arange(0, COLUMNS)
        is_row = rows < num_rows
        inside = is_row[:, None] & (columns < width)[None, :]
        places = rows[:, None] * width + columns[None, :]
        label = tl.load(labels + rows, mask=is_row, other=-1)
        values = tl.load(scores + places, mask=inside, other=float("-inf"))
        # Behind the last row there is nothing to subtract from.
        values = tl.where(is_row[:, None], values, 0.0)
        powers = tl.exp(values - tl.max(values, 1)[:, None])
        gradient = powers / tl.sum(powers, 1)[:, None]
        gradient -= tl.where(columns[None, :] == label[:, None], 1.0, 0.0)
        gradient = tl.where(inside & (label >= 0)[:, None], gradient, 0.0)
        tl.store(scores + places, gradient, mask=inside)
        exact = gradient.to(tl.float64)
        tl.store(squares + rows, _limit(tl.sum(exact * exact, 1), LARGEST), mask=is_row)

    @triton.jit
    def _hidden_kernel(
        gradients,
        outputs,
        gradient_squares,
        output_squares,
        num_rows,
        width,
        LARGEST: tl.constexpr,
        RELU: tl.constexpr,
        ROWS: tl.constexpr,
        COLUMNS: tl.constexpr,
    ):
        rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
        is_row = rows < num_rows
        of_gradients = tl.zeros((ROWS,), dtype=tl.float64)
        of_outputs = tl.zeros((ROWS,), dtype=tl.float64)
        for first in range(0, width, COLUMNS):
            columns = first + tl.arange(0, COLUMNS)
            inside = is_row[:, None] & (columns < width)[None, :]
            places = rows[:, None] * width + columns[None, :]
            output = tl.load(outputs + places, mask=inside, other=0.0)
            gradient = tl.load(gradients + places, mask=inside, other=0.0)
            # As a product it keeps its digits where the activation is near 1.
            slope = tl.where(output > 0, 1.0, 0.0) if RELU else (1.0 - output) * (1.0 + output)
            gradient = gradient * slope
            exact, exact_output = gradient.to(tl.float64), output.to(tl.float64)
            of_gradients += tl.sum(exact * exact, 1)
            of_outputs += tl.sum(exact_output * exact_output, 1)
            tl.store(gradients + places, gradient, mask=inside)
            # The norm of a row that is not finite shows it; here it would spoil the sums of others.
            is_finite = tl.abs(output) < float("inf")
            tl.store(outputs + places, tl.where(is_finite, output, 0.0), mask=inside)
        tl.store(gradient_squares + rows, _limit(of_gradients, LARGEST), mask=is_row)
        tl.store(output_squares + rows, _limit(of_outputs, LARGEST), mask=is_row)

    @triton.jit
    def _weigh_kernel(values, factors, sums, width, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
        block = tl.program_id(0).to(tl.int64)
        rows = block * ROWS + tl.arange(0, ROWS)
        columns = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
        inside = (columns < width)[None, :]
        places = rows[:, None] * width + columns[None, :]
        factor = tl.load(factors + rows)[:, None]
        # Zero times infinity is not zero.
        weighted = tl.load(values + places, mask=inside & (factor != 0.0), other=0.0) * factor
        tl.store(values + places, weighted, mask=inside)
        tl.store(sums + block * width + columns, tl.sum(weighted.to(tl.float64), 0), mask=columns < width)

    @triton.jit
    def _column_kernel(
        rows, owners, values, pointers, out, width, ENTRIES: tl.constexpr, COLUMNS: tl.constexpr
    ):
        segment = tl.program_id(0).to(tl.int64)
        columns = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
        inside = columns < width
        end = tl.load(pointers + segment + 1)
        total = tl.zeros((COLUMNS,), dtype=tl.float64)
        for first in range(tl.load(pointers + segment), end, ENTRIES):
            at = first + tl.arange(0, ENTRIES)
            exists = at < end
            owner = tl.load(owners + at, mask=exists, other=0)
            value = tl.load(values + at, mask=exists, other=0.0).to(tl.float64)
            mask = exists[:, None] & inside[None, :]
            row = tl.load(rows + owner[:, None] * width + columns[None, :], mask=mask, other=0.0)
            total += tl.sum(value[:, None] * row.to(tl.float64), 0)
        tl.store(out + segment * width + columns, total, mask=inside)

    @triton.jit
    def _total_kernel(
        parts,
        pointers,
        num_parts,
        out,
        width,
        GROUP: tl.constexpr,
        PARTS: tl.constexpr,
        COLUMNS: tl.constexpr,
    ):
        group = tl.program_id(0).to(tl.int64)
        columns = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
        inside = columns < width
        begin = group * GROUP
        end = tl.minimum(begin + GROUP, num_parts)
        if GROUP == 0:
            begin = tl.load(pointers + group)
            end = tl.load(pointers + group + 1)
        total = tl.zeros((COLUMNS,), dtype=tl.float64)
        for first in range(begin, end, PARTS):
            at = first + tl.arange(0, PARTS)
            mask = (at < end)[:, None] & inside[None, :]
            part = tl.load(parts + at[:, None] * width + columns[None, :], mask=mask, other=0.0)
            total += tl.sum(part.to(tl.float64), 0)
        tl.store(out + group * width + columns, total, mask=inside)


def add_sparse_products(
    out: Tensor, weights: Tensor, indices: Tensor, values: Tensor, pointers: Tensor, activation: int
) -> None:
    """Add to row i of `out` values[e] * weights[indices[e]] for its entries e; then apply the activation.

    Args:
        out: float32 [rows, d].
        weights: float32 [columns, d].
        indices, values: of the entries.
        pointers: int64 [rows + 1], the entries of every row.
        activation: `LINEAR`, `RELU` or `TANH`.
    """
    num_rows, width = out.shape
    columns = min(64, triton.next_power_of_2(width))
    _forward_kernel[(triton.cdiv(num_rows, _FEW_ROWS), triton.cdiv(width, columns))](
        out,
        weights,
        indices,
        values,
        pointers,
        num_rows,
        width,
        ACTIVATION=activation,
        ROWS=_FEW_ROWS,
        COLUMNS=columns,
        num_warps=2,
    )


def score_gradients(scores: Tensor, labels: Tensor) -> Tensor:
    """Replace scores by the gradient of the loss; return its squared norms, float64 [rows]."""
    num_rows, width = scores.shape
    squares = torch.empty(num_rows, dtype=torch.float64, device=scores.device)
    _score_kernel[(triton.cdiv(num_rows, _ROWS),)](
        scores,
        labels,
        squares,
        num_rows,
        width,
        LARGEST=LARGEST_SQUARE,
        ROWS=_ROWS,
        COLUMNS=triton.next_power_of_2(width),
    )
    return squares


def pass_activation(gradients: Tensor, outputs: Tensor, *, relu: bool) -> tuple[Tensor, Tensor]:
    """Multiply gradients with the slope of the activation; return squared norms of both, float64 [rows].

    Outputs that are not finite become zero; their squared norm is not finite.
    """
    num_rows, width = gradients.shape
    squares = torch.empty(2, num_rows, dtype=torch.float64, device=gradients.device)
    _hidden_kernel[(triton.cdiv(num_rows, _ROWS),)](
        gradients,
        outputs,
        squares[0],
        squares[1],
        num_rows,
        width,
        LARGEST=LARGEST_SQUARE,
        RELU=relu,
        ROWS=_ROWS,
        COLUMNS=min(64, triton.next_power_of_2(width)),
    )
    return squares[0], squares[1]


def weigh_rows(values: Tensor, factors: Tensor, chunk: int) -> Tensor:
    """Multiply each row with its factor; return the sum of all rows, float64 [columns].

    There are whole chunks of rows. A row of factor 0 becomes zero whatever it holds.
    """
    num_rows, width = values.shape
    sums = torch.empty(num_rows // chunk, width, dtype=torch.float64, device=values.device)
    columns = min(32, triton.next_power_of_2(width))
    _weigh_kernel[(len(sums), triton.cdiv(width, columns))](
        values, factors, sums, width, ROWS=chunk, COLUMNS=columns
    )
    return sums.sum(0)


def sum_columns(rows: Tensor, owners: Tensor, values: Tensor, segments: Tensor, columns: Tensor) -> Tensor:
    """float64 [columns, d]: for each column, the sum over its entries e of values[e] * rows[owners[e]].

    Args:
        rows: float32 [rows, d].
        owners, values: of the entries, by column.
        segments: int64 [segments + 1]: entries that one program adds up, of one column each.
        columns: int64 [columns + 1]: the segments of every column.
    """
    width = rows.shape[1]
    block = min(64, triton.next_power_of_2(width))
    parts = torch.empty(len(segments) - 1, width, dtype=torch.float64, device=rows.device)
    if len(parts):
        _column_kernel[(len(parts), triton.cdiv(width, block))](
            rows, owners, values, segments, parts, width, ENTRIES=_ENTRIES, COLUMNS=block, num_warps=2
        )
    return _add_groups(parts, len(columns) - 1, columns)


def sum_parts(parts: Tensor) -> Tensor:
    """float64 [d]: the sum of float32 [parts, d]."""
    return _add_groups(parts, triton.cdiv(len(parts), _PARTS), None).sum(0)


def _add_groups(parts: Tensor, groups: int, pointers: Tensor | None) -> Tensor:
    """float64 [groups, d]: sums of the parts pointers[g]:pointers[g + 1], or of `_PARTS` each."""
    width = parts.shape[1]
    block = min(64, triton.next_power_of_2(width))
    totals = torch.empty(groups, width, dtype=torch.float64, device=parts.device)
    _total_kernel[(groups, triton.cdiv(width, block))](
        parts,
        parts if pointers is None else pointers,
        len(parts),
        totals,
        width,
        GROUP=_PARTS if pointers is None else 0,
        PARTS=_ENTRIES,
        COLUMNS=block,
        num_warps=2,
    )
    return totals
