"""Reads built from edges in chunks, compared with SciPy's matrices."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from hushgraph import _arrays
from hushgraph.graph.checks import cut_edges
from hushgraph.graph.reads import build_reads, lacks_reverse

EDGES = st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), max_size=60)


@contextmanager
def arrays_on_disk(is_on_disk: bool) -> Iterator[None]:
    """Keep arrays of all sizes in files, or none."""
    if not is_on_disk:
        yield
        return
    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch.object(_arrays, "_LEAST_MAPPED", 1),
        _arrays.keep_on_disk(Path(folder), memory=1 << 30),
    ):
        yield


@pytest.mark.parametrize("is_on_disk", [False, True])
@settings(max_examples=200, deadline=None)
@given(
    edges=EDGES,
    symmetrize=st.booleans(),
    size=st.integers(1, 20),
    dtype=st.sampled_from([np.int16, np.int64]),
)
def test_reads_are_those_of_a_matrix(
    edges: list[tuple[int, int]], symmetrize: bool, size: int, dtype: type, is_on_disk: bool
) -> None:
    array = np.array(edges, dtype).reshape(-1, 2).T
    with arrays_on_disk(is_on_disk):
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


@pytest.mark.parametrize("is_on_disk", [False, True])
@pytest.mark.parametrize("symmetrize", [False, True])
def test_rows_that_are_long(symmetrize: bool, is_on_disk: bool) -> None:
    """On disk, with several rows in a block."""
    rng = np.random.default_rng(0)
    edges = np.stack([rng.integers(0, 5000, 20_000), rng.integers(0, 3, 20_000)])
    with arrays_on_disk(is_on_disk):
        built = build_reads(cut_edges(edges, 5000, 7000), 5000, symmetrize=symmetrize)
    matrix = sparse.coo_array((np.ones(20_000), (edges[1], edges[0])), shape=(5000, 5000)).toarray() > 0
    np.fill_diagonal(matrix, False)
    expected = sparse.csr_array(matrix | matrix.T if symmetrize else matrix)
    assert np.array_equal(built.indptr, expected.indptr)
    assert np.array_equal(built.indices, expected.indices)
