"""The plan of training on rows, such as the private MLP: no edge is read, in training or after it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hushgraph.errors import PlanError
from hushgraph.privacy.charges import RowSteps
from hushgraph.privacy.plans.plan import PrivacyPlan
from hushgraph.privacy.statement import ROW_WORDS, TREE_WORDS, Wording


@dataclass(frozen=True, kw_only=True)
class RowPlan(PrivacyPlan):
    """Steps on single rows; a prediction is a function of one's own row and the weights, so it is covered.

    The fields are those of `PrivacyPlan`; there are no layers.

    Examples:
        >>> from hushgraph import RowPlan
        >>> plan = RowPlan(num_train_nodes=1000, batch_size=1000, steps=10).calibrated(epsilon=4.0)
        >>> plan.epsilon <= 4.0, plan.changed_trees, plan.covers_predictions
        (True, 1, True)
    """

    method: ClassVar[str] = "rows"

    def __post_init__(self) -> None:
        """Refuse layers, which read edges."""
        super().__post_init__()
        if self.num_layers:
            raise PlanError(f"num_layers={self.num_layers}: expected 0; a plan of rows reads no edges")

    @property
    def step_charge(self) -> RowSteps:
        """Steps whose examples read no list."""
        return RowSteps(
            draw=self.draw, sigma_over_clip=self.sigma_over_clip, times=self.steps, reads_lists=False
        )

    @property
    def changed_trees(self) -> int:
        """One: an example is a function of one row."""
        return 1

    @property
    def can_evaluate(self) -> bool:
        """A prediction reads one row and the weights."""
        return not self.unproven

    @property
    def predictions_read_lists(self) -> bool:
        """No: a prediction reads features alone."""
        return False

    @property
    def covers_predictions(self) -> bool:
        """Where the guarantee holds: a prediction reads one row and the weights."""
        return self.guarantee == "holds"

    @property
    def words(self) -> Wording:
        """Predictions are spoken of as covered where they are."""
        return ROW_WORDS if self.covers_predictions else TREE_WORDS
