"""Calibration: the smallest noise, or the most steps, within a budget."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from scipy import optimize

from hushgraph.accounting.accountants import gaussian_shift, price
from hushgraph.accounting.events import Draw, Event, StepEvent
from hushgraph.errors import PlanError

# Relative precision of the search for the smallest noise.
_TOLERANCE = 1e-4
_LEAST_NOISE, _MOST_NOISE = 1e-6, 1e15
_MOST_STEPS = 10**9
# The search for the noise of a step starts on a grid, so that the last bits of the start, which depend on how
# it is computed, do not change the answer.
_START_GRID = 25 * 2.0**-35


def smallest_noise(
    *, draw: Draw, changed_trees: int, steps: int, epsilon: float, delta: float, accountant: str
) -> float:
    """Find the smallest noise that keeps `steps` equal steps within (epsilon, delta).

    Args:
        draw: how the roots of a step are drawn.
        changed_trees: n, the most trees that one node changes.
        steps: how many steps, 1 or more.
        epsilon: the budget, above 0.
        delta: the budget's delta, between 0 and 1.
        accountant: "pair" or "paper".

    Returns:
        sigma / C, at most a relative 1e-4 above the smallest possible.

    Raises:
        PlanError: if no noise meets the target, or every noise does.

    Guarantees:
        The accountant, asked again with the noise returned, answers at most `epsilon`.
    """
    check_budget(epsilon, delta)
    if steps < 1:
        raise PlanError(f"steps={steps}: expected 1 or more; without a step no noise is needed")
    event = StepEvent(draw=draw, changed_trees=changed_trees, sigma_over_clip=1.0)

    # Start at full batches: they cost most, and are a Gaussian.
    log_shift = math.log(max(gaussian_shift(epsilon, delta), _LEAST_NOISE))
    rounded = math.floor(log_shift / _START_GRID) * _START_GRID
    return _search_scale(
        lambda sigma: price(
            [(replace(event, sigma_over_clip=sigma), steps)], delta=delta, accountant=accountant
        ),
        math.log((2 * changed_trees - 1) * math.sqrt(steps)) - rounded,
        epsilon,
        delta,
    )


def smallest_scale(*, spent: Callable[[float], float], start: float, epsilon: float, delta: float) -> float:
    """Find the smallest scale of the noise at which what is spent is at most epsilon.

    Args:
        spent: the epsilon, at `delta`, of everything at a scale. A larger scale must not cost more. Some of
            it may not depend on the scale, such as a board whose noise is fixed.
        start: where the search begins, ideally a little above the answer.
        epsilon: the budget, above 0.
        delta: the budget's delta, between 0 and 1.

    Returns:
        The scale, at most a relative 1e-4 above the smallest possible.

    Raises:
        PlanError: if no scale meets the target, or every scale does.

    Guarantees:
        `spent`, asked again at the scale returned, answers at most `epsilon`.
    """
    check_budget(epsilon, delta)
    return _search_scale(spent, math.log(start), epsilon, delta)


def _search_scale(
    price_at: Callable[[float], float], log_start: float, epsilon: float, delta: float
) -> float:
    """Search the smallest safe scale: find a root of the excess, then step up from it until safe."""
    tried: dict[float, float] = {}
    safe = math.inf

    def excess(log_scale: float) -> float:
        """Log of the price over the budget; the search is nearly linear in logarithms."""
        nonlocal safe
        if log_scale not in tried:
            try:
                spent = price_at(math.exp(log_scale))
            except PlanError:
                # Events that can be priced at one noise and not at another are too expensive there.
                if not tried:
                    raise
                spent = math.inf
            # Clipped, because the price may be infinite or 0.
            tried[log_scale] = math.log(min(max(spent / epsilon, 1e-20), 1e20))
            if tried[log_scale] <= 0.0:
                safe = min(safe, log_scale)
        return tried[log_scale]

    low, high = _bracket(excess, log_start, f"epsilon={epsilon:g} at delta={delta:g}", tried)
    root = float(optimize.brentq(excess, low, high, xtol=_TOLERANCE / 4))
    step = _TOLERANCE / 2
    while safe - root > step:
        excess(root + step)
        step *= 2
    return math.exp(safe)


def _bracket(
    excess: Callable[[float], float], start: float, target: str, tried: dict[float, float]
) -> tuple[float, float]:
    """Find two log scales, the first too small and the second large enough."""
    least, most = math.log(_LEAST_NOISE), math.log(_MOST_NOISE)
    high = min(max(start, least), most)
    while excess(high) > 0.0:
        if high >= most:
            raise PlanError(
                f"{target} cannot be reached with any noise; ask for a larger epsilon or fewer steps"
            )
        high = min(high + math.log(4), most)
    slope, before = -1.0, high
    while True:
        if before <= least:
            raise PlanError(
                f"{target} is met without noise: delta allows rows to be shown; use a smaller delta"
            )
        step = min(max(1.1 * tried[before] / slope, 0.05), math.log(30))
        low = max(before - step, least)
        if excess(low) > 0.0:
            return low, before
        slope = min(-0.5, (tried[low] - tried[before]) / (low - before))
        before = low


def most_steps(*, event: Event, epsilon: float, delta: float, accountant: str) -> int:
    """Find the largest number of steps `event` that fits into (epsilon, delta).

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
    check_budget(epsilon, delta)

    def spent(steps: int) -> float:
        return price([(event, steps)], delta=delta, accountant=accountant)

    low, high = 0, 1
    while spent(high) <= epsilon:
        if high >= _MOST_STEPS:
            raise PlanError(
                f"epsilon={epsilon:g} at delta={delta:g} allows over {_MOST_STEPS} steps; use less noise"
            )
        low, high = high, min(high * 4, _MOST_STEPS)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if spent(middle) <= epsilon else (low, middle)
    return low


def check_budget(epsilon: float, delta: float) -> None:
    """Refuse what no mechanism can meet, or every one does."""
    if not 0.0 < epsilon < math.inf:
        raise PlanError(f"epsilon={epsilon}: expected a finite number above 0")
    if not 0.0 < delta < 1.0:
        raise PlanError(f"delta={delta}: expected a probability above 0 and below 1; use 1 / (10 N)")
