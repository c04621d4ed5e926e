"""What `train` refuses before it reads any data."""

from __future__ import annotations

import difflib
import math
from dataclasses import fields
from typing import Any

from hushgraph.config import TrainingConfig
from hushgraph.errors import InputError, PlanError


def check_budget(
    epsilon: float | None,
    noise_multiplier: float | None,
    private: bool,
    delta: float | None,
    steps: int | None,
) -> None:
    """Refuse a budget that contradicts itself, before data is read."""
    if private and epsilon is None and noise_multiplier is None:
        raise PlanError(
            "no budget: give epsilon or noise_multiplier, or ask for training without privacy "
            "(private=False, --non-private)"
        )
    if not private and (epsilon is not None or noise_multiplier is not None):
        raise PlanError("training without privacy takes neither epsilon nor noise_multiplier; leave them out")
    if noise_multiplier is not None and not noise_multiplier > 0:
        raise PlanError(f"noise_multiplier={noise_multiplier}: expected a number above 0")
    if epsilon is not None and not (math.isfinite(epsilon) and epsilon > 0):
        raise PlanError(f"epsilon={epsilon}: expected a finite number above 0")
    if delta is not None and not 0 < delta < 1:
        raise PlanError(f"delta={delta}: expected a number above 0 and below 1")
    if epsilon is not None and noise_multiplier is not None and steps is not None:
        raise PlanError("epsilon, noise_multiplier and steps: two of them give the third; leave one out")


def check_names(others: dict[str, Any]) -> None:
    """Refuse an argument that nobody has, and name the nearest that there is."""
    known = [field.name for field in fields(TrainingConfig)]
    for name in others:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise InputError(f"{name}: train has no such argument{hint}")
