"""README.md and docs/frontier.md show the committed records of `reproduce frontier`."""

from __future__ import annotations

import json
from statistics import fmean
from types import ModuleType

import pytest

import benchmark_scripts
from hushgraph.reproduction import spec


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return benchmark_scripts.script("frontier_page")


def test_the_pages_show_the_records(script: ModuleType) -> None:
    table = script.read_table()
    for path in script.PAGES:
        page = path.read_text(encoding="utf-8")
        assert script.fill(page, table) == page, f"run benchmarks/frontier_page.py: {path.name} differs"


def test_every_graph_has_a_table(script: ModuleType) -> None:
    page = script.PAGES[1].read_text(encoding="utf-8")
    shown = {place["name"] for place in script._PLACE.finditer(page)}
    assert shown == {column.name for column in spec.load("frontier").columns}


def test_a_cell_is_the_mean_of_three_runs_that_hold(script: ModuleType) -> None:

    records = [json.loads(line) for line in script.RECORDS.read_text(encoding="utf-8").splitlines()]
    cell = [
        record
        for record in records
        if (record["data"], record["row"], record["axes"])
        == ("facebook_32_schools", "billboard", {"epsilon": 4})
    ]
    assert [record["guarantee"] for record in cell] == ["holds"] * 3
    assert all(record["epsilon_holds"] <= 4 for record in cell)
    mean = 100 * fmean(record["test_accuracy"] for record in cell)
    line = next(
        line
        for line in script.read_table().lines
        if (line.data, line.row, line.axes.get("epsilon"))
        == ("facebook_32_schools", "DP-Billboard, covered", 4)
    )
    assert line.ours == pytest.approx(mean)
    assert f"{mean:.1f}" in script.PAGES[0].read_text(encoding="utf-8")
