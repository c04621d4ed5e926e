"""Promise: a step is on disk before it is taken, no budget is exceeded, nothing is ever forgotten."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from hushgraph.errors import BudgetExceededError, RunError
from hushgraph.privacy.ledger import Ledger
from plans import make_plan

PLAN = make_plan(
    num_train_nodes=1000, num_layers=1, max_readers=2, batch_size=50, steps=40, paper_noise_multiplier=1.0
)
STEP = PLAN.step_charge.once


def written(path: Path, counts: list[int]) -> bytes:
    with Ledger.create(path, PLAN) as ledger:
        for count in counts:
            ledger.charge(STEP, count=count)
    return path.read_bytes()


def test_a_charge_is_synced_before_it_returns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "ledger.jsonl"
    synced: list[int] = []
    with Ledger.create(path, PLAN) as ledger:
        real = os.fsync

        def record(descriptor: int) -> None:
            real(descriptor)
            synced.append(os.fstat(descriptor).st_size)

        monkeypatch.setattr(os, "fsync", record)
        for step in range(3):
            ledger.charge(STEP, step=step)
            assert synced[-1] == path.stat().st_size
            assert Ledger.open(path, read_only=True).steps_charged == step + 1
    assert len(synced) == 3


def test_a_charge_beyond_the_budget_touches_nothing(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    before = written(path, [39])
    with Ledger.open(path, plan=PLAN) as ledger:
        with pytest.raises(BudgetExceededError, match="does not allow 2 more steps after 39"):
            ledger.charge(STEP, count=2)
        assert (path.read_bytes(), ledger.steps_charged) == (before, 39)
        ledger.charge(STEP)
        full = path.read_bytes()
        for event in (STEP, replace(STEP, sigma_over_clip=3.0)):
            with pytest.raises(BudgetExceededError):
                ledger.charge(event)
        assert (path.read_bytes(), ledger.steps_charged) == (full, 40)
        assert ledger.spent_epsilon() <= ledger.budget


def test_a_file_cut_at_any_byte_never_forgets_a_written_line(tmp_path: Path) -> None:
    counts = [1, 3, 1, 2]
    content = written(tmp_path / "whole.jsonl", counts)
    path = tmp_path / "cut.jsonl"
    header = content.index(b"\n") + 1
    for cut in range(header, len(content) + 1):
        path.write_bytes(content[:cut])
        lines = content[header:cut].split(b"\n")
        whole = content[:cut].count(b"\n") - 1
        torn = lines[-1] != b"" and cut < len(content) and content[cut : cut + 1] != b"\n"
        # A line that only lacks its line end is whole.
        full = whole + (lines[-1] != b"" and not torn)
        ledger = Ledger.open(path, read_only=True)
        charged = sum(counts[:full])
        if torn:
            assert charged + 1 <= ledger.steps_charged <= charged + max(counts)
        else:
            assert ledger.steps_charged == charged
        assert path.read_bytes() == content[:cut]


@pytest.mark.parametrize("keep", [1, 40, 120, -1])
def test_a_torn_line_stays_spent_after_reopening_and_going_on(tmp_path: Path, keep: int) -> None:
    content = written(tmp_path / "whole.jsonl", [1, 1, 1])
    last = content[:-1].rindex(b"\n") + 1
    path = tmp_path / "torn.jsonl"
    path.write_bytes(content[:last] + content[last:][: keep if keep > 0 else -2])
    for opened in range(3):
        with Ledger.open(path, plan=PLAN) as ledger:
            assert ledger.steps_charged == 3 + opened
            ledger.charge(STEP)
    assert Ledger.open(path, read_only=True).steps_charged == 6


def test_a_torn_line_counts_as_the_largest_block_but_not_beyond_the_plan(tmp_path: Path) -> None:
    content = written(tmp_path / "whole.jsonl", [10, 10])
    path = tmp_path / "torn.jsonl"
    path.write_bytes(content[:-20])
    assert Ledger.open(path, read_only=True).steps_charged == 20
    content = written(tmp_path / "late.jsonl", [10, 10, 10, 5, 5])
    path.write_bytes(content[:-20])
    ledger = Ledger.open(path, read_only=True)
    assert ledger.steps_charged == ledger.planned_steps == 40


def test_damage_before_the_last_line_is_an_error(tmp_path: Path) -> None:
    content = written(tmp_path / "whole.jsonl", [1, 2, 3])
    lines = content.splitlines(keepends=True)
    path = tmp_path / "damaged.jsonl"
    damaged = {
        "a flipped digit": [lines[0], lines[1].replace(b'"count": 1', b'"count": 0'), *lines[2:]],
        "a missing line": [lines[0], *lines[2:]],
        "two lines exchanged": [lines[0], lines[2], lines[1], lines[3]],
        "a repeated line": [*lines[:2], lines[1], *lines[2:]],
        "half a line": [lines[0], lines[1][:30] + b"\n", *lines[2:]],
        "zeros": [*lines[:2], b"\0" * len(lines[2]) + b"\n", lines[3]],
    }
    for what, parts in damaged.items():
        path.write_bytes(b"".join(parts))
        for read_only in (True, False):
            with pytest.raises(RunError, match=r"line \d is damaged"):
                Ledger.open(path, read_only=read_only)
            assert path.read_bytes() == b"".join(parts), what


CHARGE_FOREVER = """
import sys
from hushgraph.privacy.ledger import Ledger
ledger = Ledger.open(sys.argv[1])
while True:
    ledger.charge(ledger.planned_step)
    print("taken", flush=True)
"""


def test_a_killed_process_has_paid_for_every_step_it_took(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    Ledger.create(path, replace(PLAN, steps=10**6)).close()
    with subprocess.Popen(
        [sys.executable, "-c", CHARGE_FOREVER, str(path)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        for _ in range(25):
            assert process.stdout.readline() == "taken\n"
        with pytest.raises(RunError, match="another process is writing"):
            Ledger.open(path)
        process.kill()
        taken = 25 + process.stdout.read().count("taken")
    with Ledger.open(path) as ledger:
        assert taken <= ledger.steps_charged <= taken + 2
