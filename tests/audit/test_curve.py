"""Bounds by the trade-off curve: never above the truth more often than they say, and near it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

from hushgraph.accounting.accountants import gaussian_epsilon
from hushgraph.audit.curve import curve_lower_bound
from hushgraph.audit.statistics import Floats
from hushgraph.errors import InputError
from hushgraph.privacy.plans import PrivacyPlan
from plans import plan_steps


def plan(**changes: Any) -> PrivacyPlan:
    usual = {"num_train_nodes": 1000, "batch_size": 1000, "num_layers": 0, "max_readers": 0, "steps": 2}
    return plan_steps(**{**usual, "delta": 1e-5, **changes})


def shift_of(given: PrivacyPlan) -> float:
    """Of whole batches and one changed tree."""
    return math.sqrt(given.steps) / given.sigma_over_clip


def bound(there: Floats, empty: Floats, given: PrivacyPlan) -> float:
    curve = curve_lower_bound(there, empty, plan=given)
    assert curve is not None
    return curve.epsilon


@pytest.mark.parametrize("claim", [0.3, 1.0, 4.0, 20.0])
def test_the_bound_covers_a_gaussian_mechanism(claim: float) -> None:
    rng = np.random.default_rng(3)
    given = plan().calibrated(epsilon=claim)
    shift = shift_of(given)
    bounds = [bound(shift + rng.standard_normal(500), rng.standard_normal(500), given) for _ in range(100)]
    assert stats.binom.sf(sum(b > claim for b in bounds) - 1, len(bounds), 0.05) > 1e-3


def test_a_bound_without_an_interval_would_be_caught() -> None:
    rng = np.random.default_rng(3)
    given = plan().calibrated(epsilon=4.0)
    shift = shift_of(given)
    careless = []
    for _ in range(200):
        there, empty = shift + rng.standard_normal(500), rng.standard_normal(500)
        careless.append(gaussian_epsilon(max(0.0, there.mean() - empty.mean()), given.delta))
    assert stats.binom.sf(sum(b > 4 for b in careless) - 1, len(careless), 0.05) < 1e-3


@pytest.mark.parametrize("claim", [1.0, 4.0, 10.0])
def test_the_bound_is_tight_with_the_default_number_of_trials(claim: float) -> None:
    rng = np.random.default_rng(4)
    given = plan().calibrated(epsilon=claim)
    bounds = [
        bound(shift_of(given) + rng.standard_normal(200_000), rng.standard_normal(200_000), given)
        for _ in range(2)
    ]
    assert 0.85 * claim < min(bounds)
    assert 0.92 * claim < np.median(bounds)
    assert max(bounds) < claim


def test_the_size_and_place_of_the_statistic_do_not_matter() -> None:
    rng = np.random.default_rng(5)
    given = plan().calibrated(epsilon=4.0)
    there, empty = 1 + rng.standard_normal(2000), rng.standard_normal(2000)
    assert bound(there, empty, given) == bound(7 * there - 3, 7 * empty - 3, given)


def test_other_mechanisms_with_a_better_curve_do_not_refute_it() -> None:
    """Any event of a mechanism under the Gaussian's curve obeys it, Gaussian or not: here it is rounded."""
    rng = np.random.default_rng(6)
    given = plan().calibrated(epsilon=4.0)
    shift = shift_of(given)
    bounds = [
        bound(
            np.sign(shift / 2 + rng.standard_normal(500)),
            np.sign(rng.standard_normal(500) - shift / 2),
            given,
        )
        for _ in range(200)
    ]
    assert stats.binom.sf(sum(b > 4 for b in bounds) - 1, len(bounds), 0.05) > 1e-3
    assert max(bounds) > 2


def draw_pair_statistic(given: PrivacyPlan, rng: np.random.Generator, trials: int) -> tuple[Floats, Floats]:
    """The log-likelihood ratio of the composed pair itself, one changed tree, drawn from both sides."""
    rate, sigma = given.sampling_rate, given.sigma_over_clip
    shape = (trials, given.steps)

    def ratio(x: Floats) -> Floats:
        return np.log(1 - rate + rate * np.exp((x - 0.5) / sigma**2)).sum(axis=1)

    noise = sigma * rng.standard_normal((2, *shape))
    return ratio((rng.random(shape) < rate) + noise[0]), ratio(noise[1])


def test_the_bound_covers_the_pair_of_drawn_batches_and_is_near_it() -> None:
    rng = np.random.default_rng(7)
    given = plan(batch_size=300, steps=4).calibrated(epsilon=2.0)
    near = bound(*draw_pair_statistic(given, rng, 100_000), given)
    assert 0.8 * 2 < near < 2
    few = [bound(*draw_pair_statistic(given, rng, 300), given) for _ in range(10)]
    assert sum(b > 2 for b in few) <= 3


def test_half_of_the_noise_refutes_the_curve() -> None:
    rng = np.random.default_rng(8)
    for given in (plan(batch_size=300, steps=4), plan()):
        planned = given.calibrated(epsilon=2.0)
        broken = given.calibrated(epsilon=5.0)
        there, empty = draw_pair_statistic(broken, rng, 20_000)
        curve = curve_lower_bound(there, empty, plan=planned)
        assert curve is not None
        assert curve.epsilon > 2.0
        assert curve.noise_at_most < 1
        assert curve.noise_at_most > broken.sigma_over_clip / planned.sigma_over_clip * 0.95


def test_nothing_is_shown_where_both_worlds_are_alike() -> None:
    rng = np.random.default_rng(9)
    for given in (plan(batch_size=300), plan()):
        planned = given.calibrated(epsilon=2.0)
        alike = np.zeros(50)
        assert bound(alike, alike, planned) == 0.0
        assert bound(rng.standard_normal(100) - 5, rng.standard_normal(100), planned) == 0.0


def test_batches_of_fixed_size_have_no_curve() -> None:
    given = plan(batch_size=300, accountant="paper").calibrated(epsilon=2.0)
    assert curve_lower_bound(np.arange(10.0), np.arange(10.0), plan=given) is None


def test_what_cannot_be_counted_is_refused() -> None:
    given = plan().calibrated(epsilon=2.0)
    with pytest.raises(InputError, match=r"shapes \(3,\) and \(4,\)"):
        curve_lower_bound([1, 2, 3], [1, 2, 3, 4], plan=given)
    with pytest.raises(InputError, match="confidence=2"):
        curve_lower_bound([1, 2, 3, 4], [1, 2, 3, 4], plan=given, confidence=2)
