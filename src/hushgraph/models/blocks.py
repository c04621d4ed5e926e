"""One round of message passing: which lower rows every upper row reads, itself first.

Training on trees and inference on the whole graph use the same object, so a model runs the same code on both.
Weighted sums of rows run in numba on the CPU and in Triton or torch on a GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numba
import numpy as np
import torch
from torch import Tensor

from hushgraph.errors import ModelError
from hushgraph.models import row_sums_gpu

# Sums may be reordered for speed, but NaN and infinity keep their meaning: clipping relies on seeing them.
FASTMATH = {"reassoc", "contract", "nsz", "arcp"}

_NO_INDEX = np.empty(0, dtype=np.int64)
# Keeps the logarithm of a weight finite.
_LEAST = 1e-30


class RowGradient(NamedTuple):
    """Gradients of the entries of a frontier, not multiplied out.

    Entry i has the gradient `coefficients[i] * upper[parents[i]]`, or `upper[i]` where `parents` is None: an
    aggregation gives all entries of an upper row the same gradient up to a factor.
    """

    upper: Tensor
    parents: Tensor | None
    coefficients: Tensor | None


@dataclass(eq=False)
class Frontier:
    """Collects a `RowGradient` for every use of rows that several trees share."""

    gradients: list[RowGradient] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True, eq=False)
class Reads:
    """The reads of one round: upper row i reads lower rows `index[indptr[i]:indptr[i + 1]]`, itself first.

    Attributes:
        indptr: int64 [upper rows + 1].
        index: int64 [entries], the lower row of every entry; None where entry i is lower row i, as in a tree.
        num_lower: number of lower rows.
        shares: float32 [relations, entries], where records have weights or are of several relations: the
            share of an entry among what its upper row reads of a relation, 0 of the row itself; None where
            all entries count the same.
        frontier: set while per-root gradients are recorded and roots share lower rows. Gradients are then
            kept per entry instead of being summed per lower row.

    Example:
        >>> import torch
        >>> import hushgraph as hg
        >>> reads = hg.Reads(indptr=torch.tensor([0, 2, 3]), index=torch.tensor([0, 1, 1]), num_lower=2)
        >>> reads.mean(torch.tensor([[2.0], [4.0]]))
        tensor([[3.],
                [4.]])
    """

    indptr: Tensor
    index: Tensor | None
    num_lower: int
    shares: Tensor | None = None
    frontier: Frontier | None = None

    @property
    def num_upper(self) -> int:
        return self.indptr.numel() - 1

    @property
    def num_entries(self) -> int:
        return self.num_lower if self.index is None else self.index.numel()

    @cached_property
    def counts(self) -> Tensor:
        """float32 [upper rows]: how many entries every upper row has, itself included."""
        return torch.diff(self.indptr).to(torch.float32)

    @cached_property
    def parents(self) -> Tensor:
        """int64 [entries]: the upper row of every entry."""
        rows = torch.arange(self.num_upper, device=self.indptr.device)
        return torch.repeat_interleave(rows, torch.diff(self.indptr), output_size=self.num_entries)

    @cached_property
    def is_self(self) -> Tensor:
        """float32 [entries]: 1 where an entry is the upper row itself, else 0."""
        marks = torch.zeros(self.num_entries, device=self.indptr.device)
        marks[self.indptr[:-1]] = 1.0
        return marks

    @cached_property
    def mean_weights(self) -> Tensor:
        """float32 [entries]: what an entry counts over the number of entries of the upper row."""
        even = (1.0 / self.counts)[self.parents]
        return even if self.shares is None else even * (self.is_self + self.read_weights)

    @cached_property
    def read_weights(self) -> Tensor:
        """float32 [entries]: what an entry counts, 1 on average over those of an upper row; 0 of the row.

        All count 1 without weights. Of several relations, those that a row has reads of count the same.
        """
        if self.shares is None:
            return 1.0 - self.is_self
        shares = self.shares[0]
        if len(self.shares) > 1:
            together = self.shares.sum(0)
            totals = self.sum_of_entries(together[:, None])[:, 0].clamp(min=1.0)
            shares = together / totals[self.parents]
        return shares * (self.counts - 1)[self.parents]

    @cached_property
    def by_lower(self) -> tuple[Tensor, Tensor]:
        """Entries sorted by lower row, as (pointers [lower rows + 1], entries): the transpose of `index`."""
        if self.index is None:
            raise RuntimeError("a tree needs no transpose: every lower row has one entry")
        return transpose(self.index, self.num_lower)

    def mean(self, h: Tensor) -> Tensor:
        """[upper rows, d]: mean over the entries of every row, (d + I)^-1 (A + I) h.

        Where reads have weights, A holds `read_weights`.
        """
        return self._sum(h, self.mean_weights)

    def sum_of_reads(self, h: Tensor) -> Tensor:
        """[upper rows, d]: the sum of what every row reads, without the row itself, A h."""
        return self._sum(h, self.read_weights)

    def mean_of_relation(self, h: Tensor, relation: int) -> Tensor:
        """[upper rows, d]: mean over what every row reads of one relation, without the row itself; else 0."""
        if self.shares is None:
            raise ModelError(
                f"relation={relation}: these reads are of one relation, where all count the same; use mean "
                "or sum_of_reads"
            )
        return self._sum(h, self.shares[relation])

    def own(self, h: Tensor) -> Tensor:
        """[upper rows, d]: the upper rows themselves."""
        if self.frontier is None:
            first = self.indptr[:-1]
            return h[first if self.index is None else self.index[first]]
        return self._sum(h, self.is_self)

    def entries(self, h: Tensor, through: Callable[[Tensor], Tensor]) -> Tensor:
        """[entries, d]: `through(h)` for every entry; `through` must act on each row separately.

        Without a frontier `through` is applied once per lower row and the result is gathered. With one, rows
        are gathered first, so that the per-root gradients of `through` can be recorded.
        """
        if self.index is None:
            return through(h)
        if self.frontier is None:
            return through(h)[self.index]
        expanded: Tensor = _Expand.apply(h, self)  # type: ignore[no-untyped-call]
        return through(expanded)

    def softmax(self, scores: Tensor) -> Tensor:
        """[entries, heads]: softmax of `scores` over the entries of every upper row.

        Where reads have weights, the exponentials are multiplied by `read_weights`, that of the row by 1.
        """
        parents = self.parents
        if self.shares is not None:
            scores = scores + (self.is_self + self.read_weights).clamp(min=_LEAST).log()[:, None]
        shape = (self.num_upper, scores.shape[1])
        index = parents[:, None].expand_as(scores)
        peak = scores.new_full(shape, -torch.inf).scatter_reduce(0, index, scores.detach(), "amax")
        exps = torch.exp(scores - peak[parents])
        return exps / self.sum_of_entries(exps)[parents]

    def sum_of_entries(self, values: Tensor) -> Tensor:
        """[upper rows, d]: sum over the entries of every row, where `values` has one row per entry."""
        return values.new_zeros((self.num_upper, values.shape[1])).index_add(0, self.parents, values)

    def _sum(self, h: Tensor, coefficients: Tensor) -> Tensor:
        result: Tensor = _WeightedSum.apply(h, coefficients, self)  # type: ignore[no-untyped-call]
        return result


class _WeightedSum(torch.autograd.Function):
    """Upper row i: the sum of coefficients[e] * h[index[e]] over its entries e."""

    @staticmethod
    def forward(ctx: Any, h: Tensor, coefficients: Tensor, reads: Reads) -> Tensor:
        ctx.reads = reads
        ctx.save_for_backward(coefficients)
        return gather_sum(h, reads.index, coefficients, reads.indptr)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, None, None]:
        reads: Reads = ctx.reads
        (coefficients,) = ctx.saved_tensors
        if reads.frontier is not None:
            reads.frontier.gradients.append(RowGradient(grad, reads.parents, coefficients))
            return None, None, None
        if reads.index is None:
            return grad[reads.parents].mul_(coefficients[:, None]), None, None
        return scatter_sum(grad, reads.parents, coefficients, *reads.by_lower), None, None


class _Expand(torch.autograd.Function):
    """Entry e: h[index[e]]. Only used at a frontier."""

    @staticmethod
    def forward(ctx: Any, h: Tensor, reads: Reads) -> Tensor:
        ctx.frontier = reads.frontier
        return h[reads.index]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[None, None]:
        ctx.frontier.gradients.append(RowGradient(grad, None, None))
        return None, None


def transpose(index: Tensor, num_lower: int) -> tuple[Tensor, Tensor]:
    """Sort entries by lower row: (pointers int64 [num_lower + 1], entries int64 [len(index)])."""
    if index.is_cuda:
        # Nothing here waits for the GPU, as counting would.
        ordered, entries = torch.sort(index, stable=True)
        return torch.searchsorted(ordered, torch.arange(num_lower + 1, device=index.device)), entries
    pointers = torch.zeros(num_lower + 1, dtype=torch.int64)
    entries = torch.empty(index.numel(), dtype=torch.int64)
    _transpose(index.numpy(), pointers.numpy(), entries.numpy())
    return pointers, entries


def gather_sum(h: Tensor, index: Tensor | None, coefficients: Tensor, indptr: Tensor) -> Tensor:
    """[rows, d]: for each row the sum of coefficients[e] * h[index[e]] over its entries e."""
    rows = indptr.numel() - 1
    if _on_triton(h):
        return row_sums_gpu.entry_sums(h.detach(), index, coefficients, indptr, None)
    if h.is_cuda or h.dtype != torch.float32:
        entries = h if index is None else h[index]
        # One entry per row: the common case, training that reads no edges.
        if entries.shape[0] == rows:
            return entries * coefficients[:, None].to(h.dtype)
        return torch.segment_reduce(
            entries * coefficients[:, None].to(h.dtype), "sum", offsets=indptr, axis=0
        )
    out = torch.empty((rows, h.shape[1]), dtype=h.dtype)
    _gather_sum(
        h.detach().contiguous().numpy(),
        _NO_INDEX if index is None else index.numpy(),
        coefficients.numpy(),
        indptr.numpy(),
        out.numpy(),
    )
    return out


def scatter_sum(
    upper: Tensor, parents: Tensor, coefficients: Tensor, pointers: Tensor, entries: Tensor
) -> Tensor:
    """[lower rows, d]: for each row the sum of coefficients[e] * upper[parents[e]] over its entries e."""
    if _on_triton(upper):
        return row_sums_gpu.entry_sums(upper.detach(), parents, coefficients, pointers, entries)
    if upper.is_cuda or upper.dtype != torch.float32:
        values = upper[parents[entries]] * coefficients[entries, None].to(upper.dtype)
        return torch.segment_reduce(values, "sum", offsets=pointers, axis=0, initial=0.0)
    out = torch.empty((pointers.numel() - 1, upper.shape[1]), dtype=upper.dtype)
    _scatter_sum(
        upper.detach().contiguous().numpy(),
        parents.numpy(),
        coefficients.numpy(),
        pointers.numpy(),
        entries.numpy(),
        out.numpy(),
    )
    return out


def _on_triton(values: Tensor) -> bool:
    return values.is_cuda and values.dtype == torch.float32 and row_sums_gpu.AVAILABLE


@numba.njit(cache=True, nogil=True, parallel=True, fastmath=FASTMATH)
def _gather_sum(h, index, coefficients, indptr, out):  # type: ignore[no-untyped-def]
    width = h.shape[1]
    shared = len(index) > 0
    # Not by slices, which count references.
    for row in numba.prange(len(indptr) - 1):
        for k in range(width):
            out[row, k] = 0
        for entry in range(indptr[row], indptr[row + 1]):
            c = coefficients[entry]
            if c != 0:
                source = index[entry] if shared else entry
                for k in range(width):
                    out[row, k] += c * h[source, k]


@numba.njit(cache=True, nogil=True, parallel=True, fastmath=FASTMATH)
def _scatter_sum(upper, parents, coefficients, pointers, entries, out):  # type: ignore[no-untyped-def]
    width = upper.shape[1]
    for row in numba.prange(len(pointers) - 1):
        target = out[row]
        target[:] = 0
        for at in range(pointers[row], pointers[row + 1]):
            entry = entries[at]
            c = coefficients[entry]
            source = upper[parents[entry]]
            for k in range(width):
                target[k] += c * source[k]


@numba.njit(cache=True, nogil=True)
def _transpose(index, pointers, entries):  # type: ignore[no-untyped-def]
    for lower in index:
        pointers[lower + 1] += 1
    for row in range(len(pointers) - 1):
        pointers[row + 1] += pointers[row]
    at = pointers[:-1].copy()
    for entry in range(len(index)):
        lower = index[entry]
        entries[at[lower]] = entry
        at[lower] += 1
