from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor

import numpy as np
import pytest

from hushgraph.errors import GraphError, PlanError
from hushgraph.sampling.keys import pair_key, seed_word
from hushgraph.sampling.lists import BoundedLists
from hushgraph.sampling.stable import shard_records, stable_lists

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
    return [lists.reads_of(node).tolist() for node in range(lists.num_nodes)]


@pytest.mark.parametrize("owner", ["sender", "reader"])
def test_nothing_is_lost_while_the_caps_are_wide(owner: str) -> None:
    whole = [[], [0], [0], [0], [0, 1, 2], []]
    for K, D in ((4, 3), (4, None), (10**6, 10**6), (10**6, None)):
        assert reads(sampled(max_readers=K, max_reads=D, edge_owner=owner)) == whole


@pytest.mark.parametrize("owner", ["sender", "reader"])
def test_nothing_is_kept_at_zero(owner: str) -> None:
    assert sampled(max_readers=0, edge_owner=owner).num_kept == 0
    assert sampled(max_reads=0, edge_owner=owner).num_kept == 0


def smallest(records: list[tuple[int, int]], count: int, seed: int) -> set[tuple[int, int]]:
    return set(sorted(records, key=lambda record: int(pair_key(*record, seed_word(seed))))[:count])


@pytest.mark.parametrize("seed", range(10))
def test_the_order_of_the_caps(seed: int) -> None:
    column = [(0, 1), (0, 2), (0, 3), (0, 4)]
    sender_kept = smallest(column, 2, seed) | {(1, 4), (2, 4)}
    of_4 = smallest([record for record in sender_kept if record[1] == 4], 2, seed)
    sender = sampled(seed=seed)
    assert {(u, 4) for u in sender.reads_of(4)} == of_4
    assert {(0, w) for w in (1, 2, 3) if 0 in sender.reads_of(w)} == smallest(column, 2, seed) - {(0, 4)}

    row = smallest([(0, 4), (1, 4), (2, 4)], 2, seed)
    left = [(0, 1), (0, 2), (0, 3), *(row & {(0, 4)})]
    reader = sampled(seed=seed, edge_owner="reader")
    assert {(0, w) for w in range(6) if 0 in reader.reads_of(w)} == smallest(left, 2, seed)
    assert {(u, 4) for u in reader.reads_of(4)} - {(0, 4)} == row - {(0, 4)}


@pytest.mark.parametrize("owner", ["sender", "reader"])
def test_only_training_nodes_read(owner: str) -> None:
    train = np.array([True, True, False, True, False, True])
    assert reads(sampled(train_mask=train, max_readers=9, edge_owner=owner)) == [[], [0], [], [0], [], []]
    # 2 and 4 take none of the K places.
    assert sampled(train_mask=train, max_readers=2, edge_owner=owner).readers_count()[0] == 2


@pytest.mark.parametrize("owner", ["sender", "reader"])
@pytest.mark.parametrize("max_reads", [2, None])
def test_order_chunks_duplicates_and_loops_do_not_show(owner: str, max_reads: int | None) -> None:
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
    shuffled = [(source[part], target[part]) for part in np.array_split(order, 7)]
    again = [(source[:100], target[:100]), (loops, loops)]
    assert sampled(shuffled, **common) == whole
    assert sampled(iter(shuffled + again), **common) == whole
    assert sampled((source, target), **common, seed=1) != whole


def test_edges_from_a_read_only_memory_map(tmp_path: object) -> None:
    rng = np.random.default_rng(1)
    rng.integers(0, 50, (2, 600), dtype=np.int32).tofile(tmp_path / "edges")
    mapped = np.memmap(tmp_path / "edges", dtype=np.int32, mode="r", shape=(2, 600))
    common = {"num_nodes": 50, "train_mask": np.ones(50, dtype=bool)}
    chunks = ((mapped[0, start : start + 64], mapped[1, start : start + 64]) for start in range(0, 600, 64))
    assert sampled(chunks, **common) == sampled(np.array(mapped), **common)


