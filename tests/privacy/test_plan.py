"""PrivacyPlan: every check with its message, the derived figures, solving, and JSON."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import FrozenInstanceError, replace
from typing import Any

import numpy as np
import pytest

from hushgraph.accounting.accountants import make_accountant
from hushgraph.accounting.events import FixedSizeDraw, PoissonDraw, StepEvent
from hushgraph.errors import BudgetExceededError, PlanError
from hushgraph.privacy.plans import PrivacyPlan, RowPlan, TreePlan
from plans import make_plan, plan_steps

BASE: dict[str, Any] = {
    "num_train_nodes": 1000,
    "num_layers": 1,
    "max_readers": 3,
    "batch_size": 100,
    "steps": 20,
    "paper_noise_multiplier": 1.0,
}


def make(**changes: Any) -> PrivacyPlan:
    fields = {**BASE, **changes}
    if "sigma_over_clip" in changes:
        del fields["paper_noise_multiplier"]
        return plan_steps(**fields)
    return make_plan(**fields)


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
        ({"sigma_over_clip": -0.1}, "sigma_over_clip=-0.1: expected a finite number of at least 0"),
        ({"sigma_over_clip": math.inf}, "sigma_over_clip=inf: expected a finite number of at least 0"),
        ({"sigma_over_clip": 10**400}, "sigma_over_clip=inf: expected a finite number of at least 0"),
        ({"sigma_over_clip": None}, "sigma_over_clip=None: expected a number"),
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
    plan = make(num_train_nodes=np.int64(1000), clip=np.float32(0.5), paper_noise_multiplier=np.float64(1.0))
    assert plan == make(clip=0.5)
    assert [type(plan.num_train_nodes), type(plan.clip), type(plan.sigma_over_clip)] == [int, float, float]
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
    plan = make(paper_noise_multiplier=2.0, clip=0.25)
    assert plan.sigma_over_clip == 2.0 * 2 * 4
    assert plan.sigma == 2.0 * 2 * 0.25 * 4
    assert plan.paper_noise_multiplier == 2.0
    assert plan.step_charge.sigma_over_clip == plan.sigma_over_clip
    [(event, _)] = plan.events
    assert isinstance(event, StepEvent)
    assert event.changed_trees == plan.changed_trees


@pytest.mark.parametrize("accountant", ["pair", "paper"])
def test_epsilon_is_what_the_accountant_says_step_by_step(accountant: str) -> None:
    plan = make(accountant=accountant, steps=3)
    books = make_accountant(accountant)
    for _ in range(3):
        books.compose(plan.events[0][0])
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
        ({"paper_noise_multiplier": 0}, "none"),
        ({"paper_noise_multiplier": 0, "clipping": "percentile"}, "none"),
        ({"steps": 0}, "holds"),
    ],
)
def test_guarantee(changes: dict[str, Any], label: str) -> None:
    assert make(**changes).guarantee == label


def test_a_plan_is_that_of_a_method() -> None:
    with pytest.raises(PlanError, match="use BillboardPlan, TreePlan or RowPlan"):
        PrivacyPlan(num_train_nodes=10, batch_size=5, steps=1)  # type: ignore[abstract]


def test_non_private_has_no_noise() -> None:
    plan = plan_steps(**{k: v for k, v in BASE.items() if k != "paper_noise_multiplier"})
    assert plan == make(paper_noise_multiplier=0)
    assert (plan.sigma, plan.epsilon, plan.guarantee) == (0.0, math.inf, "none")


def test_no_steps_cost_nothing() -> None:
    assert make(steps=0).epsilon == 0.0


@pytest.mark.parametrize("accountant", ["pair", "paper"])
def test_calibrated_gives_the_smallest_noise(accountant: str) -> None:
    bare = make(paper_noise_multiplier=0, accountant=accountant)
    plan = bare.calibrated(epsilon=3.0)
    assert plan.is_private
    assert plan.epsilon <= 3.0
    assert replace(plan, sigma_over_clip=plan.sigma_over_clip * 0.99).epsilon > 3.0
    assert replace(plan, sigma_over_clip=0.0) == bare


@pytest.mark.parametrize("accountant", ["pair", "paper"])
def test_with_steps_for_gives_the_most_steps(accountant: str) -> None:
    plan = make(accountant=accountant).with_steps_for(epsilon=4.0)
    assert plan.epsilon <= 4.0 < replace(plan, steps=plan.steps + 1).epsilon


def test_an_epsilon_that_pays_for_no_step_exceeds_the_budget() -> None:
    with pytest.raises(
        BudgetExceededError, match=r"epsilon=0.001 at sigma_over_clip=0.8: it pays for no step"
    ):
        make(paper_noise_multiplier=0.1, num_train_nodes=100, delta=1e-9).with_steps_for(epsilon=0.001)


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
    with pytest.raises(PlanError, match=r"sigma_over_clip=0.0: expected a positive number"):
        make(paper_noise_multiplier=0).with_steps_for(epsilon=1.0)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"paper_noise_multiplier": 0.0},
        {"num_layers": 0},
        {"directed": True},
        {"paper_noise_multiplier": 0.1 + 0.2, "delta": 1.0996e-6, "clip": 1 / 3},
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
        {"sigma_over_clip": math.nextafter(8.0, 9.0)},
        {"accountant": "paper"},
        {"clipping": "flat"},
    ]
    assert len({make(**change).fingerprint() for change in changes}) == len(changes)
    # A change of this value breaks resuming of every run on disk.
    assert make().fingerprint() == make(paper_noise_multiplier=1, delta=1e-4, batches="poisson").fingerprint()


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        ({"max_reader": 3}, "plan: max_reader: unknown key; the nearest known one is max_readers"),
        ({"steps": None}, "steps=None: expected a whole number of at least 0"),
        ({"clip": "1.0"}, "clip='1.0': expected a number"),
        ({"batch_size": 100.0}, "batch_size=100.0: expected a whole number of at least 1"),
        ({"format": 3}, "plan: this version reads format 2 and earlier ones"),
        ({"method": "boards"}, "plan: method='boards': expected 'billboard' or 'rows' or 'trees'"),
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
        ("{}", "num_train_nodes: missing; batch_size: missing; steps: missing; num_layers: missing"),
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
        "unit",
        "guarantee",
        "changed_trees",
        "epsilon_group_of_two",
        "epsilon_evaluated",
        "epsilon_other",
        "epsilon_edge",
        "epsilon_label",
        "method",
        "predictions",
        "figures",
        "sigma_over_clip",
        "paper_noise_multiplier",
        "steps",
        "sampling_rate",
        "max_readers",
        "max_reads",
        "edge_owner",
        "directed",
    ]
    free = make(paper_noise_multiplier=0).summary()
    assert (free["epsilon"], free["epsilon_group_of_two"], free["guarantee"]) == ("inf", "inf", "none")
    json.dumps(free, allow_nan=False)


def test_a_plan_is_of_the_class_of_its_method() -> None:
    assert type(make()) is TreePlan
    assert type(make(max_readers=0)) is TreePlan
    assert type(make(num_layers=0)) is RowPlan
    assert (make().method, make(num_layers=0).method) == ("trees", "rows")
    with pytest.raises(PlanError, match="a plan of rows reads no edges"):
        replace(make(num_layers=0), num_layers=1)


def test_the_old_name_of_the_noise_is_refused_with_both_meanings() -> None:
    fields = {name: value for name, value in BASE.items() if name != "paper_noise_multiplier"}
    for refused in (
        lambda: TreePlan(**fields, noise_multiplier=2.5),
        lambda: PrivacyPlan.from_json(json.dumps({**json.loads(make().to_json()), "noise_multiplier": 2.5})),
    ):
        with pytest.raises(PlanError) as caught:
            refused()
        assert "paper_noise_multiplier=2.5" in str(caught.value)
        assert "sigma_over_clip=2.5" in str(caught.value)


def test_a_plan_of_format_1_is_read_with_its_fingerprint() -> None:
    text = (
        '{"accountant": "pair", "adjacency": "node-level, zero-out", "batch_size": 100, "batches": '
        '"poisson", "clip": 1.0, "clipping": "normalised", "delta": 0.0001, "edge_owner": "sender", '
        '"max_readers": 3, "max_reads": null, "noise": "common", "noise_multiplier": 0.1, "num_layers": 1, '
        '"num_train_nodes": 1000, "sampler": "stable", "steps": 20}'
    )
    plan = PrivacyPlan.from_json(text)
    assert plan == make(paper_noise_multiplier=0.1)
    assert plan.fingerprint() == hashlib.sha256(text.encode()).hexdigest()
    # What is written is of this version.
    assert json.loads(plan.to_json())["format"] == 2
    assert PrivacyPlan.from_json(plan.to_json()) == plan
    with pytest.raises(PlanError, match="noise_multiplier=-1: expected a number of at least 0"):
        PrivacyPlan.from_json(text.replace("0.1,", "-1,"))


@pytest.mark.parametrize("rate", [1000, 100])
def test_rows_outside_the_training_split_cost_what_moves_them(rate: int) -> None:
    trees, rows = make(batch_size=rate), make(batch_size=rate, num_layers=0)
    assert trees.epsilon_evaluated == trees.epsilon_other == trees.epsilon
    assert rows.epsilon_evaluated == rows.epsilon_other == 0.0 < rows.epsilon
