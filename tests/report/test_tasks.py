"""Pages, cards and labels speak of what was asked of a node, and call covered figures covered."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import hushgraph as hg
from hushgraph.report.card import render_card
from hushgraph.report.facts import collect_facts
from hushgraph.report.report import render_report

SETTINGS: dict[str, Any] = {"epsilon": 4.0, "steps": 3, "hidden": 3, "device": "cpu", "numbers": "as-is"}
ASKED: dict[str, dict[str, Any]] = {
    "binary": {"classes": ["fair", "fraud"], "group": {"region": ["north", "south"]}},
    "number": {"task": "number", "bounds": (0.0, 100.0), "ignore": ["region"]},
}


def train(task: str, out: Path, **changes: Any) -> hg.Run:
    rng = np.random.default_rng(3)
    values = {"binary": ["fair", "fraud"], "number": [10.0, 60.0]}[task]
    nodes = pd.DataFrame({"id": range(200), "age": rng.normal(size=200), "label": rng.choice(values, 200)})
    nodes["region"] = rng.choice(["north", "south"], 200)
    edges = pd.DataFrame(rng.integers(200, size=(500, 2)), columns=["source", "target"])
    return hg.train((nodes, edges), out=out, **SETTINGS, **ASKED[task], **changes)


def test_a_number_is_no_class(tmp_path: Path) -> None:
    folder = train("number", tmp_path / "run").folder
    facts = collect_facts(folder)
    page, card = render_report(facts), render_card(folder)
    (label,) = [each for each in facts["attributes"]["columns"] if each["role"].startswith("label")]
    assert (label["columns"], label["treatment"]) == (["label"], "a number from 0 to 100")
    for words in ("A node regressor", "predicts a number of a node", "node-regression"):
        assert words in card
    for words in ("classifier", "the class of", "node-classification", "classes |"):
        assert words not in card
    # Six sums: a row moves their table by at most 1, and adds 1 to no cell.
    assert "moves one table by at most 1" in page
    assert "no labelled" not in page
    assert "covered figures are released once, at the end" in page


@pytest.mark.parametrize("exact", [False, True])
def test_the_covered_figure_at_the_end_is_not_called_exact(tmp_path: Path, exact: bool) -> None:
    folder = train("binary", tmp_path / "run", exact_figures=exact, evaluate_every=1).folder
    facts = collect_facts(folder)
    page = render_report(facts)
    assert any(each["val_accuracy"] is not None for each in facts["spending"]) == exact
    for words in (
        "Exact accuracies on this page",
        "validation accuracies here are exact",
        "accuracy reached",
    ):
        assert (words in page) == exact, words
    (group,) = [each for each in facts["attributes"]["columns"] if each["role"] == "group"]
    assert (group["columns"], group["treatment"]) == (
        ["region"],
        "one of 2 declared values, for figures alone",
    )


def test_a_threshold_near_1_is_not_rounded_to_1() -> None:
    from hushgraph.figures.names import format_figure

    assert format_figure("threshold_at_1_percent", 0.9999546) == "0.99995"
    assert format_figure("accuracy", 0.5) == "50.00%"
