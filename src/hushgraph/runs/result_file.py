"""The summary of a finished run on disk, which anybody may have edited since."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hushgraph.errors import RunError


def _is_figure(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _is_part(value: Any) -> bool:
    return value is None or (_is_figure(value) and 0 <= value <= 1)


# What readers of result.json rely on.
_IN_RESULT: dict[str, Callable[[Any], bool]] = {
    "guarantee": lambda value: isinstance(value, str),
    "val_accuracy": _is_part,
    "test_accuracy": _is_part,
    "seconds": _is_figure,
    "device": lambda value: isinstance(value, str),
    "steps_lost": lambda value: isinstance(value, int),
}


def read_result(path: Path) -> dict[str, Any]:
    """The summary in result.json; RunError where it is not what a run writes."""
    try:
        found: dict[str, Any] = json.loads(path.read_text())
        float(found["epsilon"])
        # An infinite epsilon is written as "inf"; JSON itself has no such number, and readers pass it on.
        json.dumps(found, allow_nan=False)
    except (OSError, KeyError, TypeError, ValueError, RecursionError, OverflowError) as error:
        raise RunError(
            f"run={path.parent}: result.json is missing or damaged ({type(error).__name__}); restore it"
        ) from None
    for key, is_right in _IN_RESULT.items():
        if key not in found:
            raise RunError(f"run={path.parent}: result.json has no {key}; restore it")
        if not is_right(found[key]):
            raise RunError(f"run={path.parent}: result.json holds another {key} than a run; restore it")
    if not _is_part(found.get("train_accuracy")):
        raise RunError(f"run={path.parent}: result.json holds another train_accuracy than a run; restore it")
    return found
