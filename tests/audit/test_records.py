"""The committed audit: every claim stands, every fault is caught, and docs/audit.md shows these figures."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import benchmark_scripts
from hushgraph.audit.faults import FAULTS

ROOT = Path(__file__).parent.parent.parent
FAULT_TABLES = ("faults", "board-faults")
RECORDS = ROOT / "benchmarks" / "records" / "audit.jsonl"


OF_TABLES = {
    *("noiseless-tables", "half-noise-tables", "noiseless-cells", "rows-counted-twice"),
    *("unlabelled-in-tables", "training-in-tables", "uncharged-tables"),
}


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return benchmark_scripts.script("audit_table")


@pytest.fixture(scope="module")
def records() -> list[dict[str, Any]]:
    return [json.loads(line) for line in RECORDS.read_text().splitlines()]


def test_the_records_are_those_of_the_script(script: ModuleType, records: list[dict[str, Any]]) -> None:
    found = [(r["table"], r["row"], r["claim"]) for r in records]
    assert found == [(cell.table, cell.row, cell.claim) for cell in script.cells(1.0)]
    assert set(script.FAULTS) == {name for name, fault in FAULTS.items() if fault.method != "billboard"}
    # The records are older than tables of figures.
    attacked = {name for name, fault in FAULTS.items() if fault.method != "trees"} - OF_TABLES
    assert set(script.BOARD_FAULTS) == attacked
    assert all(r["bound_confidence"] == 0.95 and r["delta"] == 1e-5 for r in records)


def test_other_peoples_predictions_stay(records: list[dict[str, Any]]) -> None:
    clean = [r for r in records if r["table"] == "billboard"]
    assert clean
    for record in clean:
        assert record["others_changed"] == 0
        assert all(entry["lower_bound"] <= entry["claimed_epsilon"] for entry in record["attacks"])


def test_claims_stand_and_faults_are_caught(script: ModuleType, records: list[dict[str, Any]]) -> None:
    assert script.complaints(records) == []
    for record in records:
        assert record["claimed_epsilon"] <= record["claim"]
        assert record["claimed_epsilon"] > 0.9 * record["claim"]


def test_the_script_complains(script: ModuleType, records: list[dict[str, Any]]) -> None:
    clean = next(r for r in records if r["table"] == "models" and r["changed_trees"] == 1)
    boards = next(r for r in records if r["table"] == "billboard")
    wrong = [
        clean | {"exceeds": True},
        clean | {"lower_bound": 0.1 * clean["claim"]},
        boards | {"lower_bound": 0.6 * boards["claim"]},
        *(next(r for r in records if r["table"] == name) | {"exceeds": False} for name in FAULT_TABLES),
    ]
    assert len(script.complaints(wrong)) == 5


def test_the_page_shows_the_records(script: ModuleType, records: list[dict[str, Any]]) -> None:
    page = (ROOT / "docs" / "audit.md").read_text()
    for table in script.tables(records):
        assert table in page


def test_faults_in_the_code_are_caught_by_the_command() -> None:
    script = benchmark_scripts.script("audit_faults")
    lines = (ROOT / "benchmarks" / "records" / "audit_faults.jsonl").read_text().splitlines()
    found = {record["fault"]: record for record in map(json.loads, lines)}
    assert list(found) == ["none", *script.FAULTS]
    assert not found["none"]["caught"]
    assert sum(record["caught"] for record in found.values()) >= script.LEAST
    assert all(record["caught_by"] for name, record in found.items() if name != "none")
    assert all(record["arguments"] == ["--epsilon", "4"] for record in found.values())