@pytest.mark.parametrize("owner", ["sender", "reader"])
@pytest.mark.parametrize("num_nodes", [0, 1, 6])
def test_a_graph_without_edges(owner: str, num_nodes: int) -> None:
    nothing = np.empty(0, dtype=np.int64)
    for edges in ((nothing, nothing), []):
        lists = sampled(
            edges, num_nodes=num_nodes, train_mask=np.ones(num_nodes, dtype=bool), edge_owner=owner
        )
        assert reads(lists) == [[]] * num_nodes


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({"max_readers": -1}, PlanError, "max_readers=-1"),
        ({"max_reads": -2}, PlanError, "max_reads=-2"),
        ({"edge_owner": "both"}, PlanError, "edge_owner='both'"),
        ({"train_mask": np.ones(5, dtype=bool)}, GraphError, r"shape=\(5,\)"),
        ({"train_mask": np.ones(6)}, GraphError, "dtype=float64"),
        ({"num_nodes": 4, "train_mask": np.ones(4, dtype=bool)}, GraphError, "position 3 is 4"),
    ],
)
def test_refusals(changed: dict[str, object], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        sampled(**changed)


def shuffled_graph() -> tuple[np.ndarray, np.ndarray, dict[str, object]]:
    rng = np.random.default_rng(4)
    source, target = rng.integers(0, 60, (2, 1500))
    return source, target, {"num_nodes": 60, "train_mask": rng.random(60) < 0.7, "seed": 11}


@pytest.mark.parametrize("owner", ["sender", "reader"])
@pytest.mark.parametrize(("max_readers", "max_reads"), [(3, 4), (3, None), (50, 40), (0, 2), (2, 0)])
def test_shards_give_the_lists_of_the_whole(owner: str, max_readers: int, max_reads: int | None) -> None:
    source, target, rest = shuffled_graph()
    caps = {**rest, "max_readers": max_readers, "max_reads": max_reads, "edge_owner": owner}
    whole = stable_lists((source, target), **caps)
    for shards in (1, 3, 8):
        parts = [shard_records((source[i::shards], target[i::shards]), **caps) for i in range(shards)]
        assert stable_lists(parts, **caps) == whole
        # Shards may be merged by two or three on the way.
        merged = [shard_records(parts[i : i + 2], **caps) for i in range(0, shards, 2)]
        assert stable_lists(merged, **caps) == whole


@pytest.mark.parametrize("owner", ["sender", "reader"])
def test_a_shard_returns_no_more_than_its_cap(owner: str) -> None:
    source, target, rest = shuffled_graph()
    caps = {**rest, "max_readers": 3, "max_reads": 4, "edge_owner": owner}
    sources, targets = shard_records((source, target), **caps)
    counts = np.bincount(sources if owner == "sender" else targets)
    assert counts.max() == (3 if owner == "sender" else 4)
    assert rest["train_mask"][targets].all()


def test_three_processes_share_the_pass() -> None:
    source, target, rest = shuffled_graph()
    caps = {**rest, "max_readers": 3, "max_reads": 4, "edge_owner": "reader"}
    # Three processes forked from one that has imported what they need and run nothing.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([shard_records.__module__])
    with ProcessPoolExecutor(3, mp_context=context) as processes:
        shards = [(source[i::3], target[i::3]) for i in range(3)]
        asked = [processes.submit(shard_records, shard, **caps) for shard in shards]
        parts = [each.result() for each in asked]
    assert stable_lists(parts, **caps) == stable_lists((source, target), **caps)


def test_what_a_shard_refuses() -> None:
    source, target, rest = shuffled_graph()
    with pytest.raises(PlanError, match="max_readers=-1"):
        shard_records((source, target), **rest, max_readers=-1, max_reads=1, edge_owner="sender")
    with pytest.raises(PlanError, match="edge_owner='both'"):
        shard_records((source, target), **rest, max_readers=1, max_reads=1, edge_owner="both")
