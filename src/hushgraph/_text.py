"""Format numbers for readers. A privacy figure is rounded up, so that it never reads smaller than it is."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, Context, Decimal


def rounded_up(value: float, *, decimals: int = 2) -> str:
    """Format a number with fixed decimals, rounded up; numbers below 1 have three significant digits."""
    if math.isinf(value):
        return "infinity"
    short = digits_up(value, digits=3)
    # A number that rounds up to 1 is written like 1.
    if value != 0 and Decimal(short) < 1:
        return short
    exact = Decimal(repr(float(value)))
    return str(exact.quantize(Decimal(1).scaleb(-decimals), rounding=ROUND_CEILING, context=Context(400)))


def digits_up(value: float, *, digits: int = 5) -> str:
    """Format a number with significant digits, rounded up; trailing zeros are dropped."""
    if not math.isfinite(value):
        return "infinity"
    rounded = Context(prec=digits, rounding=ROUND_CEILING).create_decimal(repr(float(value))).normalize()
    is_extreme = rounded != 0 and (rounded.adjusted() < -4 or rounded.adjusted() > 15)
    return f"{rounded:e}" if is_extreme else f"{rounded:f}"
