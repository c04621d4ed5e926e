"""Trees as tensors: features once per distinct node, blocks that point to them, owners of every row."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from scipy import sparse

from hushgraph.gradients.batch import tree_batch
from hushgraph.graph.graph import Graph
from hushgraph.inputs.features import Features
from hushgraph.sampling.lists import BoundedLists
from hushgraph.sampling.trees import grow

# 0 reads 1 and 2, 1 reads 2, 2 reads nobody.
LISTS = BoundedLists(indptr=np.array([0, 2, 3, *[3] * 98]), indices=np.array([1, 2, 2], dtype=np.int32))


def graph_of(x: Any) -> Graph:
    return Graph.from_arrays(
        edge_index=np.empty((2, 0), np.int64),
        x=x,
        y=np.arange(x.shape[0]) % 4 - 1,
        train_idx=np.arange(x.shape[0]),
        num_classes=3,
    )


DENSE = np.arange(200, dtype=np.float32).reshape(100, 2)


@pytest.mark.parametrize("x", [DENSE, sparse.csr_array(DENSE)], ids=["dense", "sparse"])
def test_distinct_nodes_are_taken_once(x: Any) -> None:
    batch = tree_batch(grow(LISTS, [0, 1, 2], 2), Features(graph_of(x)), np.arange(100))
    # Root 0: (0: 0 1 2) (1: 1 2) (2: 2); root 1: (1: 1 2) (2: 2); root 2: (2: 2).
    nodes = [0, 1, 2, 1, 2, 2, 1, 2, 2, 2]
    assert batch.is_shared
    assert batch.dense_x.tolist() == DENSE[:3].tolist()
    assert batch.blocks[-1].index.tolist() == nodes
    assert batch.blocks[0].index is None
    assert [pointers.tolist() for pointers in batch.pointers] == [[0, 1, 2, 3], [0, 3, 5, 6], [0, 6, 9, 10]]
    assert [owners.tolist() for owners in batch.owners] == [
        [0, 1, 2],
        [0, 0, 0, 1, 1, 2],
        [0, 0, 0, 0, 0, 0, 1, 1, 1, 2],
    ]
    assert batch.labels.tolist() == [0, 1, 2]


def test_a_batch_that_touches_most_of_the_graph_takes_all_features() -> None:
    graph = graph_of(DENSE)
    trees = grow(LISTS, np.arange(100), 1)
    batch = tree_batch(trees, Features(graph), graph.y)
    assert batch.x.shape == (100, 2)
    assert batch.blocks[-1].index.tolist() == trees.nodes.tolist()
    assert batch.labels.tolist() == graph.y.tolist()


@pytest.mark.parametrize(("roots", "depth"), [([5, 2, 5], 0), ([2, 7], 2), ([], 1)])
def test_trees_of_roots_alone_share_nothing(roots: list[int], depth: int) -> None:
    batch = tree_batch(grow(LISTS, roots, depth), Features(graph_of(DENSE)), np.arange(100))
    assert not batch.is_shared
    assert batch.x.tolist() == DENSE[roots].tolist()
    assert batch.num_roots == len(roots)
    assert len(batch.blocks) == depth


def test_sparse_features_become_dense_by_rows() -> None:
    features = Features(graph_of(sparse.csr_array(DENSE)))
    assert torch.equal(features.rows(np.array([3, 3, 0])), torch.from_numpy(DENSE[[3, 3, 0]]))
    assert torch.equal(features.all(), torch.from_numpy(DENSE))


def test_one_array_finds_the_distinct_nodes_of_every_batch() -> None:
    features = Features(graph_of(DENSE))
    for nodes in ([7, 3, 7, 99], [3, 3], [], [99, 7]):
        distinct, index = features.distinct(np.array(nodes, np.int64))
        assert distinct.tolist() == list(dict.fromkeys(nodes))
        assert distinct[index].tolist() == nodes


@pytest.mark.parametrize(("device", "rows", "all_of_them"), [("cpu", 149, False), ("cpu", 150, True)])
def test_when_all_features_are_taken(device: str, rows: int, all_of_them: bool) -> None:
    assert Features(graph_of(DENSE), device).shares_all(rows) is all_of_them


def test_a_gpu_takes_all_features_sooner_but_not_for_small_batches() -> None:
    features = Features(graph_of(DENSE))
    features.device = torch.device("cuda")
    assert [features.shares_all(rows) for rows in (29, 30)] == [False, True]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_sparse_features_are_written_out_on_the_gpu() -> None:
    features = Features(graph_of(sparse.csr_array(DENSE)), "cuda")
    assert features.rows(np.array([3, 3, 0])).cpu().tolist() == DENSE[[3, 3, 0]].tolist()
    taken = features.inputs(np.array([7, 1]))
    assert isinstance(taken, torch.Tensor)
    assert taken.device.type == "cuda"
    assert taken.cpu().tolist() == DENSE[[7, 1]].tolist()
    assert torch.equal(features.all().cpu(), torch.from_numpy(DENSE))
