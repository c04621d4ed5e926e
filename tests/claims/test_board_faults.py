"""Mistakes planted into what a session calls: each is found at claims of 1 and 4, correct code at neither."""

from __future__ import annotations

from typing import Any

import pytest

from hushgraph.audit.attack import Effort, attack_board, attack_evaluated, audit_plan
from hushgraph.audit.checks import check_runs
from hushgraph.audit.faults import FAULTS
from hushgraph.audit.runs import Plant, plant_nothing
from hushgraph.privacy.plans import BillboardPlan

pytestmark = pytest.mark.usefixtures("small_checks")

CLAIMS = [1.0, 4.0]
# Plain checks compare with the plan, so that the claim matters to those of noise alone.
AT_BOTH = [None, "half-noise", "double-share", "half-noise-tables", "noiseless-tables"]
ON_A_BOARD = ["full-ballots", "double-share", "redrawn-board"]
IN_READINGS = ["noiseless-reading", "features-in-reading"]
# Which plain check sees which fault; the size of float noise is right, and only digits tell it.
SEEN_BY = {
    "half-noise": "noise of weight tensors has the planned size",
    "reused-noise": "no noise is used twice",
    "full-ballots": "rows cast what they may",
    "double-share": "noise of boards has the planned size",
    "noiseless-reading": "rows read the released boards",
    "redrawn-board": "boards and tables are released once",
    "features-in-reading": "rows read the released boards",
    "validation-labels": "rows cast what they may",
    "shared-stream": "no noise is used twice",
    "noiseless-tables": "noise in every cell of the tables",
    "half-noise-tables": "noise of tables has the planned size",
    "noiseless-cells": "noise in every cell of the tables",
    "rows-counted-twice": "tables count every evaluated row once",
    "unlabelled-in-tables": "tables count every evaluated row once",
    "training-in-tables": "tables count every evaluated row once",
    "uncharged-tables": "charges come first and are those of the plan",
    "float-noise": None,
}


def plan(epsilon: float, **changes: Any) -> BillboardPlan:
    usual = {"num_train_nodes": 1000, "batch_size": 1000, "steps": 2, "delta": 1e-5}
    return BillboardPlan(**{**usual, **changes}).calibrated(epsilon=epsilon)


def find_plant(fault: str | None) -> Plant:
    return plant_nothing if fault is None else FAULTS[fault].plant


def test_every_fault_of_boards_is_tried_here() -> None:
    assert set(SEEN_BY) == {name for name, fault in FAULTS.items() if fault.method != "trees"}


@pytest.mark.parametrize(
    ("fault", "claim"), [(None, 4.0), *((name, 4.0) for name in SEEN_BY), *((name, 1.0) for name in AT_BOTH)]
)
def test_plain_checks_see_it(fault: str | None, claim: float) -> None:
    checks = check_runs(plan(claim), find_plant(fault))
    failed = [check.name for check in checks if check.failure]
    expected = None if fault is None else SEEN_BY[fault]
    assert bool(failed) == (expected is not None), failed
    assert expected is None or expected in failed


@pytest.mark.parametrize("changes", [{"num_boards": 1}, {"clipping": "flat"}, {"edge_owner": "reader"}])
def test_plain_checks_hold_for_other_plans(changes: dict[str, Any]) -> None:
    assert [check for check in check_runs(plan(4.0, **changes), plant_nothing) if check.failure] == []


@pytest.mark.parametrize("fault", [None, *ON_A_BOARD])
def test_boards_with_too_much_in_them(fault: str | None) -> None:
    attack = attack_board(plan(4.0), degree=4, effort=Effort(trials=6000), plant=find_plant(fault))
    assert attack.exceeds == (fault is not None)
    # Half of the budget has gone to two boards.
    assert attack.claimed < 2.0


# Of half the noise a small claim shows least.
@pytest.mark.parametrize(
    ("fault", "claim"),
    [
        (None, 1.0),
        (None, 4.0),
        ("noiseless-tables", 4.0),
        ("half-noise-tables", 1.0),
        ("half-noise-tables", 4.0),
        ("unlabelled-in-tables", 1.0),
    ],
)
def test_tables_that_show_too_much(fault: str | None, claim: float) -> None:
    given = plan(claim).with_evaluation(2)
    row, tables = attack_evaluated(
        given, effort=Effort(trials=6000), plant=find_plant(fault), confidence=0.99
    )
    assert (row.name, tables.name) == ("row of the validation split", "tables of figures")
    assert tables.exceeds == (fault is not None)
    assert fault is not None or not row.exceeds
    # A second board has taken a part.
    assert tables.claimed < row.claimed <= claim
    assert row.claimed == pytest.approx(given.epsilon_evaluated)
    if claim == 4.0 and fault is None:
        assert row.lower_bound > 0.8 * row.claimed
        assert tables.lower_bound > 0.8 * tables.claimed


def test_without_tables_a_row_of_the_validation_split_is_seen_on_the_second_board_alone() -> None:
    (row,) = attack_evaluated(plan(4.0), effort=Effort(trials=100), plant=plant_nothing)
    assert row.claimed == plan(4.0).epsilon_evaluated < 2.0


@pytest.mark.parametrize(("claim", "trials"), [(1.0, 6000), (4.0, 1000)])
@pytest.mark.parametrize("fault", [None, "validation-labels"])
def test_labels_of_the_validation_split(fault: str | None, claim: float, trials: int) -> None:
    """With one board such a row costs nothing, so that whatever is shown is too much."""
    given = plan(claim, num_boards=1)
    (row,) = attack_evaluated(given, effort=Effort(trials=trials), plant=find_plant(fault), confidence=0.99)
    assert row.claimed == 0.0
    assert row.exceeds == (fault is not None)


@pytest.mark.usefixtures("quick_audit")
@pytest.mark.parametrize("fault", [None, *IN_READINGS])
def test_readings_of_others(fault: str | None) -> None:
    """What others read does not depend on the claim."""
    audit = audit_plan(plan(4.0), trials=20, numbers=False, fault=fault)
    assert bool(audit.others_changed) == (fault is not None)
    assert audit.exceeds == (fault is not None)


@pytest.mark.usefixtures("quick_audit")
@pytest.mark.parametrize("claim", CLAIMS)
@pytest.mark.parametrize("fault", ["half-noise", "reused-noise"])
def test_faults_of_steps_are_found_in_a_billboard_run_too(fault: str, claim: float) -> None:
    # Steps have most of the budget, so that few trials show more than the claim; a small claim takes more.
    trials = 3000 if claim == 1.0 else 1000
    audit = audit_plan(plan(claim, board_share=0.1), trials=trials, numbers=False, fault=fault)
    assert audit.exceeds
    assert audit.bound_exceeds
    assert audit.guarantee == "none"


@pytest.mark.usefixtures("quick_audit")
def test_digits_tell_float_noise_in_a_billboard_run_too() -> None:
    """Which digits noise has does not depend on the claim."""
    audit = audit_plan(plan(4.0, board_share=0.1), trials=300, numbers=True, fault="float-noise")
    assert audit.exceeds
    assert not audit.bound_exceeds
    assert audit.guarantee == "none"
