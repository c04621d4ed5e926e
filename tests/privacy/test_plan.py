"""PrivacyPlan: every check with its message, the derived figures, solving, and JSON."""

from __future__ import annotations

import json
import math
from dataclasses import FrozenInstanceError, replace
from typing import Any

import numpy as np
import pytest

from hushgraph.accounting import make_accountant
from hushgraph.accounting.events import FixedSizeDraw, PoissonDraw
from hushgraph.errors import BudgetExceededError, PlanError
from hushgraph.privacy.plan import PrivacyPlan

BASE: dict[str, Any] = {
    "num_train_nodes": 1000,
    "num_layers": 1,
    "max_readers": 3,
    "batch_size": 100,
    "steps": 20,
    "noise_multiplier": 1.0,
}


def make(**changes: Any) -> PrivacyPlan:
    return PrivacyPlan(**{**BASE, **changes})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_train_nodes": 0}, "num_train_nodes=0: expected at least 1 and at most 2**63 - 1"),
        ({"num_train_nodes": 10**30}, f"num_train_nodes={10**30}: expected at least 1 and at most 2**63 - 1"),
        ({"num_train_nodes": 1000.0}, "num_train_nodes=1000.0: expected a whole number of at least 1"),
        ({"num_layers": -1}, "num_layers=-1: expected at least 0 and at most 2**63 - 1"),
        ({"num_layers": True}, "num_layers=True: expected a whole number of at least 0"),
        ({"max_readers": -2}, "max_readers=-2: expected at least 0 and at most 2**63 - 1"),
        ({"max_readers": "3"}, "max_readers='3': expected a whole number of at least 0"),
        ({"max_reads": -1}, "max_reads=-1: expected at least 0 and at most 2**63 - 1"),
        ({"max_reads": 2.5}, "max_reads=2.5: expected a whole number of at least 0"),
        ({"batch_size": 0}, "batch_size=0: expected at least 1 and at most 2**63 - 1"),
        ({"batch_size": 1001}, "batch_size=1001: expected at most num_train_nodes=1000"),
        ({"steps": -1}, "steps=-1: expected at least 0 and at most 2**63 - 1"),
        ({"clip": 0}, "clip=0.0: expected a finite number above 0"),
        ({"clip": math.nan}, "clip=nan: expected a finite number above 0"),
        ({"clip": "1"}, "clip='1': expected a number"),
        ({"noise_multiplier": -0.1}, "noise_multiplier=-0.1: expected a finite number of at least 0"),
        ({"noise_multiplier": math.inf}, "noise_multiplier=inf: expected a finite number of at least 0"),
        ({"noise_multiplier": 10**400}, "noise_multiplier=inf: expected a finite number of at least 0"),
        ({"delta": 0.0}, "delta=0.0: expected a finite number above 0 and below 1"),
        ({"delta": 1.0}, "delta=1.0: expected a finite number above 0 and below 1"),
        ({"delta": True}, "delta=True: expected a number"),
        ({"edge_owner": "both"}, "edge_owner='both': expected 'sender' or 'reader'"),
        ({"sampler": "random"}, "sampler='random': expected 'stable' or 'paper'"),
        ({"accountant": "moments"}, "accountant='moments': expected 'pair' or 'paper'"),
        ({"batches": "shuffled"}, "batches='shuffled': expected 'poisson' or 'fixed'"),
        (
            {"clipping": "none"},
            "clipping='none': expected 'normalised' or 'flat' or 'groups' or 'percentile'",
        ),
        ({"noise": "none"}, "noise='none': expected 'common' or 'per-layer'"),
        (
            {"batches": "fixed"},
            "accountant='pair' with batches='fixed': this accountant prices 'poisson' batches only; "
            "leave batches out or change the accountant",
        ),
        (
            {"accountant": "paper", "batches": "poisson"},
            "accountant='paper' with batches='poisson': this accountant prices 'fixed' batches only; "
            "leave batches out or change the accountant",
        ),
        (
            {"sampler": "paper", "max_reads": 5},
            "sampler='paper' with max_reads=5: the paper's sampler does not bound reads; "
            "leave max_reads out or use sampler='stable'",
        ),
        (
            {"edge_owner": "reader"},
            "max_reads=None with edge_owner='reader': one row may then change any number of trees; "
            "give max_reads, the most nodes that one training node reads",
        ),
    ],
)
def test_every_check_says_what_was_wrong(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(PlanError) as caught:
        make(**changes)
    assert str(caught.value) == message
    assert caught.value.exit_code == 2


def test_all_offenders_are_listed_at_once() -> None:
    with pytest.raises(PlanError) as caught:
        make(num_layers=-1, clip=-1, sampler="x", delta=2)
    text = str(caught.value)
    assert "\n" not in text
    assert [part.split("=")[0] for part in text.split("; ")] == ["num_layers", "sampler", "clip", "delta"]
    with pytest.raises(PlanError) as caught:
        make(batch_size=2000, batches="fixed", sampler="paper", max_reads=1)
    assert str(caught.value).count("expected at most") == 1
    assert "batches='fixed'" in str(caught.value)
    assert "max_reads=1" in str(caught.value)


def test_defaults_follow_the_other_fields() -> None:
    assert make().delta == 1 / (10 * 1000)
    assert make(delta=None).delta == 1 / (10 * 1000)
    assert make().batches == "poisson"
    assert make(accountant="paper").batches == "fixed"
    assert make().draw == PoissonDraw(rate=0.1)
    assert make(accountant="paper").draw == FixedSizeDraw(size=100, population=1000)


def test_numpy_numbers_become_plain_ones() -> None:
    plan = make(num_train_nodes=np.int64(1000), clip=np.float32(0.5), noise_multiplier=np.float64(1.0))
    assert plan == make(clip=0.5)
    assert [type(plan.num_train_nodes), type(plan.clip), type(plan.noise_multiplier)] == [int, float, float]
    assert plan.fingerprint() == make(clip=0.5).fingerprint()


def test_a_plan_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        make().steps = 5  # type: ignore[misc]


@pytest.mark.parametrize(
    ("changes", "n"),
    [
        ({}, 4),
        ({"num_layers": 2}, 13),
        ({"edge_owner": "reader", "max_reads": 5}, 4 + 5),
        ({"edge_owner": "reader", "max_reads": 5, "num_layers": 2}, 13 + 5 * 4),
        ({"sampler": "paper"}, 4),
        ({"sampler": "paper", "edge_owner": "reader", "num_layers": 2}, 13),
        ({"max_readers": 0}, 1),
        ({"num_layers": 0}, 1),
        ({"max_readers": 0, "edge_owner": "reader"}, 1),
        ({"max_readers": 0, "sampler": "paper", "edge_owner": "reader"}, 1),
        ({"num_layers": 9}, 1001),
        ({"num_layers": 9, "edge_owner": "reader", "max_reads": 2}, 1001),
        ({"num_layers": 9, "sampler": "paper"}, 1001),
    ],
)
def test_changed_trees(changes: dict[str, Any], n: int) -> None:
    assert make(**changes).changed_trees == n


def test_sigma_follows_the_multiplier_and_the_changed_trees() -> None:
    plan = make(noise_multiplier=2.0, clip=0.25)
    assert plan.sigma_over_clip == 2.0 * 2 * 4
    assert plan.sigma == 2.0 * 2 * 0.25 * 4
    assert plan.step_event.sigma_over_clip == plan.sigma_over_clip
    assert plan.step_event.changed_trees == plan.changed_trees


@pytest.mark.parametrize("accountant", ["pair", "paper"])
def test_epsilon_is_what_the_accountant_says_step_by_step(accountant: str) -> None:
    plan = make(accountant=accountant, steps=3)
    books = make_accountant(accountant)
    for _ in range(3):
        books.compose(plan.step_event)
    assert plan.epsilon == pytest.approx(books.epsilon(plan.delta), rel=1e-3)


@pytest.mark.parametrize(
    ("changes", "label"),
    [
        ({}, "holds"),
        ({"accountant": "paper"}, "holds"),
        ({"sampler": "paper"}, "holds"),
        ({"edge_owner": "reader", "max_reads": 3}, "holds"),
        ({"clipping": "flat"}, "holds"),
        ({"clipping": "groups"}, "holds"),
        ({"sampler": "paper", "edge_owner": "reader"}, "claimed by the paper"),
        ({"sampler": "paper", "edge_owner": "reader", "accountant": "paper"}, "claimed by the paper"),
        ({"sampler": "paper", "edge_owner": "reader", "max_readers": 0}, "holds"),
        ({"sampler": "paper", "edge_owner": "reader", "num_layers": 0}, "holds"),
        ({"clipping": "percentile"}, "claimed by the paper"),
        ({"noise": "per-layer", "clipping": "groups"}, "claimed by the paper"),
        ({"noise_multiplier": 0}, "none"),
        ({"noise_multiplier": None}, "none"),
        ({"noise_multiplier": 0, "clipping": "percentile"}, "none"),
        ({"steps": 0}, "holds"),
    ],
)
def test_guarantee(changes: dict[str, Any], label: str) -> None:
    assert make(**changes).guarantee == label


def test_non_private_has_no_noise() -> None:
    plan = PrivacyPlan.non_private(**BASE)
    assert plan == make(noise_multiplier=0)
    assert (plan.sigma, plan.epsilon, plan.guarantee) == (0.0, math.inf, "none")


def test_no_steps_cost_nothing() -> None:
    assert make(steps=0).epsilon == 0.0


@pytest.mark.parametrize("accountant", ["pair", "paper"])
def test_calibrated_gives_the_smallest_noise(accountant: str) -> None:
    plan = make(noise_multiplier=None, accountant=accountant).calibrated(epsilon=3.0)
    assert plan.noise_multiplier is not None
    assert plan.epsilon <= 3.0
    assert replace(plan, noise_multiplier=plan.noise_multiplier * 0.99).epsilon > 3.0
    assert replace(plan, noise_multiplier=None) == make(noise_multiplier=None, accountant=accountant)


@pytest.mark.parametrize("accountant", ["pair", "paper"])
def test_with_steps_for_gives_the_most_steps(accountant: str) -> None:
    plan = make(accountant=accountant).with_steps_for(epsilon=4.0)
    assert plan.epsilon <= 4.0 < replace(plan, steps=plan.steps + 1).epsilon


def test_an_epsilon_that_pays_for_no_step_exceeds_the_budget() -> None:
    with pytest.raises(
        BudgetExceededError, match=r"epsilon=0.001 at noise_multiplier=0.1: it pays for no step"
    ):
        make(noise_multiplier=0.1, num_train_nodes=100, delta=1e-9).with_steps_for(epsilon=0.001)


@pytest.mark.parametrize("epsilon", [0, -1.0, math.inf, math.nan])
def test_targets_out_of_range_are_refused(epsilon: float) -> None:
    for solve in (make().calibrated, make().with_steps_for):
        with pytest.raises(PlanError, match=f"epsilon={epsilon}: expected a finite number above 0"):
            solve(epsilon=epsilon)


@pytest.mark.parametrize("epsilon", ["3", True, None])
def test_targets_that_are_no_numbers_are_refused(epsilon: Any) -> None:
    with pytest.raises(PlanError, match="expected a positive number"):
        make().calibrated(epsilon=epsilon)


def test_there_is_nothing_to_calibrate_or_count_without_steps_or_noise() -> None:
    with pytest.raises(PlanError, match="steps=0: expected at least one step"):
        make(steps=0).calibrated(epsilon=1.0)
    with pytest.raises(PlanError, match="noise_multiplier=None: expected a positive number"):
        make(noise_multiplier=None).with_steps_for(epsilon=1.0)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"noise_multiplier": None},
        {"noise_multiplier": 0.1 + 0.2, "delta": 1.0996e-6, "clip": 1 / 3},
        {"edge_owner": "reader", "max_reads": 5},
        {"sampler": "paper", "accountant": "paper", "edge_owner": "reader", "clipping": "percentile"},
        {"noise": "per-layer"},
    ],
)
def test_json_round_trip(changes: dict[str, Any]) -> None:
    plan = make(**changes)
    text = plan.to_json()
    assert PrivacyPlan.from_json(text) == plan
    assert PrivacyPlan.from_json(text).fingerprint() == plan.fingerprint()
    assert json.loads(text)["adjacency"] == "node-level, zero-out"


