"""Promise: under one charge at most one board is ever visible, whatever happens to the folder of a run."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hushgraph as hg
from hushgraph import _files
from hushgraph.billboard.board import digest_board, load_board
from hushgraph.errors import RunError
from hushgraph.figures.tables import NoisyTables
from hushgraph.graph.graph import Graph
from hushgraph.privacy.ledger import Ledger
from hushgraph.privacy.lines import write_line
from hushgraph.runs.folder import RunFolder

SETTINGS: dict[str, Any] = {"epsilon": 2.0, "steps": 12, "hidden": 4, "device": "cpu"}
FIRST, SECOND = "board-1.safetensors", "board-2.safetensors"


class StoppedError(Exception):
    """Ends a run at once; Ctrl-C would let it take the steps that are charged."""


@pytest.fixture(scope="module")
def graph() -> Graph:
    return hg.datasets.synthetic(num_nodes=120, num_classes=3, num_features=6, average_degree=4, seed=1)


@pytest.fixture(scope="module")
def runs(graph: Graph, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run stopped before its first board, one after it, one after its second, and one that is done."""
    home = tmp_path_factory.mktemp("runs")

    def stop_at(step: int) -> Callable[..., None]:
        def stop(done: int, *others: Any) -> None:
            if done >= step:
                raise StoppedError

        return stop

    def stop_at_start(folder: Any) -> None:
        raise StoppedError

    with pytest.raises(StoppedError):
        hg.train(graph, out=home / "new", on_start=stop_at_start, **SETTINGS)
    for name, step in (("one", 1), ("two", 10)):
        with pytest.raises(StoppedError):
            hg.train(graph, out=home / name, observer=stop_at(step), **SETTINGS)
    hg.train(graph, out=home / "done", **SETTINGS)
    assert not (home / "one" / SECOND).exists()
    assert (home / "two" / SECOND).exists()
    return home


@pytest.fixture
def copied(request: pytest.FixtureRequest, runs: Path, tmp_path: Path) -> Path:
    shutil.copytree(runs / request.param, tmp_path / "run")
    return tmp_path / "run"


