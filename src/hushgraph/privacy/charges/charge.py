"""`Charge`: one release: its name, how far each change of the data moves it, its noise, how often."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, ClassVar, Self

from hushgraph.accounting.events import Draw, Event, FixedSizeDraw, GaussianEvent, PoissonDraw, StepEvent
from hushgraph.errors import PlanError
from hushgraph.privacy.changes import TRAINING_ROW, Change

_DRAWS: dict[str, type[Draw]] = {"poisson": PoissonDraw, "fixed": FixedSizeDraw}
_KINDS: dict[str, type[Charge]] = {}


@dataclass(frozen=True, kw_only=True)
class Charge(ABC):
    """What a run is charged for one of its releases; a subclass is one mechanism.

    A subclass with a `kind` is registered when it is defined: ledgers and budgets can then read its lines.
    Its fields are numbers, texts, truth values and draws.

    Attributes:
        name: of the release within its run, such as "board-1"; a release with a name is made once.
        times: how often it is released.
        kind: of the mechanism, as ledgers write it.

    Guarantees:
        `event` dominates the release for its change, whatever the data, so that what an accountant composes
        of these events is an upper bound.
    """

    name: str
    times: int = 1

    kind: ClassVar[str] = ""

    def __init_subclass__(cls, **others: Any) -> None:
        """Register the mechanism."""
        super().__init_subclass__(**others)
        if cls.__dict__.get("kind"):
            _KINDS[cls.kind] = cls

    def __post_init__(self) -> None:
        """Check the count."""
        if self.times < 0:
            raise PlanError(f"times={self.times}: expected 0 or more")

    @abstractmethod
    def event(self, change: Change) -> Event | None:
        """What one release costs where the data differ by `change`; None where that moves nothing."""

    @abstractmethod
    def with_shift(self, shift: float, *, scale: float = 1.0) -> Self:
        """The charge with the noise at which emptying a training row shifts all of it by `shift`.

        Args:
            shift: in standard deviations.
            scale: what sampling gains: sampled steps take `scale` times the noise of rate q.
        """

    def check_noise(self, epsilon: float) -> None:  # noqa: B027
        """Raise PlanError where `epsilon` asks for noise that cannot be drawn; nothing is refused here."""

    @property
    @abstractmethod
    def sentence(self) -> str:
        """What is released and with what noise, for a report."""

    @property
    def figures(self) -> tuple[tuple[str, str], ...]:
        """Entries of the report's table: names and values."""
        return ()

    @property
    def bounds(self) -> tuple[str, ...]:
        """What bounds the part of one row in the release, for the report's picture, a short line each."""
        return ()

    @property
    def is_step(self) -> bool:
        """Whether it is a step of training: steps are not on record as releases one by one."""
        return False

    @property
    def once(self) -> Self:
        """One such release."""
        return replace(self, times=1)

    @property
    def rate(self) -> float:
        """The part of the rows that a release draws; 1 for everything but sampled steps."""
        return 1.0

    def to_json(self) -> dict[str, Any]:
        """One such release as JSON values, which `Charge.from_json` reads."""
        values = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "times"}
        return {"kind": self.kind, **{name: _write_value(value) for name, value in values.items()}}

    @staticmethod
    def from_json(values: dict[str, Any], *, times: int = 1) -> Charge:
        """The charge that `to_json` wrote.

        Raises:
            PlanError: if no mechanism of this kind is known; one from outside must be imported first.
        """
        if values["kind"] not in _KINDS:
            raise PlanError(f"charge of kind {values['kind']!r}: unknown; import the module that defines it")
        read = {name: read_value(value) for name, value in values.items() if name != "kind"}
        return _KINDS[values["kind"]](**read, times=times)


def list_column(charges: Iterable[Charge], change: Change) -> list[tuple[Event | None, int]]:
    """What one change costs: the event of every charge and how often it occurs."""
    return [(charge.event(change), charge.times) for charge in charges]


def list_events(charges: Iterable[Charge], change: Change = TRAINING_ROW) -> list[tuple[Event, int]]:
    """What an accountant composes for one change; what the change does not move is left out."""
    return [(event, times) for event, times in list_column(charges, change) if event is not None and times]


def epsilon(
    charges: Sequence[Charge], changes: Iterable[Change], *, delta: float, accountant: str = "pair"
) -> float:
    """Epsilon at `delta` of all charges together: the largest over `changes`.

    Args:
        charges: of a run, or of several.
        changes: how the two data sets may differ; `rows_emptied()` for the guarantee itself.
        delta: between 0 and 1.
        accountant: "pair" or "paper".

    Returns:
        An upper bound; exact but for rounding where every rate is 1; infinite where noise is missing.

    Examples:
        >>> from hushgraph.accounting.events import PoissonDraw
        >>> from hushgraph.privacy.changes import rows_emptied
        >>> from hushgraph.privacy.charges import BoardCharge, RowSteps, epsilon
        >>> board = BoardCharge(name="board-1", noise_std=5.0)
        >>> steps = RowSteps(draw=PoissonDraw(rate=1.0), sigma_over_clip=50.0, times=100)
        >>> round(epsilon([board, steps], rows_emptied(), delta=1e-6), 3)
        1.212
    """
    # Imported here: commands that price nothing should not wait for SciPy.
    from hushgraph.accounting.accountants import price_largest

    columns = [list_column(charges, change) for change in changes]
    return price_largest(columns, delta=delta, accountant=accountant)


def _write_value(value: Any) -> Any:
    """JSON values of a field: draws and events are objects, infinity is "inf"."""
    if is_dataclass(value):
        parts = {field.name: _write_value(getattr(value, field.name)) for field in fields(value)}
        kinds = [kind for kind, draw in _DRAWS.items() if isinstance(value, draw)]
        return {"kind": kinds[0], **parts} if kinds else parts
    return "inf" if isinstance(value, float) and math.isinf(value) else value


def read_value(value: Any) -> Any:
    """The field that `_write_value` wrote; one of several errors where something else did."""
    if isinstance(value, dict):
        parts = {name: read_value(part) for name, part in value.items() if name != "kind"}
        if any(isinstance(part, bool | str) for part in parts.values()):
            raise ValueError(f"{value!r}: expected numbers")
        if "kind" in value:
            return _DRAWS[value["kind"]](**parts)
        return GaussianEvent(**parts) if "shift_over_sigma" in value else StepEvent(**parts)
    if value == "inf":
        return math.inf
    if isinstance(value, str):
        return value
    # NumPy has no integers from 2^63 on, and no charge has such numbers.
    if not isinstance(value, int | float) or not 0 <= value < (2**63 if isinstance(value, int) else math.inf):
        raise ValueError(f"{value!r}: expected a string or a number of at least 0")
    return value
