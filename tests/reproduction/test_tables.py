"""Lines of tables: which epsilon they have, which record of a seed counts, and their order."""

from __future__ import annotations

from typing import Any

import pytest

from hushgraph.reproduction import spec
from hushgraph.reproduction.tables import Line, build_table


def record(**others: Any) -> dict[str, Any]:
    usual = {
        "experiment": "curves",
        "column": "ogbn-arxiv",
        "data": "ogbn-arxiv",
        "row": "DP-GCN",
        "mode": "sound",
        "axes": {},
        "seed": 0,
        "test_accuracy": 0.5,
        "epsilon_holds": 12.0,
        "run": "r",
    }
    return usual | others


def build_lines(records: list[dict[str, Any]]) -> tuple[Line, ...]:
    return build_table(spec.load(records[0]["experiment"]), records).lines


def test_a_record_without_an_accuracy_is_left_out() -> None:
    (line,) = build_lines([record(test_accuracy=None), record(seed=1)])
    assert (line.ours, line.spread, len(line.runs)) == (50.0, None, 1)


def test_a_line_takes_the_larger_epsilon_and_none_where_one_is_missing() -> None:
    two = [record(seed=0, epsilon_holds=3.0), record(seed=1, epsilon_holds=3.5)]
    assert build_lines(two)[0].epsilon == 3.5
    assert build_lines([*two, record(seed=2, epsilon_holds=None)])[0].epsilon is None


def test_the_later_record_of_a_seed_counts() -> None:
    (line,) = build_lines([record(test_accuracy=0.1), record(test_accuracy=0.3), record(seed=1)])
    assert (line.ours, len(line.runs)) == (pytest.approx(40.0), 2)


def test_lines_are_in_the_order_of_the_experiment() -> None:
    given = [record(row=row, axes={"epsilon": e}) for e in (8, 1) for row in ("DP-MLP", "DP-GCN")]
    placed = [(line.row, line.axes["epsilon"]) for line in build_lines(given)]
    assert placed == [("DP-GCN", 1), ("DP-GCN", 8), ("DP-MLP", 1), ("DP-MLP", 8)]


@pytest.mark.parametrize(
    ("data", "graph"),
    [
        ("ogbn-arxiv", "ogbn-arxiv"),
        ("ogbn_arxiv", "ogbn-arxiv"),
        ("ogbn_arxiv_hints", "ogbn-arxiv (ogbn_arxiv_hints)"),
        ("generated", "ogbn-arxiv (generated)"),
    ],
)
def test_other_data_is_named_and_not_compared(data: str, graph: str) -> None:
    where = {"experiment": "degree", "axes": {"max_readers": 3}, "data": data}
    (line,) = build_lines([record(**where)])
    assert (line.graph, line.published) == (graph, 62.413)
    assert (line.difference is None) == (graph != "ogbn-arxiv")
