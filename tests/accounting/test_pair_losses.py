"""One step of the pair: its components, its exact divergence, and dp_accounting's way with it."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from dp_accounting.pld import pld_pmf, privacy_loss_distribution
from scipy import stats

from hushgraph.accounting import PoissonDraw, StepEvent
from hushgraph.accounting.accountants import PairAccountant
from hushgraph.accounting.pair_losses import BinomialMixture, PairLoss
from pair_divergence import divergence, inverse_losses


def exact_delta(loss: PairLoss, upper: int, lower: int, rate: float, sigma: float, epsilon: float) -> float:
    """The divergence as an integral of [p - e^epsilon q]_+ with 30 digits, from where it starts."""
    with mpmath.workdps(30):
        q, s = mpmath.mpf(rate), mpmath.mpf(sigma)

        def density(x: mpmath.mpf, trees: int, sign: int) -> mpmath.mpf:
            return mpmath.fsum(
                mpmath.binomial(trees, i) * q**i * (1 - q) ** (trees - i) * mpmath.npdf(x, sign * i, s)
                for i in range(trees + 1)
            )

        def positive_part(x: mpmath.mpf) -> mpmath.mpf:
            return max(mpmath.mpf(0), density(x, upper, -1) - mpmath.exp(epsilon) * density(x, lower, 1))

        start = float(inverse_losses(loss, [epsilon])[0])
        ends = [start - sigma * k for k in (30, 8, 3, 1, 0)]
        return float(mpmath.quad(positive_part, ends))


@pytest.mark.parametrize("direction", [0, 1])
@pytest.mark.parametrize(
    ("trees", "rate", "sigma", "epsilon"),
    [(1, 0.1, 1.0, 0.5), (1, 0.01, 0.6, 1.0), (3, 0.3, 4.0, 0.2), (8, 0.11, 32.0, 0.05), (4, 0.9, 9.0, 1.5)],
)
def test_single_step_agrees_with_integration(
    direction: int, trees: int, rate: float, sigma: float, epsilon: float
) -> None:
    upper, lower = trees - direction, trees - 1 + direction
    loss = PairLoss(upper_trees=upper, lower_trees=lower, rate=rate, sigma=sigma)
    reference = exact_delta(loss, upper, lower, rate, sigma, epsilon)
    assert divergence(loss, epsilon)[0] == pytest.approx(reference, rel=1e-9, abs=1e-25)


def test_the_accountant_prices_one_step_at_its_exact_divergence() -> None:
    event = StepEvent(draw=PoissonDraw(rate=0.1), changed_trees=3, sigma_over_clip=2.0)
    accountant = PairAccountant()
    accountant.compose(event)
    for delta in (1e-3, 1e-6, 1e-10):
        epsilon = accountant.epsilon(delta)
        exact = max(
            float(divergence(loss, epsilon)[0])
            for loss in (
                PairLoss(upper_trees=3, lower_trees=2, rate=0.1, sigma=2.0),
                PairLoss(upper_trees=2, lower_trees=3, rate=0.1, sigma=2.0),
            )
        )
        assert exact == pytest.approx(delta, rel=2e-2)
        assert exact <= delta


def test_mixture_without_a_tail_is_the_binomial() -> None:
    mixture = BinomialMixture.of(5, 0.3, 2.0, 1e-30)
    assert mixture.shifts.tolist() == [0, 1, 2, 3, 4, 5]
    assert np.exp(mixture.log_weights) == pytest.approx(stats.binom.pmf(range(6), 5, 0.3), rel=1e-12)
    assert mixture.dropped == 0.0
    x = np.array([-3.0, 0.5, 4.0])
    by_hand = sum(stats.binom.pmf(i, 5, 0.3) * stats.norm.cdf(x, i, 2.0) for i in range(6))
    assert np.exp(mixture.log_cdf(x)) == pytest.approx(by_hand, rel=1e-12)
    assert np.exp(mixture.log_sf(x)) == pytest.approx(1 - by_hand, rel=1e-12)


def test_dropped_components_are_accounted_for() -> None:
    mixture = BinomialMixture.of(40, 0.01, 2.0, 1e-12)
    kept = float(np.exp(mixture.log_weights).sum())
    assert mixture.shifts.size < 20
    assert 0.0 < 1 - kept <= mixture.dropped + 1e-15
    loose, tight = (
        PairLoss(upper_trees=40, lower_trees=39, rate=0.01, sigma=2.0, tail=tail) for tail in (1e-4, 1e-30)
    )
    epsilons = np.array([0.0, 0.5, 1.0, 3.0])
    assert (divergence(loose, epsilons) >= divergence(tight, epsilons)).all()


def test_many_components_are_grouped_outwards() -> None:
    mixture = BinomialMixture.of(100_000, 0.5, 1e5, 1e-12)
    assert mixture.shifts.size <= 512
    assert float(np.exp(mixture.log_weights).sum()) == pytest.approx(1.0, abs=1e-9)
    assert 50_000 < float(np.exp(mixture.log_weights) @ mixture.shifts) < 50_010
    certain = BinomialMixture.of(100_000, 1.0, 1e5, 1e-12)
    assert certain.shifts.tolist() == [100_000]


def test_range_left_out_is_within_the_tail() -> None:
    mixture = BinomialMixture.of(30, 0.2, 0.5, 1e-20)
    low, high = mixture.ranges(1e-6)
    outside = math.exp(mixture.log_sf(high.max()[None])[0]) + math.exp(mixture.log_cdf(low.min()[None])[0])
    assert outside <= 1e-6


@pytest.mark.parametrize(("upper", "lower"), [(3, 2), (2, 3)])
def test_losses_decrease_and_distributions_are_the_mixtures(upper: int, lower: int) -> None:
    loss = PairLoss(upper_trees=upper, lower_trees=lower, rate=0.2, sigma=3.0, tail=1e-12)
    x = np.linspace(loss.highest_loss_x, loss.lowest_loss_x, 101)
    assert (np.diff(loss.losses(x)) < 0).all()
    by_hand = sum(stats.binom.pmf(i, upper, 0.2) * stats.norm.cdf(x, -i, 3.0) for i in range(upper + 1))
    assert np.exp(loss.upper.log_sf(-x)) == pytest.approx(by_hand, rel=1e-9)
    by_hand = sum(stats.binom.pmf(j, lower, 0.2) * stats.norm.cdf(x, j, 3.0) for j in range(lower + 1))
    assert np.exp(loss.lower.log_cdf(x)) == pytest.approx(by_hand, rel=1e-9)
    assert np.exp(loss.upper.log_sf(-x[:1])) <= loss.tail


@pytest.mark.parametrize(("trees", "rate", "sigma", "steps"), [(3, 0.05, 4.0, 100), (8, 0.3, 30.0, 20)])
def test_dp_accounting_composes_it_to_the_same_epsilon(
    trees: int, rate: float, sigma: float, steps: int
) -> None:
    """The same pair through dp_accounting's discretisation and Fourier transform."""
    interval, pmfs = 5e-4, []
    for upper, lower in ((trees, trees - 1), (trees - 1, trees)):
        loss = PairLoss(upper_trees=upper, lower_trees=lower, rate=rate, sigma=sigma, tail=1e-13)
        highest, lowest = loss.losses([loss.highest_loss_x, loss.lowest_loss_x])
        first, last = math.floor(lowest / interval), math.ceil(highest / interval)
        deltas = divergence(loss, np.arange(first, last + 1) * interval)
        pmfs.append(pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(interval, first, last, deltas))
    theirs = privacy_loss_distribution.PrivacyLossDistribution(*pmfs).self_compose(steps)
    ours = PairAccountant()
    ours.compose(StepEvent(draw=PoissonDraw(rate=rate), changed_trees=trees, sigma_over_clip=sigma), steps)
    assert ours.epsilon(1e-6) == pytest.approx(theirs.get_epsilon_for_delta(1e-6), rel=1e-3)
