"""The attack: it sees the loop's own releases, stays below true claims, and catches every planted fault."""

from __future__ import annotations

import ast
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hushgraph.audit
from hushgraph.audit.attack import Stage, audit_plan, planted
from hushgraph.audit.end_to_end import audit_training
from hushgraph.audit.faults import FAULTS, get_fault
from hushgraph.audit.one_run import audit_one_run
from hushgraph.errors import InputError, PlanError
from hushgraph.privacy.plans import PrivacyPlan
from plans import make_plan


def plan(**changes: Any) -> PrivacyPlan:
    usual = {"num_train_nodes": 1000, "batch_size": 1000, "num_layers": 1, "max_readers": 2, "steps": 2}
    return make_plan(**{**usual, "delta": 1e-3, **changes})


@pytest.mark.parametrize("changes", [{"remember": True}, {"remember": False}, {"secure": False}])
def test_trials_release_the_clipped_sums_of_the_loop(changes: dict[str, bool]) -> None:
    """With hardly any noise every trial shows where its world lies, stacked or alone, remembered or not."""
    stage = Stage.of(plan(paper_noise_multiplier=1e-3), model="gin", canary="strongest", **changes)
    for world, places in (
        (stage.there, [line.there for line in stage.lines]),
        (stage.empty, [line.empty for line in stage.lines]),
    ):
        seen = world.released([line.direction for line in stage.lines], trials=3, seed=1)
        assert seen.shape == (3, 2)
        # In units of that little noise, the places are hundreds apart.
        np.testing.assert_allclose(seen, np.tile(places, (3, 1)), atol=6)
    assert stage.lines[0].shift > 500


def test_released_sums_have_the_planned_noise() -> None:
    stage = Stage.of(plan(paper_noise_multiplier=1.0), model="gcn", canary="strongest")
    seen = stage.there.released([line.direction for line in stage.lines], trials=4000, seed=None)
    assert seen.std(0) == pytest.approx([1.0, 1.0], abs=0.06)
    assert abs(np.corrcoef(seen.T)[0, 1]) < 0.08
    assert len(np.unique(seen)) == seen.size


@pytest.mark.parametrize(
    ("model", "changes"),
    [
        ("mlp", {"num_layers": 0}),
        ("gcn", {"max_readers": 0}),
        ("gin", {"num_layers": 2}),
        ("gat", {}),
        ("gcn", {"edge_owner": "reader", "max_reads": 2}),
        ("gcn", {"clipping": "groups", "max_readers": 0}),
        ("gcn", {"clipping": "flat"}),
    ],
)
def test_a_clean_audit_stays_below_its_claim_and_comes_near_it(model: str, changes: dict[str, Any]) -> None:
    given = plan(**changes).calibrated(epsilon=4.0)
    audit = audit_plan(given, model=model, trials=5000, numbers=False)
    assert 0.8 * audit.claimed < audit.lower_bound < audit.claimed <= 4.0
    assert 0.3 * audit.claimed < audit.by_event.epsilon < audit.claimed
    assert not audit.exceeds
    assert audit.record()["guarantee"] == "holds"
    # Float32 loses a little of a shift that is attained.
    assert 0.99 * audit.shift_at_most < audit.shift <= audit.shift_at_most * (1 + 1e-6)


@pytest.mark.parametrize("claim", [1.0, 10.0])
def test_the_default_number_of_trials_shows_most_of_a_claim(claim: float) -> None:
    """The curve needs no rare events. Seeded: torch's noise is quick, and a bound may fail 5 times in 100."""
    given = plan(delta=1e-5).calibrated(epsilon=claim)
    audit = audit_plan(given, secure_noise=False, numbers=False, seed=1)
    assert audit.trials == 200_000
    assert 0.85 * claim < audit.lower_bound < audit.claimed


def test_batches_that_are_drawn_are_audited_too() -> None:
    given = plan(batch_size=500, steps=2).calibrated(epsilon=4.0)
    audit = audit_plan(given, trials=300, numbers=False, seed=1)
    assert audit.plan.sampling_rate == pytest.approx(0.5, rel=0.005)
    assert audit.by_curve is not None
    assert audit.by_curve.family == "pair"
    assert 0.3 * audit.claimed < audit.lower_bound < audit.claimed


def test_batches_of_fixed_size_have_the_bound_without_assumption_alone() -> None:
    given = plan(batch_size=500, accountant="paper").calibrated(epsilon=4.0)
    audit = audit_plan(given, trials=100, numbers=False, seed=1)
    assert audit.by_curve is None
    assert audit.lower_bound == audit.by_event.epsilon < audit.claimed


