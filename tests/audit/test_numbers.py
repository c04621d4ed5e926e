"""Attacks on digits: they see through float32 noise, and exact noise gives nothing away."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

from hushgraph.audit.faults import FloatNoise, get_fault, plant_float_noise
from hushgraph.audit.numbers import NumbersAudit, attack_numbers, right_guesses_at_most
from hushgraph.errors import InputError, PlanError
from hushgraph.privacy.plans import PrivacyPlan
from plans import plan_steps


def plan(**changes: Any) -> PrivacyPlan:
    usual = {"num_train_nodes": 1000, "batch_size": 1000, "num_layers": 1, "max_readers": 2, "steps": 2}
    return plan_steps(**{**usual, "delta": 1e-5, **changes})


def right(audit: NumbersAudit) -> dict[tuple[str, str], float]:
    return {(g.attack, g.view): g.right / g.trials for g in audit.guesses}


@pytest.mark.parametrize("claim", [0.25, 4.0])
def test_float32_noise_is_found_out(claim: float) -> None:
    audit = attack_numbers(plan().calibrated(epsilon=claim), trials=100, plant=plant_float_noise, seed=1)
    assert audit.exceeds
    rates = right(audit)
    # One attack is enough, and each of them works by itself.
    assert audit.strongest.right == 100
    assert rates["rings", "updates"] > 0.75
    assert rates["support", "updates"] > 0.95
    # Numbers smaller than their sum are rare where there is much noise.
    assert rates["low-bits", "updates"] > (0.7 if claim == 4.0 else 0.4)
    # Checkpoints are enough too.
    assert max(rates["rings", "checkpoint"], rates["support", "checkpoint"]) > 0.95


@pytest.mark.parametrize("claim", [0.25, 4.0])
def test_exact_noise_gives_nothing_away(claim: float) -> None:
    audit = attack_numbers(plan().calibrated(epsilon=claim), trials=100)
    assert not audit.exceeds
    for guesses in audit.guesses:
        assert stats.binom.sf(guesses.right - 1, guesses.trials, audit.limit) > 1e-4, guesses


@pytest.mark.parametrize(
    ("model", "changes"),
    [("mlp", {"num_layers": 0}), ("gat", {}), ("gcn", {"batch_size": 700}), ("gcn", {"steps": 50})],
)
def test_other_models_batches_and_steps(model: str, changes: dict[str, Any]) -> None:
    given = plan(**changes).calibrated(epsilon=1.0)
    assert attack_numbers(given, model=model, trials=40, plant=plant_float_noise, seed=1).exceeds
    assert not attack_numbers(given, model=model, trials=40, seed=1).exceeds


def test_the_planted_fault_replaces_exact_noise() -> None:
    given = plan().calibrated(epsilon=1.0)
    assert attack_numbers(given, trials=40, plant=get_fault("float-noise").plant).exceeds
    assert not attack_numbers(given, trials=40, plant=get_fault("half-noise").plant).exceeds


def test_the_limit_is_the_total_variation_of_two_gaussians() -> None:
    given = plan(max_readers=0).calibrated(epsilon=1.0)
    shift = np.sqrt(given.steps) / given.sigma_over_clip
    assert right_guesses_at_most(given) == pytest.approx(stats.norm.cdf(shift / 2), rel=1e-9)
    # The published accountant has no better limit than that of (epsilon, delta).
    paper = plan(accountant="paper").calibrated(epsilon=1.0)
    assert 0.5 < right_guesses_at_most(paper) <= 1 / (1 + np.exp(-1.0)) + 1e-5


def test_the_attacked_plan_has_the_noise_of_the_one_given() -> None:
    given = plan(steps=50).calibrated(epsilon=4.0)
    audit = attack_numbers(given, trials=10, seed=1)
    assert audit.plan.sigma_over_clip == pytest.approx(given.sigma_over_clip)
    assert audit.plan.steps == 4
    assert audit.plan.changed_trees == 1
    assert audit.limit < right_guesses_at_most(given)


def test_torch_still_draws_rings() -> None:
    """What the attack rests on: numbers 8 apart have radii of 24 bits."""
    noise = torch.randn(1 << 16, generator=torch.Generator().manual_seed(1)).double().numpy()
    rings = 2.0**24 * np.exp(-np.square(noise.reshape(-1, 2, 8)).sum(1) / 2)
    rings = rings[rings < 1e4]
    assert len(rings) > 10
    assert np.abs(rings - rings.round()).max() < 0.1


def test_what_cannot_be_attacked_is_refused() -> None:
    given = plan().calibrated(epsilon=1.0)
    with pytest.raises(InputError, match="trials=3"):
        attack_numbers(given, trials=3)
    with pytest.raises(InputError, match="confidence=0"):
        attack_numbers(given, confidence=0)
    with pytest.raises(PlanError, match="nothing to audit"):
        attack_numbers(replace(given, sigma_over_clip=0.0))


def test_float_noise_is_torch_s() -> None:
    noise = FloatNoise(torch.Generator().manual_seed(5))
    found = noise.add_noise({"w": torch.ones(100, dtype=torch.float64)}, {"w": 2.0})["w"]
    expected = 1 + 2 * torch.randn(100, generator=torch.Generator().manual_seed(5))
    torch.testing.assert_close(found, expected, rtol=0, atol=0)
