"""Promise: on an engine too, at most one board is ever visible under one charge."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest

from benchmark_scripts import ROOT, script
from effort import choose
from hushgraph._files import draft_path
from hushgraph.billboard.board import digest_board, load_board
from hushgraph.engines import duck_phases, make_rows, released, resume_rows, train_rows
from hushgraph.errors import RunError
from hushgraph.privacy.ledger import Ledger
from hushgraph.privacy.lines import write_line
from hushgraph.runs.folder import RunFolder

NODES, CLASSES = 300, 2
SETTINGS: dict[str, Any] = {"edge_owner": "sender", "num_classes": CLASSES, "epsilon": 4.0, "steps": 3}
SETTINGS |= {"hidden": 4, "threads": 1}
SAVED = "board-1.safetensors"
VALUES = "board.values"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tables, and `one` and `two`, runs on them with rows and the same plan, not trained."""
    home = tmp_path_factory.mktemp("runs")
    rng = np.random.default_rng(1)
    split = np.where(np.arange(NODES) % 4, "train", "test")
    cells = {"id": np.arange(NODES), "age": rng.normal(size=NODES), "label": np.arange(NODES) % CLASSES}
    ends = rng.integers(0, NODES, (2, 900))
    pairs = {"source": ends[0], "target": ends[1]}
    for name, table in (("nodes", cells | {"split": split}), ("edges", pairs)):
        with duckdb.connect() as connection:
            connection.register("given", table)
            connection.execute(f"COPY (SELECT * FROM given) TO '{home}/{name}.parquet'")
    for name in ("one", "two"):
        make_rows(home / "nodes.parquet", home / "edges.parquet", home / name, **SETTINGS)
    return home


@pytest.fixture
def run(home: Path, tmp_path: Path) -> Path:
    """A copy of `one`."""
    for ending in ("", ".rows"):
        shutil.copytree(home / f"one{ending}", tmp_path / f"run{ending}")
    return tmp_path / "run"


def begin(home: Path, out: Path, **changes: Any) -> RunFolder:
    return make_rows(home / "nodes.parquet", home / "edges.parquet", out, **(SETTINGS | changes))


def resume(home: Path, out: Path) -> RunFolder:
    return resume_rows(out, home / "nodes.parquet", home / "edges.parquet", threads=1)


def board_of(out: Path) -> np.ndarray:
    with duckdb.connect() as connection:
        part = connection.execute(f"SELECT * FROM read_parquet('{out}/board/*.parquet')").fetchnumpy()
    return np.stack([part[f"class_{k}"] for k in range(CLASSES)], axis=1)


def digest(out: Path) -> str:
    std = float.fromhex(json.loads((out / "board" / "board.json").read_text())["noise_std"])
    saved = load_board(out / SAVED)
    assert np.array_equal(saved.values, board_of(out))
    assert saved.noise_std == std
    return digest_board([board_of(out)], std)


def open_ledger(out: Path) -> Ledger:
    return Ledger.open(out / "ledger.jsonl", read_only=True)


def visible(out: Path) -> list[str]:
    """Every file that shows numbers of a board, by its name."""
    names = [path for path in out.parent.rglob("*board*") if path.name != "board.json"]
    return sorted(str(path.relative_to(out.parent)) for path in names if path.is_file())


def refuse(home: Path, out: Path, *words: str) -> None:
    """Resuming ends with an error that says what happened, and leaves nothing new behind."""
    before, files = visible(out), set(out.parent.rglob("*"))
    for _ in range(2):
        with pytest.raises(RunError) as caught:
            resume(home, out)
        for word in (*words, "charges the data anew"):
            assert word in str(caught.value)
    assert visible(out) == before
    assert set(out.parent.rglob("*")) <= files


def test_a_board_that_was_moved_away_is_not_made_again(home: Path, run: Path) -> None:
    away = run.parent / "published"
    (run / "board").rename(away)
    (run / SAVED).unlink()
    shutil.rmtree(f"{run}.rows")
    refuse(home, run, "board-1 was released and is missing")
    assert open_ledger(run).releases_charged == 1
    away.rename(run / "board")
    resume(home, run)
    assert digest(run) == digest(home / "one") == open_ledger(run).releases["board-1"]
    assert train_rows(run).result["guarantee"] == "holds"


def test_nor_is_one_whose_rows_are_still_there(home: Path, run: Path) -> None:
    (run / "board").rename(run.parent / "published")
    refuse(home, run, "board-1 was released and is missing")
    with pytest.raises(RunError, match="board-1 was released and is missing"):
        train_rows(run)


def test_another_board_in_its_place_ends_the_run(home: Path, run: Path) -> None:
    """Of a run with the same plan, so that nothing but the digest tells them apart."""
    shutil.rmtree(run / "board")
    shutil.copytree(home / "two" / "board", run / "board")
    refuse(home, run, "board-1", "not the one that this run released")
    with pytest.raises(RunError, match="not the one that this run released"):
        train_rows(run)


