"""Scaling: noisy histograms of the numbers of training rows, released once, before everything else.

A training row adds 1 to one bin of each of the F histograms, or to none: a missing value, and a row without
features, add nothing and have no bin. How far a change moves all histograms together, in counts:

| change            | histograms move by                                                               |
|-------------------|----------------------------------------------------------------------------------|
| rows emptied      | how many of them are training rows, times sqrt(F): they may share their bins     |
| an edge, a record | 0                                                                                |
| one label changed | sqrt(2) if the target is one of the columns and the row is a training row, else 0 |

Rows of the other splits are not counted: they are scaled with the constants that were released.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from hushgraph.privacy.changes import Change
from hushgraph.privacy.charges.gaussian import CountsCharge

SCALING = "scaling"
"""What the release is called."""


@dataclass(frozen=True, kw_only=True)
class ScalingCharge(CountsCharge):
    """The histograms of all columns, together.

    Attributes:
        num_columns: F, how many histograms one row is counted in.
        has_target: whether one of the columns is the label.
    """

    num_columns: int
    has_target: bool = False
    name: str = SCALING

    kind: ClassVar[str] = "scaling"
    noun: ClassVar[str] = "histograms"
    use: ClassVar[str] = "Numbers are scaled with constants from noisy histograms, one of every column"
    who: ClassVar[str] = "training row"
    number: ClassVar[str] = "numeric columns scaled, F"
    remedy: ClassVar[str] = "use another epsilon, or numbers='as-is'"

    @property
    def num_counted(self) -> int:
        """F."""
        return self.num_columns

    def move(self, change: Change) -> float:
        """See the table above."""
        if change.what == "rows":
            return change.num_training * self.row_move
        if change.what == "label" and self.has_target:
            return change.num_training * math.sqrt(2)
        return 0.0
