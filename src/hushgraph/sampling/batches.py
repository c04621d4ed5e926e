"""Batches: a batcher draws the roots of a step and describes the draw to the accountant."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from hushgraph._arrays import Int64Array
from hushgraph.accounting.events import FixedSizeDraw, PoissonDraw
from hushgraph.sampling.random import RandomSource

# From this many slots on, fair bits are drawn before numbers; below, one number per slot is fast enough.
_MANY_SLOTS = 1 << 20


@dataclass(frozen=True, kw_only=True)
class PoissonBatches:
    """Every training root joins a batch independently with probability `rate`. A batch may be empty.

    Attributes:
        num_slots: size of the training split.
        rate: q, above 0 and at most 1.
        rng: the generator of the draws; it must not be the generator of the noise.

    Guarantees:
        Whether a root joins a batch is independent of all other roots and batches.
    """

    num_slots: int
    rate: float
    rng: RandomSource

    @property
    def draws(self) -> PoissonDraw:
        """Description of one `draw` for the accountant."""
        return PoissonDraw(rate=self.rate)

    def draw(self) -> Int64Array:
        """Draw a batch: int64 [realised size], sorted positions in the training split."""
        # rate = rest / 2^halvings with rest in [1/2, 1), exactly.
        rest, exponent = math.frexp(self.rate)
        halvings = -exponent
        if self.num_slots < _MANY_SLOTS or halvings < 2:
            return np.flatnonzero(self.rng.random(self.num_slots) < self.rate)
        slots = _flip_coins(self.num_slots, halvings, self.rng)
        batch: Int64Array = slots[self.rng.random(len(slots)) < rest]
        return batch


def _flip_coins(num_slots: int, halvings: int, rng: RandomSource) -> Int64Array:
    """Sorted slots for which `halvings` fair coins all show heads: probability 2^-halvings, independently.

    64 slots share a random word, so a draw takes `halvings` bits per slot. Drawing a binomial size and then a
    set of that size would take fewer bits, but the size comes from floating-point formulas with errors of
    about 1e-9, which is the delta of a large graph.
    """
    words = rng.integers(0, 2**64, -(-num_slots // 64), dtype=np.uint64)
    for _ in range(halvings - 1):
        words &= rng.integers(0, 2**64, len(words), dtype=np.uint64)
    nonzero = np.flatnonzero(words)
    bits = np.unpackbits(words[nonzero].astype("<u8").view(np.uint8), bitorder="little").view(np.bool_)
    heads = np.flatnonzero(bits)
    slots: Int64Array = nonzero[heads >> 6] * 64 + (heads & 63)
    return slots[slots < num_slots]


@dataclass(frozen=True, kw_only=True)
class FixedSizeBatches:
    """Every batch is a set of `size` distinct training roots; all such sets are equally likely.

    Attributes:
        num_slots: size of the training split.
        size: m, from 1 to `num_slots`.
        rng: the generator of the draws; it must not be the generator of the noise.

    Guarantees:
        A root occurs at most once in a batch, and batches are independent of each other.
    """

    num_slots: int
    size: int
    rng: RandomSource

    @property
    def draws(self) -> FixedSizeDraw:
        """Description of one `draw` for the accountant."""
        return FixedSizeDraw(size=self.size, population=self.num_slots)

    def draw(self) -> Int64Array:
        """Draw a batch: int64 [size], sorted distinct positions in the training split."""
        return np.sort(self.rng.choice(self.num_slots, size=self.size, replace=False, shuffle=False))
