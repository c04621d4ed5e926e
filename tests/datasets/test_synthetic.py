"""Generated graphs: sizes, reproducibility, and edges that tell more than features."""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt
import pytest
from scipy import sparse

from hushgraph.datasets import synthetic
from hushgraph.errors import GraphError
from hushgraph.graph.graph import Graph


def fingerprint(graph: Graph) -> str:
    digest = hashlib.sha256()
    for part in (graph.indptr, graph.indices, graph.x, graph.y, graph.train_idx, graph.test_idx):
        digest.update(np.ascontiguousarray(part).tobytes())
    return digest.hexdigest()


def linear_accuracy(graph: Graph, features: npt.NDArray[np.float32]) -> float:
    """Test accuracy of a logistic regression by gradient descent with momentum."""
    table = np.c_[(features - features.mean(0)) / (features.std(0) + 1e-6), np.ones(graph.num_nodes)]
    train, wanted = table[graph.train_idx], np.eye(graph.num_classes)[graph.y[graph.train_idx]]
    weights = np.zeros((table.shape[1], graph.num_classes))
    speed = np.zeros_like(weights)
    for _ in range(150):
        scores = np.exp(train @ weights)
        speed = 0.9 * speed + train.T @ (scores / scores.sum(1, keepdims=True) - wanted) / len(train)
        weights -= 0.3 * speed
    return float(np.mean((table[graph.test_idx] @ weights).argmax(1) == graph.y[graph.test_idx]))


def test_default_statistics() -> None:
    graph = synthetic()
    assert (graph.num_nodes, graph.num_classes, graph.num_features) == (20_000, 8, 64)
    assert not graph.is_directed
    degree = np.diff(graph.indptr)
    assert degree.mean() == pytest.approx(12, rel=0.05)
    assert degree.max() > 10 * degree.mean()
    shares = [len(part) / 20_000 for part in (graph.train_idx, graph.val_idx, graph.test_idx)]
    assert shares == pytest.approx([0.6, 0.2, 0.2], abs=0.015)
    assert set(np.unique(graph.x)) == {0.0, 1.0}


def test_homophily_is_what_was_asked_for() -> None:
    for homophily in (0.0, 0.5, 1.0):
        graph = synthetic(num_nodes=5_000, num_classes=5, homophily=homophily)
        readers = np.repeat(graph.y, np.diff(graph.indptr))
        wanted = homophily + (1 - homophily) / 5
        assert np.mean(graph.y[graph.indices] == readers) == pytest.approx(wanted, abs=0.03)


def test_neighbours_tell_more_than_features() -> None:
    graph = synthetic(num_nodes=6_000)
    reads = sparse.csr_array((np.ones(graph.num_edges, np.float32), graph.indices, graph.indptr))
    averaged = (reads @ graph.x + graph.x) / (np.diff(graph.indptr) + 1)[:, None]
    alone, together = linear_accuracy(graph, graph.x), linear_accuracy(graph, averaged)
    assert 0.25 < alone < 0.5
    assert together > alone + 0.25


def test_same_seed_same_graph() -> None:
    small = {"num_nodes": 300, "num_features": 6, "num_classes": 3}
    assert fingerprint(synthetic(**small, seed=4)) == fingerprint(synthetic(**small, seed=4))
    assert fingerprint(synthetic(**small, seed=4)) != fingerprint(synthetic(**small, seed=5))


def test_classes_of_unequal_size() -> None:
    counts = np.bincount(synthetic(num_nodes=20_000, num_classes=4, class_skew=1.0).y)
    assert counts / 20_000 == pytest.approx(np.array([12, 6, 4, 3]) / 25, abs=0.015)


def test_directed() -> None:
    graph = synthetic(num_nodes=4_000, directed=True)
    assert graph.is_directed
    reads, readers = np.diff(graph.indptr), np.bincount(graph.indices, minlength=4_000)
    assert reads.mean() == pytest.approx(12, rel=0.05)
    assert readers.max() > 5 * reads.max()


def test_extremes() -> None:
    assert synthetic(num_nodes=30, num_classes=40).num_classes == 40
    assert synthetic(num_nodes=50, average_degree=0).num_edges == 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_nodes": 0}, "^num_nodes=0: expected at least 1; average_degree=.* expected 0..0"),
        ({"num_classes": 0}, "^num_classes=0: expected at least 1$"),
        ({"num_features": 0}, "^num_features=0: expected at least 1$"),
        ({"average_degree": -1}, "average_degree=-1: expected 0..20000"),
        ({"homophily": 1.5}, "^homophily=1.5: expected 0..1$"),
        ({"feature_signal": 0.8}, "^feature_signal=0.8: expected 0..0.7$"),
        ({"exponent": 2.0}, "^exponent=2.0: expected a number above 2$"),
        ({"class_skew": -1.0}, "class_skew=-1.0: expected 0..10"),
    ],
)
def test_refused(changes: dict[str, float], message: str) -> None:
    with pytest.raises(GraphError, match=message):
        synthetic(**changes)  # type: ignore[arg-type]
