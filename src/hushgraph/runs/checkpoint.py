"""The checkpoint of a run: weights, their average and the optimiser, to go on from after an interruption."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from hushgraph._files import read_tensors, write_tensors
from hushgraph.errors import RunError

_DAMAGED = (KeyError, TypeError, ValueError, AttributeError, RuntimeError, OverflowError)
# What the built-in optimisers keep for every single weight.
_LIKE_WEIGHTS = ("exp_avg", "exp_avg_sq", "momentum_buffer")


class Optimizer(Protocol):
    """What a run needs of an optimiser: any `torch.optim.Optimizer` will do."""

    @property
    def param_groups(self) -> list[dict[str, Any]]: ...

    @property
    def state(self) -> Mapping[Any, Any]: ...

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state_dict: dict[str, Any]) -> None: ...

    def step(self) -> Any: ...


class Progress(NamedTuple):
    """How far a run had come: steps taken or lost, how many were lost, seconds at work."""

    step: int = 0
    steps_lost: int = 0
    seconds: float = 0.0


def write_checkpoint(
    path: Path,
    model: nn.Module,
    average: Mapping[str, Tensor],
    optimizer_state: Mapping[str, Any],
    progress: Progress,
) -> None:
    """Replace the checkpoint; `optimizer_state` is what `state_dict` gave."""
    tensors: dict[str, Tensor] = {f"model.{name}": p for name, p in model.named_parameters()}
    tensors |= {f"average.{name}": value for name, value in average.items()}
    numbers = {}
    for place, state in optimizer_state["state"].items():
        for key, value in state.items():
            if isinstance(value, Tensor):
                tensors[f"optimizer.{place}.{key}"] = value
            elif isinstance(value, (bool, int, float)):
                numbers[f"{place}.{key}"] = value
    about = {**progress._asdict(), "numbers": numbers}
    write_tensors(path, tensors, {"about": json.dumps(about)})


def read_checkpoint(
    path: Path, model: nn.Module, average: Mapping[str, Tensor], optimizer: Optimizer
) -> Progress:
    """Fill model, average and optimiser from the checkpoint."""
    tensors, metadata = read_tensors(path)
    parts: dict[str, dict[str, Tensor]] = {"model": {}, "average": {}, "optimizer": {}}
    state: dict[int, dict[str, Any]] = {}
    try:
        about = json.loads(metadata["about"])
        progress = _parse_progress(about)
        for name, tensor in tensors.items():
            part, key = name.split(".", 1)
            parts[part][key] = tensor
        for name, value in (parts["optimizer"] | about["numbers"]).items():
            place, key = name.split(".", 1)
            state.setdefault(int(place), {})[key] = value
        fill_model(model, parts["model"], path)
        for name, value in average.items():
            value.copy_(parts["average"][name])
        optimizer.load_state_dict({**optimizer.state_dict(), "state": state})
        _check_state(optimizer)
        return progress
    except RunError:
        raise
    except _DAMAGED as error:
        raise _damage_error(path, error) from None


def read_progress(path: Path) -> Progress:
    """Read how far the run had come when the checkpoint was written; no steps if there is none."""
    if not path.exists():
        return Progress()
    metadata = read_tensors(path)[1]
    try:
        return _parse_progress(json.loads(metadata["about"]))
    except _DAMAGED as error:
        raise _damage_error(path, error) from None


def _parse_progress(about: Mapping[str, Any]) -> Progress:
    return Progress(
        step=int(about["step"]),
        steps_lost=int(about["steps_lost"]),
        seconds=float(about["seconds"]),
    )


def fill_model(model: nn.Module, tensors: Mapping[str, Tensor], path: Path) -> None:
    """Put stored parameters into a model that has exactly these; `path` is where they are from."""
    parameters = dict(model.named_parameters())
    wrong = [f"{name} is not in both" for name in sorted(set(parameters) ^ set(tensors))]
    for name in sorted(set(parameters) & set(tensors)):
        stored, expected = tensors[name], parameters[name]
        if (stored.dtype, stored.shape) != (expected.dtype, expected.shape):
            wrong.append(
                f"{name} is {list(stored.shape)} of {stored.dtype}, expected {list(expected.shape)} of "
                f"{expected.dtype}"
            )
        elif not stored.isfinite().all():
            wrong.append(f"{name} holds numbers that are not finite")
    if wrong:
        raise RunError(
            f"run={path.parent}: {path.name} does not fit the model ({'; '.join(wrong)[:300]}); restore it, "
            "or train again"
        )
    # Buffers are the model's own: nothing of them is learnt.
    model.load_state_dict(dict(tensors), strict=False)


def _check_state(optimizer: Optimizer) -> None:
    """Refuse a state that the optimiser would stumble over at its next step."""
    if len({frozenset(state) for state in optimizer.state.values()}) > 1:
        raise ValueError("some weights have more of the optimiser's state than others")
    for parameter, state in optimizer.state.items():
        for key, value in state.items():
            if not isinstance(value, Tensor):
                continue
            shapes = [parameter.shape] if key in _LIKE_WEIGHTS else [parameter.shape, torch.Size()]
            if value.shape not in shapes or not value.is_floating_point():
                raise ValueError(f"{key} of the optimiser is {list(value.shape)} of {value.dtype}")


def _damage_error(path: Path, error: Exception) -> RunError:
    reason = " ".join(str(error).split())[:300]
    return RunError(
        f"run={path.parent}: {path.name} is damaged or of another run ({reason}); restore it, or train again"
    )
