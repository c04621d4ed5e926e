"""Reads built from edges in chunks, compared with SciPy's matrices."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from hushgraph.graph.graph import cut_edges
from hushgraph.graph.reads import build_reads, lacks_reverse

EDGES = st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), max_size=60)


@settings(max_examples=200, deadline=None)
@given(
    edges=EDGES,
    symmetrize=st.booleans(),
    size=st.integers(1, 20),
    dtype=st.sampled_from([np.int16, np.int64]),
)
def test_reads_are_those_of_a_matrix(
    edges: list[tuple[int, int]], symmetrize: bool, size: int, dtype: type
) -> None:
    array = np.array(edges, dtype).reshape(-1, 2).T
    built = build_reads(cut_edges(array, 9, size), 9, symmetrize=symmetrize)
    kept = [edge for edge in edges if edge[0] != edge[1]]
    matrix = np.zeros((9, 9), bool)
    for source, target in set(kept):
        matrix[target, source] = True
    expected = sparse.csr_array(matrix | matrix.T if symmetrize else matrix)
    assert built.indptr.tolist() == expected.indptr.tolist()
    assert built.indices.tolist() == expected.indices.tolist()
    assert built.indices.dtype == np.int32
    assert built.self_loops == len(edges) - len(kept)
    assert built.duplicates == len(kept) - len(set(kept))
    full = expected.toarray()
    assert lacks_reverse(built.indptr, built.indices) is bool((full != full.T).any())


@pytest.mark.parametrize("symmetrize", [False, True])
def test_rows_that_are_long(symmetrize: bool) -> None:
    rng = np.random.default_rng(0)
    edges = np.stack([rng.integers(0, 500, 20_000), rng.integers(0, 3, 20_000)])
    built = build_reads(cut_edges(edges, 500), 500, symmetrize=symmetrize)
    matrix = sparse.coo_array((np.ones(20_000), (edges[1], edges[0])), shape=(500, 500)).toarray() > 0
    np.fill_diagonal(matrix, False)
    expected = sparse.csr_array(matrix | matrix.T if symmetrize else matrix)
    assert np.array_equal(built.indptr, expected.indptr)
    assert np.array_equal(built.indices, expected.indices)
