"""Charges that earlier versions wrote: the event of one emptied row is all that their lines tell."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, NoReturn

from hushgraph.accounting.events import UNBOUNDED, Event, StepEvent
from hushgraph.errors import PlanError
from hushgraph.privacy.changes import Change
from hushgraph.privacy.charges.board import name_board
from hushgraph.privacy.charges.charge import Charge, read_value


@dataclass(frozen=True, kw_only=True)
class RecordedCharge(Charge):
    """A release of which the cost of one row is known; it counts for a row of any kind.

    Attributes:
        cost: of one emptied row.
    """

    cost: Event

    kind: ClassVar[str] = "recorded"

    @classmethod
    def of(cls, cost: Event, *, place: int, times: int = 1) -> RecordedCharge:
        """The charge of an event: a step, or the board at `place` in the run."""
        name = "steps" if isinstance(cost, StepEvent) else name_board(place)
        return cls(name=name, cost=cost, times=times)

    @property
    def is_step(self) -> bool:
        """Whether it is a step."""
        return isinstance(self.cost, StepEvent)

    def event(self, change: Change) -> Event | None:
        """The event on record; nothing bounds another change."""
        return self.cost if change.what == "rows" and len(change.kinds) == 1 else UNBOUNDED

    def with_shift(self, shift: float, *, scale: float = 1.0) -> NoReturn:
        """Refused: what happened has its noise."""
        raise PlanError(f"charge={self.name}: it is a record of an earlier version; its noise is fixed")

    @property
    def sentence(self) -> str:
        """Its name, and that an earlier version released it."""
        return f"{self.name}: released by an earlier version."


def read_recorded(events: Iterable[tuple[dict[str, Any], int]]) -> list[Charge]:
    """The charges of events with counts, as earlier versions wrote them."""
    return [
        RecordedCharge.of(read_value(event), place=place, times=int(count))
        for place, (event, count) in enumerate(events)
    ]
