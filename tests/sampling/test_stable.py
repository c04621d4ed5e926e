from __future__ import annotations

import numpy as np
import pytest

from bounded_lists import count_readers, reads_of
from hushgraph.datasets import synthetic
from hushgraph.errors import GraphError, PlanError
from hushgraph.sampling.keys import pair_key, seed_word
from hushgraph.sampling.lists import BoundedLists
from hushgraph.sampling.stable import stable_lists

# 1, 2, 3 and 4 read 0; 4 also reads 1 and 2; 5 reads nobody.
SOURCE = np.array([0, 0, 0, 0, 1, 2])
TARGET = np.array([1, 2, 3, 4, 4, 4])
ALL = np.ones(6, dtype=bool)


def sampled(edges: object = (SOURCE, TARGET), **changed: object) -> BoundedLists:
    arguments = {
        "num_nodes": 6,
        "train_mask": ALL,
        "max_readers": 2,
        "max_reads": 2,
        "edge_owner": "sender",
        "seed": 0,
    }
    return stable_lists(edges, **(arguments | changed))


def reads(lists: BoundedLists) -> list[list[int]]:
    return [reads_of(lists, node).tolist() for node in range(lists.num_nodes)]


@pytest.mark.parametrize("owner", ["sender", "reader"])
def test_nothing_is_lost_while_the_caps_are_wide(owner: str) -> None:
    whole = [[], [0], [0], [0], [0, 1, 2], []]
    for K, D in ((4, 3), (4, None), (10**6, 10**6), (10**6, None)):
        assert reads(sampled(max_readers=K, max_reads=D, edge_owner=owner)) == whole


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
    assert reads(sampled(train_mask=train, max_readers=9, edge_owner=owner)) == [[], [0], [], [0], [], []]
    # 2 and 4 take none of the K places.
    assert count_readers(sampled(train_mask=train, max_readers=2, edge_owner=owner))[0] == 2


@pytest.mark.parametrize("owner", ["sender", "reader"])
@pytest.mark.parametrize("max_reads", [2, None])
def test_order_duplicates_and_loops_do_not_show(owner: str, max_reads: int | None) -> None:
    rng = np.random.default_rng(0)
    source, target = rng.integers(0, 50, 600), rng.integers(0, 50, 600)
    common = {
        "num_nodes": 50,
        "train_mask": rng.random(50) < 0.7,
        "max_readers": 3,
        "max_reads": max_reads,
        "edge_owner": owner,
    }
    whole = sampled((source, target), **common)
    order = rng.permutation(600)
    loops = np.arange(50)
    assert sampled((source[order], target[order]), **common) == whole
    again = tuple(np.concatenate([ends, ends[:100], loops]) for ends in (source, target))
    assert sampled(again, **common) == whole
    assert sampled((source, target), **common, seed=1) != whole


@pytest.mark.parametrize("owner", ["sender", "reader"])
def test_a_graph_gives_the_lists_of_its_edges(owner: str) -> None:
    graph = synthetic(num_nodes=300, num_classes=3, seed=2)
    source, target = (np.concatenate(ends) for ends in zip(*graph.edge_chunks(50), strict=True))
    common = {"num_nodes": 300, "train_mask": graph.train_mask, "max_readers": 3, "edge_owner": owner}
    lists = sampled(graph, **common)
    assert len(lists.indices) > 0
    assert lists == sampled((source, target), **common)


@pytest.mark.parametrize("owner", ["sender", "reader"])
@pytest.mark.parametrize("num_nodes", [0, 1, 6])
def test_a_graph_without_edges(owner: str, num_nodes: int) -> None:
    nothing = np.empty(0, dtype=np.int64)
    train = np.ones(num_nodes, dtype=bool)
    lists = sampled((nothing, nothing), num_nodes=num_nodes, train_mask=train, edge_owner=owner)
    assert reads(lists) == [[]] * num_nodes


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({"max_readers": -1}, PlanError, "max_readers=-1"),
        ({"max_reads": -2}, PlanError, "max_reads=-2"),
        ({"edge_owner": "both"}, PlanError, "edge_owner='both'"),
        ({"train_mask": np.ones(5, dtype=bool)}, GraphError, r"shape=\(5,\)"),
        ({"train_mask": np.ones(6)}, GraphError, "dtype=float64"),
        ({"num_nodes": 2**31}, GraphError, "32 bits"),
        ({"num_nodes": 4, "train_mask": np.ones(4, dtype=bool)}, GraphError, r"edge_index\[1, 3\]=4"),
    ],
)
def test_refusals(changed: dict[str, object], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        sampled(**changed)
