"""`hushgraph budget` and `--budget`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., tuple[int, str, str]]
TRAIN = ("train", "generated-200", "--model", "mlp", "--steps", "3", "--hidden", "8", "--device", "cpu")


@pytest.fixture
def budget(tmp_path: Path, run: Run) -> Path:
    path = tmp_path / "people.ledger"
    assert run("budget", path, "--epsilon", 5, "--delta", 1e-6)[0] == 0
    return path


def shown(run: Run, path: Path) -> dict[str, Any]:
    code, out, _ = run("budget", path, "--json")
    assert code == 0
    facts: dict[str, Any] = json.loads(out.splitlines()[-1])
    return facts


def test_a_new_budget_shows_its_total(run: Run, budget: Path) -> None:
    code, out, _ = run("budget", budget)
    assert code == 0
    assert "Left: 5.00 of 5." in out
    facts = shown(run, budget)
    assert (facts["total_epsilon"], facts["epsilon_spent"], facts["charges"]) == (5.0, 0.0, [])


def test_runs_are_shown_and_what_does_not_fit_is_refused(run: Run, budget: Path, tmp_path: Path) -> None:
    for number in (1, 2):
        out = tmp_path / f"run-{number}"
        assert run(*TRAIN, "--epsilon", 1, "--budget", budget, "--out", out, "--quiet")[0] == 0
    facts = shown(run, budget)
    assert [charge["command"] for charge in facts["charges"]] == ["train", "train"]
    assert 0 < facts["epsilon_spent"] < facts["epsilon_sum"]
    assert facts["epsilon_left"] == 5.0 - facts["epsilon_spent"]
    code, text, _ = run("budget", budget)
    assert code == 0
    assert text.count("generated-200") == 2
    assert "all events by the 'pair' accountant" in " ".join(text.split())
    for how in (("--out", tmp_path / "run-3"), ("--dry-run",)):
        code, _, errors = run(*TRAIN, "--epsilon", 9, "--budget", budget, *how)
        assert code == 3
        assert errors.count("\n") == 1
        assert "with this run it would be" in errors
    assert not (tmp_path / "run-3").exists()
    assert shown(run, budget) == facts


@pytest.mark.parametrize("flags", [("--non-private",), ("--epsilon", "1", "--seed", "3")])
def test_a_run_without_guarantee_is_refused(run: Run, budget: Path, tmp_path: Path, flags: Any) -> None:
    code, _, errors = run(*TRAIN, *flags, "--budget", budget, "--out", tmp_path / "run")
    assert code == 3
    assert "has no guarantee, so no total allows it" in errors
    assert not (tmp_path / "run").exists()


def test_without_a_total_runs_are_recorded(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "people.ledger"
    assert run("budget", path, "--delta", 1e-6)[0] == 0
    out = tmp_path / "run"
    assert run(*TRAIN, "--non-private", "--budget", path, "--out", out, "--quiet")[0] == 0
    code, text, _ = run("budget", path)
    assert code == 0
    assert "epsilon infinity" in text
    assert "No total is set" in text


def test_mistakes_are_one_line(run: Run, budget: Path, tmp_path: Path) -> None:
    for arguments, words in [
        (("budget", tmp_path / "missing"), "no such file"),
        (("budget", budget, "--delta", 1e-6), "exists already"),
        (("budget", tmp_path / "new", "--epsilon", 1), "without --delta"),
        (("budget", tmp_path / "new", "--epsilon", -1, "--delta", 1e-6), "expected a finite number above 0"),
        ((*TRAIN, "--epsilon", 1, "--budget", tmp_path / "missing", "--out", tmp_path / "r"), "no such file"),
        ((*TRAIN[:2], "--resume", tmp_path / "r", "--budget", budget), "keeps its settings"),
    ]:
        code, _, errors = run(*arguments)
        assert code == 2
        assert words in errors
        assert errors.count("\n") == 1
    assert not (tmp_path / "new").exists()
