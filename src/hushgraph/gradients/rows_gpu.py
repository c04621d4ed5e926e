"""Rows of inputs and of output gradients, loaded by the Triton kernels of this folder.

With `SHARED` a row is an entry of a tree: its input stands in the row of its node, and its gradient follows
from that of the row that reads it. Otherwise inputs and gradients are given row by row.
"""

from __future__ import annotations

from hushgraph.models.row_sums_gpu import AVAILABLE

if AVAILABLE:
    import triton
    import triton.language as tl

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
