"""What a billboard run costs, against dp_accounting, formulas written out, and numerical integration."""

from __future__ import annotations

import itertools
import math
import subprocess
import sys
from typing import Any

import dp_accounting
import numpy as np
import pytest
from dp_accounting import pld
from scipy import stats

from hushgraph.accounting.accountants import PairAccountant, gaussian_epsilon, largest_shift
from hushgraph.errors import PlanError
from hushgraph.privacy.bounds import (
    EDGE,
    RECORD,
    UNLABELLED_ROW,
    BoardCharge,
    Change,
    TrainingCharge,
    calibrate,
    epsilon,
    events,
    label_changed,
    rows_emptied,
)

ONE_ROW = rows_emptied(1)


def run(*, board: float, steps: int, sigma: float, rate: float = 1.0) -> list[Any]:
    return [
        BoardCharge(noise_std=board),
        TrainingCharge(steps=steps, rate=rate, sigma_over_clip=sigma),
    ]


# s, steps, rate, sigma / C, delta
SETTINGS = [
    (5.0, 600, 1.0, 150.0, 1e-6),
    (1.5, 300, 1.0, 30.0, 1e-5),
    (0.6, 600, 1.0, 15.0, 1e-7),
    (20.0, 100, 1.0, 20.0, 1e-6),
    (5.0, 600, 0.1, 15.0, 1e-6),
    (1.7, 600, 0.1, 4.0, 1e-6),
    (0.7, 600, 0.1, 2.0, 1e-6),
    (11.0, 600, 0.1, 28.0, 1e-5),
    (6.0, 1000, 0.01, 1.5, 1e-6),
    (2.0, 1000, 0.01, 1.0, 1e-6),
    (0.8, 1000, 0.01, 0.8, 1e-6),
    (4.0, 3000, 0.005, 0.9, 1e-7),
    (3.0, 50, 0.5, 10.0, 1e-5),
    (1.0, 50, 0.5, 5.0, 1e-5),
    (2.0, 10, 0.9, 4.0, 1e-4),
    (1.0, 1, 0.3, 1.0, 1e-5),
    (30.0, 200, 0.2, 5.0, 1e-6),
    (0.5, 200, 0.2, 50.0, 1e-6),
    (8.0, 2000, 0.02, 2.0, 1e-8),
    (2.5, 150, 0.05, 1.2, 1e-6),
]


@pytest.mark.parametrize(("board", "steps", "rate", "sigma", "delta"), SETTINGS)
def test_board_and_steps_against_dp_accounting(
    board: float, steps: int, rate: float, sigma: float, delta: float
) -> None:
    theirs = pld.PLDAccountant(value_discretization_interval=1e-4)
    theirs.compose(dp_accounting.GaussianDpEvent(board))
    step = dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(sigma))
    theirs.compose(dp_accounting.SelfComposedDpEvent(step, steps))
    ours = epsilon(run(board=board, steps=steps, rate=rate, sigma=sigma), ONE_ROW, delta=delta)
    assert ours == pytest.approx(theirs.get_epsilon(delta), rel=1e-3)


@pytest.mark.parametrize("delta", [1e-4, 1e-6, 1e-9])
@pytest.mark.parametrize(("board", "steps", "sigma"), [(5.0, 600, 150.0), (0.6, 300, 12.0), (40.0, 1, 30.0)])
def test_full_batches_are_one_gaussian(board: float, steps: int, sigma: float, delta: float) -> None:
    """Every row of the contract's table, written out."""
    mu_b, mu_t, c = 1 / board, math.sqrt(steps) / sigma, 7
    squares = {
        ONE_ROW: mu_b**2 + mu_t**2,
        rows_emptied(2): 4 * (mu_b**2 + mu_t**2),
        rows_emptied(5): 25 * (mu_b**2 + mu_t**2),
        EDGE: 2 * mu_b**2 + 16 * mu_t**2,
        RECORD: mu_b**2 + 4 * mu_t**2,
        label_changed(c): 2 * c / (c - 1) * mu_b**2 + 4 * mu_t**2,
    }
    charges = run(board=board, steps=steps, sigma=sigma)
    for change, square in squares.items():
        exact = gaussian_epsilon(math.sqrt(square), delta)
        assert epsilon(charges, change, delta=delta) == pytest.approx(exact, rel=1e-9), change
    assert epsilon(charges, UNLABELLED_ROW, delta=delta) == 0.0


