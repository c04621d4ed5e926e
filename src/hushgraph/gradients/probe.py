"""Trying a model on made-up data: do roots stay apart, and do its layers see all there is to clip?"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from hushgraph.errors import ModelError
from hushgraph.gradients import ghost
from hushgraph.gradients.batch import TreeBatch, tree_batch
from hushgraph.gradients.clip import GROUPS, Clipping, group_of
from hushgraph.graph.graph import Graph
from hushgraph.graph.records import Relation, RelationInfo
from hushgraph.graph.shares import find_shares
from hushgraph.inputs.features import Features
from hushgraph.models.blocks import Reads
from hushgraph.sampling.lists import BoundedLists
from hushgraph.sampling.trees import grow

_ROOTS = [0, 1, 2, 3, 4]
# A long list, an empty one, shared nodes, and no two roots with equally large trees.
_READS: tuple[list[int], ...] = (
    [5, 6, 7, 2],
    [],
    [8, 5],
    [5],
    [9, 8, 6],
    [0, 1],
    [],
    [10, 10],
    [3],
    [],
    [11, 4],
    [],
)


def find_offences(
    model: nn.Module,
    *,
    num_features: int,
    num_outputs: int,
    depth: int,
    relations: Sequence[RelationInfo],
) -> list[str]:
    """What a copy of `model` does wrong on made-up features and trees, in words."""
    rng = np.random.default_rng(0)
    num_nodes = len(_READS)
    # Features in [0, 1): a model that takes some as indices finds index 0, which every Embedding has.
    graph = Graph.from_arrays(
        edge_index=np.empty((2, 0), np.int64),
        x=rng.random((num_nodes, num_features), dtype=np.float32),
        y=rng.integers(0, num_outputs, num_nodes),
        train_idx=np.arange(num_nodes),
        num_classes=num_outputs,
    )
    lists = BoundedLists(
        indptr=np.cumsum([0] + [len(reads) for reads in _READS], dtype=np.int64),
        indices=np.concatenate(_READS).astype(np.int32),
    )
    lists = dataclasses.replace(
        lists, shares=find_shares(_make_up(relations, rng), lists.indptr, lists.indices)
    )
    batch, *alone = (
        tree_batch(grow(lists, roots, depth), Features(graph), graph.y)
        for roots in (_ROOTS, *([root] for root in _ROOTS))
    )
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(0)
        try:
            tried = copy.deepcopy(model).cpu().eval()
            for parameter in tried.parameters():
                # Weights that begin at zero would hide what lies behind them.
                parameter.add_(0.05 * torch.randn_like(parameter))
            offences = _shape(tried, batch, num_outputs)
            if not offences:
                offences = [*_buffers(tried, batch), *_mixing(tried, batch)]
                offences += _clipping(tried, batch, alone)
        except ModelError as error:
            return [str(error)]
        except Exception as error:
            reason = (str(error).splitlines() or [""])[0]
            return [
                f"on made-up data it failed with {type(error).__name__}: {reason}: expected forward(x, "
                f"blocks) with x [rows, {num_features}] and {depth} blocks"
            ]
    return offences


def _make_up(relations: Sequence[RelationInfo], rng: np.random.Generator) -> list[Relation]:
    """Records of these relations, about half of the reads in each."""
    readers = np.repeat(np.arange(len(_READS)), [len(reads) for reads in _READS])
    pairs = np.stack([np.concatenate(_READS).astype(np.int64), readers])
    records = []
    for each in relations:
        some = pairs[:, rng.random(pairs.shape[1]) < (0.5 if len(relations) > 1 else 1.0)]
        weights = rng.uniform(0.5, 1.5, len(some[0])) if each.is_weighted else None
        records.append(Relation.between_people(each.name, some, num_nodes=len(_READS), weights=weights))
    return records


def _shape(model: nn.Module, batch: TreeBatch, num_outputs: int) -> list[str]:
    shape = tuple(model(batch.dense_x, batch.blocks).shape)
    expected = (batch.num_roots, num_outputs)
    if shape == expected:
        return []
    return [f"it gives scores of shape {shape} for {batch.num_roots} roots: expected {expected}"]


def _buffers(model: nn.Module, batch: TreeBatch) -> list[str]:
    """Buffers that training would fill with private data that nobody clips."""
    trained = copy.deepcopy(model).train()
    before = {name: buffer.clone() for name, buffer in trained.named_buffers()}
    trained(batch.dense_x, batch.blocks)
    return [
        f"buffer {name} is updated in training: use layers without running statistics"
        for name, buffer in trained.named_buffers()
        if name not in before or not torch.equal(before[name], buffer)
    ]


def _mixing(model: nn.Module, batch: TreeBatch) -> list[str]:
    """Whether the scores of other roots move when the rows of the first root do."""
    x, blocks = _apart(batch)
    changed = x.clone()
    rows = changed[: int(batch.pointers[-1][1])]
    rows.copy_(torch.rand_like(rows))
    for training in (False, True):
        scores = []
        for features in (x, changed):
            torch.manual_seed(0)
            scores.append(copy.deepcopy(model).train(training)(features, blocks)[1:])
        if not torch.allclose(scores[0], scores[1], rtol=1e-4, atol=1e-5):
            return [
                "it mixes examples: the scores of a root change with the rows of another; use blocks to "
                "combine rows and LayerNorm to normalise them"
            ]
    return []


def _clipping(model: nn.Module, batch: TreeBatch, alone: list[TreeBatch]) -> list[str]:
    """Parameters whose clipped sum is not that of one root at a time."""
    clipping = Clipping(kind="flat", clip=1e-3)
    wrong: list[str] = []
    for training in (False, True) if _is_deterministic(model, batch) else (False,):
        tried = copy.deepcopy(model).train(training)
        with torch.enable_grad():
            fast = ghost.clipped_sum(tried, batch, clipping)
            slow = _sum_one_by_one(tried, alone, clipping)
        total = torch.stack([value.norm() for value in slow.values()]).norm()
        for name, value in slow.items():
            close = (fast[name] - value).norm() <= 1e-3 * value.norm() + 1e-6 * total
            if not bool(close) and name not in wrong:
                wrong.append(name)
    if not wrong:
        return []
    return [
        f"per-root gradients of {', '.join(wrong)} cannot be told apart: call layers as modules, not through "
        "their weights, on one row per node of a level and in the order of the rows"
    ]


def _sum_one_by_one(model: nn.Module, alone: list[TreeBatch], clipping: Clipping) -> dict[str, Tensor]:
    """The clipped sum, from the gradient of one root after another over its own tree, by autograd."""
    parameters = dict(model.named_parameters())
    total = {name: torch.zeros_like(parameter) for name, parameter in parameters.items()}
    for one in alone:
        loss = one.loss(model(*_apart(one)), one.labels).sum()
        gradients = torch.autograd.grad(loss, list(parameters.values()), allow_unused=True)
        reached = {name: g for name, g in zip(parameters, gradients, strict=True) if g is not None}
        squares = torch.zeros(len(GROUPS), 1)
        for name, gradient in reached.items():
            squares[group_of(name)] += gradient.square().sum()
        factors = clipping.factors(squares, squares).float()
        for name, gradient in reached.items():
            total[name] += gradient * factors[group_of(name)]
    return total


def _is_deterministic(model: nn.Module, batch: TreeBatch) -> bool:
    scores = []
    for seed in (0, 1):
        torch.manual_seed(seed)
        scores.append(copy.deepcopy(model).train()(batch.dense_x, batch.blocks))
    return torch.equal(scores[0], scores[1])


def _apart(batch: TreeBatch) -> tuple[Tensor, tuple[Reads, ...]]:
    """Features and blocks with a row of its own for every entry."""
    if not batch.is_shared:
        return batch.dense_x, batch.blocks
    x = batch.dense_x[batch.blocks[-1].index]
    return x, (*batch.blocks[:-1], dataclasses.replace(batch.blocks[-1], index=None, num_lower=x.shape[0]))
