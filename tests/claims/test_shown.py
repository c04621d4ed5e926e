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
from hushgraph.training.publish import publish_run

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


def hide_figures(card: str) -> str:
    """A card without the lines of its covered figures, which differ from run to run by their noise."""
    return re.sub(r"^(model-index: .*|\| (validation|test) accuracy \| .*)\n", "", card, flags=re.MULTILINE)


@pytest.mark.parametrize("method", METHODS)
def test_a_card_is_the_same_whatever_the_rows_hold(graph: Graph, method: str) -> None:
    first, second = (hg.train(data, **METHODS[method], **QUICK) for data in (graph, change_rows(graph)))
    assert hide_figures(first.card()) == hide_figures(second.card())
    for run in (first, second):
        is_covered = run.result["figures"] == "covered"
        assert is_covered == (method != "trees")
        # Without noisy tables there is nothing to hide, and the whole card is the same.
        assert (hide_figures(run.card()) != run.card()) == is_covered
        assert hide_figures(run.card(accuracy=True)) != run.card(accuracy=True)
        # Noise may hide a covered figure; an exact one is always there.
        shown = run.result["test_accuracy"]
        assert shown is not None or is_covered
        assert shown is None or f"| test accuracy | {shown:.2%} |" in run.card(accuracy=True)


@pytest.mark.parametrize("method", METHODS)
def test_a_released_card_reads_noisy_tables_and_no_result(graph: Graph, method: str, tmp_path: Path) -> None:
    """Neither weights nor metrics nor what the result says, exact figures and edited ones among them."""
    run = hg.train(graph, out=tmp_path / "run", exact_figures=True, **METHODS[method], **QUICK)
    names = ("README.md", "release.json")
    before = {name: (tmp_path / "run" / "release" / name).read_text() for name in names}
    assert before["README.md"] == run.card()
    path = shutil.copytree(tmp_path / "run", tmp_path / "changed", ignore=shutil.ignore_patterns("release"))
    result = json.loads((path / "result.json").read_text())
    result |= {"val_accuracy": 0.111, "test_accuracy": 0.222, "seconds": 333.0, "figures": "covered"}
    result |= {"exact_figures": {"val_accuracy": 0.333, "test_accuracy": 0.444}, "predictions": "covered"}
    (path / "result.json").write_text(json.dumps(result))
    (path / "metrics.jsonl").write_text("")
    # Other boards than the ledger tells of are refused.
    for file in path.glob("[!b]*.safetensors"):
        file.write_bytes(b"other")
    publish_run(type(run.folder).open(path))
    assert {name: (path / "release" / name).read_text() for name in names} == before


def test_a_summary_differs_in_the_one_line_that_is_marked(graph: Graph, tmp_path: Path) -> None:
    run = hg.train(graph, out=tmp_path / "run", **METHODS["trees"], **QUICK)
    other = hg.Run.load(tmp_path / "run", device="cpu")
    for key, value in run.result.items():
        if isinstance(value, float) and key not in ("epsilon", "delta"):
            other.result[key] = value / 2
    pairs = zip(run._repr_html_().splitlines(), other._repr_html_().splitlines(), strict=True)
    (differing,) = [left for left, right in pairs if left != right]
    assert "test accuracy (exact, not covered)" in differing


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
