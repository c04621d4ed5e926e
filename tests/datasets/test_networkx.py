"""NetworkX graphs: attributes become features, labels and splits, and mistakes name the node."""

from __future__ import annotations

from typing import Any

import networkx as nx
import numpy as np
import pandas
import pytest

from hushgraph.datasets import from_networkx, load_graph
from hushgraph.errors import GraphError


def people(kind: Any = nx.Graph, **changes: Any) -> Any:
    graph = kind()
    graph.add_node("ann", x=[1.0, 0.5], age=30, y=1, colour="red", split="train")
    graph.add_node("bob", x=[2.0, 0.0], age=40, y=0, colour="blue", split="val")
    graph.add_node(("c", 3), x=[3.0, 1.0], age=50, split="train")
    graph.add_edges_from([("ann", "bob"), ("bob", ("c", 3)), ("bob", "bob")])
    graph.nodes["bob"].update(changes)
    return graph


def test_attributes_become_arrays() -> None:
    graph = from_networkx(people())
    assert graph.x.tolist() == [[1, 0.5], [2, 0], [3, 1]]
    assert graph.y.tolist() == [1, 0, -1]
    assert (graph.train_idx.tolist(), graph.val_idx.tolist()) == ([0, 2], [1])
    assert graph.node_names is not None
    assert graph.node_names.tolist() == ["ann", "bob", ("c", 3)]
    assert (graph.indptr.tolist(), graph.indices.tolist()) == ([0, 1, 3, 4], [1, 0, 2, 1])
    assert not graph.is_directed
    np.testing.assert_array_equal(load_graph(people()).indices, graph.indices)


def test_named_attributes_classes_and_a_drawn_split() -> None:
    graph = from_networkx(people(), features=["age"], label="colour", classes=["blue", "red"], split="1/0/0")
    assert graph.x.tolist() == [[30], [40], [50]]
    assert graph.y.tolist() == [1, 0, -1]
    assert graph.num_classes == 2
    assert graph.train_idx.tolist() == [0, 1, 2]


def test_the_head_of_an_edge_reads_its_tail() -> None:
    graph = load_graph(people(nx.MultiDiGraph), split="1/0/0")
    assert (graph.indptr.tolist(), graph.indices.tolist()) == ([0, 0, 1, 2], [0, 1])
    assert graph.is_directed
    assert load_graph(people(nx.DiGraph), symmetrize=True).num_edges == 4


def test_predictions_need_no_labels() -> None:
    odd = people(y="unknown", split="dev")
    graph = load_graph(odd, labels=False, num_classes=2)
    assert (graph.y.tolist(), graph.train_idx.tolist()) == ([-1, -1, -1], [0, 1, 2])
    aged = from_networkx(odd, features=["age"], labels=False)
    assert (aged.x.tolist(), aged.y.tolist()) == ([[30], [40], [50]], [-1, -1, -1])
    assert aged.node_names is not None


@pytest.mark.parametrize(
    ("changes", "options", "wanted"),
    [
        ({"x": None}, {}, "node 'bob' has no attribute 'x'"),
        ({"x": [1.0]}, {}, "node attribute 'x' must be a number, or a list of numbers of one length"),
        ({"x": "tall"}, {}, "node attribute 'x' must be a number"),
        ({"x": [1.0, float("nan")]}, {}, "node 'bob': feature 1 is nan"),
        ({}, {"features": ["x"]}, r"node attribute 'x' has shape \[2\] at each node"),
        ({}, {"features": []}, "features is empty"),
        ({"y": -1}, {}, "node 'bob': y=-1; expected a number from 0"),
        ({"y": "red"}, {}, r"node 'bob': y='red'; .*give classes"),
        ({}, {"label": "colour", "classes": ["red"]}, "node 'bob': colour='blue'; expected one of 1 classes"),
        ({"split": "dev"}, {}, "node 'bob': split='dev'; expected train, val or test"),
        ({"split": pandas.NA}, {}, "node 'bob': split=<NA>; expected train, val or test"),
        ({"x": 10**400}, {}, "node attribute 'x' must be a number"),
        ({"y": 10**30}, {}, "node 'bob': y=10+; expected a number from 0"),
        ({"owner": [1]}, {"person": "owner"}, r"persons\[1\]=\[1\]; expected a text or a number"),
        ({}, {"split": "part"}, "no node has part='train'; .* labels=False for a graph to predict on"),
    ],
)
def test_mistakes_name_the_node(changes: dict[str, Any], options: dict[str, Any], wanted: str) -> None:
    with pytest.raises(GraphError, match=wanted):
        from_networkx(people(**changes), **options)


def test_other_objects_are_refused() -> None:
    with pytest.raises(GraphError, match="graph is a dict; expected a NetworkX graph"):
        from_networkx({})


def test_weights_that_are_no_numbers_count_as_0() -> None:
    graph = people(nx.DiGraph)
    for weight, (u, w) in zip((10**400, 2.0, pandas.NA), graph.edges, strict=True):
        graph.edges[u, w]["paid"] = weight
    relation = load_graph(graph, edge_weight="paid").relations[0]
    assert relation.weights is not None
    assert (relation.list_pairs().tolist(), relation.weights.tolist()) == ([[2], [1]], [2.0])
