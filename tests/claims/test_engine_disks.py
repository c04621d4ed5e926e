"""Promise: full disks, read-only ones and second callers cost a run on an engine no second board."""

from __future__ import annotations

import resource
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest

import hushgraph as hg
from hushgraph import _arrays
from hushgraph.billboard.board import save_board
from hushgraph.cli.app import main
from hushgraph.datasets.loading import load_graph
from hushgraph.errors import RunError, WriteError
from hushgraph.privacy.budget import DataBudget
from hushgraph.privacy.ledger import Ledger
from hushgraph.runs.folder import RunFolder
from hushgraph.training.parts import Parts

Tables = tuple[Path, Path]
ENGINE: dict[str, Any] = {"engine": "duckdb", "memory": "1GiB", "progress": False}
SETTINGS: dict[str, Any] = {"num_classes": 3, "epsilon": 4.0, "steps": 12, "hidden": 4, **ENGINE}
# Histograms, two boards and figures; and steps.
WHOLE = (4, 12)


@pytest.fixture
def tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tables:
    """Tables of 200 nodes; arrays of any size are kept in files."""
    monkeypatch.setattr(_arrays, "_LEAST_MAPPED", 1)
    (people := tmp_path / "people").mkdir()
    rng = np.random.default_rng(1)
    numbers, ends = np.arange(200), rng.integers(0, 200, (2, 600))
    split = np.where(numbers < 140, "train", np.where(numbers < 170, "val", "test"))
    nodes = {"id": numbers, "age": rng.normal(size=200), "label": numbers % 3, "split": split}
    for name, table in (("nodes", nodes), ("edges", {"source": ends[0], "target": ends[1]})):
        with duckdb.connect() as connection:
            connection.register("given", table)
            connection.execute(f"COPY (SELECT * FROM given) TO '{people}/{name}.parquet'")
    return people / "nodes.parquet", people / "edges.parquet"


def mount(*words: str) -> None:
    """Mount something, or skip the test where that is not allowed."""
    try:
        done = subprocess.run(["mount", *words], capture_output=True, text=True, check=False)
    except OSError as error:
        pytest.skip(f"cannot mount: {error}")
    if done.returncode:
        pytest.skip(f"cannot mount: {done.stderr.strip()}")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of its own, of 1 MiB."""
    place = tmp_path / "disk"
    place.mkdir()
    mount("-t", "tmpfs", "-o", "size=1m", "none", str(place))
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


def charges(path: Path) -> tuple[int, int]:
    ledger = Ledger.open(path / "ledger.jsonl", plan=RunFolder.open(path).plan, read_only=True)
    return ledger.releases_charged, ledger.steps_charged


def read_boards(path: Path) -> dict[str, bytes]:
    """The boards that anybody could have seen, also those of a release that is being made."""
    return {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*board-*")}


def contents(path: Path) -> dict[str, bytes]:
    """Every file below a folder, and what it holds."""
    return {str(file): file.read_bytes() for file in path.rglob("*") if file.is_file()}


def go_on(path: Path, tables: Tables) -> None:
    """Go on with a run, or begin it where nothing had been charged, and check that nothing was paid twice."""
    seen = read_boards(path)
    charged = charges(path) if (path / "run.json").exists() else (0, 0)
    # What is visible was paid for; a board of a release is that of its run.
    assert len({Path(name).name for name in seen}) <= max(0, charged[0] - 1)
    run = hg.resume(path, tables, **ENGINE) if (path / "run.json").exists() else train(path, tables)
    assert charges(path) == WHOLE
    assert run.epsilon <= 4.0
    assert all((path / Path(name).name).read_bytes() == board for name, board in seen.items())
    assert not list(path.rglob("*.draft*"))
    assert not path.with_name(f"{path.name}.work").exists()


def train(path: Path, tables: Tables) -> hg.Run:
    return hg.train(tables, out=path, **SETTINGS)


# From no room for the first table to room for all but the release.
@pytest.mark.parametrize("size", [4, 12, 28, 44, 60, 68, 76, 84, 92, 100, 116])
def test_a_disk_that_is_full_at_any_moment(size: int, disk: Path, tables: Tables) -> None:
    """A disk of so many KiB holds the run and its work space: one line, and with room it goes on."""
    mount("-o", f"remount,size={size}k", str(disk))
    said = "finished"
    try:
        train(disk / "run", tables)
    except WriteError as error:
        said = str(error)
        assert "No space left on device" in said
        assert "free space" in said
    mount("-o", "remount,size=1m", str(disk))
    assert said != "finished" or size > 60
    assert not (disk / "run.work").exists()
    go_on(disk / "run", tables)


@pytest.mark.parametrize("limit", [1, 5_000])
def test_a_database_that_cannot_grow_is_no_damaged_table(
    limit: int, tables: Tables, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 1, as of every disk that is full: tables that are wrong would be 2."""
    flags = ["--num-classes", "3", "--epsilon", "4", "--engine", "duckdb", "--quiet"]
    words = ["train", str(tables[0].parent), *flags, "--out", str(tmp_path / "run")]
    assert limited(limit, lambda: main(words)) == 1
    message = capsys.readouterr().err
    assert "no room for work space (File too large)" in message
    assert message.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["people"]


