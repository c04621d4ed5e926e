"""`hushgraph train TABLES --engine duckdb`: tables larger than memory from the command line."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest

import hushgraph as hg
from hushgraph.cli.app import main
from hushgraph.engines import make_rows, resume_rows, train_rows
from hushgraph.errors import InputError, RunError
from hushgraph.privacy.budget import DataBudget
from hushgraph.privacy.ledger import Ledger

Run = Callable[..., tuple[int, str, str]]
FLAGS = ["--engine", "duckdb", "--num-classes", "2", "--epsilon", "4", "--steps", "3", "--hidden", "4"]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*arguments: Any) -> tuple[int, str, str]:
        code = main([str(each) for each in arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


@pytest.fixture
def tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(1)
    split = rng.choice(["train", "val", "test"], 300, p=[0.6, 0.2, 0.2])
    nodes = {"id": np.arange(300), "age": rng.normal(size=300), "label": np.arange(300) % 2, "split": split}
    edges = {"source": rng.integers(0, 300, 900), "target": rng.integers(0, 300, 900)}
    folder = tmp_path / "people"
    folder.mkdir()
    for name, table in (("nodes", nodes), ("edges", edges)):
        with duckdb.connect() as connection:
            connection.register("given", table)
            connection.execute(f"COPY (SELECT * FROM given) TO '{folder}/{name}.parquet'")
    return folder


def test_train_on_tables_then_report_and_predict(run: Run, tables: Path) -> None:
    code, out, err = run(
        "train", tables, *FLAGS, "--symmetrize", "--out", "a-run", "--json", "--memory", "1GiB"
    )
    assert code == 0, err
    result = json.loads(out.splitlines()[-1])
    assert (result["guarantee"], result["steps"], result["edge_owner"]) == ("holds", 3, "sender")
    ledger = Ledger.open("a-run/ledger.jsonl", read_only=True)
    # The board and the figures.
    assert (ledger.releases_charged, ledger.steps_charged) == (2, 3)
    assert run("report", "a-run")[0] == 0
    code, _, err = run("predict", "a-run", tables, "--out", "predictions.npz")
    assert code == 0, err
    # Predictions of the graph in memory read the released board and agree with the rows that were trained on.
    trained = hg.Run.load("a-run", device="cpu")
    scores = np.load("predictions.npz")
    assert len(scores[scores.files[0]]) == 300
    again = run("train", tables, "--engine", "duckdb", "--resume", "a-run")
    assert again[0] == 0
    assert (trained.folder.path / "board-1.safetensors").exists()


def test_a_pair_of_files_and_resume_after_a_kill(run: Run, tables: Path) -> None:
    nodes, edges = tables / "nodes.parquet", tables / "edges.parquet"

    def stop(phase: str) -> None:
        if phase == "make board":
            raise KeyboardInterrupt

    settings: dict[str, Any] = {"edge_owner": "reader", "num_classes": 2, "epsilon": 4.0, "steps": 3}
    with pytest.raises(KeyboardInterrupt):
        make_rows(nodes, edges, "a-run", on_phase=stop, **settings)
    # Without the engine a second board would be drawn under the charge of the first.
    code, _, err = run("train", nodes, "--edges", edges, "--resume", "a-run")
    assert code == 2
    assert "engine makes its board" in err
    code, _, err = run("train", nodes, "--edges", edges, "--resume", "a-run", "--engine", "duckdb", "--quiet")
    assert code == 0, err
    ledger = Ledger.open("a-run/ledger.jsonl", read_only=True)
    assert ledger.releases_charged == len({"board-1", "figures"})


@pytest.mark.parametrize("phase", ["make board", None])
def test_of_two_copies_of_a_run_one_goes_on(run: Run, tables: Path, phase: str | None) -> None:
    """Copied before the board is made, or with its rows before training."""
    nodes, edges = tables / "nodes.parquet", tables / "edges.parquet"

    def stop(begun: str) -> None:
        if begun == phase:
            raise KeyboardInterrupt

    DataBudget.create("people.ledger", epsilon=20.0, delta=1e-4)
    settings: dict[str, Any] = {"edge_owner": "reader", "num_classes": 2, "epsilon": 4.0, "steps": 3}
    try:
        make_rows(nodes, edges, "a-run", on_phase=stop, budget="people.ledger", **settings)
    except KeyboardInterrupt:
        assert phase is not None
    for name in ("a-run", "a-run.rows", "a-run.work"):
        if Path(name).exists():
            shutil.copytree(name, name.replace("a-run", "copy"))
    resume = ("train", nodes, "--edges", edges, "--engine", "duckdb", "--quiet", "--resume")
    code, _, err = run(*resume, "a-run")
    assert code == 0, err
    code, _, err = run(*resume, "copy")
    assert code == 2
    assert "another folder went on with it" in err
    assert "give --charge-again" in err
    if phase is None:
        with pytest.raises(RunError, match="another folder went on with it"):
            train_rows("copy")
    assert len(DataBudget.open("people.ledger").charges) == 1
    code, _, err = run(*resume, "copy", "--charge-again")
    assert code == 0, err
    assert len(DataBudget.open("people.ledger").charges) == 2
    # A finished run is not charged again.
    assert run(*resume, "copy", "--charge-again")[0] == 0
    assert len(DataBudget.open("people.ledger").charges) == 2


def test_an_engine_goes_on_only_with_a_run_that_it_began(tables: Path) -> None:
    files = tables / "nodes.parquet", tables / "edges.parquet"
    hg.train(tables, out="in-memory", edge_owner="sender", epsilon=4.0, steps=1, hidden=4, device="cpu")
    with pytest.raises(RunError, match="no engine began it"):
        resume_rows("in-memory", *files)
    make_rows(*files, "a-run", edge_owner="sender", num_classes=2, epsilon=4.0)
    mark = Path("a-run/engine.json")
    mark.write_text(mark.read_text().replace("duckdb", "spark"))
    with pytest.raises(RunError, match="spark began it"):
        resume_rows("a-run", *files)
    mark.write_text("[")
    with pytest.raises(RunError, match=r"engine\.json is damaged"):
        resume_rows("a-run", *files)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--model", "gcn"], "--model with --engine"),
        (["--seed", "1"], "--seed with --engine"),
        (["--dry-run"], "--dry-run with --engine"),
        (["--directed"], "--directed with --engine"),
        (["--edge-owner", "sender", "--memory", "much"], "expected a size such as"),
        (["--edge-owner", "sender", "--hash", "age=4"], "hashed"),
        (["--edge-owner", "sender", "--engine", "spark"], "hushgraph.engines.spark.make_rows"),
        (["--edge-owner", "sender", "--engine", "foo"], "expected 'memory', 'duckdb' or 'spark'"),
        (["--edge-owner", "sender", "--engine", "duckbd"], "did you mean 'duckdb'?"),
    ],
)
def test_mistakes_are_one_line_and_leave_nothing(
    run: Run, tables: Path, flags: list[str], message: str
) -> None:
    code, _, err = run("train", tables, *FLAGS, *flags, "--out", "a-run")
    assert code == 2
    assert message in err
    assert err.strip().count("\n") == 0
    assert [path.name for path in Path().iterdir()] == ["people"]


def test_memory_needs_an_engine_and_owners_have_names(run: Run, tables: Path) -> None:
    for flags in (["--memory", "8GiB"], ["--keep-rows"], ["--keep-rows", "--engine", "memory"]):
        code, _, err = run("train", tables, "--epsilon", "4", *flags)
        assert code == 2
        assert "add --engine duckdb" in err
    with pytest.raises(InputError, match="edge_owner='me'"):
        make_rows(tables / "nodes.parquet", tables / "edges.parquet", "a-run", edge_owner="me", epsilon=4.0)
