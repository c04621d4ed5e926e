"""The trees of a batch, as tensors."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from hushgraph.gradients.norms import PairProducts
from hushgraph.inputs.features import Features
from hushgraph.inputs.rows import Loss
from hushgraph.inputs.sparse_inputs import SparseInputs, write_out
from hushgraph.models.blocks import Reads
from hushgraph.sampling.trees import Trees
from hushgraph.tasks.classes import cross_entropy


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
