"""Privacy losses on a grid: repeat and join them, and read the divergence off.

The operations are those of `dp_accounting`'s dense privacy loss distributions, number by number, which the
tests compare. That package takes half a second to import, and a plan should take less.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
from scipy import fft

FloatArray = npt.NDArray[np.float64]
ComplexArray = npt.NDArray[np.complex128]

# Orders of the Chernoff bound, as multiples of 1 / (number of grid points); larger ones overflow.
_ORDERS = 20
# Far below the rounding of a transform whose largest value is 1.
_SWALLOWED = 1e-35


@dataclass(frozen=True, kw_only=True, eq=False)
class GridLosses:
    """The losses of one direction, rounded so that no divergence is smaller than it was.

    Attributes:
        interval: between neighbouring losses.
        lowest: the smallest loss, in intervals.
        probs: the probability of each loss, from the smallest on.
        infinite: the probability of an infinite loss.
    """

    interval: float
    lowest: int
    probs: FloatArray
    infinite: float

    @cached_property
    def losses(self) -> FloatArray:
        return np.asarray((np.arange(len(self.probs)) + self.lowest) * self.interval, np.float64)

    def delta(self, epsilon: float) -> float:
        """Return the hockey-stick divergence at `epsilon`."""
        above = int(np.searchsorted(self.losses, epsilon, side="right"))
        shares = -np.expm1(epsilon - self.losses[above:])
        return self.infinite + float(np.dot(shares, self.probs[above:]))

    def repeat(self, count: int, *, left_out: float) -> GridLosses:
        """Compose these losses with themselves; `left_out` of the probability may become infinite loss."""
        low, high = _bound_sum(self.probs, count, left_out)
        length = fft.next_fast_len(max(high - low + 1, len(self.probs)))
        # The transform of real numbers is symmetric, so half of the powers are enough.
        half = _raise(fft.rfft(self.probs, length), count)
        spectrum = np.concatenate([half, np.conj(half[1 : (length + 1) // 2][::-1])])
        probs = np.roll(np.real(fft.ifft(spectrum)), -low)[: high - low + 1]
        return GridLosses(
            interval=self.interval,
            lowest=self.lowest * count + low,
            probs=probs,
            infinite=left_out - math.expm1(count * math.log1p(-self.infinite)),
        )

    def join(self, other: GridLosses, *, left_out: float) -> GridLosses:
        """Compose with other losses on the same grid; `left_out` as in `repeat`."""
        size = len(self.probs) + len(other.probs) - 1
        length = fft.next_fast_len(size, real=True)
        product = fft.rfft(self.probs, length) * fft.rfft(other.probs, length)
        probs = fft.irfft(product, length)[:size]
        below, above = _count_light(probs, left_out / 2), _count_light(probs[::-1], left_out / 2)
        end = max(size - above, below + 1)
        kept = probs[below:end].copy()
        # Small losses are rounded up, large ones to infinity.
        kept[0] += probs[:below].sum()
        infinite = self.infinite + other.infinite - self.infinite * other.infinite
        return GridLosses(
            interval=self.interval,
            lowest=self.lowest + other.lowest + below,
            probs=kept,
            infinite=infinite + float(probs[end:].sum()),
        )


def _raise(values: ComplexArray, count: int) -> ComplexArray:
    """Powers of values of at most 1; those that rounding swallows are 0, which are nearly all."""
    powers = np.zeros_like(values)
    large = np.abs(values) > _SWALLOWED ** (1 / count)
    powers[large] = values[large] ** count
    return powers


def _bound_sum(probs: FloatArray, count: int, left_out: float) -> tuple[int, int]:
    """Bound the sum of `count` draws of an index: it lies outside with probability `left_out` at most."""
    low, high = 0, (len(probs) - 1) * count
    log_odds = math.log(2 / left_out)
    for sign in (-1, 1):
        factors = np.exp(np.arange(len(probs)) * (sign / len(probs)))
        powers = np.ones_like(factors)
        for multiple in range(1, _ORDERS + 1):
            powers *= factors
            order = sign * multiple / len(probs)
            bound = (count * math.log(float(powers @ probs)) + log_odds) / order
            if not math.isfinite(bound):
                continue
            low, high = (
                (max(low, math.floor(bound)), high) if sign < 0 else (low, min(high, math.ceil(bound)))
            )
    return low, high


def _count_light(probs: FloatArray, limit: float) -> int:
    """Count the leading values whose sum does not exceed `limit`."""
    heavy = np.cumsum(probs) > limit
    return int(heavy.argmax()) if heavy.any() else len(probs)
