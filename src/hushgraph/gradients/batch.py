"""The trees of a batch as tensors: features once per distinct node, reads as blocks, labels."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numba
import numpy as np
import torch
from torch import Tensor

from hushgraph.graph import Graph
from hushgraph.models.reads import Reads
from hushgraph.sampling.trees import Trees


class Features:
    """The features of a graph on a device; sparse ones stay sparse and become dense by the rows asked for."""

    def __init__(self, graph: Graph, device: torch.device | str = "cpu") -> None:
        self._graph = graph
        self.device = torch.device(device)
        self.num_nodes = graph.num_nodes
        self._dense: Tensor | None = None
        if isinstance(graph.x, np.ndarray):
            self._dense = torch.from_numpy(graph.x).to(self.device)

    def rows(self, nodes: np.ndarray) -> Tensor:
        """float32 [len(nodes), d]."""
        if self._dense is not None:
            return self._dense.index_select(0, torch.from_numpy(nodes).to(self.device))
        return torch.from_numpy(self._graph.dense_features(nodes)).to(self.device)

    def all(self) -> Tensor:
        """float32 [num_nodes, d]."""
        if self._dense is None:
            self._dense = self.rows(np.arange(self.num_nodes))
        return self._dense


@dataclass(frozen=True, kw_only=True, eq=False)
class TreeBatch:
    """What one clipped sum is computed from.

    Attributes:
        x: float32 [feature rows, d].
        blocks: r blocks of reads, roots first. The deepest one points into `x`.
        labels: int64 [roots], -1 where a root has none.
        pointers: r + 1 tensors int64 [roots + 1]: the rows of root v at level l are
            pointers[l][v]:pointers[l][v + 1].
    """

    x: Tensor
    blocks: tuple[Reads, ...]
    labels: Tensor
    pointers: tuple[Tensor, ...]

    @property
    def num_roots(self) -> int:
        return self.labels.numel()

    @property
    def level_rows(self) -> tuple[int, ...]:
        """Rows of every level, roots first."""
        return (self.num_roots, *(block.num_entries for block in self.blocks))

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


@numba.njit(cache=True, nogil=True)
def _distinct(nodes, positions, distinct, index):  # type: ignore[no-untyped-def]
    """Distinct nodes in order of appearance; `positions` is -1 everywhere before and after."""
    count = 0
    for i in range(len(nodes)):
        node = nodes[i]
        if positions[node] < 0:
            positions[node] = count
            distinct[count] = node
            count += 1
        index[i] = positions[node]
    for i in range(count):
        positions[distinct[i]] = -1
    return count


# Looking up which nodes are distinct pays while the trees have fewer rows than this times the graph's nodes.
_DISTINCT_BELOW = 1.5


def tree_batch(trees: Trees, features: Features, labels: np.ndarray) -> TreeBatch:
    """Tensors of `trees`; `labels` holds the label of every node."""
    device = features.device

    def tensor(array: np.ndarray) -> Tensor:
        return torch.from_numpy(array).to(device)

    num_roots = len(trees.roots)
    pointers = [np.arange(num_roots + 1, dtype=np.int64)]
    for block in trees.blocks:
        pointers.append(block.indptr[pointers[-1]])
    nodes = trees.nodes
    index: np.ndarray | None = None
    if len(nodes) == num_roots:
        x = features.rows(nodes)
    elif device.type == "cuda" or len(nodes) >= _DISTINCT_BELOW * features.num_nodes:
        x, index = features.all(), nodes
    else:
        distinct, index = np.empty_like(nodes), np.empty_like(nodes)
        count = _distinct(nodes, np.full(features.num_nodes, -1, dtype=np.int64), distinct, index)
        x = features.rows(distinct[:count])
    blocks = [
        Reads(indptr=tensor(block.indptr), index=None, num_lower=block.num_lower_rows)
        for block in trees.blocks
    ]
    if index is not None:
        blocks[-1] = Reads(indptr=blocks[-1].indptr, index=tensor(index), num_lower=x.shape[0])
    return TreeBatch(
        x=x,
        blocks=tuple(blocks),
        labels=tensor(labels[trees.roots]),
        pointers=tuple(tensor(p) for p in pointers),
    )
