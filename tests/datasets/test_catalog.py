"""Named datasets."""

from __future__ import annotations

import pytest

from hushgraph.datasets import describe, load, names
from hushgraph.errors import GraphError


def test_every_name_is_described() -> None:
    assert "demo" in names()
    assert list(names()) == sorted(names())
    assert all(describe(name) and "\n" not in describe(name) for name in names())


def test_demo_loads() -> None:
    assert load("demo").num_nodes == 20_000


def test_nearest_name_is_suggested() -> None:
    with pytest.raises(GraphError, match=r"'dmo' is neither a file nor a known name; did you mean 'demo'\?"):
        load("dmo")
    with pytest.raises(GraphError, match="known names: demo"):
        load("something-else-entirely")
