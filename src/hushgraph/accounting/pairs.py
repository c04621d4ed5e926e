"""The pair of distributions that dominates one step, as a privacy loss that dp_accounting understands.

With n changed trees, rate q and noise s (everything in units of the clipping norm)

    P* = sum_i Bin(n, q)(i)   N(+i, s^2)
    Q* = sum_j Bin(n-1, q)(j) N(-j, s^2)

and the step is dominated by (P*, Q*) when the row is emptied, by (Q*, P*) when it is filled. Where g of the
n roots contribute nothing in the second dataset, n - g takes the place of n - 1: the argument is the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from dp_accounting.pld import privacy_loss_mechanism
from scipy import special, stats

FloatArray = npt.NDArray[np.float64]

# More components than this are grouped, each group moved to its largest shift.
_MAX_COMPONENTS = 512
# How many numbers a block of the component-by-point table holds, at most.
_BLOCK = 1 << 17


@dataclass(frozen=True)
class BinomialMixture:
    """sum_i Bin(trees, rate)(i) N(i, sigma^2), without the components that together weigh less than `tail`.

    Attributes:
        shifts: the means that are kept, ascending.
        log_weights: their log probabilities.
        sigma: the common standard deviation.
        dropped: the probability of what was left out.
    """

    shifts: FloatArray
    log_weights: FloatArray
    sigma: float
    dropped: float

    @classmethod
    def of(cls, trees: int, rate: float, sigma: float, tail: float) -> BinomialMixture:
        """Build the mixture. Grouped components move outwards, which can only raise the divergence."""
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

    def ranges(self, tail: float) -> tuple[FloatArray, FloatArray]:
        """For every component an interval; their union is left with probability at most `tail`."""
        share = np.log(tail / (2 * self.shifts.size)) - self.log_weights
        far = self.sigma * np.where(
            share < math.log(0.5), -special.ndtri_exp(np.minimum(share, math.log(0.5))), 0.0
        )
        return self.shifts - far, self.shifts + far

    def _log_sum(self, x: FloatArray, log_kernel: Callable[[FloatArray], FloatArray]) -> FloatArray:
        """Logarithm of the weighted sum of a kernel of every component, in blocks that fit the cache."""
        out = np.empty_like(x)
        size = max(1, _BLOCK // self.shifts.size)
        for begin in range(0, x.size, size):
            part = x[begin : begin + size]
            terms = log_kernel((part - self.shifts[:, None]) / self.sigma)
            terms += self.log_weights[:, None]
            top = terms.max(axis=0)
            terms -= top
            np.exp(terms, out=terms)
            out[begin : begin + size] = top + np.log(terms.sum(axis=0))
        return out


def _binomial_range(trees: int, rate: float, tail: float) -> tuple[int, int]:
    """Counts outside of which Bin(trees, rate) has less than `tail`, by Bernstein's inequality."""
    log_tail = -math.log(tail / 2)
    spread = log_tail / 3 + math.sqrt((log_tail / 3) ** 2 + 2 * log_tail * trees * rate * (1 - rate))
    return max(0, math.floor(trees * rate - spread)), min(trees, math.ceil(trees * rate + spread))


def _log_binomial(counts: FloatArray, trees: int, rate: float) -> FloatArray:
    with np.errstate(divide="ignore"):
        out: FloatArray = np.log(stats.binom.pmf(counts, trees, rate))
    return out


