"""What tests of run folders share; the folders themselves are fixtures of `tests/claims/conftest.py`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hushgraph.errors import HushgraphError, RunError
from hushgraph.privacy.ledger import Ledger

SETTINGS: dict[str, Any] = {"hidden": 4, "batch_size": 30, "max_readers": 1, "device": "cpu"}
SETTINGS |= {"paper_noise_multiplier": 1.0}
STEPS = 40

stopped = pytest.mark.parametrize("copied", ["begun"], indirect=True)
finished = pytest.mark.parametrize("copied", ["done"], indirect=True)


def refused(do: Callable[[], Any], *words: str, kind: type[HushgraphError] = RunError) -> None:
    with pytest.raises(kind) as caught:
        do()
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 600
    for word in words:
        assert word in message


def charged(path: Path) -> int:
    return Ledger.open(path / "ledger.jsonl", read_only=True).steps_charged


def contents(path: Path) -> dict[str, bytes]:
    """Every file by its path in the folder, those of a release too."""
    return {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()}
