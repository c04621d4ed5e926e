"""How many files a reader visits who follows `hg.train`, or `hushgraph train`, function by function.

Every function of the package is listed where it is called for the first time. A reader who follows that list
opens another file whenever two neighbours of it are in different files: a change of file.

Comprehensions, generator expressions and lambdas are left out: they are read where they are written, and from
Python 3.12 on most comprehensions are no functions of their own.

    python scripts/count_file_changes.py
"""

from __future__ import annotations

import contextlib
import inspect
import io
import itertools
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import hushgraph

_PACKAGE = str(Path(hushgraph.__file__).parent) + os.sep
_READ_IN_PLACE = frozenset({"<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>", "<lambda>"})


def count_file_changes(action: Callable[[], Any]) -> tuple[int, int]:
    """Run `action`; the files of the package that it visits, and its changes of file."""
    seen: dict[CodeType, str] = {}

    def note_call(frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        # Bodies of modules and classes run at import, and where that happens first is chance.
        is_function = bool(code.co_flags & inspect.CO_OPTIMIZED) and code.co_name not in _READ_IN_PLACE
        if event == "call" and is_function and code.co_filename.startswith(_PACKAGE):
            seen.setdefault(code, code.co_filename)

    threading.setprofile(note_call)
    sys.setprofile(note_call)
    try:
        action()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    files = list(seen.values())
    changes = sum(before != after for before, after in itertools.pairwise(files))
    return len(set(files)), changes


def train_in_python() -> None:
    """The Python call, on the demo graph."""
    data = hushgraph.datasets.load("demo")
    report("hg.train", lambda: hushgraph.train(data, epsilon=4.0, steps=20, hidden=16, device="cpu"))


def train_by_command() -> None:
    """The command, on the demo graph."""

    def run_command() -> None:
        from hushgraph.cli.app import main

        with tempfile.TemporaryDirectory() as folder, contextlib.suppress(SystemExit):
            sys.argv = [
                "hushgraph",
                "train",
                "demo",
                "--epsilon",
                "4",
                "--steps",
                "20",
                "--out",
                f"{folder}/run",
            ]
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                main()

    report("hushgraph train", run_command)


def report(name: str, action: Callable[[], Any]) -> None:
    """Print both figures of `action`."""
    files, changes = count_file_changes(action)
    print(f"{name}: {files} files, {changes} changes of file")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        {"python": train_in_python, "command": train_by_command}[sys.argv[1]]()
    else:
        # A process each: what the first has imported and cached, the second would not visit.
        for which in ("python", "command"):
            subprocess.run([sys.executable, __file__, which], check=True)
