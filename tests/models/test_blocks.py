"""Reads on a tree and a whole graph, checked by eye, and their gradients against dense matrices."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from torch import Tensor

from hushgraph.errors import ModelError
from hushgraph.inference.in_memory import build_reads
from hushgraph.models.blocks import Frontier, Reads

# Two roots: the first reads two rows, the second none. Rows 0 and 3 are copies of the roots.
TREE = Reads(indptr=torch.tensor([0, 3, 4]), index=None, num_lower=4)
TREE_ROWS = torch.tensor([[1.0, 10.0], [2.0, 20.0], [6.0, 0.0], [5.0, 7.0]])

# 0 reads 1 and 2, 1 reads 0, 2 reads nobody.
GRAPH = build_reads(np.array([0, 2, 3, 3]), np.array([1, 2, 0]))
GRAPH_ROWS = torch.tensor([[1.0, 10.0], [2.0, 20.0], [6.0, 0.0]])


def matrix_of(reads: Reads, coefficients: Tensor) -> Tensor:
    """The dense matrix of a weighted sum, float64 [upper rows, lower rows]."""
    index = torch.arange(reads.num_entries) if reads.index is None else reads.index
    matrix = torch.zeros(reads.num_upper, reads.num_lower, dtype=torch.float64)
    return matrix.index_put((reads.parents, index), coefficients.double(), accumulate=True)


def test_a_tree_counts_its_entries() -> None:
    assert (TREE.num_upper, TREE.num_entries) == (2, 4)
    assert TREE.counts.tolist() == [3.0, 1.0]
    assert TREE.parents.tolist() == [0, 0, 0, 1]
    assert TREE.is_self.tolist() == [1.0, 0.0, 0.0, 1.0]


def test_the_whole_graph_has_every_node_itself_first() -> None:
    assert GRAPH.index is not None
    assert GRAPH.index.tolist() == [0, 1, 2, 1, 0, 2]
    assert GRAPH.indptr.tolist() == [0, 3, 5, 6]
    assert GRAPH.num_lower == 3


def test_a_tree_by_eye() -> None:
    torch.testing.assert_close(TREE.mean(TREE_ROWS), torch.tensor([[3.0, 10.0], [5.0, 7.0]]))
    assert TREE.own(TREE_ROWS).tolist() == [[1.0, 10.0], [5.0, 7.0]]
    assert TREE.sum_of_reads(TREE_ROWS).tolist() == [[8.0, 20.0], [0.0, 0.0]]
    assert TREE.entries(TREE_ROWS, lambda h: 2 * h).tolist() == (2 * TREE_ROWS).tolist()
    assert TREE.sum_of_entries(TREE_ROWS).tolist() == [[9.0, 30.0], [5.0, 7.0]]


def test_a_whole_graph_by_eye() -> None:
    torch.testing.assert_close(GRAPH.mean(GRAPH_ROWS), torch.tensor([[3.0, 10.0], [1.5, 15.0], [6.0, 0.0]]))
    assert GRAPH.own(GRAPH_ROWS).tolist() == GRAPH_ROWS.tolist()
    assert GRAPH.sum_of_reads(GRAPH_ROWS).tolist() == [[8.0, 20.0], [1.0, 10.0], [0.0, 0.0]]
    assert GRAPH.entries(GRAPH_ROWS, lambda h: -h)[:, 0].tolist() == [-1.0, -2.0, -6.0, -2.0, -1.0, -6.0]
    assert GRAPH.sum_of_entries(torch.ones(6, 1)).tolist() == [[3.0], [2.0], [1.0]]


def test_softmax_is_over_the_entries_of_a_row() -> None:
    scores = torch.tensor([[0.0, 500.0], [0.0, 0.0], [float(np.log(2)), 0.0], [-300.0, 3.0]])
    expected = torch.tensor([[0.25, 1.0], [0.25, 0.0], [0.5, 0.0], [1.0, 1.0]])
    torch.testing.assert_close(TREE.softmax(scores), expected)


def test_the_softmax_has_the_gradient_of_a_dense_softmax() -> None:
    scores = torch.randn(4, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    assert torch.autograd.gradcheck(TREE.softmax, scores.requires_grad_())


@pytest.mark.parametrize("name", ["mean", "sum_of_reads", "own"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("reads", [TREE, GRAPH], ids=["tree", "graph"])
def test_sums_and_their_gradients_are_those_of_the_dense_matrix(
    name: str, dtype: torch.dtype, reads: Reads
) -> None:
    coefficients = {"mean": reads.mean_weights, "sum_of_reads": 1 - reads.is_self, "own": reads.is_self}[name]
    generator = torch.Generator().manual_seed(2)
    h = torch.randn(reads.num_lower, 3, generator=generator, dtype=torch.float64).to(dtype).requires_grad_()
    weights = torch.randn(reads.num_upper, 3, generator=generator, dtype=torch.float64)
    found = getattr(reads, name)(h)
    (gradient,) = torch.autograd.grad((found * weights.to(dtype)).sum(), h)
    matrix = matrix_of(reads, coefficients)
    assert found.dtype == gradient.dtype == dtype
    torch.testing.assert_close(found.double(), matrix @ h.detach().double(), rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(gradient.double(), matrix.T @ weights, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", ["mean", "sum_of_reads", "own"])
def test_a_frontier_keeps_the_gradient_of_every_entry(name: str) -> None:
    frontier = Frontier()
    reads = dataclasses.replace(GRAPH, frontier=frontier)
    h = GRAPH_ROWS.clone().requires_grad_()
    weights = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    found = getattr(reads, name)(h)
    torch.testing.assert_close(found, getattr(GRAPH, name)(GRAPH_ROWS))
    (found * weights).sum().backward()
    assert h.grad is None
    ((upper, parents, coefficients),) = frontier.gradients
    assert parents is not None
    assert coefficients is not None
    assert torch.equal(upper, weights)
    entries = coefficients[:, None] * upper[parents]
    added_up = torch.zeros(3, 2).index_add(0, GRAPH.index, entries)
    (expected,) = torch.autograd.grad((getattr(GRAPH, name)(h) * weights).sum(), h)
    torch.testing.assert_close(added_up, expected)


def test_entries_at_a_frontier_are_expanded_before_the_layer() -> None:
    frontier = Frontier()
    reads = dataclasses.replace(GRAPH, frontier=frontier)
    seen = []

    def through(rows: Tensor) -> Tensor:
        seen.append(rows.shape[0])
        return 3 * rows

    h = GRAPH_ROWS.clone().requires_grad_()
    reads.entries(h, through).sum().backward()
    GRAPH.entries(h, through)
    assert seen == [6, 3]
    ((upper, parents, coefficients),) = frontier.gradients
    assert torch.equal(upper, torch.full((6, 2), 3.0))
    assert parents is None
    assert coefficients is None


def test_a_tree_has_no_transpose() -> None:
    with pytest.raises(RuntimeError, match="needs no transpose"):
        _ = TREE.by_lower


# Row 0 reads rows 1 and 2, row 1 nothing, row 2 row 0; shares by hand.
WEIGHTED = Reads(
    indptr=torch.tensor([0, 3, 4, 6]),
    index=torch.tensor([0, 1, 2, 1, 2, 0]),
    num_lower=3,
    shares=torch.tensor([[0.0, 0.25, 0.75, 0.0, 0.0, 1.0]]),
)
RELATED = dataclasses.replace(
    WEIGHTED,
    shares=torch.tensor([[0.0, 0.25, 0.75, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0, 0.0, 1.0]]),
)
SEEN = torch.tensor([[1.0], [10.0], [100.0]])


def test_weighted_reads_by_eye() -> None:
    assert WEIGHTED.read_weights.tolist() == [0.0, 0.5, 1.5, 0.0, 0.0, 1.0]
    torch.testing.assert_close(WEIGHTED.mean(SEEN), torch.tensor([[156.0 / 3], [10.0], [50.5]]))
    torch.testing.assert_close(WEIGHTED.sum_of_reads(SEEN), torch.tensor([[155.0], [0.0], [1.0]]))
    # Attention by even scores has the weights that the mean has.
    shares = WEIGHTED.softmax(torch.zeros(6, 1))[:, 0]
    torch.testing.assert_close(shares, torch.tensor([1.0, 0.5, 1.5, 3.0, 1.5, 1.5]) / 3)


def test_relations_have_means_of_their_own_and_count_the_same_together() -> None:
    torch.testing.assert_close(RELATED.mean_of_relation(SEEN, 0), torch.tensor([[77.5], [0.0], [0.0]]))
    torch.testing.assert_close(RELATED.mean_of_relation(SEEN, 1), torch.tensor([[10.0], [0.0], [1.0]]))
    torch.testing.assert_close(RELATED.read_weights, torch.tensor([0.0, 1.25, 0.75, 0.0, 0.0, 1.0]))
    torch.testing.assert_close(RELATED.sum_of_reads(SEEN), torch.tensor([[87.5], [0.0], [1.0]]))


def test_reads_without_relations_have_no_mean_of_one() -> None:
    with pytest.raises(ModelError, match="relation=1: these reads are of one relation"):
        GRAPH.mean_of_relation(GRAPH_ROWS, 1)
