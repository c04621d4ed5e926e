"""Losses on a grid: no divergence gets smaller by rounding; composed as dp_accounting composes them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from hushgraph.accounting import PoissonDraw, StepEvent
from hushgraph.accounting.pair_losses import _log_binomial, build_losses, discretise, estimate_spread
from hushgraph.accounting.second_opinion import convert_losses
from pair_divergence import divergence

SETTINGS = [(1, 0.01, 0.8), (1, 0.5, 2.0), (3, 0.1, 4.0), (8, 0.11, 32.0), (5, 1.0, 20.0)]


def event(trees: int, rate: float, sigma: float) -> StepEvent:
    return StepEvent(draw=PoissonDraw(rate=rate), changed_trees=trees, sigma_over_clip=sigma)


@pytest.mark.parametrize(("trees", "rate", "sigma"), SETTINGS)
def test_divergence_is_never_below_the_exact_one(trees: int, rate: float, sigma: float) -> None:
    losses = build_losses(event(trees, rate, sigma), 1e-18)
    interval = max(map(estimate_spread, losses)) / 20
    grids = [discretise(loss, interval) for loss in losses]
    # On grid points, where rounding adds least, and between them.
    epsilons = interval * np.array([0.0, 0.5, 1.0, 7.0, 7.3, 40.0, 80.5])
    exact = np.maximum(*(divergence(loss, epsilons) for loss in losses))
    found = np.array([max(grid.delta(float(epsilon)) for grid in grids) for epsilon in epsilons])
    assert (found >= exact - 1e-16).all()
    # Between grid points the divergence may rise by a share of the interval, not more.
    assert (found - exact <= interval).all()


@pytest.mark.parametrize(("trees", "rate", "sigma"), SETTINGS)
def test_finer_grids_come_closer(trees: int, rate: float, sigma: float) -> None:
    losses = build_losses(event(trees, rate, sigma), 1e-18)
    epsilon = max(map(estimate_spread, losses)) * 2.03
    exact = max(float(divergence(loss, epsilon)[0]) for loss in losses)
    spread = max(map(estimate_spread, losses))
    errors = [
        max(discretise(loss, spread / points).delta(epsilon) for loss in losses) - exact
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
    for loss in build_losses(event(3, 0.1, 4.0), 1e-6):
        assert discretise(loss, 1e-3).delta(math.inf) == pytest.approx(1e-6, rel=1e-6)


@pytest.mark.parametrize("count", [1, 7, 600, 20_000])
@pytest.mark.parametrize(("trees", "rate", "sigma"), SETTINGS)
def test_repeated_as_dp_accounting_repeats(trees: int, rate: float, sigma: float, count: int) -> None:
    """Number by number: the same distribution, and the same divergence read off it."""
    for loss in build_losses(event(trees, rate, sigma), 1e-15 / count):
        grid = discretise(loss, estimate_spread(loss) / 25)
        ours = grid.repeat(count, left_out=1e-15)
        theirs = convert_losses(grid).self_compose(count, 1e-15)
        assert (ours.lowest, ours.infinite) == (theirs._lower_loss, theirs._infinity_mass)
        assert np.array_equal(ours.probs, theirs._probs)
        for epsilon in (0.0, 0.3, 2.0, 100.0):
            assert ours.delta(epsilon) == theirs.get_delta_for_epsilon(epsilon)


def test_joined_as_dp_accounting_joins() -> None:
    interval = 1e-3
    one, other = (
        discretise(build_losses(event(*setting), 1e-15)[0], interval).repeat(count, left_out=1e-15)
        for setting, count in (((3, 0.1, 4.0), 50), ((1, 0.5, 2.0), 9))
    )
    for left_out in (1e-15, 1e-4):
        ours, theirs = (
            one.join(other, left_out=left_out),
            convert_losses(one).compose(convert_losses(other), left_out),
        )
        assert (ours.lowest, len(ours.probs)) == (theirs._lower_loss, theirs.size)
        assert ours.infinite == pytest.approx(theirs._infinity_mass, rel=1e-12)
        assert ours.probs == pytest.approx(theirs._probs, rel=1e-12, abs=1e-25)
    assert one.join(other, left_out=1e-4).delta(1.0) >= one.join(other, left_out=1e-15).delta(1.0)


def test_binomial_weights_are_those_of_scipy() -> None:
    counts = np.arange(60, dtype=np.float64)
    for rate in (1e-6, 0.3, 1.0):
        with np.errstate(divide="ignore"):
            expected = np.log(stats.binom.pmf(counts, 80, rate))
        assert np.array_equal(_log_binomial(counts, 80, rate), expected)
