"""TrainingConfig: everything about a run that is not its privacy."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, get_args

from hushgraph._text import suggest
from hushgraph._validate import convert_numbers, show_value
from hushgraph.errors import InputError, RunError
from hushgraph.privacy import choices
from hushgraph.privacy.defaults import MOMENTUM

# "own": the caller passed a module, or a function that makes an optimiser.
ConfiguredModel = choices.Model | Literal["own"]
ConfiguredOptimizer = choices.Optimizer | Literal["own"]

_CHOICES = {
    "model": (*get_args(choices.Model), "own"),
    "optimizer": (*get_args(choices.Optimizer), "own"),
    "schedule": get_args(choices.Schedule),
    "activation": get_args(choices.Activation),
    "setting": get_args(choices.Setting),
    "numbers": get_args(choices.Numbers),
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
        class_weights: what the clipped gradient of an example of each class is multiplied by; None for 1.
        list_size: what the logarithm of the size of a row's list is multiplied by as an input of a
            billboard's model; 0 leaves it out.
        own_place: whether the board at a row's own place is an input too.
        damped: whether a reading turns down loud places.
        resample_every: steps between fresh lists. The bound holds for every choice of keys, so it is free.
        evaluate_every: steps between looks at the validation split.
        setting: "transductive", or "inductive", which drops edges between splits.
        symmetrize, split, split_seed: how the data was read.
        edge_weight, people: the same, of data that is no tables: where weights of edges come from, and which
            type of nodes is people.
        person: the attribute that told whose a node is, of data that is no table; tables name it by columns.
        numbers: what numeric columns of tables are scaled with: "private" is constants from noisy histograms,
            or declared ones where there are some, "declared" only these, "as-is" none.
        exact_figures: whether a private run's result has exact figures beside covered ones, and curves of
            validation figures while it trains; the guarantee does not cover them.
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
    class_weights: tuple[float, ...] | None = None
    list_size: float = 0.0
    own_place: bool = False
    damped: bool = True
    resample_every: int = 50
    evaluate_every: int = 50
    setting: choices.Setting = "transductive"
    symmetrize: bool = False
    split: str | None = None
    split_seed: int = 0
    edge_weight: str | None = None
    people: str | None = None
    person: str | None = None
    numbers: choices.Numbers = "as-is"
    exact_figures: bool = False
    train_accuracy: bool = False
    seed: int | None = None

    def __post_init__(self) -> None:
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        for name, value in convert_numbers(given, {field.name: field.type for field in fields(self)}).items():
            object.__setattr__(self, name, value)
        if self.class_weights is not None:
            # JSON has no tuples.
            object.__setattr__(self, "class_weights", tuple(self.class_weights))
        wrong = []
        for name, allowed in _CHOICES.items():
            if (value := getattr(self, name)) not in allowed:
                listed = ", ".join(choice for choice in allowed if choice != "own")
                wrong.append(f"{name}={show_value(value)}: expected one of {listed}")
        wrong += [
            f"{name}={getattr(self, name)}: expected at least {least}"
            for name, least in _LEAST.items()
            if getattr(self, name) < least
        ]
        if not 0 < self.learning_rate <= _LARGEST_RATE:
            wrong.append(
                f"learning_rate={self.learning_rate}: expected a number above 0, at most {_LARGEST_RATE:g}"
            )
        if not 0 <= self.momentum < 1:
            wrong.append(f"momentum={self.momentum}: expected a number of at least 0 and below 1")
        if not 0 <= self.feature_norm < float("inf"):
            wrong.append(f"feature_norm={self.feature_norm}: expected a finite number, at least 0")
        for name in ("reading_scale", "reading_radius"):
            if not 0 < getattr(self, name) < float("inf"):
                wrong.append(f"{name}={getattr(self, name)}: expected a finite number above 0")
        if not 0 <= self.average < 1:
            wrong.append(f"average={self.average}: expected a number of at least 0 and below 1")
        if self.seed is not None and not 0 <= self.seed <= _LARGEST_SEED:
            wrong.append(f"seed={self.seed}: expected an integer from 0 to 2**63 - 1")
        if wrong:
            raise InputError("; ".join(wrong))

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
                near = suggest(key, known, cutoff=0.6)
                raise RunError(f"configuration has an unknown key {key!r}{near}")
        return cls(**values)
