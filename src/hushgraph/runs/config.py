"""TrainingConfig: everything about a run that is not its privacy; and checks of what a caller asks for."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, get_args

from hushgraph._validate import convert_numbers, show_value
from hushgraph.errors import InputError, RunError
from hushgraph.privacy import choices
from hushgraph.privacy.defaults import MOMENTUM
from hushgraph.privacy.fields import check_budget, check_fields

# "own": the caller passed a module, or a function that makes an optimiser.
ConfiguredModel = choices.Model | Literal["own"]
ConfiguredOptimizer = choices.Optimizer | Literal["own"]

_CHOICES = {
    "model": (*get_args(choices.Model), "own"),
    "optimizer": (*get_args(choices.Optimizer), "own"),
    "schedule": get_args(choices.Schedule),
    "activation": get_args(choices.Activation),
    "setting": get_args(choices.Setting),
}
_LEAST = {"hidden": 1, "encoder_layers": 1, "decoder_layers": 1, "resample_every": 1, "evaluate_every": 1}
# Above this, torch's generators take no seed.
_LARGEST_SEED = 2**63 - 1
# Far above any use, and far below what overflows in the optimisers.
_LARGEST_RATE = 1e6


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """Model, optimiser and bookkeeping of a run.

    Attributes:
        model: "gcn", "gin", "gat", "mlp", or "own" for a module of the caller's.
        hidden, encoder_layers, decoder_layers, activation: of the built-in models.
        optimizer: "adam", "sgd" (with `momentum`), or "own" for a function of the caller's.
        learning_rate: at the start, of "adam" and "sgd".
        momentum: of "sgd"; the first beta of "adam".
        feature_norm: every row of features is scaled to this norm, from that row alone; 0 leaves them.
        schedule: "cosine" takes the learning rate to zero at the last step; "constant" leaves it.
        average: decay of the moving average of weights that the run ends with; 0 keeps the last weights.
        stability: of normalised clipping.
        reading_scale: a reading of one standard deviation of the board's noise becomes this number.
        reading_radius: readings are shortened so that their norm stays below this.
        resample_every: steps between fresh lists. The bound holds for every choice of keys, so it is free.
        evaluate_every: steps between looks at the validation split.
        setting: "transductive", or "inductive", which drops edges between splits.
        symmetrize, split, split_seed: how the data was read.
        train_accuracy: whether a private run's result has the accuracy on training nodes, a private figure.
        seed: None draws from the operating system; a fixed seed makes a run reproducible, not private.

    Example:
        >>> import hushgraph as hg
        >>> config = hg.TrainingConfig(model="gin", hidden=64)
        >>> hg.TrainingConfig.from_json(config.to_json()) == config
        True
    """

    model: ConfiguredModel = "gcn"
    hidden: int = 128
    encoder_layers: int = 1
    decoder_layers: int = 1
    activation: choices.Activation = "tanh"
    optimizer: ConfiguredOptimizer = "adam"
    learning_rate: float = 0.01
    momentum: float = MOMENTUM
    feature_norm: float = 0.0
    schedule: choices.Schedule = "cosine"
    average: float = 0.98
    stability: float = 0.1
    reading_scale: float = 0.3
    reading_radius: float = 6.0
    resample_every: int = 50
    evaluate_every: int = 50
    setting: choices.Setting = "transductive"
    symmetrize: bool = False
    split: str | None = None
    split_seed: int = 0
    train_accuracy: bool = False
    seed: int | None = None

    def __post_init__(self) -> None:
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        for name, value in convert_numbers(given, {field.name: field.type for field in fields(self)}).items():
            object.__setattr__(self, name, value)
        wrong = [
            f"{name}={show_value(getattr(self, name))} (one of {', '.join(c for c in allowed if c != 'own')})"
            for name, allowed in _CHOICES.items()
            if getattr(self, name) not in allowed
        ]
        wrong += [
            f"{name}={getattr(self, name)} (at least {least})"
            for name, least in _LEAST.items()
            if getattr(self, name) < least
        ]
        if not 0 < self.learning_rate <= _LARGEST_RATE:
            wrong.append(f"learning_rate={self.learning_rate} (above 0, at most {_LARGEST_RATE:g})")
        if not 0 <= self.momentum < 1:
            wrong.append(f"momentum={self.momentum} (from 0 to below 1)")
        if not 0 <= self.feature_norm < float("inf"):
            wrong.append(f"feature_norm={self.feature_norm} (a finite number, at least 0)")
        for name in ("reading_scale", "reading_radius"):
            if not 0 < getattr(self, name) < float("inf"):
                wrong.append(f"{name}={getattr(self, name)} (a finite number above 0)")
        if not 0 <= self.average < 1:
            wrong.append(f"average={self.average} (from 0 to below 1)")
        if self.seed is not None and not 0 <= self.seed <= _LARGEST_SEED:
            wrong.append(f"seed={self.seed} (from 0 to 2**63 - 1)")
        if wrong:
            raise InputError(f"out of range: {', '.join(wrong)}")

    def to_json(self) -> str:
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> TrainingConfig:
        """The configuration `to_json` wrote; an unknown key is refused with the nearest known one."""
        try:
            values: dict[str, Any] = json.loads(text)
        except ValueError as error:
            raise RunError(f"configuration is not JSON ({error}); restore the file") from None
        # Written by versions in which exact noise had to be asked for.
        values.pop("secure_noise", None)
        known = [field.name for field in fields(cls)]
        for key in values:
            if key not in known:
                near = difflib.get_close_matches(key, known, n=1)
                hint = f"; did you mean {near[0]}?" if near else ""
                raise RunError(f"configuration has an unknown key {key!r}{hint}")
        return cls(**values)


# Arguments that only trees have, with their defaults: a run that gives one of them is a run on trees.
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
_BUDGET = ("epsilon", "noise_multiplier", "private", "delta", "steps")
# More training nodes than any data has, to check settings by before data is read.
_ANY_NODES = 2**40


def check_settings(arguments: Mapping[str, Any], others: Mapping[str, Any]) -> choices.Method:
    """Refuse settings that no data could make valid, before data is read; return the method they ask for.

    Args:
        arguments: those of `prepare`, None where they are left out.
        others: further fields of `TrainingConfig`.
    """
    method = choose_method(arguments["method"], {**arguments, **others})
    given = {name: value for name, value in arguments.items() if value is not None}
    named = {name: given[name] for name in ("learning_rate", "hidden", "seed", "setting") if name in given}
    model: Any = given.get("model", "gcn") if isinstance(given.get("model", "gcn"), str) else "own"
    optimizer: Any = given["optimizer"] if isinstance(given["optimizer"], str) else "own"
    TrainingConfig(model=model, optimizer=optimizer, **named, **others)
    if given["symmetrize"] and given["directed"]:
        raise InputError(
            "symmetrize=True and directed=True contradict each other: what is symmetrized has two records an "
            "edge; leave one of them out"
        )
    check_budget(**{name: arguments[name] for name in _BUDGET})
    readers = given.get("max_readers", 1)
    check_fields(
        {
            "num_train_nodes": _ANY_NODES,
            "num_layers": 0 if model == "mlp" or method == "billboard" else given.get("num_layers", 1),
            "max_readers": readers,
            "max_reads": given.get("max_reads", None if given["sampler"] == "paper" else readers),
            "edge_owner": given.get("edge_owner", "sender"),
            "batch_size": given.get("batch_size", 1),
            "steps": given.get("steps", 1),
            "sigma_over_clip": 0.0,
            "delta": None,
            "batches": None,
            **{
                name: given[name]
                for name in ("clip", "sampler", "accountant", "clipping", "noise", "directed")
            },
        }
    )
    return method


def choose_method(method: choices.Method | None, arguments: Mapping[str, Any]) -> choices.Method:
    """The billboard, unless an argument is given that only trees have."""
    if method is not None and method not in get_args(choices.Method):
        raise InputError(
            f"method={show_value(method)}: expected one of {', '.join(get_args(choices.Method))}"
        )
    # A module of one's own may take rows of features and readings, but only where that is asked for.
    for_trees = [
        name
        for name, default in _TREES_ONLY.items()
        if (value := arguments.get(name, default)) != default and (name != "model" or isinstance(value, str))
    ]
    if method is None:
        return "trees" if for_trees or arguments["model"] is not None else "billboard"
    if method == "billboard" and for_trees:
        given = ", ".join(f"{name}={show_value(arguments[name])}" for name in for_trees)
        raise InputError(
            f"{given} with method='billboard': only trees have that; leave it out, or use method='trees'"
        )
    return method