class PairLoss(privacy_loss_mechanism.MonotonePrivacyLoss):  # type: ignore[misc]
    """Privacy loss of a mixture of shifts to the left against a mixture of shifts to the right.

    The upper distribution is sum_i Bin(upper_trees, rate)(i) N(-i, sigma^2), the lower one
    sum_j Bin(lower_trees, rate)(j) N(+j, sigma^2), so that the loss decreases in x, as dp_accounting expects.
    Trees (n, n-1) give (P*, Q*), and (n-1, n) give (Q*, P*).

    Args:
        upper_trees: how many trees shift the upper distribution.
        lower_trees: how many trees shift the lower distribution.
        rate: probability q of each root to be drawn.
        sigma: standard deviation of the noise, in units of the clipping norm.
        tail: probability that may be left out of either distribution; what the upper one loses counts as an
            infinite loss, what the lower one loses makes it smaller, so both only raise the divergence.
    """

    def __init__(
        self, *, upper_trees: int, lower_trees: int, rate: float, sigma: float, tail: float = 1e-30
    ) -> None:
        super().__init__(is_discrete=False)
        self.sigma = sigma
        self.tail = tail
        self.upper = BinomialMixture.of(upper_trees, rate, sigma, 0.5 * tail)
        self.lower = BinomialMixture.of(lower_trees, rate, sigma, 0.5 * tail)
        low, high = self.upper.ranges(0.5 * tail)
        # Mirrored: the upper distribution's shifts are to the left.
        self.highest_loss_x, self.lowest_loss_x = -float(high.max()), -float(low.min())

    def losses(self, x: npt.ArrayLike) -> FloatArray:
        """Privacy loss at every `x`."""
        points = np.asarray(x, dtype=np.float64)
        return self.upper.log_density(-points) - self.lower.log_density(points)

    def privacy_loss(self, x: float) -> float:
        return float(self.losses([x])[0])

    def inverse_losses(self, values: npt.ArrayLike) -> FloatArray:
        """For every loss the x that has it, to the last bit bisection can settle; an end if none has."""
        targets = np.asarray(values, dtype=np.float64)
        left = np.full(targets.shape, self.highest_loss_x)
        right = np.full(targets.shape, self.lowest_loss_x)
        for _ in range(64):
            middle = 0.5 * (left + right)
            high = self.losses(middle) >= targets
            left, right = np.where(high, middle, left), np.where(high, right, middle)
        return left

    def inverse_privacy_loss(self, privacy_loss: float) -> float:
        return float(self.inverse_losses([privacy_loss])[0])

    def upper_log_cdf(self, x: FloatArray) -> FloatArray:
        """Logarithm of the upper distribution's probability of at most `x`."""
        return self.upper.log_sf(-x)

    def upper_log_sf(self, x: FloatArray) -> FloatArray:
        """Logarithm of the upper distribution's probability of more than `x`."""
        return self.upper.log_cdf(-x)

    def lower_log_cdf(self, x: FloatArray) -> FloatArray:
        """Logarithm of the lower distribution's probability of at most `x`."""
        return self.lower.log_cdf(x)

    def lower_log_sf(self, x: FloatArray) -> FloatArray:
        """Logarithm of the lower distribution's probability of more than `x`."""
        return self.lower.log_sf(x)

    def mu_upper_cdf(self, x: float | Sequence[float]) -> FloatArray:
        points = np.atleast_1d(np.asarray(x, dtype=np.float64))
        return np.minimum(1.0, np.exp(self.upper.log_sf(-points)) + self.upper.dropped)

    def mu_lower_log_cdf(self, x: float | Sequence[float]) -> FloatArray:
        return self.lower_log_cdf(np.atleast_1d(np.asarray(x, dtype=np.float64)))

    def get_delta_for_epsilon(self, epsilon: float | Sequence[float]) -> float | FloatArray:
        """Hockey-stick divergence of one step, exact up to rounding.

        Any threshold x gives a lower bound of it, with an error of second order in x, so that bisection to
        the last bit loses nothing that could be seen.
        """
        epsilons = np.atleast_1d(np.asarray(epsilon, dtype=np.float64))
        thresholds = self.inverse_losses(epsilons)
        log_upper = self.upper.log_sf(-thresholds)
        log_lower = np.minimum(self.lower.log_cdf(thresholds) + epsilons, log_upper)
        deltas = -np.expm1(log_lower - log_upper) * np.exp(log_upper) + self.upper.dropped
        deltas = np.clip(deltas, 0.0, 1.0)
        return float(deltas[0]) if np.ndim(epsilon) == 0 else deltas

    def privacy_loss_tail(self) -> privacy_loss_mechanism.TailPrivacyLossDistribution:
        return privacy_loss_mechanism.TailPrivacyLossDistribution(
            lower_x_truncation=self.highest_loss_x,
            upper_x_truncation=self.lowest_loss_x,
            tail_probability_mass_function={
                math.inf: self.tail,
                self.privacy_loss(self.lowest_loss_x): self.tail,
            },
        )

    def connect_dots_bounds(self) -> privacy_loss_mechanism.ConnectDotsBounds:
        return privacy_loss_mechanism.ConnectDotsBounds(
            epsilon_upper=self.privacy_loss(self.highest_loss_x),
            epsilon_lower=self.privacy_loss(self.lowest_loss_x),
        )
