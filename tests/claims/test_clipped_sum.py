"""The fast clipped sum is that of one root at a time, and no root gives more than C, whatever its data."""

from __future__ import annotations

import copy
import dataclasses
import math
from functools import cache
from typing import NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor

import reference
from bounded_lists import owners_of
from hushgraph.gradients import clip, ghost
from hushgraph.gradients.batch import TreeBatch, tree_batch
from hushgraph.gradients.clip import GROUPS, Clipping, group_of
from hushgraph.graph.graph import Graph
from hushgraph.inputs.features import Features
from hushgraph.models.gnn import GNN
from hushgraph.sampling.lists import BoundedLists
from hushgraph.sampling.trees import grow

# An even GAT has no attention: it weighs its reads alike.
MODELS = pytest.mark.parametrize("name", ["gcn", "gin", "gat", "even gat", "mlp"])
DEPTHS = pytest.mark.parametrize("depth", [0, 1, 2, 3])
ACTIVATIONS = pytest.mark.parametrize("activation", ["tanh", "relu"])
KINDS = pytest.mark.parametrize("kind", ["flat", "groups", "normalised"])
# The kind and the activation are far apart in the code: pairs suffice.
KINDS_AND_ACTIVATIONS = pytest.mark.parametrize(
    ("kind", "activation"), [("flat", "tanh"), ("flat", "relu"), ("groups", "relu"), ("normalised", "tanh")]
)
Sums = dict[str, Tensor]


def lists_of(reads: list[list[int]]) -> BoundedLists:
    indptr = np.cumsum([0] + [len(row) for row in reads], dtype=np.int64)
    return BoundedLists(indptr=indptr, indices=np.concatenate(reads).astype(np.int32))


def graph_of(x: np.ndarray, y: np.ndarray) -> Graph:
    return Graph.from_arrays(
        edge_index=np.empty((2, 0), np.int64),
        x=x.astype(np.float32),
        y=y,
        train_idx=np.arange(len(y)),
        num_classes=3,
    )


class Case(NamedTuple):
    """A model, the graph it trains on, and what every root's gradient is, one at a time and in float64."""

    model: GNN
    graph: Graph
    lists: BoundedLists
    roots: list[int]
    gradients: list[Sums]

    def batch(self, roots: list[int]) -> TreeBatch:
        return tree_batch(grow(self.lists, roots, self.model.depth), Features(self.graph), self.graph.y)

    def clipping(self, kind: str) -> Clipping:
        """With a C that about half of the roots exceed."""
        norms = [norm(gradient) for gradient in self.gradients]
        return Clipping(kind=kind, clip=float(np.median(norms)))


@cache
def case(name: str, depth: int, activation: str) -> Case:
    rng = np.random.default_rng(depth)
    # 30 nodes of 200 take part, so small batches look up distinct nodes and large ones take all features.
    reads: list[list[int]] = [[] for _ in range(200)]
    for node in range(30):
        if rng.random() < 0.8:
            reads[node] = rng.integers(0, 30, rng.integers(1, 4)).tolist()
    reads[3], reads[4], reads[5] = [7, 7, 7], [], [5, 5]
    labels = rng.integers(0, 3, 200)
    labels[2] = -1
    graph, lists = graph_of(rng.standard_normal((200, 7)), labels), lists_of(reads)
    torch.manual_seed(depth)
    model = GNN(
        7,
        3,
        model=name.removeprefix("even "),
        attends=not name.startswith("even "),
        num_layers=depth,
        hidden=8,
        encoder_layers=2,
        decoder_layers=2,
        activation=activation,
    )
    with torch.no_grad():
        for parameter in model.parameters():
            # With weights as small as at the start three layers turn all nodes into nearly the same row.
            parameter.mul_(2)
    roots = [0, 2, 3, 4, 5, 12, *rng.integers(0, 30, 12).tolist()]
    slow = copy.deepcopy(model).double()
    gradients = [reference.root_gradient(slow, graph, lists, root, model.depth) for root in roots]
    return Case(model, graph, lists, roots, gradients)


def norm(sums: Sums) -> float:
    return math.sqrt(sum(float(value.double().square().sum()) for value in sums.values()))


