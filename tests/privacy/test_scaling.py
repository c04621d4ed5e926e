"""The charge for scaling, and plans that pay for it."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hushgraph.accounting.events import GaussianEvent
from hushgraph.errors import BudgetExceededError, PlanError
from hushgraph.privacy.changes import KINDS, ONE_EDGE, ONE_LABEL, ONE_RECORD, Change
from hushgraph.privacy.charges import Charge, ScalingCharge
from hushgraph.privacy.ledger import Ledger
from hushgraph.privacy.plans import BillboardPlan, PrivacyPlan, RowPlan, TreePlan

CHARGE = ScalingCharge(num_columns=9, noise_std=6.0)
PLANS: dict[str, PrivacyPlan] = {
    "billboard": BillboardPlan(num_train_nodes=1_000, num_classes=3, batch_size=1_000, steps=50),
    "sampled": BillboardPlan(num_train_nodes=1_000, num_classes=3, batch_size=100, steps=20),
    "rows": RowPlan(num_train_nodes=1_000, batch_size=1_000, steps=50),
    "trees": TreePlan(
        num_train_nodes=1_000, batch_size=1_000, steps=50, num_layers=1, max_readers=3, max_reads=9
    ),
    "sampled trees": TreePlan(
        num_train_nodes=1_000, batch_size=50, steps=10, num_layers=1, max_readers=3, max_reads=9
    ),
}


def shift(charge: Charge, change: Change) -> float:
    event = charge.event(change)
    assert event is None or isinstance(event, GaussianEvent)
    return 0.0 if event is None else event.shift_over_sigma


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        (("training",), 0.5),
        (("training", "training"), 1.0),
        (("training", "evaluated"), 0.5),
        (("evaluated",), 0.0),
        (("other",), 0.0),
    ],
)
def test_rows_pay_by_how_many_of_them_are_training_rows(kinds: Any, expected: float) -> None:
    assert shift(CHARGE, Change("rows", kinds)) == pytest.approx(expected)


def test_edges_and_labels_are_not_counted() -> None:
    for change in (*ONE_EDGE, *ONE_RECORD, *ONE_LABEL):
        assert CHARGE.event(change) is None


def test_a_histogram_of_the_target_is_moved_by_a_training_label() -> None:
    with_target = replace(CHARGE, has_target=True)
    moves = [shift(with_target, Change("label", (kind,))) for kind in KINDS]
    assert moves == [pytest.approx(math.sqrt(2) / 6), 0.0, 0.0]


def test_the_charge_is_written_and_read() -> None:
    assert Charge.from_json(json.loads(json.dumps(CHARGE.to_json()))) == CHARGE
    assert replace(CHARGE, noise_std=0.0).event(Change("rows", ("training",))) == GaussianEvent(
        shift_over_sigma=math.inf
    )
    assert CHARGE.with_shift(0.25).noise_std == 12.0
    assert "each of 9 histograms" in CHARGE.sentence
    assert "standard deviation 6 " in CHARGE.sentence
    assert "moves the histogram by at most 1" in replace(CHARGE, num_columns=1).sentence
    assert CHARGE.bounds == ("moves 9 histograms by 1 at most", "noise 6 in every cell, once")
    assert dict(CHARGE.figures)["numeric columns scaled, F"] == "9"


@pytest.mark.parametrize("wrong", [{"num_columns": 0}, {"noise_std": -1.0}, {"noise_std": math.inf}])
def test_impossible_charges_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(PlanError):
        replace(CHARGE, **wrong)


def test_noise_beyond_the_grid_is_refused() -> None:
    plan = replace(PLANS["rows"], num_scaled=4, delta=1e-12)
    with pytest.raises(
        PlanError, match=r"epsilon=0.0001: its histograms would have noise of .* numbers='as-is'"
    ):
        plan.calibrated(epsilon=1e-4)


@pytest.mark.parametrize("name", PLANS)
def test_scaling_gets_a_twentieth_and_the_plan_meets_its_target(name: str) -> None:
    from hushgraph.accounting.accountants import gaussian_shift

    bare = PLANS[name].calibrated(epsilon=3.0)
    plan = replace(PLANS[name], num_scaled=4).calibrated(epsilon=3.0)
    assert 0.999 * 3.0 < plan.epsilon <= 3.0
    assert plan.charges[0] == ScalingCharge(num_columns=4, noise_std=plan.scaling_noise)
    mu = 2 / plan.scaling_noise
    assert mu**2 == pytest.approx(0.05 * gaussian_shift(3.0, plan.delta) ** 2, rel=1e-6)
    # What is left is 95% of mu^2, so that the rest has a little more noise.
    assert 1.005 < plan.sigma_over_clip / bare.sigma_over_clip < 1.2
    if name == "billboard":
        assert plan.sigma_over_clip / bare.sigma_over_clip == pytest.approx(1 / math.sqrt(0.95), rel=1e-6)
    # Evaluated rows do not pay for scaling, and pay less for a second board.
    assert plan.with_evaluation(2).epsilon_evaluated <= 3.0
    assert plan.with_evaluation(2).table_noise <= bare.with_evaluation(2).table_noise * (1 + 1e-3)


@pytest.mark.parametrize("name", PLANS)
def test_a_plan_that_was_written_is_the_same(name: str) -> None:
    plan = replace(PLANS[name], num_scaled=4).calibrated(epsilon=3.0)
    assert PrivacyPlan.from_json(plan.to_json()) == plan
    assert "scal" not in PLANS[name].to_json()
    assert plan.charges_until(0)[0].name == "scaling"


@pytest.mark.parametrize("name", ["rows", "sampled trees"])
def test_steps_are_found_beside_scaling(name: str) -> None:
    noisy = replace(PLANS[name], sigma_over_clip=60.0)
    bare = noisy.with_steps_for(epsilon=3.0)
    plan = replace(noisy, num_scaled=4).with_steps_for(epsilon=3.0)
    assert 0.8 * bare.steps < plan.steps < bare.steps
    assert plan.epsilon <= 3.0 < replace(plan, steps=plan.steps + 1).epsilon
    with pytest.raises(BudgetExceededError):
        replace(noisy, num_scaled=4, sigma_over_clip=0.01).with_steps_for(epsilon=3.0)


def test_where_the_noise_is_given_epsilon_grows_by_what_scaling_costs() -> None:
    plan = replace(PLANS["rows"], sigma_over_clip=30.0)
    scaled = plan.with_scaling(4)
    assert scaled.sigma_over_clip == 30.0
    mu = math.sqrt(50) / 30
    both = math.sqrt(mu**2 + (2 / scaled.scaling_noise) ** 2)
    assert both == pytest.approx(mu / math.sqrt(0.95), rel=1e-6)
    assert plan.epsilon < scaled.epsilon
    assert scaled.with_scaling(0) == plan
    assert PLANS["rows"].with_scaling(4).scaling_noise == 0.0


def test_a_plan_without_noise_on_its_histograms_guarantees_nothing() -> None:
    plan = replace(PLANS["rows"], num_scaled=4, sigma_over_clip=30.0)
    assert plan.guarantee == "none"
    assert math.isinf(plan.epsilon)


def test_the_paper_accountant_prices_no_histograms() -> None:
    plan = replace(PLANS["trees"], accountant="paper", batches="fixed", num_scaled=4)
    for solve in (plan.calibrated, replace(plan, sigma_over_clip=60.0).with_steps_for):
        with pytest.raises(PlanError, match=r"num_scaled=4 with accountant='paper'"):
            solve(epsilon=3.0)


def test_a_torn_line_is_the_release_that_comes_next(tmp_path: Path) -> None:
    """Scaling before boards, and steps before figures, which follow the last of them."""
    fields: dict[str, Any] = {"num_train_nodes": 1_000, "num_classes": 3, "batch_size": 1_000, "steps": 50}
    plan = BillboardPlan(**fields, num_boards=1, num_scaled=4).calibrated(epsilon=3.0).with_evaluation(2)
    path = tmp_path / "ledger.jsonl"
    Ledger.create(path, plan).close()
    torn = []
    for _ in range(4):
        path.write_bytes(path.read_bytes() + b'{"step": 0, "cou')
        Ledger.open(path, plan=plan).close()
        torn.append(json.loads(path.read_text().splitlines()[-1])["charge"]["name"])
    assert torn == ["scaling", "board-1", "steps", "steps"]
