"""The privacy loss of one step or one release on a grid, as a `dp_accounting` privacy loss distribution.

The line is cut into small cells. A cell whose losses lie in [a, b] is replaced by two atoms, at a and at b,
that have its probability under both distributions. That can only raise the hockey-stick divergence, and
raises it least among all distributions on the grid ("connect the dots"). Cells are used instead of
differences of divergences because every term is then positive: over ten thousand steps, the rounding of
differences would add up.
"""

from __future__ import annotations

import math

import numpy as np
from dp_accounting.pld import pld_pmf, privacy_loss_distribution

from hushgraph.accounting.events import Event, GaussianEvent, PoissonDraw
from hushgraph.accounting.pairs import FloatArray, PairLoss

# Cells are at most this wide, in standard deviations of the noise and in grid intervals.
_CELL_SIGMAS = 1 / 32
_CELL_INTERVALS = 0.5
# Part of every cell that is moved to its upper end whatever the quotient says: covers its rounding.
_ROUNDING = 1e-7


def pair_losses(event: Event, tail: float) -> tuple[PairLoss, PairLoss]:
    """The dominating pair of an event in both directions, each without at most `tail` of its probability."""
    upper, lower, rate, sigma = _mixture(event)
    return (
        PairLoss(upper_trees=upper, lower_trees=lower, rate=rate, sigma=sigma, tail=tail),
        PairLoss(upper_trees=lower, lower_trees=upper, rate=rate, sigma=sigma, tail=tail),
    )


def _mixture(event: Event) -> tuple[int, int, float, float]:
    """How many roots shift either distribution, how likely each, and the noise in units of their shift."""
    if isinstance(event, GaussianEvent):
        return 1, 0, 1.0, 1 / event.shift_over_sigma
    rate = event.draw.rate if isinstance(event.draw, PoissonDraw) else math.nan
    return event.changed_trees, event.changed_trees - event.gone, rate, event.sigma_over_clip


def spread(loss: PairLoss) -> float:
    """Standard deviation of the privacy loss, roughly."""
    points = _points(loss)
    masses = np.exp(_log_masses(loss.upper_log_cdf(points), loss.upper_log_sf(points)))
    losses = loss.losses(0.5 * (points[1:] + points[:-1]))
    mean = float(masses @ losses / masses.sum())
    return math.sqrt(float(masses @ np.square(losses - mean) / masses.sum()))


def loss_range(loss: PairLoss) -> float:
    """Difference between the largest and the smallest loss."""
    return loss.privacy_loss(loss.highest_loss_x) - loss.privacy_loss(loss.lowest_loss_x)


def step_distribution(
    losses: tuple[PairLoss, PairLoss], interval: float
) -> privacy_loss_distribution.PrivacyLossDistribution:
    """Both directions of one step on multiples of `interval`, rounded pessimistically."""
    return privacy_loss_distribution.PrivacyLossDistribution(*(_pmf(loss, interval) for loss in losses))


def _points(loss: PairLoss) -> FloatArray:
    """Points of the line, ascending, that cut it into narrow cells."""
    width = loss.lowest_loss_x - loss.highest_loss_x
    cells = math.ceil(width / (loss.sigma * _CELL_SIGMAS))
    # Far-apart components leave gaps without probability; a coarser cut of the line is then enough.
    return np.linspace(loss.highest_loss_x, loss.lowest_loss_x, min(cells, 1 << 16) + 1)


def _pmf(loss: PairLoss, interval: float) -> pld_pmf.DensePLDPmf:
    coarse = _points(loss)
    at_coarse = np.minimum.accumulate(loss.losses(coarse))
    wanted = np.arange(at_coarse[-1], at_coarse[0], interval * _CELL_INTERVALS)
    points = np.union1d(coarse, np.interp(wanted, at_coarse[::-1], coarse[::-1]))
    at = np.minimum.accumulate(loss.losses(points))
    log_upper = _log_masses(loss.upper_log_cdf(points), loss.upper_log_sf(points))
    log_lower = _log_masses(loss.lower_log_cdf(points), loss.lower_log_sf(points))
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
    probs = np.bincount(top - low, weights=masses * share, minlength=int(top.max()) - low + 1)
    probs += np.bincount(bottom - low, weights=masses * (1 - share), minlength=len(probs))
    # What lies beyond the last point has smaller losses than any cell; beyond the first, larger ones.
    probs[0] += math.exp(float(loss.upper_log_sf(points[-1:])[0]))
    return pld_pmf.DensePLDPmf(
        discretization=interval,
        lower_loss=low,
        probs=probs,
        infinity_mass=min(1.0 - 1e-16, loss.tail),
        pessimistic_estimate=True,
    )


def _log_masses(log_cdf: FloatArray, log_sf: FloatArray) -> FloatArray:
    """Log probabilities between neighbouring points, from whichever tail has more digits."""
    left = log_cdf[1:] < log_sf[:-1]
    high = np.where(left, log_cdf[1:], log_sf[:-1])
    low = np.where(left, log_cdf[:-1], log_sf[1:])
    with np.errstate(divide="ignore", invalid="ignore"):
        out: FloatArray = high + np.log(-np.expm1(np.minimum(low - high, 0.0)))
    return np.where(np.isneginf(high), -np.inf, out)
