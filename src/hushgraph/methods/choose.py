"""Which method the settings of a run ask for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

from hushgraph._validate import show_value
from hushgraph.errors import InputError
from hushgraph.methods.base import Method
from hushgraph.methods.billboard import Billboard
from hushgraph.methods.rows import Rows
from hushgraph.methods.trees import Trees
from hushgraph.privacy import choices
from hushgraph.runs.config import TrainingConfig

# Settings that belong to trees alone, with their defaults: a run that gives one of them is a run on trees.
_TREES_ONLY: dict[str, Any] = {
    "model": None,
    "num_layers": None,
    "max_readers": None,
    "max_reads": None,
    "noise_multiplier": None,
    "sampler": "stable",
    "accountant": "pair",
    "noise": "common",
    "setting": "transductive",
    "encoder_layers": TrainingConfig.encoder_layers,
    "decoder_layers": TrainingConfig.decoder_layers,
}


def choose_method(settings: Mapping[str, Any]) -> Method:
    """The billboard, unless a setting is given that belongs to trees alone; rows for the model "mlp"."""
    method, model = settings["method"], settings["model"]
    if method is not None and method not in get_args(choices.Method):
        raise InputError(
            f"method={show_value(method)}: expected one of {', '.join(get_args(choices.Method))}"
        )
    # A module of one's own may take rows of features and readings, but only where that is asked for.
    for_trees = [
        name
        for name, default in _TREES_ONLY.items()
        if (value := settings.get(name, default)) != default and (name != "model" or isinstance(value, str))
    ]
    if method == "billboard" and for_trees:
        given = ", ".join(f"{name}={show_value(settings[name])}" for name in for_trees)
        raise InputError(
            f"{given} with method='billboard': applies only to method='trees'; leave it out, or use "
            "method='trees'"
        )
    if method == "billboard" or (method is None and not for_trees and model is None):
        return Billboard()
    return Rows() if model == "mlp" else Trees()
