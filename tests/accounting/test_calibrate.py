"""Noise and steps that a budget allows: safe when asked again, and not wasteful."""

from __future__ import annotations

import math

import pytest

from hushgraph.accounting.accountants import gaussian_epsilon, make_accountant
from hushgraph.accounting.calibrate import most_steps, smallest_noise, smallest_scale
from hushgraph.accounting.events import Draw, Event, FixedSizeDraw, GaussianEvent, PoissonDraw, StepEvent
from hushgraph.errors import PlanError

DELTA = 1e-6
DRAWS = [("pair", PoissonDraw(rate=0.1)), ("paper", FixedSizeDraw(size=100, population=1000))]


def spent(accountant: str, draw: Draw, trees: int, sigma: float, steps: int, delta: float = DELTA) -> float:
    made = make_accountant(accountant)  # type: ignore[arg-type]
    made.compose(StepEvent(draw=draw, changed_trees=trees, sigma_over_clip=sigma), steps)
    return made.epsilon(delta)


@pytest.mark.parametrize(("accountant", "draw"), DRAWS)
@pytest.mark.parametrize("epsilon", [0.5, 8.0])
@pytest.mark.parametrize(("trees", "steps"), [(1, 1), (8, 300)])
def test_noise_is_safe_and_smallest(
    accountant: str, draw: Draw, epsilon: float, trees: int, steps: int
) -> None:
    sigma = smallest_noise(
        draw=draw, changed_trees=trees, steps=steps, epsilon=epsilon, delta=DELTA, accountant=accountant
    )
    assert spent(accountant, draw, trees, sigma, steps) <= epsilon
    assert spent(accountant, draw, trees, sigma * 0.999, steps) > epsilon


@pytest.mark.parametrize("epsilon", [0.01, 1.0, 1000.0])
@pytest.mark.parametrize("delta", [1e-6, 1e-15])
def test_noise_for_full_batches_agrees_with_the_formula(epsilon: float, delta: float) -> None:
    sigma = smallest_noise(
        draw=PoissonDraw(rate=1.0),
        changed_trees=3,
        steps=100,
        epsilon=epsilon,
        delta=delta,
        accountant="pair",
    )
    assert gaussian_epsilon(5 * 10 / sigma, delta) <= epsilon * (1 + 1e-9)
    assert gaussian_epsilon(5 * 10 / (sigma * 0.9998), delta) > epsilon


@pytest.mark.parametrize("epsilon", [0.01, 1000.0])
@pytest.mark.parametrize("rate", [0.001, 0.5])
def test_extreme_targets(epsilon: float, rate: float) -> None:
    draw = PoissonDraw(rate=rate)
    sigma = smallest_noise(
        draw=draw, changed_trees=8, steps=1000, epsilon=epsilon, delta=DELTA, accountant="pair"
    )
    assert 0.98 * epsilon < spent("pair", draw, 8, sigma, 1000) <= epsilon


@pytest.mark.parametrize(("accountant", "draw"), DRAWS)
@pytest.mark.parametrize("epsilon", [0.7, 4.0])
def test_steps_are_safe_and_most(accountant: str, draw: Draw, epsilon: float) -> None:
    event = StepEvent(draw=draw, changed_trees=3, sigma_over_clip=40.0)
    steps = most_steps(event=event, epsilon=epsilon, delta=DELTA, accountant=accountant)
    assert steps > 1
    assert spent(accountant, draw, 3, 40.0, steps) <= epsilon
    assert spent(accountant, draw, 3, 40.0, steps + 1) > epsilon


@pytest.mark.parametrize(("accountant", "draw"), DRAWS)
def test_no_step_fits(accountant: str, draw: Draw) -> None:
    event = StepEvent(draw=draw, changed_trees=8, sigma_over_clip=1.0)
    assert most_steps(event=event, epsilon=0.01, delta=DELTA, accountant=accountant) == 0


def test_too_many_steps_fit() -> None:
    event = StepEvent(draw=PoissonDraw(rate=1.0), changed_trees=1, sigma_over_clip=1e9)
    with pytest.raises(PlanError, match="allows over 1000000000 steps; use less noise"):
        most_steps(event=event, epsilon=1.0, delta=DELTA, accountant="pair")


def test_target_met_without_noise() -> None:
    with pytest.raises(PlanError, match=r"is met without noise: .* use a smaller delta"):
        smallest_noise(
            draw=PoissonDraw(rate=1e-4), changed_trees=1, steps=1, epsilon=1.0, delta=1e-3, accountant="pair"
        )


def test_target_that_no_noise_reaches() -> None:
    with pytest.raises(PlanError, match="cannot be reached with any noise; ask for a larger epsilon"):
        smallest_noise(
            draw=FixedSizeDraw(size=10, population=10),
            changed_trees=10,
            steps=10**6,
            epsilon=1e-12,
            delta=1e-15,
            accountant="paper",
        )


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"epsilon": 0.0}, "epsilon=0.0: expected a finite number above 0"),
        ({"epsilon": math.inf}, "epsilon=inf: expected"),
        ({"epsilon": math.nan}, "epsilon=nan: expected"),
        ({"delta": 0.0}, "delta=0.0: expected a probability above 0"),
        ({"delta": 1.0}, "delta=1.0: expected"),
        ({"steps": 0}, "steps=0: expected 1 or more"),
        ({"changed_trees": 0}, "changed_trees=0: expected 1 or more"),
        ({"draw": FixedSizeDraw(size=1, population=10)}, "prices Poisson batches only"),
        ({"accountant": "other"}, "accountant='other': expected"),
    ],
)
def test_bad_requests(wrong: dict[str, object], message: str) -> None:
    request: dict[str, object] = {
        "draw": PoissonDraw(rate=0.1),
        "changed_trees": 3,
        "steps": 10,
        "epsilon": 1.0,
        "delta": DELTA,
        "accountant": "pair",
    }
    with pytest.raises(PlanError, match=message):
        smallest_noise(**(request | wrong))  # type: ignore[arg-type]


def board_and_steps(sigma: float) -> list[tuple[Event, int]]:
    steps = StepEvent(draw=PoissonDraw(rate=0.1), changed_trees=1, sigma_over_clip=sigma)
    return [(GaussianEvent(shift_over_sigma=0.4), 1), (steps, 200)]


def spent_at(sigma: float) -> float:
    made = make_accountant("pair")
    for row in board_and_steps(sigma):
        made.compose(*row)
    return made.epsilon(DELTA)


@pytest.mark.parametrize("start", [0.5, 5.0, 50.0])
def test_the_scale_beside_a_settled_release_is_safe_and_smallest(start: float) -> None:
    sigma = smallest_scale(spent=spent_at, start=start, epsilon=3.0, delta=DELTA)
    assert spent_at(sigma) <= 3.0 < spent_at(sigma * 0.999)


def test_a_settled_release_beyond_the_budget_is_refused() -> None:
    with pytest.raises(PlanError, match=r"epsilon=0.5 at delta=1e-06 cannot be reached with any noise"):
        smallest_scale(spent=spent_at, start=5.0, epsilon=0.5, delta=DELTA)
