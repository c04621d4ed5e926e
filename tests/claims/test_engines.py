"""Promise: where tables are read changes nothing. One charge, one board, the same numbers, nothing left."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest

import hushgraph as hg
from benchmark_scripts import script
from hushgraph import _arrays
from hushgraph.billboard.board import load_board
from hushgraph.datasets.engine import use_engine, work_folder
from hushgraph.errors import BudgetExceededError, GraphError, RunError
from hushgraph.graph import reads
from hushgraph.privacy.budget import DataBudget
from hushgraph.privacy.ledger import Ledger
from hushgraph.runs.folder import RunFolder
from hushgraph.training.memory import Memory
from hushgraph.training.parts import Parts
from hushgraph.training.watch import Watch

Tables = tuple[Path, Path]
SETTINGS: dict[str, Any] = {"num_classes": 3, "epsilon": 4.0, "steps": 12, "hidden": 4, "progress": False}
ENGINE: dict[str, Any] = {"engine": "duckdb", "memory": "1GiB"}
# Of benchmarks/engine_settings.py: every task, owner, scaling and kind of columns and records.
NUMBERS = (0, 1, 3, 4, 6, 8, 9, 14, 19, 23)


class KilledError(BaseException):
    """Stands for a kill: nothing in the library handles it."""


@pytest.fixture
def tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tables:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(_arrays, "_LEAST_MAPPED", 1)
    return write_tables(tmp_path / "people")


def write_tables(folder: Path, *, nodes: int = 200, first_train: int = 0, wrong_edge: str = "") -> Tables:
    """Nodes whose training split begins at `first_train`, and random edges."""
    folder.mkdir()
    rng = np.random.default_rng(1)
    split = np.where(np.arange(nodes) < first_train, "val", "train")
    split[-60:-30], split[-30:] = "val", "test"
    y = np.arange(nodes) % 3
    cells = {"id": np.arange(nodes), "age": rng.normal(size=nodes) + y, "label": y, "split": split}
    ends = rng.integers(0, nodes, (2, 600))
    for name, table in (("nodes", cells), ("edges", {"source": ends[0], "target": ends[1]})):
        with duckdb.connect() as connection:
            connection.register("given", table)
            more = wrong_edge if name == "edges" else ""
            connection.execute(f"COPY (SELECT * FROM given {more}) TO '{folder}/{name}.parquet'")
    return folder / "nodes.parquet", folder / "edges.parquet"


def list_files() -> dict[str, bytes]:
    """Every file below the current folder, and what it holds; folders too."""
    return {
        str(path): path.read_bytes() if path.is_file() else b"" for path in Path().rglob("*") if path.exists()
    }


def charges(path: Path | str) -> tuple[int, int]:
    ledger = Ledger.open(Path(path) / "ledger.jsonl", plan=RunFolder.open(path).plan, read_only=True)
    return ledger.releases_charged, ledger.steps_charged


@pytest.mark.parametrize("number", NUMBERS)
def test_a_run_has_the_numbers_that_it_has_in_memory(number: int, tmp_path: Path) -> None:
    """Boards, histograms and tables of figures bit for bit, under the same keys."""
    settings = script("engine_settings")
    result = settings.run_both(tmp_path, number)
    assert settings.is_same(result), result
    assert result["charges equal"]


def kill_at(
    name: str, patch: pytest.MonkeyPatch, owner: Any, *, number: int = 1, after: bool = False
) -> Callable[[], None]:
    """Kill a run at a call of this function, before or after it; return what ends that."""
    real, calls = getattr(owner, name), 0

    def killed(*given: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == number and not after:
            raise KilledError
        value = real(*given, **named)
        if calls == number:
            raise KilledError
        return value

    patch.setattr(owner, name, killed)
    return lambda: patch.setattr(owner, name, real)


# What is killed, at which of its calls, before or after it; how many boards were visible then.
PHASES = {
    "tables are read": ("build_reads", 1, True, 0),
    "histograms are drawn": ("release_histograms", 1, True, 0),
    "histograms are released": ("save_counts", 1, True, 0),
    "numbers are scaled": ("prepare", 1, False, 0),
    "first ballots": ("label_ballots", 1, False, 0),
    "first board is drawn": ("cast_and_release", 1, True, 0),
    "first board is written": ("save_board", 1, True, 1),
    "first step": ("take_steps", 1, False, 1),
    "halfway": ("take_steps", 1, True, 1),
    "second ballots": ("soft_ballots", 1, False, 1),
    "second board is drawn": ("cast_and_release", 2, True, 1),
    "second board is written": ("save_board", 2, True, 2),
    "last steps": ("take_steps", 2, True, 2),
    "figures are counted": ("count_rows", 1, False, 2),
    "figures are released": ("save_counts", 2, True, 2),
}


@pytest.mark.parametrize("phase", list(PHASES))
def test_a_kill_at_any_phase_leaves_one_board_and_one_charge(
    phase: str, tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, number, after, visible = PHASES[phase]
    own = {"number": number, "after": after}
    if name == "build_reads":
        undo = kill_at(name, monkeypatch, reads, **own)
    elif name == "take_steps":
        undo = kill_at(name, monkeypatch, Watch, **own)
    elif name == "prepare":
        undo = kill_at(name, monkeypatch, Memory, **own)
    else:
        undo = kill_in_parts(name, monkeypatch, **own)
    with pytest.raises(KilledError):
        hg.train(tables, out="run", **SETTINGS, **ENGINE)
    undo()
    seen = [load_board(Path("run") / f"board-{place}.safetensors").values for place in range(1, visible + 1)]
    assert not Path("run.work").exists()
    if name == "build_reads":
        assert not Path("run").exists()
        return
    assert len(list(Path("run").glob("board-*"))) == visible
    run = hg.resume("run", tables, progress=False, **ENGINE)
    boards = run.folder.load_boards()
    assert len(boards) == 2
    for board, values in zip(boards, seen, strict=False):
        assert np.array_equal(board.values, values)
    # Histograms, two boards and figures.
    assert charges("run") == (4, 12)
    assert run.epsilon <= 4.0
    assert (run.folder.release_path / "board-2.safetensors").exists()
    assert sorted(path.name for path in Path().iterdir()) == ["people", "run"]


def kill_in_parts(name: str, patch: pytest.MonkeyPatch, *, number: int, after: bool) -> Callable[[], None]:
    """`kill_at` for one of the collaborators of a session."""
    field = Parts.__dataclass_fields__[name]
    holder = type("Holder", (), {name: staticmethod(field.default)})
    undo = kill_at(name, patch, holder, number=number, after=after)
    real = Parts.__init__

    def init(self: Parts, **given: Any) -> None:
        real(self, **{name: getattr(holder, name), **given})

    patch.setattr(Parts, "__init__", init)

    def end() -> None:
        undo()
        patch.setattr(Parts, "__init__", real)

    return end


def test_a_run_goes_on_where_it_did_not_begin(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    """Begun in memory and ended by DuckDB, and the other way round: it is the same run."""
    for number, (first, then) in enumerate((({}, ENGINE), (ENGINE, {}))):
        undo = kill_at("take_steps", monkeypatch, Watch)
        with pytest.raises(KilledError):
            hg.train(tables, out=f"run-{number}", **SETTINGS, **first)
        undo()
        values = load_board(Path(f"run-{number}/board-1.safetensors")).values
        run = hg.resume(f"run-{number}", tables, progress=False, **then)
        assert np.array_equal(run.folder.load_boards()[0].values, values)
        assert charges(f"run-{number}") == (4, 12)


@pytest.mark.parametrize("name", ["scaling.json", "board-1.safetensors"])
def test_what_was_moved_away_is_made_again_by_no_engine(
    name: str, tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under one charge there is one board, and one histogram of every column, wherever tables are read."""
    undo = kill_at("take_steps", monkeypatch, Watch)
    with pytest.raises(KilledError):
        hg.train(tables, out="run", **SETTINGS, **ENGINE)
    undo()
    Path("run", name).rename("published")
    for engine in (ENGINE, {}):
        with pytest.raises(RunError, match="was released and is missing, and another one under the same"):
            hg.resume("run", tables, progress=False, **engine)
        assert not [*Path("run").glob(f"{name}*")]
    Path("published").rename(f"run/{name}")
    assert hg.resume("run", tables, progress=False).result["guarantee"] == "holds"
    assert charges("run") == (4, 12)


