"""Events: what was released, as data for an accountant and a ledger.

An event is a noisy clipped sum of a batch, or one Gaussian release. A batcher names its draw, the plan adds
the rest, and an accountant prices the event or refuses it.
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


@dataclass(frozen=True, kw_only=True)
class GaussianEvent:
    """One value released with normal noise, such as a board.

    Attributes:
        shift_over_sigma: mu, the most that the value differs between the two datasets, in standard deviations
            of the noise; infinite without noise.
    """

    shift_over_sigma: float


Event = StepEvent | GaussianEvent


@dataclass(frozen=True, kw_only=True)
class Terms:
    """What a plan pays for and with what: the terms that a ledger keeps to.

    Attributes:
        fingerprint: of the plan.
        epsilon, delta: the budget; epsilon is infinite without privacy.
        accountant: which prices the events.
        steps, step_event: how many steps there are, and what one costs.
        charges: everything in order, boards included: events and how often each occurs.
    """

    fingerprint: str
    epsilon: float
    delta: float
    accountant: str
    steps: int
    step_event: StepEvent
    charges: tuple[tuple[Event, int], ...]
