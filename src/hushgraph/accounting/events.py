"""Events: dominating pairs as data, the language of the accountants.

A charge names its event for a change of the data; an accountant prices the event or refuses it. An event is a
noisy clipped sum of a batch, or one Gaussian release.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from hushgraph.errors import PlanError


@dataclass(frozen=True, kw_only=True)
class PoissonDraw:
    """Every training root joins independently with probability `rate`."""

    rate: float

    def __post_init__(self) -> None:
        """Check the rate."""
        if not 0.0 < self.rate <= 1.0:
            raise PlanError(f"rate={self.rate}: expected a sampling rate above 0 and at most 1")


@dataclass(frozen=True, kw_only=True)
class FixedSizeDraw:
    """`size` distinct roots, uniformly from all subsets of `population` training roots."""

    size: int
    population: int

    def __post_init__(self) -> None:
        """Check the size."""
        if not 1 <= self.size <= self.population:
            raise PlanError(f"size={self.size}: expected 1 to population={self.population} roots in a batch")


Draw = PoissonDraw | FixedSizeDraw


@dataclass(frozen=True, kw_only=True)
class StepEvent:
    """One noisy clipped sum.

    Attributes:
        draw: how the roots of the step were drawn.
        changed_trees: n, the most training roots whose gradients differ between the two datasets.
        sigma_over_clip: standard deviation of the noise in units of the clipping norm C.
        gone: how many of the n contribute nothing in the second dataset: 1 when one row is emptied, m when
            m rows are emptied, 0 when rows are changed and none is emptied.
    """

    draw: Draw
    changed_trees: int
    sigma_over_clip: float
    gone: int = 1

    def __post_init__(self) -> None:
        """Check the numbers."""
        if self.changed_trees < 1:
            raise PlanError(
                f"changed_trees={self.changed_trees}: expected 1 or more; a node changes its own tree"
            )
        if not 0.0 <= self.sigma_over_clip < math.inf:
            raise PlanError(f"sigma_over_clip={self.sigma_over_clip}: expected a finite number, 0 or more")
        if not 0 <= self.gone <= self.changed_trees:
            raise PlanError(f"gone={self.gone}: expected 0 to changed_trees={self.changed_trees} roots")

    @property
    def is_gaussian(self) -> bool:
        """Whether every root is drawn, so that the step is one Gaussian."""
        return isinstance(self.draw, PoissonDraw) and self.draw.rate == 1.0

    @property
    def largest_shift(self) -> float:
        """Shift, in standard deviations, of the Gaussian that dominates the step: every root is drawn."""
        moved = 2 * self.changed_trees - self.gone
        return moved / self.sigma_over_clip if self.sigma_over_clip else math.inf

    def is_at_most(self, other: Event) -> bool:
        """Whether `other` dominates this step, because it counts at least as many trees on both sides."""
        return (
            isinstance(other, StepEvent)
            and (self.draw, self.sigma_over_clip) == (other.draw, other.sigma_over_clip)
            and self.changed_trees <= other.changed_trees
            and self.changed_trees - self.gone <= other.changed_trees - other.gone
        )


@dataclass(frozen=True, kw_only=True)
class GaussianEvent:
    """One value released with normal noise, such as a board.

    Attributes:
        shift_over_sigma: mu, the most that the value differs between the two datasets, in standard deviations
            of the noise; infinite without noise.
    """

    shift_over_sigma: float

    def __post_init__(self) -> None:
        """Check the shift."""
        if not self.shift_over_sigma >= 0.0:
            raise PlanError(f"shift_over_sigma={self.shift_over_sigma}: expected 0 or more; inf is no noise")

    @property
    def is_gaussian(self) -> bool:
        """True."""
        return True

    @property
    def largest_shift(self) -> float:
        """The shift itself."""
        return self.shift_over_sigma

    def is_at_most(self, other: Event) -> bool:
        """Whether `other` is a release that moves at least as far."""
        return isinstance(other, GaussianEvent) and self.shift_over_sigma <= other.shift_over_sigma


Event = StepEvent | GaussianEvent
# What a charge answers for a change that it has no bound for.
UNBOUNDED = GaussianEvent(shift_over_sigma=math.inf)