def added(many: list[Sums]) -> Sums:
    return {name: torch.stack([sums[name] for sums in many]).sum(0) for name in many[0]}


def worst_error(found: Sums, expected: Sums) -> float:
    """Largest relative error of a tensor.

    A tensor whose truth is zero (the bias of attention keys, which moves all scores of a softmax alike) or
    nearly so (a sum that cancels) is measured against a hundredth of the whole gradient: a float32 gradient,
    that of autograd too, misses such a tensor by this much.
    """
    assert found.keys() == expected.keys()
    least = 1e-2 * norm(expected)
    return max(
        float((found[name].double() - value).norm()) / max(float(value.norm()), least)
        for name, value in expected.items()
    )


def assert_same(found: Sums, expected: Sums) -> None:
    assert all(bool(value.isfinite().all()) for value in found.values())
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=1e-5, atol=1e-6, check_dtype=False, msg=name)


@MODELS
@DEPTHS
@KINDS_AND_ACTIVATIONS
def test_clipped_sums_equal_the_reference(
    name: str, depth: int, kind: str, activation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The margin for rounding is larger where rows cancel, which one root at a time does not see.
    monkeypatch.setattr(clip, "ROUNDING_MARGIN", 0.0)
    it = case(name, depth, activation)
    clipping = it.clipping(kind)
    expected = added([reference.clipped(gradient, clipping) for gradient in it.gradients])
    # In one micro-batch and in many, and in one that is computed in parts.
    for size, part in ((len(it.roots), 8192), (4, 8192), (len(it.roots), 4)):
        monkeypatch.setattr("hushgraph.gradients.batch._PART_ROOTS", part)
        pieces = [it.roots[at : at + size] for at in range(0, len(it.roots), size)]
        found = added([ghost.clipped_sum(it.model, it.batch(piece), clipping) for piece in pieces])
        assert worst_error(found, expected) < 1e-5, (size, part)


@MODELS
@KINDS
@pytest.mark.parametrize("depth", [0, 2])
def test_no_root_gives_more_than_c(name: str, depth: int, kind: str) -> None:
    it = case(name, depth, "tanh")
    clipping = dataclasses.replace(it.clipping(kind), stability=0.0)
    limits = clipping.thresholds or (clipping.clip,) * 3
    singles = {root: ghost.clipped_sum(it.model, it.batch([root]), clipping) for root in set(it.roots)}
    whole = ghost.clipped_sum(it.model, it.batch(it.roots), clipping)
    tight = False
    for at, root in enumerate(it.roots):
        assert norm(singles[root]) <= clipping.clip * (1 + 1e-6)
        for group in range(len(GROUPS)):
            part = {key: value for key, value in singles[root].items() if group_of(key) == group}
            assert norm(part) <= limits[group] * (1 + 1e-6)
            tight |= norm(part if kind == "groups" else singles[root]) > 0.999 * limits[group]
        others = ghost.clipped_sum(it.model, it.batch(it.roots[:at] + it.roots[at + 1 :]), clipping)
        by_difference = {key: whole[key].double() - others[key].double() for key in whole}
        # Both are float32 sums over all roots, which leaves less than a millionth of each root's C.
        assert norm(by_difference) <= clipping.clip * (1 + 1e-6 * len(it.roots))
    assert tight


def rows_that_cancel(rng: np.random.Generator, width: int, apart: float, scale: float) -> np.ndarray:
    """Rows of one root in two halves that are nearly each other's opposite, all nearly the same."""
    row = rng.standard_normal(width)
    signs = np.repeat([1.0, -1.0], 60)[:, None]
    return scale * signs * (row + apart * np.repeat(rng.standard_normal((2, width)), 60, axis=0))


def hostile_rows(width: int) -> dict[str, np.ndarray]:
    """Features of what one root reads: float32 [120, width] each."""
    rng = np.random.default_rng(0)
    draws = rng.standard_normal((120, width))
    rows = {
        f"cancelling by {apart:g}, scale {scale:g}": rows_that_cancel(rng, width, apart, scale)
        for apart in (0, 1e-4, 3e-4, 1e-3, 1e-2)
        for scale in (0.05, 1e4)
    }
    rows |= {
        f"scale {scale:g}": scale * draws for scale in (1e-42, 1e-30, 1e-10, 1e4, 1e10, 1e18, 1e30, 3e37)
    }
    rows |= {
        "zero": np.zeros((120, width)),
        "one large row": np.where(np.arange(120)[:, None] == 7, 1e15, 1.0) * draws,
        "one large column": np.where(np.arange(width) == 3, 1e15, 1e-15) * draws,
        "every scale": draws * 10.0 ** rng.uniform(-40, 35, (120, width)),
    }
    return rows


HOSTILE_CLIPPINGS = (
    Clipping(kind="flat", clip=1e-3),
    Clipping(kind="flat", clip=1.0),
    Clipping(kind="groups", clip=1e-6),
    Clipping(stability=0.0),
)


@pytest.mark.parametrize("name", ["gcn", "gin", "gat"])
@ACTIVATIONS
@pytest.mark.parametrize(
    ("size", "of_encoder", "of_others"),
    [(16, 1.0, 1.0), (16, 1e-6, 1e-6), (16, 30.0, 30.0), (256, 1e-6, 1.0)],
)
def test_no_hostile_data_gives_more_than_c(
    name: str, activation: str, size: int, of_encoder: float, of_others: float
) -> None:
    torch.manual_seed(1)
    model = GNN(size, 3, model=name, hidden=size, activation=activation)
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            # Without bias, opposite inputs have opposite effects, so that gradients cancel.
            in_encoder = of_encoder * (not key.endswith("bias"))
            parameter.mul_(in_encoder if key.startswith("encoder") else of_others)
    lists = lists_of([[*range(1, 121)], *[[]] * 120])
    largest = 0.0
    for number, (kind, rows) in enumerate(hostile_rows(size).items()):
        # With 256 columns norms come from products of rows; with 16 the gradient is formed.
        if size == 256 and "cancelling" not in kind:
            continue
        graph = graph_of(np.concatenate([rows[:1], rows]), np.arange(121) % 3)
        batch = tree_batch(grow(lists, [0], 1), Features(graph), graph.y)
        # Each kind of rows meets two ways to clip with tanh and the other two with relu.
        for clipping in HOSTILE_CLIPPINGS[(number + (activation == "relu")) % 2 :: 2]:
            sums = ghost.clipped_sum(model, batch, clipping)
            assert all(bool(value.isfinite().all()) for value in sums.values())
            largest = max(largest, norm(sums) / clipping.clip)
            for group, limit in enumerate(clipping.thresholds or ()):
                part = {key: value for key, value in sums.items() if group_of(key) == group}
                assert norm(part) <= limit * (1 + 1e-6)
    assert 0.99 < largest <= 1 + 1e-6


def with_rows(batch: TreeBatch, rows: Tensor, value: float) -> TreeBatch:
    x = batch.x.clone()
    x[rows, 0] = value
    return dataclasses.replace(batch, x=x)


@MODELS
@pytest.mark.parametrize("depth", [0, 1, 2])
@KINDS_AND_ACTIVATIONS
def test_what_is_not_finite_cannot_pass_the_clip(name: str, depth: int, kind: str, activation: str) -> None:
    # The graph refuses such features, so they are put into the tensors.
    it = case(name, depth, activation)
    clipping = it.clipping(kind)
    trees = grow(it.lists, it.roots, it.model.depth)
    features = Features(it.graph)
    batch = tree_batch(trees, features, it.graph.y)
    bad = 12
    hit = [root for at, root in enumerate(it.roots) if bad in trees.nodes[owners_of(trees)[-1] == at]]
    assert 0 < len(hit) < len(it.roots)
    index = batch.blocks[-1].index if batch.is_shared else None
    rows = torch.from_numpy(trees.nodes == bad)
    kept = [root for root in it.roots if root not in hit]
    expected = ghost.clipped_sum(it.model, it.batch(kept), clipping)
    for value in (math.nan, math.inf, -math.inf, 3e38):
        planted = with_rows(batch, rows if index is None else index[rows], value)
        assert_same(ghost.clipped_sum(it.model, planted, clipping), expected)
