"""The examples in docstrings give what they say."""

from __future__ import annotations

import doctest
from types import ModuleType

import pytest

from hushgraph.billboard import board, reading


@pytest.mark.parametrize("module", [board, reading], ids=lambda module: module.__name__)
def test_examples(module: ModuleType) -> None:
    outcome = doctest.testmod(module)
    assert outcome.attempted > 0
    assert outcome.failed == 0
