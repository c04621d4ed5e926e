"""The key of a record: a 64-bit hash of the reader, the node it reads and the seed of the run.

For every seed the hash is a bijection of the packed pair. Keys of different records therefore never tie,
equal keys are duplicates, and a record can be recovered from its key: a table of keys needs no identifiers.

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
_A_INVERSE, _B_INVERSE = (
    np.uint64(pow(_MULTIPLIERS[0], -1, 1 << 64)),
    np.uint64(pow(_MULTIPLIERS[1], -1, 1 << 64)),
)
_S0, _S1, _S2 = map(np.uint64, _SHIFTS)
_32 = np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)


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
def _unmix(word):  # type: ignore[no-untyped-def]
    word = (word ^ (word >> _S2) ^ (word >> (_S2 + _S2))) * _B_INVERSE
    word = (word ^ (word >> _S1) ^ (word >> (_S1 + _S1))) * _A_INVERSE
    return word ^ (word >> _S0) ^ (word >> (_S0 + _S0))


@numba.njit(cache=True, nogil=True, inline="always")
def packed_key(packed, word):  # type: ignore[no-untyped-def]
    """Return the key of a record packed as sender << 32 | reader."""
    return _mix(_mix(packed ^ word) + word)


@numba.njit(cache=True, nogil=True, inline="always")
def pair_key(sender, reader, word):  # type: ignore[no-untyped-def]
    """Return the key of the record "reader reads sender"; `word` comes from `seed_word`."""
    return packed_key((np.uint64(sender) << _32) | np.uint64(reader), word)


@numba.njit(cache=True, nogil=True, inline="always")
def key_sender(key, word):  # type: ignore[no-untyped-def]
    """Return the sender of the record with this key."""
    return np.int32((_unmix(_unmix(key) - word) ^ word) >> _32)


@numba.njit(cache=True, nogil=True, inline="always")
def key_reader(key, word):  # type: ignore[no-untyped-def]
    """Return the reader of the record with this key."""
    return np.int32((_unmix(_unmix(key) - word) ^ word) & _LOW)
