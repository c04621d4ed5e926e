"""Shares of reads: by eye, of kept reads, of weights of every size, of several relations."""

from __future__ import annotations

import numpy as np

from hushgraph.graph.records import Relation
from hushgraph.graph.shares import find_shares

# Node 3 reads 0, 1 and 2; node 0 reads 1.
EDGES = np.array([[0, 1, 2, 1], [3, 3, 3, 0]])
INDPTR, INDICES = np.array([0, 1, 1, 1, 4]), np.array([1, 0, 1, 2], np.int32)


def weigh(*weights: float) -> Relation:
    return Relation.between_people("pays", EDGES, num_nodes=4, weights=np.array(weights))


def test_a_share_is_a_weight_over_the_sum_of_its_reader() -> None:
    shares = find_shares([weigh(1.0, 2.0, 5.0, 0.25)], INDPTR, INDICES)
    assert shares is not None
    assert shares.tolist() == [[1.0, 0.125, 0.25, 0.625]]


def test_only_reads_that_are_kept_count() -> None:
    shares = find_shares([weigh(1.0, 2.0, 3.0, 4.0)], np.array([0, 0, 0, 0, 2]), np.array([0, 2], np.int32))
    assert shares is not None
    assert shares.tolist() == [[0.25, 0.75]]


def test_repeats_are_summed_and_what_counts_as_0_is_no_read() -> None:
    edges = np.array([[0, 0, 1, 2], [3, 3, 3, 3]])
    relation = Relation.between_people("pays", edges, num_nodes=4, weights=np.array([1.0, 2.0, 1.0, 0.0]))
    assert relation.indices.tolist() == [0, 1]
    shares = find_shares([relation], relation.indptr, relation.indices)
    assert shares is not None
    assert shares.tolist() == [[0.75, 0.25]]


def test_no_sum_overflows_and_none_vanishes() -> None:
    for size in (1e-300, 1.0, 1.7e308):
        shares = find_shares([weigh(size, size, size, size)], INDPTR, INDICES)
        assert shares is not None
        np.testing.assert_allclose(shares, [[1, 1 / 3, 1 / 3, 1 / 3]], rtol=1e-6)


def test_every_relation_has_shares_of_its_own() -> None:
    calls = Relation.between_people("calls", np.array([[0, 2], [3, 3]]), num_nodes=4)
    shares = find_shares([weigh(1.0, 3.0, 0.0, 1.0), calls], INDPTR, INDICES)
    assert shares is not None
    assert shares.tolist() == [[1.0, 0.25, 0.75, 0.0], [0.0, 0.5, 0.0, 0.5]]


def test_reads_that_all_count_the_same_have_none() -> None:
    calls = Relation.between_people("calls", EDGES, num_nodes=4)
    uses = Relation.to_places("uses", np.array([0]), np.array([1]), num_nodes=4, num_places=2)
    assert find_shares([], INDPTR, INDICES) is None
    assert find_shares([calls], INDPTR, INDICES) is None
    assert find_shares([calls, uses], INDPTR, INDICES) is None
    assert find_shares([calls, calls], INDPTR, INDICES) is not None
