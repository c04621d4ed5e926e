"""Measurements: which epsilon they have, and which record of a seed counts."""

from __future__ import annotations

from typing import Any

from hushgraph.reproduction.measurements import group_records


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


def test_a_record_without_an_accuracy_is_left_out() -> None:
    (measurement,) = group_records([record(test_accuracy=None), record(seed=1)])
    assert measurement.accuracy == {1: 0.5}


def test_a_cell_takes_the_larger_epsilon_and_none_where_one_is_missing() -> None:
    two = [record(seed=0, epsilon_holds=3.0), record(seed=1, epsilon_holds=3.5)]
    assert group_records(two)[0].epsilon == 3.5
    assert group_records([*two, record(seed=2, epsilon_holds=None)])[0].epsilon is None


def test_the_later_record_of_a_seed_counts() -> None:
    (measurement,) = group_records([record(test_accuracy=0.1), record(test_accuracy=0.3), record(seed=1)])
    assert measurement.accuracy == {0: 0.3, 1: 0.5}
