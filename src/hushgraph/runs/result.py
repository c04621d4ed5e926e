"""The result of a finished run: result.json, and the metrics that led to it."""

from __future__ import annotations

import contextlib
import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hushgraph.errors import RunError, WriteError


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _is_fraction(value: Any) -> bool:
    return value is None or (_is_number(value) and 0 <= value <= 1)


# What readers of result.json rely on.
_RESULT_CHECKS: dict[str, Callable[[Any], bool]] = {
    "guarantee": lambda value: isinstance(value, str),
    "val_accuracy": _is_fraction,
    "test_accuracy": _is_fraction,
    "seconds": _is_number,
    "device": lambda value: isinstance(value, str),
    "steps_lost": lambda value: isinstance(value, int),
}


def read_result(path: Path) -> dict[str, Any]:
    """The summary in result.json; RunError where it is not what a run writes."""
    try:
        result: dict[str, Any] = json.loads(path.read_text())
        float(result["epsilon"])
        # An infinite epsilon is written as "inf"; JSON itself has no such number, and readers pass it on.
        json.dumps(result, allow_nan=False)
    except (OSError, KeyError, TypeError, ValueError, RecursionError, OverflowError) as error:
        raise RunError(
            f"run={path.parent}: result.json is missing or damaged ({type(error).__name__}); restore it"
        ) from None
    for key, is_valid in _RESULT_CHECKS.items():
        if key not in result:
            raise RunError(f"run={path.parent}: result.json has no {key}; restore it")
        if not is_valid(result[key]):
            raise RunError(f"run={path.parent}: result.json holds another {key} than a run; restore it")
    if not _is_fraction(result.get("train_accuracy")):
        raise RunError(f"run={path.parent}: result.json holds another train_accuracy than a run; restore it")
    return result


def append_metrics(
    path: Path, *, step: int, epsilon: float, val_accuracy: float | None, seconds: float
) -> None:
    """Add a line: how far the run is, what it has spent by then, and how well it does."""
    values = {
        "step": step,
        "epsilon": "inf" if math.isinf(epsilon) else epsilon,
        "val_accuracy": val_accuracy,
        "seconds": round(seconds, 3),
    }
    line = json.dumps(values, allow_nan=False).encode() + b"\n"
    try:
        with (path / "metrics.jsonl").open("ab+") as file:
            if file.tell():
                file.seek(-1, os.SEEK_END)
                # A kill may have cut the last line short; it must not take this one with it.
                line = line if file.read(1) == b"\n" else b"\n" + line
            file.write(line)
    except OSError as error:
        raise WriteError(
            f"{path / 'metrics.jsonl'}: cannot be written ({error.strerror}); free space or restore "
            "the folder, then resume the run"
        ) from None


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """All metrics so far; a line that a crash cut short is left out."""
    file = path / "metrics.jsonl"
    lines = []
    for line in file.read_bytes().splitlines() if file.exists() else []:
        with contextlib.suppress(ValueError, RecursionError):
            lines.append(json.loads(line))
    return lines
