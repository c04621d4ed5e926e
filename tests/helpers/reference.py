"""The clipped gradient sum, one root at a time: slow and obvious. Tests compare the fast one with it."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from hushgraph.gradients.clip import GROUPS, Clipping, group_of
from hushgraph.graph.graph import Graph
from hushgraph.models.blocks import Reads
from hushgraph.sampling.lists import BoundedLists
from hushgraph.sampling.trees import grow


def root_gradient(
    model: nn.Module, graph: Graph, lists: BoundedLists, root: int, depth: int
) -> dict[str, Tensor]:
    """Gradient of the loss of one root over its own tree, by autograd; zeros where it has no label."""
    trees = grow(lists, [root], depth)
    dtype = next(model.parameters()).dtype
    x = torch.from_numpy(graph.dense_features(trees.nodes)).to(dtype)
    blocks = tuple(
        Reads(indptr=torch.from_numpy(b.indptr), index=None, num_lower=b.num_lower_rows) for b in trees.blocks
    )
    parameters = dict(model.named_parameters())
    label = torch.tensor([int(graph.y[root])])
    if label.item() < 0:
        return {name: torch.zeros_like(p) for name, p in parameters.items()}
    loss = functional.cross_entropy(model(x, blocks), label)
    gradients = torch.autograd.grad(loss, list(parameters.values()), allow_unused=True)
    return {
        name: torch.zeros_like(p) if g is None else g
        for (name, p), g in zip(parameters.items(), gradients, strict=True)
    }


def clipped(gradient: dict[str, Tensor], clipping: Clipping) -> dict[str, Tensor]:
    """One root's gradient after clipping."""
    squares = torch.zeros(len(GROUPS), 1, dtype=next(iter(gradient.values())).dtype)
    for name, value in gradient.items():
        squares[group_of(name)] += value.square().sum()
    factors = clipping.factors(squares, squares).to(squares.dtype)
    return {name: value * factors[group_of(name)] for name, value in gradient.items()}


def clipped_sum(
    model: nn.Module, graph: Graph, lists: BoundedLists, roots: list[int], depth: int, clipping: Clipping
) -> dict[str, Tensor]:
    """Per parameter, the sum of the clipped gradients of `roots`."""
    total = {name: torch.zeros_like(p) for name, p in model.named_parameters()}
    for root in roots:
        for name, value in clipped(root_gradient(model, graph, lists, root, depth), clipping).items():
            total[name] += value
    return total
