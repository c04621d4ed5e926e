"""The committed record of noisy figures: what docs/figures.md shows, and how often intervals are right."""

from __future__ import annotations

import json
from types import ModuleType
from typing import Any

import pytest

import benchmark_scripts

RECORDS = benchmark_scripts.ROOT / "benchmarks" / "records" / "figure_noise.jsonl"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return benchmark_scripts.script("figure_noise")


@pytest.fixture(scope="module")
def records() -> list[dict[str, Any]]:
    return [json.loads(line) for line in RECORDS.read_text().splitlines()]


def test_the_page_shows_the_record(script: ModuleType, records: list[dict[str, Any]]) -> None:
    page = (benchmark_scripts.ROOT / "docs" / "figures.md").read_text()
    assert script.write_table(records) in page
    assert script.write_widths(records) in page


def test_every_headline_figure_is_measured_on_every_graph(
    script: ModuleType, records: list[dict[str, Any]]
) -> None:
    measured = {(r["graph"], r["epsilon"], r["figure"]) for r in records if "coverage" in r}
    for graph in script.GRAPHS:
        names = script.HEADLINES if graph in ("tolokers", "twitch_de") else script.HEADLINES[:4]
        assert {each for each in measured if each[0] == graph} == {
            (graph, epsilon, name) for epsilon in script.BUDGETS for name in names
        }


def test_figures_are_right_on_average_and_intervals_cover(records: list[dict[str, Any]]) -> None:
    measured = [r for r in records if "coverage" in r]
    assert all(r["shown"] == 1.0 and abs(r["mean_error_in_standard_errors"]) < 2 for r in measured)
    missed = [(r["graph"], r["epsilon"], r["figure"]) for r in measured if not 0.93 <= r["coverage"] <= 0.97]
    assert missed == []
