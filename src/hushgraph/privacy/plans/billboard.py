"""The plan of a billboard run: boards, and private training on (own features, own reading)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from hushgraph._text import digits_up
from hushgraph._validate import as_float, as_int
from hushgraph.errors import PlanError
from hushgraph.privacy.changes import ONE_PAIR, ONE_WAY_PAIR
from hushgraph.privacy.charges import BoardCharge, RowSteps, ScalingCharge, calibrate, name_board
from hushgraph.privacy.plans.calibration import SCALING_SHARE, check_epsilon
from hushgraph.privacy.plans.plan import PrivacyPlan, Segment, json_number
from hushgraph.privacy.statement import BILLBOARD_WORDS, Wording


@dataclass(frozen=True, kw_only=True)
class BillboardPlan(PrivacyPlan):
    """Boards and private training on (own features, own reading): weights and predictions are covered.

    The ballots of the first board are labels. On a second board, made after half of the steps, rows without a
    training label cast what the model predicts for them by then.

    Args:
        num_train_nodes, batch_size, steps, delta, clip, clipping, edge_owner, directed: as in
            `PrivacyPlan`.
        num_classes: c, how many classes there are, which is public.
        label_change: the largest squared change of a ballot when a label changes, `Task.label_change`, of
            other tasks than classes.
        num_boards: 1 or 2.
        board_share: the part of the budget (of mu^2) that the boards get together, in equal parts; of what
            scaling leaves, where numbers are scaled.
        board_noise: s of every board, where one ballot has norm 1; 0 is none, or not chosen yet.
        sigma_over_clip: sigma / C; follows from epsilon.

    Guarantees:
        `epsilon` composes all boards and all steps for one emptied row; everything but a person's own
        prediction is covered by it: weights, boards, and the predictions for everybody else.

    Examples:
        >>> from hushgraph.privacy.plans import BillboardPlan
        >>> plan = BillboardPlan(num_train_nodes=1000, num_classes=3, batch_size=1000, steps=100)
        >>> private = plan.calibrated(epsilon=4.0)
        >>> private.epsilon <= 4.0, private.guarantee, private.covers_predictions
        (True, 'holds', True)
    """

    num_classes: int = 2
    num_boards: int = 2
    board_share: float = 0.5
    board_noise: tuple[float, ...] = ()
    label_change: float | None = None

    method: ClassVar[str] = "billboard"
    takes_noise: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Convert numbers, fill in what follows from other fields, then check everything."""
        super().__post_init__()
        noise = tuple(as_float(value) for value in self.board_noise)
        if not self.is_private and not noise:
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
        if self.label_change is None and (as_int(self.num_classes) is None or self.num_classes < 2):
            wrong.append(f"num_classes={self.num_classes}: expected 2 or more; one class needs no model")
        if self.num_boards not in (1, 2):
            wrong.append(f"num_boards={self.num_boards}: expected 1 or 2")
        share = as_float(self.board_share)
        if share is None or not 0 < share < 1:
            wrong.append(f"board_share={self.board_share}: expected a number above 0 and below 1")
        if any(value is None or not 0 <= value < math.inf for value in self.board_noise):
            wrong.append(f"board_noise={self.board_noise}: expected finite numbers of at least 0")
        elif len(self.board_noise) != self.num_boards or (self.is_private != any(self.board_noise)):
            wrong.append(
                f"sigma_over_clip={self.sigma_over_clip} with board_noise={self.board_noise}: a billboard "
                "has noise on every board and on steps; give epsilon, from which both follow"
            )
        return wrong

    @property
    def words(self) -> Wording:
        """The wording about boards and readings."""
        return BILLBOARD_WORDS

    @property
    def changed_trees(self) -> int:
        """n: given the boards, a training example is a function of one row, and no other one differs."""
        return 1

    @property
    def segments(self) -> tuple[Segment, ...]:
        """Steps follow every board; a second one is made after half of them."""
        ends = (self.steps,) if self.num_boards == 1 else (self.steps // 2, self.steps)
        return tuple(Segment(self.board_charge(place), end) for place, end in enumerate(ends))

    @property
    def covers_predictions(self) -> bool:
        """Predictions for everybody else are covered together with the weights and the boards."""
        return True

    @property
    def can_evaluate(self) -> bool:
        """Given the boards, a prediction reads one row."""
        return True

    def board_charge(self, place: int) -> BoardCharge:
        """What a board is charged as; everybody casts onto the second."""
        change = self.label_change
        if change is None:
            change = 2 * self.num_classes / (self.num_classes - 1)
        return BoardCharge(
            name=name_board(place),
            noise_std=self.board_noise[place],
            by_everybody=place > 0,
            label_move=math.sqrt(change),
            is_weighted=self.is_weighted,
            by_person=self.protects == "person",
        )

    @property
    def step_charge(self) -> RowSteps:
        """Steps on rows, which read their lists on the boards."""
        return RowSteps(draw=self.draw, sigma_over_clip=self.sigma_over_clip, times=self.steps)

    def calibrated(self, *, epsilon: float) -> Self:
        """The same plan with the smallest safe noise for `epsilon`, split by `board_share`.

        Guarantees:
            The epsilon of the new plan, computed anew, is at most `epsilon`.
        """
        target = check_epsilon(epsilon)
        if self.num_tables:
            return self.with_evaluation(0).calibrated(epsilon=target).with_evaluation(self.num_tables)
        shares = [*[self.board_share / self.num_boards] * self.num_boards, 1 - self.board_share]
        if self.num_scaled:
            shares = [SCALING_SHARE, *((1 - SCALING_SHARE) * share for share in shares)]
        noisy = calibrate(self.charges, shares, budget=target, delta=self.delta)
        scaling = next((charge.noise_std for charge in noisy if isinstance(charge, ScalingCharge)), 0.0)
        noise = tuple(charge.noise_std for charge in noisy if isinstance(charge, BoardCharge))
        sigma = next(charge.sigma_over_clip for charge in noisy if isinstance(charge, RowSteps))
        return replace(self, board_noise=noise, sigma_over_clip=sigma, scaling_noise=scaling)

    def with_classes(self, num_classes: int) -> Self:
        """Ballots of other classes move a board by another length when a label changes."""
        return replace(self, num_classes=num_classes)

    def describe_model(self, model: str) -> str:
        """Named by its method, whatever reads its boards."""
        return self.method

    def list_own_figures(self) -> list[tuple[str, str]]:
        """The noise of boards, and what they cost."""
        noise = ", ".join(digits_up(std, digits=6) for std in self.board_noise)
        return [
            (f"noise of {self.num_boards} board{'s' * (self.num_boards > 1)}", noise),
            ("share of the boards", f"{self.board_share:.2g}"),
        ]

    def with_steps_for(self, *, epsilon: float) -> Self:
        """Refused: with boards, epsilon and steps give the noise."""
        raise PlanError("a billboard has its noise from epsilon and steps; give these two")

    @property
    def epsilon_pair(self) -> float:
        """Epsilon for all records between two people, or of one about another if `directed`."""
        return self._price_or_infinity(ONE_WAY_PAIR if self.directed else ONE_PAIR)

    @property
    def record_figures(self) -> tuple[tuple[str, float], ...]:
        """Epsilon for a pair of people in all relations, where there are several."""
        if self.num_relations == 1:
            return ()
        return (("pair of people in all relations", self.epsilon_pair),)

    @property
    def record_sentences(self) -> tuple[str, ...]:
        """Whether records have weights, and how many relations share a ballot."""
        return self._tell_records(", and a row shares one ballot among them")

    def summary(self) -> dict[str, Any]:
        """The keys that never change meaning."""
        boards = {"board_share": self.board_share, "board_noise": list(self.board_noise)}
        if self.num_relations > 1:
            boards["epsilon_pair"] = json_number(self.epsilon_pair)
        return super().summary() | boards
