"""Predictions with what is promised about them, for files, terminals and programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from hushgraph.inference.new_nodes import NewNodes
from hushgraph.inference.predictions import NOT_COVERED, list_columns
from hushgraph.privacy.plans import PREDICTIONS

_COVERED = (
    "A prediction is computed from the node's own row and from what was released: weights, and boards where "
    "there are any. Whoever sees it sees a function of that node's own row."
)
_NO_GUARANTEE = "The run guarantees nothing, so its predictions are not covered either."


@dataclass(frozen=True, kw_only=True, eq=False)
class Predicted:
    """Probabilities of nodes, and who is protected when they are published.

    Attributes:
        probabilities: float32 [R, classes].
        names: the names of the nodes; None where they are numbered from 0.
        class_names: the names of the classes; None where they are numbered from 0.
        id_name: what the column of names was called; None where there was none.
        is_covered: whether the predictions are covered towards everybody else.
        reads_neighbours: whether neighbours were read in the clear.
        new_nodes: the rows, where they are nodes that were not there at training.
    """

    probabilities: npt.NDArray[np.float32]
    names: npt.NDArray[Any] | None = None
    class_names: Sequence[str] | None = None
    id_name: str | None = None
    is_covered: bool
    reads_neighbours: bool
    new_nodes: NewNodes | None = None

    @property
    def predictions(self) -> str:
        """What is promised: "covered towards everybody else" or "not covered"."""
        return PREDICTIONS[self.is_covered]

    @property
    def explanation(self) -> str:
        """What the predictions were computed from, in one or two sentences."""
        if self.is_covered:
            return _COVERED
        return NOT_COVERED if self.reads_neighbours else _NO_GUARANTEE

    def to_columns(self, *, probabilities: bool = True) -> dict[str, npt.NDArray[Any]]:
        """Return the columns of a table: ids under their own name, classes by name, probabilities.

        `pandas.DataFrame` and `polars.DataFrame` take it as it is.

        Args:
            probabilities: whether each class has a column of its own, called p_NAME.
        """
        return list_columns(
            self.probabilities,
            with_probabilities=probabilities,
            node_names=self.names,
            class_names=self.class_names,
            id_name=self.id_name,
        )

    def to_json(self) -> dict[str, Any]:
        """Return counts and what is promised as JSON values; the predictions themselves are left out."""
        count, classes = self.probabilities.shape
        about: dict[str, Any] = {"nodes": count, "classes": classes, "predictions": self.predictions}
        about["covered"] = self.is_covered
        if self.new_nodes is not None:
            about |= {
                "new": True,
                "unknown_places": self.new_nodes.num_unknown,
                "unknown_names": list(self.new_nodes.unknown_names),
                "edges_skipped": self.new_nodes.edges_skipped,
            }
        return about

    def to_lines(self) -> list[str]:
        """Return what is promised and what was skipped, a line each."""
        return [f"predictions: {self.predictions}", *_describe_skipped(self.new_nodes)]


def _describe_skipped(nodes: NewNodes | None) -> list[str]:
    lines = []
    if nodes is not None and nodes.num_unknown:
        names = ", ".join(map(repr, nodes.unknown_names))
        lines.append(f"listed places that the board does not have, skipped: {nodes.num_unknown:,} ({names})")
    if nodes is not None and nodes.edges_skipped:
        lines.append(
            f"edges that belong to other nodes' rows, skipped: {nodes.edges_skipped:,} (give --symmetrize if "
            "either end of an edge lists the other)"
        )
    return lines
