"""Runs on engines: a folder is never gone on with silently, a refusal leaves nothing, private rows go."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest

from hushgraph.cli.app import main
from hushgraph.engines import make_rows, resume_rows, train_rows, train_tables
from hushgraph.errors import DivergedError, InputError, RunError
from hushgraph.privacy.budget import DataBudget
from hushgraph.runs.folder import RunFolder

Tables = tuple[Path, Path]
Call = Callable[..., tuple[int, str, str]]
SETTINGS: dict[str, Any] = {"edge_owner": "sender", "num_classes": 2, "epsilon": 4.0, "steps": 3, "hidden": 4}
FLAGS = [
    "--engine",
    "duckdb",
    "--edge-owner",
    "sender",
    "--num-classes",
    "2",
    "--steps",
    "3",
    "--hidden",
    "4",
]


class KilledError(BaseException):
    """Stands for a kill: nothing in the library handles it."""


def write_tables(
    folder: Path, *, nodes: int = 200, first_train: int = 0, label: str = "label", edges: int = 600
) -> Tables:
    """Nodes whose training split begins at `first_train`, and random edges."""
    folder.mkdir()
    rng = np.random.default_rng(1)
    split = np.where(np.arange(nodes) % nodes < first_train, "val", "train")
    split[-40:] = "test"
    cells = {"id": np.arange(nodes), "age": rng.normal(size=nodes), label: np.arange(nodes) % 2}
    ends = rng.integers(0, nodes, (2, edges))
    pairs = {"source": ends[0], "target": ends[1]}
    for name, table in (("nodes", cells | {"split": split}), ("edges", pairs)):
        with duckdb.connect() as connection:
            connection.register("given", table)
            connection.execute(f"COPY (SELECT * FROM given) TO '{folder}/{name}.parquet'")
    return folder / "nodes.parquet", folder / "edges.parquet"


@pytest.fixture
def tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tables:
    monkeypatch.chdir(tmp_path)
    return write_tables(Path("people"))


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Call:
    def run(*arguments: Any) -> tuple[int, str, str]:
        code = main([str(each) for each in arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def list_files() -> dict[str, bytes]:
    """Every file below the current folder, and what it holds; folders too."""
    return {
        str(path): path.read_bytes() if path.is_file() else b"" for path in Path().rglob("*") if path.exists()
    }


def stop_at(wanted: str) -> Callable[[str], None]:
    def stop(phase: str) -> None:
        if phase == wanted:
            raise KilledError

    return stop


def begin(tables: Tables, out: str, at: str, **changes: Any) -> None:
    """A run that was killed at the beginning of a phase."""
    with pytest.raises(KilledError):
        make_rows(*tables, out, on_phase=stop_at(at), **(SETTINGS | changes))


def test_a_finished_run_of_other_data_is_not_the_answer(tables: Tables, call: Call) -> None:
    train_tables(*tables, "a-run", **SETTINGS)
    other = write_tables(Path("others"), first_train=20)
    DataBudget.create("budget", epsilon=10.0, delta=1e-4)
    before = list_files()
    flags = [*FLAGS, "--epsilon", "1", "--budget", "budget", "--out", "a-run"]
    code, _, err = call("train", other[0], "--edges", other[1], *flags)
    assert (code, err) == (
        2,
        "hushgraph: --out=a-run: it holds a finished run; choose another folder\n",
    )
    with pytest.raises(RunError, match="holds a finished run"):
        make_rows(*tables, "a-run", **SETTINGS)
    assert list_files() == before


@pytest.mark.parametrize("phase", ["make board", "write rows"])
def test_a_killed_run_goes_on_only_when_asked_to(tables: Tables, call: Call, phase: str) -> None:
    begin(tables, "a-run", phase)
    before = list_files()
    with pytest.raises(RunError, match=r"begun; go on with --resume a-run \(Python: resume_rows"):
        make_rows(*tables, "a-run", **SETTINGS)
    pair = [tables[0], "--edges", tables[1]]
    code, _, err = call("train", *pair, *FLAGS, "--epsilon", "4", "--out", "a-run")
    assert code == 2
    assert "go on with --resume a-run" in err
    with pytest.raises(InputError, match="epsilon: a resumed run keeps its settings"):
        train_tables(*tables, "a-run", resume=True, epsilon=1.0)
    assert list_files() == before
    code, _, err = call("train", *pair, "--resume", "a-run", "--engine", "duckdb", "--quiet")
    assert code == 0, err
    assert RunFolder.open("a-run").is_finished


@pytest.mark.parametrize(
    "change", [{"first_train": 20}, {"nodes": 210}, {"label": "school"}, {"edges": 601}], ids=str
)
@pytest.mark.parametrize("phase", ["make board", "write rows"])
def test_a_killed_run_goes_on_only_with_its_own_data(tables: Tables, phase: str, change: Any) -> None:
    begin(tables, "a-run", phase)
    other = write_tables(Path("others"), **change)
    before = list_files()
    with pytest.raises(InputError, match=r"began with|no column 'label'"):
        resume_rows("a-run", *other)
    assert list_files() == before
    assert train_tables(*tables, "a-run", resume=True).folder.is_finished


@pytest.mark.parametrize("change", [{"first_train": 20}, {"nodes": 210}, {"label": "school"}], ids=str)
def test_a_finished_run_is_no_answer_about_other_data(tables: Tables, call: Call, change: Any) -> None:
    train_tables(*tables, "a-run", **SETTINGS)
    other = write_tables(Path("others"), **change)
    before = list_files()
    code, _, err = call("train", other[0], "--edges", other[1], "--resume", "a-run", "--engine", "duckdb")
    assert code == 2, err
    assert "began with" in err or "no column 'label'" in err
    assert list_files() == before
    code, out, _ = call("train", tables[0], "--edges", tables[1], "--resume", "a-run", "--engine", "duckdb")
    assert code == 0
    assert "a-run was finished before; nothing was trained." in out
    assert list_files() == before


def test_a_run_that_the_budget_refuses_leaves_nothing(tables: Tables, call: Call) -> None:
    DataBudget.create("budget", epsilon=1.0, delta=1e-4)
    before = list_files()
    flags = [*FLAGS, "--epsilon", "4", "--budget", "budget", "--out", "runs/new/a-run"]
    code, _, err = call("train", tables[0], "--edges", tables[1], *flags)
    assert code == 3, err
    assert list_files() == before


@pytest.mark.parametrize("row", ["(5, 999)", "(999, 5)"])
def test_a_run_that_its_edges_refuse_leaves_nothing_and_costs_nothing(
    tables: Tables, call: Call, row: str
) -> None:
    duckdb.execute(
        f"COPY (SELECT * FROM '{tables[1]}' UNION ALL VALUES {row}) TO 'bad.parquet' (FORMAT parquet)"
    )
    DataBudget.create("budget", epsilon=10.0, delta=1e-4)
    before = list_files()
    flags = [*FLAGS, "--epsilon", "4", "--budget", "budget", "--out", "a-run"]
    code, _, err = call("train", tables[0], "--edges", "bad.parquet", *flags)
    assert code == 2
    assert "not in the node table" in err
    assert list_files() == before


def test_a_budget_that_cannot_be_written_leaves_nothing(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is written last, when the folder of the run is there already."""
    DataBudget.create("budget", epsilon=10.0, delta=1e-4)
    before = list_files()
    from hushgraph.privacy import budget

    def fail(*given: Any) -> None:
        raise RunError("the disk is full")

    monkeypatch.setattr(budget, "_append", fail)
    with pytest.raises(RunError, match="disk is full"):
        make_rows(*tables, "a-run", budget="budget", **SETTINGS)
    assert list_files() == before


