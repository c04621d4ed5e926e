"""BillboardPlan: the plan of a run that pays for the graph once, with a board, and then trains on rows."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, fields, replace
from functools import lru_cache
from typing import Any, ClassVar

from hushgraph._validate import as_float
from hushgraph.accounting.events import Event
from hushgraph.errors import PlanError
from hushgraph.privacy import billboard_bounds, choices
from hushgraph.privacy.billboard_bounds import BoardCharge, Change, Charge, TrainingCharge
from hushgraph.privacy.fields import read_fields
from hushgraph.privacy.plan import PrivacyPlan


@lru_cache(maxsize=256)
def _price(charges: tuple[Charge, ...], change: Change, delta: float) -> float:
    return billboard_bounds.epsilon(charges, change, delta=delta)


@dataclass(frozen=True, kw_only=True)
class BillboardPlan(PrivacyPlan):
    """Boards, then private training on (own features, own reading): weights and predictions are covered.

    A round is a board and a training. The ballots of the first board are labels. On a second board rows
    without a training label cast what the first model predicts for them.

    Args:
        num_train_nodes, batch_size, delta, clip, clipping, edge_owner: as in `PrivacyPlan`.
        steps: steps of every training.
        num_classes: c, how many classes there are, which is public.
        shares: parts of the budget (of mu^2) for board, training, and so on, in turn.
        board_noise: s of every board, where one ballot has norm 1. Empty: not chosen yet.
        training_noise: sigma / C of every training. Empty: not chosen yet.

    Guarantees:
        `epsilon` composes all boards and all steps for one emptied row; everything but a person's own
        prediction is covered by it: weights, boards, and the predictions for everybody else.

    Examples:
        >>> from hushgraph.privacy.billboard_plan import BillboardPlan
        >>> plan = BillboardPlan(num_train_nodes=1000, num_classes=3, batch_size=1000, steps=100)
        >>> private = plan.calibrated(epsilon=4.0)
        >>> private.epsilon <= 4.0, private.guarantee, private.covers_predictions
        (True, 'holds', True)
    """

    num_layers: int = 0
    max_readers: int = 0
    num_classes: int = 2
    shares: tuple[float, ...] = (0.5, 0.5)
    board_noise: tuple[float, ...] = ()
    training_noise: tuple[float, ...] = ()

    method: ClassVar[choices.Method] = "billboard"

    def __post_init__(self) -> None:
        """Derive `noise_multiplier` from the noise of the last training, then check everything."""
        for name in ("shares", "board_noise", "training_noise"):
            numbers = tuple(as_float(value) for value in getattr(self, name))
            if any(value is None or not 0 <= value < math.inf for value in numbers):
                raise PlanError(f"{name}={getattr(self, name)!r}: expected finite numbers of at least 0")
            object.__setattr__(self, name, numbers)
        if self.noise_multiplier == 0.0 and not self.training_noise:
            object.__setattr__(self, "board_noise", (0.0,) * self.num_rounds)
            object.__setattr__(self, "training_noise", (0.0,) * self.num_rounds)
        if self.training_noise:
            object.__setattr__(self, "noise_multiplier", self.training_noise[-1] / 2)
        elif self.noise_multiplier is not None:
            raise PlanError(
                f"noise_multiplier={self.noise_multiplier}: a billboard has noise on boards and on steps; "
                "give epsilon, from which both follow, or method='trees'"
            )
        super().__post_init__()
        self._check_rounds()

    def _check_rounds(self) -> None:
        if self.num_layers or self.max_readers:
            raise PlanError("a billboard reads no edges in training; leave out num_layers and max_readers")
        if self.accountant != "pair" or self.noise != "common" or self.clipping == "percentile":
            raise PlanError(
                f"accountant={self.accountant!r}, noise={self.noise!r}, clipping={self.clipping!r}: the "
                "paper's choices are for method='trees'"
            )
        if self.num_classes < 2:
            raise PlanError(f"num_classes={self.num_classes}: expected 2 or more; one class needs no model")
        if len(self.shares) not in (2, 4) or not all(share > 0 for share in self.shares):
            raise PlanError(
                f"shares={self.shares}: expected a positive number for every board and training, 2 or 4"
            )
        for name in ("board_noise", "training_noise"):
            if len(getattr(self, name)) not in (0, self.num_rounds):
                raise PlanError(f"{name}={getattr(self, name)}: expected one for each of {self.num_rounds}")

    @property
    def num_rounds(self) -> int:
        """How many boards, and trainings, there are."""
        return len(self.shares) // 2

    @property
    def total_steps(self) -> int:
        """Steps of all trainings."""
        return self.num_rounds * self.steps

    def training_sigma(self, step: int) -> float:
        """Standard deviation of the noise of a step, in units of C; every round has its own."""
        return (
            self.training_noise[min(step // self.steps, self.num_rounds - 1)] if self.training_noise else 0.0
        )

    @property
    def covers_predictions(self) -> bool:
        """Predictions for everybody else are covered together with the weights and the boards."""
        return True

    @property
    def board_share(self) -> float:
        """The part of the budget (of mu^2) that the boards get."""
        return math.fsum(self.shares[::2]) / math.fsum(self.shares)

    def rounds_done(self, boards: int, steps: int) -> tuple[Charge, ...]:
        """The charges of a run that has made `boards` boards and taken `steps` steps."""
        charges: list[Charge] = []
        for place in range(min(boards, self.num_rounds)):
            charges.append(BoardCharge(noise_std=self.board_noise[place], by_everybody=place > 0))
            taken = min(max(steps - place * self.steps, 0), self.steps)
            sigma = self.training_noise[place]
            charges.append(TrainingCharge(steps=taken, rate=self.sampling_rate, sigma_over_clip=sigma))
        return tuple(charges)

    @property
    def charges(self) -> tuple[tuple[Event, int], ...]:
        """Boards and steps as events for one emptied row, in the order in which they are charged."""
        return tuple(billboard_bounds.events(self._all_charges, billboard_bounds.rows_emptied(1)))

    @property
    def _all_charges(self) -> tuple[Charge, ...]:
        return self.rounds_done(self.num_rounds, self.total_steps) if self.training_noise else ()

    def _epsilon_by(self, change: Change) -> float:
        if not self.is_private:
            return math.inf
        return _price(self._all_charges, change, self.delta)

    @property
    def epsilon(self) -> float:
        """Epsilon at `delta` for one emptied row: all boards and all steps."""
        return self._epsilon_by(billboard_bounds.rows_emptied(1))

    @property
    def epsilon_group_of_two(self) -> float:
        """Epsilon when two rows are emptied together."""
        return self._epsilon_by(billboard_bounds.rows_emptied(2))

    @property
    def epsilon_edge(self) -> float:
        """Epsilon for one edge: two records if the sender owns it (undirected), else one."""
        is_undirected = self.edge_owner == "sender"
        return self._epsilon_by(billboard_bounds.EDGE if is_undirected else billboard_bounds.RECORD)

    @property
    def epsilon_label(self) -> float:
        """Epsilon for one training label changed into another."""
        return self._epsilon_by(billboard_bounds.label_changed(self.num_classes))

    @property
    def epsilon_unlabelled_row(self) -> float:
        """Epsilon for a row without a training label: 0 with one board."""
        return self._epsilon_by(billboard_bounds.UNLABELLED_ROW)

    def with_steps_done(self, steps: int) -> PrivacyPlan:
        """The plan of a run that stopped after `steps` steps: the boards made until then and those steps."""
        boards = min(self.num_rounds, 1 + steps // self.steps) if self.steps else 1
        return _StoppedPlan(**self._fields(), boards_made=boards, steps_taken=steps)

    def _fields(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(BillboardPlan)}

    def calibrated(self, *, epsilon: float) -> BillboardPlan:
        """The same plan with the smallest safe noise for `epsilon`, split by `shares`.

        Guarantees:
            The epsilon of the new plan, computed anew, is at most `epsilon`.
        """
        target = as_float(epsilon)
        if target is None or not 0 < target < math.inf:
            raise PlanError(f"epsilon={epsilon}: expected a finite number above 0")
        empty: list[Charge] = []
        for place in range(self.num_rounds):
            empty.append(BoardCharge(by_everybody=place > 0))
            empty.append(TrainingCharge(steps=self.steps, rate=self.sampling_rate))
        noisy = billboard_bounds.calibrate(empty, self.shares, epsilon=target, delta=self.delta)
        boards = tuple(charge.noise_std for charge in noisy if isinstance(charge, BoardCharge))
        sigmas = tuple(charge.sigma_over_clip for charge in noisy if isinstance(charge, TrainingCharge))
        return replace(self, board_noise=boards, training_noise=sigmas, noise_multiplier=None)

    def with_steps_for(self, *, epsilon: float) -> PrivacyPlan:
        """Refused: with boards, epsilon gives the noise."""
        raise PlanError("a billboard has its noise from epsilon and steps; give these two")

    def summary(self) -> dict[str, Any]:
        """The keys that never change meaning."""
        return super().summary() | {"board_share": self.board_share, "board_noise": list(self.board_noise)}

    def to_json(self) -> str:
        """The plan's fields as one line of JSON with sorted keys; `from_json` gives the same plan back."""
        content = {**asdict(self), "adjacency": self.adjacency, "method": self.method}
        return json.dumps(content, sort_keys=True, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> BillboardPlan:
        """The plan that `to_json` wrote; unknown, missing and repeated keys are refused."""
        known = [field.name for field in fields(cls)]
        values = read_fields(text, known=[*known, "method"], adjacency=cls.adjacency)
        values.pop("method", None)
        # Derived from the noise of the last training.
        values.pop("noise_multiplier", None)
        return cls(**values)


@dataclass(frozen=True, kw_only=True)
class _StoppedPlan(BillboardPlan):
    """The plan of a run that has made some of its boards and taken some of its steps."""

    boards_made: int = 0
    steps_taken: int = 0

    @property
    def _all_charges(self) -> tuple[Charge, ...]:
        return self.rounds_done(self.boards_made, self.steps_taken)
