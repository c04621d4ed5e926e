"""Lower bounds on epsilon from counted successes of an attack."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import stats

from hushgraph.errors import InputError

Floats = npt.NDArray[np.float64]

_CANDIDATES = 400


@dataclass(frozen=True, kw_only=True)
class LowerBound:
    """What was counted, and the epsilon that follows from it.

    Attributes:
        epsilon: no mechanism with a smaller epsilon at this delta explains the counts, at `confidence`.
        confidence: how often, at least, such a bound is at most the true epsilon.
        delta: the delta it is for.
        trials: trials a world that were counted, those that chose the threshold left out.
        hits: how often the event happened in the world that it speaks for.
        false_alarms: how often it happened in the other world.
        threshold: of the statistic.
        speaks_for: "row" where the event is a statistic of at least `threshold`, "no row" where it is one of
            at most `threshold`.
        most: the largest epsilon that so many trials can show, were the attack perfect.
    """

    epsilon: float
    confidence: float
    delta: float
    trials: int
    hits: int
    false_alarms: int
    threshold: float
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
    event E with P(E) > e^epsilon Q(E) + delta, in either direction. The first half of the trials chooses the
    event, a threshold and a direction. On the second half the two rates are bounded by Clopper and Pearson,
    each at half of 1 - confidence.

    Args:
        with_row: [trials], the statistic where the row is there; large where it looks as if it were.
        without_row: [trials], the statistic where the row is empty.
        delta: of (epsilon, delta).
        confidence: above 0 and below 1.

    Guarantees:
        With probability at least `confidence` the result is at most the epsilon that the mechanism has at
        `delta`. It is 0 where nothing was shown.
    """
    pair = [np.asarray(values, dtype=np.float64) for values in (with_row, without_row)]
    if pair[0].shape != pair[1].shape or pair[0].ndim != 1 or len(pair[0]) < 4:
        raise InputError(
            f"trials have shapes {pair[0].shape} and {pair[1].shape}: expected as many in both worlds, "
            "at least 4"
        )
    if not all(np.isfinite(values).all() for values in pair):
        raise InputError("a statistic is not finite; expected a finite number from every trial")
    check_confidence(confidence)
    half = len(pair[0]) // 2
    error = (1 - confidence) / 2
    for_row = _chosen(pair[0][:half], pair[1][:half], delta, error)
    for_none = _chosen(-pair[1][:half], -pair[0][:half], delta, error)
    there, empty = pair[0][half:], pair[1][half:]
    trials = len(there)
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


def most_shown(trials: int, *, delta: float, confidence: float = 0.95) -> float:
    """The lower bound of an attack that is right in all of `trials` counted trials in both worlds."""
    return max(0.0, float(_epsilon(trials, 0, trials, delta, (1 - confidence) / 2)))


def check_confidence(confidence: float) -> None:
    """Refuse a confidence that is no probability."""
    if not 0 < confidence < 1:
        raise InputError(f"confidence={confidence}: expected a number above 0 and below 1, such as 0.95")


def _epsilon(hits: Any, alarms: Any, trials: int, delta: float, error: float) -> Any:
    gained = rate_at_least(hits, trials, error) - delta
    least = np.full(np.shape(gained), -math.inf)
    return np.where(
        gained > 0,
        np.log(gained, out=least, where=gained > 0) - np.log(rate_at_most(alarms, trials, error)),
        -math.inf,
    )


def _chosen(speaking: Floats, other: Floats, delta: float, error: float) -> tuple[float, float]:
    """The bound that a threshold promises, and the threshold."""
    ranked = [np.sort(values) for values in (speaking, other)]
    trials = len(speaking)
    # Thresholds matter where events are rare: as many ranks per power of two in the tail as in the middle.
    ranks = np.unique(np.geomspace(1, trials, _CANDIDATES).astype(np.int64))
    thresholds = np.unique(np.concatenate([values[trials - ranks] for values in ranked]))
    hits, alarms = (trials - np.searchsorted(values, thresholds, side="left") for values in ranked)
    # A standard deviation worse than what was counted: luck with the rarest events does not repeat.
    hits = hits - np.sqrt(hits)
    alarms = np.minimum(alarms + np.sqrt(alarms) + 1, trials)
    promised = _epsilon(hits, alarms, trials, delta, error)
    best = int(np.argmax(promised))
    return float(promised[best]), float(thresholds[best])
