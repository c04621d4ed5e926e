"""The built-in optimisers against those of torch."""

from __future__ import annotations

from typing import Any

import pytest
import safetensors.torch
import torch

from hushgraph.training.optimizers import SGD, Adam, JoinedWeights

CASES: list[tuple[Any, Any, dict[str, Any]]] = [
    (Adam, torch.optim.Adam, {"lr": 0.05, "betas": (0.7, 0.999)}),
    (SGD, torch.optim.SGD, {"lr": 0.05, "momentum": 0.9}),
    (SGD, torch.optim.SGD, {"lr": 0.05, "momentum": 0.0}),
]


def new_parameters() -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(size, generator=generator).requires_grad_() for size in ((3, 4), (5,))]


def walk(optimizer: Any, parameters: list[torch.Tensor], first: int, steps: int) -> None:
    for number in range(first, first + steps):
        generator = torch.Generator().manual_seed(number)
        for parameter in parameters:
            parameter.grad = torch.randn(parameter.shape, generator=generator)
        optimizer.param_groups[0]["lr"] = 0.05 / (1 + number)
        optimizer.step()


@pytest.mark.parametrize(("ours", "theirs", "settings"), CASES)
def test_steps_are_those_of_torch(ours: Any, theirs: Any, settings: dict[str, Any]) -> None:
    mine, others = new_parameters(), new_parameters()
    walk(ours(mine, **settings), mine, 0, 20)
    walk(theirs(others, **settings), others, 0, 20)
    for a, b in zip(mine, others, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("ours", "theirs", "settings"), CASES)
def test_a_state_of_torch_is_gone_on_from(ours: Any, theirs: Any, settings: dict[str, Any]) -> None:
    others, mine = new_parameters(), new_parameters()
    optimizer = theirs(others, **settings)
    walk(optimizer, others, 0, 5)
    for a, b in zip(mine, others, strict=True):
        a.data.copy_(b.detach())
    resumed = ours(mine, **settings)
    resumed.load_state_dict({**resumed.state_dict(), "state": optimizer.state_dict()["state"]})
    walk(optimizer, others, 5, 5)
    walk(resumed, mine, 5, 5)
    for a, b in zip(mine, others, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-6)
    if settings.get("momentum") != 0.0:
        assert resumed.state_dict()["state"].keys() == optimizer.state_dict()["state"].keys()


def test_a_state_of_another_model_is_refused() -> None:
    optimizer = Adam(new_parameters(), lr=0.1)
    with pytest.raises(KeyError):
        optimizer.load_state_dict({**optimizer.state_dict(), "state": {7: {}}})


def test_joined_weights_move_as_single_ones_and_keep_the_state() -> None:
    names = ["a", "b"]
    kinds = ("single", "joined", "by numbers")
    parameters = {kind: dict(zip(names, new_parameters(), strict=True)) for kind in kinds}
    averages = {kind: {n: p.detach().clone() for n, p in parameters[kind].items()} for kind in kinds}
    optimizers = {kind: Adam(parameters[kind].values(), lr=0.05, betas=(0.7, 0.999)) for kind in kinds}
    joined = {kind: JoinedWeights(parameters[kind], averages[kind], optimizers[kind]) for kind in kinds[1:]}
    for number in range(12):
        generator = torch.Generator().manual_seed(number)
        sums = {
            n: torch.randn(p.shape, generator=generator).double() for n, p in parameters["single"].items()
        }
        for optimizer in optimizers.values():
            optimizer.param_groups[0]["lr"] = 0.05 / (1 + number)
        for name, parameter in parameters["single"].items():
            parameter.grad = (sums[name] / 7).float()
        optimizers["single"].step()
        for name, average in averages["single"].items():
            average.lerp_(parameters["single"][name].detach(), 1 - 0.9)
        joined["joined"].move(sums, 7, decay=0.9)
        move_by_numbers(joined["by numbers"], optimizers["by numbers"], sums)
    for kind, tolerance in (("joined", 1e-7), ("by numbers", 1e-5)):
        for name in names:
            left, right = parameters[kind][name], parameters["single"][name]
            torch.testing.assert_close(left, right, rtol=tolerance, atol=tolerance)
            torch.testing.assert_close(
                averages[kind][name], averages["single"][name], rtol=tolerance, atol=tolerance
            )
        states = optimizers[kind].state_dict()["state"]
        torch.testing.assert_close(states, optimizers["single"].state_dict()["state"], rtol=1e-5, atol=1e-7)
        # A checkpoint refuses tensors that share numbers.
        tensors = {f"{place}.{name}": value for place, kept in states.items() for name, value in kept.items()}
        assert safetensors.torch.load(safetensors.torch.save(tensors)).keys() == tensors.keys()


def move_by_numbers(joined: JoinedWeights, optimizer: Adam, sums: dict[str, torch.Tensor]) -> None:
    """What a GPU records, on the CPU."""
    kept = list(optimizer.state.values())
    for one in kept:
        one["step"] += 1
    rate, correction = optimizer.correct_rate(kept[0]["step"].item())
    joined._sums.copy_(torch.cat([value.reshape(-1) for value in sums.values()]))
    joined._numbers.copy_(torch.tensor([rate, correction, 0.1, 7.0], dtype=torch.float64))
    with torch.no_grad():
        joined.move_by_numbers()
