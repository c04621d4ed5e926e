"""Evaluation: noisy tables of counts of evaluated rows, released once, at the end of a run.

A row adds 1 to one cell of each of the m tables. Given the boards and the weights, its cells are a function
of that row alone. How far a change moves all tables together, in counts:

| change              | evaluated rows it touches | tables move by                              |
|---------------------|---------------------------|---------------------------------------------|
| rows emptied        | e                         | e sqrt(m): they may share their cells       |
| one undirected edge | 1 or 2 of its ends        | sqrt(2 m) or sqrt(8 m), if rows read lists  |
| one directed record | its owner                 | sqrt(2 m), if rows read lists               |
| one label changed   | 1                         | sqrt(2 m)                                   |

A row that changes leaves one cell of each table and enters another, which is a move of sqrt(2); two rows may
leave the same cell and enter the same other, which is twice that.
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

FIGURES = "figures"
"""What the release is called."""


@dataclass(frozen=True, kw_only=True)
class EvaluationCharge(Charge):
    """All tables of the validation and test splits, together.

    Attributes:
        num_tables: m, how many cells one row is counted in. A row is in one split, so that the tables of
            further splits do not count again.
        noise_std: s, the standard deviation of the noise on every cell, in counts; 0 is no noise.
        reads_lists: whether a prediction depends on the list of its row, as a reading of a board does.
    """

    num_tables: int
    noise_std: float = 0.0
    reads_lists: bool = True
    name: str = FIGURES

    kind: ClassVar[str] = "evaluation"

    def __post_init__(self) -> None:
        """Check the numbers."""
        super().__post_init__()
        if self.num_tables < 1:
            raise PlanError(f"num_tables={self.num_tables}: expected 1 or more.")
        if not 0.0 <= self.noise_std < math.inf:
            raise PlanError(f"noise_std={self.noise_std}: expected a finite number, 0 or more.")

    def event(self, change: Change) -> Event | None:
        """A Gaussian release."""
        move = self._move(change)
        if not move:
            return None
        return GaussianEvent(shift_over_sigma=move / self.noise_std if self.noise_std else math.inf)

    def _move(self, change: Change) -> float:
        evaluated = change.kinds.count("evaluated")
        if change.what == "rows":
            return evaluated * math.sqrt(self.num_tables)
        if change.what != "label" and not self.reads_lists:
            return 0.0
        return evaluated * math.sqrt(2 * self.num_tables)

    def with_shift(self, shift: float, *, scale: float = 1.0) -> EvaluationCharge:
        """The noise at which an evaluated row shifts the tables by `shift`; nothing is sampled."""
        return replace(self, noise_std=math.sqrt(self.num_tables) / shift)

    def check_noise(self, epsilon: float) -> None:
        """Refuse noise that the grid of the draws does not take."""
        if not LEAST_NOISE <= self.noise_std <= LARGEST_NOISE:
            raise PlanError(
                f"epsilon={epsilon}: its tables would have noise of {self.noise_std:.3g} counts, and tables "
                f"take from {LEAST_NOISE:g} to {LARGEST_NOISE}; use another epsilon"
            )

    @property
    def figures(self) -> tuple[tuple[str, str], ...]:
        """The noise, and how many tables there are."""
        return (
            ("noise of a count in the tables of figures", digits_down(self.noise_std, digits=6)),
            ("tables that one evaluated row is counted in, m", f"{self.num_tables}"),
        )

    @property
    def bounds(self) -> tuple[str, ...]:
        """How far one row moves it, and the noise."""
        spread = digits_down(self.noise_std, digits=3)
        tables = "table" if self.num_tables == 1 else "tables"
        return (f"counted once in {self.num_tables} {tables}", f"noise {spread} on every count, once")

    @property
    def sentence(self) -> str:
        """Who is counted, and the noise."""
        tables = "one table" if self.num_tables == 1 else f"each of {self.num_tables} tables"
        return (
            "Figures about quality are computed from noisy counts, released once: every labelled row of the "
            f"validation and test splits is counted in one cell of {tables}, and noise with standard "
            f"deviation {digits_down(self.noise_std, digits=6)} is added to every cell. Training rows are "
            "not counted."
        )
