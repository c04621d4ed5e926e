"""The line that shows what a command is doing: on a terminal, before anything slow, and nowhere else."""

from __future__ import annotations

import io
import os
import pty
import re
import sys
from pathlib import Path

import pytest
from rich.console import Console

from effort import IS_THOROUGH
from hushgraph.cli.app import main
from hushgraph.cli.terminal import StatusLine, status
from hushgraph.cli.train import progress_figures
from hushgraph.training.progress import LogLines

# Stands in for PyTorch: says when it is imported, and ends the command.
TORCH = """
import sys
sys.stderr.write("IMPORTED")
sys.stderr.flush()
raise ImportError("not here")
"""
CONTROL = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]|\r")


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def run_on_terminal(folder: Path, *words: str) -> str:
    """What a command writes to a terminal, without control codes."""
    process, terminal = pty.fork()
    if process == 0:
        os.chdir(folder)
        os.environ |= {"TERM": "xterm", "COLUMNS": "100"}
        paths = [str(folder), *sys.path]
        os.environ["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
        os.execv(sys.executable, [sys.executable, "-m", "hushgraph", *words])
    written = b""
    while True:
        try:
            chunk = os.read(terminal, 65536)
        except OSError:
            # Linux reports the end of a terminal as an error.
            break
        if not chunk:
            break
        written += chunk
    os.close(terminal)
    os.waitpid(process, 0)
    return CONTROL.sub("", written.decode())


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("train demo --epsilon 4", "Loading PyTorch"),
        ("plan demo --epsilon 4", "Choosing noise"),
        ("predict run demo --out a.csv", "Loading PyTorch"),
        ("audit --epsilon 4", "Loading PyTorch"),
        *[
            ("train demo --epsilon 4 --dry-run", "Loading PyTorch"),
            ("compare demo --epsilon 4", "Loading PyTorch"),
            ("report run demo", "Loading PyTorch"),
            ("reproduce degree --quick", "Loading PyTorch"),
        ]
        * IS_THOROUGH,
    ],
)
def test_a_line_is_shown_before_pytorch_is_imported(line: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text(TORCH)
    shown = run_on_terminal(tmp_path, *line.split())
    before, imported, _ = shown.partition("IMPORTED")
    assert imported, shown
    assert words in before


def test_programs_see_nothing_of_it(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text(TORCH)
    for line in (
        "train demo --epsilon 4 --json",
        "train demo --epsilon 4 --quiet",
        "audit --epsilon 4 --json",
    ):
        assert run_on_terminal(tmp_path, *line.split()).startswith("IMPORTED")


def test_the_line_is_replaced_and_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Screen()
    monkeypatch.setattr("sys.stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    with status("Loading one") as line:
        line.show("Loading two")
        line.count("run", 1, 4)
        line.count("run", 2.5, 4, figures="GCN")
        line.clear()
        before = screen.getvalue()
        line.show("Writing")
    for words in ("Loading one", "2/4", "GCN", "Writing"):
        assert words in CONTROL.sub("", screen.getvalue())
    assert "Writing" not in before
    # The last thing written erases the line.
    assert screen.getvalue().rstrip("\n").endswith("\x1b[2K")


@pytest.mark.parametrize("reason", ["no terminal", "quiet", "not the first process"])
def test_nothing_is_drawn_elsewhere(reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO() if reason == "no terminal" else Screen()
    monkeypatch.setattr("sys.stderr", screen)
    if reason == "not the first process":
        monkeypatch.setenv("RANK", "1")
    with status("Loading", quiet=reason == "quiet") as line:
        line.count("step", 1, 2)
        line.show("Writing")
    assert screen.getvalue() == ""


def test_results_are_not_redirected(capsys: pytest.CaptureFixture[str]) -> None:
    drawn = Screen()
    console = Console(file=drawn, force_terminal=True, _environ={"TERM": "xterm", "COLUMNS": "80"})
    with StatusLine(console=console) as line:
        line.show("Loading")
        print("a result")
    assert capsys.readouterr().out == "a result\n"
    assert "a result" not in drawn.getvalue()


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_log_gets_a_line_every_ten_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    with StatusLine(clock=clock) as line:
        line.show("Loading demo")
        for step in range(1, 36):
            clock.now += 1
            # The accuracy was not charged: it is for the eyes at a terminal.
            line.count(
                "step", step, 1200, figures=progress_figures(0.5, 0.9), logged=progress_figures(0.5, None)
            )
        clock.now += 9.9
        line.show("Writing the report")
        clock.now += 10
        line.show("Still writing")
    assert capsys.readouterr() == (
        "",
        "step 10 of 1,200, epsilon 0.5\n"
        "step 20 of 1,200, epsilon 0.5\n"
        "step 30 of 1,200, epsilon 0.5\n"
        "Writing the report\n"
        "Still writing\n",
    )


@pytest.mark.parametrize("reason", ["quiet", "not the first process", "a terminal"])
def test_no_line_of_a_log_elsewhere(
    reason: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock, console = Clock(), None
    if reason == "not the first process":
        monkeypatch.setenv("RANK", "1")
    if reason == "a terminal":
        console = Console(file=Screen(), force_terminal=True, _environ={"TERM": "xterm", "COLUMNS": "80"})
    with StatusLine(quiet=reason == "quiet", console=console, clock=clock) as line:
        for step in range(1, 4):
            clock.now += 60
            line.count("step", step, 3, logged="epsilon 1.00")
    assert capsys.readouterr() == ("", "")


def test_what_python_asks_for_without_a_terminal_ends_with_the_last_step(
    capsys: pytest.CaptureFixture[str],
) -> None:
    clock = Clock()
    lines = LogLines(clock=clock)
    for step in range(1, 24):
        clock.now += 1
        lines.show(step, 23, "epsilon 1.00")
    lines.close()
    assert capsys.readouterr().err.splitlines() == [
        f"step {step} of 23, epsilon 1.00" for step in (10, 20, 23)
    ]


@pytest.mark.parametrize(("flags", "beats"), [((), True), (("--quiet",), False), (("--json",), False)])
def test_training_into_a_log_shows_steps_and_epsilon_alone(
    flags: tuple[str, ...],
    beats: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("hushgraph.training.progress._BEAT", 0.0)
    command = "train generated-200 --epsilon 4 --steps 4 --hidden 4 --device cpu --out"
    assert main([*command.split(), str(tmp_path / "run"), *flags]) == 0
    printed = [line for line in capsys.readouterr().err.splitlines() if line.startswith("step")]
    assert bool(printed) == beats
    assert all(re.fullmatch(r"step [1-4] of 4, epsilon \d\.\d+", line) for line in printed)
