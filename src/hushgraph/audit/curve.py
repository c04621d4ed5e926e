"""A lower bound on epsilon from the trade-off curve of the mechanism that was priced.

The accountant prices a curve, not one point of it: for every rate of false alarms, the largest rate of hits
that an attack can have. With whole batches it is the curve of two Gaussians that are `shift` apart; with
drawn ones that of the dominating pairs of all steps and boards together. Such a curve has one unknown, the
noise: all of it larger or smaller by one factor. An event with enough hits and few enough false alarms
refutes every curve with so much noise or more, wherever on the curve the event lies: a common event does,
which few trials count well.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy import special

from hushgraph.accounting.accountants import Accountant, compose_shifts, gaussian_epsilon, make_accountant
from hushgraph.accounting.events import Event, GaussianEvent, PoissonDraw
from hushgraph.audit.statistics import (
    Bound,
    Floats,
    candidate_thresholds,
    check_confidence,
    count_at_least,
    rate_at_least,
    rate_at_most,
    split_trials,
)
from hushgraph.privacy.plans import PrivacyPlan

# Noise that is tried, as parts of the planned noise, and how exactly the answer is wanted.
_LEAST_NOISE, _MOST_NOISE, _TOLERANCE = 1 / 64, 64.0, 1e-3
_EPSILONS = 200
_CHOOSING_ERROR = 1e-4

Charges = Sequence[tuple[Event, int]]


@dataclass(frozen=True, kw_only=True)
class CurveBound(Bound):
    """The epsilon that follows if the mechanism has a curve of this family.

    It is that of the family's curve with the most noise that the counts do not refute. The event speaks for
    the row.

    Attributes:
        family: "gaussian" for whole batches, "pair" for the dominating pair of drawn ones.
        noise_at_most: the mechanism behaves as if it had no more noise than this part of what was planned.
    """

    family: Literal["gaussian", "pair"]
    noise_at_most: float


def curve_lower_bound(
    with_row: npt.ArrayLike,
    without_row: npt.ArrayLike,
    *,
    plan: PrivacyPlan,
    charges: Charges | None = None,
    confidence: float = 0.95,
) -> CurveBound | None:
    """A lower bound on epsilon at the plan's delta from trials of both worlds; None for fixed-size batches.

    The first fifth of the trials chooses a threshold of the statistic. On the others the rates of hits and of
    false alarms are bounded by Clopper and Pearson, each at half of 1 - confidence. Curves that allow no such
    event are refuted.

    Args:
        with_row: [trials], the statistic where the row is there; large where it looks as if it were.
        without_row: [trials], the statistic where the row is empty.
        plan: whose charges and delta make the family.
        charges: events and counts in place of the plan's, where part of it is attacked or worlds differ in
            something else than one row.
        confidence: above 0 and below 1.

    Guarantees:
        If the trade-off curve of the mechanism is one of the family, then with probability at least
        `confidence` the result is at most the epsilon that it has at the plan's delta.
        Without that assumption: with probability at least `confidence`, a result above the epsilon of the
        charges shows that the mechanism does not have the curve that the accountant priced.
    """
    check_confidence(confidence)
    charges = plan.events if charges is None else charges
    rates = [_rate(event) for event, _ in charges]
    if None in rates:
        return None
    is_gaussian = all(rate == 1 for rate in rates)
    choosing, (there, empty) = split_trials(with_row, without_row)
    error = (1 - confidence) / 2
    threshold = (_balance_threshold if is_gaussian else _choose_threshold)(*choosing)
    hits, alarms = int((there >= threshold).sum()), int((empty >= threshold).sum())
    hit_rate = float(rate_at_least(hits, len(there), error))
    alarm_rate = float(rate_at_most(alarms, len(there), error))
    if is_gaussian:
        shift = float(_shift(hit_rate, alarm_rate))
        epsilon = gaussian_epsilon(shift, plan.delta)
        noise = compose_shifts(charges) / shift if shift > 0 else math.inf
    else:
        noise = _most_noise(charges, hit_rate, alarm_rate)
        epsilon = 0.0 if math.isinf(noise) else _compose(charges, noise).epsilon(plan.delta)
    return CurveBound(
        epsilon=epsilon,
        confidence=confidence,
        delta=plan.delta,
        family="gaussian" if is_gaussian else "pair",
        noise_at_most=noise,
        trials=len(there),
        hits=hits,
        false_alarms=alarms,
        threshold=threshold,
    )


def _rate(event: Event) -> float | None:
    """How likely a root is to join; 1 for a board, None for batches of fixed size that are not whole."""
    if isinstance(event, GaussianEvent):
        return 1.0
    if isinstance(event.draw, PoissonDraw):
        return event.draw.rate
    return 1.0 if event.draw.size == event.draw.population else None


def _shift(hit_rate: npt.ArrayLike, alarm_rate: npt.ArrayLike) -> Floats:
    """The least distance of two unit Gaussians that allows these rates; 0 where any does."""
    apart = special.ndtri(hit_rate) - special.ndtri(alarm_rate)
    return np.asarray(np.maximum(np.nan_to_num(apart, nan=0.0, neginf=0.0), 0.0))


def _balance_threshold(there: Floats, empty: Floats) -> float:
    """The threshold with as many misses as false alarms, which shows most of the shift of two Gaussians."""
    thresholds = candidate_thresholds(there, empty)
    hits, alarms = (count_at_least(values, thresholds) for values in (there, empty))
    best = float(thresholds[int(np.argmin(np.abs(hits + alarms - len(there))))])
    # In the middle of its gap: the worlds may be far apart, and the first of one of them is at the edge.
    below = np.concatenate([there[there < best], empty[empty < best]])
    return (best + float(below.max())) / 2 if len(below) else best


def _choose_threshold(there: Floats, empty: Floats) -> float:
    """The threshold that surely shows most: the pair of small batches differs in rare events."""
    thresholds = candidate_thresholds(there, empty)
    hits, alarms = (count_at_least(values, thresholds) for values in (there, empty))
    # Far stricter than the bound itself: among so many thresholds a rare event wins by luck otherwise.
    surely = _shift(
        rate_at_least(hits, len(there), _CHOOSING_ERROR), rate_at_most(alarms, len(there), _CHOOSING_ERROR)
    )
    if not surely.any():
        # So few trials show nothing for sure; any threshold is valid, and this one is seldom far off.
        return _balance_threshold(there, empty)
    return float(thresholds[int(np.argmax(surely))])


def _with_noise(event: Event, factor: float) -> Event:
    """The event with so many times the noise."""
    if isinstance(event, GaussianEvent):
        return replace(event, shift_over_sigma=event.shift_over_sigma / factor)
    return replace(event, sigma_over_clip=event.sigma_over_clip * factor)


def _compose(charges: Charges, factor: float) -> Accountant:
    books = make_accountant("pair")
    for event, count in charges:
        books.compose(_with_noise(event, factor), count=count)
    return books


def _most_noise(charges: Charges, hit_rate: float, alarm_rate: float) -> float:
    """The largest factor of the noise whose curve allows these rates; infinite where none is refuted."""
    low, high = _LEAST_NOISE, _MOST_NOISE
    if not _is_refuted(_compose(charges, high), hit_rate, alarm_rate):
        return math.inf
    while high / low > 1 + _TOLERANCE:
        middle = math.sqrt(low * high)
        refuted = _is_refuted(_compose(charges, middle), hit_rate, alarm_rate)
        low, high = (low, middle) if refuted else (middle, high)
    # The noisier end of the bracket has the smaller epsilon.
    return high


def _is_refuted(books: Accountant, hit_rate: float, alarm_rate: float) -> bool:
    """Whether some epsilon of what was composed allows neither the event nor its opposite."""
    if hit_rate <= alarm_rate:
        return False
    # No larger epsilon is violated by these rates, whatever delta.
    largest = max(math.log(hit_rate / alarm_rate), math.log((1 - alarm_rate) / (1 - hit_rate)))
    for epsilon in np.linspace(0.0, largest, _EPSILONS):
        factor, delta = math.exp(epsilon), books.delta(float(epsilon))
        event_excess = hit_rate - factor * alarm_rate - delta
        opposite_excess = (1 - alarm_rate) - factor * (1 - hit_rate) - delta
        if max(event_excess, opposite_excess) > 0:
            return True
    return False
