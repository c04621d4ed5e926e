"""Promise: wherever a run is cut off, one charge pays for one run, and nothing is released twice.

A run is ended at one of its calls that write: killed before it or after half of a line, or told that the disk
is full. Then its folder goes on, and so does a copy of it. What anybody could have seen is collected.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import signal
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import hushgraph as hg
from effort import choose
from hushgraph.billboard.board import digest_board, load_board
from hushgraph.errors import RunError
from hushgraph.graph.graph import Graph
from hushgraph.privacy.budget import DataBudget
from hushgraph.privacy.ledger import Ledger
from hushgraph.runs.folder import RunFolder

SETTINGS: dict[str, Any] = {"epsilon": 2.0, "steps": 6, "hidden": 4, "device": "cpu", "progress": False}
CALLS = ("write", "fsync", "replace", "link", "ftruncate")
# A run has less than 100 of these calls.
MOST_CALLS, STRIDE = 120, choose(17, 4)
BOARDS, FIGURES = ("board-1.safetensors", "board-2.safetensors"), "figures.json"
Seen = dict[str, set[str]]


@pytest.fixture(scope="module")
def graph() -> Graph:
    return hg.datasets.synthetic(num_nodes=120, num_classes=3, num_features=6, average_degree=4, seed=1)


def run_in_child(work: Callable[[], object]) -> bool:
    """Call it in a process of its own; whether that was killed. What it raises is nobody's business here."""
    child = os.fork()
    if not child:
        try:
            work()
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status)


def end_at(number: int, how: str) -> None:
    """Have the call of this number end the process, or fail, from now on."""
    count = 0

    def wrap(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def count_up(first: Any, *others: Any, **named: Any) -> Any:
            nonlocal count
            count += 1
            if count != number:
                return call(first, *others, **named)
            if how != "killed" and name == "write":
                call(first, bytes(others[0])[: len(others[0]) // 2])
            if how == "full":
                raise OSError(errno.ENOSPC, "No space left on device")
            return os.kill(os.getpid(), signal.SIGKILL)

        return count_up

    for name in CALLS:
        setattr(os, name, wrap(name, getattr(os, name)))


def look(folder: Path, seen: Seen) -> None:
    """Add the digests of everything that was released, also under the name of a draft."""
    for place in (folder, folder / "release", folder / "release.draft"):
        for name in (*BOARDS, FIGURES):
            for file in (place / name, place / f"{name}.draft"):
                if file.exists() and file.stat().st_size:
                    seen[name].add(digest(file))


def digest(file: Path) -> str:
    try:
        if FIGURES not in file.name:
            return digest_board([load_board(file).values], 0.0)
        return json.dumps(json.loads(file.read_text())["tables"], sort_keys=True)
    except (RunError, ValueError):
        # Numbers of a release that is not complete.
        return hashlib.sha256(file.read_bytes()).hexdigest()


@pytest.mark.parametrize("has_unnamed_files", [True, False])
@pytest.mark.parametrize("how", ["killed", "killed in a line", "full"])
def test_of_a_run_and_its_copy_one_goes_on_and_nothing_is_released_twice(
    how: str, has_unnamed_files: bool, graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not has_unnamed_files:
        monkeypatch.delattr(os, "O_TMPFILE")
    finished = 0
    for number in range(1, MOST_CALLS, STRIDE):
        home = tmp_path / str(number)
        home.mkdir()
        folder, copy, budget = home / "run", home / "copy", home / "budget"
        DataBudget.create(budget, epsilon=2.5, delta=0.01)

        def begin(number: int = number, folder: Path = folder, budget: Path = budget) -> None:
            end_at(number, how)
            hg.train(graph, out=folder, budget=budget, **SETTINGS)

        run_in_child(begin)
        seen: Seen = defaultdict(set)
        look(folder, seen)
        if not (folder / "run.json").exists():
            assert not seen
            continue
        was_finished = (folder / "weights.safetensors").exists()
        shutil.copytree(folder, copy)
        ends = []
        for each in (folder, copy):
            run_in_child(lambda each=each: hg.resume(each, graph, device="cpu", progress=False))  # type: ignore[misc]
            look(each, seen)
            ends.append((each / "weights.safetensors").exists())
            ledger = Ledger.open(each / "ledger.jsonl", plan=RunFolder.open(each).plan, read_only=True)
            assert ledger.spent_epsilon() <= ledger.budget
        finished += ends[0]
        assert {name: len(each) for name, each in seen.items() if len(each) > 1} == {}, number
        assert ends == ([True, True] if was_finished else [ends[0], False]), number
        assert len(DataBudget.open(budget).charges) == 1, number
    # All this would hold of runs that never begin.
    assert finished > 0
