"""The accumulator against a plain sort; order, chunking and merging must not show."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from hushgraph.sampling import stable as stable_module
from hushgraph.sampling.keys import pair_key, seed_word
from hushgraph.sampling.lists import transpose_rows
from hushgraph.sampling.stable import WIDEST_TABLE, SmallestKeys

NUM_NODES = 30
READERS = np.arange(NUM_NODES) % 3 > 0


def random_records(size: int, num_nodes: int = NUM_NODES) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(size)
    return tuple(rng.integers(0, num_nodes, size).astype(np.int32) for _ in range(2))


def accumulator(slots: int | None, rows_read: bool, seed: int = 5) -> SmallestKeys:
    return SmallestKeys(num_nodes=NUM_NODES, slots=slots, rows_read=rows_read, readers=READERS, seed=seed)


def kept(accumulated: SmallestKeys) -> list[set[int]]:
    indptr, cols = accumulated.rows()
    rows = [cols[a:b].tolist() for a, b in pairwise(indptr)]
    assert all(len(set(row)) == len(row) for row in rows)
    return [set(row) for row in rows]


def expected(source: np.ndarray, target: np.ndarray, slots: int | None, rows_read: bool) -> list[set[int]]:
    word = seed_word(5)
    rows: list[dict[int, int]] = [{} for _ in range(NUM_NODES)]
    for u, w in zip(source.tolist(), target.tolist(), strict=True):
        if u != w and READERS[w]:
            row, col = (w, u) if rows_read else (u, w)
            rows[row][col] = int(pair_key(u, w, word))
    return [set(sorted(row, key=row.__getitem__)[:slots]) for row in rows]


SLOTS = [0, 1, 2, 7, 28, 10**6, None]


@pytest.mark.parametrize("rows_read", [False, True])
@pytest.mark.parametrize("slots", SLOTS)
@pytest.mark.parametrize("widest", [WIDEST_TABLE, 0], ids=["table", "loose"])
def test_equals_a_plain_sort_whatever_the_order_and_chunks(
    slots: int | None, rows_read: bool, widest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stable_module, "WIDEST_TABLE", widest)
    monkeypatch.setattr(stable_module, "_LOOSE", 50)
    source, target = random_records(700)
    whole = expected(source, target, slots, rows_read)
    rng = np.random.default_rng(0)
    for chunk in (1, 13, 700):
        accumulated = accumulator(slots, rows_read)
        order = rng.permutation(700)
        for start in range(0, 700, chunk):
            piece = order[start : start + chunk]
            accumulated.add(source[piece], target[piece])
        assert kept(accumulated) == whole


@pytest.mark.parametrize("rows_read", [False, True])
@pytest.mark.parametrize("slots", [0, 3, None])
def test_merging_partial_results(slots: int | None, rows_read: bool) -> None:
    source, target = random_records(900)
    parts = [accumulator(slots, rows_read) for _ in range(3)]
    for number, part in enumerate(parts):
        # The parts overlap: a record seen by two machines counts once.
        part.add(source[number * 250 : number * 250 + 400], target[number * 250 : number * 250 + 400])
    parts[2].add_all(parts[0].records())
    parts[2].add_all(parts[1].records())
    assert kept(parts[2]) == expected(source, target, slots, rows_read)


@pytest.mark.parametrize("rows_read", [False, True])
def test_many_blocks_and_threads(rows_read: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    num_nodes = 3000
    source, target = random_records(60_000, num_nodes)
    readers = np.ones(num_nodes, dtype=bool)

    def rows() -> tuple[np.ndarray, np.ndarray]:
        accumulated = SmallestKeys(num_nodes=num_nodes, slots=4, rows_read=rows_read, readers=readers, seed=1)
        accumulated.add(source, target)
        return transpose_rows(accumulated.rows())

    monkeypatch.setattr(stable_module, "_PARALLEL", 10**9)
    alone = rows()
    monkeypatch.setattr(stable_module, "_PARALLEL", 1)
    monkeypatch.setattr(stable_module, "_cores", lambda: 3)
    monkeypatch.setattr(stable_module, "_BLOCK_BYTES", 1 << 11)
    together = rows()
    monkeypatch.setattr(stable_module, "WIDEST_TABLE", 0)
    loose = rows()
    for other in (together, loose):
        np.testing.assert_array_equal(alone[0], other[0])
        np.testing.assert_array_equal(alone[1], other[1])


def test_huge_slots_take_no_huge_table() -> None:
    num_nodes = 100_000
    accumulated = SmallestKeys(
        num_nodes=num_nodes, slots=10**6, rows_read=False, readers=np.ones(num_nodes, dtype=bool), seed=0
    )
    accumulated.add(*random_records(1000, num_nodes))
    assert len(accumulated.rows()[1]) == pytest.approx(1000, abs=5)
