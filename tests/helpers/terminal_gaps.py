"""Run a command on a pseudo-terminal and measure how long it prints nothing."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import NamedTuple


class Gaps(NamedTuple):
    """What a command printed and when.

    Attributes:
        exit_code: of the command.
        first: seconds until the first output.
        longest: the longest time without output, from start to end.
        text: all output.
        seconds: from start to end.
    """

    exit_code: int
    first: float
    longest: float
    text: str
    seconds: float


def run_on_terminal(
    arguments: Sequence[str], folder: os.PathLike[str], *, source: os.PathLike[str] | None = None
) -> Gaps:
    """Run `hushgraph` with these arguments in a folder; the package is that in `source`, if given."""
    own = {} if source is None else {"PYTHONPATH": str(source)}
    terminal, inside = pty.openpty()
    begin = last = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-m", "hushgraph", *arguments],
        cwd=folder,
        stdin=inside,
        stdout=inside,
        stderr=inside,
        env=os.environ | {"TERM": "xterm", "COLUMNS": "100"} | own,
    )
    os.close(inside)
    first, longest, parts = None, 0.0, []
    while True:
        ready, _, _ = select.select([terminal], [], [], 0.05)
        now = time.monotonic()
        if ready:
            try:
                part = os.read(terminal, 1 << 16)
            except OSError:
                # The other side is closed.
                part = b""
            if not part:
                break
            parts.append(part)
            first = now - begin if first is None else first
            longest, last = max(longest, now - last), now
        elif process.poll() is not None:
            break
    code = process.wait()
    os.close(terminal)
    end = time.monotonic()
    longest = max(longest, end - last)
    text = b"".join(parts).decode(errors="replace")
    return Gaps(code, longest if first is None else first, longest, text, end - begin)
