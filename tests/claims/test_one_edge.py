"""Taking away one edge record changes at most 2 N(K, r - 1) trees if senders own edges, 3 if readers do."""

from __future__ import annotations

import numpy as np
import pytest

from hushgraph.privacy.bounds import changed_trees, trees_of_a_record
from hushgraph.sampling.lists import BoundedLists
from hushgraph.sampling.stable import stable_lists


def tree(lists: BoundedLists, node: int, depth: int) -> tuple[object, ...]:
    below = [tree(lists, int(u), depth - 1) for u in lists.reads_of(node)] if depth else []
    return node, *below


def changed(owner: str, number: int) -> tuple[int, int, int]:
    """K, depth, and how many training trees differ on one random graph without one of its records."""
    rng = np.random.default_rng(number)
    nodes, K, D, depth = int(rng.integers(5, 14)), *(int(i) for i in rng.integers(1, 4, 3))
    size = int(rng.integers(nodes, 5 * nodes))
    # Hubs are where places are taken over.
    source, target = ((nodes * rng.random(size) ** rng.choice([1.0, 2.5])).astype(np.int64) for _ in "ab")
    u, w = source[0], target[0]
    left = (source != u) | (target != w)
    train = rng.random(nodes) < rng.choice([0.7, 1.0])
    caps = {"num_nodes": nodes, "train_mask": train, "max_readers": K, "max_reads": D, "seed": number}
    before = stable_lists((source, target), edge_owner=owner, **caps)
    after = stable_lists((source[left], target[left]), edge_owner=owner, **caps)
    roots = np.flatnonzero(train)
    return K, depth, sum(tree(before, root, depth) != tree(after, root, depth) for root in roots)


@pytest.mark.parametrize("owner", ["sender", "reader"])
def test_one_record_changes_few_trees(owner: str) -> None:
    attained = 0
    for number in range(3000):
        K, depth, trees = changed(owner, number)
        bound = trees_of_a_record(K, depth, owner)
        assert trees <= bound, f"graph {number}: {trees} trees, K={K}, depth={depth}"
        attained += trees == bound
    assert attained > 0


@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("D", [1, 2, 5])
@pytest.mark.parametrize("K", [1, 2, 3, 10])
def test_the_price_of_a_row_covers_a_record(K: int, D: int, depth: int) -> None:
    for owner, is_covered in (("sender", K >= 2), ("reader", K + D >= 3)):
        trees = trees_of_a_record(K, depth, owner)
        # With no label gone, as many trees may differ on both sides: the pair of one tree more.
        assert (trees + 1 <= changed_trees(K, D, depth, owner)) == is_covered
        assert not is_covered or 2 * trees + 1 <= 2 * changed_trees(K, D, depth, owner)
