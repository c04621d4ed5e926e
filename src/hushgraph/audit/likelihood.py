"""How much likelier what was released is with a canary's row than without it, by the planned noise."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import stats

from hushgraph.audit.statistics import Floats


@dataclass(frozen=True, kw_only=True, eq=False)
class Line:
    """For every copy, the line along which two sums differ most: unit noise, means at two places.

    Attributes:
        direction: [copies, width].
        there, empty: [copies], the means with the row and without it.
        roots: how many roots of a copy add up to each.
    """

    direction: Floats
    there: Floats
    empty: Floats
    roots: tuple[int, int]

    @property
    def shift(self) -> Floats:
        """[copies], in units of the noise."""
        return self.there - self.empty

    @classmethod
    def between(cls, there: Floats, empty: Floats, sigmas: Floats, roots: tuple[int, int]) -> Line:
        """The line between sums [copies, width] with noise of these standard deviations [width]."""
        apart = there - empty
        size = np.sqrt(np.square(apart / sigmas).sum(axis=1, keepdims=True))
        direction = apart / (sigmas**2 * np.where(size > 0, size, 1.0))
        return cls(
            direction=direction,
            there=(there * direction).sum(axis=1),
            empty=(empty * direction).sum(axis=1),
            roots=roots,
        )

    def log_ratio(self, released: Floats, rate: float) -> Floats:
        """[copies]: log of how much likelier the sums [copies, width] are with the row than without."""
        seen = (released * self.direction).sum(axis=1)
        if rate == 1:
            return np.asarray(self.shift * (seen - (self.there + self.empty) / 2))
        there, empty = self.roots
        return _log_mixture(seen, self.there, there, rate) - _log_mixture(seen, self.empty, empty, rate)


def _log_mixture(seen: Floats, mean: Floats, roots: int, rate: float) -> Floats:
    """Log density where each of so many roots joins with this rate and moves the mean by its share."""
    joined = np.arange(roots + 1)
    places = joined * (mean[:, None] / max(roots, 1))
    parts = stats.binom.logpmf(joined, roots, rate) + stats.norm.logpdf(seen[:, None], places)
    return np.asarray(np.logaddexp.reduce(parts, axis=1))
