"""Weighted sums of rows on a GPU: one Triton kernel for both directions; `AVAILABLE` if Triton is."""

from __future__ import annotations

import torch
from torch import Tensor

try:
    import triton
    import triton.language as tl

    AVAILABLE = True
except ImportError:
    AVAILABLE = False

# Entries of a row that are loaded together; one at a time would make a row with thousands slow.
_ENTRIES = 8

if AVAILABLE:

    @triton.jit
    def _sum_kernel(
        source,
        rows_of_entries,
        coefficients,
        pointers,
        entries,
        out,
        width,
        LISTED: tl.constexpr,
        INDEXED: tl.constexpr,
        ENTRIES: tl.constexpr,
        COLUMNS: tl.constexpr,
    ):
        row = tl.program_id(0).to(tl.int64)
        columns = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
        inside = columns < width
        end = tl.load(pointers + row + 1)
        total = tl.zeros((COLUMNS,), dtype=tl.float32)
        for first in range(tl.load(pointers + row), end, ENTRIES):
            at = first + tl.arange(0, ENTRIES)
            exists = at < end
            entry = tl.load(entries + at, mask=exists, other=0) if LISTED else at
            source_row = tl.load(rows_of_entries + entry, mask=exists, other=0) if INDEXED else entry
            c = tl.load(coefficients + entry, mask=exists, other=0.0)
            mask = exists[:, None] & inside[None, :]
            values = tl.load(source + source_row[:, None] * width + columns[None, :], mask=mask, other=0.0)
            total += tl.sum(c[:, None] * values, 0)
        tl.store(out + row * width + columns, total, mask=inside)


def entry_sums(
    source: Tensor,
    rows_of_entries: Tensor | None,
    coefficients: Tensor,
    pointers: Tensor,
    entries: Tensor | None,
) -> Tensor:
    """[rows, d]: for each row the sum of coefficients[e] * source[rows_of_entries[e]] over its entries e.

    The entries of row i are entries[pointers[i]:pointers[i + 1]], or these positions where `entries` is None.
    """
    source = source.contiguous()
    rows, width = pointers.numel() - 1, source.shape[1]
    out = torch.empty((rows, width), device=source.device)
    if rows:
        columns = min(256, triton.next_power_of_2(width))
        _sum_kernel[(rows, triton.cdiv(width, columns))](
            source,
            pointers if rows_of_entries is None else rows_of_entries,
            coefficients,
            pointers,
            pointers if entries is None else entries,
            out,
            width,
            LISTED=entries is not None,
            INDEXED=rows_of_entries is not None,
            ENTRIES=_ENTRIES,
            COLUMNS=columns,
            num_warps=2,
        )
    return out
