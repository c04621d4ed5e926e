"""Promise: one charge to a budget pays for one run, however often the folder of the run is copied."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hushgraph as hg
from hushgraph.errors import BudgetExceededError, InputError, RunError, WriteError
from hushgraph.graph.graph import Graph
from hushgraph.privacy import budget as budgets
from hushgraph.privacy.budget import DataBudget
from hushgraph.privacy.ledger import Ledger
from hushgraph.privacy.ledger_copy import LedgerCopy
from hushgraph.privacy.lines import read_line, write_line
from hushgraph.runs.checkpoint import read_progress
from hushgraph.training.parts import Parts

REFUSED = "another folder went on with it, or this one is an older copy"
SETTINGS: dict[str, Any] = {"epsilon": 1.0, "hidden": 8, "steps": 6, "device": "cpu", "model": "mlp"}


class StopError(Exception):
    """Ends a session from within."""


@pytest.fixture(scope="module")
def graph() -> Graph:
    return hg.datasets.synthetic(num_nodes=120, num_classes=3, num_features=6, average_degree=4)


@pytest.fixture
def budget(tmp_path: Path) -> Path:
    return DataBudget.create(tmp_path / "people.ledger", epsilon=20.0, delta=1e-6).path


def stop(*_: Any, **__: Any) -> None:
    raise StopError


def begin(graph: Graph, out: Path, budget: Path, **others: Any) -> None:
    """Begin a run and stop before its first step."""
    with pytest.raises(StopError):
        hg.train(graph, out=out, budget=budget, on_start=stop, **SETTINGS | others)


def take_step(path: Path, graph: Graph) -> None:
    """Go on with a run and stop after a step."""

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        hg.resume(path, graph, device="cpu", observer=interrupt)


def count_charges(budget: Path) -> int:
    return len(DataBudget.open(budget).charges)


def read_all(path: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in path.iterdir()}


@pytest.mark.parametrize("method", ["billboard", "trees"])
def test_of_four_copies_one_goes_on(tmp_path: Path, graph: Graph, budget: Path, method: str) -> None:
    model = {"model": None} if method == "billboard" else {}
    begin(graph, tmp_path / "r0", budget, method=method, **model)
    for number in (1, 2, 3):
        shutil.copytree(tmp_path / "r0", tmp_path / f"r{number}")
    # A copy may be the one that goes on: it is told from nothing but a folder that was moved.
    hg.resume(tmp_path / "r2", graph, device="cpu")
    for number in (0, 1, 3):
        before = read_all(tmp_path / f"r{number}")
        with pytest.raises(RunError, match=REFUSED) as raised:
            hg.resume(tmp_path / f"r{number}", graph, device="cpu")
        assert "\n" not in str(raised.value)
        assert read_all(tmp_path / f"r{number}") == before
    assert count_charges(budget) == 1


def test_a_moved_folder_goes_on_without_a_charge(tmp_path: Path, graph: Graph, budget: Path) -> None:
    begin(graph, tmp_path / "first", budget)
    (tmp_path / "first").rename(tmp_path / "second")
    take_step(tmp_path / "second", graph)
    # To another disk: a copy, and the original is gone.
    shutil.copytree(tmp_path / "second", tmp_path / "elsewhere" / "third")
    shutil.rmtree(tmp_path / "second")
    run = hg.resume(tmp_path / "elsewhere" / "third", graph, device="cpu")
    assert run.result["steps_lost"] == 0
    assert count_charges(budget) == 1


def test_a_copy_of_a_run_that_goes_on_is_refused_whatever_ends_it(
    tmp_path: Path, graph: Graph, budget: Path
) -> None:
    """The copy is made while a session goes on, which has begun with the newest line."""

    def copy(*_: Any) -> None:
        shutil.copytree(tmp_path / "run", tmp_path / "copy")

    hg.train(graph, out=tmp_path / "run", budget=budget, on_start=copy, **SETTINGS)
    with pytest.raises(RunError, match=REFUSED):
        hg.resume(tmp_path / "copy", graph, device="cpu")
    assert count_charges(budget) == 1


def test_a_copy_of_a_run_that_is_killed_is_refused(tmp_path: Path, graph: Graph, budget: Path) -> None:
    """No session can note that it ends where it is killed, so every charge is noted before it is used."""
    begin(graph, tmp_path / "run", budget)
    program = """
