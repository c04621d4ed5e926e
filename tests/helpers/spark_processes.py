"""Processes of Spark, below a driver that a test started."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def wait_until(is_true: Callable[[], Any], *, seconds: float = 300) -> Any:
    deadline = time.monotonic() + seconds
    while not (answer := is_true()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return answer


def find_executors(driver: int) -> list[int]:
    """Java processes that execute tasks, below a driver."""
    pids = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            command = (place / "cmdline").read_text()
            above = int((place / "stat").read_text().rpartition(")")[2].split()[1])
            java = int(Path(f"/proc/{above}/stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        if "CoarseGrainedExecutorBackend" in command and driver in (above, java):
            pids.append(int(place.name))
    return pids
