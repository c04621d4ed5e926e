"""Normal noise on integers: a rounded continuous Gaussian, without floating point."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Protocol

import numpy as np
import numpy.typing as npt

from hushgraph._arrays import Int64Array
from hushgraph.noise import normal

# A draw beyond 2^22 standard deviations is no normal number; below, a tally and its noise fit into int64.
_FARTHEST = 1 << 62


class Draws(Protocol):
    """Gives int64 [count]: independent draws of floor(2^40 z) for standard normal z."""

    def __call__(self, count: int, /) -> npt.NDArray[np.int64]: ...


def find_divisor(noise_std: float, *, grid: int) -> int:
    """m: draws divided by it are noise of standard deviation 2^40 / m, at least `noise_std` * `grid`.

    Args:
        noise_std: in units of `grid`; above 0.
        grid: how many integer steps one unit has.
    """
    return int(Fraction(1 << normal.GRID_BITS, grid) / Fraction(noise_std))


def find_std(divisor: int, *, grid: int) -> float:
    """The standard deviation of draws divided by `divisor`, in units of `grid`; never more than it is."""
    value = Fraction(1 << normal.GRID_BITS, divisor * grid)
    nearest = float(value)
    return nearest if Fraction(nearest) <= value else math.nextafter(nearest, 0.0)


def round_draws(draws: Int64Array, divisor: int) -> Int64Array:
    """Draws divided by `divisor`, rounded to the nearest integer.

    Guarantees:
        For an integer T, T + `round_draws` is a function of T + 2^40 z / m, for standard normal z: the
        Gaussian mechanism, rounded. Proof. Draws are Z = floor(2^40 z); let h = m // 2. T and h are integers,
        and rounding down in two steps is rounding down in one:

            T + (Z + h) // m = floor((m T + Z + h) / m) = floor(T + (2^40 z + h) / m).
    """
    if len(draws) and max(-int(draws.min()), int(draws.max())) >= _FARTHEST:
        raise RuntimeError("draws exceed what normal numbers reach; the source of randomness is broken")
    units: Int64Array = (draws + divisor // 2) // divisor
    return units
