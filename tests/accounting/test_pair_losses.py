"""The pair of one step: its components, its divergence, its grid, and how `dp_accounting` composes it."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from dp_accounting import dp_event
from scipy import stats

from hushgraph.accounting.accountants import PairAccountant, gaussian_delta, gaussian_epsilon
from hushgraph.accounting.events import Event, GaussianEvent, PoissonDraw, StepEvent
from hushgraph.accounting.pair_losses import (
    BinomialMixture,
    PairLoss,
    build_losses,
    choose_interval,
    compose_losses,
    has_own_event,
    own_event,
    place_on_grid,
)

SETTINGS = [(1, 0.01, 0.8), (1, 0.5, 2.0), (3, 0.1, 4.0), (8, 0.11, 32.0), (5, 1.0, 20.0)]


def event(trees: int, rate: float, sigma: float, gone: int = 1) -> StepEvent:
    return StepEvent(draw=PoissonDraw(rate=rate), changed_trees=trees, sigma_over_clip=sigma, gone=gone)


def exact_delta(upper: int, lower: int, rate: float, sigma: float, epsilon: float) -> float:
    """P - e^epsilon Q above the point where both are equal, with 40 digits."""
    with mpmath.workdps(40):
        q, s = mpmath.mpf(rate), mpmath.mpf(sigma)

        def mixture(kernel: object, x: mpmath.mpf, trees: int, sign: int) -> mpmath.mpf:
            return mpmath.fsum(
                mpmath.binomial(trees, i) * q**i * (1 - q) ** (trees - i) * kernel((x - sign * i) / s)  # type: ignore[operator]
                for i in range(trees + 1)
            )

        def loss(x: mpmath.mpf) -> mpmath.mpf:
            return mpmath.log(mixture(mpmath.npdf, x, upper, 1) / mixture(mpmath.npdf, x, lower, -1))

        low, high = mpmath.mpf(-20 * sigma - lower), mpmath.mpf(20 * sigma + upper)
        for _ in range(70):
            middle = (low + high) / 2
            low, high = (middle, high) if loss(middle) < epsilon else (low, middle)
        above = [mixture(lambda z: mpmath.ncdf(-z), low, *one) for one in ((upper, 1), (lower, -1))]
        return float(above[0] - mpmath.exp(epsilon) * above[1])


@pytest.mark.parametrize("direction", [0, 1])
@pytest.mark.parametrize(
    ("trees", "gone", "rate", "sigma"),
    [
        (1, 1, 0.1, 1.0),
        (1, 1, 0.01, 0.6),
        (3, 1, 0.3, 4.0),
        (8, 1, 0.11, 32.0),
        (4, 4, 0.9, 9.0),
        (2, 0, 0.2, 1.5),
    ],
)
def test_divergence_agrees_with_forty_digits(
    direction: int, trees: int, gone: int, rate: float, sigma: float
) -> None:
    """Within what is added for the rounding of every step, however small the divergence."""
    upper, lower = (trees, trees - gone) if direction == 0 else (trees - gone, trees)
    loss = PairLoss(upper_trees=upper, lower_trees=lower, rate=rate, sigma=sigma)
    epsilons = [share * end for end in loss.ends for share in (0.05, 0.3, 0.8)]
    for epsilon, found in zip(epsilons, loss.divergence(epsilons), strict=True):
        exact = exact_delta(upper, lower, rate, sigma, epsilon)
        assert abs(found - exact) <= 1e-15
        assert epsilon <= 0 or found == pytest.approx(exact, rel=1e-7, abs=1e-21)


def test_the_accountant_prices_one_step_at_its_exact_divergence() -> None:
    accountant = PairAccountant()
    accountant.compose(event(3, 0.1, 2.0))
    for delta in (1e-3, 1e-6, 1e-10):
        epsilon = accountant.epsilon(delta)
        exact = max(exact_delta(3, 2, 0.1, 2.0, epsilon), exact_delta(2, 3, 0.1, 2.0, epsilon))
        assert exact == pytest.approx(delta, rel=2e-2)
        assert exact <= delta


def test_mixture_without_a_tail_is_the_binomial() -> None:
    x = np.array([-3.0, 0.5, 4.0])
    for sign in (1, -1):
        mixture = BinomialMixture.of(5, 0.3, 2.0, sign=sign)
        counts = [0, 1, 2, 3, 4, 5][::sign]
        assert mixture.shifts.tolist() == [sign * count for count in counts]
        weights = stats.binom.pmf(counts, 5, 0.3)
        assert np.exp(mixture.log_weights) == pytest.approx(weights, rel=1e-12)
        assert mixture.dropped == 0.0
        above = sum(
            w * stats.norm.sf(x, shift, 2.0) for w, shift in zip(weights, mixture.shifts, strict=True)
        )
        assert np.exp(mixture.log_sf(x)) == pytest.approx(above, rel=1e-12)


def test_dropped_components_are_accounted_for() -> None:
    mixture = BinomialMixture.of(40, 0.01, 2.0)
    assert mixture.shifts.size < 25
    left_out = stats.binom.sf(mixture.shifts[-1], 40, 0.01)
    assert 0.0 < left_out <= mixture.dropped
    loss = PairLoss(upper_trees=40, lower_trees=39, rate=0.01, sigma=2.0)
    assert loss.divergence([1e6]) == [mixture.dropped]


def test_many_components_are_grouped_outwards() -> None:
    for sign in (1, -1):
        mixture = BinomialMixture.of(100_000, 0.5, 1e5, sign=sign)
        assert mixture.shifts.size <= 512
        assert (np.diff(mixture.shifts) > 0).all()
        assert float(np.exp(mixture.log_weights).sum()) == pytest.approx(1.0, abs=1e-9)
        assert 50_000 < sign * float(np.exp(mixture.log_weights) @ mixture.shifts) < 50_010
    assert BinomialMixture.of(100_000, 1.0, 1e5).shifts.tolist() == [100_000]


@pytest.mark.parametrize(("upper", "lower"), [(3, 2), (2, 3)])
def test_losses_increase_from_end_to_end(upper: int, lower: int) -> None:
    loss = PairLoss(upper_trees=upper, lower_trees=lower, rate=0.2, sigma=3.0)
    losses = loss.losses(loss.points)
    assert (np.diff(losses) > 0).all()
    assert loss.ends == (losses[0], losses[-1])
    beyond = float(loss.upper.log_sf(loss.points[-1:] + 3.0 / 32)[0])
    assert beyond < math.log(1e-22) < float(loss.upper.log_sf(loss.points[-1:])[0])


def test_directions_of_the_pair() -> None:
    emptied, filled = build_losses(event(3, 0.2, 5.0))
    assert emptied.upper.shifts.tolist() == [0, 1, 2, 3]
    assert emptied.lower.shifts.tolist() == [-2, -1, 0]
    assert filled.upper.shifts.tolist() == [0, 1, 2]
    assert filled.lower.shifts.tolist() == [-3, -2, -1, 0]


def test_spread_of_a_gaussian() -> None:
    """At rate 1 the loss is normal with the shift as its standard deviation."""
    for loss in build_losses(event(2, 1.0, 6.0)):
        assert loss.spread == pytest.approx(3 / 6, rel=1e-2)
        assert 19 * 0.5 < loss.ends[1] - loss.ends[0] < 20 * 0.5


@pytest.mark.parametrize(("trees", "rate", "sigma"), SETTINGS)
def test_on_a_grid_no_divergence_is_smaller(trees: int, rate: float, sigma: float) -> None:
    step = event(trees, rate, sigma)
    interval = choose_interval({step: 1})
    # On grid points, where rounding adds least, and between them.
    epsilons = interval * np.array([0.0, 0.5, 1.0, 7.0, 7.3, 40.0, 80.5])
    exact = np.maximum(*(loss.divergence(epsilons) for loss in build_losses(step)))
    on_grid = place_on_grid(step, interval).get_delta_for_epsilon(epsilons)
    assert (on_grid >= exact - 1e-15).all()
    assert (on_grid - exact <= interval).all()


def test_what_dp_accounting_has_an_event_for() -> None:
    row, board = event(1, 0.2, 5.0), GaussianEvent(shift_over_sigma=0.25)
    assert own_event(row) == dp_event.PoissonSampledDpEvent(0.2, dp_event.GaussianDpEvent(5.0))
    assert own_event(board) == dp_event.GaussianDpEvent(4.0)
    others = [event(2, 0.2, 5.0), event(2, 0.2, 5.0, gone=2), event(1, 0.2, 5.0, gone=0)]
    assert [has_own_event(one) for one in (row, board, *others)] == [True, True, False, False, False]


@pytest.mark.parametrize(
    "counts",
    [
        {event(1, 0.1, 2.0): 100},
        {event(1, 0.01, 0.9): 1000},
        {event(1, 0.3, 12.0): 500, GaussianEvent(shift_over_sigma=0.6): 1},
    ],
)
def test_one_row_costs_the_same_by_its_event_and_by_its_pair(counts: dict[Event, int]) -> None:
    by_event = compose_losses(counts)
    interval = choose_interval(counts)
    first, *others = (place_on_grid(one, interval).self_compose(count) for one, count in counts.items())
    by_pair = first if not others else first.compose(*others)
    for delta in (1e-4, 1e-6, 1e-9):
        assert by_pair.get_epsilon_for_delta(delta) == pytest.approx(by_event.epsilon(delta), rel=2e-5)


@pytest.mark.parametrize("steps", [1, 1000, 100_000])
def test_rounding_of_many_steps_never_flatters(steps: int) -> None:
    """Full batches, whose delta is known exactly, composed on a grid nevertheless."""
    sigma = 5.0 * math.sqrt(steps)
    curve = compose_losses({event(3, 1.0, sigma): steps})
    for delta in (1e-4, 1e-6, 1e-9):
        exact = gaussian_epsilon(1.0, delta)
        assert exact <= curve.epsilon(delta - 1e-15 * steps) <= exact * 1.004
        assert curve.delta(exact) + 1e-15 * steps >= gaussian_delta(1.0, exact)


def test_a_release_beside_many_small_steps_does_not_spoil_the_grid() -> None:
    """Rounding losses far below the interval adds to their variance."""
    release, steps = GaussianEvent(shift_over_sigma=2.0), event(2, 1.0, 3e4)
    curve = compose_losses({release: 1, steps: 10_000})
    assert curve.epsilon(1e-6) == pytest.approx(gaussian_epsilon(math.sqrt(4 + 1e-4), 1e-6), rel=2e-3)


@pytest.mark.parametrize("noise", [1e-2, 1e-4, 1e-6])
def test_losses_beyond_the_grid_count_as_infinite(noise: float) -> None:
    """With hardly any noise a row shows when it is drawn: delta is the chance of that, at any epsilon."""
    for step in (event(1, 0.1, noise), event(2, 0.1, noise)):
        curve = compose_losses({step: 3})
        shown = 1 - 0.9 ** (3 * step.changed_trees)
        assert curve.delta(1000.0) == pytest.approx(shown, rel=1e-9)
        assert curve.epsilon(shown / 2) > 1000.0
        assert curve.epsilon(1.01 * shown) < 2.0
