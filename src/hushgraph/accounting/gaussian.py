"""The Gaussian mechanism, exactly: what a full batch costs, and what no batch can exceed."""

from __future__ import annotations

import math

from scipy import optimize, special


def gaussian_delta(shift: float, epsilon: float) -> float:
    """Delta of N(shift, 1) against N(0, 1) at `epsilon` >= 0.

    Phi(a) - e^epsilon Phi(b) with a = shift/2 - epsilon/shift and b = a - shift, written with the scaled
    complementary error function so that e^epsilon never appears.
    """
    if shift == 0.0:
        return 0.0
    a = 0.5 * shift - epsilon / shift
    b = -0.5 * shift - epsilon / shift
    second = math.sqrt(0.5 * math.pi) * float(special.erfcx(-b / math.sqrt(2)))
    density = math.exp(-0.5 * a * a) / math.sqrt(2 * math.pi)
    if a > 0.0:
        return min(1.0, max(0.0, float(special.ndtr(a)) - density * second))
    first = math.sqrt(0.5 * math.pi) * float(special.erfcx(-a / math.sqrt(2)))
    return density * max(0.0, first - second)


def gaussian_epsilon(shift: float, delta: float) -> float:
    """The smallest epsilon, from above, at which `gaussian_delta` is at most `delta` > 0."""
    if gaussian_delta(shift, 0.0) <= delta:
        return 0.0
    high = 0.5 * shift * shift + shift * math.sqrt(-2 * math.log(delta))

    def excess(epsilon: float) -> float:
        value = gaussian_delta(shift, epsilon)
        return (math.log(value) if value > 0.0 else -1e9) - math.log(delta)

    # So large a shift that rounding hides where the bound is met: the bound itself, which is safe.
    if math.isinf(high) or excess(high) >= 0.0:
        return high * (1 + 1e-11)
    epsilon = float(optimize.brentq(excess, 0.0, high, xtol=1e-15 * high, rtol=1e-12))
    while gaussian_delta(shift, epsilon) > delta:
        epsilon *= 1 + 1e-11
    return epsilon


def gaussian_shift(epsilon: float, delta: float) -> float:
    """The largest shift, from below, at which `gaussian_delta` at `epsilon` > 0 is at most `delta` < 1."""
    low, high = 0.0, 1.0
    while gaussian_delta(high, epsilon) <= delta:
        low, high = high, 2 * high
    while high - low > 1e-13 * high:
        middle = 0.5 * (low + high)
        low, high = (middle, high) if gaussian_delta(middle, epsilon) <= delta else (low, middle)
    return low
