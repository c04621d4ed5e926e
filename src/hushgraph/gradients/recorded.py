"""Clipped sums of trees on a GPU, recorded: a step starts all its operations at once.

A recording computes with tensors of fixed sizes. Batches that stay the same are recorded as they are. Batches
that are drawn anew are copied into tensors with room for the largest, by the plan.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor, nn

from hushgraph.gradients import ghost
from hushgraph.gradients.batch import TreeBatch
from hushgraph.gradients.clip import Clipping
from hushgraph.models.blocks import Reads
from hushgraph.models.gnn import GNN, GCNLayer
from hushgraph.models.recording import Recording
from hushgraph.models.row_sums_gpu import AVAILABLE
from hushgraph.tasks.classes import cross_entropy

# Trees of more rows have kernels that wait for the GPU.
LARGEST_RECORDED_TREE = 64
# Pieces of a batch whose recordings are kept.
_MOST_KEPT = 8


class RecordedTreeSums:
    """Clipped sums of trees of one layer, for `Trainer`.

    Args:
        largest_tree: no tree has more rows, by the plan.
        room: how many roots a batch may have, where batches are drawn; None where they stay the same.

    Guarantees:
        Gives the clipped sum that `ghost.clipped_sum` gives. What is recorded, and how it is computed,
        follows from the plan, the model and the number of roots that were drawn, never from the trees.
    """

    def __init__(self, *, largest_tree: int, room: int | None) -> None:
        self._largest_tree, self._room = largest_tree, room
        self._kept: OrderedDict[tuple[object, ...], Recording[dict[str, Tensor]]] = OrderedDict()
        self._padded: PaddedTrees | None = None

    def __call__(self, model: nn.Module, batch: TreeBatch, clipping: Clipping) -> dict[str, Tensor]:
        """Per parameter, the float64 sum over the roots of `batch` of their clipped gradients."""
        # More roots than there is room for are drawn by chance, and hardly ever.
        has_room = self._room is None or batch.num_roots < self._room
        if not (has_room and self._is_recordable(model, batch)):
            return ghost.clipped_sum(model, batch, clipping)
        if self._room is None:
            # By the plan, not by the trees.
            bounded = replace(batch, most_rows=(1, self._largest_tree))
            return self._record(batch, model, lambda: bounded, clipping)()
        x = batch.dense_x
        if self._padded is None or self._padded.x is not x:
            self._padded = PaddedTrees(x, self._room, self._largest_tree)
        self._padded.fill(batch)
        sums = self._record(self._padded, model, self._padded.build, clipping)()
        # Another piece of the batch would be written to the same tensors.
        return {name: value.clone() for name, value in sums.items()}

    def _is_recordable(self, model: nn.Module, batch: TreeBatch) -> bool:
        is_gcn = type(model) is GNN and all(type(layer) is GCNLayer for layer in model.layers)
        return (
            AVAILABLE
            and batch.loss is cross_entropy
            and batch.x.device.type == "cuda"
            and is_gcn
            and len(batch.blocks) == 1
            # Weights of reads are not among the tensors of a recording.
            and batch.blocks[0].shares is None
            and batch.is_shared
            and self._largest_tree <= LARGEST_RECORDED_TREE
        )

    def _record(
        self,
        source: TreeBatch | PaddedTrees,
        model: nn.Module,
        build: Callable[[], TreeBatch],
        clipping: Clipping,
    ) -> Recording[dict[str, Tensor]]:
        """Return the recording of a clipped sum over trees built from `source`; evict the oldest."""
        key = (source, model, clipping)
        if key not in self._kept:

            def compute() -> dict[str, Tensor]:
                return ghost.clipped_sum(model, build(), clipping, waits=False)

            self._kept[key] = Recording(compute, source.x.device)
            if len(self._kept) > _MOST_KEPT:
                self._kept.popitem(last=False)
        return self._kept[key]


class PaddedTrees:
    """Trees of one layer, padded to `room` roots; padding roots have no label and no reads.

    Padding entries belong to the last root, which is always padding: its gradient is zero.

    Attributes:
        x: the features of all nodes.
    """

    def __init__(self, x: Tensor, room: int, largest_tree: int) -> None:
        device = x.device
        entries = torch.arange(room * largest_tree, device=device)
        self._labels = torch.full((room,), -1, device=device)
        self._indptr = torch.zeros(room + 1, dtype=torch.int64, device=device)
        # Spread over all nodes: a node with many entries would keep the others waiting.
        self._index = entries % len(x)
        self._entries = entries
        self._roots = torch.arange(room + 1, device=device)
        self.x, self._largest_tree = x, largest_tree

    def build(self) -> TreeBatch:
        """Build a batch of the tensors, and derive parents and counts of its reads anew."""
        last = len(self._labels) - 1
        parents = torch.searchsorted(self._indptr, self._entries, right=True).sub_(1).clamp_(max=last)
        reads = Reads(indptr=self._indptr, index=self._index, num_lower=len(self.x))
        # As `Reads` has them, for indices that cover all entries.
        reads.__dict__["parents"] = parents
        reads.__dict__["counts"] = torch.diff(self._indptr).float().clamp_(min=1)
        batch = TreeBatch(
            x=self.x,
            blocks=(reads,),
            labels=self._labels,
            pointers=(self._roots, self._indptr),
            most_rows=(1, self._largest_tree),
            may_read=True,
        )
        batch.__dict__["owners"] = (self._roots[:-1], parents)
        return batch

    def fill(self, batch: TreeBatch) -> None:
        """Copy a batch of fewer roots into the tensors."""
        reads, roots = batch.blocks[0], batch.num_roots
        if reads.index is None:
            raise RuntimeError("trees that share no rows have no index")
        self._labels[:roots].copy_(batch.labels)
        self._labels[roots:].fill_(-1)
        self._indptr[: roots + 1].copy_(reads.indptr)
        self._indptr[roots + 1 :].fill_(reads.num_entries)
        self._index[: reads.num_entries].copy_(reads.index)
