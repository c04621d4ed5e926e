"""Predictions with what is promised about them, for files, terminals and programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from hushgraph.inference.new_nodes import NewNodes
from hushgraph.inference.predictions import NODE, NOT_COVERED, name_nodes, save
from hushgraph.inference.thresholds import Threshold
from hushgraph.privacy.plans import PREDICTIONS
from hushgraph.tasks.task import Task, name_columns

_COVERED = (
    "A prediction is computed from the node's own row and from what was released: weights, and boards where "
    "there are any. Whoever sees it sees a function of that node's own row."
)
# Nodes that are written at a time.
_SAVED_ROWS = 1 << 18
_NO_GUARANTEE = "The run guarantees nothing, so its predictions are not covered either."


class Skipped(NamedTuple):
    """What new nodes list that is not read.

    Attributes:
        unknown: how many listed places are not on the board.
        unknown_names: the first few of these.
        edges: how many records say whom other nodes list.
        undeclared: how many records are of relations that are not declared.
        weightless: how many weights count as 0; of these and the former executors keep no count.
    """

    unknown: int
    unknown_names: tuple[str, ...]
    edges: int
    undeclared: int = 0
    weightless: int = 0


@dataclass(frozen=True, kw_only=True)
class Summary:
    """What is said of predictions, wherever they are.

    Attributes:
        nodes: how many there are.
        skipped: of nodes that were not there at training; else None.
        task, class_names, threshold, is_covered, reads_neighbours: as in `Predicted`.
    """

    nodes: int
    task: Task
    class_names: Sequence[str] | None
    threshold: Threshold | None
    is_covered: bool
    reads_neighbours: bool
    skipped: Skipped | None

    @property
    def explanation(self) -> str:
        """What the predictions were computed from, in one or two sentences."""
        if self.is_covered:
            return _COVERED
        return NOT_COVERED if self.reads_neighbours else _NO_GUARANTEE

    def to_json(self) -> dict[str, Any]:
        """Return counts and what is promised as JSON values."""
        about: dict[str, Any] = {"nodes": self.nodes, "task": self.task.name}
        about |= {"classes": self.task.num_outputs, "predictions": PREDICTIONS[self.is_covered]}
        about["covered"] = self.is_covered
        if self.threshold is not None:
            about["threshold"] = {**self.threshold.to_json(), "covered": self.is_covered}
        if self.skipped is not None:
            about |= {
                "new": True,
                "unknown_places": self.skipped.unknown,
                "unknown_names": list(self.skipped.unknown_names),
                "edges_skipped": self.skipped.edges,
            }
        return about

    @property
    def notes(self) -> list[str]:
        """Counts of what was dropped or counts for nothing, for the owner of the rows alone."""
        skipped = self.skipped or Skipped(0, (), 0)
        counts = {
            "records of undeclared relations dropped": skipped.undeclared,
            "weights that count as 0": skipped.weightless,
        }
        return [f"{what}: {count:,}" for what, count in counts.items() if count]

    def to_lines(self) -> list[str]:
        """Return what is promised, what nodes are flagged by and what was skipped, a line each."""
        lines = [f"predictions: {PREDICTIONS[self.is_covered]}"]
        if self.threshold is not None:
            names = _name_outputs(self.class_names, self.task.num_outputs)
            lines += _describe_threshold(self.threshold, names, PREDICTIONS[self.is_covered])
        return [*lines, *_describe_skipped(self.skipped)]


@dataclass(frozen=True, kw_only=True, eq=False)
class Predicted:
    """What a run says of nodes, and who is protected when that is published.

    Attributes:
        task: what was asked.
        probabilities: float32 [R, outputs]: probabilities of classes or labels, or the number.
        names: the names of the nodes; None where they are numbered from 0.
        class_names: the names of the classes or labels; None where they are numbered from 0.
        id_name: what the column of names was called; None where there was none.
        label_name: what the column of labels was called; None where there was none.
        threshold: above which score nodes are flagged; None where none was asked for.
        is_covered: whether the predictions are covered towards everybody else.
        reads_neighbours: whether neighbours were read in the clear.
        new_nodes: the rows, where they are nodes that were not there at training.
    """

    task: Task
    probabilities: npt.NDArray[np.float32]
    names: npt.NDArray[Any] | None = None
    class_names: Sequence[str] | None = None
    id_name: str | None = None
    label_name: str | None = None
    threshold: Threshold | None = None
    is_covered: bool
    reads_neighbours: bool
    new_nodes: NewNodes | None = None

    def __repr__(self) -> str:
        # What a notebook shows at the end of a cell: no prediction of anybody.
        count = len(self.probabilities)
        return f"Predicted({count:,} node{'s' * (count != 1)}, {self.predictions}); to_columns() is a table"

    @property
    def predictions(self) -> str:
        """What is promised: "covered towards everybody else" or "not covered"."""
        return PREDICTIONS[self.is_covered]

    @property
    def summary(self) -> Summary:
        """Counts, and what is promised; the predictions themselves are left out."""
        nodes = self.new_nodes
        return Summary(
            nodes=len(self.probabilities),
            task=self.task,
            class_names=self.class_names,
            threshold=self.threshold,
            is_covered=self.is_covered,
            reads_neighbours=self.reads_neighbours,
            skipped=None
            if nodes is None
            else Skipped(
                nodes.num_unknown,
                nodes.unknown_names,
                nodes.edges_skipped,
                undeclared=nodes.undeclared,
                weightless=0 if nodes.weights is None else int((nodes.weights == 0).sum()),
            ),
        )

    @property
    def explanation(self) -> str:
        """What the predictions were computed from, in one or two sentences."""
        return self.summary.explanation

    @property
    def flagged(self) -> npt.NDArray[np.bool_] | None:
        """bool [R], which scores are above the threshold; of several labels [R, labels]; None without one."""
        if self.threshold is None:
            return None
        flags = self.threshold.flag(self.probabilities)
        return flags[:, 0] if flags.shape[1] == 1 else flags

    def to_columns(self, *, probabilities: bool = True) -> dict[str, npt.NDArray[Any]]:
        """Return the columns of a table: ids under their own name, the prediction, scores and flags.

        `pandas.DataFrame` and `polars.DataFrame` take it as it is. Of classes there is a column `class`, of
        labels has_NAME for each, of a number `number` and its `unit`; of two classes also p_NAME of the
        positive one. A threshold adds `flagged`, of several labels flagged_NAME for each.

        Args:
            probabilities: whether each class or label has a column of its own, called p_NAME.
        """
        columns = self.task.tabulate(
            self.probabilities, self._output_names, with_scores=probabilities, label=self.label_name
        )
        flags = self.flagged
        if self.threshold is not None and flags is not None:
            several = self._output_names[list(self.threshold.outputs)]
            columns |= {"flagged": flags} if flags.ndim == 1 else name_columns("flagged", several, flags)
        return name_nodes(columns, len(self.probabilities), node_names=self.names, id_name=self.id_name)

    def to_arrays(self, *, probabilities: bool = True) -> dict[str, npt.NDArray[Any]]:
        """Return the arrays of an `.npz` file: as `to_columns`, with probabilities as one array."""
        columns = self.to_columns(probabilities=False)
        arrays = {NODE: next(iter(columns.values())), **dict(list(columns.items())[1:])}
        if probabilities:
            names = self.class_names
            arrays["probabilities"] = self.probabilities
            arrays |= {} if names is None else {"class_names": np.asarray(names, np.str_)}
        return arrays

    def cut(self, begin: int, end: int) -> Predicted:
        """The predictions of some nodes, by number; they keep their names, or their numbers."""
        end = min(end, len(self.probabilities))
        names = np.arange(begin, end) if self.names is None else self.names[begin:end]
        return replace(self, probabilities=self.probabilities[begin:end], names=names)

    @property
    def _output_names(self) -> npt.NDArray[Any]:
        return _name_outputs(self.class_names, self.probabilities.shape[1])

    def to_json(self) -> dict[str, Any]:
        """As `Summary.to_json`."""
        return self.summary.to_json()

    def to_lines(self) -> list[str]:
        """As `Summary.to_lines`."""
        return self.summary.to_lines()


def save_predicted(predicted: Predicted, path: Path, *, probabilities: bool) -> None:
    """Write predictions as the name of the file says; a table some nodes at a time.

    Args:
        predicted: what is written.
        path: `.csv`, `.parquet` or `.npz`.
        probabilities: as in `Predicted.to_columns`.
    """
    if path.suffix == ".npz":
        save(path, [predicted.to_arrays(probabilities=probabilities)])
        return
    starts = range(0, max(1, len(predicted.probabilities)), _SAVED_ROWS)
    parts = (predicted.cut(begin, begin + _SAVED_ROWS) for begin in starts)
    save(path, (part.to_columns(probabilities=probabilities) for part in parts))


def _name_outputs(names: Sequence[str] | None, count: int) -> npt.NDArray[Any]:
    return np.arange(count) if names is None else np.asarray(names, np.str_)


def _describe_threshold(threshold: Threshold, names: npt.NDArray[Any], promise: str) -> list[str]:
    """One line, or one for each label where thresholds differ."""
    lines = []
    is_one = len(set(threshold.values)) == 1 and not threshold.shares
    for place, value in enumerate(threshold.values[:1] if is_one else threshold.values):
        of_label = f" {names[threshold.outputs[place]]}" if len(threshold.values) > 1 and not is_one else ""
        share = ""
        if threshold.shares:
            middle, low, high = threshold.shares[place]
            share = f", which {middle:.2%} of that split are above ({low:.2%} to {high:.2%} with its noise)"
        lines.append(f"flagged{of_label}: scores above {value:.6g}, {threshold.source}{share}; {promise}")
    return lines


def _describe_skipped(skipped: Skipped | None) -> list[str]:
    lines = []
    if skipped is not None and skipped.unknown:
        names = ", ".join(map(repr, skipped.unknown_names))
        lines.append(f"listed places that the board does not have, skipped: {skipped.unknown:,} ({names})")
    if skipped is not None and skipped.edges:
        lines.append(
            f"edges that belong to other nodes' rows, skipped: {skipped.edges:,} (give --symmetrize if "
            "either end of an edge lists the other)"
        )
    return lines
