"""Promise: whatever happens to a run, nothing is lost or under-counted, and one line says what to do."""

from __future__ import annotations

import builtins
import json
import os
import resource
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hushgraph as hg
from hushgraph.cli.app import main
from hushgraph.errors import WriteError
from hushgraph.graph.graph import Graph
from hushgraph.privacy import ledger as ledger_file
from hushgraph.privacy.ledger import Ledger
from hushgraph.runs.folder import RunFolder
from hushgraph.training import trainer as loop
from hushgraph.training import watch
from run_folders import SETTINGS, STEPS, charged, contents, finished, refused, stopped


class Full:
    """Writing fails with ENOSPC once so many bytes have been written to files below the folder."""

    def __init__(self, room: int) -> None:
        self.room = room

    def write(self, descriptor: int, data: bytes) -> int:
        fits = min(len(data), self.room)
        if fits == 0:
            raise OSError(28, "No space left on device")
        self.room -= fits
        return self.real(descriptor, data[:fits])

    real = staticmethod(os.write)


@stopped
@pytest.mark.parametrize("room", [0, 1, 60, 200])
def test_a_disk_that_fills_while_paying(
    copied: Path, graph: Graph, room: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The charge that did not fit counts if any of it did; the step is not taken; the run goes on later."""
    before, steps = charged(copied), []
    real = loop.Trainer.take_step

    def step(self: Any, pieces: Any) -> None:
        steps.append(self.state.step)
        real(self, pieces)

    with monkeypatch.context() as patch:
        patch.setattr(loop, "_CHARGED_AHEAD_SECONDS", 0.0)
        patch.setattr(loop.Trainer, "take_step", step)
        patch.setattr(os, "write", Full(room).write)
        refused(
            lambda: hg.resume(copied, graph),
            "No space left on device" if room == 0 else "the line was cut short",
            "resume the run",
            kind=WriteError,
        )
    assert before + len(steps) <= charged(copied) <= before + len(steps) + 1
    run = hg.resume(copied, graph)
    assert run.epsilon == run.plan.epsilon
    assert charged(copied) == STEPS


@pytest.mark.skipif(not hasattr(resource, "RLIMIT_FSIZE"), reason="this system cannot limit files")
def test_files_that_cannot_grow_end_the_command_with_one_line(
    graph: Graph, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A real failure of the system, in the middle of training: exit code 1, and what was there is whole."""
    target = np.repeat(np.arange(graph.num_nodes), np.diff(graph.indptr))
    splits = {name: getattr(graph, name) for name in ("train_idx", "val_idx", "test_idx")}
    data = tmp_path / "graph.npz"
    np.savez(data, edge_index=np.stack([graph.indices, target]), x=graph.x, y=graph.y, **splits)
    flags = [
        "--paper-noise-multiplier",
        "1",
        "--steps",
        "30",
        "--hidden",
        "300",
        "--device",
        "cpu",
        "--quiet",
    ]
    # What is compiled at the first call must not meet the limit.
    hg.train(data, steps=1, hidden=300, paper_noise_multiplier=1.0, device="cpu")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    # Python ignores the signal that comes with the limit, so that writing fails with an error.
    assert signal.getsignal(signal.SIGXFSZ) is signal.SIG_IGN
    # Enough for run.json and the ledger, too little for a checkpoint or weights.
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, before[1]))
    try:
        code = main(["train", str(data), *flags, "--out", str(tmp_path / "run")])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    message = capsys.readouterr().err
    assert code == 1, message
    assert message.startswith("hushgraph: ")
    assert message.count("\n") == 1
    assert "File too large" in message
    paid = charged(tmp_path / "run")
    assert 0 < paid <= 30
    assert not list((tmp_path / "run").glob("*.draft"))
    # With room again the result is made; what the steps taught was lost with the checkpoint, and said so.
    assert hg.resume(tmp_path / "run", data).result["steps_lost"] == paid


