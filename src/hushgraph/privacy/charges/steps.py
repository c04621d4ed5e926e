"""Steps: noisy clipped sums over batches, of single rows or of trees.

How many gradients differ, and how many of them are gone in the second data set:

| change              | steps on rows                                     | steps on trees                  |
|---------------------|---------------------------------------------------|---------------------------------|
| m rows emptied      | the training rows among them; as many are gone    | m n, at most N + 1; one is gone |
| one undirected edge | its training ends, if rows read lists; none gone  | those of two records; none gone |
| one directed record | its owner, if a training row that reads its list  | those of one record; none gone  |
| one pair, relations | its training ends, if rows read lists; none gone  | as one edge, or as one record   |
| one label changed   | 1, of a training row; none gone                   | 1, of a training row; none gone |
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar, Self

from hushgraph._text import digits_down
from hushgraph.accounting.events import UNBOUNDED, Draw, Event, FixedSizeDraw, PoissonDraw, StepEvent
from hushgraph.privacy.bounds import changed_by_group
from hushgraph.privacy.changes import Change
from hushgraph.privacy.charges.charge import Charge


@dataclass(frozen=True, kw_only=True)
class Steps(Charge):
    """Noisy clipped sums.

    Attributes:
        draw: how the roots of a step are drawn.
        sigma_over_clip: standard deviation of the noise in units of the clipping norm; 0 is no noise.
    """

    draw: Draw
    sigma_over_clip: float = 0.0
    name: str = "steps"

    @abstractmethod
    def count_changed(self, change: Change) -> tuple[float, int]:
        """How many gradients differ, and how many of them are gone; infinite where no bound is known."""

    def event(self, change: Change) -> Event | None:
        """A noisy clipped sum."""
        changed, gone = self.count_changed(change)
        if not changed:
            return None
        if math.isinf(changed) or (isinstance(self.draw, FixedSizeDraw) and change.what != "rows"):
            return UNBOUNDED
        return StepEvent(
            draw=self.draw, changed_trees=int(changed), gone=gone, sigma_over_clip=self.sigma_over_clip
        )

    def with_shift(self, shift: float, *, scale: float = 1.0) -> Self:
        """Noise of a step that moves one gradient."""
        return replace(self, sigma_over_clip=scale * self.rate * math.sqrt(self.times) / shift)

    @property
    def is_step(self) -> bool:
        """True."""
        return True

    @property
    def rate(self) -> float:
        """q, the chance of a training root to be drawn."""
        return self.draw.rate if isinstance(self.draw, PoissonDraw) else self.draw.size / self.draw.population

    @property
    def figures(self) -> tuple[tuple[str, str], ...]:
        """The noise, how many steps there are, and how they draw."""
        return (
            ("sigma / C", digits_down(self.sigma_over_clip, digits=6)),
            ("steps", f"{self.times:,}"),
            ("sampling rate, q", f"{self.rate:.6g}"),
        )

    @property
    def sentence(self) -> str:
        """How a step draws its batch, and its noise."""
        draw = (
            f"every training node joins the batch independently with probability {self.draw.rate:.6g}"
            if isinstance(self.draw, PoissonDraw)
            else f"the batch is {self.draw.size:,} training nodes, drawn without replacement"
        )
        return (
            f"In each of the {self.times:,} steps {draw}. The gradient of each is clipped. Gaussian noise "
            f"with standard deviation {digits_down(self.sigma_over_clip, digits=6)} times the clipping bound "
            "is added to their sum."
        )


@dataclass(frozen=True, kw_only=True)
class RowSteps(Steps):
    """Steps whose examples are functions of one row each, given what was released before.

    Attributes:
        reads_lists: whether an example depends on the list of its row, as a reading of a board does.
    """

    reads_lists: bool = True

    kind: ClassVar[str] = "row-steps"

    def count_changed(self, change: Change) -> tuple[float, int]:
        """The examples of the training rows that the change touches."""
        training = change.num_training
        if change.what == "rows":
            return training, training
        if change.what == "label":
            return training, 0
        return (training if self.reads_lists else 0), 0


@dataclass(frozen=True, kw_only=True)
class TreeSteps(Steps):
    """Steps on trees, which contain the rows of other nodes.

    Attributes:
        changed_trees: n, the most trees that differ when one row is emptied, whatever its kind.
        num_trees: N, how many training trees there are.
        trees_of_record: the most trees that differ when one edge record is removed; infinite where no bound
            is known.
    """

    changed_trees: int
    num_trees: int
    trees_of_record: float

    kind: ClassVar[str] = "tree-steps"

    def count_changed(self, change: Change) -> tuple[float, int]:
        """The trees that contain what the change touches."""
        if change.what == "rows":
            return changed_by_group(self.changed_trees, len(change.kinds), self.num_trees), 1
        if change.what == "label":
            return change.num_training, 0
        # An edge, and a pair in all relations, is a record of each end that it is of.
        changed = len(change.kinds) * self.trees_of_record
        return (changed if math.isinf(changed) else min(changed, self.num_trees)), 0
