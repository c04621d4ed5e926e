"""What every accountant can do, and the two there are."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Literal

from hushgraph.accounting.events import Event, FixedSizeDraw, PoissonDraw, StepEvent
from hushgraph.errors import PlanError

AccountantName = Literal["pair", "paper"]


class Accountant(ABC):
    """Adds up what steps and other releases cost.

    Guarantees:
        Never flattering: rounding is up, and what is not private costs `math.inf`.
        Refuses what it cannot price, with a `PlanError`, before anything is added.
    """

    name: AccountantName

    def __init__(self) -> None:
        self._counts: dict[Event, int] = {}

    @property
    def steps(self) -> int:
        """How many steps, and other releases, were composed so far."""
        return sum(self._counts.values())

    def compose(self, event: Event, count: int = 1) -> None:
        """Add `count` releases that all cost `event`.

        Args:
            event: what one step, or one Gaussian release, did.
            count: how many of them, 0 or more.

        Raises:
            PlanError: if this accountant cannot price the event.
        """
        if count < 0:
            raise PlanError(f"count={count}: expected 0 or more steps; steps cannot be taken back.")
        check_event(event)
        if not self.supports(event):
            raise PlanError(self._refusal(event))
        if count:
            self._counts[event] = self._counts.get(event, 0) + count

    def epsilon(self, delta: float) -> float:
        """An epsilon such that the steps so far are (epsilon, delta) differentially private."""
        if not 0.0 <= delta <= 1.0:
            raise PlanError(f"delta={delta}: expected a probability; use 1 / (10 N) for N training nodes.")
        if not self._counts or delta == 1.0:
            return 0.0
        if delta == 0.0 or any(math.isinf(event.largest_shift) for event in self._counts):
            return math.inf
        return self._epsilon(delta)

    def delta(self, epsilon: float) -> float:
        """A delta such that the steps so far are (epsilon, delta) differentially private."""
        if not epsilon >= 0.0:
            raise PlanError(f"epsilon={epsilon}: expected 0 or more.")
        if not self._counts:
            return 0.0
        if any(math.isinf(event.largest_shift) for event in self._counts):
            return 1.0
        return 0.0 if math.isinf(epsilon) else self._delta(epsilon)

    @abstractmethod
    def supports(self, event: Event) -> bool:
        """Whether this accountant has a price for the event."""

    @abstractmethod
    def _refusal(self, event: Event) -> str:
        """Why `supports` said no, and what would work."""

    @abstractmethod
    def _epsilon(self, delta: float) -> float:
        """Epsilon for a delta in (0, 1), at least one step, noise above 0."""

    @abstractmethod
    def _delta(self, epsilon: float) -> float:
        """Delta for a finite epsilon, at least one step, noise above 0."""


def check_event(event: Event) -> None:
    """Refuse numbers that mean nothing, whatever the accountant."""
    if isinstance(event, StepEvent):
        _check_step(event)
    elif not event.shift_over_sigma >= 0.0:
        raise PlanError(f"shift_over_sigma={event.shift_over_sigma}: expected 0 or more; inf is no noise.")


def _check_step(event: StepEvent) -> None:
    if event.changed_trees < 1:
        raise PlanError(
            f"changed_trees={event.changed_trees}: expected 1 or more; a node changes its own tree."
        )
    if not 0.0 <= event.sigma_over_clip < math.inf:
        raise PlanError(f"sigma_over_clip={event.sigma_over_clip}: expected a finite number, 0 or more.")
    if not 0 <= event.gone <= event.changed_trees:
        raise PlanError(f"gone={event.gone}: expected 0 to changed_trees={event.changed_trees} roots.")
    draw = event.draw
    if isinstance(draw, PoissonDraw) and not 0.0 < draw.rate <= 1.0:
        raise PlanError(f"rate={draw.rate}: expected a sampling rate above 0 and at most 1.")
    if isinstance(draw, FixedSizeDraw) and not 1 <= draw.size <= draw.population:
        raise PlanError(f"size={draw.size}: expected 1 to population={draw.population} roots in a batch.")


def describe(event: Event) -> str:
    """The part of an event that an accountant may refuse, as name=value."""
    if isinstance(event, StepEvent):
        return f"draw={type(event.draw).__name__}"
    return f"event={type(event).__name__}"


def make_accountant(name: AccountantName) -> Accountant:
    """Make an empty accountant.

    Args:
        name: "pair" for the dominating pair (Poisson batches), "paper" for the published Renyi bound
            (fixed-size batches without replacement).
    """
    if name == "pair":
        from hushgraph.accounting.pair_accountant import PairAccountant

        return PairAccountant()
    if name == "paper":
        from hushgraph.accounting.renyi import RenyiAccountant

        return RenyiAccountant()
    raise PlanError(f"accountant={name!r}: expected 'pair' or 'paper'.")
