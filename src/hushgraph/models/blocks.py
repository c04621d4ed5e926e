"""One round of message passing: which lower rows every upper row reads, itself first.

Trees in training and the whole graph in inference are the same object, so a model runs the same code on both.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from hushgraph.models import row_sums as rowsums


class RowGradient(NamedTuple):
    """Gradient of entry i of a frontier: `coefficients[i] * upper[parents[i]]`; `upper[i]` without parents.

    Kept in this form because an aggregation gives every entry of a segment the same gradient up to a factor.
    """

    upper: Tensor
    parents: Tensor | None
    coefficients: Tensor | None


@dataclass(eq=False)
class Frontier:
    """Where recorded gradients leave the trees for the rows they share; collects one `RowGradient` a use."""

    gradients: list[RowGradient] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True, eq=False)
class Reads:
    """Upper row i reads the lower rows `index[indptr[i]:indptr[i + 1]]`; the first of them is itself.

    Attributes:
        indptr: int64 [upper rows + 1].
        index: int64 [entries], the lower row of every entry; None where entry i is lower row i, as in a tree.
        num_lower: lower rows.
        frontier: set while per-root gradients are recorded and `index` is shared between roots: gradients are
            then kept per entry instead of being added up per lower row.
    """

    indptr: Tensor
    index: Tensor | None
    num_lower: int
    frontier: Frontier | None = None

    @property
    def num_upper(self) -> int:
        return self.indptr.numel() - 1

    @property
    def num_entries(self) -> int:
        return self.num_lower if self.index is None else self.index.numel()

    @cached_property
    def counts(self) -> Tensor:
        """float32 [upper rows]: entries of every upper row, itself included."""
        return torch.diff(self.indptr).to(torch.float32)

    @cached_property
    def parents(self) -> Tensor:
        """int64 [entries]: the upper row of every entry."""
        rows = torch.arange(self.num_upper, device=self.indptr.device)
        return torch.repeat_interleave(rows, torch.diff(self.indptr), output_size=self.num_entries)

    @cached_property
    def is_self(self) -> Tensor:
        """float32 [entries]: 1 where an entry is its upper row itself, else 0."""
        marks = torch.zeros(self.num_entries, device=self.indptr.device)
        marks[self.indptr[:-1]] = 1.0
        return marks

    @cached_property
    def mean_weights(self) -> Tensor:
        """float32 [entries]: one over the entries of the entry's upper row."""
        return (1.0 / self.counts)[self.parents]

    @cached_property
    def by_lower(self) -> tuple[Tensor, Tensor]:
        """Entries sorted by lower row, as (pointers [lower rows + 1], entries): the transpose of `index`."""
        if self.index is None:
            raise RuntimeError("a tree needs no transpose: every lower row has one entry")
        return rowsums.transpose(self.index, self.num_lower)

    def mean(self, h: Tensor) -> Tensor:
        """[upper rows, d]: mean over every row's entries: (d + I)^-1 (A + I) h."""
        return self._sum(h, self.mean_weights)

    def sum_of_reads(self, h: Tensor) -> Tensor:
        """[upper rows, d]: sum over what every row reads, itself left out: A h."""
        return self._sum(h, 1.0 - self.is_self)

    def own(self, h: Tensor) -> Tensor:
        """[upper rows, d]: the rows themselves, without what they read."""
        if self.frontier is None:
            first = self.indptr[:-1]
            return h[first if self.index is None else self.index[first]]
        return self._sum(h, self.is_self)

    def entries(self, h: Tensor, through: Callable[[Tensor], Tensor]) -> Tensor:
        """[entries, d]: `through(h)` of every entry; `through` must treat every row alone.

        The order is chosen here: rows are shared where nobody asks whose gradient it is, and expanded first
        where per-root gradients of `through` are recorded.
        """
        if self.index is None:
            return through(h)
        if self.frontier is None:
            return through(h)[self.index]
        return through(_expand(h, self))

    def softmax(self, scores: Tensor) -> Tensor:
        """[entries, heads]: softmax of `scores` over the entries of every upper row."""
        parents = self.parents
        shape = (self.num_upper, scores.shape[1])
        index = parents[:, None].expand_as(scores)
        peak = scores.new_full(shape, -torch.inf).scatter_reduce(0, index, scores.detach(), "amax")
        exps = torch.exp(scores - peak[parents])
        return exps / self.sum_of_entries(exps)[parents]

    def sum_of_entries(self, values: Tensor) -> Tensor:
        """[upper rows, d]: sums of values that are already one row an entry."""
        return values.new_zeros((self.num_upper, values.shape[1])).index_add(0, self.parents, values)

    def _sum(self, h: Tensor, coefficients: Tensor) -> Tensor:
        result: Tensor = _WeightedSum.apply(h, coefficients, self)  # type: ignore[no-untyped-call]
        return result


def _expand(h: Tensor, reads: Reads) -> Tensor:
    result: Tensor = _Expand.apply(h, reads)  # type: ignore[no-untyped-call]
    return result


class _WeightedSum(torch.autograd.Function):
    """Upper row i: the sum of coefficients[e] * h[index[e]] over its entries e."""

    @staticmethod
    def forward(ctx: Any, h: Tensor, coefficients: Tensor, reads: Reads) -> Tensor:
        ctx.reads = reads
        ctx.save_for_backward(coefficients)
        return rowsums.gather_sum(h, reads.index, coefficients, reads.indptr)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, None, None]:
        reads: Reads = ctx.reads
        (coefficients,) = ctx.saved_tensors
        if reads.frontier is not None:
            reads.frontier.gradients.append(RowGradient(grad, reads.parents, coefficients))
            return None, None, None
        if reads.index is None:
            return grad[reads.parents].mul_(coefficients[:, None]), None, None
        return rowsums.scatter_sum(grad, reads.parents, coefficients, *reads.by_lower), None, None


class _Expand(torch.autograd.Function):
    """Entry e: h[index[e]]; only used at a frontier."""

    @staticmethod
    def forward(ctx: Any, h: Tensor, reads: Reads) -> Tensor:
        ctx.frontier = reads.frontier
        return h[reads.index]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[None, None]:
        ctx.frontier.gradients.append(RowGradient(grad, None, None))
        return None, None


def whole_graph(indptr: np.ndarray, indices: np.ndarray, device: torch.device | str = "cpu") -> Reads:
    """The reads of a whole graph, every node itself first, from compressed rows by reader."""
    num_nodes = len(indptr) - 1
    full_indptr = indptr + np.arange(num_nodes + 1)
    index = np.empty(len(indices) + num_nodes, dtype=np.int64)
    is_self = np.zeros(len(index), dtype=bool)
    is_self[full_indptr[:-1]] = True
    index[is_self] = np.arange(num_nodes)
    index[~is_self] = indices
    return Reads(
        indptr=torch.from_numpy(full_indptr.astype(np.int64)).to(device),
        index=torch.from_numpy(index).to(device),
        num_lower=num_nodes,
    )