def test_fingerprints_tell_plans_apart() -> None:
    changes: list[dict[str, Any]] = [
        {},
        {"steps": 21},
        {"clip": 2.0},
        {"max_reads": 9},
        {"noise_multiplier": math.nextafter(1.0, 2.0)},
        {"accountant": "paper"},
        {"clipping": "flat"},
    ]
    assert len({make(**change).fingerprint() for change in changes}) == len(changes)
    # A change of this value breaks resuming of every run on disk.
    assert make().fingerprint() == make(noise_multiplier=1, delta=1e-4, batches="poisson").fingerprint()


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        ({"max_reader": 3}, "plan: max_reader: unknown key; the nearest known one is max_readers"),
        ({"steps": None}, "steps=None: expected a whole number of at least 0"),
        ({"clip": "1.0"}, "clip='1.0': expected a number"),
        ({"batch_size": 100.0}, "batch_size=100.0: expected a whole number of at least 1"),
        ({"adjacency": "edge"}, "plan: adjacency='edge': expected 'node-level, zero-out'"),
    ],
)
def test_json_with_a_wrong_key_or_value_is_refused(edit: dict[str, Any], message: str) -> None:
    with pytest.raises(PlanError) as caught:
        PrivacyPlan.from_json(json.dumps({**json.loads(make().to_json()), **edit}))
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "plan: not valid JSON"),
        ("{", "plan: not valid JSON"),
        ("[]", "plan: expected a JSON object, found list"),
        ("3", "plan: expected a JSON object, found int"),
        ('{"steps": 1, "steps": 2}', "a key occurs twice"),
        ('{"clip": NaN}', "NaN is not a JSON number"),
        ("{}", "num_train_nodes: missing; num_layers: missing; max_readers: missing; batch_size: missing"),
    ],
)
def test_json_that_is_no_plan_is_refused(text: str, message: str) -> None:
    with pytest.raises(PlanError) as caught:
        PrivacyPlan.from_json(text)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_summary_has_the_keys_that_never_change() -> None:
    assert list(make().summary()) == [
        "epsilon",
        "delta",
        "accountant",
        "sampler",
        "adjacency",
        "guarantee",
        "changed_trees",
        "epsilon_group_of_two",
        "epsilon_edge",
        "epsilon_label",
        "method",
        "predictions",
        "noise_multiplier",
        "sigma_over_clip",
        "steps",
        "sampling_rate",
        "max_readers",
        "max_reads",
        "edge_owner",
        "directed",
    ]
    free = make(noise_multiplier=0).summary()
    assert (free["epsilon"], free["epsilon_group_of_two"], free["guarantee"]) == ("inf", "inf", "none")
    json.dumps(free, allow_nan=False)
