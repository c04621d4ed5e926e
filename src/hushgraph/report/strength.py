"""How strong a guarantee is: mu, the trade-off curve, and what replacing a row costs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from hushgraph._text import digits_up
from hushgraph.accounting.events import Event, GaussianEvent
from hushgraph.report.charts import Axis, LineChart
from hushgraph.report.pages import format_epsilon

if TYPE_CHECKING:
    from hushgraph.privacy.guarantee import Guarantee

_POINTS = 100
_TICKS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
# The rate of false positives that the caption gives an example for.
_EXAMPLE = 0.05
_PERCENT = "{:.0%}".format
_LARGEST_EPSILON = 700.0


def describe_strength(guarantee: Guarantee) -> dict[str, Any] | None:
    """Return mu and what it says, as JSON values; None unless the guarantee holds.

    Guarantees:
        `is_exact` only where every release is a Gaussian for every kind of row. Otherwise mu is that of the
        Gaussian with the same epsilon at this delta, and proves nothing more.
    """
    if guarantee.kind != "holds":
        return None
    from hushgraph.accounting.accountants import gaussian_shift
    from hushgraph.accounting.tradeoff import find_shift, gaussian_guess
    from hushgraph.privacy.changes import rows_emptied
    from hushgraph.privacy.charges import list_column

    plan, epsilon, delta = guarantee.plan, guarantee.epsilon, guarantee.delta
    mu = find_shift(list_column(plan.charges, change) for change in rows_emptied())
    strength = {
        "mu": gaussian_shift(epsilon, delta) if mu is None else mu,
        "is_exact": mu is not None,
        "best_guess": guarantee.best_guess if mu is None else gaussian_guess(mu),
        "replacement": _price_replacement(guarantee),
    }
    bound = _choose_curve(strength, epsilon, delta)
    return strength | {"missed_percent": math.floor(1000 * bound(_EXAMPLE)) / 10}


def _price_replacement(guarantee: Guarantee) -> dict[str, float] | None:
    """Price one row replaced by another, which is emptied and filled again; None where nothing follows.

    The accountant prices it at the same delta where batches are Poisson. Otherwise it is two steps between
    neighbours, whatever the mechanism: twice epsilon, at 1 + e^epsilon times delta.
    """
    from hushgraph.accounting.accountants import price_largest
    from hushgraph.privacy.changes import rows_emptied
    from hushgraph.privacy.charges import list_column

    plan, epsilon, delta = guarantee.plan, guarantee.epsilon, guarantee.delta
    if plan.accountant == "pair":
        columns = [
            [(event and _double(event), times) for event, times in list_column(plan.charges, change)]
            for change in rows_emptied()
        ]
        return {"epsilon": price_largest(columns, delta=delta, accountant="pair"), "delta": delta}
    # A larger epsilon would overflow, and such a delta is above 1 already.
    twice = delta * (1 + math.exp(min(epsilon, _LARGEST_EPSILON)))
    return {"epsilon": 2 * epsilon, "delta": twice} if twice < 1 else None


def _double(event: Event) -> Event:
    """Return what a release costs where a row is replaced, from what it costs where the row is emptied.

    A sum moves at most twice as far. Trees that differ are those that contained the row before or contain it
    after; its own are among both, and none of them is gone.
    """
    if isinstance(event, GaussianEvent):
        return GaussianEvent(shift_over_sigma=2 * event.shift_over_sigma)
    return replace(event, changed_trees=2 * event.changed_trees - event.gone, gone=0)


def describe_replacement(strength: Mapping[str, Any]) -> str:
    """Say what replacing a row by another costs, in a sentence."""
    start = (
        "Neighbours differ in one emptied row. Replacing a row by another one is two such steps, emptying it "
        "and filling it again, and counts twice:"
    )
    cost = strength["replacement"]
    if cost is None:
        return f"{start} epsilon and delta alone give no bound here."
    return (
        f"{start} epsilon is at most {format_epsilon(cost['epsilon'])} at delta {digits_up(cost['delta'])}."
    )


def draw_tradeoff(facts: Mapping[str, Any]) -> LineChart | None:
    """Draw false negatives against false positives; None without strength."""
    strength, about = facts["strength"], facts["guarantee"]
    if strength is None:
        return None
    bound = _choose_curve(strength, float(about["epsilon"]), about["delta"])
    # Evenly along both axes, as the curve is symmetric.
    even = [number / _POINTS for number in range(_POINTS + 1)]
    rates = sorted({*even, *(bound(rate) for rate in even)})
    return LineChart(
        name="tradeoff",
        title="How often an attacker must be wrong",
        description=(
            "The least rate of false negatives against the rate of false positives. At 5% false positives "
            f"it is {strength['missed_percent']:g}%. A dashed line from 100% to 0% is a blind guess, for "
            "which it would be 95%."
        ),
        points=[(rate, bound(rate)) for rate in rates],
        x=Axis(label="false positives", ticks=_TICKS, text=_PERCENT),
        y=Axis(label="false negatives, at least", ticks=_TICKS, text=_PERCENT),
        reference=([(0.0, 1.0), (1.0, 0.0)], "dashed: a blind guess"),
        has_dots=False,
    )


def _choose_curve(strength: Mapping[str, Any], epsilon: float, delta: float) -> Callable[[float], float]:
    from hushgraph.accounting.tradeoff import gaussian_tradeoff, tradeoff_at_least

    if strength["is_exact"]:
        return partial(gaussian_tradeoff, strength["mu"])
    return partial(tradeoff_at_least, epsilon, delta)
