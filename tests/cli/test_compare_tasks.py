"""`compare` judges every task by its own figure: table, JSON, chart, report and card."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn import metrics

import hushgraph as hg
from hushgraph.cli.compare import compare_into, show_comparison
from hushgraph.cli.terminal import console
from hushgraph.comparison.result import Comparison
from hushgraph.graph.graph import Graph
from hushgraph.tasks.labels import Labels

Run = Callable[..., tuple[int, str, str]]
COUNT = 500
RNG = np.random.default_rng(0)
GROUP = RNG.integers(2, size=COUNT)
ARRAYS: dict[str, Any] = {
    "x": RNG.normal(size=(COUNT, 4)) + 2 * GROUP[:, None],
    "edge_index": np.stack([np.repeat(np.arange(COUNT), 3), RNG.integers(COUNT, size=3 * COUNT)]),
}
QUICK = ["--epsilon", "20", "--steps", "10", "--hidden", "8", "--device", "cpu"]
QUICK += ["--split", "0.4/0.2/0.4", "--max-readers", "1"]
TASKS: dict[str, tuple[Any, list[str], str, str]] = {
    "classes": (GROUP + 2 * (ARRAYS["x"][:, 0] > 1), ["--num-classes", "4"], "accuracy", "accuracy"),
    "two classes": (GROUP, ["--num-classes", "2"], "auc", "ROC-AUC"),
    "a rare class": (GROUP, ["--num-classes", "2", "--rare"], "auc", "ROC-AUC"),
    "a number": (40.0 + 20 * GROUP, ["--task", "number", "--bounds", "0,100"], "r2", "R²"),
}


@pytest.mark.parametrize("task", TASKS)
def test_models_are_judged_by_the_figure_of_the_task(task: str, run: Run, tmp_path: Path) -> None:
    y, flags, figure, words = TASKS[task]
    np.savez(tmp_path / "data.npz", y=y, **ARRAYS)
    out = tmp_path / "five"
    code, said, _ = run("compare", tmp_path / "data.npz", *flags, *QUICK, "--out", out, "--json")
    assert code == 0
    about = json.loads(said)
    assert {row["figure"] for row in about["rows"]} == {figure}
    # Without privacy figures are exact.
    exact = {row["name"]: row[f"test_{figure}"] for row in about["rows"]}
    test = hg.datasets.random_split(COUNT, (0.4, 0.2, 0.4))[2]
    for name, folder in (("GNN", "gnn"), ("MLP", "mlp")):
        shown = hg.Run.load(out / folder, device="cpu").predict_proba(tmp_path / "data.npz")[test]
        expected = {
            "accuracy": lambda shown=shown: metrics.accuracy_score(y[test], shown.argmax(1)),
            "auc": lambda shown=shown: metrics.roc_auc_score(y[test], shown[:, 1]),
            "r2": lambda shown=shown: metrics.r2_score(y[test], shown[:, 0]),
        }
        assert exact[name] == pytest.approx(expected[figure](), abs=1e-4)
    again = Comparison.from_json((out / "comparison.json").read_text())
    assert again.figure == figure
    assert list(again.notices) == about["notices"]
    # The chart, the page, the card and the table have the figure by its name.
    assert f"test {words}" in (out / "compare.svg").read_text()
    page = (out / "report.html").read_text()
    assert f"Test {words} of the compared models" in page
    assert f"test {words} (covered)" in page
    assert ("macro-F1" in page) == (figure != "r2")
    for notice in about["notices"]:
        assert notice[1:].split("(")[0] in page.replace("&#39;", "'")
    card = hg.Run.load(out / "dp-billboard", device="cpu").card()
    assert f"| test {words} |" in card
    if figure != "accuracy":
        assert "accuracy" not in " ".join(line for line in card.splitlines() if line.startswith("|"))


def test_several_labels_are_judged_by_mean_roc_auc(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    data = Graph.from_arrays(
        **ARRAYS, y=np.stack([GROUP, 1 - GROUP], 1), train_idx=[0], task=Labels(num_labels=2)
    )
    how = {"epsilon": 20.0, "steps": 5, "hidden": 8, "device": "cpu", "split": "0.4/0.2/0.4"}
    found = compare_into(tmp_path / "five", data, **how)
    assert found.figure == "auc"
    test = hg.datasets.random_split(COUNT, (0.4, 0.2, 0.4))[2]
    shown = found.runs["MLP"].predict_proba(data)[test]
    areas = [metrics.roc_auc_score(data.y[test, k], shown[:, k]) for k in range(2)]
    assert found.entries[1].test == pytest.approx(np.mean(areas))
    show_comparison(found, None, console())
    said = capsys.readouterr().out
    assert "ROC-AUC" in said
    assert "test ROC-AUC" in (tmp_path / "five/compare.svg").read_text()


def test_the_terminal_names_the_figure_of_a_run(run: Run, tmp_path: Path) -> None:
    for task, how in (("a number", ["--non-private"]), ("two classes", ["--non-private"]), ("a number", [])):
        y, flags, _, words = TASKS[task]
        np.savez(tmp_path / "data.npz", y=y, **ARRAYS)
        given = QUICK[2:-2] if how else QUICK[:-2]
        code, said, _ = run(
            "train", tmp_path / "data.npz", *flags, *given, *how, "--out", tmp_path / f"r{len(how)}{task}"
        )
        assert code == 0
        assert f"test {words}" in said
        assert ("test accuracy" in said) == (task == "two classes")
