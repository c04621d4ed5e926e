"""The pair accountant against second methods, and far outside of the usual range."""

from __future__ import annotations

import math

import pytest
from dp_accounting.pld import privacy_loss_distribution

from hushgraph.accounting.accountants import PairAccountant, gaussian_epsilon
from hushgraph.accounting.events import Event, GaussianEvent, PoissonDraw, StepEvent
from hushgraph.accounting.pair_losses import compose_losses
from hushgraph.errors import PlanError


def event(*, rate: float, trees: int = 1, sigma: float, gone: int = 1) -> StepEvent:
    return StepEvent(draw=PoissonDraw(rate=rate), changed_trees=trees, sigma_over_clip=sigma, gone=gone)


def gaussian(shift: float) -> GaussianEvent:
    return GaussianEvent(shift_over_sigma=shift)


def accountant(*rows: tuple[Event, int]) -> PairAccountant:
    made = PairAccountant()
    for row in rows:
        made.compose(*row)
    return made


@pytest.mark.parametrize(
    ("rate", "sigma", "steps", "delta"),
    [
        (0.01, 1.0, 1000, 1e-6),
        (0.1, 2.0, 100, 1e-5),
        (0.5, 5.0, 50, 1e-6),
        (0.003, 0.8, 3000, 1e-7),
        (0.02, 0.7, 10, 1e-5),
        (0.9, 3.0, 3, 1e-4),
    ],
)
def test_one_changed_tree_is_the_poisson_subsampled_gaussian(
    rate: float, sigma: float, steps: int, delta: float
) -> None:
    theirs = privacy_loss_distribution.from_gaussian_mechanism(
        sigma, sampling_prob=rate, value_discretization_interval=1e-4, use_connect_dots=True
    ).self_compose(steps)
    ours = accountant((event(rate=rate, sigma=sigma), steps))
    epsilon = theirs.get_epsilon_for_delta(delta)
    assert ours.epsilon(delta) == pytest.approx(epsilon, rel=1e-3)
    assert ours.delta(epsilon) == pytest.approx(delta, rel=3e-2)


@pytest.mark.parametrize("delta", [1e-3, 1e-6, 1e-9])
@pytest.mark.parametrize(("trees", "sigma", "steps"), [(1, 1.0, 1), (3, 50.0, 1000), (8, 2000.0, 10_000)])
def test_full_batches_are_a_gaussian(trees: int, sigma: float, steps: int, delta: float) -> None:
    """The grid, which a rate of 1 does not need, agrees with the formula that is used instead."""
    step = event(rate=1.0, trees=trees, sigma=sigma)
    formula = gaussian_epsilon((2 * trees - 1) * math.sqrt(steps) / sigma, delta)
    assert accountant((step, steps)).epsilon(delta) == pytest.approx(formula, rel=1e-9)
    assert formula * (1 - 1e-9) <= compose_losses({step: steps}).epsilon(delta) <= formula * 1.001


def test_mixed_full_batches_are_one_gaussian() -> None:
    counts = {event(rate=1.0, sigma=20.0): 30, event(rate=1.0, trees=4, sigma=100.0): 10}
    formula = gaussian_epsilon(math.sqrt(30 / 20**2 + 10 * (7 / 100) ** 2), 1e-6)
    assert accountant(*counts.items()).epsilon(1e-6) == pytest.approx(formula, rel=1e-9)
    assert compose_losses(counts).epsilon(1e-6) == pytest.approx(formula, rel=1e-3)


def test_rate_just_below_one_costs_just_below_a_full_batch() -> None:
    almost, full = (accountant((event(rate=rate, trees=3, sigma=40.0), 100)) for rate in (1 - 1e-9, 1.0))
    assert almost.epsilon(1e-6) == pytest.approx(full.epsilon(1e-6), rel=1e-3)
    assert almost.epsilon(1e-6) <= full.epsilon(1e-6)


@pytest.mark.parametrize("sigma", [1e-3, 1.0, 1e3])
@pytest.mark.parametrize("steps", [1, 100_000])
@pytest.mark.parametrize(("rate", "trees"), [(1e-4, 1), (1e-4, 8), (0.1, 1), (0.1, 8), (1.0, 8)])
@pytest.mark.parametrize("delta", [1e-6, 1e-15])
def test_extremes_lie_between_bounds_or_are_refused(
    sigma: float, steps: int, rate: float, trees: int, delta: float
) -> None:
    """Never above the full batch, never below what one step that shows a single tree costs exactly."""
    ours = accountant((event(rate=rate, trees=trees, sigma=sigma), steps))
    full = gaussian_epsilon((2 * trees - 1) * math.sqrt(steps) / sigma, delta)
    if delta < 1e-11 and rate < 1.0 and full > 0.0:
        with pytest.raises(PlanError, match=r"delta=1e-15: .* use a larger delta"):
            ours.epsilon(delta)
        return
    found = ours.epsilon(delta)
    unsampled = gaussian_epsilon(1 / sigma, delta / rate) if delta < rate else 0.0
    least = math.log1p(rate * math.expm1(unsampled)) if unsampled < 500 else unsampled + math.log(rate)
    assert least * (1 - 1e-9) <= found <= full


