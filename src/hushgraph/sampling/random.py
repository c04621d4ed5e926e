"""Randomness for batches and keys: the generator interface, and a cryptographic generator."""

from __future__ import annotations

import hashlib
from typing import Any, Protocol

import numpy as np

from hushgraph.noise.normal import KEY_BYTES, WordStream

KEY_BITS = 256
# From this many words on, the hash gives the key of a cipher, which is several times faster.
_MANY_WORDS = 4096


class RandomSource(Protocol):
    """The methods of a generator that batches and keys use; `numpy.random.Generator` has them."""

    def random(self, size: Any = None, /) -> Any:
        """float64 [size], uniform on [0, 1)."""

    def integers(self, low: Any, high: Any = None, size: Any = None, dtype: Any = np.int64) -> Any:
        """Integers from `low` (included) to `high` (excluded), or from 0 to `low`."""

    def choice(self, a: Any, size: Any = None, replace: Any = True, *, shuffle: Any = True) -> Any:
        """int64 [size]: numbers below `a`."""


class KeyedGenerator:
    """Draws batches and keys from SHAKE-128 of a key and a counter; long draws from ChaCha20 of that.

    Without the key, its output cannot be distinguished from true randomness. Processes that train together
    draw the same batches from the same key.

    Args:
        key: `KEY_BITS` random bits.

    Guarantees:
        A draw depends only on the key and the number of draws before it. There are no other methods, so
        nothing can be drawn by accident from a generator that is not cryptographic.
    """

    def __init__(self, key: int) -> None:
        self._key, self._draws = key.to_bytes(KEY_BITS // 8, "little"), 0

    def random(self, size: Any = None, /) -> Any:
        """float64 [size], uniform on the multiples of 2^-53 in [0, 1)."""
        if not isinstance(size, int):
            raise TypeError("a keyed generator draws vectors only; expected one integer size")
        return (self._words(size) >> np.uint64(11)) * 2.0**-53

    def integers(self, low: Any, high: Any = None, size: Any = None, dtype: Any = np.int64) -> Any:
        """One integer from 0 to a power of two (excluded), or uint64 [size] below 2^64."""
        end = low if high is None else high
        if (high is not None and low != 0) or end & (end - 1) or not 0 < end <= 2**64:
            raise TypeError("a keyed generator expects low=0 and a power of two up to 2^64 as high")
        if size is None:
            return int(self._words(1)[0]) % end
        if end != 2**64 or dtype is not np.uint64:
            raise TypeError("a keyed generator draws vectors of 64-bit words only")
        return self._words(size)

    def choice(self, a: Any, size: Any = None, replace: Any = True, *, shuffle: Any = True) -> Any:
        """int64 [size]: distinct numbers below `a`, every set of them equally likely."""
        if replace:
            raise TypeError("a keyed generator draws without replacement only")
        # Two of the words agree once in 2^64 pairs.
        return np.argsort(self._words(a), kind="stable")[:size]

    def _words(self, count: int) -> np.ndarray:
        self._draws += 1
        stream = hashlib.shake_128(self._key + self._draws.to_bytes(8, "little"))
        if count >= _MANY_WORDS:
            return WordStream(stream.digest(KEY_BYTES)).take(count)[:count]
        return np.frombuffer(stream.digest(8 * count), "<u8").astype(np.uint64)
