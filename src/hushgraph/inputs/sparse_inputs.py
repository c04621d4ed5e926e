"""Sparse rows of features as the inputs of a first layer: products with its weights, norms and sums.

Only what is not zero is kept and multiplied. On a GPU rows are written out instead: its kernels are for dense
rows, and its memory holds them.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numba
import numpy as np
import numpy.typing as npt
import torch
from scipy import sparse
from torch import Tensor

from hushgraph.models.blocks import FASTMATH

# The work is cut into so many parts, whatever the number of threads.
_PARTS = 64


@dataclass(frozen=True, kw_only=True, eq=False)
class SparseInputs:
    """Rows of features on a device, as those of a CSR matrix.

    Attributes:
        indptr: int64 [rows + 1]; row i has the entries indptr[i]:indptr[i + 1].
        indices: integers [entries], the column of every entry; no column twice in a row.
        values: float32 [entries], finite.
        num_columns: columns of the rows.
    """

    indptr: Tensor
    indices: Tensor
    values: Tensor
    num_columns: int
    _scaled: dict[float, SparseInputs] = field(default_factory=dict, init=False, repr=False)

    @classmethod
    def of(cls, rows: Any, device: torch.device | str = "cpu") -> SparseInputs:
        """Wrap a SciPy CSR matrix of float32; its memory is shared on the CPU."""
        # As rows that were taken have it: kernels are compiled once, not for int32 too.
        indptr = rows.indptr.astype(np.int64, copy=False)
        # torch warns of arrays that may not be written to.
        arrays = (a if a.flags.writeable else a.copy() for a in (indptr, rows.indices, rows.data))
        indptr, indices, values = (torch.from_numpy(a).to(device) for a in arrays)
        return cls(indptr=indptr, indices=indices, values=values, num_columns=int(rows.shape[1]))

    @property
    def shape(self) -> tuple[int, int]:
        return self.indptr.numel() - 1, self.num_columns

    @property
    def device(self) -> torch.device:
        return self.values.device

    @property
    def dtype(self) -> torch.dtype:
        return self.values.dtype

    @property
    def arrays(self) -> tuple[npt.NDArray[Any], ...]:
        """indptr, indices and values, on the CPU."""
        return self.indptr.numpy(), self.indices.numpy(), self.values.numpy()

    @cached_property
    def dense(self) -> Tensor:
        """float32 [rows, columns]: the rows written out."""
        out = torch.zeros(self.shape, dtype=self.values.dtype, device=self.device)
        out[self._owners(), self.indices.long()] = self.values
        return out

    @cached_property
    def squares(self) -> Tensor:
        """float64 [rows]: squared norms; infinite beyond float32, as those of dense rows."""
        squares = torch.zeros(self.shape[0], dtype=torch.float64, device=self.device)
        squares.index_add_(0, self._owners(), self.values.double().square())
        return torch.where(squares <= torch.finfo(torch.float32).max, squares, torch.inf)

    @cached_property
    def by_columns(self) -> tuple[Tensor, Tensor, Tensor]:
        """The entries by column, rows ascending: pointers [columns + 1], rows and values."""
        indptr, indices, values = self.arrays
        columns = sparse.csr_array((values, indices, indptr), shape=self.shape).tocsc()
        arrays = columns.indptr.astype(np.int64), columns.indices.astype(np.int32), columns.data
        pointers, rows, entries = map(torch.from_numpy, arrays)
        return pointers, rows, entries

    def scale(self, norm: float) -> SparseInputs:
        """The rows scaled to this norm; 0 leaves them unscaled. Kept: all batches of a model ask for it."""
        if not norm:
            return self
        if norm not in self._scaled:
            # The lower limit keeps a row of zeros at zero.
            lengths = torch.zeros(self.shape[0], dtype=torch.float64, device=self.device)
            lengths.index_add_(0, self._owners(), self.values.double().square())
            factors = norm / lengths.sqrt_().clamp_(min=1e-12)
            self._scaled[norm] = replace(self, values=(self.values * factors[self._owners()]).float())
        return self._scaled[norm]

    def take(self, rows: Tensor) -> SparseInputs:
        """Some of the rows, in this order."""
        counts = torch.diff(self.indptr)[rows].long()
        indptr = torch.zeros(rows.numel() + 1, dtype=torch.int64, device=self.device)
        torch.cumsum(counts, 0, out=indptr[1:])
        size = int(indptr[-1])
        # How far every entry moves, added to where it is now.
        moved = self.indptr[:-1][rows].long() - indptr[:-1]
        places = torch.arange(size, device=self.device)
        places += torch.repeat_interleave(moved, counts, output_size=size)
        return replace(self, indptr=indptr, indices=self.indices[places], values=self.values[places])

    def multiply(self, weight: Tensor, bias: Tensor, out: Tensor | None = None) -> Tensor:
        """float32 [rows, out]: what a Linear layer gives, on the CPU. A row is computed from itself alone.

        It is written to `out`, where that is given.
        """
        out = torch.empty(self.shape[0], weight.shape[0]) if out is None else out
        columns = weight.detach().T.contiguous()
        _multiply(*self.arrays, columns.numpy(), bias.detach().numpy(), out.numpy())
        return out

    def add_products(self, begin: int, gradients: Tensor, cursor: Tensor, total: Tensor) -> None:
        """Add the products of a block of rows with their gradients to float64 total [columns, out].

        Blocks come in order: what a column sums up within one is added to its total as one number.

        Args:
            begin: the first row of the block.
            gradients: float64 [rows of the block, out].
            cursor: int64 [columns], the first entry of every column that is not added yet; moved on.
            total: float64 [columns, out].
        """
        pointers, rows, values = self.by_columns
        tensors = (pointers, rows, values, cursor, gradients, total)
        _add_products(*(tensor.numpy() for tensor in tensors), begin)

    def new_cursor(self) -> Tensor:
        """Where `add_products` begins."""
        return self.by_columns[0][:-1].clone()

    def _owners(self) -> Tensor:
        """int64 [entries]: the row of every entry."""
        rows = torch.arange(self.shape[0], device=self.device)
        counts = torch.diff(self.indptr)
        return torch.repeat_interleave(rows, counts.long(), output_size=self.values.numel())


def write_out(rows: Tensor | SparseInputs) -> Tensor:
    """Dense rows, whichever are given."""
    return rows.dense if isinstance(rows, SparseInputs) else rows


@numba.njit(cache=True, nogil=True, parallel=True, fastmath=FASTMATH)
def _multiply(indptr, indices, values, columns, bias, out):  # type: ignore[no-untyped-def]
    """out[rows, width] = sparse rows times columns [columns, width], plus bias."""
    num_rows, width = out.shape
    for part in numba.prange(_PARTS):
        for row in range(num_rows * part // _PARTS, num_rows * (part + 1) // _PARTS):
            target = out[row]
            target[:] = bias
            p, end = indptr[row], indptr[row + 1]
            # Four entries at a time, so that a sum is loaded and stored once for all of them.
            while p + 4 <= end:
                v0, v1, v2, v3 = values[p], values[p + 1], values[p + 2], values[p + 3]
                c0, c1 = columns[indices[p]], columns[indices[p + 1]]
                c2, c3 = columns[indices[p + 2]], columns[indices[p + 3]]
                for k in range(width):
                    target[k] += (v0 * c0[k] + v1 * c1[k]) + (v2 * c2[k] + v3 * c3[k])
                p += 4
            while p < end:
                v, c = values[p], columns[indices[p]]
                for k in range(width):
                    target[k] += v * c[k]
                p += 1


@numba.njit(cache=True, nogil=True, parallel=True, fastmath=FASTMATH)
def _add_products(pointers, rows, values, cursor, gradients, total, begin):  # type: ignore[no-untyped-def]
    """total += the block of sparse rows from `begin` on, transposed, times gradients; all in float64."""
    num_columns, width = total.shape
    end = begin + len(gradients)
    for part in numba.prange(_PARTS):
        sums = np.empty(width)
        for column in range(num_columns * part // _PARTS, num_columns * (part + 1) // _PARTS):
            p, last = cursor[column], pointers[column + 1]
            if p == last or rows[p] >= end:
                continue
            sums[:] = 0
            while p + 4 <= last and rows[p + 3] < end:
                v0, v1 = np.float64(values[p]), np.float64(values[p + 1])
                v2, v3 = np.float64(values[p + 2]), np.float64(values[p + 3])
                d0, d1 = gradients[rows[p] - begin], gradients[rows[p + 1] - begin]
                d2, d3 = gradients[rows[p + 2] - begin], gradients[rows[p + 3] - begin]
                for k in range(width):
                    sums[k] += (v0 * d0[k] + v1 * d1[k]) + (v2 * d2[k] + v3 * d3[k])
                p += 4
            while p < last and rows[p] < end:
                v, d = np.float64(values[p]), gradients[rows[p] - begin]
                for k in range(width):
                    sums[k] += v * d[k]
                p += 1
            cursor[column] = p
            target = total[column]
            for k in range(width):
                target[k] += sums[k]
