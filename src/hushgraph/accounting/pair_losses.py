"""Privacy losses of sampled steps, composed by `dp_accounting`.

With n changed trees, rate q and noise s (everything in units of the clipping norm)

    P* = sum_i Bin(n, q)(i)   N(+i, s^2)
    Q* = sum_j Bin(n-1, q)(j) N(-j, s^2)

and the step is dominated by (P*, Q*) when the row is emptied, by (Q*, P*) when it is filled. If g of the n
roots contribute nothing in the second dataset, n - g replaces n - 1: the argument is the same.

`dp_accounting` has events for n = g = 1 and for Gaussian releases. Of any other pair it gets the divergence
at every point of a grid, connects the dots pessimistically, and composes the result.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from dp_accounting import dp_event
from dp_accounting.pld import pld_pmf, pld_privacy_accountant, privacy_loss_distribution
from scipy import special, stats

from hushgraph._arrays import FloatArray
from hushgraph.accounting.events import Event, GaussianEvent, PoissonDraw, StepEvent

# Grid intervals in the standard deviation of the loss of one step: a grid adds part of a squared interval to
# the variance of a step, and epsilon follows the standard deviation.
_INTERVALS_PER_SPREAD = 20
# Part of the variance of everything composed that a grid may add by rounding losses far below its interval.
_ADDED_VARIANCE = 1 / 500
# Larger grids take seconds. Rare large losses need most of the points of a step, and gain little by them.
_MOST_POINTS_OF_A_STEP = 1 << 14
_MOST_POINTS_OF_A_RELEASE = 1 << 16
# Divergences are rounded at 1e-16; on a finer grid this would become probabilities that many steps multiply.
_LEAST_INTERVAL_PER_STEP = 4e-13
# Losses that are larger count as infinite.
_LARGEST_LOSS = 1e4
# Probability that one step may leave out; it counts as an infinite loss. And where a normal has that tail.
_TAIL = 1e-22
_REACH = 9.75
# How losses are inverted: the width of cells, in standard deviations of the noise, and the steps of Newton's
# method in a cell, with its mean slope. Losses end where they no longer rise.
_CELL = 1 / 32
_MOST_CELLS = 1 << 16
_ROUNDS = 4
_LEAST_SLOPE = 1e-200
# More components than this are grouped, each group moved to its largest shift.
_MAX_COMPONENTS = 512
# The most numbers in a block of the component-by-point table.
_BLOCK = 1 << 17


class Curve(NamedTuple):
    """What everything composed costs: epsilon at a delta, and delta at an epsilon."""

    epsilon: Callable[[float], float]
    delta: Callable[[float], float]


def compose_losses(counts: Mapping[Event, int], *, precision: float = 1.0) -> Curve:
    """Compose the losses of all events on one grid, pessimistically and each direction by itself.

    Args:
        counts: how often each event happened; every event must shift something.
        precision: divides the grid interval.
    """
    interval = choose_interval(counts) / precision
    if all(has_own_event(event) for event in counts):
        books = pld_privacy_accountant.PLDAccountant(value_discretization_interval=interval)
        for event, count in counts.items():
            books.compose(own_event(event), count)
        return Curve(epsilon=books.get_epsilon, delta=books.get_delta)
    composed = reduce(
        lambda one, other: one.compose(other),
        (place_on_grid(event, interval).self_compose(count) for event, count in counts.items()),
    )
    return Curve(epsilon=composed.get_epsilon_for_delta, delta=composed.get_delta_for_epsilon)


def choose_interval(counts: Mapping[Event, int]) -> float:
    """Choose a grid that is fine enough for every step that matters, and not too fine to compose."""
    losses = {event: build_losses(event) for event in counts}
    spreads = {event: max(loss.spread for loss in both) for event, both in losses.items()}
    variance = sum(count * spreads[event] ** 2 for event, count in counts.items())
    wanted = min(
        max(spreads[e] / _INTERVALS_PER_SPREAD, _ADDED_VARIANCE * variance / (n * spreads[e]))
        for e, n in counts.items()
    )
    most = {
        event: _MOST_POINTS_OF_A_RELEASE if isinstance(event, GaussianEvent) else _MOST_POINTS_OF_A_STEP
        for event in counts
    }
    least = max(loss.width / most[event] for event, both in losses.items() for loss in both)
    return max(wanted, least, _LEAST_INTERVAL_PER_STEP * sum(counts.values()))


def has_own_event(event: Event) -> bool:
    """Whether `dp_accounting` has an event that costs the same, with losses that fit a grid."""
    if isinstance(event, StepEvent) and not event.changed_trees == event.gone == 1:
        return False
    return all(loss.width < _LARGEST_LOSS for loss in build_losses(event))


def own_event(event: Event) -> dp_event.DpEvent:
    """The event of `dp_accounting`: a Gaussian release, or one row in a Poisson batch."""
    if isinstance(event, GaussianEvent):
        return dp_event.GaussianDpEvent(1 / event.shift_over_sigma)
    return dp_event.PoissonSampledDpEvent(_rate(event), dp_event.GaussianDpEvent(event.sigma_over_clip))


def place_on_grid(event: Event, interval: float) -> privacy_loss_distribution.PrivacyLossDistribution:
    """The losses of an event in both directions, rounded to multiples of `interval`."""
    return privacy_loss_distribution.PrivacyLossDistribution(
        *(discretise(loss, interval) for loss in build_losses(event))
    )


def discretise(loss: PairLoss, interval: float) -> pld_pmf.PLDPmf:
    """Give `dp_accounting` the divergence of one direction at multiples of `interval`."""
    low, high = math.floor(loss.ends[0] / interval), math.ceil(loss.ends[1] / interval)
    deltas = loss.divergence(np.arange(low, high + 1) * interval)
    return pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(interval, low, high, deltas)


def build_losses(event: Event) -> tuple[PairLoss, PairLoss]:
    """Build the losses of an event in both directions: row emptied, row filled."""
    if isinstance(event, GaussianEvent):
        upper, lower, rate, sigma = 1, 0, 1.0, 1 / event.shift_over_sigma
    else:
        upper, lower = event.changed_trees, event.changed_trees - event.gone
        rate, sigma = _rate(event), event.sigma_over_clip
    return (
        PairLoss(upper_trees=upper, lower_trees=lower, rate=rate, sigma=sigma),
        PairLoss(upper_trees=lower, lower_trees=upper, rate=rate, sigma=sigma),
    )


def _bound(losses: FloatArray) -> FloatArray:
    return np.clip(losses, -_LARGEST_LOSS, _LARGEST_LOSS)


def _rate(event: StepEvent) -> float:
    return event.draw.rate if isinstance(event.draw, PoissonDraw) else math.nan


class PairLoss:
    """Privacy loss of a mixture of shifts to the right against a mixture of shifts to the left.

    The upper distribution is sum_i Bin(upper_trees, rate)(i) N(+i, sigma^2), the lower one
    sum_j Bin(lower_trees, rate)(j) N(-j, sigma^2), so that the loss increases with x.
    Trees (n, n-1) give (P*, Q*), and (n-1, n) give (Q*, P*), mirrored.

    Args:
        upper_trees: how many trees shift the upper distribution.
        lower_trees: how many trees shift the lower distribution.
        rate: q, the probability of a root to be drawn.
        sigma: standard deviation of the noise, in units of the clipping norm.
    """

    def __init__(self, *, upper_trees: int, lower_trees: int, rate: float, sigma: float) -> None:
        self.upper = BinomialMixture.of(upper_trees, rate, sigma)
        self.lower = BinomialMixture.of(lower_trees, rate, sigma, sign=-1)

    def losses(self, x: FloatArray) -> FloatArray:
        """Return the privacy loss at every `x`."""
        return self.upper.log_density(x) - self.lower.log_density(x)

    def divergence(self, epsilons: npt.ArrayLike) -> FloatArray:
        """Return the hockey-stick divergence at every epsilon, exact up to rounding.

        It is P(x and above) - e^epsilon Q(x and above) at the x that has this loss. Any other x gives less,
        by an error of second order in x.
        """
        epsilons = np.asarray(epsilons, dtype=np.float64)
        x = self.invert(epsilons)
        log_upper = self.upper.log_sf(x)
        log_lower = np.minimum(self.lower.log_sf(x) + epsilons, log_upper)
        deltas: FloatArray = -np.expm1(log_lower - log_upper) * np.exp(log_upper) + self.upper.dropped
        return np.clip(deltas, 0.0, 1.0)

    def invert(self, losses: FloatArray) -> FloatArray:
        """Return the x of every loss, or an end of the upper distribution where none has it."""
        points, at_points = self.points, np.maximum.accumulate(self.losses(self.points))
        cells = np.clip(np.searchsorted(at_points, losses), 1, points.size - 1)
        low, high = points[cells - 1], points[cells]
        slopes = np.maximum((at_points[cells] - at_points[cells - 1]) / (high - low), _LEAST_SLOPE)
        x = np.interp(losses, at_points, points)
        for _ in range(_ROUNDS):
            x = np.clip(x - (self.losses(x) - losses) / slopes, low, high)
        return x

    @cached_property
    def points(self) -> FloatArray:
        """Points close together beside the noise, from end to end of the upper distribution."""
        reach = self.upper.sigma * _REACH
        low, high = self.upper.shifts[0] - reach, self.upper.shifts[-1] + reach
        cells = min(math.ceil((high - low) / (self.upper.sigma * _CELL)), _MOST_CELLS)
        points: FloatArray = np.linspace(low, high, cells + 1)
        return points[self.upper.log_sf(points) > math.log(_TAIL)]

    @cached_property
    def ends(self) -> tuple[float, float]:
        """The smallest and the largest loss on a grid."""
        low, high = _bound(self.losses(self.points[[0, -1]]))
        return float(low), float(high)

    @property
    def width(self) -> float:
        """The difference between the largest and the smallest loss on a grid."""
        return self.ends[1] - self.ends[0]

    @cached_property
    def spread(self) -> float:
        """The standard deviation of the loss on a grid, roughly, and above 0."""
        masses = -np.diff(np.exp(self.upper.log_sf(self.points)))
        losses = _bound(self.losses(0.5 * (self.points[1:] + self.points[:-1])))
        mean = np.average(losses, weights=masses)
        return math.sqrt(float(np.average(np.square(losses - mean), weights=masses))) + 1e-150


@dataclass(frozen=True)
class BinomialMixture:
    """sum_i Bin(trees, rate)(i) N(i, sigma^2), without components of a total weight below 1e-22.

    Attributes:
        shifts: the means of the components, ascending.
        log_weights: their log probabilities.
        sigma: the common standard deviation.
        dropped: the most probability that the components left out have.
    """

    shifts: FloatArray
    log_weights: FloatArray
    sigma: float
    dropped: float

    @classmethod
    def of(cls, trees: int, rate: float, sigma: float, *, sign: int = 1) -> BinomialMixture:
        """Build the mixture; grouped components move outwards, which can only raise the divergence.

        With a sign of -1 the shifts are to the left.
        """
        low, high = _binomial_range(trees, rate, _TAIL / 2)
        shifts = np.arange(low, high + 1, dtype=np.float64)
        with np.errstate(divide="ignore"):
            log_weights: FloatArray = np.log(stats.binom.pmf(shifts, trees, rate))
        kept = log_weights > math.log(_TAIL / (2 * (trees + 1)))
        dropped = 0.0 if kept.all() and shifts.size == trees + 1 else _TAIL
        shifts, log_weights = shifts[kept], log_weights[kept]
        group = -(-shifts.size // _MAX_COMPONENTS)
        if group > 1:
            outwards = np.ceil(shifts / group) * group
            starts = np.flatnonzero(np.diff(outwards, prepend=-1.0))
            log_weights = np.logaddexp.reduceat(log_weights, starts)
            shifts = np.minimum(outwards[starts], float(trees))
        return cls(
            shifts=sign * shifts[::sign], log_weights=log_weights[::sign], sigma=sigma, dropped=dropped
        )

    def log_density(self, x: FloatArray) -> FloatArray:
        """Logarithm of the density at `x`, up to the factor 1 / (sigma sqrt(2 pi))."""
        return self._log_sum(x, lambda z: -0.5 * np.square(z))

    def log_sf(self, x: FloatArray) -> FloatArray:
        """Logarithm of the probability of more than `x`."""
        return self._log_sum(x, lambda z: special.log_ndtr(-z))

    def _log_sum(self, x: FloatArray, log_kernel: Callable[[FloatArray], FloatArray]) -> FloatArray:
        """Logarithm of the weighted sum of a kernel over all components, in blocks that fit the cache."""
        out = np.empty_like(x)
        size = max(1, _BLOCK // self.shifts.size)
        for begin in range(0, x.size, size):
            scaled = x[begin : begin + size] - self.shifts[:, None]
            scaled /= self.sigma
            terms = log_kernel(scaled)
            terms += self.log_weights[:, None]
            top = terms.max(axis=0)
            terms -= top
            np.exp(terms, out=terms)
            out[begin : begin + size] = top + np.log(terms.sum(axis=0))
        return out


def _binomial_range(trees: int, rate: float, tail: float) -> tuple[int, int]:
    """Return bounds that Bin(trees, rate) leaves with probability below `tail`, by Bernstein's inequality."""
    log_tail = -math.log(tail / 2)
    spread = log_tail / 3 + math.sqrt((log_tail / 3) ** 2 + 2 * log_tail * trees * rate * (1 - rate))
    return max(0, math.floor(trees * rate - spread)), min(trees, math.ceil(trees * rate + spread))
