"""`predict --threshold` and `--top`: the column of flags, what is said of it, and every task's table."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from hushgraph.cli.app import main

Run = Callable[..., tuple[int, str, str]]
COUNT = 400


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bank's tables, a run that asks for fraud and one that asks for a number."""
    folder, rng = tmp_path_factory.mktemp("world"), np.random.default_rng(0)
    wealth = rng.normal(size=COUNT)
    is_fraud = wealth + rng.normal(size=COUNT) > 1
    rows = [
        f"a{n},{wealth[n]:.3f},{('no', 'yes')[int(is_fraud[n])]},{50 + 20 * wealth[n]:.2f}"
        for n in range(COUNT)
    ]
    (folder / "bank").mkdir()
    (folder / "bank/nodes.csv").write_text("\n".join(["id,wealth,fraud,income", *rows]) + "\n")
    edges = [f"a{n},a{w}" for n in range(COUNT) for w in rng.integers(COUNT, size=3)]
    (folder / "bank/edges.csv").write_text("\n".join(["source,target", *edges]) + "\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        common = "--epsilon 8 --steps 20 --hidden 4 --quiet --device cpu --split 0.3/0.5/0.2"
        fraud = "--label fraud --classes no,yes --ignore income"
        income = "--label income --ignore fraud --task number --bounds 0,100"
        assert main(f"train bank {fraud} {common} --out fraud".split()) == 0
        assert main(f"train bank {income} {common} --out income".split()) == 0
    return folder


@pytest.fixture
def here(world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(world, tmp_path / "world")
    monkeypatch.chdir(tmp_path / "world")
    return tmp_path / "world"


def read(name: str) -> list[dict[str, str]]:
    with Path(name).open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.usefixtures("here")
def test_the_top_share_is_flagged_by_released_bins(run: Run) -> None:
    line = ["predict", "fraud", "bank", "--out", "p.csv", "--top", "20%", "--json"]
    code, out, _ = run(*line)
    assert code == 0
    about = json.loads(out)["threshold"]
    assert about["source"] == "released bins of the validation split"
    assert (about["covered"], about["top"]) == (True, 0.2)
    rows = read("p.csv")
    assert list(rows[0]) == ["id", "class", "p_yes", "flagged"]
    # The file has six digits of a score.
    sure = [row for row in rows if abs(float(row["p_yes"]) - about["values"][0]) > 1e-5]
    assert all((row["flagged"] == "1") == (float(row["p_yes"]) > about["values"][0]) for row in sure)
    assert 0.02 < np.mean([row["flagged"] == "1" for row in rows]) < 0.4
    # The release alone says the same.
    assert run(*line[:1], "fraud/release", *line[2:4], "q.csv", *line[5:])[0] == 0
    assert read("q.csv") == rows
    code, out, _ = run(*line[:-1], "--force")
    assert "flagged: scores above " in out
    assert "released bins of the validation split, which " in out
    assert out.rstrip().endswith("covered towards everybody else")


@pytest.mark.usefixtures("here")
def test_a_number_has_a_unit_and_a_threshold(run: Run) -> None:
    assert run("predict", "income", "bank", "--out", "p.csv", "--threshold", "60")[0] == 0
    rows = read("p.csv")
    assert list(rows[0]) == ["id", "number", "unit", "flagged"]
    assert {row["unit"] for row in rows} == {"income"}
    assert all((float(row["number"]) > 60) == (row["flagged"] == "1") for row in rows)
    code, _, err = run("predict", "income", "bank", "--out", "q.csv", "--top", "1%")
    assert (code, err.count("\n")) == (2, 1)
    assert "a number from 0 to 100 has no score bins; give --threshold=T" in err


@pytest.mark.usefixtures("here")
def test_new_nodes_are_flagged_too(run: Run) -> None:
    Path("new.csv").write_text("id,wealth\nz1,3\nz2,-3\n")
    Path("lists.csv").write_text("source,target\nz1,a1\nz2,a2\n")
    words = ["predict", "fraud/release", "new.csv", "--edges", "lists.csv", "--new", "--out", "p.csv"]
    _, out, _ = run(*words, "--top", "50%", "--json")
    (threshold,) = json.loads(out)["threshold"]["values"]
    assert [row["flagged"] == "1" for row in read("p.csv")] == [
        float(row["p_yes"]) > threshold for row in read("p.csv")
    ]
    assert run(*words, "--threshold", "0", "--force")[0] == 0
    assert [row["flagged"] for row in read("p.csv")] == ["1", "1"]
