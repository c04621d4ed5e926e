"""Mistakes planted into the code of boards: each is found at claims of 1 and 4, correct code at neither."""

from __future__ import annotations

from typing import Any

import pytest

from hushgraph.audit import billboard
from hushgraph.audit.billboard import attack_board, audit_billboard
from hushgraph.audit.faults import FAULTS
from hushgraph.audit.result import Attack, Audit
from hushgraph.privacy.plans import BillboardPlan

CLAIMS = [1.0, 4.0]
# Caught by one board, by a row of the validation split, by whole runs.
ON_A_BOARD = ["full-ballots", "double-share", "redrawn-board"]
IN_READINGS = ["noiseless-reading", "features-in-reading"]


def plan(epsilon: float, **changes: Any) -> BillboardPlan:
    usual = {"num_train_nodes": 1000, "batch_size": 1000, "steps": 2, "delta": 1e-5}
    return BillboardPlan(**{**usual, **changes}).calibrated(epsilon=epsilon)


def get_attack(audit: Audit, name: str) -> Attack:
    return next(attack for attack in audit.attacks if name in attack.name)


@pytest.fixture
def few_large_boards(monkeypatch: pytest.MonkeyPatch) -> None:
    """The attack on one board with 1,000 places is most of an audit, and sees neither of these faults."""
    monkeypatch.setattr(billboard, "_LARGE_TRIALS", 100)


def test_every_fault_of_boards_is_tried_here() -> None:
    of_boards = {name for name, fault in FAULTS.items() if fault.method == "billboard"}
    assert of_boards == {*ON_A_BOARD, *IN_READINGS, "validation-labels", "shared-stream"}


@pytest.mark.parametrize("claim", CLAIMS)
@pytest.mark.parametrize("fault", [None, *ON_A_BOARD])
def test_boards_with_too_much_in_them(fault: str | None, claim: float) -> None:
    attack = attack_board(plan(claim), degree=4, trials=100_000, fault=fault)
    assert attack.exceeds == (fault is not None)
    # Half of the budget has gone to two boards.
    assert attack.claimed < claim / 2


@pytest.mark.usefixtures("few_large_boards")
@pytest.mark.parametrize("claim", CLAIMS)
@pytest.mark.parametrize("fault", [None, "validation-labels"])
def test_labels_of_the_validation_split(fault: str | None, claim: float) -> None:
    """With one board such a row costs nothing, so that whatever is shown is too much."""
    given = plan(claim, num_boards=1)
    audit = audit_billboard(given, trials=20_000, fresh_runs=0, numbers=False, fault=fault)
    row = get_attack(audit, "validation split")
    assert row.claimed == 0.0
    assert row.exceeds == (fault is not None)
    assert audit.exceeds == (fault is not None)


@pytest.mark.parametrize(
    ("fault", "claim", "runs"),
    [
        (None, 1.0, 30),
        ("noiseless-reading", 1.0, 80),
        ("noiseless-reading", 4.0, 90),
        ("features-in-reading", 1.0, 120),
        ("features-in-reading", 4.0, 80),
        ("shared-stream", 1.0, 60),
        ("shared-stream", 4.0, 80),
    ],
)
def test_whole_runs(fault: str | None, claim: float, runs: int) -> None:
    audit = audit_billboard(plan(claim), trials=runs, fresh_runs=runs, numbers=False, fault=fault)
    assert bool(audit.others_changed) == (fault in IN_READINGS)
    of_runs = [get_attack(audit, name) for name in ("whole runs", "two charges")]
    assert any(attack.exceeds for attack in of_runs) == (fault is not None)
    assert audit.bound_exceeds == (fault is not None)


@pytest.mark.usefixtures("few_large_boards")
@pytest.mark.parametrize("claim", CLAIMS)
@pytest.mark.parametrize("fault", ["half-noise", "reused-noise", "float-noise"])
def test_faults_of_steps_are_found_in_a_billboard_run_too(fault: str, claim: float) -> None:
    by_numbers = fault == "float-noise"
    # Steps have most of the budget, so that few trials show more than the claim: by ten standard deviations.
    given = plan(claim, board_share=0.1)
    trials = 100 if by_numbers else 8000
    audit = audit_billboard(given, trials=trials, fresh_runs=0, numbers=by_numbers, fault=fault)
    assert audit.exceeds
    assert audit.bound_exceeds != by_numbers
    assert audit.guarantee == "none"