def test_private_parts_of_another_run_are_not_taken_over(tables: Tables) -> None:
    for ending in ("rows", "work"):
        os.mkdir(f"a-run.{ending}")
        with pytest.raises(RunError, match=rf"a-run\.{ending} beside it holds private parts"):
            make_rows(*tables, "a-run", **SETTINGS)
        os.rmdir(f"a-run.{ending}")
    assert not Path("a-run").exists()


def test_private_rows_go_when_training_has_finished(tables: Tables, call: Call) -> None:
    pair = [tables[0], "--edges", tables[1]]
    code, out, err = call("train", *pair, *FLAGS, "--epsilon", "4", "--out", "a-run")
    assert code == 0, err
    assert out.splitlines()[-1] == "The private rows beside a-run were deleted after training."
    assert sorted(path.name for path in Path().iterdir()) == ["a-run", "people"]
    code, out, _ = call("train", *pair, *FLAGS, "--epsilon", "4", "--out", "kept", "--keep-rows")
    assert code == 0
    assert out.splitlines()[-1].startswith("The private rows are kept in kept.rows: ")
    assert list(Path("kept.rows").glob("*.parquet"))
    code, out, _ = call("train", *pair, "--resume", "kept", "--engine", "duckdb", "--keep-rows", "--json")
    assert json.loads(out.splitlines()[-1])["private_rows"] == "kept.rows"
    # As if a kill had come before they were removed.
    code, out, _ = call("train", *pair, "--resume", "kept", "--engine", "duckdb", "--json")
    assert json.loads(out.splitlines()[-1])["private_rows"] is None
    assert not Path("kept.rows").exists()


def test_private_rows_stay_for_the_resume_of_a_killed_run(tables: Tables) -> None:
    def stop(*progress: Any) -> None:
        raise KilledError

    with pytest.raises(KilledError):
        train_tables(*tables, "a-run", observer=stop, **SETTINGS)
    assert Path("a-run.rows").exists()
    train_rows("a-run")
    assert not Path("a-run.rows").exists()


def test_private_rows_go_when_training_diverged(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    def diverge(*given: Any) -> None:
        raise DivergedError("weights are NaN")

    make_rows(*tables, "a-run", **SETTINGS)
    monkeypatch.setattr(RunFolder, "finish", diverge)
    with pytest.raises(DivergedError):
        train_rows("a-run")
    assert sorted(path.name for path in Path().iterdir()) == ["a-run", "people"]


def test_a_run_that_stops_or_fails_says_where_private_rows_lie(
    tables: Tables, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*given: Any, **named: Any) -> None:
        raise RunError("the disk is full")

    def stop(*given: Any, **named: Any) -> None:
        raise KeyboardInterrupt

    pair = [tables[0], "--edges", tables[1]]
    finish = RunFolder.finish
    monkeypatch.setattr(RunFolder, "finish", fail)
    code, _, err = call("train", *pair, *FLAGS, "--epsilon", "4", "--out", "a-run")
    assert code == 2
    assert "private, for you alone: a-run.rows hold private rows until training has finished" in err
    monkeypatch.setattr(RunFolder, "finish", stop)
    again = ["train", *pair, "--resume", "a-run", "--engine", "duckdb", "--memory", "1GiB"]
    code, _, err = call(*again)
    assert code == 130
    assert "a-run.rows holds private rows until training has finished" in err
    rest = "--resume a-run --edges people/edges.parquet --engine duckdb --memory 1GiB"
    assert err.strip().endswith(f"continue with: hushgraph train people/nodes.parquet {rest}")
    monkeypatch.setattr(RunFolder, "finish", finish)
    assert call(*again)[0] == 0
    assert not Path("a-run.rows").exists()
