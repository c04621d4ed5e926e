"""Privacy losses of the dominating pair: one event on a grid, and many of them composed.

With n changed trees, rate q and noise s (everything in units of the clipping norm)

    P* = sum_i Bin(n, q)(i)   N(+i, s^2)
    Q* = sum_j Bin(n-1, q)(j) N(-j, s^2)

and the step is dominated by (P*, Q*) when the row is emptied, by (Q*, P*) when it is filled. If g of the n
roots contribute nothing in the second dataset, n - g replaces n - 1: the argument is the same.

The real line is cut into small cells. A cell whose losses lie in [a, b] is replaced by two atoms, at a and at
b, that have its probability under both distributions. This can only raise the hockey-stick divergence, and
raises it least among all distributions on the grid ("connect the dots"). Cells are used instead of
differences of divergences because all their terms are positive: rounding adds up over many steps.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, reduce

import numpy as np
import numpy.typing as npt
from scipy import special

from hushgraph.accounting.events import Event, GaussianEvent, PoissonDraw
from hushgraph.accounting.loss_grids import GridLosses

FloatArray = npt.NDArray[np.float64]

# Grid intervals in the standard deviation of the loss of one step. A grid adds part of a squared interval
# to the variance of a step, and epsilon follows the standard deviation.
_INTERVALS_PER_SPREAD = 25
_MOST_POINTS = 1 << 20
# Probability that all steps together may leave out; it counts as an infinite loss.
LEFT_OUT = 1e-15
# Cells are at most this wide, in standard deviations of the noise and in grid intervals.
_CELL_SIGMAS = 1 / 32
_CELL_INTERVALS = 0.5
_MOST_CELLS = 1 << 16
# Both tails of a distribution are computed within this many standard deviations of its mean.
_MIDDLE = 1.5
# Part of every cell that is moved to its upper end in any case; covers the rounding of the quotient.
_ROUNDING = 1e-7
# More components than this are grouped, each group moved to its largest shift.
_MAX_COMPONENTS = 512
# The most numbers in a block of the component-by-point table.
_BLOCK = 1 << 17


def compose_losses(
    counts: Mapping[Event, int], *, steps: int, precision: float
) -> tuple[GridLosses, GridLosses]:
    """Compose the losses of all events on one grid, pessimistically and each direction by itself.

    Args:
        counts: how often each event happened; every event must shift something.
        steps: the number of all events, over which the left-out probability is spread.
        precision: divides the grid interval.
    """
    events = place_on_grid(counts, steps=steps, precision=precision)
    emptied, filled = (
        reduce(
            lambda one, other: one.join(other, left_out=LEFT_OUT),
            (
                event[side].repeat(count, left_out=LEFT_OUT)
                for event, count in zip(events, counts.values(), strict=True)
            ),
        )
        for side in (0, 1)
    )
    return emptied, filled


def place_on_grid(
    counts: Mapping[Event, int], *, steps: int, precision: float
) -> list[tuple[GridLosses, GridLosses]]:
    """The losses of each event in both directions, all on one grid; arguments as in `compose_losses`."""
    losses = {event: build_losses(event, LEFT_OUT / steps) for event in counts}
    spreads = {event: max(map(estimate_spread, both)) for event, both in losses.items()}
    # Fine enough for the finest step that matters, and no finer than memory allows.
    total = math.sqrt(sum(count * spreads[event] ** 2 for event, count in counts.items()))
    finest = min(
        spreads[event] for event, count in counts.items() if spreads[event] * math.sqrt(count) > 0.01 * total
    )
    widest = max(loss.width for both in losses.values() for loss in both)
    interval = max(finest / (_INTERVALS_PER_SPREAD * precision), widest / (_MOST_POINTS * precision))
    return [
        (discretise(emptied, interval), discretise(filled, interval)) for emptied, filled in losses.values()
    ]


def build_losses(event: Event, tail: float) -> tuple[PairLoss, PairLoss]:
    """Build the losses of an event in both directions, each without at most `tail` of its probability."""
    if isinstance(event, GaussianEvent):
        upper, lower, rate, sigma = 1, 0, 1.0, 1 / event.shift_over_sigma
    else:
        upper, lower, sigma = event.changed_trees, event.changed_trees - event.gone, event.sigma_over_clip
        rate = event.draw.rate if isinstance(event.draw, PoissonDraw) else math.nan
    return (
        PairLoss(upper_trees=upper, lower_trees=lower, rate=rate, sigma=sigma, tail=tail),
        PairLoss(upper_trees=lower, lower_trees=upper, rate=rate, sigma=sigma, tail=tail),
    )


def estimate_spread(loss: PairLoss) -> float:
    """Estimate the standard deviation of a privacy loss."""
    coarse = loss.coarse
    masses = np.exp(_log_masses(coarse.upper_log_cdf, coarse.upper_log_sf))
    losses = loss.losses(0.5 * (coarse.points[1:] + coarse.points[:-1]))
    mean = float(masses @ losses / masses.sum())
    return math.sqrt(float(masses @ np.square(losses - mean) / masses.sum()))


def discretise(loss: PairLoss, interval: float) -> GridLosses:
    """Round the losses of one direction to multiples of `interval`, pessimistically."""
    coarse = loss.coarse
    at_coarse = np.minimum.accumulate(coarse.losses)
    targets = np.arange(at_coarse[-1], at_coarse[0], interval * _CELL_INTERVALS)
    fine = coarse.merge(loss.evaluate(np.interp(targets, at_coarse[::-1], coarse.points[::-1])))
    at = np.minimum.accumulate(fine.losses)
    log_upper = _log_masses(fine.upper_log_cdf, fine.upper_log_sf)
    log_lower = _log_masses(fine.lower_log_cdf, fine.lower_log_sf)
    top, bottom = np.ceil(at[:-1] / interval).astype(np.int64), np.floor(at[1:] / interval).astype(np.int64)
    # Of probability p under the upper and q under the lower distribution, x goes to the top and p - x to the
    # bottom: x e^-top + (p - x) e^-bottom = q.
    gap = (top - bottom) * interval
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        quotient = np.exp(np.minimum(log_lower - log_upper + bottom * interval, 0.0))
        share = (1 - quotient) / -np.expm1(-gap)
    share = np.where(np.isfinite(share), share, 1.0)
    share = np.clip(share + _ROUNDING, 0.0, 1.0)
    masses = np.exp(log_upper)
    low = int(bottom.min())
    size = int(top.max()) - low + 1
    probs = np.zeros(size)
    probs += np.bincount(top - low, weights=masses * share, minlength=size)
    probs += np.bincount(bottom - low, weights=masses * (1 - share), minlength=size)
    # What lies beyond the last point has smaller losses than any cell; beyond the first, larger ones.
    probs[0] += math.exp(float(fine.upper_log_sf[-1]))
    return GridLosses(interval=interval, lowest=low, probs=probs, infinite=min(1.0 - 1e-16, loss.tail))


def _log_masses(log_cdf: FloatArray, log_sf: FloatArray) -> FloatArray:
    """Log probabilities between neighbouring points, from whichever tail has more digits."""
    left = log_cdf[1:] < log_sf[:-1]
    high = np.where(left, log_cdf[1:], log_sf[:-1])
    low = np.where(left, log_cdf[:-1], log_sf[1:])
    with np.errstate(divide="ignore", invalid="ignore"):
        out: FloatArray = high + np.log(-np.expm1(np.minimum(low - high, 0.0)))
    return np.where(np.isneginf(high), -np.inf, out)


class PairLoss:
    """Privacy loss of a mixture of shifts to the left against a mixture of shifts to the right.

    The upper distribution is sum_i Bin(upper_trees, rate)(i) N(-i, sigma^2), the lower one
    sum_j Bin(lower_trees, rate)(j) N(+j, sigma^2), so that the loss decreases in x.
    Trees (n, n-1) give (P*, Q*), and (n-1, n) give (Q*, P*).

    Args:
        upper_trees: how many trees shift the upper distribution.
        lower_trees: how many trees shift the lower distribution.
        rate: q, the probability of a root to be drawn.
        sigma: standard deviation of the noise, in units of the clipping norm.
        tail: probability that may be left out of either distribution. In the upper one it counts as an
            infinite loss, in the lower one it is missing; both can only raise the divergence.
    """

    def __init__(
        self, *, upper_trees: int, lower_trees: int, rate: float, sigma: float, tail: float = 1e-30
    ) -> None:
        self.sigma = sigma
        self.tail = tail
        self.upper = BinomialMixture.of(upper_trees, rate, sigma, 0.5 * tail)
        self.lower = BinomialMixture.of(lower_trees, rate, sigma, 0.5 * tail)
        low, high = self.upper.ranges(0.5 * tail)
        # Mirrored: the upper distribution's shifts are to the left.
        self.highest_loss_x, self.lowest_loss_x = -float(high.max()), -float(low.min())

    def losses(self, x: npt.ArrayLike) -> FloatArray:
        """Return the privacy loss at every `x`."""
        points = np.asarray(x, dtype=np.float64)
        return self.upper.log_density(-points) - self.lower.log_density(points)

    @property
    def width(self) -> float:
        """Difference between the largest and the smallest loss."""
        highest, lowest = self.losses([self.highest_loss_x, self.lowest_loss_x])
        return float(highest - lowest)

    @cached_property
    def coarse(self) -> Cut:
        """The line cut into cells that are narrow beside the noise."""
        cells = math.ceil((self.lowest_loss_x - self.highest_loss_x) / (self.sigma * _CELL_SIGMAS))
        # Components far apart leave gaps without probability, where wider cells are enough.
        cells = min(cells, _MOST_CELLS)
        return self.evaluate(np.linspace(self.highest_loss_x, self.lowest_loss_x, cells + 1))

    def evaluate(self, points: FloatArray) -> Cut:
        """Evaluate both distributions at points."""
        # Mirrored: at most x on this line is at least -x of the mixture.
        upper_log_sf, upper_log_cdf = self.upper.log_tails(-points)
        return Cut(
            np.stack(
                [points, self.losses(points), upper_log_cdf, upper_log_sf, *self.lower.log_tails(points)]
            )
        )


class Cut:
    """Points, ascending, that cut the line into cells, and what both distributions are there.

    Logarithms of the probability of at most a point (cdf) and of more (sf); of the two, one far above a half
    is given as 0.

    Args:
        rows: points, losses, cdf and sf of the upper distribution, cdf and sf of the lower one.
    """

    def __init__(self, rows: FloatArray) -> None:
        self._rows = rows
        (
            self.points,
            self.losses,
            self.upper_log_cdf,
            self.upper_log_sf,
            self.lower_log_cdf,
            self.lower_log_sf,
        ) = rows

    def merge(self, other: Cut) -> Cut:
        """Cut at the points of both."""
        rows = np.concatenate([self._rows, other._rows], axis=1)
        _, places = np.unique(rows[0], return_index=True)
        return Cut(rows[:, places])


@dataclass(frozen=True)
class BinomialMixture:
    """sum_i Bin(trees, rate)(i) N(i, sigma^2), without components of a total weight below `tail`.

    Attributes:
        shifts: the means of the components, ascending.
        log_weights: their log probabilities.
        sigma: the common standard deviation.
        dropped: the probability of the components left out.
    """

    shifts: FloatArray
    log_weights: FloatArray
    sigma: float
    dropped: float

    @classmethod
    def of(cls, trees: int, rate: float, sigma: float, tail: float) -> BinomialMixture:
        """Build the mixture; grouped components move outwards, which can only raise the divergence."""
        low, high = _binomial_range(trees, rate, tail / 2)
        shifts = np.arange(low, high + 1, dtype=np.float64)
        log_weights = _log_binomial(shifts, trees, rate)
        kept = log_weights > math.log(tail / (2 * (trees + 1)))
        dropped = 0.0 if kept.all() and shifts.size == trees + 1 else tail
        shifts, log_weights = shifts[kept], log_weights[kept]
        group = -(-shifts.size // _MAX_COMPONENTS)
        if group > 1:
            outwards = np.ceil(shifts / group) * group
            starts = np.flatnonzero(np.diff(outwards, prepend=-1.0))
            log_weights = np.logaddexp.reduceat(log_weights, starts)
            shifts = np.minimum(outwards[starts], float(trees))
        return cls(shifts=shifts, log_weights=log_weights, sigma=sigma, dropped=dropped)

    def log_density(self, x: FloatArray) -> FloatArray:
        """Logarithm of the density at `x`, up to the factor 1 / (sigma sqrt(2 pi))."""
        return self._log_sum(x, lambda z: -0.5 * np.square(z))

    def log_cdf(self, x: FloatArray) -> FloatArray:
        """Logarithm of the probability of at most `x`."""
        return self._log_sum(x, special.log_ndtr)

    def log_sf(self, x: FloatArray) -> FloatArray:
        """Logarithm of the probability of more than `x`."""
        return self._log_sum(x, lambda z: special.log_ndtr(-z))

    def log_tails(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return `log_cdf` and `log_sf`; where one is far above a half, 0 instead, since nobody reads it."""
        weights = np.exp(self.log_weights)
        mean = float(weights @ self.shifts)
        spread = math.sqrt(self.sigma**2 + float(weights @ np.square(self.shifts - mean)))
        # Cantelli: beyond these bounds there is less than a third of the probability.
        at_most, at_least = x < mean + _MIDDLE * spread, x > mean - _MIDDLE * spread
        log_cdf, log_sf = np.zeros_like(x), np.zeros_like(x)
        log_cdf[at_most] = self.log_cdf(x[at_most])
        log_sf[at_least] = self.log_sf(x[at_least])
        return log_cdf, log_sf

    def ranges(self, tail: float) -> tuple[FloatArray, FloatArray]:
        """Return an interval for every component; their union misses a probability of at most `tail`."""
        share = np.log(tail / (2 * self.shifts.size)) - self.log_weights
        reach = self.sigma * np.where(
            share < math.log(0.5), -special.ndtri_exp(np.minimum(share, math.log(0.5))), 0.0
        )
        return self.shifts - reach, self.shifts + reach

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


def _log_binomial(counts: FloatArray, trees: int, rate: float) -> FloatArray:
    try:
        # What scipy.stats.binom.pmf calls; that package takes a third of a second to import.
        from scipy.special._ufuncs import _binom_pmf as binomial
    except ImportError:
        from scipy import stats

        binomial = stats.binom.pmf
    with np.errstate(divide="ignore"):
        out: FloatArray = np.log(binomial(counts, trees, rate))
    return out
