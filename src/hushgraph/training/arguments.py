"""What `train` refuses before it reads any data."""

from __future__ import annotations

import difflib
import math
from collections.abc import Collection, Mapping
from dataclasses import fields
from typing import Any

from torch import nn

from hushgraph.errors import InputError, PlanError
from hushgraph.models.gnn import MODEL_NAMES
from hushgraph.privacy.plan_fields import shown
from hushgraph.runs.config import TrainingConfig

# What the command line and other libraries call the same thing.
_ALSO_CALLED = {
    "lr": "learning_rate",
    "target_epsilon": "epsilon",
    "target_delta": "delta",
    "max_grad_norm": "clip",
    "layers": "num_layers",
    "hidden_channels": "hidden",
    "non_private": "private",
}


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


def check_model_given(model: Any, names: Collection[str] = MODEL_NAMES) -> None:
    """Refuse what is neither one of `names` nor a module, such as the class of one."""
    if isinstance(model, type):
        raise InputError(f"model={model.__name__}: it is a class; pass an instance, {model.__name__}(...)")
    if not isinstance(model, nn.Module) and not (isinstance(model, str) and model in names):
        named = f"one of {', '.join(names)}, or in Python " if names else ""
        raise InputError(f"model={shown(model)}: expected {named}an instance of a module of your own")


def check_names(others: Mapping[str, Any], known: Collection[str]) -> None:
    """Refuse an argument that nobody has, and name the nearest that there is.

    Args:
        others: what was given beside the arguments in `known`.
        known: the arguments that `train` names.
    """
    settings = [field.name for field in fields(TrainingConfig)]
    for name in others:
        if name not in settings:
            near = difflib.get_close_matches(name, [*settings, *known], n=1)
            meant = _ALSO_CALLED.get(name, near[0] if near else None)
            hint = f"; did you mean {meant}?" if meant else ""
            raise InputError(f"{name}: train has no such argument{hint}")