@pytest.mark.parametrize(("rate", "sigma", "delta"), [(0.5, 0.3, 1e-9), (1e-4, 1.0, 1e-8), (0.1, 1.0, 1e-9)])
def test_one_step_with_one_tree_has_a_closed_form(rate: float, sigma: float, delta: float) -> None:
    exact = math.log1p(rate * math.expm1(gaussian_epsilon(1 / sigma, delta / rate)))
    found = accountant((event(rate=rate, sigma=sigma), 1)).epsilon(delta)
    assert exact * (1 - 1e-9) <= found <= exact * 1.005


def test_more_trees_than_training_nodes_are_priced_as_given() -> None:
    few, many = (accountant((event(rate=0.1, trees=trees, sigma=1e4), 100)) for trees in (1000, 2000))
    assert 0.0 < few.epsilon(1e-6) < many.epsilon(1e-6) < math.inf


def test_finer_grids_converge_from_above() -> None:
    row = (event(rate=0.05, trees=5, sigma=10.0), 300)
    coarse, fine = PairAccountant(), PairAccountant(precision=4.0)
    coarse.compose(*row)
    fine.compose(*row)
    assert fine.epsilon(1e-6) < coarse.epsilon(1e-6) < fine.epsilon(1e-6) * 1.005


def test_a_delta_within_rounding_is_refused() -> None:
    ours = accountant((event(rate=0.01, trees=2, sigma=30.0), 100_000))
    with pytest.raises(PlanError, match=r"delta=1e-10: 100000 steps .* down to delta=1e-09"):
        ours.epsilon(1e-10)
    assert ours.epsilon(1e-9) > 0.0


def test_gaussian_releases_and_full_batches_are_one_gaussian() -> None:
    counts = {gaussian(0.4): 1, gaussian(0.1): 9, event(rate=1.0, trees=2, sigma=30.0): 25}
    shift = math.sqrt(0.4**2 + 9 * 0.1**2 + 25 * (3 / 30) ** 2)
    for delta in (1e-4, 1e-6, 1e-9):
        formula = gaussian_epsilon(shift, delta)
        assert accountant(*counts.items()).epsilon(delta) == pytest.approx(formula, rel=1e-9)
        assert formula * (1 - 1e-9) <= compose_losses(counts).epsilon(delta) <= formula * 1.001


@pytest.mark.parametrize(("trees", "gone", "moved"), [(1, 1, 1), (2, 2, 2), (5, 5, 5), (2, 0, 4), (1, 0, 2)])
def test_full_batches_by_roots_gone_and_changed(trees: int, gone: int, moved: int) -> None:
    """A root that is gone moves the sum by C, one that changes by 2C."""
    step = event(rate=1.0, trees=trees, sigma=40.0, gone=gone)
    formula = gaussian_epsilon(moved * 8 / 40, 1e-6)
    assert accountant((step, 64)).epsilon(1e-6) == pytest.approx(formula, rel=1e-9)
    assert compose_losses({step: 64}).epsilon(1e-6) == pytest.approx(formula, rel=1e-3)


def test_a_release_beside_sampled_steps_costs_more_than_either_and_less_than_their_sum() -> None:
    board, steps = (gaussian(0.5), 1), (event(rate=0.1, sigma=2.0), 100)
    both, alone = (
        accountant(board, steps).epsilon(1e-6),
        [accountant(r).epsilon(1e-6) for r in (board, steps)],
    )
    assert max(alone) < both < sum(alone)


def test_a_release_that_shifts_nothing_is_free() -> None:
    steps = (event(rate=0.1, sigma=2.0), 100)
    assert accountant((gaussian(0.0), 1)).epsilon(1e-6) == 0.0
    assert accountant((gaussian(0.0), 1)).delta(0.0) == 0.0
    with_it, without = accountant((gaussian(0.0), 1), steps), accountant(steps)
    assert with_it.epsilon(1e-6) == pytest.approx(without.epsilon(1e-6), rel=1e-6)


def test_a_release_without_noise_is_not_private() -> None:
    ours = accountant((gaussian(math.inf), 1), (event(rate=0.1, sigma=2.0), 100))
    assert ours.epsilon(1e-6) == math.inf
    assert ours.delta(10.0) == 1.0
