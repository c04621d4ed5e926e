"""Occurrence bound and changed trees, against direct sums and values computed by hand."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

from bounded_lists import rows_of
from hushgraph.errors import PlanError
from hushgraph.privacy.bounds import changed_by_group, changed_trees, occurrences, trees_of_a_record
from hushgraph.privacy.plans import TreePlan
from hushgraph.sampling.paper import paper_lists


@pytest.mark.parametrize(("K", "r"), [*itertools.product(range(6), range(5))])
def test_occurrences_is_the_sum_of_powers(K: int, r: int) -> None:
    assert occurrences(K, r) == sum(K**level for level in range(r + 1))


@pytest.mark.parametrize(
    ("K", "D", "r", "owner", "expected"),
    [
        (7, None, 1, "sender", 8),
        (7, 7, 1, "reader", 15),
        (10, 10, 1, "reader", 21),
        (3, None, 2, "sender", 13),
        (3, 3, 2, "reader", 25),
        (2, 5, 3, "reader", 15 + 5 * 7),
        (1, 1, 1, "reader", 3),
        (7, 3, 1, "sender", 8),
    ],
)
def test_changed_trees_by_hand(K: int, D: int | None, r: int, owner: str, expected: int) -> None:
    assert changed_trees(K, D, r, owner) == expected


@pytest.mark.parametrize("owner", ["sender", "reader"])
@pytest.mark.parametrize(("K", "D", "r"), [(0, 4, 2), (4, 0, 2), (4, 4, 0), (0, None, 3), (4, None, 0)])
def test_reading_nothing_changes_one_tree(owner: str, K: int, D: int | None, r: int) -> None:
    assert changed_trees(K, D, r, owner) == 1


def test_unlimited_reads_cannot_be_priced_for_readers() -> None:
    with pytest.raises(PlanError, match=r"max_reads=None with edge_owner='reader'.*give max_reads"):
        changed_trees(3, None, 1, "reader")


def test_unknown_owner_is_refused() -> None:
    with pytest.raises(PlanError, match="edge_owner='both': expected 'sender' or 'reader'"):
        changed_trees(3, 3, 1, "both")


@pytest.mark.parametrize("owner", ["sender", "reader"])
@pytest.mark.parametrize("trees", [1, 2, 7, 100, 10_000])
def test_a_cap_is_the_smaller_of_both(owner: str, trees: int) -> None:
    for K, D, r in itertools.product((0, 1, 2, 5), (0, 1, 4), (0, 1, 2, 3)):
        most = min(changed_trees(K, D, r, owner), trees + 1)
        assert changed_trees(K, D, r, owner, num_trees=trees) == most, (K, D, r)
        assert occurrences(K, r, at_most=trees) == min(occurrences(K, r), trees), (K, r)


def test_a_cap_makes_absurd_depths_cheap() -> None:
    assert changed_trees(10**6, None, 10**9, "sender", num_trees=500) == 501
    assert changed_trees(1, 1, 10**9, "reader", num_trees=500) == 501


def test_two_rows_change_twice_as_much_or_all_there_is() -> None:
    assert changed_by_group(4, 2, 100) == 8
    # Two rows outside the split may change all seven trees, and n counts a root of its own beside them.
    assert changed_by_group(4, 2, 7) == 8
    assert changed_by_group(4, 2, 6) == 7


def test_one_record_has_no_bound_with_the_papers_sampler() -> None:
    """Node 0 is read by 1, 2 and 3; without its record for 3 all three training nodes read something else."""
    readers = []
    for kept in (np.array([1, 2, 3]), np.array([1, 2])):
        reads = rows_of(np.zeros(len(kept), np.int64), kept, 4)
        lists = paper_lists(reads, train_mask=np.ones(4, bool), max_readers=2, seed=34)
        readers.append(np.flatnonzero(np.diff(lists.indptr)).tolist())
    assert readers == [[3], [1, 2]]
    assert trees_of_a_record(2, 1, "sender") == 2
    plan = TreePlan(num_train_nodes=100, num_layers=1, max_readers=2, batch_size=10, steps=2, sampler="paper")
    assert replace(plan, sigma_over_clip=9.0).epsilon_edge == math.inf