def test_tables_in_memory_need_a_disk_as_well(
    tables: Tables, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without an engine work space is among temporary files."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))

    def refuse() -> None:
        with pytest.raises(WriteError, match=r"tmp: no room for work space .* another disk by TMPDIR"):
            load_graph(tables, num_classes=3)

    limited(5_000, refuse)
    assert not list((tmp_path / "tmp").iterdir())


@pytest.mark.parametrize("place", [1, 2])
def test_a_board_that_does_not_fit_is_made_once_there_is_room(
    place: int, tables: Tables, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody has seen the board that did not fit: it is made again under its charge, the other is kept."""
    calls = 0

    def save(*given: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        return (
            limited(1_000, lambda: save_board(*given, **named))
            if calls == place
            else save_board(*given, **named)
        )

    real = Parts.__init__
    with monkeypatch.context() as patch:
        patch.setattr(Parts, "__init__", lambda self, **given: real(self, **{"save_board": save, **given}))
        with pytest.raises(WriteError, match=rf"board-{place}\.safetensors: .*File too large"):
            train(tmp_path / "run", tables)
    assert len(read_boards(tmp_path / "run")) == place - 1
    assert charges(tmp_path / "run")[0] == place + 1
    go_on(tmp_path / "run", tables)


def limited(size: int, call: Callable[[], Any]) -> Any:
    """Call this while no file may grow beyond so many bytes; Python ignores the signal that comes with it."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        return call()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.fixture
def store(disk: Path) -> Callable[[bool], Path]:
    """Makes the disk read-only, or writable again."""

    def set_mode(is_read_only: bool) -> Path:
        mount("-o", f"remount,{'ro' if is_read_only else 'rw'}", str(disk))
        return disk

    return set_mode


def test_a_read_only_store_is_refused_before_anything_is_charged(
    store: Callable[[bool], Path], tables: Tables, tmp_path: Path
) -> None:
    DataBudget.create(tmp_path / "budget", epsilon=20.0, delta=1e-4)
    before = contents(tmp_path)
    disk = store(True)
    for out in (disk / "run", disk / "deep" / "run"):
        with pytest.raises(WriteError, match=r"Read-only file system.*choose another folder"):
            hg.train(tables, out=out, budget=tmp_path / "budget", **SETTINGS)
    assert contents(tmp_path) == before


def test_a_run_in_a_store_that_became_read_only_goes_on_later(
    store: Callable[[bool], Path], tables: Tables
) -> None:
    class StoppedError(Exception):
        pass

    def stop(*_: Any) -> None:
        raise StoppedError

    run = store(False) / "run"
    with pytest.raises(StoppedError):
        hg.train(tables, out=run, observer=stop, **SETTINGS)
    before = contents(run)
    store(True)
    # With an engine it is its work space that finds out, without one the lock of the ledger.
    for how in (ENGINE, {"progress": False}):
        with pytest.raises(RunError, match="Read-only file system"):
            hg.resume(run, tables, **how)
    assert contents(run) == before
    store(False)
    go_on(run, tables)


def test_a_finished_run_is_read_from_a_read_only_store(store: Callable[[bool], Path], tables: Tables) -> None:
    run = train(store(False) / "run", tables)
    expected = run.predict(run.folder.read_graph(tables))
    disk = store(True)
    for path in (disk / "run", disk / "run" / "release"):
        loaded = hg.Run.load(path, device="cpu")
        assert np.array_equal(loaded.predict(loaded.folder.read_graph(tables)), expected)


def test_two_callers_of_one_run(tables: Tables, tmp_path: Path) -> None:
    """The second is refused and leaves the work space of the first alone; one run is paid for."""
    DataBudget.create(tmp_path / "budget", epsilon=20.0, delta=1e-4)
    path, said = tmp_path / "run", []

    def call_again(step: int, *_: Any) -> None:
        if step != 3:
            return
        (own,) = (tmp_path / "run.work").iterdir()
        with pytest.raises(RunError) as new:
            hg.train(tables, out=path, budget=tmp_path / "budget", **SETTINGS)
        with pytest.raises(RunError) as again:
            hg.resume(path, tables, **ENGINE)
        said.extend([str(new.value), str(again.value)])
        assert own.exists()

    hg.train(tables, out=path, budget=tmp_path / "budget", observer=call_again, **SETTINGS)
    assert "it holds a run already" in said[0]
    assert "another process is writing to it; wait for it to end" in said[1]
    assert charges(path) == WHOLE
    assert len(DataBudget.open(tmp_path / "budget").charges) == 1
    assert not (tmp_path / "run.work").exists()


def test_two_callers_who_read_the_tables_at_once(
    tables: Tables, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who comes second to an empty place leaves what the first made, and only one is paid for."""
    DataBudget.create(tmp_path / "budget", epsilon=20.0, delta=1e-4)
    given: dict[str, Any] = {"out": tmp_path / "run", "budget": tmp_path / "budget", **SETTINGS}
    real = RunFolder.start

    def start(folder: RunFolder) -> Ledger:
        with monkeypatch.context() as patch:
            patch.setattr(RunFolder, "start", real)
            hg.train(tables, **given)
        return real(folder)

    monkeypatch.setattr(RunFolder, "start", start)
    with pytest.raises(RunError, match="it holds a run already"):
        hg.train(tables, **given)
    assert charges(tmp_path / "run") == WHOLE
    assert len(DataBudget.open(tmp_path / "budget").charges) == 1
    assert not (tmp_path / "run.work").exists()
