"""The observers of docs/serving.md log steps and epsilon, never an accuracy, to whatever they are given."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "serving.md"
EXACT = 0.123456789


@pytest.fixture
def logged(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """What stand-ins of MLflow, TensorBoard and W&B were told."""
    told: list[tuple[Any, ...]] = []

    def note(*values: Any, **named: Any) -> None:
        told.append((*values, named))

    class SummaryWriter:
        def __init__(self, folder: str) -> None:
            self.add_scalar = note

    for name, parts in {
        "mlflow": {"log_metric": note},
        "wandb": {"log": note, "summary": {}},
        "torch.utils.tensorboard": {"SummaryWriter": SummaryWriter},
    }.items():
        module = ModuleType(name)
        vars(module).update(parts)
        monkeypatch.setitem(sys.modules, name, module)
    return told


def read_functions() -> dict[str, Any]:
    """The functions that the page defines."""
    page, names = PAGE.read_text(encoding="utf-8"), {}
    for block in page.split("```python\n")[1:]:
        source = block.partition("```")[0]
        if source.startswith("def "):
            exec(compile(source, str(PAGE), "exec"), names)
    return names


def test_observers_log_epsilon_and_nothing_that_is_not_charged(logged: list[tuple[Any, ...]]) -> None:
    page = read_functions()
    observers = [page["log_to_mlflow"], page["make_tensorboard_observer"]("here"), page["log_to_wandb"]]
    for observe in observers:
        before = len(logged)
        observe(50, 100, 1.5, EXACT)
        assert len(logged) == before + 1
        assert "epsilon" in str(logged[-1])
        assert "1.5" in str(logged[-1])
    assert str(EXACT) not in str(logged)
    assert "accuracy" not in str(logged)


def test_covered_figures_are_logged_at_the_end(logged: list[tuple[Any, ...]]) -> None:
    class Finished:
        figures = (
            {"split": "test", "figure": "accuracy", "value": 0.5, "class": None, "group": None},
            {"split": "test", "figure": "recall", "value": 0.7, "class": "a", "group": None},
        )

    read_functions()["log_figures"](Finished())
    assert sys.modules["wandb"].summary == {"test_accuracy": 0.5}
    assert logged == []
