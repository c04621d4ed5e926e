"""Accountants: what a sequence of steps and releases costs.

`Accountant` is the interface. `PairAccountant` prices Poisson batches and Gaussian releases; the published
Renyi bound for fixed-size batches is in `renyi.py`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Literal, cast

from scipy import optimize, special

from hushgraph.accounting.events import Event, GaussianEvent, PoissonDraw, StepEvent
from hushgraph.errors import PlanError

if TYPE_CHECKING:
    from hushgraph.accounting.pair_losses import Curve

AccountantName = Literal["pair", "paper"]

# Divergences and Fourier transforms round to about 1e-16 of the total, and every step adds its own.
# This much is added to every delta; a delta of less than ten times as much cannot be priced.
_ROUNDING_PER_STEP = 1e-15
# Standard deviations beyond which losses overflow: epsilon would have 40 digits, and is infinite instead.
_LARGEST_SHIFT = 1e20
_LEAST_DELTA = 1e-11


Column = Sequence[tuple[Event | None, int]]
"""What one change of the data costs: an event and its count for every charge, None where it moves nothing."""


def price(charges: Iterable[tuple[Event, int]], *, delta: float, accountant: str) -> float:
    """Return the epsilon, at `delta`, of all events together.

    Args:
        charges: events with their counts.
        delta: between 0 and 1.
        accountant: "pair" or "paper".
    """
    return _price(tuple(charges), delta, accountant)


def price_largest(columns: Iterable[Column], *, delta: float, accountant: str) -> float:
    """Return the largest epsilon, at `delta`, over columns of the same charges.

    A column that another one dominates event by event is not priced.
    """
    return max(
        (
            price([(event, n) for event, n in column if event and n], delta=delta, accountant=accountant)
            for column in drop_dominated(columns)
        ),
        default=0.0,
    )


def drop_dominated(columns: Iterable[Column]) -> list[Column]:
    """Leave out columns of the same charges that another one dominates, whatever else is composed."""
    kept: list[Column] = []
    for column in columns:
        if not any(_is_at_most(column, other) for other in kept):
            kept = [other for other in kept if not _is_at_most(other, column)] + [column]
    return kept


def _is_at_most(column: Column, other: Column) -> bool:
    if all(event is None or event.is_gaussian for event, _ in (*column, *other)):
        # Each is one Gaussian.
        return _shift_of(column) <= _shift_of(other)
    return all(
        n == 0 or event is None or (n <= m and larger is not None and event.is_at_most(larger))
        for (event, n), (larger, m) in zip(column, other, strict=True)
    )


def _shift_of(column: Column) -> float:
    return compose_shifts([(event, n) for event, n in column if event is not None])


# Cached: calibration and plan.epsilon ask for the same price.
@lru_cache(maxsize=1024)
def _price(charges: tuple[tuple[Event, int], ...], delta: float, accountant: str) -> float:
    total = make_accountant(cast(AccountantName, accountant))
    for event, count in charges:
        total.compose(event, count)
    return float(total.epsilon(delta))


def make_accountant(name: AccountantName) -> Accountant:
    """Create an accountant without any steps.

    Args:
        name: "pair" for the dominating pair (Poisson batches), "paper" for the published Renyi bound
            (fixed-size batches without replacement).
    """
    if name == "pair":
        return PairAccountant()
    if name == "paper":
        from hushgraph.accounting.renyi import RenyiAccountant

        return RenyiAccountant()
    raise PlanError(f"accountant={name!r}: expected 'pair' or 'paper'")


class Accountant(ABC):
    """Adds up the cost of steps and other releases.

    Guarantees:
        Never flattering: results are rounded up, and a release without noise costs `math.inf`.
        Refuses what it cannot price, with a `PlanError`, before anything is added.
    """

    name: AccountantName

    def __init__(self) -> None:
        self._counts: dict[Event, int] = {}

    @property
    def steps(self) -> int:
        """How many steps and other releases have been composed."""
        return sum(self._counts.values())

    def compose(self, event: Event, count: int = 1) -> None:
        """Add `count` releases that cost `event` each.

        Args:
            event: one step, or one Gaussian release.
            count: how many of them, 0 or more.

        Raises:
            PlanError: if this accountant cannot price the event.
        """
        if count < 0:
            raise PlanError(f"count={count}: expected 0 or more steps; steps cannot be taken back")
        if not self.supports(event):
            raise PlanError(self._refusal(event))
        if count:
            self._counts[event] = self._counts.get(event, 0) + count

    def epsilon(self, delta: float) -> float:
        """Return an epsilon such that everything composed is (epsilon, delta)-differentially private."""
        if not 0.0 <= delta <= 1.0:
            raise PlanError(f"delta={delta}: expected a probability; use 1 / (10 N) for N training nodes")
        if not self._counts or delta == 1.0:
            return 0.0
        if delta == 0.0 or not self._has_noise():
            return math.inf
        return self._epsilon(delta)

    def delta(self, epsilon: float) -> float:
        """Return a delta such that everything composed is (epsilon, delta)-differentially private."""
        if not epsilon >= 0.0:
            raise PlanError(f"epsilon={epsilon}: expected 0 or more")
        if not self._counts:
            return 0.0
        if not self._has_noise():
            return 1.0
        return 0.0 if math.isinf(epsilon) else self._delta(epsilon)

    def _has_noise(self) -> bool:
        return not any(event.largest_shift > _LARGEST_SHIFT for event in self._counts)

    @abstractmethod
    def supports(self, event: Event) -> bool:
        """Whether this accountant can price the event."""

    @abstractmethod
    def _refusal(self, event: Event) -> str:
        """Why the event is not supported, and what would be."""

    @abstractmethod
    def _epsilon(self, delta: float) -> float:
        """Epsilon for a delta in (0, 1), at least one step, noise above 0."""

    @abstractmethod
    def _delta(self, epsilon: float) -> float:
        """Delta for a finite epsilon, at least one step, noise above 0."""


class PairAccountant(Accountant):
    """Prices Poisson batches by the dominating pair of the privacy contract, and Gaussian releases.

    Gaussian releases and steps that draw every root are together one Gaussian, which is priced exactly. Where
    part of the roots is drawn, `dp_accounting` composes privacy losses on a grid, each direction by itself.

    Args:
        precision: divides the grid interval of the privacy losses.

    Guarantees:
        The answer is an upper bound: losses are rounded to a grid pessimistically, tails count as infinite.
    """

    name: AccountantName = "pair"

    def __init__(self, *, precision: float = 1.0) -> None:
        super().__init__()
        self._precision = precision
        self._composed: tuple[dict[Event, int], Curve] | None = None

    def supports(self, event: Event) -> bool:
        return isinstance(event, GaussianEvent) or isinstance(event.draw, PoissonDraw)

    def _refusal(self, event: Event) -> str:
        return (
            f"{name_event(event)}: the 'pair' accountant prices Poisson batches only; "
            "draw Poisson batches, or use accountant='paper' for fixed-size ones"
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
        return min(ceiling, float(self.curve().epsilon(delta - self._rounding())))

    def _delta(self, epsilon: float) -> float:
        ceiling = gaussian_delta(self._shift(), epsilon)
        if self._is_gaussian():
            return ceiling
        return min(ceiling, max(0.0, float(self.curve().delta(epsilon))) + self._rounding())

    def _rounding(self) -> float:
        return _ROUNDING_PER_STEP * self.steps

    def _shift(self) -> float:
        """Shift, in standard deviations, of the Gaussian that dominates everything composed: rates of 1."""
        return compose_shifts(self._counts.items())

    def _is_gaussian(self) -> bool:
        return all(event.is_gaussian for event in self._counts)

    def curve(self) -> Curve:
        """Return what everything composed costs on a grid; Gaussians are composed to one before."""
        if self._composed is None or self._composed[0] != self._counts:
            # Imported here: full batches are priced without `dp_accounting`, which takes a second to import.
            from hushgraph.accounting.pair_losses import compose_losses

            counts = {event: count for event, count in self._counts.items() if not event.is_gaussian}
            # Releases that shift nothing cost nothing, and have no loss to put on a grid.
            if shift := compose_shifts((e, n) for e, n in self._counts.items() if e.is_gaussian):
                counts[GaussianEvent(shift_over_sigma=shift)] = 1
            self._composed = dict(self._counts), compose_losses(counts, precision=self._precision)
        return self._composed[1]


def compose_shifts(counts: Iterable[tuple[Event, int]]) -> float:
    """Compose events as Gaussians that draw every root; return their joint shift in standard deviations."""
    # Multiplied, because a power that overflows raises and a product is infinite.
    return math.sqrt(sum(n * e.largest_shift * e.largest_shift for e, n in counts))


def name_event(event: Event) -> str:
    """Name the part of an event that an accountant may refuse, as name=value."""
    if isinstance(event, StepEvent):
        return f"draw={type(event.draw).__name__}"
    return f"event={type(event).__name__}"


def gaussian_delta(shift: float, epsilon: float) -> float:
    """Return the delta of N(shift, 1) against N(0, 1) at `epsilon` >= 0, exactly.

    Phi(a) - e^epsilon Phi(b) with a = shift/2 - epsilon/shift and b = a - shift, written with the scaled
    complementary error function so that e^epsilon never appears.
    """
    if shift == 0.0:
        return 0.0
    a = 0.5 * shift - epsilon / shift
    b = -0.5 * shift - epsilon / shift
    second = math.sqrt(0.5 * math.pi) * float(special.erfcx(-b / math.sqrt(2)))
    density = math.exp(-0.5 * a * a) / math.sqrt(2 * math.pi)
    if a > 0.0:
        return min(1.0, max(0.0, float(special.ndtr(a)) - density * second))
    first = math.sqrt(0.5 * math.pi) * float(special.erfcx(-a / math.sqrt(2)))
    return density * max(0.0, first - second)


def gaussian_epsilon(shift: float, delta: float) -> float:
    """Return the smallest epsilon, from above, at which `gaussian_delta` is at most `delta` > 0."""
    if gaussian_delta(shift, 0.0) <= delta:
        return 0.0
    high = 0.5 * shift * shift + shift * math.sqrt(-2 * math.log(delta))

    def excess(epsilon: float) -> float:
        value = gaussian_delta(shift, epsilon)
        return (math.log(value) if value > 0.0 else -1e9) - math.log(delta)

    # The shift is so large that rounding hides the root: return the upper bound, which is safe.
    if math.isinf(high) or excess(high) >= 0.0:
        return high * (1 + 1e-11)
    epsilon = float(optimize.brentq(excess, 0.0, high, xtol=1e-15 * high, rtol=1e-12))
    while gaussian_delta(shift, epsilon) > delta:
        epsilon *= 1 + 1e-11
    return epsilon


def gaussian_shift(epsilon: float, delta: float) -> float:
    """Return the largest shift, from below, at which `gaussian_delta` is at most `delta` < 1."""
    low, high = 0.0, 1.0
    while gaussian_delta(high, epsilon) <= delta:
        low, high = high, 2 * high
    while high - low > 1e-13 * high:
        middle = 0.5 * (low + high)
        low, high = (middle, high) if gaussian_delta(middle, epsilon) <= delta else (low, middle)
    return low
