"""`hushgraph train TABLES --engine duckdb`: tables larger than memory from the command line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest

import hushgraph as hg
from hushgraph.cli.app import main
from hushgraph.engines import make_rows
from hushgraph.errors import InputError, RunError
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
    assert (ledger.boards_charged, ledger.steps_charged) == (1, 3)
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
    assert Ledger.open("a-run/ledger.jsonl", read_only=True).boards_charged == 1


def test_an_engine_does_not_go_on_with_the_board_of_another(tables: Path) -> None:
    settings: dict[str, Any] = {"edge_owner": "sender", "num_classes": 2, "epsilon": 4.0, "steps": 3}
    with pytest.raises(KeyboardInterrupt):
        make_rows(
            tables / "nodes.parquet", tables / "edges.parquet", "a-run", on_phase=stop_at_sort, **settings
        )
    # As a run that was begun and went on without an engine.
    Path("a-run/engine.json").unlink()
    Path("a-run/board-1.safetensors").write_bytes(b"")
    with pytest.raises(RunError, match="without an engine"):
        make_rows(tables / "nodes.parquet", tables / "edges.parquet", "a-run", **settings)


def stop_at_sort(phase: str) -> None:
    if phase == "sort records":
        raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--model", "gcn"], "--model with --engine"),
        (["--seed", "1"], "--seed with --engine"),
        (["--dry-run"], "--dry-run with --engine"),
        (["--directed"], "--directed with --engine"),
        (["--edge-owner", "sender", "--memory", "much"], "expected a size such as"),
        (["--edge-owner", "sender", "--hash", "age=4"], "hashed"),
    ],
)
def test_mistakes_are_one_line_and_leave_nothing(
    run: Run, tables: Path, flags: list[str], message: str
) -> None:
    code, _, err = run("train", tables, *FLAGS, *flags, "--out", "a-run")
    assert code == 2
    assert message in err
    assert err.strip().count("\n") == 0
    assert not Path("a-run").exists()


def test_memory_needs_an_engine_and_owners_have_names(run: Run, tables: Path) -> None:
    code, _, err = run("train", tables, "--epsilon", "4", "--memory", "8GiB")
    assert code == 2
    assert "add --engine duckdb" in err
    with pytest.raises(InputError, match="edge_owner='me'"):
        make_rows(tables / "nodes.parquet", tables / "edges.parquet", "a-run", edge_owner="me")  # type: ignore[arg-type]
