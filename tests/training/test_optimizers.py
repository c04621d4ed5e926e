"""Adam against that of torch."""

from __future__ import annotations

from typing import Any

import pytest
import safetensors.torch
import torch
from torch import nn

from hushgraph.runs.config import TrainingConfig
from hushgraph.training.optimizers import Adam, build_optimizer, move_weights

SETTINGS: dict[str, Any] = {"lr": 0.05, "betas": (0.7, 0.999)}


def new_parameters() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    sizes = {"a": (3, 4), "b": (5,)}
    return {name: torch.randn(size, generator=generator).requires_grad_() for name, size in sizes.items()}


def copy(parameters: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: parameter.detach().clone() for name, parameter in parameters.items()}


def new_adam(parameters: dict[str, torch.Tensor]) -> Adam:
    return Adam(parameters, copy(parameters), **SETTINGS)


def walk(optimizer: Any, parameters: dict[str, torch.Tensor], first: int, steps: int) -> None:
    for number in range(first, first + steps):
        generator = torch.Generator().manual_seed(number)
        for parameter in parameters.values():
            parameter.grad = torch.randn(parameter.shape, generator=generator)
        optimizer.param_groups[0]["lr"] = 0.05 / (1 + number)
        optimizer.step()


def check_same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> None:
    for name, value in one.items():
        torch.testing.assert_close(value, other[name], rtol=1e-6, atol=1e-6)


def test_steps_are_those_of_torch() -> None:
    mine, others = new_parameters(), new_parameters()
    walk(new_adam(mine), mine, 0, 20)
    walk(torch.optim.Adam(others.values(), **SETTINGS), others, 0, 20)
    check_same(mine, others)


def test_a_state_of_torch_is_gone_on_from() -> None:
    others = new_parameters()
    optimizer = torch.optim.Adam(others.values(), **SETTINGS)
    walk(optimizer, others, 0, 5)
    mine = {name: value.requires_grad_() for name, value in copy(others).items()}
    resumed = new_adam(mine)
    resumed.load_state_dict({**resumed.state_dict(), "state": optimizer.state_dict()["state"]})
    walk(optimizer, others, 5, 5)
    walk(resumed, mine, 5, 5)
    check_same(mine, others)
    assert resumed.state_dict()["state"].keys() == optimizer.state_dict()["state"].keys()


def test_a_state_of_another_model_is_refused() -> None:
    optimizer = new_adam(new_parameters())
    with pytest.raises(KeyError):
        optimizer.load_state_dict({"state": {7: {}}})
    kept = {name: torch.zeros(1) for name in ("step", "exp_avg", "exp_avg_sq")}
    with pytest.raises(ValueError, match="state of weight 1 lacks a part, or has another shape"):
        optimizer.load_state_dict({"state": {1: kept}})


def test_the_average_moves_and_a_gpu_records_the_same() -> None:
    others = new_parameters()
    average, optimizer = copy(others), torch.optim.Adam(others.values(), **SETTINGS)
    kinds = ("in one pass", "by numbers")
    parameters = {kind: new_parameters() for kind in kinds}
    averages = {kind: copy(parameters[kind]) for kind in kinds}
    optimizers = {kind: Adam(parameters[kind], averages[kind], **SETTINGS) for kind in kinds}
    for number in range(12):
        generator = torch.Generator().manual_seed(number)
        sums = {n: torch.randn(p.shape, generator=generator).double() for n, p in others.items()}
        for each in (optimizer, *optimizers.values()):
            each.param_groups[0]["lr"] = 0.05 / (1 + number)
        for name, parameter in others.items():
            parameter.grad = (sums[name] / 7).float()
        optimizer.step()
        for name, value in average.items():
            value.lerp_(others[name].detach(), 1 - 0.9)
        optimizers["in one pass"].move(sums, 7, decay=0.9)
        move_by_numbers(optimizers["by numbers"], sums)
    for kind, tolerance in zip(kinds, (1e-6, 1e-5), strict=True):
        for name in others:
            for one, other in ((parameters[kind], others), (averages[kind], average)):
                torch.testing.assert_close(one[name], other[name], rtol=tolerance, atol=tolerance)
        states = optimizers[kind].state_dict()["state"]
        torch.testing.assert_close(states, optimizer.state_dict()["state"], rtol=1e-5, atol=1e-7)
        # A checkpoint refuses tensors that share numbers.
        tensors = {f"{place}.{name}": value for place, kept in states.items() for name, value in kept.items()}
        assert safetensors.torch.load(safetensors.torch.save(tensors)).keys() == tensors.keys()


def move_by_numbers(optimizer: Adam, sums: dict[str, torch.Tensor]) -> None:
    """What a GPU records, on the CPU."""
    for kept in optimizer.state.values():
        kept["step"] += 1
    [group], step = optimizer.param_groups, kept["step"].item()
    beta1, beta2 = group["betas"]
    numbers = [group["lr"] / (1 - beta1**step), (1 - beta2**step) ** 0.5, 0.1, 7.0]
    optimizer._sums.copy_(torch.cat([value.reshape(-1) for value in sums.values()]))
    optimizer._numbers.copy_(torch.tensor(numbers, dtype=torch.float64))
    with torch.no_grad():
        optimizer.move_by_numbers()


@pytest.mark.parametrize("name", ["adam", "sgd"])
def test_weights_of_other_types_are_moved_by_torch(name: Any) -> None:
    model = nn.Linear(2, 1).double()
    average = copy(dict(model.named_parameters()))
    optimizer = build_optimizer(model, average, TrainingConfig(optimizer=name, learning_rate=0.1), None)
    assert isinstance(optimizer, torch.optim.Optimizer)
    before = copy(dict(model.named_parameters()))
    sums = {each: torch.ones_like(value) for each, value in before.items()}
    move_weights(model, average, optimizer, sums, 4, decay=0.5)
    for each, value in model.named_parameters():
        assert (value < before[each]).all()
        torch.testing.assert_close(average[each], (before[each] + value.detach()) / 2)
