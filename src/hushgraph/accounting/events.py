"""Events: what was released, as data for an accountant and a ledger.

An event is a noisy clipped sum of a batch, or one Gaussian release. A batcher names its draw, the plan adds
the rest, and an accountant prices the event or refuses it.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class PoissonDraw:
    """Every training root joins independently with probability `rate`."""

    rate: float


@dataclass(frozen=True, kw_only=True)
class FixedSizeDraw:
    """`size` distinct roots, uniformly from all subsets of `population` training roots."""

    size: int
    population: int


Draw = PoissonDraw | FixedSizeDraw


@dataclass(frozen=True, kw_only=True)
class StepEvent:
    """One noisy clipped sum.

    Attributes:
        draw: how the roots of the step were drawn.
        changed_trees: n, the most training roots whose gradients differ between the two datasets.
        sigma_over_clip: standard deviation of the noise in units of the clipping norm C.
        gone: how many of the n contribute nothing in the second dataset: 1 when one row is emptied, m when
            m rows are emptied, 0 when rows are changed and none is emptied.
    """

    draw: Draw
    changed_trees: int
    sigma_over_clip: float
    gone: int = 1

    def to_json(self) -> dict[str, Any]:
        """Return the fields as JSON values; `gone` only where it is not 1."""
        kind = next(name for name, draw in _DRAWS.items() if isinstance(self.draw, draw))
        fields = {
            "draw": {"kind": kind, **asdict(self.draw)},
            "changed_trees": self.changed_trees,
            "sigma_over_clip": self.sigma_over_clip,
        }
        return fields if self.gone == 1 else {**fields, "gone": self.gone}


@dataclass(frozen=True, kw_only=True)
class GaussianEvent:
    """One value released with normal noise, such as a board.

    Attributes:
        shift_over_sigma: mu, the most that the value differs between the two datasets, in standard deviations
            of the noise; infinite without noise.
    """

    shift_over_sigma: float

    def to_json(self) -> dict[str, Any]:
        """Return the fields as JSON values; JSON has no infinity, so no noise is "inf"."""
        infinite = math.isinf(self.shift_over_sigma)
        return {"shift_over_sigma": "inf" if infinite else self.shift_over_sigma}


Event = StepEvent | GaussianEvent

_DRAWS: dict[str, type[Draw]] = {"poisson": PoissonDraw, "fixed": FixedSizeDraw}


def event_from_json(fields: dict[str, Any]) -> Event:
    """Rebuild an event from the output of `to_json`; raise an error for anything else."""
    if "shift_over_sigma" in fields:
        shift = fields["shift_over_sigma"]
        _check_keys(fields, {"shift_over_sigma"})
        return GaussianEvent(shift_over_sigma=math.inf if shift == "inf" else _check_number(shift))
    _check_keys(fields, {"draw", "changed_trees", "sigma_over_clip", "gone"})
    sizes = {name: _check_number(value) for name, value in fields["draw"].items() if name != "kind"}
    return StepEvent(
        draw=_DRAWS[fields["draw"]["kind"]](**sizes),
        changed_trees=_check_number(fields["changed_trees"]),
        sigma_over_clip=_check_number(fields["sigma_over_clip"]),
        gone=_check_number(fields.get("gone", 1)),
    )


def _check_keys(fields: dict[str, Any], known: set[str]) -> None:
    if unknown := set(fields) - known:
        raise ValueError(f"unknown fields {sorted(unknown)}")


def _check_number(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < math.inf:
        raise ValueError(f"{value!r}: expected a number of at least 0")
    return value