def test_a_run_that_an_engine_of_before_began_is_one_clear_line_and_costs_nothing(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    undo = kill_at("take_steps", monkeypatch, Watch)
    with pytest.raises(KilledError):
        hg.train(tables, out="run", **SETTINGS)
    undo()
    Path("run/engine.json").write_text('{"engine": "spark", "storage": null}')
    before = list_files()
    with pytest.raises(RunError, match=r"an engine from before 0\.2\.0 began it.* train in another folder"):
        hg.resume("run", tables)
    assert list_files() == before
    Path("run/engine.json").unlink()
    hg.resume("run", tables, progress=False)
    # One that had finished is read as before.
    Path("run/engine.json").write_text('{"engine": "spark", "storage": null}')
    assert hg.resume("run", tables).epsilon <= 4.0


def test_sigkill_while_tables_are_read_leaves_nothing_that_the_next_call_does_not_remove(
    tables: Tables,
) -> None:
    """Whatever a database had written has a name; arrays have none."""
    if (child := os.fork()) == 0:
        with use_engine("duckdb", tables, beside=Path("run")):
            disk = _arrays.find_disk()
            assert disk is not None
            (disk.folder / "tables").write_text("private")
            _ = _arrays.zeros(1_000, np.int64)
            os.kill(os.getpid(), signal.SIGKILL)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
    left = [path.name for path in work_folder(Path("run")).rglob("*") if path.is_file()]
    assert sorted(left) == ["lock", "tables"]
    hg.train(tables, out="run", **SETTINGS, **ENGINE)
    assert sorted(path.name for path in Path().iterdir()) == ["people", "run"]


def test_what_is_refused_leaves_nothing_and_costs_nothing(tables: Tables) -> None:
    DataBudget.create("budget", epsilon=2.0, delta=1e-4)
    wrong = write_tables(Path("wrong"), wrong_edge="UNION ALL SELECT 5, 999")
    before = list_files()
    with pytest.raises(BudgetExceededError):
        hg.train(tables, out="runs/a", budget="budget", **SETTINGS, **ENGINE)
    with pytest.raises(GraphError, match="'999' is not an id"):
        hg.train(wrong, out="runs/a", budget="budget", **SETTINGS | {"epsilon": 1.0}, **ENGINE)
    assert list_files() == before


def test_a_run_goes_on_only_with_its_own_data_and_pays_once(tables: Tables) -> None:
    DataBudget.create("budget", epsilon=20.0, delta=1e-4)
    run = hg.train(tables, out="run", budget="budget", **SETTINGS, **ENGINE)
    before = list_files()
    for other in (write_tables(Path("a"), first_train=20), write_tables(Path("b"), nodes=210)):
        with pytest.raises(RunError, match="give the data it began with"):
            hg.resume("run", other, **ENGINE)
        shutil.rmtree(other[0].parent)
    with pytest.raises(RunError, match="holds"):
        hg.train(tables, out="run", **SETTINGS, **ENGINE)
    assert hg.resume("run", tables, **ENGINE).result == run.result
    assert list_files() == before
    assert len(DataBudget.open("budget").charges) == 1
