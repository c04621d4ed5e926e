"""The attack: it sees the loop's own releases, stays below true claims, and catches every planted fault."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hushgraph.audit.attack import Stage, audit_plan, planted
from hushgraph.audit.end_to_end import audit_training
from hushgraph.audit.faults import FAULTS, HalfTheNoise
from hushgraph.audit.one_run import audit_one_run
from hushgraph.errors import InputError, PlanError
from hushgraph.privacy.plan import PrivacyPlan


def plan(**changes: Any) -> PrivacyPlan:
    usual = {"num_train_nodes": 1000, "batch_size": 1000, "num_layers": 1, "max_readers": 2, "steps": 2}
    return PrivacyPlan(**{**usual, "delta": 1e-3, **changes})


@pytest.mark.parametrize("changes", [{"remember": True}, {"remember": False}, {"secure": True}])
def test_trials_release_the_clipped_sums_of_the_loop(changes: dict[str, bool]) -> None:
    """With hardly any noise every trial shows where its world lies, stacked or alone, remembered or not."""
    stage = Stage.of(plan(noise_multiplier=1e-3), model="gin", canary="strongest", **changes)
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
    stage = Stage.of(plan(noise_multiplier=1.0), model="gcn", canary="strongest")
    seen = stage.there.released([line.direction for line in stage.lines], trials=4000, seed=2)
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
def test_a_clean_audit_stays_below_its_claim_and_is_not_blind(model: str, changes: dict[str, Any]) -> None:
    found = audit_plan(plan(**changes).calibrated(epsilon=4.0), model=model, trials=3000, seed=1)
    assert 0.15 * found.claimed < found.found.epsilon < found.claimed <= 4.0
    assert not found.exceeds
    assert found.record()["guarantee"] == "holds"
    assert found.shift <= found.shift_at_most


def test_batches_that_are_drawn_are_audited_too() -> None:
    given = plan(batch_size=500, steps=2).calibrated(epsilon=4.0)
    found = audit_plan(given, trials=300, seed=1)
    assert found.plan.sampling_rate == pytest.approx(0.5, rel=0.005)
    assert found.found.epsilon < found.claimed


@pytest.mark.parametrize("claim", [1.0, 4.0])
@pytest.mark.parametrize("fault", list(FAULTS))
def test_every_planted_fault_is_caught(fault: str, claim: float) -> None:
    given = plan(num_layers=2) if fault == "too-few-trees" else plan()
    broken = planted(given, fault).calibrated(epsilon=claim)
    found = audit_plan(broken, fault=fault, trials=20_000, seed=1)
    assert found.claimed <= claim
    assert found.exceeds
    assert found.record()["guarantee"] in ("none", "claimed by the paper")


def test_the_same_plans_without_the_fault_are_not() -> None:
    for claim in (1.0, 4.0):
        assert not audit_plan(plan().calibrated(epsilon=claim), trials=20_000, seed=1).exceeds


def test_faults_leave_the_loop_as_it_was() -> None:
    from hushgraph.gradients import ghost
    from hushgraph.noise import gaussian as noise
    from hushgraph.training import trainer as loop

    before = loop.noisy, ghost.clipped_sum
    audit_plan(planted(plan(), "reused-noise").calibrated(epsilon=4.0), fault="reused-noise", trials=20)
    assert (loop.noisy, ghost.clipped_sum) == before == (noise.noisy, ghost.clipped_sum)


def test_one_run_with_many_canaries() -> None:
    given = plan(num_layers=0, max_readers=0, steps=1, delta=1e-5).calibrated(epsilon=4.0)
    found = audit_one_run(given, rows=1000, seed=1)
    assert 0.5 < found.lower_bound < found.claimed
    assert not found.exceeds
    broken = audit_one_run(given, rows=1000, seed=1, trainer=HalfTheNoise, fault="half-noise")
    assert broken.lower_bound > found.lower_bound
    with pytest.raises(PlanError, match="layers=1"):
        audit_one_run(plan().calibrated(epsilon=4.0))


def test_the_whole_of_train() -> None:
    # So little noise that a handful of trainings must be told apart.
    found = audit_training(plan(steps=1, noise_multiplier=0.02), trials=12)
    assert found.with_row.min() > found.without_row.max()
    assert found.record()["path"] == "train"
    with pytest.raises(PlanError, match="steps=2"):
        audit_training(plan().calibrated(epsilon=4.0))


def test_a_seed_makes_an_audit_reproducible() -> None:
    given = plan().calibrated(epsilon=4.0)
    first, again, other = (audit_plan(given, trials=100, seed=seed) for seed in (1, 1, None))
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
    with pytest.raises(PlanError, match="nothing to audit"):
        audit_plan(replace(given, noise_multiplier=0.0))
    with pytest.raises(PlanError, match="percentile"):
        audit_plan(plan(clipping="percentile").calibrated(epsilon=4.0))
    assert math.isfinite(given.epsilon)
