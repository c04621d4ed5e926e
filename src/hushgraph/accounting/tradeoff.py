"""Trade-off curves: how often a test for one row must miss, given how often it may raise a false alarm."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

from scipy import special

from hushgraph.accounting.accountants import compose_shifts

if TYPE_CHECKING:
    from hushgraph.accounting.accountants import Column

_LARGEST_EPSILON = 700.0


def gaussian_tradeoff(shift: float, alpha: float) -> float:
    """Return the least rate of misses against N(shift, 1) and N(0, 1) at the rate `alpha` of false alarms.

    Args:
        shift: mu, at least 0.
        alpha: between 0 and 1.

    Guarantees:
        Exact: beta = Phi(Phi^-1(1 - alpha) - mu), which the test for a threshold attains.

    Examples:
        >>> from hushgraph.accounting.tradeoff import gaussian_tradeoff
        >>> round(gaussian_tradeoff(0.0, 0.05), 6), round(gaussian_tradeoff(1.0, 0.05), 4)
        (0.95, 0.7405)
    """
    # Written without 1 - alpha, which loses the digits of a small alpha.
    return float(special.ndtr(-special.ndtri(alpha) - shift))


def tradeoff_at_least(epsilon: float, delta: float, alpha: float) -> float:
    """Return what (epsilon, delta) proves of the rate of misses at the rate `alpha` of false alarms.

    Guarantees:
        No test for one row has fewer misses, whatever the mechanism. A mechanism may force more of them.

    Examples:
        >>> from hushgraph.accounting.tradeoff import tradeoff_at_least
        >>> tradeoff_at_least(0.0, 0.0, 0.25), tradeoff_at_least(1.0, 1e-5, 1.0)
        (0.75, 0.0)
    """
    # A larger epsilon overflows, and already proves nothing for any alpha above 0.
    factor = math.exp(min(epsilon, _LARGEST_EPSILON))
    return max(0.0, 1.0 - delta - factor * alpha, (1.0 - delta - alpha) / factor)


def gaussian_guess(shift: float) -> float:
    """Return how often a guess between N(shift, 1) and N(0, 1) is right at most, at even prior odds."""
    return float(special.ndtr(0.5 * shift))


def find_shift(columns: Iterable[Column]) -> float | None:
    """Return mu of the one Gaussian that columns of charges are, the largest; None where one is not Gaussian.

    Args:
        columns: for every change that counts, the event and its number for each charge.
    """
    largest = 0.0
    for column in columns:
        events = [(event, times) for event, times in column if event is not None and times]
        if not all(event.is_gaussian for event, _ in events):
            return None
        largest = max(largest, compose_shifts(events))
    return largest
