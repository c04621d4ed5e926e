"""The trees of a batch, as tensors."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

from hushgraph.gradients.norms import PairProducts
from hushgraph.gradients.sums import CHUNK
from hushgraph.inputs.features import Features
from hushgraph.inputs.rows import Loss
from hushgraph.inputs.sparse_inputs import SparseInputs, write_out
from hushgraph.models.blocks import Reads, RowGradient
from hushgraph.sampling.trees import Trees
from hushgraph.tasks.classes import cross_entropy

# Roots of a part of a batch, as `TreeBatch.parts` cuts them: a multiple of `CHUNK`.
_PART_ROOTS = 64 * CHUNK

Room: TypeAlias = dict[str, Tensor]


def take_room(room: Room, name: str, rows: int, like: Tensor) -> Tensor:
    """A tensor [rows, columns of `like`] of the room, made where it is missing, holding anything.

    A CPU gives memory of this size back when it is freed, and faulting it in again takes as long as to
    fill it.
    """
    shape = (rows, like.shape[1])
    if name not in room or room[name].shape != shape or room[name].dtype != like.dtype:
        room[name] = like.new_empty(shape)
    return room[name]


@dataclass(frozen=True, kw_only=True, eq=False)
class TreeBatch:
    """What one clipped sum is computed from.

    Attributes:
        x: float32 [feature rows, d]; sparse features of trees stay sparse on the CPU.
        blocks: r blocks of reads, roots first. The deepest one points into `x`.
        labels: [roots], of the task; -1 or NaN where a root has none.
        loss: from scores and labels to the loss of every root, of the task.
        pointers: r + 1 tensors int64 [roots + 1]: the rows of root v at level l are
            pointers[l][v]:pointers[l][v + 1].
        most_rows: r + 1 integers: no root has more rows at level l. Numbers, as asking a GPU for them waits.
        may_read: whether trees may have more than their roots, by the plan. How norms and sums are computed
            follows from this and never from the rows: one emptied row must not change that for the others.
        members: int64 [persons + 1], where a root is a person with several nodes: their labels are
            members[i]:members[i + 1]; None where every label is of a root of its own. Whose a node is, is
            public.
        by_node: the same trees with one root a label, where a root is a person.
        products: by the norm that features are scaled to, what norms need of them; filled when first used.
        room: tensors that every step on the same trees writes to anew; filled when first used.
    """

    x: Tensor | SparseInputs
    blocks: tuple[Reads, ...]
    labels: Tensor
    pointers: tuple[Tensor, ...]
    most_rows: tuple[int, ...]
    may_read: bool = False
    loss: Loss = cross_entropy
    members: Tensor | None = None
    by_node: TreeBatch | None = None
    products: dict[float, PairProducts] = field(default_factory=dict, init=False, repr=False)
    room: Room = field(default_factory=dict, init=False, repr=False)

    @property
    def dense_x(self) -> Tensor:
        """`x`, written out where it is sparse."""
        return write_out(self.x)

    @property
    def num_roots(self) -> int:
        return len(self.labels) if self.members is None else len(self.members) - 1

    @property
    def level_rows(self) -> tuple[int, ...]:
        """Rows of every level, roots first."""
        return (len(self.labels), *(block.num_entries for block in self.blocks))

    def by_person(self, members: np.ndarray) -> TreeBatch:
        """The same trees, where those of the nodes of a person are one root's.

        Args:
            members: int64 [persons + 1], the nodes of every person among the roots.
        """
        ends = torch.from_numpy(members).to(self.labels.device)
        pointers = tuple(each[ends] for each in self.pointers)
        most = tuple(int(each.diff().max()) if len(members) > 1 else 0 for each in pointers)
        return replace(self, pointers=pointers, most_rows=most, members=ends, by_node=self)

    @cached_property
    def parts(self) -> tuple[TreeBatch, ...]:
        """The roots in parts whose rows stay in the caches of a CPU; they share `x`."""
        if self.labels.is_cuda or not self.is_shared or self.members is not None:
            return (self,)
        begins = range(0, self.num_roots, _PART_ROOTS)
        return (self,) if len(begins) == 1 else tuple(self._part(begin) for begin in begins)

    def _part(self, begin: int) -> TreeBatch:
        end = min(begin + _PART_ROOTS, self.num_roots)
        ends = [(int(each[begin]), int(each[end])) for each in self.pointers]
        blocks = []
        for reads, (first, last), (lower, upper) in zip(self.blocks, ends[:-1], ends[1:], strict=True):
            index = None if reads.index is None else reads.index[lower:upper]
            blocks.append(
                Reads(
                    indptr=reads.indptr[first : last + 1] - lower,
                    index=index,
                    num_lower=upper - lower if index is None else reads.num_lower,
                    shares=None if reads.shares is None else reads.shares[:, lower:upper],
                )
            )
        pointers = tuple(
            each[begin : end + 1] - first for each, (first, _) in zip(self.pointers, ends, strict=True)
        )
        return replace(self, blocks=tuple(blocks), labels=self.labels[begin:end], pointers=pointers)

    def join_gradients(self, gradients: list[RowGradient]) -> RowGradient:
        """The gradients of the deepest rows of the whole batch, from those of its `parts`."""
        if len(gradients) == 1:
            return gradients[0]
        uppers = [each.upper for each in gradients]
        room = take_room(self.room, "gradients", sum(map(len, uppers)), uppers[0])
        coefficients = [each.coefficients for each in gradients if each.coefficients is not None]
        return RowGradient(
            torch.cat(uppers, out=room),
            None if gradients[0].parents is None else self.blocks[-1].parents,
            torch.cat(coefficients) if coefficients else None,
        )

    @property
    def is_shared(self) -> bool:
        """Whether rows of `x` serve several entries, of one root or of many."""
        return bool(self.blocks) and self.blocks[-1].index is not None

    @cached_property
    def owners(self) -> tuple[Tensor, ...]:
        """Per level, int64 [rows]: the root of every row."""
        roots = torch.arange(self.num_roots, device=self.labels.device)
        return tuple(
            torch.repeat_interleave(roots, torch.diff(pointers), output_size=rows)
            for pointers, rows in zip(self.pointers, self.level_rows, strict=True)
        )


def tree_batch(
    trees: Trees,
    features: Features,
    labels: np.ndarray,
    *,
    may_read: bool | None = None,
    expected_rows: float | None = None,
) -> TreeBatch:
    """Tensors of `trees`.

    Args:
        trees: the trees.
        features: of all nodes.
        labels: of all nodes.
        may_read: whether trees may have more than their roots, by the plan.
        expected_rows: how many rows to expect in the deepest level, by the plan. Both choose how the batch is
            computed; without a plan, as in tests, the trees themselves do.
    """
    device = features.device

    def tensor(array: np.ndarray) -> Tensor:
        return torch.from_numpy(array).to(device)

    num_roots = len(trees.roots)
    pointers = [np.arange(num_roots + 1, dtype=np.int64)]
    for block in trees.blocks:
        pointers.append(block.indptr[pointers[-1]])
    nodes = trees.nodes
    index: np.ndarray | None = None
    shares = len(nodes) != num_roots if may_read is None else may_read and trees.depth > 0
    if not shares:
        x: Tensor | SparseInputs = features.rows(nodes)
    elif features.shares_all(len(nodes) if expected_rows is None else expected_rows):
        x, index = features.inputs(), nodes
    else:
        distinct, index = features.distinct(nodes)
        x = features.inputs(distinct)
    blocks = [
        Reads(
            indptr=tensor(block.indptr),
            index=None,
            num_lower=block.num_lower_rows,
            shares=None if block.shares is None else tensor(block.shares),
        )
        for block in trees.blocks
    ]
    if index is not None:
        blocks[-1] = replace(blocks[-1], index=tensor(index), num_lower=x.shape[0])
    return TreeBatch(
        x=x,
        blocks=tuple(blocks),
        labels=tensor(labels[trees.roots]),
        loss=features.task.loss,
        pointers=tuple(tensor(p) for p in pointers),
        most_rows=tuple(int(np.diff(p).max(initial=0)) for p in pointers),
        may_read=bool(may_read),
    )