def test_the_file_for_predictions_shows_the_same_board(home: Path, run: Path) -> None:
    before = digest(run)
    (run / SAVED).unlink()
    resume(home, run)
    assert digest(run) == before
    shutil.copyfile(home / "two" / SAVED, run / SAVED)
    refuse(home, run, "board-1", "not the one that this run released")


def test_a_ledger_without_releases_leaves_nothing_to_guess(home: Path, run: Path) -> None:
    entries = [json.loads(line) for line in (run / "ledger.jsonl").read_text().splitlines()]
    lines, checksum = [], ""
    for entry in [entries[0] | {"ledger": 1}, *(each for each in entries[1:] if "charge" in each)]:
        entry.pop("sum")
        line, checksum = write_line(entry, after=checksum)
        lines.append(line)
    (run / "ledger.jsonl").write_bytes(b"".join(lines))
    board = (run / "board").rename(run.parent / "published")
    refuse(home, run, "does not tell whether it was released")
    board.rename(run / "board")
    resume(home, run)
    assert digest(run) == digest(home / "one")


def test_a_board_without_a_charge_is_refused(home: Path, tmp_path: Path) -> None:
    def add_board(phase: str) -> None:
        if phase == "make board":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        begin(home, tmp_path / "run", on_phase=add_board)
    lines = (tmp_path / "run" / "ledger.jsonl").read_bytes().splitlines(keepends=True)
    (tmp_path / "run" / "ledger.jsonl").write_bytes(lines[0])
    shutil.copytree(home / "one" / "board", tmp_path / "run" / "board")
    with pytest.raises(RunError, match="no charge for board-1"):
        resume(home, tmp_path / "run")


@pytest.mark.parametrize("has_unnamed_files", [True, False])
def test_the_ledger_speaks_before_a_number_is_visible(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_unnamed_files: bool
) -> None:
    out, seen = tmp_path / "run", []
    record = Ledger.record_release

    def watch(self: Ledger, name: str, digest: str | None) -> None:
        seen.append((digest is not None, visible(out)))
        record(self, name, digest)

    if not has_unnamed_files:
        monkeypatch.delattr(os, "O_TMPFILE")
    monkeypatch.setattr(Ledger, "record_release", watch)
    begin(home, out)
    draft = f"run.work/{VALUES}.draft"
    assert seen == ([(True, [])] if has_unnamed_files else [(False, []), (True, [draft])])
    assert open_ledger(out).releases == {"board-1": digest(out)}


def in_child(work: Callable[[], Any]) -> None:
    """Do something in a child that kills itself on the way."""
    child = os.fork()
    if not child:
        try:
            work()
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status)


