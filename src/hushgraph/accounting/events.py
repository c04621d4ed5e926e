"""What one release costs, as data: a noisy clipped sum of a batch, or one Gaussian release.

A batcher names its draw, the plan adds the rest, an accountant prices it or refuses it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class PoissonDraw:
    """Every training root joins independently with probability `rate`."""

    rate: float


@dataclass(frozen=True, kw_only=True)
class FixedSizeDraw:
    """`size` distinct roots, uniformly from all subsets of `population` training roots."""

    size: int
    population: int


Draw = PoissonDraw | FixedSizeDraw


@dataclass(frozen=True, kw_only=True)
class StepEvent:
    """One noisy clipped sum.

    Attributes:
        draw: how the roots of the step were chosen.
        changed_trees: n, the most training roots whose gradients differ between the two datasets.
        sigma_over_clip: standard deviation of the noise in units of the clipping norm C.
        gone: how many of the n contribute nothing in the second dataset: 1 when one row is emptied, m when
            m rows are emptied, 0 when rows are changed and none is emptied.
    """

    draw: Draw
    changed_trees: int
    sigma_over_clip: float
    gone: int = 1

    @property
    def largest_shift(self) -> float:
        """The shift, in standard deviations, of the Gaussian that dominates the step: every root is drawn."""
        moved = 2 * self.changed_trees - self.gone
        return moved / self.sigma_over_clip if self.sigma_over_clip else math.inf


@dataclass(frozen=True, kw_only=True)
class GaussianEvent:
    """One value released with normal noise, such as a board.

    Attributes:
        shift_over_sigma: mu, the most that the value differs between the two datasets, in standard deviations
            of the noise; infinite without noise.
    """

    shift_over_sigma: float

    @property
    def largest_shift(self) -> float:
        """The shift, in standard deviations, of the Gaussian that dominates the release: itself."""
        return self.shift_over_sigma


Event = StepEvent | GaussianEvent