def run_of(name: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("copied", [name], indirect=True)


def digest(path: Path) -> str:
    board = load_board(path)
    return digest_board([board.values], board.noise_std)


def releases_charged(path: Path) -> int:
    plan = RunFolder.open(path).plan
    return Ledger.open(path / "ledger.jsonl", plan=plan, read_only=True).releases_charged


def cut_ledger(path: Path, keep: Callable[[dict[str, Any]], bool], **header: Any) -> None:
    """Write the ledger anew with these lines alone, as if the others had never been written."""
    entries = [json.loads(line) for line in (path / "ledger.jsonl").read_text().splitlines()]
    checksum, lines = "", []
    for entry in [entries[0] | header, *filter(keep, entries[1:])]:
        entry.pop("sum")
        line, checksum = write_line(entry, after=checksum)
        lines.append(line)
    (path / "ledger.jsonl").write_bytes(b"".join(lines))


def forget_steps(path: Path, **header: Any) -> None:
    """Leave the charge of the first board alone, as if the run had been killed right after it."""
    cut_ledger(path, lambda entry: entry.get("charge", {}).get("kind") == "board", **header)
    for name in ("checkpoint.safetensors", "metrics.jsonl"):
        (path / name).unlink(missing_ok=True)


def refuse(path: Path, graph: Graph, *words: str) -> None:
    """Resuming ends with an error that says what happened and that the data must be charged anew."""
    with pytest.raises(RunError) as caught:
        hg.resume(path, graph, device="cpu")
    for word in words:
        assert word in str(caught.value)


@run_of("one")
def test_a_board_that_was_moved_away_is_not_made_again(copied: Path, graph: Graph) -> None:
    (copied / FIRST).rename(copied.parent / "published")
    for _ in range(3):
        refuse(copied, graph, "board-1", "missing", "charges the data anew")
        assert not list(copied.glob("*board*"))
    (copied.parent / "published").rename(copied / FIRST)
    assert hg.resume(copied, graph, device="cpu").result["guarantee"] == "holds"


@run_of("two")
@pytest.mark.parametrize("name", [FIRST, SECOND])
def test_nor_is_either_of_two(copied: Path, graph: Graph, name: str) -> None:
    (copied / name).unlink()
    refuse(copied, graph, name.removesuffix(".safetensors"), "charges the data anew")


@run_of("one")
def test_a_later_charge_is_enough(copied: Path, graph: Graph) -> None:
    """A ledger that lost the line about the release still shows that the run went on after it."""
    cut_ledger(copied, lambda entry: "released" not in entry)
    (copied / FIRST).unlink()
    refuse(copied, graph, "board-1", "the run went on", "charges the data anew")


@run_of("one")
def test_ledgers_without_releases_leave_nothing_to_guess(copied: Path, graph: Graph) -> None:
    """Version 1 recorded no release, so a board that is charged and missing may have been visible."""
    (copied / FIRST).unlink()
    forget_steps(copied, ledger=1)
    assert releases_charged(copied) == 1
    refuse(copied, graph, "board-1", "does not tell", "charges the data anew")


@run_of("one")
def test_a_board_of_a_ledger_without_releases_is_used(copied: Path, graph: Graph) -> None:
    before = digest(copied / FIRST)
    cut_ledger(copied, lambda entry: "released" not in entry, ledger=1)
    run = hg.resume(copied, graph, device="cpu")
    assert digest(copied / FIRST) == before
    assert run.result["guarantee"] == "holds"


@run_of("one")
def test_another_board_in_its_place_ends_the_run(copied: Path, graph: Graph, runs: Path) -> None:
    """Of a run with the same plan, so that nothing but the digest tells them apart."""
    shutil.copyfile(runs / "two" / FIRST, copied / FIRST)
    refuse(copied, graph, "board-1", "not the one that this run released", "charges the data anew")


@run_of("done")
def test_another_board_in_a_finished_run_is_found(copied: Path, runs: Path) -> None:
    assert hg.Run.load(copied, device="cpu").result["guarantee"] == "holds"
    shutil.copyfile(runs / "two" / FIRST, copied / FIRST)
    with pytest.raises(RunError, match="not the one that this run released"):
        hg.Run.load(copied, device="cpu")


@run_of("done")
def test_nor_is_it_published(copied: Path, graph: Graph, runs: Path) -> None:
    """A kill may have come before the release, so that resuming makes it."""
    shutil.rmtree(copied / "release")
    kept = (copied / FIRST).read_bytes()
    shutil.copyfile(runs / "two" / FIRST, copied / FIRST)
    refuse(copied, graph, "board-1", "not the one that this run released")
    assert not (copied / "release").exists()
    (copied / FIRST).write_bytes(kept)
    hg.resume(copied, graph, device="cpu")
    assert (copied / "release" / FIRST).read_bytes() == kept


@run_of("new")
def test_a_board_without_a_charge_is_refused(copied: Path, graph: Graph, runs: Path) -> None:
    shutil.copyfile(runs / "one" / FIRST, copied / FIRST)
    refuse(copied, graph, "no charge for board-1")


@run_of("one")
@pytest.mark.parametrize("has_line", [True, False])
def test_a_complete_draft_is_the_board(copied: Path, graph: Graph, has_line: bool) -> None:
    before = digest(copied / FIRST)
    (copied / FIRST).rename(copied / f"{FIRST}.draft")
    if not has_line:
        forget_steps(copied)
    hg.resume(copied, graph, device="cpu")
    assert digest(copied / FIRST) == before
    assert not (copied / f"{FIRST}.draft").exists()


@run_of("new")
def test_an_incomplete_draft_ends_the_run(copied: Path, graph: Graph, runs: Path) -> None:
    """It shows numbers of a board, and nobody can tell how many."""
    content = (runs / "one" / FIRST).read_bytes()
    (copied / f"{FIRST}.draft").write_bytes(content[: len(content) // 2])
    with Ledger.open(copied / "ledger.jsonl") as ledger:
        ledger.charge(RunFolder.open(copied).plan.charges[0])
    refuse(copied, graph, f"{FIRST}.draft", "is not complete", "charges the data anew")
    assert not (copied / FIRST).exists()


def resume_and_die(path: Path, graph: Graph, at: str) -> None:
    """Resume in a child that is killed just before, or just after, the line about the first board."""
    child = os.fork()
    if not child:
        record = Ledger.record_release

        def die(self: Ledger, name: str, digest: str | None) -> None:
            if at == "after":
                record(self, name, digest)
            os.kill(os.getpid(), signal.SIGKILL)

        Ledger.record_release = die  # type: ignore[method-assign]
        hg.resume(path, graph, device="cpu")
        os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status)


@run_of("new")
def test_a_kill_before_the_release_costs_nothing(copied: Path, graph: Graph) -> None:
    """Nothing of that board had a name, so that the charge pays for the next one."""
    resume_and_die(copied, graph, "before")
    assert not list(copied.glob("*board*"))
    assert releases_charged(copied) == 1
    assert hg.resume(copied, graph, device="cpu").result["guarantee"] == "holds"
    # Two boards, and the figures.
    assert releases_charged(copied) == 3


@run_of("new")
def test_a_kill_after_the_line_ends_the_run(copied: Path, graph: Graph) -> None:
    """Nobody can tell whether the board was there and was taken away."""
    resume_and_die(copied, graph, "after")
    assert not list(copied.glob("*board*"))
    refuse(copied, graph, "board-1 was released and is missing", "charges the data anew")


@run_of("new")
@pytest.mark.parametrize("has_unnamed_files", [True, False])
def test_the_ledger_has_the_digest_before_the_board_has_a_name(
    copied: Path, graph: Graph, monkeypatch: pytest.MonkeyPatch, has_unnamed_files: bool
) -> None:
    visible: list[list[str]] = []
    record = Ledger.record_release

    def watch(self: Ledger, name: str, digest: str | None) -> None:
        found = (file.name for pattern in ("*board*", "*figures*") for file in copied.glob(pattern))
        visible.append(sorted(found))
        record(self, name, digest)

    if not has_unnamed_files:
        monkeypatch.delattr(os, "O_TMPFILE")
    monkeypatch.setattr(Ledger, "record_release", watch)
    hg.resume(copied, graph, device="cpu")
    assert visible == [[], [FIRST], [FIRST, SECOND]]
    releases = Ledger.open(copied / "ledger.jsonl", read_only=True).releases
    boards = {"board-1": digest(copied / FIRST), "board-2": digest(copied / SECOND)}
    plan = RunFolder.open(copied).plan.fingerprint()
    assert releases == boards | {"figures": NoisyTables.load(copied / "figures.json", plan=plan).digest}


@run_of("new")
def test_a_disk_without_space_for_the_board_costs_nothing(
    copied: Path, graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*given: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(_files.os, "fsync", lambda file: fail() if _is_unnamed(file) else None)
        with pytest.raises(RunError, match="free space"):
            hg.resume(copied, graph, device="cpu")
    assert hg.resume(copied, graph, device="cpu").result["guarantee"] == "holds"


def _is_unnamed(descriptor: int) -> bool:
    return os.fstat(descriptor).st_nlink == 0


@run_of("one")
def test_a_torn_line_about_a_release_counts_as_one(copied: Path, graph: Graph) -> None:
    file = copied / "ledger.jsonl"
    lines = file.read_bytes().splitlines(keepends=True)
    at = next(i for i, line in enumerate(lines) if b"released" in line)
    file.write_bytes(b"".join(lines[:at]) + lines[at][:40])
    for name in ("checkpoint.safetensors", "metrics.jsonl"):
        (copied / name).unlink(missing_ok=True)
    kept = (copied / FIRST).read_bytes()
    (copied / FIRST).unlink()
    refuse(copied, graph, "board-1 was released and is missing")
    (copied / FIRST).write_bytes(kept)
    assert hg.resume(copied, graph, device="cpu").result["guarantee"] == "holds"


@run_of("one")
@pytest.mark.parametrize("length", [3, 40, 120])
def test_a_torn_line_about_a_step_does_not_end_the_run(copied: Path, graph: Graph, length: int) -> None:
    """As on a full disk. It counts as the second board, which comes later and has not been visible."""
    file = copied / "ledger.jsonl"
    steps = next(
        line for line in file.read_bytes().splitlines() if b"row-steps" in line and b"plan" not in line
    )
    file.write_bytes(file.read_bytes() + steps[:length])
    run = hg.resume(copied, graph, device="cpu")
    assert run.result["guarantee"] == "holds"
    assert releases_charged(copied) == 3
    # It is made once, as any other.
    (copied / SECOND).unlink()
    (copied / "weights.safetensors").unlink()
    refuse(copied, graph, "board-2 was released and is missing")


@run_of("two")
def test_the_weights_that_a_second_board_came_from_are_not_written_again(copied: Path, graph: Graph) -> None:
    """Later weights in their place would be taken for what the ballots on it came from."""
    halfway = copied / "halfway.safetensors"
    kept = halfway.rename(copied.parent / "kept")
    refuse(copied, graph, "halfway.safetensors is missing", "restore it")
    shutil.copyfile(kept, halfway)
    assert hg.resume(copied, graph, device="cpu").result["guarantee"] == "holds"
    assert halfway.read_bytes() == kept.read_bytes()


def test_digests_tell_boards_apart_and_not_their_parts() -> None:
    values = np.arange(12, dtype=np.float32).reshape(6, 2)
    whole = digest_board([values], 1.0)
    assert digest_board([values[:1], values[1:]], 1.0) == whole
    assert digest_board([values[::-1]], 1.0) != whole
    assert digest_board([values], 2.0) != whole