def die(*given: Any, **named: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def after(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*given: Any, **named: Any) -> None:
        function(*given, **named)
        die()

    return call


def kill_at(home: Path, out: Path, patch: Callable[[], None], *, unnamed: bool = True) -> None:
    def work() -> None:
        if not unnamed:
            del os.O_TMPFILE
        patch()
        begin(home, out)

    in_child(work)
    assert open_ledger(out).releases_charged == 1


def test_a_kill_before_the_release_costs_nothing(home: Path, tmp_path: Path) -> None:
    def patch() -> None:
        Ledger.record_release = die  # type: ignore[method-assign]

    out = tmp_path / "run"
    kill_at(home, out, patch)
    assert visible(out) == []
    resume(home, out)
    assert open_ledger(out).releases_charged == 1
    assert open_ledger(out).releases == {"board-1": digest(out)}


def test_a_kill_after_the_line_ends_the_run(home: Path, tmp_path: Path) -> None:
    def patch() -> None:
        Ledger.record_release = after(Ledger.record_release)  # type: ignore[method-assign]

    out = tmp_path / "run"
    kill_at(home, out, patch)
    assert visible(out) == []
    refuse(home, out, "board-1 was released and is missing")


def kill_when_named() -> None:
    released.name_file = after(released.name_file)


def kill_while_rendered() -> None:
    duck_phases.write_about = die  # type: ignore[assignment]


def kill_when_published() -> None:
    duck_phases.publish = after(duck_phases.publish)


@pytest.mark.parametrize("patch", [kill_when_named, kill_while_rendered, kill_when_published])
def test_a_kill_after_the_name_leaves_one_board(
    home: Path, tmp_path: Path, patch: Callable[[], None]
) -> None:
    out = tmp_path / "run"
    kill_at(home, out, patch)
    assert f"run.work/{VALUES}" in visible(out)
    values = np.fromfile(tmp_path / "run.work" / VALUES, "<f4", NODES * CLASSES).reshape(NODES, CLASSES)
    resume(home, out)
    assert np.array_equal(board_of(out), values)
    assert open_ledger(out).releases == {"board-1": digest(out)}
    assert not Path(f"{out}.work").exists()


def kill_before_the_name() -> None:
    replace = os.replace
    os.replace = lambda old, new: die() if Path(new).name == VALUES else replace(old, new)


def test_without_unnamed_files_a_complete_draft_is_the_board(home: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    kill_at(home, out, kill_before_the_name, unnamed=False)
    draft = draft_path(tmp_path / "run.work" / VALUES)
    values = np.fromfile(draft, "<f4", NODES * CLASSES).reshape(NODES, CLASSES)
    # The line with the digest may be missing too.
    lines = (out / "ledger.jsonl").read_bytes().splitlines(keepends=True)
    (out / "ledger.jsonl").write_bytes(b"".join(lines[:-1]))
    assert open_ledger(out).releases == {"board-1": None}
    resume(home, out)
    assert np.array_equal(board_of(out), values)
    assert open_ledger(out).releases == {"board-1": digest(out)}


@pytest.mark.parametrize("keep", [0, 1_000, -1])
def test_without_unnamed_files_an_incomplete_draft_ends_the_run(
    home: Path, tmp_path: Path, keep: int
) -> None:
    out = tmp_path / "run"
    kill_at(home, out, kill_before_the_name, unnamed=False)
    draft = draft_path(tmp_path / "run.work" / VALUES)
    draft.write_bytes(draft.read_bytes()[:keep])
    refuse(home, out, VALUES, "not complete")
    draft.unlink()
    refuse(home, out, "board-1 was released and is missing")


def test_without_unnamed_files_a_failure_while_it_is_written_ends_the_run(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(count: int) -> np.ndarray:
        raise KeyboardInterrupt

    monkeypatch.delattr(os, "O_TMPFILE")
    with pytest.raises(KeyboardInterrupt):
        begin(home, tmp_path / "run", draws=fail)
    refuse(home, tmp_path / "run", "not complete")


def test_a_disk_without_space_costs_nothing(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(descriptor: int) -> None:
        if os.fstat(descriptor).st_nlink == 0:
            raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(released.os, "fsync", fail)
        with pytest.raises(RunError, match="free space"):
            begin(home, tmp_path / "run")
    resume(home, tmp_path / "run")
    assert open_ledger(tmp_path / "run").releases == {"board-1": digest(tmp_path / "run")}


def test_a_resume_with_another_memory_limit_writes_every_row_once(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ranges of rows follow from the limit, and files of the first life hold other ranges."""
    out, written = tmp_path / "run", 0

    def rename(self: Path, target: Path) -> None:
        nonlocal written
        written += 1
        os.rename(self, target)
        if written == 2:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(duck_phases.Phases, "_most_rows", 100)
        patch.setattr(Path, "rename", rename)
        with pytest.raises(KeyboardInterrupt):
            begin(home, out)
    with monkeypatch.context() as patch:
        patch.setattr(duck_phases.Phases, "_most_rows", 120)
        resume(home, out)
    with duckdb.connect() as connection:
        ids = connection.execute(f"SELECT id FROM read_parquet('{out}.rows/*.parquet')").fetchnumpy()["id"]
    assert ids.tolist() == list(range(NODES))


def test_kills_show_no_more_boards_than_are_charged(tmp_path: Path) -> None:
    """In memory and on DuckDB; benchmarks/kills_boards.py kills 200 times."""
    record = tmp_path / "record.json"
    script = ROOT / "benchmarks" / "kills_boards.py"
    command = [sys.executable, str(script), "--kills", str(choose(6, 200)), "--record", str(record)]
    subprocess.run(command, check=True, timeout=300, stdout=subprocess.DEVNULL)
    found = json.loads(record.read_text())
    assert all(found[kind]["kills"] >= 3 for kind in ("memory", "duckdb"))


def test_the_search_for_boards_finds_them_in_parts_of_files(run: Path) -> None:
    """What counts boards in benchmarks/kills_boards.py must not miss one that is compressed or cut short."""
    search = script("kills_boards")
    signs = search.sign(board_of(run))
    other = search.sign(np.random.default_rng(1).normal(size=(NODES, CLASSES)).astype(np.float32))
    part = next((run / "board").glob("*.parquet"))
    for content in (part.read_bytes(), part.read_bytes()[: part.stat().st_size // 2]):
        (run / "copy").write_bytes(content)
        watcher = search.Watcher(run)
        assert watcher._shows(content, run / "copy", [("", signs)])
        assert not watcher._shows(content, run / "copy", [("", other)])
    saved = (run / SAVED).read_bytes()
    assert search.Watcher(run)._shows(saved[len(saved) // 2 :], run / SAVED, [("", signs)])
