"""Promise: every figure of a billboard is the price of what the contract says may move, computed by hand.

With every row in every batch all releases together are one Gaussian of shift mu. Squared shifts, in units of
those of one emptied row: B1 and B2 of the boards, T of all steps.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
from scipy import optimize, stats

from hushgraph.privacy.plans import BillboardPlan

CLASSES = 4
Shift = Callable[[float, float, float], float]
FIGURES: dict[str, Shift] = {
    "epsilon": lambda b1, b2, t: b1 + b2 + t,
    "epsilon_group_of_two": lambda b1, b2, t: 4 * (b1 + b2 + t),
    # A ballot becomes that of another class; the gradient of one row becomes any other.
    "epsilon_label": lambda b1, b2, t: 2 * CLASSES / (CLASSES - 1) * (b1 + b2) + 4 * t,
    "epsilon_evaluated": lambda b1, b2, t: b2,
    "epsilon_other": lambda b1, b2, t: b2,
}
# An edge moves the ballots, the cast predictions and the gradients of both its ends; a directed one, of one.
EDGES: dict[bool, Shift] = {
    False: lambda b1, b2, t: 2 * b1 + 16 * b2 + 16 * t,
    True: lambda b1, b2, t: b1 + 4 * b2 + 4 * t,
}


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Epsilon of N(mu, 1) against N(0, 1), by the formula of Balle and Wang (2018)."""

    def excess(epsilon: float) -> float:
        first = stats.norm.cdf(mu / 2 - epsilon / mu)
        return float(first - math.exp(epsilon) * stats.norm.cdf(-mu / 2 - epsilon / mu) - delta)

    return 0.0 if mu == 0 or excess(0.0) <= 0 else float(optimize.brentq(excess, 0.0, 300.0, xtol=1e-12))


@pytest.fixture(scope="module", params=[(2, False), (2, True), (1, False)], ids=str)
def plan(request: pytest.FixtureRequest) -> BillboardPlan:
    num_boards, directed = request.param
    given: dict[str, Any] = {"num_train_nodes": 500, "batch_size": 500, "num_classes": CLASSES, "steps": 40}
    plan = BillboardPlan(**given, num_boards=num_boards, board_share=0.6, directed=directed)
    return plan.calibrated(epsilon=3.0)


def squared_shifts(plan: BillboardPlan) -> tuple[float, float, float]:
    boards = [1 / std**2 for std in plan.board_noise]
    return boards[0], boards[1] if len(boards) > 1 else 0.0, plan.steps / plan.sigma_over_clip**2


@pytest.mark.parametrize("name", [*FIGURES, "epsilon_edge"])
def test_a_figure_is_what_the_contract_says(plan: BillboardPlan, name: str) -> None:
    shift = EDGES[plan.directed] if name == "epsilon_edge" else FIGURES[name]
    mu = math.sqrt(shift(*squared_shifts(plan)))
    assert getattr(plan, name) == pytest.approx(gaussian_epsilon(mu, 1 / 5_000), rel=1e-6)


def test_the_budget_is_split_by_the_share_of_the_boards(plan: BillboardPlan) -> None:
    b1, b2, t = squared_shifts(plan)
    assert (b1 + b2) / (b1 + b2 + t) == pytest.approx(0.6, rel=1e-6)
    assert b2 in (0.0, pytest.approx(b1))
    assert plan.epsilon == pytest.approx(3.0, rel=1e-6)
    assert plan.epsilon <= 3.0


def test_a_run_that_stops_early_has_paid_for_its_boards_until_then(plan: BillboardPlan) -> None:
    b1, b2, t = squared_shifts(plan)
    for steps in (1, 19, 20, 40):
        paid = b1 + (b2 if steps >= 20 else 0.0) + t * steps / 40
        assert plan.epsilon_after(steps) == pytest.approx(
            gaussian_epsilon(math.sqrt(paid), 1 / 5_000), rel=1e-6
        )