import os, shutil, signal, sys
import hushgraph as hg
graph = hg.datasets.synthetic(num_nodes=120, num_classes=3, num_features=6, average_degree=4)
def copy(folder):
    shutil.copytree(sys.argv[1], sys.argv[2])
def kill(done, total, *_):
    if done == total - 1:
        os.kill(os.getpid(), signal.SIGKILL)
hg.resume(sys.argv[1], graph, device="cpu", on_start=copy, observer=kill)
"""
    command = [sys.executable, "-c", program, str(tmp_path / "run"), str(tmp_path / "copy")]
    killed = subprocess.run(command, timeout=120, check=False)
    assert killed.returncode == -signal.SIGKILL
    with pytest.raises(RunError, match=REFUSED):
        hg.resume(tmp_path / "copy", graph, device="cpu")
    run = hg.resume(tmp_path / "run", graph, device="cpu")
    assert run.result["steps_lost"] > 0
    assert count_charges(budget) == 1


def test_a_copy_from_before_a_board_was_released_is_refused(
    tmp_path: Path, graph: Graph, budget: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The board is charged in both, and the first released it: another one would be a second release."""
    save = Parts().save_board

    def copy_and_save(*arguments: Any) -> None:
        shutil.copytree(tmp_path / "run", tmp_path / "copy")
        save(*arguments)
        raise StopError

    with monkeypatch.context() as patch:
        patch.setattr("hushgraph.training.train.Parts", partial(Parts, save_board=copy_and_save))
        with pytest.raises(StopError):
            hg.train(graph, out=tmp_path / "run", budget=budget, **SETTINGS | {"model": None})
    assert Ledger.open(tmp_path / "copy" / "ledger.jsonl", read_only=True).releases_charged == 1
    with pytest.raises(RunError, match=REFUSED):
        hg.resume(tmp_path / "copy", graph, device="cpu")
    hg.resume(tmp_path / "run", graph, device="cpu")
    assert count_charges(budget) == 1


def test_a_board_that_is_missing_is_found_before_a_charge(tmp_path: Path, graph: Graph, budget: Path) -> None:
    begin(graph, tmp_path / "run", budget, model=None)
    take_step(tmp_path / "run", graph)
    (tmp_path / "run" / "board-1.safetensors").unlink()
    with pytest.raises(RunError, match="was released and is missing"):
        hg.resume(tmp_path / "run", graph, device="cpu", charge_again=True)
    assert count_charges(budget) == 1


def test_a_folder_put_back_as_it_was_is_refused(tmp_path: Path, graph: Graph, budget: Path) -> None:
    begin(graph, tmp_path / "run", budget)
    take_step(tmp_path / "run", graph)
    shutil.copytree(tmp_path / "run", tmp_path / "backup")
    take_step(tmp_path / "run", graph)
    shutil.rmtree(tmp_path / "run")
    shutil.copytree(tmp_path / "backup", tmp_path / "run")
    with pytest.raises(RunError, match=REFUSED):
        hg.resume(tmp_path / "run", graph, device="cpu")


def test_two_copies_at_once(tmp_path: Path, graph: Graph, budget: Path) -> None:
    begin(graph, tmp_path / "run", budget)
    shutil.copytree(tmp_path / "run", tmp_path / "copy")
    refused = []

    def resume_other(*_: Any) -> None:
        with pytest.raises(RunError, match="another process goes on with this run, from another folder"):
            hg.resume(tmp_path / "copy", graph, device="cpu")
        refused.append(True)

    hg.resume(tmp_path / "run", graph, device="cpu", on_start=resume_other)
    assert refused
    assert count_charges(budget) == 1