def test_a_second_board_by_everybody() -> None:
    charges = [
        BoardCharge(noise_std=3.0),
        TrainingCharge(steps=100, sigma_over_clip=60.0),
        BoardCharge(noise_std=4.0, by_everybody=True),
        TrainingCharge(steps=400, sigma_over_clip=80.0),
    ]
    training = 100 / 60**2 + 400 / 80**2
    squares = {
        ONE_ROW: 1 / 9 + 1 / 16 + training,
        rows_emptied(2): 4 * (1 / 9 + 1 / 16 + training),
        EDGE: 2 / 9 + 16 / 16 + 16 * training,
        RECORD: 1 / 9 + 4 / 16 + 4 * training,
        label_changed(2): 4 / 9 + 4 / 16 + 4 * training,
        UNLABELLED_ROW: 1 / 16,
    }
    for change, square in squares.items():
        exact = gaussian_epsilon(math.sqrt(square), 1e-6)
        assert epsilon(charges, change, delta=1e-6) == pytest.approx(exact, rel=1e-9), change


def mixture_delta(upper: int, lower: int, rate: float, sigma: float, eps: float) -> float:
    """Hockey-stick divergence of Bin(upper) over +i against Bin(lower) over -j, integrated on a fine grid."""
    x = np.linspace(-12 * sigma - lower, 12 * sigma + upper, 400_001)
    p = sum(stats.binom.pmf(i, upper, rate) * stats.norm.pdf(x, i, sigma) for i in range(upper + 1))
    q = sum(stats.binom.pmf(j, lower, rate) * stats.norm.pdf(x, -j, sigma) for j in range(lower + 1))
    there = np.trapezoid(np.maximum(p - math.exp(eps) * q, 0), x)
    back = np.trapezoid(np.maximum(q - math.exp(eps) * p, 0), x)
    return float(max(there, back))


@pytest.mark.parametrize(
    ("change", "upper", "lower"),
    [(ONE_ROW, 1, 0), (rows_emptied(2), 2, 0), (rows_emptied(3), 3, 0), (EDGE, 2, 2), (RECORD, 1, 1)],
)
@pytest.mark.parametrize(("rate", "sigma"), [(0.1, 1.0), (0.5, 3.0), (0.9, 2.0)])
def test_one_sampled_step_is_the_mixture_of_the_contract(
    change: Change, upper: int, lower: int, rate: float, sigma: float
) -> None:
    charges = [TrainingCharge(steps=1, rate=rate, sigma_over_clip=sigma)]
    delta = mixture_delta(upper, lower, rate, sigma, 0.8)
    assert epsilon(charges, change, delta=delta) == pytest.approx(0.8, rel=2e-3)


def test_two_rows_without_edges_cost_less_than_two_trees() -> None:
    """K = 0: the shift for two rows is 2C, not the 3C of two changed trees."""
    [(event, count)] = events([TrainingCharge(steps=9, sigma_over_clip=6.0)], rows_emptied(2))
    assert (largest_shift(event), count) == (pytest.approx(2 / 6), 9)
    assert event.gone == event.changed_trees == 2  # type: ignore[union-attr]


@pytest.mark.parametrize("rate", [1.0, 0.2])
def test_more_rows_cost_more_and_noise_costs_less(rate: float) -> None:
    charges = run(board=4.0, steps=50, rate=rate, sigma=20.0)
    by_rows = [epsilon(charges, rows_emptied(m), delta=1e-6) for m in (1, 2, 3)]
    assert by_rows == sorted(by_rows)
    by_noise = [
        epsilon(run(board=s, steps=50, rate=rate, sigma=20.0), ONE_ROW, delta=1e-6) for s in (8.0, 4.0, 2.0)
    ]
    assert all(low < high for low, high in itertools.pairwise(by_noise))


@pytest.mark.parametrize(
    "charges",
    [
        [BoardCharge(), TrainingCharge(steps=5, sigma_over_clip=3.0)],
        [BoardCharge(noise_std=3.0), TrainingCharge(steps=5)],
        [BoardCharge(noise_std=3.0), TrainingCharge(steps=5, rate=0.5)],
    ],
)
def test_missing_noise_is_not_private(charges: list[Any]) -> None:
    assert epsilon(charges, ONE_ROW, delta=1e-6) == math.inf
    assert epsilon(charges[:1], UNLABELLED_ROW, delta=1e-6) == 0.0


