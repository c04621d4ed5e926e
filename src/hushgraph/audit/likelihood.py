"""How much likelier what was released is with the canary's row than without it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy import stats

from hushgraph.audit.statistics import Floats
from hushgraph.audit.weights import Weights
from hushgraph.errors import InputError
from hushgraph.privacy.plans import PrivacyPlan


@dataclass(frozen=True, kw_only=True, eq=False)
class Line:
    """The line along which two sums differ most, in units of the noise: unit noise, means at two places.

    Attributes:
        direction: by parameter.
        there, empty: the means with the row and without it.
        roots: how many roots add up to each.
    """

    direction: Weights
    there: float
    empty: float
    roots: tuple[int, int]

    @property
    def shift(self) -> float:
        return self.there - self.empty

    @classmethod
    def between(
        cls, there: Weights, empty: Weights, sigmas: dict[str, float], roots: tuple[int, int]
    ) -> Line:
        apart = {name: (there[name] - empty[name]).double() for name in there}
        size = math.sqrt(sum(float((d / sigmas[n]).square().sum()) for n, d in apart.items()))
        if size == 0:
            raise InputError("this canary changes nothing under this plan; choose another canary")
        along = {name: d / (sigmas[name] ** 2 * size) for name, d in apart.items()}

        def place(sums: Weights) -> float:
            return float(sum((sums[name].double() * along[name]).sum() for name in sums))

        return cls(direction=along, there=place(there), empty=place(empty), roots=roots)


def log_ratio(released: Floats, lines: list[Line], plan: PrivacyPlan) -> Floats:
    """[trials]: log of how much likelier the released sums are with the row than without, by the plan."""
    total = np.zeros(len(released))
    for step in range(released.shape[1]):
        line, seen = lines[step % len(lines)], released[:, step]
        if plan.sampling_rate == 1:
            total += line.shift * (seen - (line.there + line.empty) / 2)
        else:
            there, empty = line.roots
            total += _log_mixture(seen, line.there, there, plan.sampling_rate)
            total -= _log_mixture(seen, line.empty, empty, plan.sampling_rate)
    return total


def _log_mixture(seen: Floats, mean: float, roots: int, rate: float) -> Floats:
    """Log density where each of so many roots joins with this rate and moves the mean by its share."""
    joined = np.arange(roots + 1)
    places = joined * (mean / max(roots, 1))
    parts = stats.binom.logpmf(joined, roots, rate) + stats.norm.logpdf(seen[:, None], places)
    return np.asarray(np.logaddexp.reduce(parts, axis=1))
