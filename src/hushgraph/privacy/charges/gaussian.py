"""Gaussian releases: numbers that a change moves by at most so much, each with noise of one size."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar, Self

from hushgraph._text import digits_down
from hushgraph.accounting.events import Event, GaussianEvent
from hushgraph.errors import PlanError
from hushgraph.privacy.changes import Change
from hushgraph.privacy.charges.charge import Charge

# What the noise may be: the grid that its draws are on has no finer and no coarser one.
LEAST_NOISE, LARGEST_NOISE = 1e-6, 2**16


@dataclass(frozen=True, kw_only=True)
class GaussianCharge(Charge):
    """A release with one noise on every number.

    Attributes:
        noise_std: s, the standard deviation of the noise; 0 is no noise.
        noun: what is released, in the plural.
        remedy: what to do where its noise cannot be drawn.
    """

    noise_std: float = 0.0

    noun: ClassVar[str]
    remedy: ClassVar[str] = "use another epsilon"

    def __post_init__(self) -> None:
        """Check the noise."""
        super().__post_init__()
        if not 0.0 <= self.noise_std < math.inf:
            raise PlanError(f"noise_std={self.noise_std}: expected a finite number, 0 or more")

    @property
    def row_move(self) -> float:
        """How far one row that is part of the release moves it."""
        return 1.0

    @abstractmethod
    def move(self, change: Change) -> float:
        """How far a change moves the release, at most: a Euclidean norm, in the unit of the noise."""

    def event(self, change: Change) -> Event | None:
        """A Gaussian release."""
        move = self.move(change)
        if not move:
            return None
        return GaussianEvent(shift_over_sigma=move / self.noise_std if self.noise_std else math.inf)

    def with_shift(self, shift: float, *, scale: float = 1.0) -> Self:
        """The noise at which one row that is part of the release shifts it by `shift`; nothing is sampled."""
        return replace(self, noise_std=self.row_move / shift)

    def check_noise(self, epsilon: float) -> None:
        """Refuse noise that the grid of the draws does not take."""
        if not LEAST_NOISE <= self.noise_std <= LARGEST_NOISE:
            raise PlanError(
                f"epsilon={epsilon}: its {self.noun} would have noise of {self.noise_std:.3g}, and "
                f"{self.noun} take from {LEAST_NOISE:g} to {LARGEST_NOISE}; {self.remedy}"
            )


@dataclass(frozen=True, kw_only=True)
class CountsCharge(GaussianCharge):
    """Tables of counts: a row adds 1 to one cell of each, or to none. The noise is in counts.

    Attributes:
        use: what the tables are for, as the beginning of a sentence.
        who: is counted.
        number: what the number of tables is called.
    """

    use: ClassVar[str]
    who: ClassVar[str]
    number: ClassVar[str]

    def __post_init__(self) -> None:
        """Check the numbers."""
        super().__post_init__()
        if self.num_counted < 1:
            raise PlanError(f"{self.noun}={self.num_counted}: expected 1 or more")

    @property
    @abstractmethod
    def num_counted(self) -> int:
        """How many tables one row is counted in."""

    @property
    def row_move(self) -> float:
        """The root of the number of tables."""
        return math.sqrt(self.num_counted)

    @property
    def figures(self) -> tuple[tuple[str, str], ...]:
        """The noise, and how many tables there are."""
        noise = digits_down(self.noise_std, digits=6)
        return (f"noise of a count in the {self.noun} of {self.name}", noise), (
            self.number,
            f"{self.num_counted}",
        )

    @property
    def bounds(self) -> tuple[str, ...]:
        """How far one row moves it, and the noise."""
        noun = self.noun.removesuffix("s") if self.num_counted == 1 else self.noun
        spread = digits_down(self.noise_std, digits=3)
        return f"moves {self.num_counted} {noun} by 1 at most", f"noise {spread} in every cell, once"

    @property
    def sentence(self) -> str:
        """Who is counted, and the noise."""
        one = f"the {self.noun.removesuffix('s')}"
        each = one if self.num_counted == 1 else f"each of {self.num_counted} {self.noun}"
        return (
            f"{self.use}, released once: every {self.who} moves {each} by at most 1, and "
            f"noise with standard deviation {digits_down(self.noise_std, digits=6)} is added to every cell."
        )
