"""What every accountant can do, and the two there are."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Literal

from hushgraph.accounting.events import FixedSizeDraw, PoissonDraw, StepEvent
from hushgraph.errors import PlanError

AccountantName = Literal["pair", "paper"]


class Accountant(ABC):
    """Adds up what steps cost.

    Guarantees:
        Never flattering: rounding is up, and what is not private costs `math.inf`.
        Refuses what it cannot price, with a `PlanError`, before anything is added.
    """

    name: AccountantName

    def __init__(self) -> None:
        self._counts: dict[StepEvent, int] = {}

    @property
    def steps(self) -> int:
        """How many steps were composed so far."""
        return sum(self._counts.values())

    def compose(self, event: StepEvent, count: int = 1) -> None:
        """Add `count` steps that all cost `event`.

        Args:
            event: what one step did.
            count: how many such steps, 0 or more.

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
        if delta == 0.0 or any(event.sigma_over_clip == 0.0 for event in self._counts):
            return math.inf
        return self._epsilon(delta)

    def delta(self, epsilon: float) -> float:
        """A delta such that the steps so far are (epsilon, delta) differentially private."""
        if not epsilon >= 0.0:
            raise PlanError(f"epsilon={epsilon}: expected 0 or more.")
        if not self._counts:
            return 0.0
        if any(event.sigma_over_clip == 0.0 for event in self._counts):
            return 1.0
        return 0.0 if math.isinf(epsilon) else self._delta(epsilon)

    @abstractmethod
    def supports(self, event: StepEvent) -> bool:
        """Whether this accountant has a price for the event."""

    @abstractmethod
    def _refusal(self, event: StepEvent) -> str:
        """Why `supports` said no, and what would work."""

    @abstractmethod
    def _epsilon(self, delta: float) -> float:
        """Epsilon for a delta in (0, 1), at least one step, noise above 0."""

    @abstractmethod
    def _delta(self, epsilon: float) -> float:
        """Delta for a finite epsilon, at least one step, noise above 0."""


def check_event(event: StepEvent) -> None:
    """Refuse numbers that mean nothing, whatever the accountant."""
    if event.changed_trees < 1:
        raise PlanError(
            f"changed_trees={event.changed_trees}: expected 1 or more; a node changes its own tree."
        )
    if not 0.0 <= event.sigma_over_clip < math.inf:
        raise PlanError(f"sigma_over_clip={event.sigma_over_clip}: expected a finite number, 0 or more.")
    draw = event.draw
    if isinstance(draw, PoissonDraw) and not 0.0 < draw.rate <= 1.0:
        raise PlanError(f"rate={draw.rate}: expected a sampling rate above 0 and at most 1.")
    if isinstance(draw, FixedSizeDraw) and not 1 <= draw.size <= draw.population:
        raise PlanError(f"size={draw.size}: expected 1 to population={draw.population} roots in a batch.")


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
