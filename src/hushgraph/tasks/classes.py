"""One of c classes: centred ballots, cross-entropy, the class with the highest score."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from hushgraph._arrays import FloatArray
from hushgraph.errors import GraphError
from hushgraph.tasks.class_tables import (
    CONFIDENCE_CENTRES,
    CONFIDENCE_EDGES,
    SCORE_CENTRES,
    SCORE_EDGES,
    choose_threshold,
    compute_calibration_figures,
    compute_confusion_figures,
    compute_score_figures,
    compute_threshold_figures,
    find_bins,
    sum_to_confusion,
)
from hushgraph.tasks.task import Evaluation, Table, Tables, Task, name_columns, register

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
            raise GraphError(f"num_classes={str(given)[:40]}: expected an integer of at least 1")

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
        """(c - 1) / c and 1 / (c (c - 1)): the squares of the entries of (e_y - 1/c) / sqrt(1 - 1/c)."""
        c = self.num_classes
        return Fraction(c - 1, c), Fraction(1, c * (c - 1))

    @property
    def question(self) -> str:
        """How many classes there are."""
        return f"{self.num_classes} classes"

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
                f"y[{wrong[0]}]={array[wrong[0]]}: expected -1..{self.num_classes - 1}; use -1 for no label, "
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

    def average(
        self, shown: Tensor, mean_of_neighbours: Callable[[Tensor], Tensor], is_alone: Tensor
    ) -> Tensor:
        """Add the mean of the neighbours' log-probabilities to a node's own."""
        logs = shown.clamp(min=1e-12).log()
        return (logs + mean_of_neighbours(logs)).softmax(1)

    def predict(self, shown: Tensor) -> Tensor:
        """The class with the highest probability."""
        return shown.argmax(1)

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

    @property
    def tables(self) -> tuple[Table, ...]:
        """Two classes: (score bin, label). More: (label, predicted class) and (confidence bin, right).

        Scores of every class against the rest would be c further tables.
        """
        c = self.num_classes
        if c == 2:
            axes = ("bin of the probability of class 1", "label")
            return (Table(name="scores", shape=(len(SCORE_CENTRES), 2), axes=axes),)
        return (
            Table(name="confusion", shape=(c, c), axes=("label", "predicted class")),
            Table(
                name="calibration",
                shape=(len(CONFIDENCE_CENTRES), 2),
                axes=("bin of the probability of the predicted class", "wrong or right"),
            ),
        )

    def locate(self, shown: npt.NDArray[np.floating[Any]], labels: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        """Cells by label, predicted class and bin of its probability."""
        c = self.num_classes
        is_counted = (labels >= 0) & (labels < c) & np.isfinite(shown).all(1)
        label, best = np.where(is_counted, labels, 0).astype(np.int64), shown.argmax(1)
        if c == 2:
            bins = find_bins(shown[:, 1], SCORE_EDGES)
            # Rounding may leave class 1 at one half and class 0 below it: the predicted class decides.
            half = len(SCORE_CENTRES) // 2
            bins = np.where(best == 1, np.maximum(bins, half), np.minimum(bins, half - 1))
            cells = (bins * 2 + label)[:, None]
        else:
            bins = find_bins(shown.max(1), CONFIDENCE_EDGES)
            cells = np.stack([label * c + best, bins * 2 + (label == best)], axis=1)
        located: npt.NDArray[np.int64] = np.where(is_counted[:, None], cells, -1).astype(np.int64)
        return located

    def compute_figures(
        self, tables: Tables, *, noise_std: float = 0.0, other: Tables | None = None
    ) -> dict[str, FloatArray]:
        """Accuracy, macro-F1, calibration, the most frequent class, each class; of two classes also ranking.

        Of two classes, class 1 is the positive one. "threshold_at_1_percent" is the lowest public edge that
        at most 1% of the rows of `other` are above; "recall_at_1_percent" and "share_at_1_percent" are the
        recall, and the share of all rows, above it.
        """
        first = np.asarray(tables[0], np.float64)
        if self.num_classes != 2:
            figures = compute_calibration_figures(np.asarray(tables[1], np.float64), noise_std)
            figures |= compute_confusion_figures(first, noise_std)
            counts = (first if other is None else np.asarray(other[0], np.float64)[None]).sum(2)
        else:
            figures = compute_score_figures(first, noise_std)
            # A cell of the confusion table is the sum of half of the bins.
            std = noise_std * np.sqrt(len(SCORE_CENTRES) / 2)
            figures |= compute_confusion_figures(sum_to_confusion(first), std)
            chosen_on = first if other is None else np.asarray(other[0], np.float64)[None]
            counts = chosen_on.sum(1)
            threshold = np.broadcast_to(choose_threshold(chosen_on, 0.01), len(first))
            recall, share = compute_threshold_figures(first, threshold, noise_std)
            figures |= {
                "recall_at_1_percent": recall,
                "share_at_1_percent": share,
                "threshold_at_1_percent": SCORE_EDGES[threshold],
            }
        most_frequent = np.broadcast_to(counts.argmax(1), len(first))
        figures["majority_baseline"] = figures["share"][np.arange(len(first)), most_frequent]
        return figures

    def tabulate(
        self, shown: npt.NDArray[Any], names: npt.NDArray[Any], *, with_scores: bool, label: str | None
    ) -> dict[str, npt.NDArray[Any]]:
        """The class, and the probability p_NAME of every class."""
        columns = {"class": names[shown.argmax(1)]}
        return columns | (name_columns("p", names, shown) if with_scores else {})

    @property
    def scored(self) -> tuple[int, ...]:
        """The second of two classes; none of more."""
        return (1,) if self.num_classes == 2 else ()

    def bin_scores(self, tables: Tables) -> tuple[FloatArray, FloatArray] | None:
        """The table itself, for two classes; None for more."""
        return None if self.num_classes != 2 else (SCORE_EDGES, np.asarray(tables[0], np.float64)[None])

    def bound_figure(self, name: str) -> tuple[float, float]:
        """Every figure is a share."""
        return 0.0, 1.0
