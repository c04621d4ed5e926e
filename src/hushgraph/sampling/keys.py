"""The key of a record: a 64-bit hash of the reader, the node it reads and the seed of the run.

For every seed the hash is a bijection of the packed pair, so keys of different records never tie.

numba compiles these functions into their callers, and renews cached code only when the file of the caller
changes. After a change here, touch the files that import this one.
"""

from __future__ import annotations

import numba
import numpy as np

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
_MULTIPLIERS = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
_SHIFTS = (30, 27, 31)

_A, _B = map(np.uint64, _MULTIPLIERS)
_S0, _S1, _S2 = map(np.uint64, _SHIFTS)
_32 = np.uint64(32)


def seed_word(seed: int) -> np.uint64:
    """Hash the seed of a run, any integer, to the 64 bits that enter every key."""
    word = (seed + 1) * _GOLDEN & _MASK
    for shift, multiplier in zip(_SHIFTS, (*_MULTIPLIERS, 1), strict=True):
        word = (word ^ (word >> shift)) * multiplier & _MASK
    return np.uint64(word)


@numba.njit(cache=True, nogil=True, inline="always")
def _mix(word):  # type: ignore[no-untyped-def]
    word = (word ^ (word >> _S0)) * _A
    word = (word ^ (word >> _S1)) * _B
    return word ^ (word >> _S2)


@numba.njit(cache=True, nogil=True, inline="always")
def pair_key(sender, reader, word):  # type: ignore[no-untyped-def]
    """Return the key of the record "reader reads sender"; `word` comes from `seed_word`."""
    packed = (np.uint64(sender) << _32) | np.uint64(reader)
    return _mix(_mix(packed ^ word) + word)