@pytest.mark.parametrize("target", [0.1, 1.0, 4.0, 12.0])
@pytest.mark.parametrize("delta", [1e-5, 1e-8])
def test_full_batches_are_calibrated_exactly_and_without_a_grid(
    target: float, delta: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Losses on a grid take seconds; a formula takes none.
    monkeypatch.setattr(PairAccountant, "curve", None)
    board, training = calibrate(
        [BoardCharge(), TrainingCharge(steps=600)], [3, 1], epsilon=target, delta=delta
    )
    spent = epsilon([board, training], ONE_ROW, delta=delta)
    assert target * (1 - 1e-9) <= spent <= target
    assert isinstance(board, BoardCharge)
    assert isinstance(training, TrainingCharge)
    assert board.noise_std**-2 == pytest.approx(3 * 600 / training.sigma_over_clip**2, rel=1e-9)


@pytest.mark.parametrize("rate", [0.3, 0.02])
def test_sampled_batches_use_up_the_budget_from_below(rate: float) -> None:
    shares = [1.5, 0.25, 1.5, 0.75]
    empty = [
        BoardCharge(),
        TrainingCharge(steps=100, rate=rate),
        BoardCharge(by_everybody=True),
        TrainingCharge(steps=200, rate=rate),
    ]
    noisy = calibrate(empty, shares, epsilon=4.0, delta=1e-6)
    assert 4.0 * (1 - 1e-3) <= epsilon(noisy, ONE_ROW, delta=1e-6) <= 4.0
    full = [BoardCharge(), TrainingCharge(steps=100), BoardCharge(), TrainingCharge(steps=200)]
    reference = calibrate(full, shares, epsilon=4.0, delta=1e-6)
    for ours, theirs in zip(noisy, reference, strict=True):
        if isinstance(ours, BoardCharge):
            assert ours.noise_std == pytest.approx(theirs.noise_std, rel=1e-9)  # type: ignore[union-attr]
        else:
            assert ours.sigma_over_clip < theirs.sigma_over_clip  # type: ignore[union-attr]
    assert noisy[2].by_everybody  # type: ignore[union-attr]
    ratio = noisy[3].sigma_over_clip / noisy[1].sigma_over_clip  # type: ignore[union-attr]
    assert ratio == pytest.approx(math.sqrt(200 / 0.75) / math.sqrt(100 / 0.25), rel=1e-9)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: BoardCharge(noise_std=-1.0), r"noise_std=-1.0: expected a finite number"),
        (lambda: BoardCharge(noise_std=math.nan), r"noise_std=nan: expected"),
        (lambda: TrainingCharge(steps=-1), r"steps=-1: expected 0 or more"),
        (lambda: TrainingCharge(steps=1, rate=0.0), r"rate=0.0: expected a sampling rate"),
        (lambda: TrainingCharge(steps=1, sigma_over_clip=math.inf), r"sigma_over_clip=inf: expected"),
        (lambda: rows_emptied(0), r"count=0: expected 1 row or more"),
        (lambda: label_changed(1), r"num_classes=1: expected 2 or more"),
    ],
)
def test_meaningless_numbers_are_refused(make: Any, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        make()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"shares": [1.0]}, r"shares=\[1.0\]: expected one for each of 2 charges"),
        ({"charges": [], "shares": []}, r"shares=\[\]: expected one for each of 0"),
        ({"shares": [1.0, 0.0]}, r"shares=\[1.0, 0.0\]: expected finite numbers above 0"),
        ({"charges": [BoardCharge(), TrainingCharge(steps=0)]}, r"steps=0: expected 1 or more"),
        ({"epsilon": 0.0}, r"epsilon=0.0: expected a finite number above 0"),
        ({"delta": 1.0}, r"delta=1.0: expected a probability"),
    ],
)
def test_splits_that_mean_nothing_are_refused(changes: dict[str, Any], message: str) -> None:
    given: dict[str, Any] = {"charges": [BoardCharge(), TrainingCharge(steps=10)], "shares": [1.0, 1.0]}
    given |= {"epsilon": 1.0, "delta": 1e-6, **changes}
    with pytest.raises(PlanError, match=message):
        calibrate(given.pop("charges"), given.pop("shares"), **given)


def test_torch_is_not_imported() -> None:
    code = "import sys, hushgraph.privacy.bounds\nprint('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
