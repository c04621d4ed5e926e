"""One of c classes: centred ballots, cross-entropy, the class with the highest score."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from hushgraph.errors import GraphError
from hushgraph.tasks.task import Evaluation, FloatArray, Task, register

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class ClassEvaluation(Evaluation):
    """How good predicted classes are.

    Attributes:
        figures: "accuracy", the fraction of the nodes whose class was predicted, and "macro_f1", the mean F1
            score of the classes that occur.
        class_accuracy: float64 [classes], fraction of the nodes of each class that were predicted correctly;
            NaN for a class without nodes.
        class_counts: int64 [classes], the number of nodes of each class.
    """

    class_accuracy: npt.NDArray[np.float64]
    class_counts: npt.NDArray[np.int64]

    @property
    def accuracy(self) -> float:
        """The fraction of the nodes whose class was predicted."""
        return self.figures["accuracy"]

    @property
    def macro_f1(self) -> float:
        """The mean F1 score of the classes that occur."""
        return self.figures["macro_f1"]


def cross_entropy(outputs: Tensor, labels: Tensor) -> Tensor:
    """[rows]: minus the log-probability of the label; 0 where a row has none, -1."""
    from torch.nn import functional

    return functional.cross_entropy(outputs, labels, ignore_index=-1, reduction="none")


@register
@dataclass(frozen=True, kw_only=True)
class Classes(Task):
    """One of c classes, numbered from 0.

    Attributes:
        num_classes: c, which is public.
    """

    name: ClassVar[str] = "classes"
    headline: ClassVar[str] = "accuracy"
    loss = staticmethod(cross_entropy)

    num_classes: int

    def __post_init__(self) -> None:
        given = self.num_classes
        if isinstance(given, bool) or not isinstance(given, (int, np.integer)) or given < 1:
            raise GraphError(f"num_classes={str(given)[:40]}; expected an integer of at least 1")

    @property
    def num_outputs(self) -> int:
        """c: one score for every class."""
        return self.num_classes

    @property
    def ballot_width(self) -> int:
        """c."""
        return self.num_classes

    @property
    def label_change(self) -> float:
        """2c / (c - 1): two entries of a centred ballot change places."""
        return 2 * self.num_classes / (self.num_classes - 1)

    @property
    def is_centred(self) -> bool:
        """Yes: every class loses 1/c."""
        return True

    @property
    def entry_squares(self) -> tuple[Fraction, Fraction]:
        """Of (e_y - 1/c) / sqrt(1 - 1/c): (c - 1) / c, and 1 / (c (c - 1))."""
        c = self.num_classes
        return Fraction(c - 1, c), Fraction(1, c * (c - 1))

    def check(self) -> None:
        """Refuse fewer than two classes."""
        if self.num_classes < 2:
            raise GraphError(
                f"num_classes={self.num_classes}: expected 2 or more; one class leaves nothing to predict"
            )

    def check_labels(self, labels: Any) -> npt.NDArray[Any]:
        """Convert integers from -1 to c - 1."""
        array = np.asarray(labels)
        if array.dtype.kind not in "iu" or array.ndim != 1:
            raise GraphError(f"y has dtype {array.dtype}, ndim={array.ndim}; expected a list of integers")
        wrong = np.flatnonzero((array < -1) | (array >= self.num_classes))
        if wrong.size:
            raise GraphError(
                f"y[{wrong[0]}]={array[wrong[0]]}; expected -1..{self.num_classes - 1}; use -1 for no label, "
                "or raise num_classes"
            )
        return array.astype(np.int64, copy=False)

    def make_ballots(self, labels: npt.NDArray[Any]) -> FloatArray:
        """(e_y - 1/c) / sqrt(1 - 1/c)."""
        return self._centre(np.eye(self.num_classes)[labels])

    def predict_ballots(self, outputs: Tensor) -> FloatArray:
        """Centred probabilities."""
        return self._centre(self.show(outputs).cpu().numpy().astype(np.float64))

    def _centre(self, probabilities: FloatArray) -> FloatArray:
        c = self.num_classes
        centred: FloatArray = (probabilities - 1.0 / c) / np.sqrt(1.0 - 1.0 / c)
        return centred

    def show(self, outputs: Tensor) -> Tensor:
        """Probabilities."""
        return outputs.softmax(1)

    def predict(self, outputs: Tensor) -> Tensor:
        """The class with the highest score."""
        return outputs.argmax(1)

    def evaluate(self, predicted: npt.NDArray[Any], labels: npt.NDArray[Any]) -> ClassEvaluation:
        """Accuracy, macro-F1 and the accuracy of every class."""
        hits, counts, guesses = (
            np.bincount(classes, minlength=self.num_classes)
            for classes in (labels[labels == predicted], labels, predicted)
        )
        occurs = counts > 0
        class_accuracy = np.full(self.num_classes, np.nan)
        class_accuracy[occurs] = hits[occurs] / counts[occurs]
        figures = {
            "accuracy": float(hits.sum() / len(labels)),
            "macro_f1": float(np.mean(2 * hits[occurs] / (counts + guesses)[occurs])),
        }
        return ClassEvaluation(figures=figures, class_accuracy=class_accuracy, class_counts=counts)
