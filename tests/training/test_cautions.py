"""Warnings about a run, each where it belongs: in the terminal, in JSON and in the report."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import hushgraph as hg
from hushgraph.comparison.result import BILLBOARD
from hushgraph.graph.graph import Graph
from hushgraph.tasks.classes import Classes
from hushgraph.tasks.labels import Labels
from hushgraph.tasks.two_classes import TwoClasses
from hushgraph.training.cautions import (
    list_comparison_notices,
    list_figure_notices,
    list_notes,
    list_warnings,
)
from plans import make_plan

pytestmark = pytest.mark.usefixtures("own_folder")
Run = Callable[..., tuple[int, str, str]]
THREE = Classes(num_classes=3)
USUAL: dict[str, Any] = {
    "num_train_nodes": 100,
    "num_layers": 1,
    "max_readers": 3,
    "batch_size": 10,
    "steps": 2,
    "paper_noise_multiplier": 2.0,
}


def make_graph(edges: list[tuple[int, int]], **more: Any) -> Graph:
    """Five nodes, of which the first three are for training."""
    ends = np.array(edges).T if edges else np.empty((2, 0), np.int64)
    return Graph.from_arrays(edge_index=ends, x=np.eye(5), y=[0, 1, 0, 1, 0], train_idx=[0, 1, 2], **more)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, []),
        ({"delta": 0.0099}, []),
        ({"delta": 0.01}, ["delta = 0.01 is at or above 1 / N for N = 100"]),
        ({"delta": 0.5, "paper_noise_multiplier": 0.0}, []),
        ({"max_readers": 99}, []),
        ({"max_readers": 100}, ["K = 100 (max_readers) is at or above N = 100"]),
        ({"max_readers": 0}, ["training reads no edges"]),
        ({"max_reads": 0}, ["training reads no edges"]),
        # A model without rounds of messages reads none by design.
        ({"max_readers": 0, "num_layers": 0}, []),
        ({"max_readers": 100, "delta": 0.02}, ["delta = 0.02", "K = 100"]),
    ],
)
def test_warnings_of_a_plan(changes: dict[str, Any], words: list[str]) -> None:
    warnings = list_warnings(make_graph([(0, 1)]), make_plan(**USUAL | changes))
    assert len(warnings) == len(words)
    for warning, start in zip(warnings, words, strict=True):
        assert warning.startswith(start)


def test_weights_are_named() -> None:
    data = SimpleNamespace(edge_index=np.array([[0, 1], [1, 0]]), x=np.eye(2), y=np.array([0, 1]))
    data.train_idx, data.edge_weight = np.array([0]), np.ones(2)
    graph = hg.datasets.load_graph(data)
    assert list_warnings(graph, make_plan(**USUAL)) == [
        "columns or attributes of edges that are not read: 'edge_weight'; every edge counts the same"
    ]
    # Edges whose weights are read do not count the same.
    data.edge_attr = np.ones((2, 3))
    graph = hg.datasets.load_graph(data, edge_weight="edge_weight")
    assert list_warnings(graph, make_plan(**USUAL)) == [
        "columns or attributes of edges that are not read: 'edge_attr'"
    ]


@pytest.mark.parametrize(
    ("edges", "declared", "told"),
    [
        ([(0, 1), (1, 2), (0, 4)], {}, "no edge has its reverse"),
        ([(0, 1), (1, 2), (0, 4)], {"directed": True}, None),
        ([(0, 1), (1, 2), (0, 4)], {"symmetrize": True}, None),
        ([(0, 1), (1, 2), (2, 1)], {}, None),
        ([(0, 1), (1, 2), (2, 1)], {"directed": True}, None),
        ([(0, 1), (1, 0)], {}, None),
        ([(0, 1), (1, 0)], {"directed": True}, "every edge has its reverse, and --directed prices one"),
        ([], {}, "there is no edge"),
        ([], {"directed": True}, "there is no edge"),
    ],
)
def test_how_edges_look_is_a_note(
    edges: list[tuple[int, int]], declared: dict[str, bool], told: str | None
) -> None:
    notes = list_notes(make_graph(edges), **{"symmetrize": False, "directed": False, **declared})
    assert [told in note for note in notes] == [True] if told else notes == []


def test_counts_are_told_and_zeros_are_not() -> None:
    graph = make_graph([(0, 1), (0, 1), (1, 0), (3, 3)], columns=hg.Columns())
    undeclared = {"symmetrize": False, "directed": False}
    assert list_notes(graph, **undeclared) == [
        "self-loops dropped: 1",
        "repeated edges dropped: 1",
    ]
    counted = replace(graph, clean_up={"numbers filled": 1200, "categories not listed": 0})
    assert list_notes(counted, **undeclared)[0] == "numbers filled: 1,200"


def test_other_runs_on_the_data_are_mentioned_everywhere(run: Run) -> None:
    line = [
        "train",
        "demo",
        "--steps",
        "2",
        "--hidden",
        "4",
        "--device",
        "cpu",
        "--budget",
        "demo.ledger",
        "--epsilon",
        "1",
    ]
    assert run("budget", "demo.ledger", "--delta", "0.0001")[0] == 0
    code, out, _ = run(*line, "--json", "--out", "first")
    assert (code, json.loads(out)["warnings"]) == (0, [])
    code, _, err = run(*line, "--out", "second")
    assert code == 0
    assert err.startswith("warning: 1 other run is charged to the budget of this data, epsilon ")
    assert run("report", "second")[0] == 0
    (warning,) = json.loads(Path("second/report.json").read_text())["warnings"]
    assert f"warning: {warning}\n" == err
    assert json.loads(Path("second/result.json").read_text())["warnings"] == [warning]
    assert hg.Run.load("second", device="cpu").folder.warnings == (warning,)
    code, out, _ = run(*line, "--dry-run", "--json")
    assert json.loads(out)["warnings"][0].startswith("2 other runs are charged")


def test_notes_go_to_the_hook_and_nowhere_else(capfd: pytest.CaptureFixture[str]) -> None:
    notes: list[str] = []
    graph = make_graph([(0, 1), (1, 2), (0, 2), (3, 3)], columns=hg.Columns())
    run = hg.train(graph, epsilon=4.0, steps=2, hidden=4, device="cpu", on_notes=notes.extend, out="run")
    assert len(notes) == 2
    assert capfd.readouterr() == ("", "")
    assert run.result["warnings"] == []
    for path in Path("run").rglob("*"):
        assert path.is_dir() or b"dropped" not in path.read_bytes()


UNDECLARED = {"symmetrize": False, "directed": False}


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array], ids=["dense", "sparse"])
@pytest.mark.parametrize(
    ("x", "told"),
    [
        (np.eye(5), None),
        (np.zeros((5, 3)), "all features are 0"),
        # Incomes beside flags; a column without any value counts for nothing.
        (np.diag([1.0, 0.0, 1.0, 2500.0, 1.0]), "differ by a factor of 2,500"),
        (np.diag([1.0, 1.0, 1.0, -2500.0, 1.0]), "differ by a factor of 2,500"),
        (np.diag([1.0, 1.0, 1.0, 999.0, 1.0]), None),
    ],
)
def test_features_that_carry_nothing_or_hide_others_are_a_note(form: Any, x: Any, told: str | None) -> None:
    graph = Graph.from_arrays(
        edge_index=np.array([[0, 1], [1, 0]]), x=form(x), y=[0, 1, 0, 1, 0], train_idx=[0, 1, 2]
    )
    notes = list_notes(graph, **UNDECLARED)
    assert [told in note for note in notes] == [True] if told else notes == []


def test_features_are_looked_at_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    from hushgraph.training import cautions

    x = np.diag([1.0, 1.0, 1.0, 2500.0, 1.0])
    graph = replace(make_graph([(0, 1), (1, 0)]), x=x)
    monkeypatch.setattr(cautions, "_CHUNK", 2)
    assert len(list_notes(graph, **UNDECLARED)) == 1
    monkeypatch.setattr(cautions, "_MOST_FEATURES", 24)
    assert list_notes(graph, **UNDECLARED) == []


def test_what_rows_look_like_is_told_on_the_terminal_alone(run: Run, tmp_path: Path) -> None:
    rows = [f"p{n},0,{n % 2}" for n in range(60)]
    Path("nodes.csv").write_text("\n".join(["id,age,label", *rows]))
    Path("edges.csv").write_text("source,target\n")
    line = "train nodes.csv --edges edges.csv --epsilon 4 --steps 2 --hidden 4 --classes 0,1 --device cpu"
    code, out, err = run(*line.split(), "--out", "run")
    assert code == 0
    for words in ("there is no edge", "all features are 0"):
        assert f"private, for you alone: {words}" in err
        assert words not in out
        for path in Path("run").rglob("*"):
            assert path.is_dir() or words.encode() not in path.read_bytes()
    assert "private, for you alone: there is no edge" in run("plan", *line.split()[1:6])[2]


def make_table(
    figures: dict[tuple[str, int | None], tuple[float, float]], **where: Any
) -> list[dict[str, Any]]:
    """Rows of a figure table: by figure and class, the value and half of its noise interval."""
    return [
        {"split": "test", "group": None, "class": place, "figure": name}
        | {"value": value, "noise": [value - half, value + half], "sampling": None}
        | where
        for (name, place), (value, half) in figures.items()
    ]


def test_a_model_that_is_no_better_than_one_class_is_noticed() -> None:
    table = make_table({("accuracy", None): (0.5, 0.005), ("majority_baseline", None): (0.5, 0.005)})
    assert list_figure_notices(table, task=THREE) == [
        "the model is hardly better, or worse, than always predicting the most frequent class: test accuracy "
        "50.0% against 50.0%; a larger epsilon, more training nodes or fewer classes may help"
    ]
    assert list_figure_notices(table, task=Classes(num_classes=2))[0].endswith(
        "; a larger epsilon or more training nodes may help"
    )


def test_accuracy_says_nothing_where_a_task_is_judged_by_ranking() -> None:
    table = make_table({("accuracy", None): (0.4, 0.005), ("majority_baseline", None): (0.5, 0.005)})
    for task in (TwoClasses(), TwoClasses(rare=True), Labels(num_labels=3)):
        assert list_figure_notices(table, task=task) == []


def test_noise_that_could_explain_it_keeps_notices_back() -> None:
    for accuracy, half, told in ((0.5, 0.005, 1), (0.515, 0.005, 0), (0.4, 0.05, 1), (0.5, 0.02, 0)):
        table = make_table({("accuracy", None): (accuracy, half), ("majority_baseline", None): (0.5, half)})
        assert len(list_figure_notices(table, task=THREE)) == told


def test_notices_are_about_the_test_split_as_a_whole() -> None:
    bad = make_table({("accuracy", None): (0.5, 0.0), ("majority_baseline", None): (0.5, 0.0)})
    good = make_table({("accuracy", None): (0.9, 0.0), ("majority_baseline", None): (0.5, 0.0)})
    in_validation = [row | {"split": "val"} for row in bad]
    assert list_figure_notices([*in_validation, *good], task=THREE) == []
    assert list_figure_notices([*good, *[row | {"group": "women"} for row in bad]], task=THREE) == []
    hidden = [row | {"value": None, "noise": None, "why": "noise"} for row in good]
    assert "validation accuracy" in list_figure_notices([*in_validation, *hidden], task=THREE)[0]
    assert list_figure_notices(hidden, task=THREE) == list_figure_notices([], task=THREE) == []


NOT = "the graph does not help: DP-MLP, the private MLP, reads no edges, protects them fully and is "
UNTOLD = "whether the graph helps cannot be told: "


@pytest.mark.parametrize("figure", ["accuracy", "roc_auc", "macro_auc", "r2"])
@pytest.mark.parametrize(
    ("billboard", "mlp", "told"),
    [
        ((0.60, 0.005), (0.61, 0.005), f"{NOT}better"),
        ((0.60, 0.005), (0.60, 0.005), f"{NOT}as good"),
        ((0.63, 0.005), (0.61, 0.005), None),
        # Noise alone might hide three points.
        ((0.60, 0.03), (0.61, 0.03), f"{UNTOLD}DP-MLP, the private MLP, is better, but by less than"),
        ((0.61, 0.03), (0.60, 0.03), f"{UNTOLD}DP-MLP, the private MLP, is worse, but by less than"),
        ((0.50, 0.03), (0.61, 0.03), f"{NOT}better"),
        (None, (0.61, 0.03), f"{UNTOLD}noise hides the"),
    ],
)
def test_a_graph_that_does_not_help_is_noticed(
    billboard: tuple[float, float] | None, mlp: tuple[float, float], told: str | None, figure: str
) -> None:
    tables = {
        BILLBOARD: [] if billboard is None else make_table({(figure, None): billboard}),
        "DP-MLP": make_table({(figure, None): mlp}),
    }
    notices = list_comparison_notices(tables, figure=figure)
    assert [notice[: len(told or "")] for notice in notices] == ([] if told is None else [told])
    if told is not None and billboard == (0.50, 0.03):
        words = {"accuracy": "accuracy 61.00% against 50.00%", "roc_auc": "ROC-AUC 0.6100 against 0.5000"}
        words |= {"macro_auc": "mean ROC-AUC 0.6100 against 0.5000", "r2": "R² 0.6100 against 0.5000"}
        assert notices[0].endswith(f" (test {words[figure]} of DP-Billboard, covered)")
