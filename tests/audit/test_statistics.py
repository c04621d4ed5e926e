"""Lower bounds from counts: known values, and never above the truth more often than they say."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats
from scipy.optimize import brentq

from hushgraph.audit.statistics import (
    epsilon_lower_bound,
    most_shown,
    rate_at_least,
    rate_at_most,
)
from hushgraph.errors import InputError


def test_clopper_pearson_against_known_values() -> None:
    assert float(rate_at_most(0, 10, 0.05)) == pytest.approx(1 - 0.05 ** (1 / 10))
    assert float(rate_at_least(10, 10, 0.05)) == pytest.approx(0.05 ** (1 / 10))
    # The textbook interval of 4 in 20 at 95%.
    assert float(rate_at_least(4, 20, 0.025)) == pytest.approx(0.05733, abs=1e-5)
    assert float(rate_at_most(4, 20, 0.025)) == pytest.approx(0.43661, abs=1e-5)
    assert float(rate_at_least(0, 10, 0.05)) == 0.0
    assert float(rate_at_most(10, 10, 0.05)) == 1.0
    # An interval ends where its count is just not yet too unlikely.
    for count in (1, 7, 30):
        assert stats.binom.cdf(count, 31, float(rate_at_most(count, 31, 0.05))) == pytest.approx(0.05)
        assert stats.binom.sf(count - 1, 31, float(rate_at_least(count, 31, 0.05))) == pytest.approx(0.05)


def test_trials_can_show_only_so_much() -> None:
    assert most_shown(10_000, delta=0.0) == pytest.approx(math.log(10_000 / 3.69), abs=0.01)
    far = epsilon_lower_bound(np.full(2000, 9.0), np.zeros(2000), delta=1e-5)
    assert far.epsilon == far.most == most_shown(1600, delta=1e-5)
    assert (far.hits, far.false_alarms, far.trials) == (1600, 0, 1600)


def gaussian_epsilon(mu: float, delta: float) -> float:
    def excess(epsilon: float) -> float:
        rises = stats.norm.cdf(mu / 2 - epsilon / mu)
        return float(rises - math.exp(epsilon) * stats.norm.cdf(-mu / 2 - epsilon / mu) - delta)

    return float(brentq(excess, 0.0, 50.0))


@pytest.mark.parametrize(("mu", "delta"), [(0.3, 1e-5), (1.0, 1e-2), (4.0, 1e-5)])
def test_the_bound_covers_a_gaussian_mechanism(mu: float, delta: float) -> None:
    rng = np.random.default_rng(3)
    truth = gaussian_epsilon(mu, delta)
    bounds = [
        epsilon_lower_bound(mu + rng.standard_normal(400), rng.standard_normal(400), delta=delta).epsilon
        for _ in range(200)
    ]
    assert stats.binom.sf(sum(b > truth for b in bounds) - 1, len(bounds), 0.05) > 1e-3
    assert max(bounds) > 0.2 * min(truth, 2.0)


def test_the_bound_covers_randomized_response_which_it_nearly_attains() -> None:
    rng = np.random.default_rng(4)
    truth = 1.0
    keep = math.exp(truth) / (1 + math.exp(truth))
    bounds = [
        epsilon_lower_bound(
            (rng.random(2000) < keep).astype(float), (rng.random(2000) >= keep).astype(float), delta=0.0
        ).epsilon
        for _ in range(200)
    ]
    # Here the best event is known, so there is no slack but that of the intervals.
    assert stats.binom.sf(sum(b > truth for b in bounds) - 1, len(bounds), 0.05) > 1e-3
    assert np.median(bounds) > 0.8 * truth


def test_a_bound_without_intervals_would_be_caught() -> None:
    rng = np.random.default_rng(4)
    keep = math.e / (1 + math.e)
    careless = [
        math.log((rng.random(1000) < keep).mean() / (rng.random(1000) >= keep).mean()) for _ in range(200)
    ]
    assert stats.binom.sf(sum(b > 1 for b in careless) - 1, len(careless), 0.05) < 1e-3


def test_events_that_speak_for_the_empty_row_count_too() -> None:
    rng = np.random.default_rng(5)
    # Large statistics are as common in both worlds; only without the row are there very small ones.
    with_row = rng.random(4000)
    without_row = np.where(rng.random(4000) < 0.5, -1.0, rng.random(4000))
    found = epsilon_lower_bound(with_row, without_row, delta=1e-5)
    assert found.speaks_for == "no row"
    assert found.epsilon > 4


def test_nothing_is_shown_where_both_worlds_are_alike() -> None:
    rng = np.random.default_rng(6)
    shown = [
        epsilon_lower_bound(rng.standard_normal(200), rng.standard_normal(200), delta=1e-5).epsilon
        for _ in range(100)
    ]
    assert sum(epsilon > 0 for epsilon in shown) <= 12


def test_what_cannot_be_counted_is_refused() -> None:
    with pytest.raises(InputError, match=r"shapes \(3,\) and \(4,\)"):
        epsilon_lower_bound([1, 2, 3], [1, 2, 3, 4], delta=1e-5)
    with pytest.raises(InputError, match="not finite"):
        epsilon_lower_bound([1, 2, 3, math.nan], [1, 2, 3, 4], delta=1e-5)
    with pytest.raises(InputError, match=r"confidence=95"):
        epsilon_lower_bound([1, 2, 3, 4], [1, 2, 3, 4], delta=1e-5, confidence=95)
