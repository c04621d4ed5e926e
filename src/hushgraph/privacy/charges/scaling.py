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
from dataclasses import dataclass, replace
from typing import ClassVar

from hushgraph._text import digits_down
from hushgraph.accounting.events import Event, GaussianEvent
from hushgraph.errors import PlanError
from hushgraph.privacy.changes import Change
from hushgraph.privacy.charges.board import LARGEST_NOISE, LEAST_NOISE
from hushgraph.privacy.charges.charge import Charge

SCALING = "scaling"
"""What the release is called."""


@dataclass(frozen=True, kw_only=True)
class ScalingCharge(Charge):
    """The histograms of all columns, together.

    Attributes:
        num_columns: F, how many histograms one row is counted in.
        noise_std: s, the standard deviation of the noise on every bin, in counts; 0 is no noise.
        has_target: whether one of the columns is the label.
    """

    num_columns: int
    noise_std: float = 0.0
    has_target: bool = False
    name: str = SCALING

    kind: ClassVar[str] = "scaling"

    def __post_init__(self) -> None:
        """Check the numbers."""
        super().__post_init__()
        if self.num_columns < 1:
            raise PlanError(f"num_columns={self.num_columns}: expected 1 or more.")
        if not 0.0 <= self.noise_std < math.inf:
            raise PlanError(f"noise_std={self.noise_std}: expected a finite number, 0 or more.")

    def event(self, change: Change) -> Event | None:
        """A Gaussian release."""
        move = self._move(change)
        if not move:
            return None
        return GaussianEvent(shift_over_sigma=move / self.noise_std if self.noise_std else math.inf)

    def _move(self, change: Change) -> float:
        if change.what == "rows":
            return change.num_training * math.sqrt(self.num_columns)
        if change.what == "label" and self.has_target:
            return change.num_training * math.sqrt(2)
        return 0.0

    def with_shift(self, shift: float, *, scale: float = 1.0) -> ScalingCharge:
        """The noise at which a training row shifts the histograms by `shift`; nothing is sampled."""
        return replace(self, noise_std=math.sqrt(self.num_columns) / shift)

    def check_noise(self, epsilon: float) -> None:
        """Refuse noise that the grid of the draws does not take."""
        if not LEAST_NOISE <= self.noise_std <= LARGEST_NOISE:
            raise PlanError(
                f"epsilon={epsilon}: scaling would have noise of {self.noise_std:.3g} counts, and histograms "
                f"take from {LEAST_NOISE:g} to {LARGEST_NOISE}; use another epsilon, or numbers='as-is'"
            )

    @property
    def figures(self) -> tuple[tuple[str, str], ...]:
        """The noise, and how many columns there are."""
        return (
            ("noise of a count in the histograms of scaling", digits_down(self.noise_std, digits=6)),
            ("numeric columns scaled, F", f"{self.num_columns}"),
        )

    @property
    def bounds(self) -> tuple[str, ...]:
        """How far one row moves it, and the noise."""
        spread = digits_down(self.noise_std, digits=3)
        histograms = "histogram" if self.num_columns == 1 else "histograms"
        return (f"counted once in {self.num_columns} {histograms}", f"noise {spread} on every count, once")

    @property
    def sentence(self) -> str:
        """Who is counted, and the noise."""
        one = self.num_columns == 1
        columns = "one numeric column" if one else f"each of {self.num_columns} numeric columns"
        return (
            "Numbers are scaled with constants that are computed from noisy histograms, released once: every "
            f"training row is counted in at most one bin of {columns}, and noise with standard deviation "
            f"{digits_down(self.noise_std, digits=6)} is added to every bin."
        )
