"""The accountant of the dominating pair: Poisson batches and Gaussian releases, any noise."""

from __future__ import annotations

import math

import numpy as np
from dp_accounting.pld import privacy_loss_distribution
from scipy import optimize

from hushgraph.accounting.accountant import Accountant, AccountantName, describe
from hushgraph.accounting.distribution import loss_range, pair_losses, spread, step_distribution
from hushgraph.accounting.events import Event, GaussianEvent, PoissonDraw
from hushgraph.accounting.gaussian import gaussian_delta, gaussian_epsilon
from hushgraph.errors import PlanError

# Grid intervals in the standard deviation of the loss of one step. A grid adds part of a squared interval
# to the variance of a step, and epsilon follows the standard deviation.
_INTERVALS_PER_SPREAD = 25
# Probability that all steps together may leave out; it counts as an infinite loss.
_LEFT_OUT = 1e-15
# Fourier transforms round to about 1e-16 of the whole, and taking a power multiplies that by the steps. This
# much is added to every delta, and a delta that it would be a tenth of cannot be read off.
_ROUNDING_PER_STEP = 1e-15
_LEAST_DELTA = 1e-11
_MOST_POINTS = 1 << 20


class PairAccountant(Accountant):
    """Prices Poisson batches by the dominating pair of the privacy contract, and Gaussian releases.

    The pair of every event becomes a pessimistic `dp_accounting` privacy loss distribution, both directions,
    and `dp_accounting` composes each direction whole. Gaussian releases and steps that take every root are
    together one Gaussian, priced exactly.

    Args:
        precision: divides the grid interval; 2 is what "doubled precision" means in the tests.

    Guarantees:
        The answer is an upper bound: losses are rounded to a grid pessimistically, tails count as infinite.
    """

    name: AccountantName = "pair"

    def __init__(self, *, precision: float = 1.0) -> None:
        super().__init__()
        self._precision = precision
        self._composed: tuple[dict[Event, int], privacy_loss_distribution.PrivacyLossDistribution] | None = (
            None
        )

    def supports(self, event: Event) -> bool:
        return isinstance(event, GaussianEvent) or isinstance(event.draw, PoissonDraw)

    def _refusal(self, event: Event) -> str:
        return (
            f"{describe(event)}: the 'pair' accountant prices Poisson batches only; "
            "draw Poisson batches, or use accountant='paper' for fixed-size ones."
        )

    def _epsilon(self, delta: float) -> float:
        ceiling = gaussian_epsilon(self._shift(), delta)
        if self._is_gaussian() or ceiling == 0.0:
            return ceiling
        least = max(_LEAST_DELTA, 10 * _ROUNDING_PER_STEP * self.steps)
        if delta < least:
            raise PlanError(
                f"delta={delta:g}: {self.steps} steps with part of the roots are priced down to "
                f"delta={least:g}; use a larger delta, or all roots in every batch"
            )
        pld = self.distribution()
        if self._delta_at(pld, 0.0) <= delta:
            return 0.0
        if self._delta_at(pld, ceiling) > delta:
            return ceiling
        found = optimize.brentq(
            lambda e: math.log(max(self._delta_at(pld, e), 1e-300)) - math.log(delta), 0.0, ceiling, rtol=1e-9
        )
        while self._delta_at(pld, found) > delta:
            found = found * (1 + 1e-8) + 1e-12
        return min(ceiling, float(found))

    def _delta(self, epsilon: float) -> float:
        ceiling = gaussian_delta(self._shift(), epsilon)
        if self._is_gaussian():
            return ceiling
        return min(ceiling, self._delta_at(self.distribution(), epsilon))

    def distribution(self) -> privacy_loss_distribution.PrivacyLossDistribution:
        """The privacy loss distribution of everything composed so far, pessimistic."""
        if self._composed is None or self._composed[0] != self._counts:
            self._composed = dict(self._counts), self._compose_all()
        return self._composed[1]

    def _compose_all(self) -> privacy_loss_distribution.PrivacyLossDistribution:
        tail = _LEFT_OUT / self.steps
        # An event that shifts nothing costs nothing, and has no loss to put on a grid.
        counts = {event: count for event, count in self._counts.items() if event.largest_shift}
        losses = {event: pair_losses(event, tail) for event in counts}
        spreads = {event: max(map(spread, both)) for event, both in losses.items()}
        # One grid for all: fine enough for the finest step that matters, and no finer than memory allows.
        total = math.sqrt(sum(count * spreads[event] ** 2 for event, count in counts.items()))
        finest = min(
            spreads[event]
            for event, count in counts.items()
            if spreads[event] * math.sqrt(count) > 0.01 * total
        )
        interval = finest / (_INTERVALS_PER_SPREAD * self._precision)
        widest = max(loss_range(loss) for both in losses.values() for loss in both)
        interval = max(interval, widest / (_MOST_POINTS * self._precision))
        composed = None
        for event, count in counts.items():
            steps = step_distribution(losses[event], interval).self_compose(
                count, tail_mass_truncation=_LEFT_OUT
            )
            composed = steps if composed is None else composed.compose(steps, tail_mass_truncation=_LEFT_OUT)
        return composed

    def _shift(self) -> float:
        """The shift, in standard deviations, of the Gaussian that dominates everything: rates of 1."""
        # A product becomes infinite where a power would be an error.
        return math.sqrt(sum(n * e.largest_shift * e.largest_shift for e, n in self._counts.items()))

    def _is_gaussian(self) -> bool:
        return all(_is_gaussian(event) for event in self._counts)

    def _delta_at(self, pld: privacy_loss_distribution.PrivacyLossDistribution, epsilon: float) -> float:
        rounding = _ROUNDING_PER_STEP * self.steps
        return float(np.clip(pld.get_delta_for_epsilon(epsilon) + rounding, 0.0, 1.0))


def _is_gaussian(event: Event) -> bool:
    return isinstance(event, GaussianEvent) or (
        isinstance(event.draw, PoissonDraw) and event.draw.rate == 1.0
    )
