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

from hushgraph.cli.terminal import StatusLine, status

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
        ("train demo --epsilon 4 --dry-run", "Loading PyTorch"),
        ("plan demo --epsilon 4", "Choosing noise"),
        ("compare demo --epsilon 4", "Loading PyTorch"),
        ("predict run demo --out a.csv", "Loading PyTorch"),
        ("report run demo", "Loading PyTorch"),
        ("audit --epsilon 4", "Loading PyTorch"),
        ("reproduce degree --quick", "Loading PyTorch"),
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
