"""Evaluation of predictions on a split: accuracy, accuracy per class, macro-F1."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hushgraph.graph.graph import Graph


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Results on one split.

    Attributes:
        accuracy: fraction of the nodes whose class was predicted.
        macro_f1: mean F1 score of the classes that occur.
        class_accuracy: float64 [classes], fraction of the nodes of each class that were predicted correctly;
            NaN for a class without nodes.
        class_counts: int64 [classes], the number of nodes of each class.
    """

    accuracy: float
    macro_f1: float
    class_accuracy: npt.NDArray[np.float64]
    class_counts: npt.NDArray[np.int64]


def evaluate(
    predicted: npt.NDArray[np.int64],
    labels: npt.NDArray[np.int64],
    nodes: npt.NDArray[np.int64],
    num_classes: int,
) -> Evaluation | None:
    """Evaluate predictions on the labelled ones of `nodes`; None if none has a label."""
    nodes = nodes[labels[nodes] >= 0]
    if not len(nodes):
        return None
    truth, guess = labels[nodes], predicted[nodes]
    hits, counts, guesses = (
        np.bincount(classes, minlength=num_classes) for classes in (truth[truth == guess], truth, guess)
    )
    occurs = counts > 0
    class_accuracy = np.full(num_classes, np.nan)
    class_accuracy[occurs] = hits[occurs] / counts[occurs]
    return Evaluation(
        accuracy=float(hits.sum() / len(nodes)),
        macro_f1=float(np.mean(2 * hits[occurs] / (counts + guesses)[occurs])),
        class_accuracy=class_accuracy,
        class_counts=counts,
    )


def measure_accuracy(
    predicted: npt.NDArray[np.int64], graph: Graph, nodes: npt.NDArray[np.int64]
) -> float | None:
    """Return the accuracy on the labelled ones of `nodes`; None if none has a label."""
    evaluation = evaluate(predicted, graph.y, nodes, graph.num_classes)
    return None if evaluation is None else evaluation.accuracy
