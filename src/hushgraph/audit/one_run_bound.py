"""A lower bound on epsilon from guesses about rows of one training (Steinke, Nasr and Jagielski, 2023)."""

from __future__ import annotations

import math

import numpy as np
from scipy import stats

from hushgraph.audit.statistics import check_confidence
from hushgraph.errors import InputError

_LARGEST = 50.0


def guesses_p_value(*, rows: int, guesses: int, correct: int, epsilon: float, delta: float) -> float:
    """How likely so many correct guesses are at most, if training is (epsilon, delta)-private.

    Every one of `rows` rows is there or empty by a fair coin of its own. Whatever the mechanism, the number
    of correct ones among `guesses` is at most as large as a binomial one with rate e^epsilon / (1 +
    e^epsilon), up to a correction for delta.
    """
    rate = 1 / (1 + math.exp(-epsilon))
    pure = float(stats.binom.sf(correct - 1, guesses, rate))
    if correct == 0:
        return 1.0
    below = np.cumsum(stats.binom.pmf(np.arange(correct - 1, -1, -1), guesses, rate))
    per_guess = float((below / np.arange(1, correct + 1)).max())
    return min(1.0, pure + 2 * rows * delta * per_guess)


def one_run_lower_bound(
    *, rows: int, guesses: int, correct: int, delta: float, confidence: float = 0.95
) -> float:
    """The largest epsilon that the guesses refute; 0 where they refute none.

    Args:
        rows: rows whose presence was decided by a coin.
        guesses: how many of them were guessed, a number fixed beforehand.
        correct: how many guesses were right.
        delta: of (epsilon, delta).
        confidence: above 0 and below 1.

    Guarantees:
        With probability at least `confidence` the result is at most the epsilon that the mechanism has at
        `delta`.
    """
    check_confidence(confidence)
    if not 0 <= correct <= guesses <= rows:
        raise InputError(
            f"correct={correct}, guesses={guesses}, rows={rows}: expected correct <= guesses <= rows"
        )

    def refuted(epsilon: float) -> bool:
        chance = guesses_p_value(rows=rows, guesses=guesses, correct=correct, epsilon=epsilon, delta=delta)
        return chance <= 1 - confidence

    low, high = 0.0, _LARGEST
    if not refuted(low):
        return 0.0
    while high - low > 1e-4:
        middle = (low + high) / 2
        low, high = (middle, high) if refuted(middle) else (low, middle)
    return low


def best_number_of_guesses(*, rows: int, shift: float, delta: float, confidence: float = 0.95) -> int:
    """How many guesses promise most where a row shifts a unit Gaussian by `shift`; looks at no outcome."""
    best, promised = max(1, rows // 10), -1.0
    for part in (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 1.0):
        half = max(1, int(rows * part / 2))
        # The threshold above which half of the guesses fall, of the even mixture of both worlds.
        cut = float(stats.norm.isf(part / 2)) if shift == 0 else _mixture_cut(part / 2, shift)
        right = float(stats.norm.sf(cut - shift))
        wrong = float(stats.norm.sf(cut))
        correct = int(2 * half * right / max(right + wrong, 1e-300))
        bound = one_run_lower_bound(
            rows=rows, guesses=2 * half, correct=min(correct, 2 * half), delta=delta, confidence=confidence
        )
        if bound > promised:
            best, promised = 2 * half, bound
    return best


def _mixture_cut(tail: float, shift: float) -> float:
    low, high = -10.0, 10.0 + shift
    while high - low > 1e-6:
        middle = (low + high) / 2
        above = (float(stats.norm.sf(middle)) + float(stats.norm.sf(middle - shift))) / 2
        low, high = (middle, high) if above > tail else (low, middle)
    return low
