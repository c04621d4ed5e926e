"""`--engine` of train and predict: the same flags, files in, files out; mistakes are one line."""

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
from hushgraph.datasets import engine as engine_module
from hushgraph.inference import predicted as predicted_module
from hushgraph.training import run as run_module

Run = Callable[..., tuple[int, str, str]]
FLAGS = ["--epsilon", "4", "--steps", "4", "--hidden", "4", "--classes", "no,yes", "--hash", "city=8"]
ENGINE = ["--engine", "duckdb", "--memory", "1GiB"]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*arguments: Any) -> tuple[int, str, str]:
        code = main([str(each) for each in arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


@pytest.fixture
def people(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """DATA and --edges: CSV tables of 300 people, with names as identifiers."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(1)
    lines = ["id,age,city,label,split"]
    for i in range(300):
        split = ("train", "train", "val", "test")[i % 4]
        lines.append(f"p{i},{rng.normal():.3f},{'abc'[i % 3]},{('no', 'yes')[i % 2]},{split}")
    Path("nodes.csv").write_text("\n".join(lines) + "\n")
    ends = rng.integers(0, 300, (2, 900))
    edges = [f"p{u},p{w}" for u, w in ends.T]
    Path("edges.csv").write_text("\n".join(["source,target", *edges]) + "\n")
    return ["nodes.csv", "--edges", "edges.csv"]


def list_names() -> list[str]:
    return sorted(path.name for path in Path().iterdir())


def test_train_report_and_predict_with_the_flags_of_memory(
    run: Run, people: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out, err = run("train", *people, *FLAGS, *ENGINE, "--out", "a-run", "--json")
    assert code == 0, err
    result = json.loads(out.splitlines()[-1])
    assert (result["guarantee"], result["figures"], result["steps"]) == ("holds", "covered", 4)
    assert (Path("a-run/release") / "board-1.safetensors").exists()
    assert run("report", "a-run")[0] == 0
    # Parts of a table that are read and written at a time.
    monkeypatch.setattr(run_module, "_READ_ROWS", 64)
    monkeypatch.setattr(predicted_module, "_SAVED_ROWS", 70)
    for name, more in (("m.parquet", []), ("e.parquet", ENGINE), ("m.csv", []), ("e.csv", ENGINE)):
        code, _, err = run(
            "predict", "a-run", *people, "--out", name, "--probabilities", "--top", "5%", *more
        )
        assert code == 0, err
    table = "SELECT * FROM '{}.parquet' ORDER BY id"
    assert duckdb.sql(table.format("e")).fetchall() == duckdb.sql(table.format("m")).fetchall()
    assert duckdb.sql("SELECT * FROM 'e.parquet'").columns == duckdb.sql("SELECT * FROM 'm.parquet'").columns
    assert Path("e.csv").read_text() == Path("m.csv").read_text()
    assert len(Path("e.csv").read_text().splitlines()) == 301
    # A model in Python says the same.
    loaded = hg.Run.load("a-run", device="cpu")
    both = [loaded.predict_table(("nodes.csv", "edges.csv"), engine=each) for each in ("memory", "duckdb")]
    np.testing.assert_allclose(both[0].probabilities, both[1].probabilities, atol=1e-5)
    assert not [name for name in list_names() if name.endswith(".work")]


def test_new_nodes_by_an_engine(run: Run, people: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    assert run("train", *people, *FLAGS, "--out", "a-run", "--quiet")[0] == 0
    Path("new.csv").write_text("id,age,city\n" + "".join(f"n{i},0.5,a\n" for i in range(40)))
    lists = [f"n{i % 40},p{(i * 7) % 310}" for i in range(200)]
    Path("lists.csv").write_text("source,target\n" + "\n".join(lists) + "\n")
    monkeypatch.setattr(run_module, "_READ_ROWS", 16)
    monkeypatch.setattr(predicted_module, "_SAVED_ROWS", 7)
    said = []
    for name, more in (("m.csv", []), ("e.csv", ENGINE)):
        new = ["new.csv", "--edges", "lists.csv", "--new", "--out", name, "--probabilities", "--json"]
        code, out, err = run("predict", "a-run", *new, *more)
        assert code == 0, err
        said.append({**json.loads(out), "out": ""})
    assert said[0] == said[1]
    assert said[0]["unknown_places"] > 0
    assert Path("e.csv").read_text() == Path("m.csv").read_text()
    assert len(Path("e.csv").read_text().splitlines()) == 41


def test_a_dry_run_spends_and_leaves_nothing(run: Run, people: list[Any]) -> None:
    before = list_names()
    said = [run("train", *people, *FLAGS, *more, "--dry-run", "--json") for more in ([], ENGINE)]
    assert said[0] == said[1]
    assert said[0][0] == 0
    assert list_names() == before


def test_rows_cannot_be_kept_any_more(run: Run, people: list[Any]) -> None:
    code, _, err = run("train", *people, *FLAGS, *ENGINE, "--keep-rows", "--dry-run")
    assert code == 0
    assert "notice: --keep-rows: DuckDB writes no rows any more; there are none to keep" in err


def test_auto_says_what_it_chose_before_it_starts(
    run: Run, people: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, _, err = run("train", *people, *FLAGS, "--engine", "auto", "--out", "a-run")
    assert code == 0
    assert err.splitlines()[0].startswith("--engine auto: memory; in memory the tables take about 0.0 GiB")
    monkeypatch.setattr(engine_module, "find_free_memory", lambda: 10_000)
    code, _, err = run("predict", "a-run", *people, "--engine", "auto", "--out", "p.csv")
    assert code == 0
    assert err.splitlines()[0].startswith("--engine auto: duckdb; in memory the tables take")
    # Programs that read JSON are told nothing else.
    assert run("train", *people, *FLAGS, "--engine", "auto", "--out", "b-run", "--json")[2] == ""


def test_resume_takes_the_engine_and_no_settings(run: Run, people: list[Any]) -> None:
    assert run("train", *people, *FLAGS, "--out", "a-run", "--quiet")[0] == 0
    code, out, err = run("train", *people, "--resume", "a-run", *ENGINE)
    assert code == 0, err
    assert "was finished before" in out
    code, _, err = run("train", *people, "--resume", "a-run", *ENGINE, "--epsilon", "2")
    assert code == 2
    assert "--epsilon: a resumed run keeps its settings" in err


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--engine", "duckdb", "--memory", "much"], "expected a size such as"),
        (["--engine", "duckdb", "--memory", "1MB"], "at least 512MiB"),
        (["--memory", "8GiB"], "add --engine duckdb"),
        (["--engine", "foo"], "duckdb, spark or a master of Spark"),
        (["--engine", "duckbd"], "did you mean 'duckdb'"),
    ],
)
def test_mistakes_are_one_line_and_leave_nothing(
    run: Run, people: list[Any], flags: list[str], message: str
) -> None:
    before = list_names()
    code, _, err = run("train", *people, *FLAGS, *flags, "--out", "a-run")
    assert code == 2
    assert message in err
    assert err.strip().count("\n") == 0
    assert list_names() == before


def test_data_that_is_no_table_is_refused(run: Run, people: list[Any]) -> None:
    code, _, err = run("train", "demo", "--epsilon", "4", "--engine", "duckdb", "--out", "a-run")
    assert code == 2
    assert "it reads tables, CSV or Parquet" in err
