"""Brent's method, step by step as SciPy's `brentq`, whose package takes half a second to import."""

from __future__ import annotations

import math
from collections.abc import Callable

from hushgraph.errors import PlanError

_MOST_STEPS = 100


def find_root(
    function: Callable[[float], float],
    low: float,
    high: float,
    *,
    xtol: float = 2e-12,
    rtol: float = 2.0**-50,
) -> float:
    """Find x between `low` and `high` where the function changes its sign, up to xtol + rtol |x|."""
    before, now, other = low, high, 0.0
    f_before, f_now, f_other = function(before), function(now), 0.0
    step_before = step = 0.0
    if f_before == 0 or f_now == 0:
        return before if f_before == 0 else now
    if (f_before < 0) == (f_now < 0):
        raise PlanError(
            f"low={low:g}, high={high:g}: the function has the same sign at both; widen the range"
        )
    for _ in range(_MOST_STEPS):
        if f_before != 0 and f_now != 0 and (f_before < 0) != (f_now < 0):
            other, f_other = before, f_before
            step_before = step = now - before
        if abs(f_other) < abs(f_now):
            before, now, other = now, other, now
            f_before, f_now, f_other = f_now, f_other, f_now
        tolerance = (xtol + rtol * abs(now)) / 2
        half = (other - now) / 2
        if f_now == 0 or abs(half) < tolerance:
            break
        trial = math.inf
        if abs(step_before) > tolerance and abs(f_now) < abs(f_before):
            trial = _interpolate(before, now, other, f_before, f_now, f_other)
        if 2 * abs(trial) < min(abs(step_before), 3 * abs(half) - tolerance):
            step_before, step = step, trial
        else:
            step_before = step = half
        before, f_before = now, f_now
        now += step if abs(step) > tolerance else math.copysign(tolerance, half)
        f_now = function(now)
    return now


def _interpolate(
    before: float, now: float, other: float, f_before: float, f_now: float, f_other: float
) -> float:
    """How far from `now` a line through two points, or a curve through three, is zero."""
    if before == other:
        return -f_now * (now - before) / (f_now - f_before)
    slope_before = (f_before - f_now) / (before - now)
    slope_other = (f_other - f_now) / (other - now)
    denominator = slope_other * slope_before * (f_other - f_before)
    if denominator == 0:
        return math.inf
    return -f_now * (f_other * slope_other - f_before * slope_before) / denominator
