"""The published bound against direct summation with 50 digits, and the edges of its grid of orders."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest

from hushgraph.accounting.accountants import gaussian_epsilon
from hushgraph.accounting.events import FixedSizeDraw, PoissonDraw, StepEvent
from hushgraph.accounting.renyi import RenyiAccountant, step_divergence
from hushgraph.errors import PlanError


def event(*, population: int, size: int, trees: int, sigma: float) -> StepEvent:
    draw = FixedSizeDraw(size=size, population=population)
    return StepEvent(draw=draw, changed_trees=trees, sigma_over_clip=sigma)


def exact(*, population: int, size: int, trees: int, sigma: float, order: float) -> float:
    with mpmath.workdps(50):
        trees = min(trees, population)
        total, alpha = mpmath.mpf(0), mpmath.mpf(order)
        for drawn in range(max(0, size + trees - population), min(trees, size) + 1):
            ways = mpmath.binomial(trees, drawn) * mpmath.binomial(population - trees, size - drawn)
            power = alpha * (alpha - 1) * 2 * drawn**2 / mpmath.mpf(sigma) ** 2
            total += ways / mpmath.binomial(population, size) * mpmath.exp(power)
        return float(mpmath.log(total) / (alpha - 1))


@pytest.mark.parametrize(
    "setting",
    [
        {"population": 90_941, "size": 10_000, "trees": 8, "sigma": 32.0},
        {"population": 10**8, "size": 10**4, "trees": 8, "sigma": 24.0},
        {"population": 10**10, "size": 10**6, "trees": 15, "sigma": 45.0},
        {"population": 10**12, "size": 10**6, "trees": 8, "sigma": 24.0},
        {"population": 90_941, "size": 90_940, "trees": 8, "sigma": 64.0},
        {"population": 90_941, "size": 20_000, "trees": 13, "sigma": 52.0},
        {"population": 1000, "size": 1, "trees": 1, "sigma": 0.7},
        {"population": 1000, "size": 10, "trees": 40, "sigma": 1e3},
        {"population": 10, "size": 4, "trees": 25, "sigma": 5.0},
        {"population": 7, "size": 7, "trees": 3, "sigma": 9.0},
    ],
)
def test_agrees_with_direct_summation(setting: dict[str, float]) -> None:
    orders = np.array([1.011, 1.5, 2.0, 7.3, 64.0, 1000.0, 1e6])
    found = step_divergence(event(**setting), orders)  # type: ignore[arg-type]
    for order, value in zip(orders, found, strict=True):
        reference = exact(**setting, order=order)  # type: ignore[arg-type]
        assert value == pytest.approx(reference, rel=5e-9)
        assert value >= reference * (1 - 1e-12)


def test_more_trees_than_roots_counts_all_roots() -> None:
    few, all_of_them = (event(population=10, size=4, trees=trees, sigma=5.0) for trees in (25, 10))
    orders = np.array([2.0, 8.0])
    assert step_divergence(few, orders).tolist() == step_divergence(all_of_them, orders).tolist()


def test_step_divergence_refuses_poisson() -> None:
    step = StepEvent(draw=PoissonDraw(rate=0.1), changed_trees=1, sigma_over_clip=1.0)
    with pytest.raises(PlanError, match="fixed-size batches only"):
        step_divergence(step, np.array([2.0]))


def epsilon(step: StepEvent, steps: int, delta: float = 1e-6) -> float:
    accountant = RenyiAccountant()
    accountant.compose(step, steps)
    return accountant.epsilon(delta)


def test_best_order_beyond_the_first_grid_is_found() -> None:
    """At small epsilon the best order lies far above the usual grids; brute force up there agrees."""
    step = event(population=1000, size=1000, trees=1, sigma=3e6)
    orders = 1 + np.geomspace(1e4, 1e9, 20_000)
    divergences = orders * 2 / step.sigma_over_clip**2
    brute = np.min(divergences + np.log1p(-1 / orders) - np.log(1e-15 * orders) / (orders - 1))
    accountant = RenyiAccountant()
    accountant.compose(step)
    assert brute > 0
    assert accountant.epsilon(1e-15) == pytest.approx(brute, rel=1e-4)


def test_best_order_at_the_low_edge_is_refused() -> None:
    step = event(population=1000, size=100, trees=4, sigma=1e-3)
    with pytest.raises(PlanError, match=r"cannot be priced.*best Renyi order is the lowest.*more noise"):
        epsilon(step, 10)
    accountant = RenyiAccountant()
    accountant.compose(step, 10)
    assert accountant.delta(1e-9) == 1.0


def test_best_order_at_the_high_edge_is_refused() -> None:
    with pytest.raises(PlanError, match=r"best Renyi order is the highest.*less noise"):
        epsilon(event(population=1000, size=1000, trees=1, sigma=1e14), 1, delta=1e-15)


@pytest.mark.parametrize("steps", [1, 10, 100_000])
@pytest.mark.parametrize("delta", [1e-3, 1e-15])
@pytest.mark.parametrize("sigma", [1e-3, 1.0, 1e3])
@pytest.mark.parametrize(("size", "trees"), [(1, 1), (1000, 1), (10, 40), (1000, 2000)])
def test_extremes_agree_with_brute_force_or_are_refused(
    steps: int, delta: float, sigma: float, size: int, trees: int
) -> None:
    step = event(population=1000, size=size, trees=trees, sigma=sigma)
    orders = 1 + np.geomspace(0.0101, 1e7, 500)
    divergences = steps * step_divergence(step, orders)
    by_order = divergences + np.log1p(-1 / orders) - np.log(delta * orders) / (orders - 1)
    best = int(by_order.argmin())
    if best == 0:
        with pytest.raises(PlanError, match="cannot be priced"):
            epsilon(step, steps, delta)
        return
    found = epsilon(step, steps, delta)
    if found == 0.0:
        # Free: by some order, or by the distance that the divergence allows.
        assert by_order[best] <= 0.0 or delta**2 >= -math.expm1(-divergences[0])
    else:
        assert by_order[best] * 0.98 <= found <= by_order[best] * (1 + 1e-3)
    # A full batch is the Gaussian with this shift, whose exact price is a lower bound.
    shift = 2 * min(trees, 1000) * math.sqrt(steps) / sigma
    assert size < 1000 or found >= gaussian_epsilon(shift, delta)
