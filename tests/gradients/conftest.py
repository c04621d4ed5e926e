from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from hushgraph.gradients.batch import TreeBatch, tree_batch
from hushgraph.graph.graph import Graph
from hushgraph.inputs.features import Features
from hushgraph.sampling.lists import BoundedLists
from hushgraph.sampling.trees import grow


@dataclass(frozen=True)
class MadeUp:
    """A graph of 12 nodes, 5 features and 3 classes with lists that share and repeat nodes."""

    graph: Graph
    lists: BoundedLists
    roots: list[int]

    def batch(self, depth: int, roots: list[int] | None = None) -> TreeBatch:
        trees = grow(self.lists, self.roots if roots is None else roots, depth)
        return tree_batch(trees, Features(self.graph), self.graph.y)


@pytest.fixture(scope="module")
def made_up() -> MadeUp:
    rng = np.random.default_rng(0)
    # An empty list, a repeated read, nodes that many read, and node 9 without a label.
    reads = [[5, 6, 7, 2], [], [8, 5], [5, 5], [9, 8, 6], [0, 1], [], [10, 10, 4], [3], [2, 0], [11, 4], []]
    labels = rng.integers(0, 3, 12)
    labels[9] = -1
    graph = Graph.from_arrays(
        edge_index=np.empty((2, 0), np.int64),
        x=rng.standard_normal((12, 5)).astype(np.float32),
        y=labels,
        train_idx=np.arange(12),
        num_classes=3,
    )
    indptr = np.cumsum([0] + [len(row) for row in reads], dtype=np.int64)
    lists = BoundedLists(indptr=indptr, indices=np.concatenate(reads).astype(np.int32))
    return MadeUp(graph, lists, [0, 1, 2, 9, 3, 4, 0])


@pytest.fixture(autouse=True)
def _kernels_for_few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernels are tested, however few rows a test has."""
    monkeypatch.setattr("hushgraph.gradients.rows._SMALL", -1)