@pytest.mark.parametrize("claim", [1.0, 4.0])
@pytest.mark.parametrize("fault", [name for name in FAULTS if FAULTS[name].method != "billboard"])
def test_every_planted_fault_is_caught(fault: str, claim: float) -> None:
    broken = planted(plan(delta=1e-5), fault).calibrated(epsilon=claim)
    by_numbers = fault == "float-noise"
    audit = audit_plan(broken, fault=fault, trials=100 if by_numbers else 10_000, numbers=by_numbers)
    assert audit.claimed <= claim
    assert audit.exceeds
    assert audit.bound_exceeds != by_numbers
    assert audit.record()["guarantee"] in ("none", "claimed by the paper")


def test_the_same_plans_without_the_fault_are_not() -> None:
    for claim in (1.0, 4.0):
        given = plan(delta=1e-5).calibrated(epsilon=claim)
        assert not audit_plan(given, trials=10_000, numbers=False).exceeds


def test_the_audit_replaces_nothing_in_other_modules() -> None:
    folder = Path(hushgraph.audit.__file__).parent
    for path in folder.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            assert not (isinstance(node, ast.Call) and getattr(node.func, "id", "") == "setattr"), path
            targets = node.targets if isinstance(node, ast.Assign) else []
            owners = [t.value.id for t in targets if isinstance(t, ast.Attribute) and hasattr(t.value, "id")]
            assert set(owners) <= {"self"}, path


def test_reused_noise_repeats_within_a_trial_only() -> None:
    """Of three steps the third has noise of its own, and so has the first of the next trial."""
    reused = Stage.of(
        plan(steps=3, paper_noise_multiplier=1.0), model="gcn", canary="strongest", fault="reused-noise"
    )
    line = reused.lines[0]
    # One phase, so that equal noise is equal releases.
    world = replace(reused.there, phases=reused.there.phases[:1])
    seen = world.released([line.direction], trials=50, seed=None)
    np.testing.assert_allclose(seen[:, 0], seen[:, 1], atol=1e-4)
    assert np.abs(seen[:, 2] - seen[:, 0]).min() > 1e-6
    # Equal to six digits by chance: a pair once in 3,000 tests, three once in 10^10.
    assert len(np.unique(seen[:, 0].round(6))) >= 48


def test_one_run_with_many_canaries() -> None:
    given = plan(num_layers=0, max_readers=0, steps=1, delta=1e-5).calibrated(epsilon=4.0)
    clean = audit_one_run(given, rows=1000, seed=1)
    assert 0.5 < clean.lower_bound < clean.claimed
    assert not clean.exceeds
    broken = audit_one_run(given, rows=1000, seed=1, fault="half-noise")
    assert broken.lower_bound > clean.lower_bound
    with pytest.raises(PlanError, match="layers=1"):
        audit_one_run(plan().calibrated(epsilon=4.0))


def test_the_whole_of_train() -> None:
    # So little noise that a handful of trainings must be told apart.
    audit = audit_training(plan(steps=1, paper_noise_multiplier=0.02), trials=12)
    assert audit.with_row.min() > audit.without_row.max()
    assert audit.record()["path"] == "train"
    with pytest.raises(PlanError, match="steps=2"):
        audit_training(plan().calibrated(epsilon=4.0))


def test_a_seed_makes_an_audit_of_torch_noise_reproducible() -> None:
    given = plan().calibrated(epsilon=4.0)
    first, again, other = (
        audit_plan(given, trials=100, secure_noise=False, numbers=False, seed=seed) for seed in (1, 1, None)
    )
    assert np.array_equal(first.with_row, again.with_row)
    assert not np.array_equal(first.with_row, other.with_row)
    assert not np.array_equal(first.with_row, first.without_row)


def test_what_cannot_be_audited_is_refused() -> None:
    given = plan().calibrated(epsilon=4.0)
    with pytest.raises(InputError, match="model='rnn'"):
        audit_plan(given, model="rnn")
    with pytest.raises(InputError, match="layers=1"):
        audit_plan(given, model="mlp")
    with pytest.raises(InputError, match="trials=3"):
        audit_plan(given, trials=3)
    with pytest.raises(InputError, match="fault='none'"):
        audit_plan(given, fault="none")
    with pytest.raises(InputError, match="expected one of half-noise"):
        get_fault("quarter-noise")
    with pytest.raises(PlanError, match="nothing to audit"):
        audit_plan(replace(given, sigma_over_clip=0.0))
    with pytest.raises(PlanError, match="percentile"):
        audit_plan(plan(clipping="percentile").calibrated(epsilon=4.0))
    assert math.isfinite(given.epsilon)