class TestKilledBetweenTwoWrites:
    """Whatever was written last, the run goes on with one charge, and of two copies one does."""

    def check(self, tmp_path: Path, graph: Graph, budget: Path) -> None:
        shutil.copytree(tmp_path / "run", tmp_path / "copy")
        hg.resume(tmp_path / "run", graph, device="cpu")
        assert count_charges(budget) == 1
        with pytest.raises(RunError, match=REFUSED):
            hg.resume(tmp_path / "copy", graph, device="cpu")
        assert count_charges(budget) == 1

    @pytest.mark.parametrize("name", ["make_copy", "_append"])
    def test_folder_and_charge(
        self, tmp_path: Path, graph: Graph, budget: Path, monkeypatch: pytest.MonkeyPatch, name: str
    ) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(budgets, name, stop)
            with pytest.raises(StopError):
                hg.train(graph, out=tmp_path / "run", budget=budget, **SETTINGS)
        assert count_charges(budget) == 0
        self.check(tmp_path, graph, budget)

    def test_charge_and_first_session(
        self, tmp_path: Path, graph: Graph, budget: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(LedgerCopy, "claim", stop)
            with pytest.raises(StopError):
                hg.train(graph, out=tmp_path / "run", budget=budget, **SETTINGS)
        assert count_charges(budget) == 1
        self.check(tmp_path, graph, budget)

    @pytest.mark.parametrize("lines", [0, 1, 3])
    def test_ledger_and_its_copy(
        self, tmp_path: Path, graph: Graph, budget: Path, monkeypatch: pytest.MonkeyPatch, lines: int
    ) -> None:
        begin(graph, tmp_path / "run", budget)
        append, left = LedgerCopy.append, [lines]

        def cut(self: LedgerCopy, line: bytes) -> None:
            # What is left of a line that was cut is the beginning of it.
            append(self, line if left[0] else line[: len(line) // 2])
            left[0] -= 1
            if left[0] < 0:
                raise StopError

        with monkeypatch.context() as patch:
            patch.setattr(LedgerCopy, "append", cut)
            with pytest.raises(StopError):
                hg.resume(tmp_path / "run", graph, device="cpu")
        self.check(tmp_path, graph, budget)

    def test_ledger_cut_where_a_session_begins(self, tmp_path: Path, graph: Graph, budget: Path) -> None:
        begin(graph, tmp_path / "run", budget)
        ledger = tmp_path / "run" / "ledger.jsonl"
        with Ledger.open(ledger) as opened:
            opened.begin_session(Nowhere())
        ledger.write_bytes(ledger.read_bytes()[:-20])
        # It was no charge, so nothing of it counts as a step.
        assert Ledger.open(ledger, read_only=True).steps_charged == 0
        self.check(tmp_path, graph, budget)


class Nowhere:
    """A copy of a ledger that nobody keeps."""

    def append(self, line: bytes) -> None:
        pass

    def close(self) -> None:
        pass


def test_a_finished_run_may_be_copied(tmp_path: Path, graph: Graph, budget: Path) -> None:
    run = hg.train(graph, out=tmp_path / "run", budget=budget, **SETTINGS)
    shutil.copytree(tmp_path / "run", tmp_path / "copy")
    copies = [hg.resume(tmp_path / name, graph, device="cpu") for name in ("run", "copy")]
    copies.append(hg.Run.load(tmp_path / "copy", device="cpu"))
    for copy in copies:
        assert np.array_equal(copy.predict(graph), run.predict(graph))
    assert count_charges(budget) == 1


def test_an_older_run_in_an_older_budget_goes_on_once(tmp_path: Path, graph: Graph, budget: Path) -> None:
    """Neither its ledger nor its budget has what this is told by; the first session brings it."""
    begin(graph, tmp_path / "run", budget)
    take_step(tmp_path / "run", graph)
    rewrite(tmp_path / "run" / "ledger.jsonl", lambda entry: None if "session" in entry else entry)
    rewrite(budget, lambda entry: {key: entry[key] for key in entry if key != "has_copy"})
    shutil.rmtree(budget.with_name("people.ledger.runs"))
    assert not DataBudget.open(budget).charges[0].has_copy
    shutil.copytree(tmp_path / "run", tmp_path / "copy")
    hg.resume(tmp_path / "run", graph, device="cpu")
    with pytest.raises(RunError, match=REFUSED):
        hg.resume(tmp_path / "copy", graph, device="cpu")
    assert count_charges(budget) == 1


def rewrite(path: Path, change: Callable[[dict[str, Any]], dict[str, Any] | None]) -> None:
    """Change the lines of a chained file as if they had been written so."""
    text, before, after = b"", "", ""
    for raw in path.read_bytes().splitlines():
        line = read_line(raw, after=before)
        assert line is not None
        before, entry = line[1], change(line[0])
        if entry is not None:
            written, after = write_line(entry, after=after)
            text += written
    path.write_bytes(text)


def test_a_copy_that_the_budget_has_lost(tmp_path: Path, graph: Graph, budget: Path) -> None:
    begin(graph, tmp_path / "run", budget)
    shutil.rmtree(budget.with_name("people.ledger.runs"))
    with pytest.raises(RunError, match=r"has lost .*, its copy of the ledger of this run"):
        hg.resume(tmp_path / "run", graph, device="cpu")


def test_a_copy_that_goes_while_a_run_goes_on_ends_it(tmp_path: Path, graph: Graph, budget: Path) -> None:
    def remove(*_: Any) -> None:
        shutil.rmtree(budget.with_name("people.ledger.runs"))

    with pytest.raises(WriteError, match="removed or replaced while the run went on"):
        hg.train(graph, out=tmp_path / "run", budget=budget, on_start=remove, **SETTINGS)
    assert read_progress(tmp_path / "run" / "checkpoint.safetensors").step == 0


def test_a_full_disk_ends_a_run_before_it_acts(
    tmp_path: Path, graph: Graph, budget: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin(graph, tmp_path / "run", budget)
    write, [copy] = os.write, budget.with_name("people.ledger.runs").iterdir()

    def cut(file: int, line: bytes) -> int:
        return write(file, line[:5] if os.path.samestat(os.fstat(file), copy.stat()) else line)

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", cut)
        with pytest.raises(WriteError, match="free space, then resume the run"):
            hg.resume(tmp_path / "run", graph, device="cpu")
    hg.resume(tmp_path / "run", graph, device="cpu")


class TestChargeAgain:
    def test_a_copy_becomes_a_run_of_its_own(self, tmp_path: Path, graph: Graph, budget: Path) -> None:
        begin(graph, tmp_path / "run", budget)
        shutil.copytree(tmp_path / "run", tmp_path / "copy")
        hg.resume(tmp_path / "run", graph, device="cpu")
        with pytest.raises(StopError):
            hg.resume(tmp_path / "copy", graph, device="cpu", charge_again=True, on_start=stop)
        first, second = DataBudget.open(budget).charges
        assert first.run != second.run
        assert (first.epsilon, first.delta, first.charges) == (second.epsilon, second.delta, second.charges)
        assert Path(second.folder) == tmp_path / "copy"
        # From here on it is a run like any other.
        shutil.copytree(tmp_path / "copy", tmp_path / "another")
        hg.resume(tmp_path / "copy", graph, device="cpu")
        with pytest.raises(RunError, match=REFUSED):
            hg.resume(tmp_path / "another", graph, device="cpu")
        assert count_charges(budget) == 2

    def test_what_the_total_does_not_allow_changes_nothing(self, tmp_path: Path, graph: Graph) -> None:
        budget = DataBudget.create(tmp_path / "people.ledger", epsilon=1.2, delta=1e-4).path
        begin(graph, tmp_path / "run", budget, delta=1e-4)
        shutil.copytree(tmp_path / "run", tmp_path / "copy")
        before = budget.read_bytes(), read_all(tmp_path / "copy")
        with pytest.raises(BudgetExceededError, match="with this run it would be"):
            hg.resume(tmp_path / "copy", graph, device="cpu", charge_again=True)
        assert (budget.read_bytes(), read_all(tmp_path / "copy")) == before

    def test_a_kill_before_the_charge_loses_nothing(
        self, tmp_path: Path, graph: Graph, budget: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        begin(graph, tmp_path / "run", budget)
        with monkeypatch.context() as patch:
            patch.setattr(budgets, "_append", stop)
            with pytest.raises(StopError):
                hg.resume(tmp_path / "run", graph, device="cpu", charge_again=True)
        assert count_charges(budget) == 1
        hg.resume(tmp_path / "run", graph, device="cpu")
        assert count_charges(budget) == 2

    def test_without_a_budget_there_is_nothing_to_charge(self, tmp_path: Path, graph: Graph) -> None:
        with pytest.raises(StopError):
            hg.train(graph, out=tmp_path / "run", on_start=stop, **SETTINGS)
        with pytest.raises(InputError, match="is charged to no budget"):
            hg.resume(tmp_path / "run", graph, device="cpu", charge_again=True)


def test_a_run_that_names_another_file_is_damaged(tmp_path: Path, graph: Graph, budget: Path) -> None:
    begin(graph, tmp_path / "run", budget)
    file = tmp_path / "run" / "run.json"
    about = json.loads(file.read_text())
    about["budget"]["run"] = "../../elsewhere"
    file.write_text(json.dumps(about))
    with pytest.raises(RunError, match=r"run\.json is damaged"):
        hg.resume(tmp_path / "run", graph, device="cpu")
