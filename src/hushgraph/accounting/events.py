"""What one training step costs, as data: how its roots were drawn, how many may have changed, how much noise.

A batcher names its draw, the plan adds the rest, an accountant prices it or refuses it.
"""

from __future__ import annotations

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
        changed_trees: n, the most training trees that differ when one node's row is emptied.
        sigma_over_clip: standard deviation of the noise in units of the clipping norm C.
    """

    draw: Draw
    changed_trees: int
    sigma_over_clip: float
