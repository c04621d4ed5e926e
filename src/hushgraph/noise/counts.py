"""Tables of integers with rounded noise, released once, and the file that keeps them."""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from hushgraph._arrays import Int64Array
from hushgraph._files import write_once
from hushgraph.errors import RunError
from hushgraph.noise import normal
from hushgraph.noise.rounded import Draws, find_divisor, find_std, round_draws

FORMAT = 1
# What reading a file that something else wrote may end with.
_DAMAGED = (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)


def add_noise(
    counts: Int64Array, *, noise_std: float, draws: Draws = normal.draw, grid: int = 1
) -> tuple[Int64Array, float]:
    """Add noise to a table, once. Charge it before; a second call is a second charge.

    Args:
        counts: of any shape, in steps of which one count has `grid`.
        noise_std: s, in counts; 0 for a release without privacy.
        draws: the randomness. Every release needs draws of its own.
        grid: 1 where the table holds counts.

    Returns:
        The noisy table, and the standard deviation of its noise before rounding: s or a little more.

    Guarantees:
        A noisy count is a function of count + N(0, s'^2), s' >= s, and of nothing else about the rows: the
        Gaussian mechanism, rounded to integers (`round_draws` has the proof).
    """
    if not noise_std:
        return counts, 0.0
    divisor = find_divisor(noise_std, grid=grid)
    noise = round_draws(draws(counts.size), divisor).reshape(counts.shape)
    return counts + noise, find_std(divisor, grid=grid)


@dataclass(frozen=True, kw_only=True, eq=False)
class NoisyCounts(ABC):
    """Noisy tables that were released together. A subclass says which, and how its file has them.

    Attributes:
        noise_std: the standard deviation of the noise on every cell, in counts, before rounding; 0 for none.
        plan: the fingerprint of the plan that paid for them.
    """

    noise_std: float
    plan: str = ""

    @abstractmethod
    def write_tables(self) -> dict[str, Any]:
        """The tables as JSON values."""

    @classmethod
    @abstractmethod
    def read_tables(cls, values: Mapping[str, Any]) -> dict[str, Any]:
        """The fields that `write_tables` wrote; one of several errors where something else did."""

    def to_json(self) -> dict[str, Any]:
        """Everything as JSON values."""
        about = {"format": FORMAT, "plan": self.plan, "noise_std": self.noise_std.hex()}
        return about | self.write_tables()

    @property
    def digest(self) -> str:
        """What tells this release from any other."""
        return hashlib.sha256(json.dumps(self.to_json(), sort_keys=True).encode()).hexdigest()

    def save(self, path: Path, announce: Callable[[], None] = lambda: None) -> None:
        """Write a new file; `announce` is called when its content is about to be visible on disk."""
        write_once(path, [json.dumps(self.to_json()).encode()], announce)

    @classmethod
    def load(cls, path: Path, *, plan: str) -> Self:
        """What `save` wrote; RunError where it is missing, damaged or of another run."""
        place = f"run={path.parent}: {path.name}"
        try:
            values = json.loads(path.read_text())
            if values["format"] != FORMAT:
                raise RunError(f"{place} has format {values['format']!r}; update hushgraph")
            about: dict[str, Any] = {
                "noise_std": float.fromhex(values["noise_std"]),
                "plan": str(values["plan"]),
            }
            counts = cls(**about, **cls.read_tables(values))
            # The file of a release has figures beside its tables.
            if not counts.to_json().items() <= values.items():
                raise ValueError("it is not what its tables are written as")
        except _DAMAGED as error:
            reason = type(error).__name__
            raise RunError(f"{place} is missing or damaged ({reason}); restore it") from None
        if counts.plan != plan:
            raise RunError(f"{place} belongs to another run; restore the one of this run")
        return counts
