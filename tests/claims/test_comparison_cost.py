"""Promise: a comparison is charged as a whole before it begins, and says first what all of it costs."""

from __future__ import annotations

import json
import math
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import hushgraph as hg
from hushgraph._text import rounded_up
from hushgraph.comparison.result import FOLDERS
from hushgraph.errors import BudgetExceededError, RunError
from hushgraph.graph.graph import Graph
from hushgraph.privacy import budget as budgets
from hushgraph.privacy.budget import DataBudget
from hushgraph.privacy.run_charge import compose_charges

DELTA = 1e-4
PRIVATE = ("DP-Billboard", "DP-GNN (trees)", "DP-MLP")
QUICK: dict[str, Any] = {"epsilon": 1.0, "delta": DELTA, "steps": 3, "hidden": 4, "device": "cpu"}
QUICK |= {"batch_size": 40, "max_readers": 1}


class StopError(Exception):
    """Ends a comparison from within."""


def stop(*_: Any, **__: Any) -> None:
    raise StopError


@pytest.fixture(scope="module")
def graph() -> Graph:
    return hg.datasets.synthetic(num_nodes=150, num_classes=3, num_features=8, average_degree=5, seed=3)


@pytest.fixture
def budget(tmp_path: Path) -> Path:
    return DataBudget.create(tmp_path / "people.ledger", epsilon=20.0, delta=DELTA).path


def test_all_private_models_are_charged_before_the_first_trains(
    tmp_path: Path, graph: Graph, budget: Path
) -> None:
    out, seen = tmp_path / "five", []

    def look(*_: Any) -> None:
        begun = [name for name in FOLDERS.values() if (out / name / "run.json").exists()]
        seen.append((len(begun), len(DataBudget.open(budget).charges)))

    found = hg.compare(graph, out=out, budget=budget, on_start=look, **QUICK)
    assert seen == [(1, 3), (2, 3), (3, 3), (4, 3), (5, 3)]
    charges = DataBudget.open(budget).charges
    assert {charge.command for charge in charges} == {"compare"}
    assert [Path(charge.folder).name for charge in charges] == [FOLDERS[name] for name in PRIVATE]
    for name, charge in zip(PRIVATE, charges, strict=True):
        run = found.runs[name]
        assert charge.charges == run.plan.charges
        assert run.folder.budget is not None
        assert run.folder.budget.run == charge.run


def test_what_does_not_fit_as_a_whole_costs_nothing(tmp_path: Path, graph: Graph) -> None:
    # Two of the three would fit.
    budget = DataBudget.create(tmp_path / "people.ledger", epsilon=1.6, delta=DELTA).path
    before = budget.read_bytes()
    for changes in ({}, {"epsilon": 0.01, "seed": 3}):
        with pytest.raises(BudgetExceededError):
            hg.compare(graph, out=tmp_path / "five", budget=budget, **QUICK | changes)
        assert budget.read_bytes() == before
        assert not (tmp_path / "five").exists()


def test_without_a_folder_too(graph: Graph, budget: Path) -> None:
    hg.compare(graph, budget=budget, **QUICK)
    assert [charge.folder for charge in DataBudget.open(budget).charges] == ["", "", ""]


