"""A generator of batches that cannot be told from true randomness without its key."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

KEY_BITS = 256


class KeyedGenerator(np.random.Generator):
    """What batches and keys are drawn with, from SHAKE-128 of a key and a counter.

    Processes that train together draw the same batches from the same key.

    Args:
        key: `KEY_BITS` random bits.

    Guarantees:
        `random`, `integers` and `choice`, which are all that batches use, depend on nothing but the key and
        the draws before.
    """

    def __init__(self, key: int) -> None:
        # numpy asks for a generator of its own; nothing of it is used.
        super().__init__(np.random.PCG64(key))
        self._key, self._draws = key.to_bytes(KEY_BITS // 8, "little"), 0

    def random(self, size: Any = None, *args: Any, **others: Any) -> Any:
        """float64 [size], uniform on the multiples of 2^-53 in [0, 1)."""
        if args or others or not isinstance(size, int):
            raise TypeError("a keyed generator gives float64 vectors alone; expected one whole number")
        return (self._words(size) >> np.uint64(11)) * 2.0**-53

    def integers(  # type: ignore[override]
        self, low: Any, high: Any = None, size: Any = None, dtype: Any = np.int64, **others: Any
    ) -> Any:
        """From 0 up to a power of two, itself not included: one integer, or uint64 [size] below 2^64."""
        end = low if high is None else high
        if others or (high is not None and low != 0) or end & (end - 1) or not 0 < end <= 2**64:
            raise TypeError("a keyed generator draws from 0 to a power of two alone")
        if size is None:
            return int(self._words(1)[0]) % end
        if end != 2**64 or dtype is not np.uint64:
            raise TypeError("a keyed generator draws vectors of whole words alone")
        return self._words(size)

    def choice(self, a: Any, size: Any = None, *args: Any, **others: Any) -> Any:
        """int64 [size]: distinct numbers below `a`, every set of them equally likely."""
        if args or others.get("replace", True):
            raise TypeError("a keyed generator draws without replacement alone")
        # Two of the words agree once in 2^64 pairs.
        return np.argsort(self._words(a), kind="stable")[:size]

    def _words(self, count: int) -> np.ndarray:
        self._draws += 1
        stream = hashlib.shake_128(self._key + self._draws.to_bytes(8, "little"))
        return np.frombuffer(stream.digest(8 * count), "<u8").astype(np.uint64)
