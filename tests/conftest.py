"""One thread for every test, Ctrl-C as in a terminal, and what tests of the command share."""

from __future__ import annotations

import functools
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
import pytest
import torch
import typer.main

from hushgraph.cli.app import main

# On small inputs the thread pools of torch and numba only wait for each other.
torch.set_num_threads(1)
numba.set_num_threads(1)

# A shell lets commands in the background ignore SIGINT, and their children too; tests send it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Typer builds all commands anew whenever one is called, which takes longer than most of what tests call.
typer.main.get_command = functools.cache(typer.main.get_command)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Calls the command; gives its exit code, output and errors."""

    def call(*arguments: Any) -> tuple[int, str, str]:
        code = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


@pytest.fixture
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The working folder is one that only this test uses."""
    monkeypatch.chdir(tmp_path)
