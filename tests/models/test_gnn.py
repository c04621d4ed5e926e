"""The models: dense formulas written here, and trees against the whole graph."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from hushgraph.gradients.batch import tree_batch
from hushgraph.graph.graph import Graph
from hushgraph.inference.in_memory import build_reads
from hushgraph.inputs.features import Features
from hushgraph.models.gnn import GNN, GATLayer, GCNLayer, GINLayer, Scale, mlp
from hushgraph.sampling.lists import BoundedLists
from hushgraph.sampling.trees import grow

# 0 reads 1 and 2; 1 reads 0; 2 reads 0, 1 and 3; 3 reads nobody.
ADJACENCY = torch.tensor([[0, 1, 1, 0], [1, 0, 0, 0], [1, 1, 0, 1], [0, 0, 0, 0]], dtype=torch.float64)
GRAPH = build_reads(np.array([0, 2, 3, 6, 6]), np.array([1, 2, 0, 0, 1, 3]))


def rows(seed: int = 0) -> Tensor:
    return torch.randn(4, 6, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def linear(layer: nn.Linear, h: Tensor) -> Tensor:
    return h @ layer.weight.T + layer.bias


def dense_gcn(layer: GCNLayer, h: Tensor) -> Tensor:
    degrees = ADJACENCY.sum(1)
    normalised = torch.diag(1 / (degrees + 1)) @ (ADJACENCY + torch.eye(4))
    return torch.tanh(normalised @ h @ layer.linear.weight.T + layer.linear.bias)


def dense_gin(layer: GINLayer, h: Tensor) -> Tensor:
    summed = (1 + layer.scale.epsilon) * h + ADJACENCY @ h
    return torch.tanh(linear(layer.mlp[2], torch.tanh(linear(layer.mlp[0], summed))))


def dense_gat(layer: GATLayer, h: Tensor) -> Tensor:
    query, key, value = (linear(part, h) for part in (layer.query, layer.key, layer.value))
    allowed = ADJACENCY + torch.eye(4) > 0
    heads = []
    for head in range(layer.heads):
        columns = slice(head * layer.head_size, (head + 1) * layer.head_size)
        scores = query[:, columns] @ key[:, columns].T / math.sqrt(layer.head_size)
        heads.append(scores.masked_fill(~allowed, -math.inf).softmax(1) @ value[:, columns])
    return torch.tanh(linear(layer.output, torch.cat(heads, 1)))


def dense_even(layer: GATLayer, h: Tensor) -> Tensor:
    weights = (ADJACENCY + torch.eye(4)) / (ADJACENCY.sum(1, keepdim=True) + 1)
    return torch.tanh(linear(layer.output, weights @ linear(layer.value, h)))


LAYERS: dict[str, tuple[Callable[[], nn.Module], Callable[..., Tensor]]] = {
    "gcn": (lambda: GCNLayer(6, "tanh"), dense_gcn),
    "gin": (lambda: GINLayer(6, "tanh"), dense_gin),
    "gat": (lambda: GATLayer(6, "tanh", heads=4), dense_gat),
    "gat that does not attend": (lambda: GATLayer(6, "tanh", heads=4, attends=False), dense_even),
}


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_is_its_dense_formula(name: str) -> None:
    torch.manual_seed(1)
    make, formula = LAYERS[name]
    layer = make().double()
    with torch.no_grad():
        if isinstance(layer, GINLayer):
            layer.scale.epsilon.fill_(0.3)
        torch.testing.assert_close(layer(rows(), GRAPH), formula(layer, rows()), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_has_the_gradients_of_its_dense_formula(name: str) -> None:
    torch.manual_seed(2)
    make, formula = LAYERS[name]
    layer = make().double()
    inputs = [rows().requires_grad_(), *layer.parameters()]
    found = torch.autograd.grad((layer(inputs[0], GRAPH) * rows(3)).sum(), inputs)
    expected = torch.autograd.grad((formula(layer, inputs[0]) * rows(3)).sum(), inputs)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-7)


def test_attention_heads_cover_the_size() -> None:
    layer = GATLayer(6, "relu")
    assert (layer.heads, layer.head_size) == (10, 1)
    assert layer.query.weight.shape == (10, 6)
    assert layer.output.weight.shape == (6, 10)


def random_graph() -> tuple[Graph, BoundedLists]:
    rng = np.random.default_rng(5)
    pairs = np.unique(rng.integers(0, 9, (2, 20)), axis=1)
    graph = Graph.from_arrays(
        edge_index=pairs,
        x=rng.standard_normal((9, 5)).astype(np.float32),
        y=rng.integers(0, 3, 9),
        train_idx=np.arange(9),
        num_classes=3,
    )
    return graph, BoundedLists(indptr=graph.indptr, indices=graph.indices.astype(np.int32))


@pytest.mark.parametrize("activation", ["tanh", "relu"])
@pytest.mark.parametrize("depth", [0, 1, 2, 3])
@pytest.mark.parametrize("name", ["gcn", "gin", "gat", "mlp"])
def test_full_trees_give_the_scores_of_the_whole_graph(name: str, depth: int, activation: str) -> None:
    graph, lists = random_graph()
    torch.manual_seed(depth)
    model = GNN(5, 3, model=name, num_layers=depth, hidden=8, encoder_layers=2, activation=activation)
    assert model.depth == (0 if name == "mlp" else depth)
    features = Features(graph)
    roots = [7, 0, 3, 3]
    batch = tree_batch(grow(lists, roots, model.depth), features, graph.y)
    whole = (build_reads(graph.indptr, graph.indices),) * model.depth
    with torch.no_grad():
        on_trees, on_graph = model(batch.x, batch.blocks), model(features.all(), whole)
    assert on_graph.shape == (9, 3)
    torch.testing.assert_close(on_trees, on_graph[roots], rtol=1e-5, atol=1e-6)


def test_the_encoder_and_decoder_have_the_layers_asked_for() -> None:
    model = GNN(5, 3, hidden=7, encoder_layers=2, decoder_layers=3, activation="relu")
    shapes = [tuple(m.weight.shape) for m in model.modules() if isinstance(m, nn.Linear)]
    assert shapes == [(7, 5), (7, 7), (7, 7), (7, 7), (7, 7), (3, 7)]
    assert [type(m) for m in model.encoder] == [nn.Linear, nn.ReLU] * 2
    assert [type(m) for m in model.decoder] == [nn.Linear, nn.ReLU, nn.Linear, nn.ReLU, nn.Linear]


def test_features_are_scaled_row_by_row() -> None:
    x = torch.tensor([[3.0, 4.0], [0.0, 0.0], [0.0, -1e-3]])
    assert GNN(2, 3, hidden=4).scaled(x) is x
    scaled = GNN(2, 3, hidden=4, feature_norm=10.0).scaled(x)
    torch.testing.assert_close(scaled, torch.tensor([[6.0, 8.0], [0.0, 0.0], [0.0, -10.0]]))


def test_an_mlp_without_last_activation_ends_in_a_linear_layer() -> None:
    assert [type(m) for m in mlp([2, 3, 4], "tanh", activate_last=False)] == [nn.Linear, nn.Tanh, nn.Linear]


def test_scale_begins_as_the_identity() -> None:
    scale = Scale()
    assert torch.equal(scale(torch.ones(2, 3)), torch.ones(2, 3))
    scale.epsilon.data.fill_(0.5)
    assert torch.equal(scale(torch.ones(2, 3)), torch.full((2, 3), 1.5))


def test_a_model_wants_one_block_a_layer() -> None:
    graph, lists = random_graph()
    batch = tree_batch(grow(lists, [0], 1), Features(graph), graph.y)
    with pytest.raises(ValueError, match="zip"):
        GNN(5, 3, num_layers=2, hidden=4)(batch.x, batch.blocks)
