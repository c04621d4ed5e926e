"""BillboardPlan: the plan of a run that pays for the graph once, with a board, and then trains on rows."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, fields, replace
from functools import lru_cache
from typing import Any, ClassVar

from hushgraph._validate import as_float, as_int
from hushgraph.accounting.events import Event
from hushgraph.errors import PlanError
from hushgraph.privacy import billboard_bounds, choices
from hushgraph.privacy.billboard_bounds import BoardCharge, Change, Charge, TrainingCharge
from hushgraph.privacy.fields import read_fields
from hushgraph.privacy.plan import PrivacyPlan, json_number


@lru_cache(maxsize=256)
def _price(charges: tuple[Charge, ...], change: Change, delta: float) -> float:
    return billboard_bounds.epsilon(charges, change, delta=delta)


@dataclass(frozen=True, kw_only=True)
class BillboardPlan(PrivacyPlan):
    """Boards and private training on (own features, own reading): weights and predictions are covered.

    The ballots of the first board are labels. On a second board, made after half of the steps, rows without a
    training label cast what the model predicts for them by then.

    Args:
        num_train_nodes, batch_size, steps, delta, clip, clipping, edge_owner: as in `PrivacyPlan`.
        num_classes: c, how many classes there are, which is public.
        num_boards: 1 or 2.
        board_share: the part of the budget (of mu^2) that the boards get together, in equal parts.
        board_noise: s of every board, where one ballot has norm 1. Empty: not chosen yet.
        noise_multiplier: sigma / (2 C); follows from epsilon.

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
    num_boards: int = 2
    board_share: float = 0.5
    board_noise: tuple[float, ...] = ()

    method: ClassVar[choices.Method] = "billboard"

    def __post_init__(self) -> None:
        """Convert numbers, fill in what follows from other fields, then check everything."""
        super().__post_init__()
        noise = tuple(as_float(value) for value in self.board_noise)
        if self.noise_multiplier == 0.0 and not noise:
            noise = (0.0,) * self.num_boards
        object.__setattr__(self, "board_noise", noise)
        wrong = self._find_invalid()
        if wrong:
            raise PlanError("; ".join(wrong))

    def _find_invalid(self) -> list[str]:
        wrong = []
        if self.num_layers or self.max_readers:
            wrong.append("a billboard reads no edges in training; leave out num_layers and max_readers")
        if self.accountant != "pair" or self.noise != "common" or self.clipping == "percentile":
            wrong.append(
                f"accountant={self.accountant!r}, noise={self.noise!r}, clipping={self.clipping!r}: the "
                "paper's choices are for method='trees'"
            )
        if as_int(self.num_classes) is None or self.num_classes < 2:
            wrong.append(f"num_classes={self.num_classes}: expected 2 or more; one class needs no model")
        if self.num_boards not in (1, 2):
            wrong.append(f"num_boards={self.num_boards}: expected 1 or 2")
        share = as_float(self.board_share)
        if share is None or not 0 < share < 1:
            wrong.append(f"board_share={self.board_share}: expected a number above 0 and below 1")
        if any(value is None or not 0 <= value < math.inf for value in self.board_noise):
            wrong.append(f"board_noise={self.board_noise}: expected finite numbers of at least 0")
        elif len(self.board_noise) not in (0, self.num_boards) or (
            bool(self.noise_multiplier) != any(self.board_noise)
        ):
            wrong.append(
                f"noise_multiplier={self.noise_multiplier} with board_noise={self.board_noise}: a billboard "
                "has noise on every board and on steps; give epsilon, from which both follow"
            )
        return wrong

    @property
    def segment_ends(self) -> tuple[int, ...]:
        """The steps at which a board is made anew, and the last step: a segment follows every board."""
        return (self.steps,) if self.num_boards == 1 else (self.steps // 2, self.steps)

    @property
    def covers_predictions(self) -> bool:
        """Predictions for everybody else are covered together with the weights and the boards."""
        return True

    def board_charge(self, place: int) -> BoardCharge:
        """What a board is charged as; everybody casts onto the second."""
        return BoardCharge(
            noise_std=self.board_noise[place] if self.board_noise else 0.0, by_everybody=place > 0
        )

    def charges_until(self, steps: int) -> tuple[Charge, ...]:
        """The boards that are made, and the steps that are taken, by a run that has come this far."""
        places = [place for place in range(self.num_boards) if place == 0 or steps >= self.segment_ends[0]]
        training = TrainingCharge(steps=steps, rate=self.sampling_rate, sigma_over_clip=self.sigma_over_clip)
        return (*(self.board_charge(place) for place in places), training)

    @property
    def charges(self) -> tuple[tuple[Event, int], ...]:
        """Boards and steps as events for one emptied row."""
        events = billboard_bounds.events(self.charges_until(self.steps), billboard_bounds.rows_emptied(1))
        return tuple(events)

    def _epsilon_by(self, change: Change) -> float:
        return _price(self.charges_until(self.steps), change, self.delta) if self.is_private else math.inf

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
        """Epsilon for a row without a training label: 0 with one board, else that of the second board."""
        return self._epsilon_by(billboard_bounds.UNLABELLED_ROW)

    def epsilon_after(self, steps: int) -> float:
        """Epsilon of a run that has taken `steps` steps: its boards until then and these steps."""
        if not self.is_private:
            return math.inf
        return _price(self.charges_until(steps), billboard_bounds.rows_emptied(1), self.delta)

    def calibrated(self, *, epsilon: float) -> BillboardPlan:
        """The same plan with the smallest safe noise for `epsilon`, split by `board_share`.

        Guarantees:
            The epsilon of the new plan, computed anew, is at most `epsilon`.
        """
        target = as_float(epsilon)
        if target is None or not 0 < target < math.inf:
            raise PlanError(f"epsilon={epsilon}: expected a finite number above 0")
        boards = [BoardCharge(by_everybody=place > 0) for place in range(self.num_boards)]
        shares = [self.board_share / self.num_boards] * self.num_boards
        noisy = billboard_bounds.calibrate(
            [*boards, TrainingCharge(steps=self.steps, rate=self.sampling_rate)],
            [*shares, 1 - self.board_share],
            epsilon=target,
            delta=self.delta,
        )
        noise = tuple(charge.noise_std for charge in noisy if isinstance(charge, BoardCharge))
        least, largest = billboard_bounds.LEAST_BOARD_NOISE, billboard_bounds.LARGEST_BOARD_NOISE
        if not least <= min(noise) <= max(noise) <= largest:
            raise PlanError(
                f"epsilon={epsilon}: its boards would have noise of {max(noise):.3g}, and boards take from "
                f"{least:g} to {largest}; use another epsilon"
            )
        sigma = next(charge.sigma_over_clip for charge in noisy if isinstance(charge, TrainingCharge))
        for margin in (0.0, 1e-12, 1e-9, 1e-6):
            # Dividing by 2 and multiplying again is exact; the margin is for callers that round.
            plan = replace(self, board_noise=noise, noise_multiplier=sigma / 2 * (1 + margin))
            if plan.epsilon <= target:
                return plan
        raise PlanError(f"epsilon={epsilon}: no noise is confirmed to meet it; use another epsilon")

    def with_steps_for(self, *, epsilon: float) -> PrivacyPlan:
        """Refused: with boards, epsilon and steps give the noise."""
        raise PlanError("a billboard has its noise from epsilon and steps; give these two")

    def summary(self) -> dict[str, Any]:
        """The keys that never change meaning."""
        return super().summary() | {
            "board_share": self.board_share,
            "board_noise": list(self.board_noise),
            "epsilon_unlabelled_row": json_number(self.epsilon_unlabelled_row),
        }

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
        return cls(**values)
