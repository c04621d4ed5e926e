"""docs/reproduction.md shows the committed records, and these come from the committed settings."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import benchmark_scripts
from hushgraph.reproduction import spec
from hushgraph.reproduction.jobs import list_jobs

ROOT = Path(__file__).parents[2]
RECORDS = ROOT / "benchmarks" / "records" / "reproduction" / "records.jsonl"
PAGE = ROOT / "docs" / "reproduction.md"
COLUMNS = ("ogbn-arxiv", "ogbn-arxiv-disjoint", "facebook_32_schools")
LABELS = ("experiment", "column", "row", "mode", "axes", "seed")
# What as published cannot start: one step costs more than the budget.
NO_STEP = {("curves", (("epsilon", 1),)), ("curves-batch-size", (("batch_size", 2500), ("epsilon", 3)))}


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return benchmark_scripts.script("reproduction_page")


@pytest.fixture(scope="module")
def records() -> list[dict[str, Any]]:
    return [json.loads(line) for line in RECORDS.read_text().splitlines()]


def test_the_page_shows_the_records(script: ModuleType, records: list[dict[str, Any]]) -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert script.filled(page, script.read_tables()) == page
    shown = {place["name"] for place in script._PLACE.finditer(page)}
    assert shown == {record["experiment"] for record in records} - {"class-wise"}


def test_every_figure_on_the_page_is_there() -> None:
    page = PAGE.read_text(encoding="utf-8")
    figures = {path.stem for path in (ROOT / "docs" / "assets" / "reproduction").glob("*.svg")}
    assert figures == {name for name in spec.names() if f"(assets/reproduction/{name}.svg)" in page}
    assert len(figures) == 11


def test_every_cell_mode_and_seed_has_one_record(records: list[dict[str, Any]]) -> None:
    labels = [tuple(_placed(r)[name] for name in LABELS) for r in records]
    assert len(set(labels)) == len(labels)
    expected = {
        (name, job.column.name, job.row.row, job.mode, tuple(sorted(job.axes)), job.seed)
        for name in spec.names()
        if spec.load(name).kind != "frontier"
        for job in list_jobs(spec.load(name), modes=spec.DP_MODES, only=COLUMNS)
    }
    assert set(labels) <= expected
    missing = expected - set(labels)
    assert {(name, axes) for name, _, _, _, axes, _ in missing} == NO_STEP
    assert {(row, mode) for _, _, row, mode, _, _ in missing} == {("DP-GCN", "as-published")}


def test_records_are_of_one_machine_and_say_what_holds(records: list[dict[str, Any]]) -> None:
    assert {record["device"] for record in records} == {"cuda"}
    assert all(record["commit"] for record in records)
    for record in records:
        if record["mode"] == "sound":
            assert record["epsilon_holds"] <= record["claimed_epsilon"]
        else:
            assert record["epsilon_holds"] is None


def _placed(record: dict[str, Any]) -> dict[str, Any]:
    return record | {"axes": tuple(sorted(record["axes"].items()))}
