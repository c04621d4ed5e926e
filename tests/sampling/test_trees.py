from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bounded_lists import nodes_at, owners_of
from hushgraph.sampling.lists import BoundedLists
from hushgraph.sampling.trees import grow, tree_sizes

# 0 reads 1 and 2; 1 reads 0 and 3; 2 and 3 read nobody.
LISTS = BoundedLists(indptr=np.array([0, 2, 4, 4, 4]), indices=np.array([1, 2, 0, 3], dtype=np.int32))


def test_two_levels_by_eye() -> None:
    trees = grow(LISTS, np.array([0, 3, 1]), 2)
    assert trees.depth == 2
    assert trees.roots.tolist() == [0, 3, 1]
    assert nodes_at(trees, 0).tolist() == [0, 3, 1]
    assert trees.blocks[0].indptr.tolist() == [0, 3, 4, 7]
    assert nodes_at(trees, 1).tolist() == [0, 1, 2, 3, 1, 0, 3]
    assert trees.blocks[1].indptr.tolist() == [0, 3, 6, 7, 8, 11, 14, 15]
    assert trees.nodes.tolist() == [0, 1, 2, 1, 0, 3, 2, 3, 1, 0, 3, 0, 1, 2, 3]
    assert [owners.tolist() for owners in owners_of(trees)] == [
        [0, 1, 2],
        [0, 0, 0, 1, 2, 2, 2],
        [0] * 7 + [1] + [2] * 7,
    ]
    assert trees.blocks[1].num_lower_rows == 15


def test_depth_zero_is_the_roots_alone() -> None:
    trees = grow(LISTS, np.array([2, 2, 0]), 0)
    assert trees.blocks == ()
    assert trees.nodes.tolist() == [2, 2, 0]


def test_empty_lists_give_copies_only() -> None:
    nothing = BoundedLists(indptr=np.zeros(4, dtype=np.int64), indices=np.empty(0, dtype=np.int32))
    trees = grow(nothing, np.array([2, 0]), 3)
    assert [block.indptr.tolist() for block in trees.blocks] == [[0, 1, 2]] * 3
    assert trees.nodes.tolist() == [2, 0]


@pytest.mark.parametrize("depth", [0, 1, 3])
def test_no_roots(depth: int) -> None:
    trees = grow(LISTS, [], depth)
    assert trees.nodes.tolist() == []
    assert [block.indptr.tolist() for block in trees.blocks] == [[0]] * depth


@pytest.mark.parametrize("depth", [0, 1, 2, 3])
def test_layout_equals_a_plain_recursion(depth: int) -> None:
    rng = np.random.default_rng(depth)
    rows = [sorted(rng.choice(12, rng.integers(0, 4), replace=False).tolist()) for _ in range(12)]
    lists = BoundedLists(
        indptr=np.concatenate([[0], np.cumsum([len(row) for row in rows])]),
        indices=np.array([u for row in rows for u in row], dtype=np.int32),
    )
    roots = rng.integers(0, 12, 20)
    trees = grow(lists, roots, depth)
    level = [(root, owner) for owner, root in enumerate(roots.tolist())]
    for number in range(depth + 1):
        assert nodes_at(trees, number).tolist() == [node for node, _ in level]
        assert owners_of(trees)[number].tolist() == [owner for _, owner in level]
        if number < depth:
            sizes = [1 + len(rows[node]) for node, _ in level]
            assert np.diff(trees.blocks[number].indptr).tolist() == sizes
            level = [(below, owner) for node, owner in level for below in (node, *rows[node])]


@pytest.mark.parametrize("depth", [0, 1, 2, 3, 4])
def test_sizes_are_those_of_the_trees_that_grow(depth: int) -> None:
    rng = np.random.default_rng(depth)
    counts = rng.integers(0, 90, 100) * (rng.random(100) < 0.3)
    lists = BoundedLists(
        indptr=np.concatenate([[0], np.cumsum(counts)]),
        indices=rng.integers(0, 100, counts.sum()).astype(np.int32),
    )
    roots = rng.integers(0, 100, 4)
    trees = grow(lists, roots, depth)
    sizes = np.bincount(owners_of(trees)[-1], minlength=4)
    assert tree_sizes(lists, depth, roots).tolist() == sizes.tolist()
    assert tree_sizes(lists, depth, roots[:0]).tolist() == []


def test_shares_of_lists_are_those_of_every_level_and_copies_have_none() -> None:
    shares = np.array([[0.25, 0.75, 1.0, 0.0], [0.0, 0.0, 0.5, 0.5]], np.float32)
    lists = replace(LISTS, shares=shares)
    first, second = grow(lists, np.array([0, 3, 1]), 2).blocks
    assert first.shares is not None
    assert second.shares is not None
    of = {0: [0.0, 0.25, 0.75], 1: [0.0, 1.0, 0.0], 2: [0.0], 3: [0.0]}
    assert first.shares[0].tolist() == [each for node in (0, 3, 1) for each in of[node]]
    assert second.shares[0].tolist() == [each for node in (0, 1, 2, 3, 1, 0, 3) for each in of[node]]
    assert first.shares[1].tolist() == [0.0, 0.0, 0.0, 0.0, 0.0, 0.5, 0.5]
    assert all(block.shares is None for block in grow(LISTS, np.array([0]), 2).blocks)
