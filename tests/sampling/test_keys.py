"""Keys against whole numbers of Python."""

from __future__ import annotations

import numba
import numpy as np

from hushgraph.sampling.keys import pair_key, seed_word

MASK = (1 << 64) - 1


@numba.njit
def all_keys(senders, readers, word):
    keys = np.empty(len(senders), dtype=np.uint64)
    for i in range(len(senders)):
        keys[i] = pair_key(senders[i], readers[i], word)
    return keys


def mixed(word: int) -> int:
    word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    word = (word ^ (word >> 27)) * 0x94D049BB133111EB & MASK
    return word ^ (word >> 31)


def random_pairs(size: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    senders, readers = (rng.integers(0, 2**31 - 1, size).astype(np.int32) for _ in range(2))
    return np.append(senders, [0, 0, 2**31 - 1]).astype(np.int32), np.append(
        readers, [0, 2**31 - 1, 0]
    ).astype(np.int32)


def test_keys_equal_the_same_steps_in_whole_numbers() -> None:
    senders, readers = random_pairs(200)
    for seed in (0, 1, 2**63, 2**64 - 1, -5, 10**30):
        word = mixed((seed + 1) * 0x9E3779B97F4A7C15 & MASK)
        assert int(seed_word(seed)) == word
        expected = [
            mixed((mixed((u << 32 | w) ^ word) + word) & MASK)
            for u, w in zip(senders.tolist(), readers.tolist(), strict=True)
        ]
        assert all_keys(senders, readers, seed_word(seed)).tolist() == expected


def test_direction_and_seed_matter() -> None:
    one, two = np.array([1, 2], dtype=np.int32), np.array([2, 1], dtype=np.int32)
    keys = all_keys(one, two, seed_word(0))
    assert keys[0] != keys[1]
    assert not np.any(keys == all_keys(one, two, seed_word(1)))


def test_keys_of_neighbouring_pairs_look_uniform() -> None:
    # Keys decide who is kept: on consecutive identifiers each of 16 bit patterns must be as likely.
    senders, readers = (grid.ravel().astype(np.int32) for grid in np.meshgrid(np.arange(200), np.arange(200)))
    keys = all_keys(senders, readers, seed_word(4))
    for shift in (60, 30, 0):
        counts = np.bincount((keys >> np.uint64(shift)).astype(np.int64) & 15, minlength=16)
        chi_square = np.sum((counts - 2500.0) ** 2 / 2500.0)
        assert chi_square < 45  # 15 degrees of freedom; beyond 45 with probability 8e-5
