"""Records of a relation: a pair that is recorded often is one record, whatever other records there are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hushgraph.errors import GraphError
from hushgraph.graph.records import Relation

NODES = 40


def test_a_sum_of_weights_depends_on_the_records_of_its_pair_alone() -> None:
    """Not on whether others list the same node, nor on the order of the edges: bit for bit."""
    rng = np.random.default_rng(0)
    for _ in range(20):
        edges = np.stack([rng.integers(1, NODES, 300), np.zeros(300, np.int64)])
        weights = np.where(rng.random(300) < 0.1, 0.0, rng.random(300))
        everybody = Relation.between_people("pays", edges, num_nodes=NODES, weights=weights)
        kept = rng.permutation(np.flatnonzero(edges[0] != 1))
        others = Relation.between_people("pays", edges[:, kept], num_nodes=NODES, weights=weights[kept])
        is_same = everybody.indices != 1
        assert np.array_equal(everybody.indices[is_same], others.indices)
        assert np.array_equal(everybody.weights[is_same], others.weights)  # type: ignore[index]


def test_sums_by_eye() -> None:
    """Weights that are not finite and above 0 are no records, and neither is an infinite sum."""
    edges = np.array([[0, 2, 0, 1, 0, 1, 1], [1, 1, 1, 2, 2, 2, 0]])
    weights = np.array([1.0, 0.5, 2.0, 1e308, np.nan, 1e308, np.inf])
    relation = Relation.between_people("pays", edges, num_nodes=3, weights=weights)
    assert relation.list_pairs().tolist() == [[1, 1], [0, 2]]
    assert relation.weights is not None
    assert relation.weights.tolist() == [3.0, 0.5]


@pytest.mark.parametrize("weights", [None, np.ones(2)])
@pytest.mark.parametrize(("edges", "words"), [
    ([[0, 3], [1, 2]], r"relation 'pays', places\[1\]=3: expected 0..2; there are 3 places"),
    ([[0, 2], [-1, 1]], r"relation 'pays', rows\[0\]=-1: expected 0..2; there are 3 nodes"),
])  # fmt: skip
def test_ends_that_are_not_there_are_refused(weights: Any, edges: Any, words: str) -> None:
    with pytest.raises(GraphError, match=words):
        Relation.between_people("pays", np.array(edges), num_nodes=3, weights=weights)
