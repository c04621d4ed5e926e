"""The examples in docstrings give what they say."""

from __future__ import annotations

import doctest
from types import ModuleType

import pytest

from hushgraph.billboard import board, new_rows


@pytest.mark.parametrize("module", [board, new_rows], ids=lambda module: module.__name__)
def test_examples(module: ModuleType) -> None:
    outcome = doctest.testmod(module)
    assert outcome.attempted > 0
    assert outcome.failed == 0
