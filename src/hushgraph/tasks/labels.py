"""Several of L labels at once, such as genres."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt
from scipy import sparse

from hushgraph._arrays import FloatArray
from hushgraph.errors import GraphError
from hushgraph.tasks.class_tables import compute_average_precision, compute_roc_auc, divide, find_bins
from hushgraph.tasks.task import Evaluation, Table, Tables, Task, name_columns, register
from hushgraph.tasks.two_classes import rank_scores

if TYPE_CHECKING:
    from torch import Tensor

# Few bins: a row is counted once for every label, so that noise grows with the root of L.
_EDGES: FloatArray = 1 / (1 + np.exp(-np.array([-5.0, -4.0, -3.0, -2.0, -1.0, 0.0, 1.0, 2.0])))
# Beyond this, a probability is 0 or 1, and an infinite output would be no number.
_CERTAIN = 700.0
# Exact figures leave out labels with fewer rows: their ROC-AUC is chance.
_FEWEST_ROWS = 50


def binary_cross_entropies(outputs: Tensor, labels: Tensor) -> Tensor:
    """[rows]: the sum over labels of binary cross-entropies; 0 where a row has no labels, -1."""
    import torch
    from torch.nn import functional

    targets = labels.clamp(min=0).to(outputs.dtype)
    losses = functional.binary_cross_entropy_with_logits(outputs, targets, reduction="none").sum(1)
    return torch.where((labels < 0).any(1), 0.0, losses)


def find_probabilities(outputs: Tensor) -> Tensor:
    """The logistic function, of every number by itself to the last bit.

    `torch.sigmoid` computes the end of an array by other instructions than the rest, so that the last bit of
    a row depends on how many rows come before. A softmax of every number and 0 is computed pair by pair.
    """
    import torch

    pairs = torch.stack([outputs, torch.zeros_like(outputs)], dim=-1)
    return pairs.clamp(-_CERTAIN, _CERTAIN).softmax(-1)[..., 0].contiguous()


def read_sets(labels: Any, num_labels: int | None = None) -> npt.NDArray[np.int64]:
    """int64 [rows, L]: sets of labels as `Labels` takes them, from a table of 0 and 1, dense or sparse.

    Args:
        labels: [rows, L]; a row with NaN or a negative number has no label.
        num_labels: L, where it is declared.

    Raises:
        GraphError: for another shape, or a number that is neither 0 nor 1.
    """
    array = labels.toarray() if sparse.issparse(labels) else np.asarray(labels)
    is_table = array.dtype.kind in "iubf" and array.ndim == 2
    if not is_table or num_labels not in (None, array.shape[1]):
        expected = "labels" if num_labels is None else num_labels
        raise GraphError(
            f"y has dtype {array.dtype} and shape {list(array.shape)}; expected 0 or 1 for each label, "
            f"[nodes, {expected}]"
        )
    is_unknown = np.isnan(array) if array.dtype.kind == "f" else array < 0
    wrong = np.argwhere((array != 0) & (array != 1) & ~is_unknown & ~(array < 0))
    if len(wrong):
        row, label = wrong[0]
        raise GraphError(f"y[{row}, {label}]={array[row, label]}: expected 0, 1, or -1 for no label")
    sets = np.where(is_unknown, -1, array).astype(np.int64)
    sets[(sets < 0).any(1)] = -1
    return sets


def read_sparse_sets(
    indptr: npt.NDArray[Any], indices: npt.NDArray[Any], num_labels: int
) -> npt.NDArray[np.int64]:
    """int64 [rows, L]: the same from lists of labels: row i has `indices[indptr[i]:indptr[i + 1]]`.

    An empty list is an empty set, which is a label. A row that lists a negative number has no label. What is
    no declared label is left out.
    """
    owners = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    sets = np.zeros((len(indptr) - 1, num_labels), np.int64)
    is_known = (indices >= 0) & (indices < num_labels)
    sets[owners[is_known], indices[is_known]] = 1
    sets[owners[indices < 0]] = -1
    return sets


@register
@dataclass(frozen=True, kw_only=True)
class Labels(Task):
    """Several of L labels. A row of `y` has 0 or 1 for every label; -1 throughout means that none is known.

    Attributes:
        num_labels: L, which is declared.
    """

    name: ClassVar[str] = "labels"
    headline: ClassVar[str] = "auc"
    answer: ClassVar[str] = "the labels"
    loss = staticmethod(binary_cross_entropies)

    num_labels: int

    def __post_init__(self) -> None:
        if self.num_labels < 1:
            raise GraphError(f"num_labels={self.num_labels}: expected 1 or more")

    @property
    def judged_by(self) -> str:
        """The mean ROC-AUC over labels."""
        return "macro_auc"

    @property
    def num_outputs(self) -> int:
        """L."""
        return self.num_labels

    @property
    def ballot_width(self) -> int:
        """L."""
        return self.num_labels

    @property
    def question(self) -> str:
        """How many labels there are."""
        return f"{self.num_labels} labels"

    @property
    def first_output(self) -> float:
        """The log-odds of one label in L: steps that clipping keeps short need not go there first."""
        return -math.log(self.num_labels)

    @property
    def label_change(self) -> float:
        """2: two sets without a common label."""
        return 2.0

    def check_labels(self, labels: Any) -> npt.NDArray[Any]:
        """Convert a table of 0, 1 and -1."""
        array = np.asarray(labels)
        if array.dtype.kind not in "iub" or array.ndim != 2 or array.shape[1] != self.num_labels:
            raise GraphError(
                f"y has dtype {array.dtype} and shape {list(array.shape)}; expected 0 or 1 for each of "
                f"{self.num_labels} labels"
            )
        array = array.astype(np.int64, copy=False)
        if array.size and (array.min() < -1 or array.max() > 1):
            raise GraphError(
                "y holds other numbers than 0, 1 and -1; use -1 throughout for an unlabelled row"
            )
        return array

    def make_ballots(self, labels: npt.NDArray[Any]) -> FloatArray:
        """The set of labels, divided by its norm; the empty set casts nothing."""
        sets = labels.astype(np.float64)
        sizes = np.maximum(sets.sum(1, keepdims=True), 1.0)
        ballots: FloatArray = sets / np.sqrt(sizes)
        return ballots

    def predict_ballots(self, outputs: Tensor) -> FloatArray:
        """Probabilities, which are scaled to norm 1 where they are longer."""
        ballots: FloatArray = find_probabilities(outputs.double()).cpu().numpy()
        return ballots

    def show(self, outputs: Tensor) -> Tensor:
        """Probabilities."""
        return find_probabilities(outputs)

    def average(
        self, shown: Tensor, mean_of_neighbours: Callable[[Tensor], Tensor], is_alone: Tensor
    ) -> Tensor:
        """Add the mean of the neighbours' log-odds to a node's own."""
        log_odds = shown.logit(eps=1e-6)
        return (log_odds + mean_of_neighbours(log_odds)).sigmoid()

    def predict(self, shown: Tensor) -> Tensor:
        """Whether each label is more likely than not."""
        return (shown > 0.5).long()

    def evaluate(self, predicted: npt.NDArray[Any], labels: npt.NDArray[Any]) -> Evaluation:
        """The share of single labels that are right."""
        return Evaluation(figures={"label_accuracy": float((predicted == labels).mean())})

    def rank(self, shown: npt.NDArray[Any], labels: npt.NDArray[Any]) -> dict[str, float]:
        """The mean ROC-AUC and average precision over labels with at least 50 rows that have them."""
        ranked = [
            rank_scores(shown[:, place], labels[:, place] == 1)
            for place in range(self.num_labels)
            if _FEWEST_ROWS <= int(labels[:, place].sum()) < len(labels)
        ]
        return {name: float(np.mean([each[name] for each in ranked])) for name in (ranked or [{}])[0]}

    @property
    def tables(self) -> tuple[Table, ...]:
        """(label, score bin, has it or not): a row is counted once for every label."""
        shape = (self.num_labels, len(_EDGES) + 1, 2)
        axes = ("label", "bin of its probability", "has it or not")
        return (Table(name="scores", shape=shape, axes=axes, cells_of_a_row=self.num_labels),)

    def locate(self, shown: npt.NDArray[np.floating[Any]], labels: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        """int64 [rows, L]: the cell of every label."""
        is_counted = (labels >= 0).all(1) & np.isfinite(shown).all(1)
        bins = find_bins(shown, _EDGES)
        first = np.arange(self.num_labels) * (len(_EDGES) + 1)
        cells = (first + bins) * 2 + np.where(labels > 0, 1, 0)
        located: npt.NDArray[np.int64] = np.where(is_counted[:, None], cells, -1).astype(np.int64)
        return located

    def compute_figures(
        self, tables: Tables, *, noise_std: float = 0.0, other: Tables | None = None
    ) -> dict[str, FloatArray]:
        """Mean ROC-AUC and average precision over labels that noise does not hide; the share of each."""
        scores = np.asarray(tables[0], np.float64)
        positive, negative = scores[..., 1], scores[..., 0]
        bins = scores.shape[2]
        counts, rows = positive.sum(2), scores.sum((2, 3))
        batch, labels = counts.shape
        by_label = positive.reshape(-1, bins), negative.reshape(-1, bins)
        ranked = {
            "macro_auc": compute_roc_auc(*by_label, noise_std),
            "macro_average_precision": compute_average_precision(*by_label, noise_std),
        }
        # Labels are chosen on the other split, so that noise does not help the choice.
        chosen_on = counts if other is None else np.asarray(other[0], np.float64)[None, ..., 1].sum(2)
        is_told = np.broadcast_to(
            chosen_on > max(_FEWEST_ROWS, 4 * noise_std * np.sqrt(bins)), (batch, labels)
        )
        told = np.maximum(is_told.sum(1), 1)
        means = {
            name: np.where(is_told, each.reshape(batch, labels), 0.0).sum(1) / told
            for name, each in ranked.items()
        }
        return {
            **{name: np.where(is_told.any(1), mean, np.nan) for name, mean in means.items()},
            "share": divide(counts, rows, noise_std * np.sqrt(2 * bins)),
        }

    def tabulate(
        self, shown: npt.NDArray[Any], names: npt.NDArray[Any], *, with_scores: bool, label: str | None
    ) -> dict[str, npt.NDArray[Any]]:
        """Whether a row has each label, has_NAME, and the probability p_NAME."""
        columns = name_columns("has", names, shown > 0.5)
        return columns | (name_columns("p", names, shown) if with_scores else {})

    @property
    def scored(self) -> tuple[int, ...]:
        """Every label."""
        return tuple(range(self.num_labels))

    def bin_scores(self, tables: Tables) -> tuple[FloatArray, FloatArray] | None:
        """The table itself."""
        return _EDGES, np.asarray(tables[0], np.float64)

    def bound_figure(self, name: str) -> tuple[float, float]:
        """Shares and areas are between 0 and 1."""
        return 0.0, 1.0
