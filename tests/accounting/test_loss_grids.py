"""One step on a grid: both distributions are kept, and no divergence gets smaller."""

from __future__ import annotations

import math

import numpy as np
import pytest

from hushgraph.accounting import PoissonDraw, StepEvent
from hushgraph.accounting.pair_losses import build_losses, discretise, estimate_spread

SETTINGS = [(1, 0.01, 0.8), (1, 0.5, 2.0), (3, 0.1, 4.0), (8, 0.11, 32.0), (5, 1.0, 20.0)]


def event(trees: int, rate: float, sigma: float) -> StepEvent:
    return StepEvent(draw=PoissonDraw(rate=rate), changed_trees=trees, sigma_over_clip=sigma)


@pytest.mark.parametrize(("trees", "rate", "sigma"), SETTINGS)
def test_divergence_is_never_below_the_exact_one(trees: int, rate: float, sigma: float) -> None:
    losses = build_losses(event(trees, rate, sigma), 1e-18)
    interval = max(map(estimate_spread, losses)) / 20
    distribution = discretise(losses, interval)
    # On grid points, where rounding adds least, and between them.
    epsilons = interval * np.array([0.0, 0.5, 1.0, 7.0, 7.3, 40.0, 80.5])
    exact = np.maximum(*(loss.get_delta_for_epsilon(epsilons) for loss in losses))
    found = np.array([distribution.get_delta_for_epsilon(float(epsilon)) for epsilon in epsilons])
    assert (found >= exact - 1e-16).all()
    # Between grid points the divergence may rise by a share of the interval, not more.
    assert (found - exact <= interval).all()


@pytest.mark.parametrize(("trees", "rate", "sigma"), SETTINGS)
def test_finer_grids_come_closer(trees: int, rate: float, sigma: float) -> None:
    losses = build_losses(event(trees, rate, sigma), 1e-18)
    epsilon = max(map(estimate_spread, losses)) * 2.03
    exact = max(float(loss.get_delta_for_epsilon(epsilon)) for loss in losses)
    errors = [
        discretise(losses, max(map(estimate_spread, losses)) / points).get_delta_for_epsilon(epsilon) - exact
        for points in (10, 100)
    ]
    assert -1e-16 <= errors[1] < errors[0] / 5 + 1e-9


def test_directions_of_the_pair() -> None:
    emptied, filled = build_losses(event(3, 0.2, 5.0), 1e-20)
    assert emptied.upper.shifts.tolist() == filled.lower.shifts.tolist() == [0, 1, 2, 3]
    assert emptied.lower.shifts.tolist() == filled.upper.shifts.tolist() == [0, 1, 2]


def test_spread_and_range_of_a_gaussian() -> None:
    """At rate 1 the loss is normal with the shift as its standard deviation."""
    for loss in build_losses(event(2, 1.0, 6.0), 1e-12):
        assert estimate_spread(loss) == pytest.approx(3 / 6, rel=1e-2)
        assert 14 * 0.5 < loss.width < 16 * 0.5


def test_what_is_left_out_counts_as_an_infinite_loss() -> None:
    losses = build_losses(event(3, 0.1, 4.0), 1e-6)
    distribution = discretise(losses, 1e-3)
    assert distribution.get_delta_for_epsilon(math.inf) == pytest.approx(1e-6, rel=1e-6)
