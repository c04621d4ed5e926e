"""Promise: no class weight lifts a contribution above C: rows by kernels and by torch, and trees."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from hushgraph.gradients import ghost
from hushgraph.gradients.batch import tree_batch
from hushgraph.gradients.clip import Clipping
from hushgraph.gradients.rows import RowPass, RowSums, find_chain
from hushgraph.graph.graph import Graph
from hushgraph.inputs.features import Features
from hushgraph.inputs.rows import Rows
from hushgraph.models.gnn import GNN, ReadingMLP
from hushgraph.sampling.lists import BoundedLists
from hushgraph.sampling.trees import grow

CLASSES, COUNT = 3, 40
KINDS = pytest.mark.parametrize("kind", ["normalised", "flat", "groups"])
WEIGHTS = pytest.mark.parametrize(
    "weights", [(0.0, 1.0, 0.5), (1.0, 1.0, 1.0), (1e-300, 0.999999, 0.02), (0.0, 0.0, 0.0)]
)


def norm(sums: dict[str, Tensor]) -> float:
    return math.sqrt(sum(float(value.double().square().sum()) for value in sums.values()))


def draw_values(rng: np.random.Generator, width: int) -> np.ndarray:
    """Features of all sizes, so that gradients are."""
    return (rng.normal(size=(COUNT, width)) * 10.0 ** rng.integers(-4, 6, (COUNT, 1))).astype(np.float32)


def check(alone: float, weighted: float, weight: float, clip: float) -> None:
    """A weighted contribution is the plain one times its weight, so at most that share of C."""
    assert weighted <= weight * clip * (1 + 1e-6)
    assert weighted == pytest.approx(weight * alone, rel=1e-4, abs=1e-30)


@KINDS
@WEIGHTS
@pytest.mark.parametrize("path", ["kernel", "torch"])
def test_a_row(kind: str, weights: tuple[float, ...], path: str) -> None:
    rng = np.random.default_rng(1)
    torch.manual_seed(1)
    model = ReadingMLP(4, CLASSES, hidden=5)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=3)
    chain = find_chain(model)
    assert chain is not None
    clipped_sum = RowPass(chain).clipped_sum if path == "kernel" else None
    rows = Rows(dense=draw_values(rng, 7), labels=rng.integers(-1, CLASSES, COUNT))
    plain, weighted = (Clipping(kind=kind, clip=0.7, class_weights=each) for each in (None, weights))
    for row in range(COUNT):
        one = rows.take(np.array([row]))
        norms = [
            norm(
                RowSums(model)._by_torch(model, one, rule) if clipped_sum is None else clipped_sum(one, rule)
            )
            for rule in (plain, weighted)
        ]
        label = int(rows.labels[row])
        check(norms[0], norms[1], weights[label] if label >= 0 else 0.0, 0.7)


@KINDS
@WEIGHTS
def test_a_tree(kind: str, weights: tuple[float, ...]) -> None:
    rng = np.random.default_rng(2)
    torch.manual_seed(2)
    labels = rng.integers(-1, CLASSES, COUNT)
    graph = Graph.from_arrays(
        edge_index=np.empty((2, 0), np.int64),
        x=draw_values(rng, 4),
        y=labels,
        train_idx=np.arange(COUNT),
        num_classes=CLASSES,
    )
    reads = [rng.integers(0, COUNT, rng.integers(0, 4)) for _ in range(COUNT)]
    indptr = np.cumsum([0] + [len(each) for each in reads], dtype=np.int64)
    lists = BoundedLists(indptr=indptr, indices=np.concatenate(reads).astype(np.int32))
    model = GNN(4, CLASSES, num_layers=1, hidden=5)
    plain, weighted = (Clipping(kind=kind, clip=0.7, class_weights=each) for each in (None, weights))
    for root in range(COUNT):
        batch = tree_batch(grow(lists, [root], 1), Features(graph), graph.y)
        norms = [norm(ghost.clipped_sum(model, batch, rule)) for rule in (plain, weighted)]
        check(norms[0], norms[1], weights[labels[root]] if labels[root] >= 0 else 0.0, 0.7)
