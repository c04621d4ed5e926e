"""Runs to damage: one that was stopped, one that is done."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

import hushgraph as hg
from hushgraph.graph.graph import Graph
from hushgraph.training import trainer as loop
from run_folders import SETTINGS, STEPS


@pytest.fixture(scope="module")
def graph() -> Graph:
    return hg.datasets.synthetic(num_nodes=120, num_classes=3, num_features=6, average_degree=4)


@pytest.fixture(scope="module")
def begun(graph: Graph, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was stopped after 12 of its steps, each paid for by itself."""
    path = tmp_path_factory.mktemp("begun") / "run"

    def stop(done: int, *others: Any) -> None:
        if done == 12:
            raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "_CHARGED_AHEAD_SECONDS", 0.0)
        with pytest.raises(KeyboardInterrupt):
            hg.train(graph, out=path, steps=STEPS, observer=stop, evaluate_every=5, **SETTINGS)
    return path


@pytest.fixture(scope="module")
def done(graph: Graph, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("done") / "run"
    hg.train(graph, out=path, steps=3, **SETTINGS)
    return path


@pytest.fixture
def copied(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    shutil.copytree(request.getfixturevalue(request.param), tmp_path / "run")
    return tmp_path / "run"
