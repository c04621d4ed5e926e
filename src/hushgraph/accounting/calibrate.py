"""The smallest noise, or the most steps, that a budget allows."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import cast

from hushgraph.accounting.accountant import AccountantName, check_event, make_accountant
from hushgraph.accounting.events import Draw, StepEvent
from hushgraph.accounting.gaussian import gaussian_epsilon
from hushgraph.errors import PlanError

# How close to the smallest noise the search must come.
_NOISE_TOLERANCE = 5e-5
_LEAST_NOISE, _MOST_NOISE = 1e-6, 1e15
_MOST_STEPS = 10**9


def smallest_noise(
    *, draw: Draw, changed_trees: int, steps: int, epsilon: float, delta: float, accountant: str
) -> float:
    """The smallest noise that keeps `steps` equal steps within (epsilon, delta).

    Args:
        draw: how the roots of every step are drawn.
        changed_trees: n, the most trees that one node changes.
        steps: how many steps, 1 or more.
        epsilon: the budget, above 0.
        delta: the budget's delta, between 0 and 1.
        accountant: "pair" or "paper".

    Returns:
        sigma / C, at most a relative 1e-4 above the smallest possible.

    Raises:
        PlanError: if no noise, or any noise at all, meets the target.

    Guarantees:
        The accountant, asked again with the noise returned, answers at most `epsilon`.
    """
    _check_budget(epsilon, delta)
    if steps < 1:
        raise PlanError(f"steps={steps}: expected 1 or more; without a step no noise is needed.")
    target = f"epsilon={epsilon:g} at delta={delta:g} over steps={steps}"

    def spent(log_sigma: float) -> float:
        event = StepEvent(draw=draw, changed_trees=changed_trees, sigma_over_clip=math.exp(log_sigma))
        return _spent(event, steps, delta, accountant)

    check_event(StepEvent(draw=draw, changed_trees=changed_trees, sigma_over_clip=1.0))
    high = math.log((2 * changed_trees - 1) * math.sqrt(steps)) - _log_gaussian_shift(epsilon, delta)
    high = min(max(high, math.log(_LEAST_NOISE)), math.log(_MOST_NOISE))
    at_high = spent(high)
    while at_high > epsilon:
        if high >= math.log(_MOST_NOISE):
            raise PlanError(
                f"{target} cannot be reached with any noise; ask for a larger epsilon or fewer steps."
            )
        high = min(high + math.log(4), math.log(_MOST_NOISE))
        at_high = spent(high)
    low, step = high, math.log(2)
    at_low = at_high
    while at_low <= epsilon:
        high, at_high = low, at_low
        if low <= math.log(_LEAST_NOISE):
            raise PlanError(
                f"{target} is met without noise: delta allows the rows to be shown; use a smaller delta."
            )
        low = max(low - step, math.log(_LEAST_NOISE))
        step *= 1.5
        at_low = spent(low)
    return math.exp(_narrow(spent, low, at_low, high, at_high, epsilon))


def most_steps(*, event: StepEvent, epsilon: float, delta: float, accountant: str) -> int:
    """How many steps like `event` fit into (epsilon, delta).

    Args:
        event: what one step costs.
        epsilon: the budget, above 0.
        delta: the budget's delta, between 0 and 1.
        accountant: "pair" or "paper".

    Returns:
        The number of steps; 0 if even one is too many.

    Raises:
        PlanError: if more than 10^9 steps fit, or the accountant cannot price the event.

    Guarantees:
        The accountant, asked with the number returned, answers at most `epsilon`.
    """
    _check_budget(epsilon, delta)

    def spent(steps: int) -> float:
        return _spent(event, steps, delta, accountant)

    low, high = 0, 1
    while spent(high) <= epsilon:
        if high >= _MOST_STEPS:
            raise PlanError(
                f"epsilon={epsilon:g} at delta={delta:g} allows over {_MOST_STEPS} steps; use less noise."
            )
        low, high = high, min(high * 4, _MOST_STEPS)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if spent(middle) <= epsilon else (low, middle)
    return low


def _check_budget(epsilon: float, delta: float) -> None:
    if not 0.0 < epsilon < math.inf:
        raise PlanError(f"epsilon={epsilon}: expected a finite number above 0.")
    if not 0.0 < delta < 1.0:
        raise PlanError(f"delta={delta}: expected a probability above 0 and below 1; use 1 / (10 N).")


def _spent(event: StepEvent, steps: int, delta: float, accountant: str) -> float:
    ledger = make_accountant(cast(AccountantName, accountant))
    ledger.compose(event, steps)
    return ledger.epsilon(delta)


def _log_gaussian_shift(epsilon: float, delta: float) -> float:
    """Log of the largest shift of a Gaussian that (epsilon, delta) allows."""
    low, high = -50.0, 50.0
    while high - low > 1e-9:
        middle = 0.5 * (low + high)
        low, high = (middle, high) if gaussian_epsilon(math.exp(middle), delta) <= epsilon else (low, middle)
    return low


def _narrow(
    spent: Callable[[float], float], low: float, at_low: float, high: float, at_high: float, epsilon: float
) -> float:
    """Close in on the least argument at which a decreasing function is at most `epsilon`, from above."""
    slow = 0
    while high - low > _NOISE_TOLERANCE:
        middle = 0.5 * (low + high)
        if slow < 2 and at_high > 0.0 and at_low < math.inf:
            share = math.log(at_low / epsilon) / math.log(at_low / at_high)
            middle = low + share * (high - low)
            # Aim a little to the safe side, then a little to the other, so that both ends close in.
            nudge = 0.4 * _NOISE_TOLERANCE
            middle += nudge if slow == 0 else -nudge
            middle = min(max(middle, low + 0.2 * nudge), high - 0.2 * nudge)
        width = high - low
        value = spent(middle)
        if value <= epsilon:
            high, at_high = middle, value
        else:
            low, at_low = middle, value
        slow = slow + 1 if high - low > 0.5 * width else 0
    return high
