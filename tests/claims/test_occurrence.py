"""No node occurs in more than N(K, r) training trees: both samplers, random graphs."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest

from bounded_lists import owners_of, rows_of
from hushgraph.sampling.lists import BoundedLists, Rows
from hushgraph.sampling.paper import paper_lists
from hushgraph.sampling.stable import stable_lists
from hushgraph.sampling.trees import grow

Arguments = dict[str, object]
Sampler = Callable[..., BoundedLists]


def graphs(count: int) -> Iterator[tuple[Rows, Arguments, int]]:
    """What nodes read, from even to hub-heavy, directed or symmetrized; K from 0 to 4, depth from 0 to 3."""
    rng = np.random.default_rng(11)
    for seed in range(count):
        num_nodes = int(rng.integers(1, 40))
        size = int(rng.integers(0, 8 * num_nodes))
        skew = rng.choice([1.0, 2.0, 4.0], 2)
        source, target = ((num_nodes * rng.random(size) ** power).astype(np.int64) for power in skew)
        if seed % 2:
            source, target = np.concatenate([source, target]), np.concatenate([target, source])
        train = rng.random(num_nodes) < rng.choice([0.3, 0.7, 1.0])
        caps = {"max_readers": int(rng.integers(0, 5)), "seed": seed}
        rows = rows_of(source, target, num_nodes)
        yield rows, {"train_mask": train, **caps}, int(rng.integers(0, 4))


def occurrences(lists: BoundedLists, train: np.ndarray, depth: int) -> np.ndarray:
    """int [num_nodes]: in how many training trees each node is."""
    trees = grow(lists, np.flatnonzero(train), depth)
    held = np.unique(owners_of(trees)[-1] * len(train) + trees.nodes)
    return np.bincount(held % len(train), minlength=len(train))


def stable(owner: str, more_readers: int = 0) -> Sampler:
    def sample(reads: Rows, *, max_readers: int, seed: int, **rest: object) -> BoundedLists:
        limits = {"max_readers": max_readers + more_readers, "max_reads": (None, 2, 5)[seed % 3]}
        return stable_lists(reads, edge_owner=owner, seed=seed, **limits, **rest)

    return sample


SAMPLERS = {"stable, sender": stable("sender"), "stable, reader": stable("reader"), "paper": paper_lists}


def excesses(sampler: Sampler) -> tuple[int, int]:
    """On how many of 1,000 graphs the bound is exceeded, and on how many N(K, r) > 1 is met."""
    above = exact = 0
    for reads, arguments, depth in graphs(1000):
        K = arguments["max_readers"]
        bound = sum(K**level for level in range(depth + 1))
        most = occurrences(sampler(reads, **arguments), arguments["train_mask"], depth).max()
        above += most > bound
        exact += most == bound > 1
    return above, exact


@pytest.mark.parametrize("name", SAMPLERS)
def test_no_node_is_in_more_than_its_share_of_trees(name: str) -> None:
    above, exact = excesses(SAMPLERS[name])
    assert above == 0
    assert exact > 0


def test_one_reader_more_is_caught() -> None:
    above, _ = excesses(stable("sender", more_readers=1))
    assert above > 0
