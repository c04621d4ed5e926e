"""The figure of a comparison: bars with their epsilon and guarantee, and where it is drawn."""

from __future__ import annotations

import math
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hushgraph.cli.compare import compare_into
from hushgraph.comparison.figure import draw_comparison
from hushgraph.comparison.result import NAMES, Comparison, Entry, Total


def entries() -> tuple[Entry, ...]:
    return tuple(
        Entry(
            name=name,
            model="gcn" if "GNN" in name else "mlp",
            method="billboard" if name == "DP-Billboard" else "trees",
            predictions="covered towards everybody else" if name == "DP-Billboard" else "not covered",
            private=name.startswith("DP-"),
            epsilon=3.996 if name.startswith("DP-") else math.inf,
            delta=1e-5,
            guarantee="holds" if name.startswith("DP-") else "none",
            validation=0.5,
            test=None if name == "MLP" else 0.25,
            macro_f1=None,
            seconds=1.0,
            plan="abc",
        )
        for name in NAMES
    )


def test_five_bars_with_their_epsilon_and_the_note(tmp_path: Path) -> None:
    title, note = "Five models on a <graph> & more", "Publishing all costs more than publishing one."
    draw_comparison(entries(), tmp_path / "compare.svg", title=title, note=note)
    svg = (tmp_path / "compare.svg").read_text()
    texts = re.findall(r">([^<>\n]+)</(?:text|tspan)>", svg)
    assert [text for text in texts if text in NAMES] == list(NAMES)
    assert texts.count("ε = 4.00") == 3
    assert texts.count("ε = infinity") == 2
    assert texts.count("no guarantee") == 2
    assert texts.count("holds") == 3
    assert texts.count("covered") == texts.count("towards everybody else") == 1
    assert texts.count("not covered") == 4
    assert texts.count("25.0") == 4
    assert "none" in texts
    assert "Five models on a &lt;graph&gt; &amp; more" in texts
    assert note in texts


def comparison(**others: Any) -> Comparison:
    usual: dict[str, Any] = {"data": "a <graph> & more", "seeded": False, "entries": entries()}
    return Comparison(**usual | {"total": Total(11.99, 1e-5 + 1e-5 + 1e-5, "words")} | others)


@pytest.mark.parametrize("installed", [True, False])
def test_compare_draws_where_it_can(installed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs: Any = {"DP-Billboard": SimpleNamespace(report=lambda *_, **__: None, result={})}
    monkeypatch.setattr("hushgraph.cli.compare.compare_models", lambda *_, **__: comparison(runs=runs))
    if not installed:
        monkeypatch.setitem(sys.modules, "matplotlib", None)
    compare_into(tmp_path, None, epsilon=4.0)
    written = sorted(path.name for path in tmp_path.iterdir())
    assert written == ["compare.svg", "comparison.json"][0 if installed else 1 :]
    if installed:
        texts = " ".join(re.findall(r">([^<>\n]+)</(?:text|tspan)>", (tmp_path / "compare.svg").read_text()))
        assert "Five models on a &lt;graph&gt; &amp; more" in texts
        assert "publishing all 3 together costs up to (11.99, 3.0001e-5) by composition (words)." in texts
