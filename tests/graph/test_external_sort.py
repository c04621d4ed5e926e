"""Sorting on disk: the same compressed rows as in memory, however often parts are cut again."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hushgraph.errors import GraphError
from hushgraph.graph import external_sort as sorted_reads
from hushgraph.graph.external_sort import write_reads
from hushgraph.graph.graph import Graph


def by_hand(edges: np.ndarray, num_nodes: int, *, symmetrize: bool) -> Graph:
    return Graph.from_arrays(
        edge_index=edges,
        x=np.zeros((num_nodes, 1)),
        y=np.zeros(num_nodes, int),
        train_idx=[0],
        symmetrize=symmetrize,
    )


@pytest.mark.parametrize("num_nodes", [2, 7, 256, 257, 3000])
@pytest.mark.parametrize("symmetrize", [False, True])
@pytest.mark.parametrize("largest", [1 << 24, 5])
def test_the_same_rows_as_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, num_nodes: int, symmetrize: bool, largest: int
) -> None:
    monkeypatch.setattr(sorted_reads, "LARGEST_PART", largest)
    edges = np.random.default_rng(num_nodes).integers(0, num_nodes, (2, 600))
    # A hub, which no cutting by readers makes smaller.
    edges[1, :100] = 1
    chunks = ((edges[0, i : i + 250], edges[1, i : i + 250]) for i in range(0, 600, 250))
    kept, repeats, loops = write_reads(tmp_path, chunks, num_nodes=num_nodes, symmetrize=symmetrize)
    wanted = by_hand(edges, num_nodes, symmetrize=symmetrize)
    np.testing.assert_array_equal(np.load(tmp_path / "reads_indptr.npy"), wanted.indptr)
    np.testing.assert_array_equal(np.load(tmp_path / "reads_indices.npy"), wanted.indices)
    assert (kept, loops) == (wanted.num_edges, wanted.self_loops_removed)
    assert repeats == (0 if symmetrize else wanted.duplicates_removed)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["reads_indices.npy", "reads_indptr.npy"]


def test_no_edges_at_all(tmp_path: Path) -> None:
    assert write_reads(tmp_path, [], num_nodes=3) == (0, 0, 0)
    assert np.load(tmp_path / "reads_indptr.npy").tolist() == [0, 0, 0, 0]
    assert np.load(tmp_path / "reads_indices.npy").size == 0


def test_an_end_that_is_no_node_is_named_and_nothing_stays(tmp_path: Path) -> None:
    chunks = [(np.array([0]), np.array([1])), (np.array([0, 1]), np.array([1, 3]))]
    with pytest.raises(GraphError, match="target in chunk 1, position 1 is 3; expected a node from 0 to 2"):
        write_reads(tmp_path, chunks, num_nodes=3)
    assert list(tmp_path.iterdir()) == []
