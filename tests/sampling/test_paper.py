"""The paper's sampler: coins, drops, and the claim that its own example breaks."""

from __future__ import annotations

import numpy as np
import pytest

from bounded_lists import are_equal, count_readers, read_lists, rows_of
from hushgraph.sampling.keys import pair_key, seed_word
from hushgraph.sampling.lists import BoundedLists
from hushgraph.sampling.paper import paper_lists


def sampled(source: np.ndarray, target: np.ndarray, train: np.ndarray, K: int, seed: int) -> BoundedLists:
    rows = rows_of(source, target, len(train))
    return paper_lists(rows, train_mask=train, max_readers=K, seed=seed)


def plain(source: np.ndarray, target: np.ndarray, train: np.ndarray, K: int, seed: int) -> list[list[int]]:
    word = seed_word(seed)
    readers: dict[int, set[int]] = {}
    for u, w in zip(source.tolist(), target.tolist(), strict=True):
        if u != w and train[w]:
            readers.setdefault(u, set()).add(w)
    reads: list[list[int]] = [[] for _ in train]
    for u in sorted(readers):
        p = min(1.0, K / (2 * len(readers[u])))
        kept = [w for w in readers[u] if int(pair_key(u, w, word)) / 2**64 < p]
        if len(kept) <= K:
            for w in kept:
                reads[w].append(u)
    return reads


def test_equals_the_algorithm_in_plain_python() -> None:
    rng = np.random.default_rng(0)
    for seed in range(300):
        num_nodes = int(rng.integers(2, 20))
        source, target = rng.integers(0, num_nodes, (2, 6 * num_nodes))
        train = rng.random(num_nodes) < 0.8
        K = int(rng.integers(0, 5))
        lists = sampled(source, target, train, K, seed)
        assert read_lists(lists) == plain(source, target, train, K, seed)


def test_order_duplicates_and_loops_do_not_show() -> None:
    rng = np.random.default_rng(1)
    source, target = rng.integers(0, 40, (2, 500))
    common = np.ones(40, dtype=bool), 4, 3
    whole = sampled(source, target, *common)
    order = rng.permutation(500)
    assert are_equal(sampled(source[order], target[order], *common), whole)
    again = (np.concatenate([ends, ends[:90], np.arange(40)]) for ends in (source, target))
    assert are_equal(sampled(*again, *common), whole)


def test_keeps_about_half_the_readers_and_drops_the_rest() -> None:
    # 2,000 nodes with 40 readers each: binomial(40, K / 80), mean K / 2, and nothing if that is above K.
    K = 8
    source = np.repeat(np.arange(2000), 40)
    target = 2000 + np.arange(80_000) % 400
    train = np.arange(2400) >= 2000
    lists = sampled(source, target, train, K, 0)
    counts = count_readers(lists)[:2000]
    assert counts.max() <= K
    draws = np.random.default_rng(0).binomial(40, K / 80, 10**6)
    expected = np.where(draws <= K, draws, 0)
    assert counts.mean() == pytest.approx(expected.mean(), abs=4 * expected.std() / 2000**0.5)
    assert np.mean(counts == 0) == pytest.approx(np.mean(expected == 0), abs=4 * (0.03 / 2000) ** 0.5)


def test_everything_is_kept_when_the_cap_is_twice_the_readers() -> None:
    source, target = np.array([0, 0, 0]), np.array([1, 2, 3])
    assert read_lists(sampled(source, target, np.ones(4, dtype=bool), 6, 0)) == [[], [0], [0], [0]]


def test_the_papers_claim_of_six_trees_meets_about_173() -> None:
    # v reads 1,000 nodes with 20 readers each: v and 19 nodes that read nothing else.
    read = np.arange(1, 1001)
    others = np.arange(1001, 20_001)
    source = np.concatenate([read, np.repeat(read, 19)])
    target = np.concatenate([np.zeros(1000, dtype=np.int64), others])
    train = np.ones(20_001, dtype=bool)
    changed = []
    for seed in range(40):
        before = sampled(source, target, train, 5, seed)
        after = sampled(source[1000:], target[1000:], train, 5, seed)
        counts = np.diff(before.indptr) != np.diff(after.indptr)
        changed.append(np.count_nonzero(counts[1:]))
    assert np.mean(changed) == pytest.approx(173, rel=0.05)
    assert min(changed) > 6
