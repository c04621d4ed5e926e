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

import hushgraph as hg
from hushgraph.graph.graph import Graph
from hushgraph.training.cautions import list_notes, list_warnings
from plans import make_plan

pytestmark = pytest.mark.usefixtures("own_folder")
Run = Callable[..., tuple[int, str, str]]
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
        "not read with the edges: 'edge_weight'; every edge counts the same"
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
        ([], {}, None),
        ([], {"directed": True}, None),
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
