"""The published Renyi bound for fixed-size batches without replacement."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from dp_accounting.rdp import rdp_privacy_accountant
from scipy import special

from hushgraph._arrays import FloatArray
from hushgraph.accounting.accountants import Accountant, AccountantName, name_event
from hushgraph.accounting.events import Event, FixedSizeDraw, GaussianEvent
from hushgraph.errors import PlanError

# dp_accounting only converts orders above 1.01.
_LOWEST = 1.0101 - 1
_HIGHEST = 1e12
_FIRST_HIGHEST = 1e4
# Relative margin for the rounding of sums and logarithms, far above what they lose.
_MARGIN = 1e-9


def step_divergence(event: Event, orders: FloatArray) -> FloatArray:
    """Return the Renyi divergence of one step at every order.

    gamma(alpha) = 1/(alpha-1) ln E exp(alpha (alpha-1) 2 rho^2 C^2 / sigma^2), where rho, the number of
    changed trees in the batch, is hypergeometric: `size` draws from `population`, `changed_trees` of them
    changed.
    """
    if isinstance(event, GaussianEvent) or not isinstance(event.draw, FixedSizeDraw):
        raise PlanError(_refusal(event))
    draw = event.draw
    changed = min(event.changed_trees, draw.population)
    counts = np.arange(max(0, draw.size + changed - draw.population), min(changed, draw.size) + 1)
    log_probs = _log_hypergeometric(counts, changed, draw)
    probs = np.exp(log_probs)
    exponent = 2.0 * (counts / event.sigma_over_clip) ** 2
    out = np.empty_like(orders)
    for k, order in enumerate(orders):
        powers = order * (order - 1) * exponent
        if powers[-1] < 1.0:
            out[k] = math.log1p(float(probs @ np.expm1(powers)))
        else:
            out[k] = float(special.logsumexp(log_probs + powers))
    return out / (orders - 1) * (1 + _MARGIN)


def _log_hypergeometric(counts: npt.NDArray[np.int64], changed: int, draw: FixedSizeDraw) -> FloatArray:
    """Logarithms of the hypergeometric probabilities, from the ratios of neighbours.

    The usual differences of log-gamma functions lose digits as the population grows.
    """
    k = counts[:-1].astype(np.float64)
    outside = (draw.population - changed - draw.size + 1 + counts[:-1]).astype(np.float64)
    ratios = np.log((changed - k) * (draw.size - k)) - np.log((k + 1) * outside)
    logs = np.concatenate([[0.0], np.cumsum(ratios)])
    normalised: FloatArray = logs - special.logsumexp(logs)
    return normalised


def _refusal(event: Event) -> str:
    return (
        f"{name_event(event)}: the 'paper' accountant prices fixed-size batches only; "
        "draw fixed-size batches, or use accountant='pair' for Poisson ones"
    )


class RenyiAccountant(Accountant):
    """Prices fixed-size batches without replacement by the published Renyi bound.

    Args:
        points: the number of orders in a grid.

    Guarantees:
        The answer is an upper bound, as every order gives one. The best order lies inside the grid, which is
        widened until it does; otherwise a `PlanError` is raised.
    """

    name: AccountantName = "paper"

    def __init__(self, *, points: int = 120) -> None:
        super().__init__()
        self._points = points

    def supports(self, event: Event) -> bool:
        return not isinstance(event, GaussianEvent) and isinstance(event.draw, FixedSizeDraw)

    def _refusal(self, event: Event) -> str:
        return _refusal(event)

    def _epsilon(self, delta: float) -> float:
        def convert(orders: FloatArray, divergences: FloatArray) -> tuple[float, float]:
            value, order = rdp_privacy_accountant.compute_epsilon(orders, divergences, delta)
            return float(value), float(order)

        return self._optimise_order(convert, f"delta={delta}")

    def _delta(self, epsilon: float) -> float:
        def convert(orders: FloatArray, divergences: FloatArray) -> tuple[float, float]:
            value, order = rdp_privacy_accountant.compute_delta(orders, divergences, epsilon)
            # The bound by the divergence of order 1 is always best at the lowest order; a wider grid would
            # not change that.
            by_first = math.sqrt(-math.expm1(-float(divergences[0])))
            return max(float(value), sys.float_info.min), math.nan if value >= by_first else float(order)

        return self._optimise_order(convert, f"epsilon={epsilon}")

    def _optimise_order(self, convert: _Conversion, target: str) -> float:
        """Find the best conversion on a grid of orders that is first widened, then refined."""
        highest = _FIRST_HIGHEST
        while True:
            orders = 1 + np.geomspace(_LOWEST, highest, self._points)
            value, order = convert(orders, self._divergences(orders))
            if value == 0.0 or math.isnan(order):
                return value
            best = int(np.searchsorted(orders, order))
            if 0 < best < orders.size - 1:
                break
            if best == 0 or highest >= _HIGHEST:
                end = "lowest" if best == 0 else "highest"
                raise PlanError(
                    f"{target} cannot be priced by the 'paper' accountant: the best Renyi order is the {end} "
                    f"that can be tried, {order:.4g}; use {'more' if best == 0 else 'less'} noise, "
                    "or accountant='pair'"
                )
            highest *= 100
        orders = np.linspace(orders[best - 1], orders[best + 1], self._points)
        return min(value, convert(orders, self._divergences(orders))[0])

    def _divergences(self, orders: FloatArray) -> FloatArray:
        total = np.zeros_like(orders)
        for event, count in self._counts.items():
            total += count * step_divergence(event, orders)
        return total


_Conversion = Callable[[FloatArray, FloatArray], tuple[float, float]]
