"""Promise: the model card, the summary in a notebook and the progress bar read no private data uncharged."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import hushgraph as hg
from hushgraph.graph.graph import Graph
from hushgraph.training import progress

QUICK: dict[str, Any] = {"steps": 6, "hidden": 4, "batch_size": 40, "device": "cpu", "evaluate_every": 2}
METHODS: dict[str, dict[str, Any]] = {
    "billboard": {"epsilon": 6.0},
    "trees": {"epsilon": 6.0, "method": "trees", "max_readers": 2, "edge_owner": "sender"},
    "mlp": {"epsilon": 6.0, "model": "mlp"},
}


@pytest.fixture(scope="module")
def graph() -> Graph:
    return hg.datasets.synthetic(num_nodes=160, num_classes=3, num_features=6, average_degree=4, seed=3)


def change_rows(graph: Graph) -> Graph:
    """The same identifiers, split and shapes, with every row replaced: features, labels and edges."""
    other = hg.datasets.synthetic(num_nodes=160, num_classes=3, num_features=6, average_degree=6, seed=9)
    return Graph.from_arrays(
        edge_index=np.stack(next(other.edge_chunks())),
        x=other.x,
        y=other.y,
        train_idx=graph.train_idx,
        val_idx=graph.val_idx,
        test_idx=graph.test_idx,
        num_classes=3,
    )


@pytest.mark.parametrize("method", METHODS)
def test_a_card_is_the_same_whatever_the_rows_hold(graph: Graph, method: str) -> None:
    first, second = (hg.train(data, **METHODS[method], **QUICK) for data in (graph, change_rows(graph)))
    assert first.card() == second.card()
    for run in (first, second):
        # The check can fail: a card that was asked for accuracies has those of its own run.
        shown = f"{run.result['test_accuracy']:.2%}"
        assert (shown in run.card(accuracy=True), shown in run.card()) == (True, False)


def test_a_card_reads_neither_weights_nor_metrics_nor_accuracies(graph: Graph, tmp_path: Path) -> None:
    run = hg.train(graph, out=tmp_path / "run", **METHODS["billboard"], **QUICK)
    before = run.card()
    path = shutil.copytree(tmp_path / "run", tmp_path / "changed")
    result = json.loads((path / "result.json").read_text())
    result |= {"val_accuracy": 0.111, "test_accuracy": 0.222, "seconds": 333.0}
    (path / "result.json").write_text(json.dumps(result))
    (path / "metrics.jsonl").write_text("")
    for name in ("weights.safetensors", "board-1.safetensors"):
        (path / name).write_bytes(b"other")
    assert hg.Run.load(tmp_path / "run", device="cpu").card() == before
    changed = SimpleNamespace(folder=type(run.folder).open(path))
    assert hg.Run.card(changed) == before  # type: ignore[arg-type]


def test_a_summary_differs_in_the_one_line_that_is_marked(graph: Graph, tmp_path: Path) -> None:
    run = hg.train(graph, out=tmp_path / "run", **METHODS["trees"], **QUICK)
    other = hg.Run.load(tmp_path / "run", device="cpu")
    for key, value in run.result.items():
        if isinstance(value, float) and key not in ("epsilon", "delta"):
            other.result[key] = value / 2
    pairs = zip(run._repr_html_().splitlines(), other._repr_html_().splitlines(), strict=True)
    (differing,) = [left for left, right in pairs if left != right]
    assert "test accuracy (not covered)" in differing


@pytest.mark.parametrize("method", METHODS)
def test_a_bar_shows_steps_and_epsilon_and_is_the_same_for_other_rows(
    graph: Graph, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    shown: list[tuple[int, int, str]] = []
    bar = SimpleNamespace(show=lambda *words: shown.append(words), close=lambda: None)
    monkeypatch.setattr(progress, "LogLines", lambda: bar)
    monkeypatch.setattr(progress, "_PAUSE", 0.0)
    hg.train(graph, progress=True, **METHODS[method], **QUICK)
    first = shown.copy()
    shown.clear()
    hg.train(change_rows(graph), progress=True, **METHODS[method], **QUICK)
    # Steps are charged in groups whose size is a matter of time, and epsilon is that of what is charged.
    assert [words[:2] for words in first] == [words[:2] for words in shown] == [(n, 6) for n in range(1, 7)]
    assert all(re.fullmatch(r"epsilon \d+(\.\d+)?", words[2]) for words in [*first, *shown])
    assert first[-1] == shown[-1] == (6, 6, "epsilon 6.00")
