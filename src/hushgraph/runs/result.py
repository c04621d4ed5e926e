"""The result of a finished run: result.json, and the metrics that led to it."""

from __future__ import annotations

import contextlib
import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hushgraph.errors import RunError, WriteError, explain


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _is_fraction(value: Any) -> bool:
    return value is None or (_is_number(value) and 0 <= value <= 1)


def _is_epsilon(value: Any) -> bool:
    return value == "inf" or (_is_number(value) and value >= 0)


def _is_interval(ends: Any) -> bool:
    is_pair = isinstance(ends, list) and len(ends) == 2
    return ends is None or (is_pair and all(end is None or _is_number(end) for end in ends))


def _is_figure(row: Any) -> bool:
    """Whether it is one line of a table of figures."""
    if not isinstance(row, dict):
        return False
    return (
        isinstance(row.get("split"), str)
        and isinstance(row.get("figure"), str)
        and (row.get("class", "") is None or type(row.get("class")) is int)
        and (row.get("group", "") is None or isinstance(row.get("group"), str))
        and (row.get("value", "") is None or _is_number(row.get("value")))
        and all(_is_interval(row.get(key)) for key in ("noise", "sampling"))
    )


# What readers of a result rely on, of a release too.
_COVERED_CHECKS: dict[str, Callable[[Any], bool]] = {
    "guarantee": lambda value: isinstance(value, str),
    "val_accuracy": _is_fraction,
    "test_accuracy": _is_fraction,
}
_RESULT_CHECKS = _COVERED_CHECKS | {
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
    _check_keys(result, _RESULT_CHECKS, path)
    if not _is_fraction(result.get("train_accuracy")):
        raise RunError(f"run={path.parent}: result.json holds another train_accuracy than a run; restore it")
    return result


def check_covered_result(result: Any, path: Path) -> dict[str, Any]:
    """The result of a release, in the file `path`; RunError where it is not what a run writes."""
    if not isinstance(result, dict):
        raise RunError(f"run={path.parent}: {path.name} has no result; restore it")
    _check_keys(result, _COVERED_CHECKS | {"epsilon": _is_epsilon, "epsilon_spent": _is_epsilon}, path)
    return result


def _check_keys(result: dict[str, Any], checks: dict[str, Callable[[Any], bool]], path: Path) -> None:
    for key, is_valid in checks.items():
        if key not in result:
            raise RunError(f"run={path.parent}: {path.name} has no {key}; restore it")
        if not is_valid(result[key]):
            raise RunError(f"run={path.parent}: {path.name} holds another {key} than a run; restore it")
    # Runs without covered figures have no table.
    table = result.get("figure_table", [])
    if not (isinstance(table, list) and all(map(_is_figure, table))):
        raise RunError(f"run={path.parent}: {path.name} holds another figure_table than a run; restore it")


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
    place, advice = path / "metrics.jsonl", "free space or restore the folder, then resume the run"
    with explain(WriteError, f"{place}: cannot be written", advice), place.open("ab+") as file:
        if file.tell():
            file.seek(-1, os.SEEK_END)
            # A kill may have cut the last line short; it must not take this one with it.
            line = line if file.read(1) == b"\n" else b"\n" + line
        file.write(line)


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """All metrics so far; a line that a crash cut short is left out."""
    file = path / "metrics.jsonl"
    lines = []
    for line in file.read_bytes().splitlines() if file.exists() else []:
        with contextlib.suppress(ValueError, RecursionError):
            lines.append(json.loads(line))
    return lines
