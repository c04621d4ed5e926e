"""Scaling of numbers on the command line: the charge is shown, constants are taken, mistakes are one line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def people(tmp_path: Path) -> Path:
    folder = tmp_path / "people"
    folder.mkdir()
    rows = [f"p{n},{20 + n % 50},{1000 * n},{n % 2},{('train', 'val')[n % 3 == 0]}" for n in range(60)]
    (folder / "nodes.csv").write_text("\n".join(["id,age,income,label,split", *rows]) + "\n")
    edges = [f"p{n},p{(n + 1) % 60}" for n in range(60)]
    (folder / "edges.csv").write_text("\n".join(["source,target", *edges]) + "\n")
    return folder


@pytest.mark.parametrize("value", ["age=40", "age=a,b", "age=40,15,exp", "=40,15"])
def test_bad_constants_are_refused_in_one_line(value: str, people: Path, run: Run) -> None:
    code, _, error = run("plan", str(people), "--epsilon", "4", "--scale", value)
    assert code == 2
    assert "scale=" in error


def test_plan_shows_the_charge(people: Path, run: Run) -> None:
    given = ("plan", str(people), "--epsilon", "4", "--num-classes", "2")
    code, out, _ = run(*given)
    assert code == 0
    assert "noise of scaling, 2 columns" in " ".join(out.split())
    code, out, _ = run(*given, "--numbers", "as-is")
    assert code == 0
    assert "noise of scaling" not in out


def test_constants_are_free(people: Path, run: Run) -> None:
    given = ("plan", str(people), "--epsilon", "4", "--num-classes", "2")
    _, out, _ = run(*given, "--scale", "age=45,15")
    assert "noise of scaling, 1 column " in " ".join(out.split())
    _, out, _ = run(*given, "--scale", "age=45,15", "--scale", "income=30000,1,log")
    assert "noise of scaling" not in out


def test_a_file_declares_constants(people: Path, run: Run, tmp_path: Path) -> None:
    (people / "graph.toml").write_text("[columns.scale]\nage = {centre = 45, spread = 15}\n")
    out = str(tmp_path / "run")
    quick = ("--epsilon", "4", "--steps", "2", "--hidden", "4", "--device", "cpu", "--num-classes", "2")
    code, _, error = run("train", str(people), "--out", out, *quick)
    assert code == 0, error
    about = json.loads((tmp_path / "run" / "run.json").read_text())
    assert about["plan"]["num_scaled"] == 1
    assert about["columns"]["scale"] == {"age": {"centre": 45.0, "spread": 15.0, "log": False}}
