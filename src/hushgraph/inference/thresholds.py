"""Thresholds of scores: given, or read off released score bins; never by rank, which other rows decide."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from hushgraph._arrays import FloatArray
from hushgraph._validate import as_float, show_value
from hushgraph.errors import InputError
from hushgraph.figures.describe import HALF
from hushgraph.figures.names import SPLITS
from hushgraph.figures.tables import NoisyTables
from hushgraph.tasks.class_tables import choose_threshold
from hushgraph.tasks.classes import Classes
from hushgraph.tasks.task import Task

# A split whose rows, all together, are fewer than this many standard deviations of their noise tells nothing.
_LEAST_STDS = 4.0


@dataclass(frozen=True, kw_only=True)
class Threshold:
    """Nodes whose score is above it are flagged.

    Attributes:
        values: one for each output that is scored: one for two classes or a number, one for every label.
        outputs: which columns of what the model shows these are.
        top: the share of nodes that it was asked to flag at most; None where the threshold was given.
        split: whose released bins it was read off; None where it was given.
        shares: for each value, the share of that split above it, and the interval of 95% for its noise.

    Guarantees:
        A function of what was given and of released values. A flag is then a function of the node's own score
        and covered where that is.
    """

    values: tuple[float, ...]
    outputs: tuple[int, ...]
    top: float | None = None
    split: str | None = None
    shares: tuple[tuple[float, float, float], ...] = ()

    @property
    def source(self) -> str:
        """Where the values come from."""
        return "given" if self.split is None else f"released bins of the {SPLITS[self.split]} split"

    def flag(self, shown: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
        """bool [rows, values]: which scores are above it.

        Args:
            shown: [rows, outputs], what `Task.show` gave.
        """
        # In float64, as scores were compared with the edges of bins.
        above: npt.NDArray[np.bool_] = shown[:, list(self.outputs)].astype(np.float64) > np.asarray(
            self.values
        )
        return above

    def to_json(self) -> dict[str, Any]:
        """Return JSON values; of several labels, one threshold and share each."""
        shares = [{"share": share, "noise": [low, high]} for share, low, high in self.shares]
        return {
            "values": list(self.values),
            "source": self.source,
            "top": self.top,
            "shares": shares,
        }


def parse_top(top: str | float) -> float:
    """The share in "1%" or 0.01; InputError unless it is above 0 and below 1."""
    number: float | None
    if isinstance(top, str):
        text = top.strip()
        try:
            number = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
        except ValueError:
            number = None
    else:
        number = as_float(top)
    if number is None or not 0 < number < 1:
        raise InputError(
            f"top={show_value(top)}: expected a share above 0% and below 100%, such as 1% or 0.01"
        )
    return number


def give_threshold(task: Task, threshold: float) -> Threshold:
    """A threshold that the caller knows, for every scored output."""
    _check_scored(task, f"threshold={show_value(threshold)}")
    number, (low, high) = as_float(threshold), task.score_bounds
    if number is None or not low <= number <= high:
        kind = "a probability" if (low, high) == (0.0, 1.0) else "a number within the bounds of the label"
        raise InputError(
            f"threshold={show_value(threshold)}: expected {kind}, from {low:g} to {high:g}; nodes above it "
            "are flagged"
        )
    return Threshold(values=(number,) * len(task.scored), outputs=task.scored)


def read_threshold(task: Task, tables: NoisyTables | None, top: str | float) -> Threshold:
    """The lowest public edge that at most a share of the rows of the validation split is above.

    The test split serves where noise hides how many rows the validation split has, as where it is empty.

    Args:
        task: says which outputs are scored.
        tables: the noisy tables that the run released; None where it has none.
        top: the share, as `parse_top` takes it.

    Guarantees:
        A function of noisy tables alone.
    """
    share = parse_top(top)
    asked = f"top={show_value(top)}"
    _check_scored(task, asked)
    if tables is None:
        raise InputError(
            f"{asked}: the run released no score bins, as trees, a fixed seed and training without privacy "
            "do not; give threshold=T, or train by the billboard"
        )
    released = tables.counts
    # In this order, whatever the order in the file.
    for split in [name for name in SPLITS if name in released]:
        counts = released[split]
        bins = task.bin_scores([table.sum(0) for table in counts] if tables.groups else counts)
        if bins is None:
            raise InputError(
                f"{asked}: what is released of {task.question} has no score bins; give threshold=T, above "
                "which nodes are flagged"
            )
        edges, scores = bins
        std = tables.noise_std * math.sqrt(max(1, len(tables.groups)))
        if (scores.sum((1, 2)) < _LEAST_STDS * std * math.sqrt(scores[0].size)).any():
            continue
        places = choose_threshold(scores, share)
        return Threshold(
            values=tuple(float(edges[place]) for place in places),
            outputs=task.scored,
            top=share,
            split=split,
            shares=tuple(_find_share(each, place, std) for each, place in zip(scores, places, strict=True)),
        )
    raise InputError(
        f"{asked}: noise hides how many rows the released score bins have; give threshold=T, or train with a "
        "larger epsilon or more validation rows"
    )


def _find_share(scores: FloatArray, place: int, std: float) -> tuple[float, float, float]:
    """The share of rows above an edge, and where noise may have moved it from, between 0 and 1."""
    above, total = scores[place + 1 :], scores.sum()
    share = above.sum() / total
    # Noise of the cells above it, and of all cells through the total.
    half = HALF * std * math.sqrt(above.size * (1 - share) ** 2 + (scores.size - above.size) * share**2)
    low, high = share - half / total, share + half / total
    cut = np.clip([share, low, high], 0.0, 1.0)
    return float(cut[0]), float(cut[1]), float(cut[2])


def _check_scored(task: Task, asked: str) -> None:
    if task.scored:
        return
    what = f"one of {task.question}" if isinstance(task, Classes) else task.question
    raise InputError(
        f"{asked}: the run predicts {what}, and a threshold is for the score of one class, a label or a "
        "number; leave it out, and use the columns of probabilities"
    )
