"""One of two classes: who casts at all says something too, so a ballot is a vote and is not centred."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from hushgraph._arrays import FloatArray
from hushgraph.errors import GraphError
from hushgraph.tasks.classes import Classes
from hushgraph.tasks.task import Tables, register

if TYPE_CHECKING:
    from torch import Tensor


@register
@dataclass(frozen=True, kw_only=True)
class TwoClasses(Classes):
    """One of two classes, judged by ranking as well as by accuracy.

    Attributes:
        num_classes: 2.
        positive: the class that scores, ROC-AUC and average precision are about; declared, or 1.
        rare: whether only the positive class casts a ballot, which is then one number: for a class that is
            declared to be rare.
    """

    name: ClassVar[str] = "binary"

    num_classes: int = 2
    positive: int = 1
    rare: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.num_classes != 2 or self.positive not in (0, 1):
            raise GraphError(
                f"num_classes={self.num_classes}, positive={self.positive}: expected two classes, and 0 or 1"
            )

    @property
    def ballot_width(self) -> int:
        """2: a vote for one of the classes; 1 where only the rare class votes."""
        return 1 if self.rare else 2

    @property
    def label_change(self) -> float:
        """2: one vote goes and another comes; 1 where only the rare class votes."""
        return 1.0 if self.rare else 2.0

    @property
    def is_centred(self) -> bool:
        """No."""
        return False

    @property
    def entry_squares(self) -> tuple[Fraction, Fraction] | None:  # type: ignore[override]
        """A vote gives 1 to its class and takes nothing from the other."""
        return None if self.rare else (Fraction(1), Fraction(0))

    @property
    def judged_by(self) -> str:
        """ROC-AUC: accuracy hides a model that never finds a rare class."""
        return "roc_auc"

    def make_ballots(self, labels: npt.NDArray[Any]) -> FloatArray:
        """e_y; 1 for the rare class and 0 for the other."""
        return self._pick(np.eye(2)[labels])

    def predict_ballots(self, outputs: Tensor) -> FloatArray:
        """Probabilities; that of the rare class alone."""
        return self._pick(self.show(outputs).cpu().numpy().astype(np.float64))

    def _pick(self, votes: FloatArray) -> FloatArray:
        return votes[:, [self.positive]] if self.rare else votes

    def tabulate(
        self, shown: npt.NDArray[Any], names: npt.NDArray[Any], *, with_scores: bool, label: str | None
    ) -> dict[str, npt.NDArray[Any]]:
        """The columns of `Classes`, always with the probability of the positive class, which ranks nodes."""
        columns = super().tabulate(shown, names, with_scores=with_scores, label=label)
        return columns | {f"p_{names[self.positive]}": shown[:, self.positive]}

    @property
    def scored(self) -> tuple[int, ...]:
        """The positive class."""
        return (self.positive,)

    def rank(self, shown: npt.NDArray[Any], labels: npt.NDArray[Any]) -> dict[str, float]:
        """ROC-AUC and average precision of the positive class; empty unless both classes occur."""
        return rank_scores(shown[:, self.positive], labels == self.positive)

    def locate(self, shown: npt.NDArray[np.floating[Any]], labels: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        """Cells by the score of the positive class, and by label."""
        if self.positive == 1:
            return super().locate(shown, labels)
        return super().locate(shown[:, ::-1], np.where(labels >= 0, 1 - labels, labels))

    def compute_figures(
        self, tables: Tables, *, noise_std: float = 0.0, other: Tables | None = None
    ) -> dict[str, FloatArray]:
        """The figures of `Classes`, with single classes in their declared order."""
        figures = super().compute_figures(tables, noise_std=noise_std, other=other)
        if self.positive == 0:
            figures = {name: value[:, ::-1] if value.ndim == 2 else value for name, value in figures.items()}
        return figures


def rank_scores(scores: npt.NDArray[Any], is_positive: npt.NDArray[np.bool_]) -> dict[str, float]:
    """Exact ROC-AUC ("auc") and average precision; empty unless both kinds of rows occur."""
    if is_positive.all() or not is_positive.any():
        return {}
    order = np.argsort(-scores.astype(np.float64), kind="stable")
    falling, hits = scores[order], is_positive[order]
    # Rows of one score are one step of both curves.
    ends = np.flatnonzero(np.append(np.diff(falling) != 0, True))
    right = np.cumsum(hits)[ends]
    wrong = ends + 1 - right
    recall, false = np.append(0.0, right / right[-1]), np.append(0.0, wrong / wrong[-1])
    return {
        "auc": float(np.trapezoid(recall, false)),
        "average_precision": float(np.sum(np.diff(recall) * right / (ends + 1))),
    }
