"""Promise: real runs of every task let out about one row what is claimed, and nothing more."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import hushgraph as hg
from hushgraph.accounting.accountants import gaussian_epsilon, gaussian_shift
from hushgraph.audit.attack import Difference, audit_plan, stage_boards
from hushgraph.audit.faults import get_fault
from hushgraph.audit.runs import Plant, plant_nothing
from hushgraph.audit.source import settings_for, settings_of_run
from hushgraph.privacy.changes import TRAINING_ROW, Change, row_emptied
from hushgraph.privacy.charges import epsilon
from hushgraph.privacy.plans import BillboardPlan
from hushgraph.tasks.classes import Classes
from hushgraph.tasks.labels import Labels
from hushgraph.tasks.number import Number
from hushgraph.tasks.task import Task
from hushgraph.tasks.two_classes import TwoClasses

pytestmark = pytest.mark.usefixtures("small_checks")

DELTA, COPIES = 1e-5, 3_000
TASKS: dict[str, tuple[Task, tuple[float, ...] | None]] = {
    "classes": (Classes(num_classes=7), None),
    "two classes": (TwoClasses(positive=0), None),
    "rare": (TwoClasses(rare=True), (0.02, 1.0)),
    "labels": (Labels(num_labels=84), None),
    "number": (Number(low=0.0, high=8.0), None),
}
CHANGES = {
    "emptied": TRAINING_ROW,
    "flipped": Change("label", ("training",)),
    "evaluated": next(iter(row_emptied("evaluated"))),
}


def make_plan(task: Task, claim: float, *, boards: int = 1) -> BillboardPlan:
    plan = BillboardPlan(
        num_train_nodes=1_000,
        batch_size=1_000,
        steps=2,
        num_classes=task.num_outputs,
        label_change=None if type(task) is Classes else task.label_change,
        num_boards=boards,
        delta=DELTA,
    )
    return plan.calibrated(epsilon=claim).with_evaluation(task.num_tables)


def attack(
    name: str, claim: float, difference: Difference, *, boards: int = 1, plant: Plant = plant_nothing
) -> tuple[float, float, float]:
    """The shift that is claimed, the one that a run shows, and its standard error."""
    task, weights = TASKS[name]
    plan = make_plan(task, claim, boards=boards)
    stage = stage_boards(plan, plant, COPIES, difference=difference, task=task, class_weights=weights)
    shown = stage.run(np.random.default_rng(3))
    assert shown.changed == 0
    there, empty = shown.pair(0)
    spread = math.sqrt((there.var() + empty.var()) / 2)
    claimed = epsilon(stage.plan.charges, [CHANGES[difference]], delta=DELTA)
    return gaussian_shift(claimed, DELTA), (there.mean() - empty.mean()) / spread, math.sqrt(4 / COPIES)


@pytest.mark.parametrize(("difference", "claim"), [("emptied", 1.0), ("evaluated", 4.0)])
@pytest.mark.parametrize("name", TASKS)
def test_a_row_shows_what_is_claimed(name: str, difference: Difference, claim: float) -> None:
    claimed, seen, error = attack(name, claim, difference)
    assert gaussian_epsilon(claimed, DELTA) == pytest.approx(claim, rel=1e-3)
    assert abs(seen - claimed) < 4 * error


@pytest.mark.parametrize("name", TASKS)
def test_a_flipped_label_shows_what_is_claimed(name: str) -> None:
    claimed, seen, error = attack(name, 4.0, "flipped")
    assert seen < claimed + 4 * error
    # What a common class weighs little is let out less of.
    assert name == "rare" or seen > claimed - 4 * error


@pytest.mark.parametrize("name", TASKS)
def test_two_boards_of_every_task(name: str) -> None:
    claimed, seen, error = attack(name, 4.0, "emptied", boards=2)
    assert abs(seen - claimed) < 4 * error


def test_half_the_noise_shows_more() -> None:
    claimed, seen, error = attack("number", 4.0, "emptied", plant=get_fault("half-noise").plant)
    assert seen > claimed + 4 * error


@pytest.mark.parametrize("name", ["rare", "number"])
def test_an_audit_of_a_run_attacks_its_task(name: str) -> None:
    task, weights = TASKS[name]
    audit = audit_plan(make_plan(task, 4.0), trials=60, numbers=False, task=task, class_weights=weights)
    assert audit.shift == pytest.approx(audit.shift_at_most, rel=1e-3)
    assert not audit.exceeds
    assert audit.others_changed == 0
    assert [check.name for check in audit.checks if check.failure] == []


def test_an_audit_takes_task_and_weights_of_run_and_data(tmp_path: Any) -> None:
    data = hg.datasets.synthetic(num_nodes=200, num_classes=2, seed=1)
    settings: dict[str, Any] = {"epsilon": 4.0, "positive": 0, "rare": True, "class_weight": {"1": 0.5}}
    run = hg.train(data, out=tmp_path / "run", steps=2, hidden=2, device="cpu", **settings)
    for found in (settings_of_run(run.folder.path), settings_for(data, **settings)):
        assert found.task == TwoClasses(positive=0, rare=True)
        assert found.class_weights == (1.0, 0.5)
