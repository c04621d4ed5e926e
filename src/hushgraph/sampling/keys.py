"""The key of a record: a 64-bit hash of the reader, the one it reads and the run's seed.

For every seed the hash is a bijection of the packed pair. Two records therefore never tie, a duplicate is
exactly an equal key, and a key gives back its record: a table of keys needs no table of identifiers.

These functions are compiled into their callers, whose cached code numba renews only when the caller's own
file changes. After a change here, touch the files that import this one.
"""

from __future__ import annotations

import numba
import numpy as np

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
_MULTIPLIERS = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
_SHIFTS = (30, 27, 31)

_A, _B = (np.uint64(m) for m in _MULTIPLIERS)
_A_INVERSE, _B_INVERSE = (np.uint64(pow(m, -1, 1 << 64)) for m in _MULTIPLIERS)
_S0, _S1, _S2 = (np.uint64(s) for s in _SHIFTS)
_32 = np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)


def seed_word(seed: int) -> np.uint64:
    """Spread a run's seed, any integer, over the 64 bits that enter every key."""
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
def _unmix(word):  # type: ignore[no-untyped-def]
    word = (word ^ (word >> _S2) ^ (word >> (_S2 + _S2))) * _B_INVERSE
    word = (word ^ (word >> _S1) ^ (word >> (_S1 + _S1))) * _A_INVERSE
    return word ^ (word >> _S0) ^ (word >> (_S0 + _S0))


@numba.njit(cache=True, nogil=True, inline="always")
def packed_key(packed, word):  # type: ignore[no-untyped-def]
    """Key of a record packed as sender << 32 | reader."""
    return _mix(_mix(packed ^ word) + word)


@numba.njit(cache=True, nogil=True, inline="always")
def pair_key(sender, reader, word):  # type: ignore[no-untyped-def]
    """Key of the record "reader reads sender"; `word` comes from `seed_word`."""
    return packed_key((np.uint64(sender) << _32) | np.uint64(reader), word)


@numba.njit(cache=True, nogil=True, inline="always")
def key_sender(key, word):  # type: ignore[no-untyped-def]
    """The sender of the record that has this key."""
    return np.int32((_unmix(_unmix(key) - word) ^ word) >> _32)


@numba.njit(cache=True, nogil=True, inline="always")
def key_reader(key, word):  # type: ignore[no-untyped-def]
    """The reader of the record that has this key."""
    return np.int32((_unmix(_unmix(key) - word) ^ word) & _LOW)
