"""The built-in optimisers against those of torch."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import safetensors.torch
import torch

from hushgraph.training.optimizers import SGD, Adam
from hushgraph.training.update import RecordedUpdate

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


def test_nothing_imports_the_compiler_of_torch() -> None:
    code = (
        "import sys, torch; from hushgraph.training.optimizers import Adam; "
        "p = torch.zeros(2, requires_grad=True); p.grad = torch.ones(2); o = Adam([p], lr=0.1); o.step(); "
        "sys.exit('torch._dynamo' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_recorded_update_is_that_of_the_trainer_and_keeps_the_state() -> None:
    mine, others = new_parameters(), new_parameters()
    averages = [[p.detach().clone() for p in parameters] for parameters in (mine, others)]
    one, other = (Adam(parameters, lr=0.05, betas=(0.7, 0.999)) for parameters in (mine, others))
    names = ["a", "b"]
    average = dict(zip(names, averages[0], strict=True))
    recorded = RecordedUpdate(dict(zip(names, mine, strict=True)), average, one, 7)
    for number in range(12):
        generator = torch.Generator().manual_seed(number)
        sums = [torch.randn(p.shape, generator=generator, dtype=torch.float64) for p in mine]
        one.param_groups[0]["lr"] = other.param_groups[0]["lr"] = 0.05 / (1 + number)
        recorded.apply(dict(zip(names, sums, strict=True)), decay=0.9)
        for parameter, total in zip(others, sums, strict=True):
            parameter.grad = (total / 7).float()
        other.step()
        torch._foreach_lerp_(averages[1], [p.detach() for p in others], 0.1)
    for left, right in ((mine, others), (average.values(), averages[1])):
        for a, b in zip(left, right, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)
    states = one.state_dict()["state"]
    torch.testing.assert_close(states, other.state_dict()["state"], rtol=1e-5, atol=1e-7)
    # A checkpoint refuses tensors that share numbers.
    safetensors.torch.save(
        {f"{place}.{name}": v for place, kept in states.items() for name, v in kept.items()}
    )
