"""Splits along communities."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hushgraph.datasets import load_graph, synthetic
from hushgraph.datasets.catalog import clustering
from hushgraph.datasets.catalog.clustering import clustered_split, find_communities
from hushgraph.errors import GraphError
from hushgraph.graph.graph import Graph

ARXIV = Path(__file__).parents[4] / "shared" / "data" / "ogbn_arxiv_hints.npz"


def crossing(graph: Graph, parts: tuple[np.ndarray, ...]) -> float:
    """The share of reads between parts."""
    part = np.empty(graph.num_nodes, np.int64)
    for number, nodes in enumerate(parts):
        part[nodes] = number
    return float(np.mean(part[graph.indices] != np.repeat(part, np.diff(graph.indptr))))


def cliques(*sizes: int) -> Graph:
    """Complete graphs in a chain, each joined to the next by one edge."""
    edges: list[tuple[int, int]] = []
    begin = 0
    for size in sizes:
        edges += [(begin + i, begin + j) for i in range(size) for j in range(i)]
        edges += [(begin - 1, begin)] if begin else []
        begin += size
    return Graph.from_arrays(
        edge_index=np.array(edges).T,
        x=np.zeros((begin, 1)),
        y=np.zeros(begin, int),
        train_idx=[0],
        symmetrize=True,
    )


def test_cliques_are_communities(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = cliques(8, 6, 5)
    assert find_communities(graph).tolist() == [0] * 8 + [1] * 6 + [2] * 5
    # Large first, each to the part that lacks most.
    monkeypatch.setattr(clustering, "_FRACTIONS", (0.26, 0.42, 0.32))
    parts = [nodes.tolist() for nodes in clustered_split(graph)]
    assert parts == [[14, 15, 16, 17, 18], list(range(8)), list(range(8, 14))]


def test_every_node_is_in_one_part_and_few_edges_cross() -> None:
    graph = synthetic(num_nodes=3_000, homophily=0.95)
    parts = clustered_split(graph)
    assert sorted(np.concatenate(parts)) == list(range(3_000))
    assert [len(part) / 3_000 for part in parts] == pytest.approx([0.67, 0.18, 0.15], abs=0.1)
    by_id = tuple(np.split(np.arange(3_000), [2_010, 2_550]))
    assert crossing(graph, parts) < 0.25 * crossing(graph, by_id)
    assert all(np.array_equal(a, b) for a, b in zip(parts, clustered_split(graph), strict=True))


def test_no_edges() -> None:
    graph = synthetic(num_nodes=100, average_degree=0)
    assert [len(part) for part in clustered_split(graph)] == [67, 18, 15]


def test_refused() -> None:
    with pytest.raises(GraphError, match="needs an undirected graph; symmetrize it first"):
        clustered_split(synthetic(num_nodes=100, directed=True))


def test_the_graph_of_the_paper() -> None:
    if not ARXIV.is_file():
        pytest.skip("the graph of ogbn-arxiv is not here")
    graph = load_graph(ARXIV, symmetrize=True)
    parts = clustered_split(graph)
    assert [len(part) / graph.num_nodes for part in parts] == pytest.approx([0.67, 0.18, 0.15], abs=0.002)
    # The paper's own clusters leave an average degree of 13.0.
    assert 13.7 * (1 - crossing(graph, parts)) == pytest.approx(13.0, abs=0.25)