@stopped
def test_a_checkpoint_that_cannot_be_written_leaves_the_one_before(
    copied: Path, graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = (copied / "checkpoint.safetensors").read_bytes()
    monkeypatch.setattr(watch, "CHECKPOINT_SECONDS", 0.0)
    real = os.fsync

    def full(descriptor: int) -> None:
        if os.readlink(f"/proc/self/fd/{descriptor}").endswith("safetensors.draft"):
            raise OSError(28, "No space left on device")
        real(descriptor)

    if not Path("/proc/self/fd").exists():
        pytest.skip("no /proc to tell files apart by")
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        refused(lambda: hg.resume(copied, graph), "No space left on device", kind=WriteError)
    assert (copied / "checkpoint.safetensors").read_bytes() == before
    assert not list(copied.glob("*.draft"))
    assert hg.resume(copied, graph).result["steps_lost"] > 0


@stopped
@pytest.mark.parametrize(
    "error", [PermissionError(13, "Permission denied"), OSError(30, "Read-only file system")]
)
def test_a_folder_that_cannot_be_written(
    copied: Path, graph: Graph, error: OSError, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, real = contents(copied), os.open

    def denied(path: Any, flags: int, *others: Any, **named: Any) -> int:
        if flags & (os.O_WRONLY | os.O_RDWR):
            raise error
        return real(path, flags, *others, **named)

    monkeypatch.setattr(os, "open", denied)
    refused(lambda: hg.resume(copied, graph), str(error.strerror), "folder you can write to")
    assert contents(copied) == before


@finished
def test_a_finished_run_in_a_read_only_folder_is_readable(
    copied: Path, graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(*_: Any) -> Any:
        raise OSError(30, "Read-only file system")

    (copied / "ledger.jsonl.lock").unlink()
    monkeypatch.setattr(os, "write", denied)
    monkeypatch.setattr(os, "replace", denied)
    assert hg.Run.load(copied, device="cpu").predict(graph).shape == (120,)
    assert not (copied / "ledger.jsonl.lock").exists()


@pytest.mark.parametrize("name", ["run.json", "ledger.jsonl"])
@stopped
def test_a_file_without_permission(
    copied: Path, name: str, graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = builtins.open

    def denied(self: Path, *others: Any, **named: Any) -> Any:
        if self.name == name:
            raise PermissionError(13, "Permission denied", str(self))
        return real(self, *others, **named)

    monkeypatch.setattr(Path, "open", denied)
    refused(lambda: hg.resume(copied, graph), name, "Permission denied")


def other_ledger(how: str, lines: list[bytes]) -> bytes:
    whole = b"".join(lines)
    return {
        "cut in the middle of the last record": whole[:-30],
        "cut in the middle of a record": b"".join(lines[:5]) + lines[5][:40],
        "cut at the end of a record": b"".join(lines[:6]),
        "garbage at the end": whole + os.urandom(50).replace(b"\n", b"x"),
        "zeros at the end": whole + b"\0" * 4096,
        "lines of garbage at the end": whole + b"what\nis\nthis\n",
        "a record missing": b"".join(lines[:4] + lines[5:]),
        "a record twice": b"".join(lines[:5] + lines[4:]),
        "the last record twice": whole + lines[-1],
        "records exchanged": b"".join([*lines[:4], lines[5], lines[4], *lines[6:]]),
        "deep": lines[0] + b"[" * 200_000,
        "deep in the middle": lines[0] + b"[" * 200_000 + b"\n" + b"".join(lines[1:]),
        "deep first": b"[" * 200_000,
        "only the first line": lines[0],
    }[how]


GOES_ON = {
    "cut in the middle of the last record",
    "garbage at the end",
    "zeros at the end",
    "the last record twice",
}
# What is left of the file may be a whole ledger; only the checkpoint tells that there was more.
SHOWS_LESS = {"cut in the middle of a record", "cut at the end of a record", "deep", "only the first line"}


@stopped
@pytest.mark.parametrize(
    "how",
    [
        *sorted(GOES_ON),
        *("cut in the middle of a record", "cut at the end of a record", "lines of garbage at the end"),
        *(
            "a record missing",
            "a record twice",
            "records exchanged",
            "deep",
            "deep in the middle",
            "deep first",
        ),
        "only the first line",
    ],
)
def test_a_damaged_ledger_never_shows_less(copied: Path, how: str, graph: Graph) -> None:
    """A torn end counts as spent, anything else is refused: also an older copy, known by the checkpoint."""
    before, file = charged(copied), copied / "ledger.jsonl"
    assert before == 12
    file.write_bytes(other_ledger(how, file.read_bytes().splitlines(keepends=True)))
    if how in GOES_ON:
        assert charged(copied) >= before
        run = hg.resume(copied, graph)
        assert (charged(copied), run.epsilon) == (STEPS, run.plan.epsilon)
    else:
        advice = "count the whole epsilon as spent" if how in SHOWS_LESS else "restore"
        refused(lambda: hg.resume(copied, graph), str(file), advice)


@finished
def test_a_finished_run_with_the_ledger_of_fewer_steps_is_refused(copied: Path, graph: Graph) -> None:
    file = copied / "ledger.jsonl"
    file.write_bytes(file.read_bytes().splitlines(keepends=True)[0])
    refused(lambda: hg.Run.load(copied), "0 steps as charged", "weights.safetensors is of step 3")
    file.unlink()
    refused(lambda: hg.Run.load(copied), "no such file")


def test_a_clock_that_goes_backwards_or_stands_still(
    graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, pace in (("back", -1.0), ("still", 0.0)):
        now = [1e6]

        def clock(now: list[float] = now, pace: float = pace) -> float:
            now[0] += pace
            return now[0]

        with monkeypatch.context() as patch:
            patch.setattr(time, "time", clock)
            patch.setattr(time, "monotonic", clock)
            run = hg.train(graph, out=tmp_path / name, steps=30, **SETTINGS)
        assert charged(tmp_path / name) == 30
        assert run.epsilon == run.plan.epsilon


@stopped
@pytest.mark.parametrize("what", ["ledger.jsonl", "ledger.jsonl.lock", "folder", "replaced"])
def test_what_is_removed_under_a_running_process(
    copied: Path, what: str, graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No step is paid into a file that nobody will find."""
    monkeypatch.setattr(loop, "_CHARGED_AHEAD_SECONDS", 0.0)
    steps: list[int] = []

    def remove(step: int, *others: Any) -> None:
        steps.append(step)
        if len(steps) != 3:
            return
        if what == "folder":
            shutil.rmtree(copied)
        elif what == "replaced":
            shutil.copy(copied / "ledger.jsonl", copied / "old")
            os.replace(copied / "old", copied / "ledger.jsonl")
        else:
            (copied / what).unlink()

    refused(
        lambda: hg.resume(copied, graph, observer=remove),
        "removed or replaced while the run went on",
        kind=WriteError,
    )
    assert len(steps) == 3
    if what in ("ledger.jsonl.lock", "replaced"):
        assert charged(copied) == 15
        assert hg.resume(copied, graph).result["steps_lost"] == 0
    else:
        refused(lambda: hg.resume(copied, graph), "ledger" if what == "ledger.jsonl" else "no run.json in it")


@stopped
def test_two_processes_on_one_run(copied: Path, graph: Graph) -> None:
    """The second is refused, also where the lock of the first was removed and made again by a third."""
    with Ledger.open(copied / "ledger.jsonl") as first:
        refused(lambda: hg.resume(copied, graph), "another process is writing to it; wait for it to end")
        (copied / "ledger.jsonl.lock").unlink()
        with Ledger.open(copied / "ledger.jsonl") as second:
            refused(lambda: first.charge(first.planned_step), "removed or replaced", kind=WriteError)
            second.charge(second.planned_step)
    assert charged(copied) == 13


def test_two_new_runs_in_one_folder(graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who comes second leaves what the first one made."""
    path = tmp_path / "run"
    real = Ledger.create

    def late(target: Any, plan: Any) -> Ledger:
        with monkeypatch.context() as patch:
            patch.setattr(Ledger, "create", real)
            hg.train(graph, out=path, steps=2, **SETTINGS)
        return real(target, plan)

    monkeypatch.setattr(Ledger, "create", late)
    refused(lambda: hg.train(graph, out=path, steps=2, **SETTINGS), "it exists already")
    assert hg.Run.load(path).predict(graph).shape == (120,)


def test_a_run_killed_before_it_began(graph: Graph, tmp_path: Path) -> None:
    """Only the ledger was made: nothing was spent, and both commands say what to do."""
    hg.train(graph, out=tmp_path / "run", steps=1, **SETTINGS)
    plan = RunFolder.open(tmp_path / "run").plan
    (tmp_path / "left").mkdir()
    Ledger.create(tmp_path / "left" / "ledger.jsonl", plan).close()
    refused(
        lambda: hg.resume(tmp_path / "left", graph), "no run.json in it", "if the run never began, remove"
    )
    refused(lambda: hg.train(graph, out=tmp_path / "left", steps=1, **SETTINGS), "it holds a run already")


@pytest.mark.parametrize("entry", [{"ledger": 1}, {"ledger": 1, "plan": "", "epsilon": {}}])
def test_a_first_line_with_other_keys_is_refused(tmp_path: Path, entry: dict[str, Any]) -> None:
    (tmp_path / "ledger.jsonl").write_bytes(ledger_file.write_line(entry, after="")[0])
    refused(lambda: Ledger.open(tmp_path / "ledger.jsonl"), "first line is not a ledger's")


@stopped
@pytest.mark.parametrize(
    "change", [{"count": 0}, {"count": -5}, {"count": True}, {"count": "1"}, {"charge": 3}]
)
def test_a_charge_of_nothing_is_refused(copied: Path, change: dict[str, Any]) -> None:
    """Also with the right checksum: a charge below zero would make spending less."""
    file = copied / "ledger.jsonl"
    lines = file.read_bytes().splitlines()
    entry = json.loads(lines[-1])
    entry.pop("sum")
    line, _ = ledger_file.write_line(entry | change, after=json.loads(lines[-2])["sum"])
    file.write_bytes(b"\n".join(lines[:-1]) + b"\n" + line)
    refused(lambda: Ledger.open(file), "line 13 is no charge")
