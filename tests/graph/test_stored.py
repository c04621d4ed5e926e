"""A stored graph gives the same lists, weights and predictions as the same graph in memory."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import sparse

import hushgraph as hg
from hushgraph.errors import GraphError
from hushgraph.gradients.batch import Features
from hushgraph.graph import mapped
from hushgraph.graph.stored import StoredGraph
from hushgraph.inference import stored as stored_inference
from hushgraph.inference.in_memory import WholeGraph, best_classes, scores
from hushgraph.models.gnn import GNN
from hushgraph.sampling.stable import stable_lists

GRAPH = hg.datasets.synthetic(num_nodes=400, num_classes=3, seed=2)


@pytest.fixture
def stored(tmp_path: Path) -> StoredGraph:
    return hg.datasets.store(GRAPH, tmp_path / "graph")


def lists_of(graph: Any, owner: str) -> Any:
    return stable_lists(
        graph,
        num_nodes=graph.num_nodes,
        train_mask=graph.train_mask,
        max_readers=3,
        max_reads=4,
        edge_owner=owner,  # type: ignore[arg-type]
        seed=9,
    )


@pytest.mark.parametrize("owner", ["sender", "reader"])
def test_the_same_lists(stored: StoredGraph, owner: str) -> None:
    assert lists_of(stored, owner) == lists_of(GRAPH, owner)


@pytest.mark.parametrize(
    "settings", [{"max_readers": 3, "num_layers": 1}, {"max_readers": 2, "num_layers": 2}, {}], ids=str
)
def test_sparse_features_give_the_same_run(tmp_path: Path, settings: dict[str, Any]) -> None:
    """Trees and, by default, a billboard: in memory, and from sparse rows on disk."""
    graph = replace(GRAPH, x=sparse.csr_array(np.where(GRAPH.x > 0.5, GRAPH.x, 0)))
    stored = hg.datasets.store(graph, tmp_path / "graph")
    assert sparse.issparse(stored.x)
    common: dict[str, Any] = {"epsilon": 4.0, "steps": 4, "hidden": 8, "device": "cpu", "seed": 3}
    common |= {"method": "trees"} if settings else {}
    expected, actual = (hg.train(data, **common, **settings) for data in (graph, stored.folder))
    for ours, theirs in zip(actual.model.parameters(), expected.model.parameters(), strict=True):
        assert torch.equal(ours, theirs)
    assert actual.result["test_accuracy"] == expected.result["test_accuracy"]
    np.testing.assert_array_equal(actual.predict(stored.folder), expected.predict(graph))


@pytest.mark.parametrize(("layers", "batch_size"), [(1, 30), (2, 30), (1, len(GRAPH.train_idx))])
def test_the_same_weights_and_accuracies(stored: StoredGraph, layers: int, batch_size: int) -> None:
    settings: dict[str, Any] = {"epsilon": 4.0, "steps": 4, "hidden": 8, "device": "cpu", "seed": 3}
    settings |= {"num_layers": layers, "batch_size": batch_size, "evaluate_every": 2}
    expected = hg.train(GRAPH, **settings)
    actual = hg.train(stored.folder, **settings)
    for ours, theirs in zip(actual.model.parameters(), expected.model.parameters(), strict=True):
        assert torch.equal(ours, theirs)
    for name in ("val_accuracy", "test_accuracy", "epsilon"):
        assert actual.result[name] == expected.result[name]
    assert [m["val_accuracy"] for m in actual.metrics] == [m["val_accuracy"] for m in expected.metrics]
    np.testing.assert_array_equal(actual.predict(stored.folder), expected.predict(GRAPH))
    assert actual.evaluate(stored) is not None


def test_the_same_inductive_weights(stored: StoredGraph) -> None:
    settings: dict[str, Any] = {"epsilon": 4.0, "steps": 3, "hidden": 8, "device": "cpu", "seed": 3}
    expected, actual = (hg.train(g, setting="inductive", **settings) for g in (GRAPH, stored))
    for ours, theirs in zip(actual.model.parameters(), expected.model.parameters(), strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("name", ["gcn", "gin", "gat", "mlp"])
@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("small", [False, True])
def test_the_same_scores(
    stored: StoredGraph, monkeypatch: pytest.MonkeyPatch, name: str, layers: int, small: bool
) -> None:
    if small:
        # Blocks of a few rows, latent rows in files, pages let go after every block.
        monkeypatch.setattr(stored_inference, "BLOCK_FLOATS", 1000)
        monkeypatch.setattr(stored_inference, "LATENT_IN_MEMORY", 0)
        monkeypatch.setattr(mapped, "MAPPED_BYTES", 0)
    torch.manual_seed(0)
    model = GNN(GRAPH.num_features, 3, model=name, num_layers=layers, hidden=20)  # type: ignore[arg-type]
    expected = scores(model, GRAPH)
    torch.testing.assert_close(scores(model, stored), expected, atol=1e-5, rtol=1e-5)
    batch = WholeGraph(stored, Features(stored))
    asked = np.array([17, 3, 3, 399])
    best = best_classes(model, batch, asked, depth=model.depth)
    assert best[asked].tolist() == expected.argmax(1)[asked].tolist()
    assert (np.delete(best, asked) == -1).all()
    assert model.training


class Rows(torch.nn.Module):
    """Not built in: looks at every row alone."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(GRAPH.num_features, 3)

    def forward(self, x: torch.Tensor, blocks: Any) -> torch.Tensor:
        output: torch.Tensor = self.inner(x)
        return output


