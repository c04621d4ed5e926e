"""Lower bounds on epsilon from counted successes of an attack, without any assumption on the mechanism."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import stats

from hushgraph.errors import InputError, PlanError
from hushgraph.privacy.plans import PrivacyPlan

Floats = npt.NDArray[np.float64]

_CANDIDATES = 400
# The part of the trials that chooses the threshold; the rest is counted.
_CHOOSING = 0.2
# Stricter than the bound itself: among so many thresholds a rare event wins by luck otherwise.
_CHOOSING_ERROR = 1e-2


@dataclass(frozen=True, kw_only=True)
class Bound:
    """What was counted, and the epsilon that follows from it.

    Attributes:
        epsilon: the lower bound.
        confidence: how often, at least, such a bound is at most the true epsilon.
        delta: the delta it is for.
        trials: trials a world that were counted, those that chose the threshold left out.
        hits: how often the event happened in the world that it speaks for.
        false_alarms: how often it happened in the other world.
        threshold: of the statistic.
    """

    epsilon: float
    confidence: float
    delta: float
    trials: int
    hits: int
    false_alarms: int
    threshold: float


@dataclass(frozen=True, kw_only=True)
class LowerBound(Bound):
    """No mechanism with a smaller epsilon at this delta explains the counts, at `confidence`.

    Attributes:
        speaks_for: "row" where the event is a statistic of at least `threshold`, "no row" where it is one of
            at most `threshold`.
        most: the largest epsilon that so many trials can show, were the attack perfect.
    """

    speaks_for: str
    most: float


def rate_at_most(count: Any, trials: int, error: float) -> Any:
    """Clopper-Pearson: with probability at least 1 - error the true rate is below this."""
    count = np.asarray(count)
    return np.where(count >= trials, 1.0, stats.beta.ppf(1 - error, count + 1, np.maximum(trials - count, 1)))


def rate_at_least(count: Any, trials: int, error: float) -> Any:
    """Clopper-Pearson: with probability at least 1 - error the true rate is above this."""
    count = np.asarray(count)
    return np.where(count <= 0, 0.0, stats.beta.ppf(error, np.maximum(count, 1), trials - count + 1))


def epsilon_lower_bound(
    with_row: npt.ArrayLike, without_row: npt.ArrayLike, *, delta: float, confidence: float = 0.95
) -> LowerBound:
    """A lower bound on epsilon from the statistic of independent trials in the two worlds.

    Nothing is assumed but that the trials of each world are independent and alike: (epsilon, delta) allows no
    event E with P(E) > e^epsilon Q(E) + delta, in either direction. The first fifth of the trials chooses the
    event, a threshold and a direction. On the others the two rates are bounded by Clopper and Pearson, each
    at half of 1 - confidence.

    Args:
        with_row: [trials], the statistic where the row is there; large where it looks as if it were.
        without_row: [trials], the statistic where the row is empty.
        delta: of (epsilon, delta).
        confidence: above 0 and below 1.

    Guarantees:
        With probability at least `confidence` the result is at most the epsilon that the mechanism has at
        `delta`. It is 0 where nothing was shown.
    """
    check_confidence(confidence)
    choosing, counting = split_trials(with_row, without_row)
    error = (1 - confidence) / 2
    trials = len(counting[0])
    for_row = _choose(choosing[0], choosing[1], delta)
    for_none = _choose(-choosing[1], -choosing[0], delta)
    there, empty = counting
    if for_row[0] >= for_none[0]:
        threshold, speaks_for = for_row[1], "row"
        hits, alarms = int((there >= threshold).sum()), int((empty >= threshold).sum())
    else:
        threshold, speaks_for = -for_none[1], "no row"
        hits, alarms = int((empty <= threshold).sum()), int((there <= threshold).sum())
    return LowerBound(
        epsilon=max(0.0, float(_epsilon(hits, alarms, trials, delta, error))),
        confidence=confidence,
        delta=delta,
        trials=trials,
        hits=hits,
        false_alarms=alarms,
        threshold=threshold,
        speaks_for=speaks_for,
        most=most_shown(trials, delta=delta, confidence=confidence),
    )


Pair = tuple[Floats, Floats]


def split_trials(with_row: npt.ArrayLike, without_row: npt.ArrayLike) -> tuple[Pair, Pair]:
    """Check the trials of both worlds; split them into trials for choosing an event and for counting it."""
    there, empty = (np.asarray(values, dtype=np.float64) for values in (with_row, without_row))
    if there.shape != empty.shape or there.ndim != 1 or len(there) < 4:
        raise InputError(
            f"trials have shapes {there.shape} and {empty.shape}: expected as many in both worlds, at least 4"
        )
    if not (np.isfinite(there).all() and np.isfinite(empty).all()):
        raise InputError("a statistic is not finite; expected a finite number from every trial")
    first = max(2, int(_CHOOSING * len(there)))
    return (there[:first], empty[:first]), (there[first:], empty[first:])


def candidate_thresholds(there: Floats, empty: Floats) -> Floats:
    """Thresholds to choose from: evenly spaced quantiles of both worlds, and more of the rare events."""
    trials = len(there)
    ranks = np.geomspace(1, trials, _CANDIDATES).astype(np.int64)
    ranks = np.unique(np.concatenate([ranks, np.linspace(1, trials, _CANDIDATES).astype(np.int64)]))
    return np.unique(np.concatenate([np.sort(values)[trials - ranks] for values in (there, empty)]))


def count_at_least(values: Floats, thresholds: Floats) -> npt.NDArray[np.int64]:
    """Count, for every threshold, the values that are at least as large."""
    return len(values) - np.searchsorted(np.sort(values), thresholds, side="left")


def most_shown(trials: int, *, delta: float, confidence: float = 0.95) -> float:
    """The lower bound of an attack that is right in all of `trials` counted trials in both worlds."""
    return max(0.0, float(_epsilon(trials, 0, trials, delta, (1 - confidence) / 2)))


def check_confidence(confidence: float) -> None:
    """Refuse a confidence that is not between 0 and 1."""
    if not 0 < confidence < 1:
        raise InputError(f"confidence={confidence}: expected a number above 0 and below 1, such as 0.95")


def check_can_audit(plan: PrivacyPlan, trials: int | None, confidence: float) -> None:
    """Refuse an invalid confidence, too few trials, and a plan without noise or steps."""
    check_confidence(confidence)
    if trials is not None and trials < 10:
        raise InputError(f"trials={trials}: expected at least 10")
    if not plan.is_private or plan.steps == 0:
        raise PlanError("the plan has no noise or no steps, so there is nothing to audit; give both")


def _epsilon(hits: Any, alarms: Any, trials: int, delta: float, error: float) -> Any:
    gained = rate_at_least(hits, trials, error) - delta
    least = np.full(np.shape(gained), -math.inf)
    return np.where(
        gained > 0,
        np.log(gained, out=least, where=gained > 0) - np.log(rate_at_most(alarms, trials, error)),
        -math.inf,
    )


def _choose(speaking: Floats, other: Floats, delta: float) -> tuple[float, float]:
    """Return the largest bound that a threshold shows with confidence on these trials, and the threshold."""
    thresholds = candidate_thresholds(speaking, other)
    hits, alarms = (count_at_least(values, thresholds) for values in (speaking, other))
    surely = _epsilon(hits, alarms, len(speaking), delta, _CHOOSING_ERROR)
    best = int(np.argmax(surely))
    return float(surely[best]), float(thresholds[best])
