"""Weighted sums of rows on a GPU: one Triton kernel for both directions. `AVAILABLE` where Triton is."""

from __future__ import annotations

import torch
from torch import Tensor

try:
    import triton
    import triton.language as tl

    AVAILABLE = True
except ImportError:
    AVAILABLE = False

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
        COLUMNS: tl.constexpr,
    ):
        row = tl.program_id(0).to(tl.int64)
        columns = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
        inside = columns < width
        total = tl.zeros((COLUMNS,), dtype=tl.float32)
        for at in range(tl.load(pointers + row), tl.load(pointers + row + 1)):
            entry = tl.load(entries + at) if LISTED else at
            source_row = tl.load(rows_of_entries + entry) if INDEXED else entry
            c = tl.load(coefficients + entry)
            total += c * tl.load(source + source_row * width + columns, mask=inside, other=0.0)
        tl.store(out + row * width + columns, total, mask=inside)


def entry_sums(
    source: Tensor,
    rows_of_entries: Tensor | None,
    coefficients: Tensor,
    pointers: Tensor,
    entries: Tensor | None,
) -> Tensor:
    """[rows, d]: the sum over a row's entries e of coefficients[e] * source[rows_of_entries[e]].

    The entries of row i are entries[pointers[i]:pointers[i + 1]], or these positions themselves.
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
            COLUMNS=columns,
            num_warps=2,
        )
    return out