def test_modules_of_the_caller_take_the_whole_graph(stored: StoredGraph) -> None:
    model = Rows()
    torch.testing.assert_close(scores(model, stored, depth=0), scores(model, GRAPH, depth=0))
    best = best_classes(model, WholeGraph(stored, Features(stored)), np.array([1]), depth=0)
    assert best.tolist() == scores(model, GRAPH, depth=0).argmax(1).tolist()


def test_features_are_not_loaded_where_they_are_many(
    stored: StoredGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hushgraph.gradients import batch

    assert Features(stored).shares_all(10**6)
    monkeypatch.setattr(batch, "_LOADED_BYTES", 0)
    assert not Features(stored).shares_all(10**6)
    assert Features(GRAPH).shares_all(10**6)
    rows = np.array([5, 1, 5])
    assert torch.equal(Features(stored).rows(rows), Features(GRAPH).rows(rows))


def test_other_graphs_from_a_stored_one(stored: StoredGraph) -> None:
    changes = [
        (stored.disjoint(), GRAPH.disjoint()),
        (stored.symmetrized(), GRAPH.symmetrized()),
        (stored.with_row_emptied(3, "sender"), GRAPH.with_row_emptied(3, "sender")),
        (stored.in_memory(), GRAPH),
    ]
    for actual, expected in changes:
        for name in ("indptr", "indices", "x", "y", "train_idx"):
            np.testing.assert_array_equal(getattr(actual, name), getattr(expected, name))
    # The file itself was not changed by any of them.
    np.testing.assert_array_equal(hg.datasets.load_graph(stored.folder).x, GRAPH.x)


@pytest.mark.parametrize("shards", [1, 3, 7])
def test_shards_are_all_reads_once(stored: StoredGraph, shards: int) -> None:
    for graph in (stored, GRAPH):
        parts = [np.stack(c) for i in range(shards) for c in graph.edge_chunks(50, shard=i, shards=shards)]
        all_chunks = [np.stack(chunk) for chunk in GRAPH.edge_chunks()]
        np.testing.assert_array_equal(np.concatenate(parts, 1), np.concatenate(all_chunks, 1))
    with pytest.raises(GraphError, match="shard=3, shards=3"):
        list(GRAPH.edge_chunks(shard=3, shards=3))
