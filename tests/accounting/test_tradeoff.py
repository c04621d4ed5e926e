"""Trade-off curves, compared with the best tests between two distributions found by counting."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import optimize

from hushgraph.accounting.accountants import gaussian_delta, gaussian_epsilon
from hushgraph.accounting.events import GaussianEvent, PoissonDraw, StepEvent
from hushgraph.accounting.tradeoff import find_shift, gaussian_guess, gaussian_tradeoff, tradeoff_at_least

ALPHAS = (0.001, 0.01, 0.05, 0.25, 0.5, 0.9)


def least_misses(shift: float, alpha: float) -> float:
    """Neyman-Pearson on a fine grid: cells join the test by likelihood ratio until false alarms are spent."""
    cells = np.linspace(-12.0, 12.0 + shift, 400_001)
    without = np.exp(-0.5 * cells**2)
    present = np.exp(-0.5 * (cells - shift) ** 2)
    without, present = without / without.sum(), present / present.sum()
    order = np.argsort(-(shift * cells), kind="stable")
    alarms = np.cumsum(without[order])
    return 1.0 - float(np.interp(alpha, alarms, np.cumsum(present[order])))


def least_misses_of_pair(epsilon: float, delta: float, alpha: float) -> float:
    """The best randomised test between the worst pair that (epsilon, delta) allows, as a linear programme."""
    odds = math.exp(epsilon) / (1 + math.exp(epsilon))
    present = np.array([delta, (1 - delta) * odds, (1 - delta) * (1 - odds), 0.0])
    without = present[::-1]
    best = optimize.linprog(-present, A_ub=[without], b_ub=[alpha], bounds=[(0, 1)] * 4)
    return 1.0 + float(best.fun)


@pytest.mark.parametrize("shift", [0.2, 1.0, 2.5])
@pytest.mark.parametrize("alpha", ALPHAS)
def test_a_gaussian_s_curve_is_that_of_the_best_test(shift: float, alpha: float) -> None:
    assert gaussian_tradeoff(shift, alpha) == pytest.approx(least_misses(shift, alpha), abs=2e-4)


@pytest.mark.parametrize(("epsilon", "delta"), [(0.0, 0.0), (1.0, 1e-5), (4.0, 1e-3), (0.3, 0.1)])
@pytest.mark.parametrize("alpha", ALPHAS)
def test_epsilon_and_delta_prove_no_more_and_no_less(epsilon: float, delta: float, alpha: float) -> None:
    assert tradeoff_at_least(epsilon, delta, alpha) == pytest.approx(
        least_misses_of_pair(epsilon, delta, alpha), abs=1e-9
    )


@pytest.mark.parametrize("shift", [0.3, 1.0, 3.0])
def test_a_gaussian_s_curve_is_never_below_what_its_epsilon_proves(shift: float) -> None:
    for delta in (1e-8, 1e-5, 0.01):
        epsilon = gaussian_epsilon(shift, delta)
        for alpha in ALPHAS:
            assert gaussian_tradeoff(shift, alpha) >= tradeoff_at_least(epsilon, delta, alpha) - 1e-12


@pytest.mark.parametrize("shift", [0.0, 0.7, 2.0])
def test_a_guess_is_right_as_often_as_the_curve_says(shift: float) -> None:
    alphas = np.linspace(1e-6, 1 - 1e-6, 20_001)
    wrong = min((alpha + gaussian_tradeoff(shift, alpha)) / 2 for alpha in alphas)
    assert gaussian_guess(shift) == pytest.approx(1 - wrong, abs=1e-7)
    # Total variation is the delta at epsilon 0.
    assert gaussian_guess(shift) == pytest.approx(0.5 + gaussian_delta(shift, 0.0) / 2)


def test_ends_of_the_curves() -> None:
    assert (gaussian_tradeoff(1.0, 0.0), gaussian_tradeoff(1.0, 1.0)) == (1.0, 0.0)
    assert (tradeoff_at_least(2.0, 0.1, 0.0), tradeoff_at_least(2.0, 0.1, 1.0)) == (0.9, 0.0)
    # e^epsilon overflows for a plan that promises next to nothing.
    assert tradeoff_at_least(5000.0, 1e-5, 0.5) == pytest.approx(0.0)


def test_gaussians_are_one_gaussian_and_sampled_steps_are_none() -> None:
    board = GaussianEvent(shift_over_sigma=0.3)
    whole = StepEvent(draw=PoissonDraw(rate=1.0), changed_trees=1, sigma_over_clip=10.0)
    drawn = StepEvent(draw=PoissonDraw(rate=0.5), changed_trees=1, sigma_over_clip=10.0)
    # 0.3^2 + 16 * 0.1^2 = 0.5^2.
    assert find_shift([[(board, 1), (whole, 16)], [(board, 1), (None, 16)]]) == pytest.approx(0.5)
    assert find_shift([[(board, 1), (drawn, 16)]]) is None
    assert find_shift([[(board, 1), (drawn, 0)]]) == pytest.approx(0.3)
    # The larger column is sampled: the smaller one says nothing about it.
    assert find_shift([[(board, 1), (None, 0)], [(drawn, 1), (None, 0)]]) is None
    assert find_shift([]) == 0.0
