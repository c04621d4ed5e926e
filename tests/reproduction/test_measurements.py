"""Measurements: which epsilon they have, which record of a seed counts, and what is refused."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from hushgraph.errors import InputError
from hushgraph.reproduction.measurements import group_records, read_records


def record(**others: Any) -> dict[str, Any]:
    usual = {
        "experiment": "made-up",
        "column": "ogbn-arxiv",
        "data": "ogbn-arxiv",
        "row": "DP-GCN",
        "mode": "sound",
        "axes": {},
        "seed": 0,
        "test_accuracy": 0.5,
        "epsilon_holds": 12.0,
    }
    return usual | others


def test_a_line_that_is_still_being_written_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    path.write_text(json.dumps(record()) + "\n" + json.dumps(record(test_accuracy=None)) + '\n{"half a li')
    assert read_records(path) == [record()]


def test_a_cell_takes_the_larger_epsilon_and_none_where_one_is_missing() -> None:
    two = [record(seed=0, epsilon_holds=3.0), record(seed=1, epsilon_holds=3.5)]
    assert group_records(two)[0].epsilon == 3.5
    assert group_records([*two, record(seed=2, epsilon_holds=None)])[0].epsilon is None
    assert group_records([*two, record(seed=2, epsilon_holds=math.inf)])[0].epsilon is None


def test_the_later_record_of_a_seed_counts() -> None:
    (measurement,) = group_records([record(test_accuracy=0.1), record(test_accuracy=0.3), record(seed=1)])
    assert measurement.accuracy == {0: 0.3, 1: 0.5}


@pytest.mark.parametrize(
    ("records", "message"),
    [
        ([], "records: no records; run the experiment first"),
        ([record(test_accuracy=None)], "records: no test_accuracy in 1 records"),
        ([record(), "x"], "records, record 2: str, expected an object"),
        ([{"experiment": "x", "row": "y"}], "record 1: no text for column, data, mode"),
        (
            [record(mode="loud")],
            "mode='loud', expected one of non-private, non-private-ours, sound, as-published",
        ),
        ([record(test_accuracy=61.0)], "test_accuracy=61.0, expected a number from 0 to 1"),
        ([record(axes=[3])], r"axes=\[3\], expected an object"),
        ([record(experiment="../up")], "experiment='../up', expected letters, digits and hyphens"),
    ],
)
def test_what_is_refused(records: list[Any], message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        read_records(records)
    assert "\n" not in str(caught.value)


def test_files_that_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    with pytest.raises(InputError, match=r"records\.jsonl: cannot be read \(.*expected a file of JSON lines"):
        read_records(path)
    path.write_text("")
    with pytest.raises(InputError, match=r"records\.jsonl: no records; run the experiment first"):
        read_records(path)
    path.write_text(json.dumps(record()) + "\n{oh\n")
    with pytest.raises(InputError, match=r"records\.jsonl, line 2: not JSON"):
        read_records(path)
