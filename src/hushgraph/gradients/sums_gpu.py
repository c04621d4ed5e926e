"""Weighted gradients of shared rows on a GPU, added up in float64: one Triton kernel."""

from __future__ import annotations

import torch
from torch import Tensor

from hushgraph.models.row_sums_gpu import AVAILABLE

if AVAILABLE:
    import triton
    import triton.language as tl

# Entries of a row that are loaded together: one at a time, a row with thousands would keep everybody waiting.
_ENTRIES = 8

if AVAILABLE:

    @triton.jit
    def _shared_kernel(
        upper,
        parents,
        weights,
        pointers,
        entries,
        outputs,
        out,
        begin,
        width,
        RELU: tl.constexpr,
        ENTRIES: tl.constexpr,
        COLUMNS: tl.constexpr,
    ):
        row = tl.program_id(0).to(tl.int64)
        node = begin + row
        columns = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
        inside = columns < width
        end = tl.load(pointers + node + 1)
        total = tl.zeros((COLUMNS,), dtype=tl.float64)
        for first in range(tl.load(pointers + node), end, ENTRIES):
            at = first + tl.arange(0, ENTRIES)
            entry = tl.load(entries + at, mask=at < end, other=0)
            weight = tl.load(weights + entry, mask=at < end, other=0.0)
            # Entries of weight 0 are not loaded: zero times infinity is not zero.
            there = weight != 0.0
            parent = tl.load(parents + entry, mask=there, other=0)
            mask = there[:, None] & inside[None, :]
            values = tl.load(upper + parent[:, None] * width + columns[None, :], mask=mask, other=0.0)
            total += tl.sum(weight[:, None] * values.to(tl.float64), 0)
        y = tl.load(outputs + node * width + columns, mask=inside, other=0.0).to(tl.float64)
        # The output of a row that nobody reads may be anything.
        y = tl.where(total == 0.0, 0.0, y)
        slope = tl.where(y > 0, 1.0, 0.0) if RELU else 1.0 - y * y
        tl.store(out + row * width + columns, total * slope, mask=inside)


def shared_rows(
    upper: Tensor,
    parents: Tensor,
    weights: Tensor,
    pointers: Tensor,
    entries: Tensor,
    outputs: Tensor,
    relu: bool,
    part: slice,
) -> Tensor:
    """The rows `part` of `sums.weighted_shared_rows`."""
    rows, width = part.stop - part.start, outputs.shape[1]
    out = torch.empty((rows, width), dtype=torch.float64, device=outputs.device)
    columns = min(256, triton.next_power_of_2(width))
    _shared_kernel[(rows, triton.cdiv(width, columns))](
        upper.contiguous(),
        parents,
        weights,
        pointers,
        entries,
        outputs.contiguous(),
        out,
        part.start,
        width,
        RELU=relu,
        ENTRIES=_ENTRIES,
        COLUMNS=columns,
        num_warps=2,
    )
    return out