@pytest.mark.parametrize("place", ["before the charge", "after the charge", "in the second run"])
def test_a_comparison_that_goes_on_is_not_charged_again(
    tmp_path: Path, graph: Graph, budget: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    out = tmp_path / "five"

    def begin(folder: Any) -> None:
        if place == "after the charge" or folder.path.name == FOLDERS[PRIVATE[1]]:
            raise StopError

    with monkeypatch.context() as patch:
        if place == "before the charge":
            patch.setattr(budgets, "_append", stop)
        with pytest.raises(StopError):
            hg.compare(graph, out=out, budget=budget, on_start=begin, **QUICK)
    assert len(DataBudget.open(budget).charges) == (0 if place == "before the charge" else 3)
    with pytest.raises(RunError, match=r"its comparison has budget=.*, and budget=None is asked for"):
        hg.compare(graph, out=out, **QUICK)
    shutil.copytree(out, tmp_path / "copy")
    hg.compare(graph, out=out, budget=budget, **QUICK)
    assert len(DataBudget.open(budget).charges) == 3
    # A copy of the comparison is a second one.
    with pytest.raises(RunError, match="another folder went on with it, or this one is an older copy"):
        hg.compare(graph, out=tmp_path / "copy", budget=budget, **QUICK)
    assert len(DataBudget.open(budget).charges) == 3


def test_entries_that_cannot_be_read_are_refused(tmp_path: Path, graph: Graph, budget: Path) -> None:
    out = tmp_path / "five"
    with pytest.raises(StopError):
        hg.compare(graph, out=out, budget=budget, on_start=stop, **QUICK)
    settings = json.loads((out / "settings.json").read_text())
    for entries in (None, {"DP-MLP": 3}, {"DP-MLP": {"run": "../x"}}):
        (out / "settings.json").write_text(json.dumps(settings | {"entries": entries}))
        with pytest.raises(RunError, match=r"settings\.json is damaged"):
            hg.compare(graph, out=out, budget=budget, **QUICK)


@pytest.mark.parametrize("has_budget", [True, False])
def test_the_box_shows_what_all_of_them_cost(
    tmp_path: Path, graph: Graph, budget: Path, has_budget: bool
) -> None:
    found = hg.compare(graph, budget=budget if has_budget else None, **QUICK)
    epsilon, delta = found.release_all
    alone = [row.epsilon for row in found.entries if row.private]
    assert max(alone) < epsilon < sum(alone)
    assert delta == DELTA
    if has_budget:
        # Nothing else is charged, at the same delta.
        charged = DataBudget.open(budget)
        assert epsilon == pytest.approx(charged.spent, rel=1e-12)
        assert epsilon == compose_charges(charged.charges, DELTA)
    for name in ("DP-Billboard", "GNN"):
        found.runs[name].report(tmp_path / "page.html", data=graph, comparison=found)
        text = read_box((tmp_path / "page.html").read_text())
        words = f"Publishing all 3 private models on this page together costs epsilon = {rounded_up(epsilon)}"
        assert words in text
        assert "all events by the &#39;pair&#39; accountant" in text
    twin = json.loads((tmp_path / "page.json").read_text())
    about = json.loads(found.to_json())
    assert twin["comparison"]["release_all"] == about["release_all"]
    assert about["release_all"]["epsilon"] == epsilon
    assert f"publishing all 3 together costs up to ({rounded_up(epsilon)}, 0.0001) by comp" in found.cost


def read_box(html: str) -> str:
    """The box at the top of a page and the figures beside it."""
    found = re.search(r'<section class="standing.*?</dl>', html, re.DOTALL)
    assert found is not None
    return found[0]


def test_the_first_figure_is_that_of_all_of_them(tmp_path: Path, graph: Graph) -> None:
    found = hg.compare(graph, **QUICK)
    found.runs["DP-Billboard"].report(tmp_path / "page.html", comparison=found)
    shown = re.findall(r"<dt>([^<]*)</dt><dd>([^<]*)</dd>", read_box((tmp_path / "page.html").read_text()))
    assert shown[0] == ("epsilon, all 3 private models", rounded_up(found.release_all[0]))
    assert shown[1] == ("epsilon, one node", "1.00")


def test_no_green_box_where_one_of_them_is_not_proven(tmp_path: Path, graph: Graph) -> None:
    found = hg.compare(graph, clipping="groups", noise="per-layer", **QUICK)
    assert math.isinf(found.release_all[0])
    assert found.runs["DP-Billboard"].result["guarantee"] == "holds"
    found.runs["DP-Billboard"].report(tmp_path / "page.html", comparison=found)
    box = read_box((tmp_path / "page.html").read_text())
    assert 'class="standing none"' in box
    assert "No guarantee for all private models together" in box
    assert "has no proven cost" in box


def test_the_command_charges_too(tmp_path: Path, run: Callable[..., Any], budget: Path) -> None:
    flags = ("--epsilon", 1, "--delta", DELTA, "--steps", 2, "--hidden", 4, "--max-readers", 1)
    line = ("compare", "generated-200", *flags, "--device", "cpu", "--budget", budget, "--json")
    code, out, err = run(*line, "--out", tmp_path / "five")
    assert code == 0, err
    spent = DataBudget.open(budget)
    assert len(spent.charges) == 3
    about = json.loads(out.splitlines()[-1])
    assert about["release_all"]["epsilon"] == pytest.approx(spent.spent)
    small = DataBudget.create(tmp_path / "small.ledger", epsilon=1.0, delta=DELTA).path
    code, _, err = run(*line[:-2], small, "--out", tmp_path / "other")
    assert (code, err.count("\n")) == (3, 1)
    assert "with these 3 runs it would be" in err
    assert not (tmp_path / "other").exists()
