from __future__ import annotations

import numpy as np
import pytest

from bounded_lists import are_equal, count_readers, read_lists, reads_of, rows_of
from hushgraph.errors import GraphError
from hushgraph.sampling.keys import pair_key, seed_word
from hushgraph.sampling.lists import BoundedLists
from hushgraph.sampling.stable import stable_lists

# 1, 2, 3 and 4 read 0; 4 also reads 1 and 2; 5 reads nobody.
SOURCE = np.array([0, 0, 0, 0, 1, 2])
TARGET = np.array([1, 2, 3, 4, 4, 4])
ALL = np.ones(6, dtype=bool)


def sampled(
    edges: tuple[np.ndarray, np.ndarray] = (SOURCE, TARGET),
    *,
    train: np.ndarray = ALL,
    max_readers: int = 2,
    max_reads: int | None = 2,
    edge_owner: str = "sender",
    seed: int = 0,
) -> BoundedLists:
    caps = {"max_readers": max_readers, "max_reads": max_reads, "edge_owner": edge_owner, "seed": seed}
    return stable_lists(rows_of(*edges, len(train)), train_mask=train, **caps)


@pytest.mark.parametrize("owner", ["sender", "reader"])
def test_nothing_is_lost_while_the_caps_are_wide(owner: str) -> None:
    whole = [[], [0], [0], [0], [0, 1, 2], []]
    for K, D in ((4, 3), (4, None), (10**6, 10**6), (10**6, None)):
        assert read_lists(sampled(max_readers=K, max_reads=D, edge_owner=owner)) == whole


@pytest.mark.parametrize("owner", ["sender", "reader"])
def test_nothing_is_kept_at_zero(owner: str) -> None:
    assert len(sampled(max_readers=0, edge_owner=owner).indices) == 0
    assert len(sampled(max_reads=0, edge_owner=owner).indices) == 0


def smallest(records: list[tuple[int, int]], count: int, seed: int) -> set[tuple[int, int]]:
    return set(sorted(records, key=lambda record: int(pair_key(*record, seed_word(seed))))[:count])


@pytest.mark.parametrize("seed", range(10))
def test_the_order_of_the_caps(seed: int) -> None:
    column = [(0, 1), (0, 2), (0, 3), (0, 4)]
    sender_kept = smallest(column, 2, seed) | {(1, 4), (2, 4)}
    of_4 = smallest([record for record in sender_kept if record[1] == 4], 2, seed)
    sender = sampled(seed=seed)
    assert {(u, 4) for u in reads_of(sender, 4)} == of_4
    assert {(0, w) for w in (1, 2, 3) if 0 in reads_of(sender, w)} == smallest(column, 2, seed) - {(0, 4)}

    row = smallest([(0, 4), (1, 4), (2, 4)], 2, seed)
    left = [(0, 1), (0, 2), (0, 3), *(row & {(0, 4)})]
    reader = sampled(seed=seed, edge_owner="reader")
    assert {(0, w) for w in range(6) if 0 in reads_of(reader, w)} == smallest(left, 2, seed)
    assert {(u, 4) for u in reads_of(reader, 4)} - {(0, 4)} == row - {(0, 4)}


@pytest.mark.parametrize("owner", ["sender", "reader"])
def test_only_training_nodes_read(owner: str) -> None:
    train = np.array([True, True, False, True, False, True])
    assert read_lists(sampled(train=train, max_readers=9, edge_owner=owner)) == [[], [0], [], [0], [], []]
    # 2 and 4 take none of the K places.
    assert count_readers(sampled(train=train, max_readers=2, edge_owner=owner))[0] == 2


@pytest.mark.parametrize("owner", ["sender", "reader"])
@pytest.mark.parametrize("max_reads", [2, None])
def test_order_duplicates_and_loops_do_not_show(owner: str, max_reads: int | None) -> None:
    rng = np.random.default_rng(0)
    source, target = rng.integers(0, 50, 600), rng.integers(0, 50, 600)
    train = rng.random(50) < 0.7
    common = {"train": train, "max_readers": 3, "max_reads": max_reads, "edge_owner": owner}
    whole = sampled((source, target), **common)
    order = rng.permutation(600)
    loops = np.arange(50)
    assert are_equal(sampled((source[order], target[order]), **common), whole)
    again = tuple(np.concatenate([ends, ends[:100], loops]) for ends in (source, target))
    assert are_equal(sampled(again, **common), whole)
    assert not are_equal(sampled((source, target), **common, seed=1), whole)


@pytest.mark.parametrize("owner", ["sender", "reader"])
@pytest.mark.parametrize("num_nodes", [0, 1, 6])
def test_a_graph_without_edges(owner: str, num_nodes: int) -> None:
    nothing = np.empty(0, dtype=np.int64)
    train = np.ones(num_nodes, dtype=bool)
    lists = sampled((nothing, nothing), train=train, edge_owner=owner)
    assert read_lists(lists) == [[]] * num_nodes


def test_more_nodes_than_keys_tell_apart_are_refused() -> None:
    train = np.broadcast_to(np.False_, 2**31)
    rows = np.zeros(1, np.int64), np.zeros(0, np.int32)
    with pytest.raises(GraphError, match="32 bits"):
        stable_lists(rows, train_mask=train, max_readers=1, max_reads=None, edge_owner="sender", seed=0)
