"""The smallest noise, or the most steps, that a budget allows."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import cast

from scipy import optimize

from hushgraph.accounting.accountant import AccountantName, check_event, make_accountant
from hushgraph.accounting.events import Draw, Event, StepEvent
from hushgraph.accounting.gaussian import gaussian_shift
from hushgraph.errors import PlanError

# How close to the smallest noise the search comes, relatively.
_TOLERANCE = 1e-4
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
    check_event(StepEvent(draw=draw, changed_trees=changed_trees, sigma_over_clip=1.0))

    def events(sigma: float) -> list[tuple[Event, int]]:
        return [(StepEvent(draw=draw, changed_trees=changed_trees, sigma_over_clip=sigma), steps)]

    # Full batches cost most, and are a Gaussian.
    full = (2 * changed_trees - 1) * math.sqrt(steps) / max(gaussian_shift(epsilon, delta), _LEAST_NOISE)
    return smallest_scale(events=events, start=full, epsilon=epsilon, delta=delta, accountant=accountant)


def smallest_scale(
    *,
    events: Callable[[float], Iterable[tuple[Event, int]]],
    start: float,
    epsilon: float,
    delta: float,
    accountant: str,
) -> float:
    """The smallest scale of the noise that keeps everything within (epsilon, delta).

    Args:
        events: what is released at a scale, with counts; a larger scale must never cost more. Part of it may
            not depend on the scale, such as a board whose noise is settled.
        start: where the search begins; best a little above the answer.
        epsilon: the budget, above 0.
        delta: the budget's delta, between 0 and 1.
        accountant: "pair" or "paper".

    Returns:
        The scale, at most a relative 1e-4 above the smallest possible.

    Raises:
        PlanError: if no scale, or every scale, meets the target.

    Guarantees:
        The accountant, asked again at the scale returned, answers at most `epsilon`.
    """
    _check_budget(epsilon, delta)
    tried: dict[float, float] = {}

    def excess(log_scale: float) -> float:
        try:
            spent = _spent(events(math.exp(log_scale)), delta, accountant)
        except PlanError:
            # What was priced at another noise and is not at this one costs too much to be priced.
            if not tried:
                raise
            spent = math.inf
        # Log scales make the search nearly linear; clipped, because not private is inf and free is 0.
        tried[log_scale] = math.log(min(max(spent / epsilon, 1e-20), 1e20))
        return tried[log_scale]

    low, high = _bracket(excess, math.log(start), f"epsilon={epsilon:g} at delta={delta:g}", tried)
    root = float(
        optimize.brentq(lambda x: tried[x] if x in tried else excess(x), low, high, xtol=_TOLERANCE / 4)
    )
    safe = min(x for x, value in tried.items() if value <= 0.0)
    step = _TOLERANCE / 2
    while safe - root > step:
        if excess(root + step) <= 0.0:
            safe = root + step
        step *= 2
    return math.exp(safe)


def _bracket(
    excess: Callable[[float], float], start: float, target: str, tried: dict[float, float]
) -> tuple[float, float]:
    """Two log scales, the first too small and the second large enough."""
    least, most = math.log(_LEAST_NOISE), math.log(_MOST_NOISE)
    high = min(max(start, least), most)
    while excess(high) > 0.0:
        if high >= most:
            raise PlanError(
                f"{target} cannot be reached with any noise; ask for a larger epsilon or fewer steps."
            )
        high = min(high + math.log(4), most)
    slope, before = -1.0, high
    while True:
        if before <= least:
            raise PlanError(
                f"{target} is met without noise: delta allows rows to be shown; use a smaller delta."
            )
        step = min(max(1.1 * tried[before] / slope, 0.05), math.log(30))
        low = max(before - step, least)
        if excess(low) > 0.0:
            return low, before
        slope = min(-0.5, (tried[low] - tried[before]) / (low - before))
        before = low


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
        return _spent([(event, steps)], delta, accountant)

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


def _spent(events: Iterable[tuple[Event, int]], delta: float, accountant: str) -> float:
    ledger = make_accountant(cast(AccountantName, accountant))
    for event, count in events:
        ledger.compose(event, count)
    return ledger.epsilon(delta)
