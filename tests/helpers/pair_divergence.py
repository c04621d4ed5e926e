"""Second methods for the pair: one step without a grid, and losses given to dp_accounting."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
from dp_accounting.pld import privacy_loss_distribution

from hushgraph.accounting.loss_grids import GridLosses
from hushgraph.accounting.pair_losses import PairLoss
from hushgraph.accounting.second_opinion import convert_losses

FloatArray = npt.NDArray[np.float64]


def inverse_losses(loss: PairLoss, values: npt.ArrayLike) -> FloatArray:
    """For every loss the x that has it, by bisection to the last bit; an end if none has."""
    targets = np.asarray(values, dtype=np.float64)
    left = np.full(targets.shape, loss.highest_loss_x)
    right = np.full(targets.shape, loss.lowest_loss_x)
    for _ in range(64):
        middle = 0.5 * (left + right)
        high = loss.losses(middle) >= targets
        left, right = np.where(high, middle, left), np.where(high, right, middle)
    return left


def divergence(loss: PairLoss, epsilon: npt.ArrayLike) -> FloatArray:
    """The hockey-stick divergence of one step at every epsilon, exact up to rounding.

    Any threshold x gives a lower bound with an error of second order in x, so bisection to the last bit
    loses nothing measurable.
    """
    epsilons = np.atleast_1d(np.asarray(epsilon, dtype=np.float64))
    thresholds = inverse_losses(loss, epsilons)
    log_upper = loss.upper.log_sf(-thresholds)
    log_lower = np.minimum(loss.lower.log_cdf(thresholds) + epsilons, log_upper)
    deltas = -np.expm1(log_lower - log_upper) * np.exp(log_upper) + loss.upper.dropped
    return np.clip(deltas, 0.0, 1.0)


def epsilon_by_dp_accounting(directions: Iterable[GridLosses], delta: float) -> float:
    """What dp_accounting reads off the losses of both directions."""
    distribution = privacy_loss_distribution.PrivacyLossDistribution(*map(convert_losses, directions))
    return float(distribution.get_epsilon_for_delta(delta))
