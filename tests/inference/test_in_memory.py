"""Whole-graph scores: full neighbourhoods, in one block or many; accuracies against counts done by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import hushgraph as hg
from hushgraph.errors import InputError
from hushgraph.graph.graph import Graph
from hushgraph.inference.in_memory import WholeGraph, evaluate, scores
from hushgraph.inputs.features import Features
from hushgraph.models.gnn import GNN
from hushgraph.tasks.classes import ClassEvaluation


@pytest.fixture
def graph() -> Graph:
    return hg.datasets.synthetic(num_nodes=90, num_classes=3, num_features=7, average_degree=6, seed=2)


def dense_gcn(model: GNN, graph: Graph) -> torch.Tensor:
    """The same by matrices: (d + I)^-1 (A + I)."""
    adjacency = np.eye(graph.num_nodes)
    for reader in range(graph.num_nodes):
        adjacency[reader, graph.indices[graph.indptr[reader] : graph.indptr[reader + 1]]] = 1
    mean = torch.from_numpy(adjacency / adjacency.sum(1, keepdims=True)).float()
    h = model.encoder(torch.from_numpy(graph.dense_features(np.arange(graph.num_nodes))))
    for layer in model.layers:
        h = torch.tanh(layer.linear(mean @ h))
    return model.decoder(h)


@pytest.mark.parametrize("layers", [0, 1, 2, 3])
def test_scores_are_the_dense_formula(graph: Graph, layers: int) -> None:
    model = GNN(7, 3, num_layers=layers, hidden=8)
    torch.testing.assert_close(scores(model, graph), dense_gcn(model, graph).detach(), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("name", ["gcn", "gin", "gat", "mlp"])
def test_blocks_give_the_same_as_the_whole(graph: Graph, name: str) -> None:
    model = GNN(7, 3, model=name, num_layers=2, hidden=8, feature_norm=6.0)
    whole = scores(model, graph)
    for floats in (1, 300, 5000):
        cut = WholeGraph(graph, Features(graph), block_floats=floats)
        torch.testing.assert_close(scores(model, cut), whole, atol=1e-5, rtol=1e-4)
        # Kept blocks must serve a second look as well.
        torch.testing.assert_close(scores(model, cut), whole, atol=1e-5, rtol=1e-4)


def test_sparse_features_give_the_same(graph: Graph) -> None:
    from scipy import sparse

    twin = Graph.from_arrays(
        edge_index=np.stack([np.concatenate(ends) for ends in zip(*graph.edge_chunks(), strict=True)]),
        x=sparse.csr_array(graph.dense_features(np.arange(graph.num_nodes))),
        y=graph.y,
        train_idx=graph.train_idx,
        num_classes=3,
    )
    model = GNN(7, 3, num_layers=1, hidden=8)
    torch.testing.assert_close(scores(model, twin), scores(model, graph))


def test_another_graph_with_other_columns_is_refused(graph: Graph) -> None:
    other = hg.datasets.synthetic(num_nodes=30, num_classes=3, num_features=9, average_degree=3, seed=0)
    with pytest.raises(InputError, match="9 features, the model was trained on 7"):
        scores(GNN(7, 3), other)


def test_the_mode_of_the_model_is_left_alone(graph: Graph) -> None:
    model = GNN(7, 3).train()
    scores(model, graph)
    assert model.training


def labelled(labels: np.ndarray, num_classes: int) -> Graph:
    """A graph without edges that has these labels."""
    return Graph.from_arrays(
        edge_index=np.empty((2, 0), int),
        x=np.zeros((len(labels), 1)),
        y=labels,
        train_idx=[0],
        num_classes=num_classes,
    )


def test_by_hand() -> None:
    labels = np.array([0, 0, 0, 1, 1, -1, 2, 3])
    predicted = np.array([0, 0, 1, 1, 0, 0, 1, 0])
    found = evaluate(predicted, labelled(labels, 4), np.arange(7))
    assert isinstance(found, ClassEvaluation)
    assert found.figures["accuracy"] == 3 / 6
    np.testing.assert_array_equal(found.class_counts, [3, 2, 1, 0])
    np.testing.assert_allclose(found.class_accuracy, [2 / 3, 1 / 2, 0, np.nan])
    # Class 0: precision 2/3, recall 2/3. Class 1: precision 1/3, recall 1/2. Class 2: never predicted.
    assert found.figures["macro_f1"] == np.mean([2 / 3, 0.4, 0.0])


def test_nothing_to_look_at() -> None:
    assert evaluate(np.zeros(3, int), labelled(np.array([-1, -1, 0]), 2), np.array([0, 1])) is None
    assert evaluate(np.zeros(3, int), labelled(np.zeros(3, int), 2), np.array([], int)) is None
