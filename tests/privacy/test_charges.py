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

from effort import choose
from hushgraph.accounting.accountants import PairAccountant, gaussian_epsilon
from hushgraph.accounting.events import UNBOUNDED, Event, GaussianEvent, PoissonDraw, StepEvent
from hushgraph.errors import PlanError
from hushgraph.privacy.changes import (
    KINDS,
    ONE_EDGE,
    ONE_LABEL,
    ONE_RECORD,
    Change,
    Kind,
    row_emptied,
    rows_emptied,
)
from hushgraph.privacy.charges import (
    BoardCharge,
    Charge,
    RowSteps,
    TreeSteps,
    calibrate,
    epsilon,
    list_events,
)

ONE_ROW = rows_emptied(1)
OUTSIDE = (*row_emptied("evaluated"), *row_emptied("other"))


def board(noise_std: float = 0.0, classes: int = 2, **others: Any) -> BoardCharge:
    return BoardCharge(
        name="board", noise_std=noise_std, label_move=math.sqrt(2 * classes / (classes - 1)), **others
    )


def training(steps: int, rate: float = 1.0, sigma: float = 0.0) -> RowSteps:
    return RowSteps(draw=PoissonDraw(rate=rate), times=steps, sigma_over_clip=sigma)


def run(*, noise: float, steps: int, sigma: float, rate: float = 1.0, classes: int = 7) -> list[Any]:
    return [board(noise, classes), training(steps, rate, sigma)]


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


@pytest.mark.parametrize(("noise", "steps", "rate", "sigma", "delta"), SETTINGS[:: choose(3, 1)])
def test_board_and_steps_against_dp_accounting(
    noise: float, steps: int, rate: float, sigma: float, delta: float
) -> None:
    theirs = pld.PLDAccountant(value_discretization_interval=1e-4)
    theirs.compose(dp_accounting.GaussianDpEvent(noise))
    step = dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(sigma))
    theirs.compose(dp_accounting.SelfComposedDpEvent(step, steps))
    ours = epsilon(run(noise=noise, steps=steps, rate=rate, sigma=sigma), ONE_ROW, delta=delta)
    assert ours == pytest.approx(theirs.get_epsilon(delta), rel=1e-3)


@pytest.mark.parametrize("delta", [1e-4, 1e-6, 1e-9])
@pytest.mark.parametrize(("noise", "steps", "sigma"), [(5.0, 600, 150.0), (0.6, 300, 12.0), (40.0, 1, 30.0)])
def test_full_batches_are_one_gaussian(noise: float, steps: int, sigma: float, delta: float) -> None:
    """Every row of the contract's table, written out."""
    mu_b, mu_t, c = 1 / noise, math.sqrt(steps) / sigma, 7
    squares = {
        ONE_ROW: mu_b**2 + mu_t**2,
        rows_emptied(2): 4 * (mu_b**2 + mu_t**2),
        rows_emptied(5): 25 * (mu_b**2 + mu_t**2),
        ONE_EDGE: 2 * mu_b**2 + 16 * mu_t**2,
        ONE_RECORD: mu_b**2 + 4 * mu_t**2,
        ONE_LABEL: 2 * c / (c - 1) * mu_b**2 + 4 * mu_t**2,
    }
    charges = run(noise=noise, steps=steps, sigma=sigma)
    for change, square in squares.items():
        exact = gaussian_epsilon(math.sqrt(square), delta)
        assert epsilon(charges, change, delta=delta) == pytest.approx(exact, rel=1e-9), change
    assert epsilon(charges, OUTSIDE, delta=delta) == 0.0


def test_a_second_board_by_everybody() -> None:
    charges = [
        board(3.0),
        training(100, sigma=60.0),
        board(4.0, by_everybody=True),
        training(400, sigma=80.0),
    ]
    steps = 100 / 60**2 + 400 / 80**2
    squares = {
        ONE_ROW: 1 / 9 + 1 / 16 + steps,
        rows_emptied(2): 4 * (1 / 9 + 1 / 16 + steps),
        ONE_EDGE: 2 / 9 + 16 / 16 + 16 * steps,
        ONE_RECORD: 1 / 9 + 4 / 16 + 4 * steps,
        ONE_LABEL: 4 / 9 + 4 / 16 + 4 * steps,
        OUTSIDE: 1 / 16,
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
    [(ONE_ROW, 1, 0), (rows_emptied(2), 2, 0), (rows_emptied(3), 3, 0), (ONE_EDGE, 2, 2), (ONE_RECORD, 1, 1)],
)
@pytest.mark.parametrize(("rate", "sigma"), [(0.1, 1.0), (0.5, 3.0), (0.9, 2.0)])
def test_one_sampled_step_is_the_mixture_of_the_contract(
    change: tuple[Change, ...], upper: int, lower: int, rate: float, sigma: float
) -> None:
    charges = [training(1, rate, sigma)]
    delta = mixture_delta(upper, lower, rate, sigma, 0.8)
    assert epsilon(charges, change, delta=delta) == pytest.approx(0.8, rel=2e-3)


def test_two_rows_without_edges_cost_less_than_two_trees() -> None:
    """K = 0: the shift for two rows is 2C, not the 3C of two changed trees."""
    [(event, count)] = list_events([training(9, sigma=6.0)], Change("rows", ("training", "training")))
    assert (event.largest_shift, count) == (pytest.approx(2 / 6), 9)
    assert isinstance(event, StepEvent)
    assert event.gone == event.changed_trees == 2


@pytest.mark.parametrize("rate", [1.0, 0.2])
def test_more_rows_cost_more_and_noise_costs_less(rate: float) -> None:
    charges = run(noise=4.0, steps=50, rate=rate, sigma=20.0)
    by_rows = [epsilon(charges, rows_emptied(m), delta=1e-6) for m in (1, 2, 3)]
    assert by_rows == sorted(by_rows)
    by_noise = [
        epsilon(run(noise=s, steps=50, rate=rate, sigma=20.0), ONE_ROW, delta=1e-6) for s in (8.0, 4.0, 2.0)
    ]
    assert all(low < high for low, high in itertools.pairwise(by_noise))


@pytest.mark.parametrize(
    "charges",
    [
        [board(), training(5, sigma=3.0)],
        [board(3.0), training(5)],
        [board(3.0), training(5, rate=0.5)],
    ],
)
def test_missing_noise_is_not_private(charges: list[Any]) -> None:
    assert epsilon(charges, ONE_ROW, delta=1e-6) == math.inf
    assert epsilon(charges[:1], OUTSIDE, delta=1e-6) == 0.0


@pytest.mark.parametrize("target", [0.1, 1.0, 4.0, 12.0])
@pytest.mark.parametrize("delta", [1e-5, 1e-8])
def test_full_batches_are_calibrated_exactly_and_without_a_grid(
    target: float, delta: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Losses on a grid take seconds; a formula takes none.
    monkeypatch.setattr(PairAccountant, "curve", None)
    first, steps = calibrate([board(), training(600)], [3, 1], budget=target, delta=delta)
    spent = epsilon([first, steps], ONE_ROW, delta=delta)
    assert target * (1 - 1e-9) <= spent <= target
    assert isinstance(first, BoardCharge)
    assert isinstance(steps, RowSteps)
    assert first.noise_std**-2 == pytest.approx(3 * 600 / steps.sigma_over_clip**2, rel=1e-9)


@pytest.mark.parametrize("rate", [0.3, 0.02])
def test_sampled_batches_use_up_the_budget_from_below(rate: float) -> None:
    shares = [1.5, 0.25, 1.5, 0.75]
    empty = [
        board(),
        training(100, rate),
        board(by_everybody=True),
        training(200, rate),
    ]
    noisy = calibrate(empty, shares, budget=4.0, delta=1e-6)
    assert 4.0 * (1 - 1e-3) <= epsilon(noisy, ONE_ROW, delta=1e-6) <= 4.0
    full = [board(), training(100), board(), training(200)]
    reference = calibrate(full, shares, budget=4.0, delta=1e-6)
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
        (lambda: board(-1.0), r"noise_std=-1.0: expected a finite number"),
        (lambda: board(math.nan), r"noise_std=nan: expected"),
        (lambda: training(-1), r"times=-1: expected 0 or more"),
        (lambda: training(1, rate=0.0), r"rate=0.0: expected a sampling rate"),
        (lambda: epsilon([training(1, sigma=math.inf)], ONE_ROW, delta=1e-6), r"sigma_over_clip=inf: expect"),
        (lambda: rows_emptied(0), r"count=0: expected 1 row or more"),
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
        ({"charges": [board(), training(0)]}, r"steps=0: expected 1 or more"),
        ({"budget": 0.0}, r"epsilon=0.0: expected a finite number above 0"),
        ({"delta": 1.0}, r"delta=1.0: expected a probability"),
    ],
)
def test_splits_that_mean_nothing_are_refused(changes: dict[str, Any], message: str) -> None:
    given: dict[str, Any] = {"charges": [board(), training(10)], "shares": [1.0, 1.0]}
    given |= {"budget": 1.0, "delta": 1e-6, **changes}
    with pytest.raises(PlanError, match=message):
        calibrate(given.pop("charges"), given.pop("shares"), **given)


def test_torch_is_not_imported() -> None:
    code = "import sys, hushgraph.privacy.plans\nprint('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


EVERYBODY = board(1.0, by_everybody=True)
READING = training(1, sigma=1.0)
# Squared shifts of the contract: first board, second board, steps, in units of one ballot and of C.
EDGES: dict[tuple[Kind, Kind], tuple[float, float, float]] = {
    ("training", "training"): (2, 16, 16),
    ("training", "evaluated"): (1, 16, 4),
    ("evaluated", "evaluated"): (0, 16, 0),
    ("training", "other"): (1, 16, 4),
    ("evaluated", "other"): (0, 16, 0),
    ("other", "other"): (0, 16, 0),
}


def squared(event: Event | None) -> float:
    return 0.0 if event is None else event.largest_shift**2


@pytest.mark.parametrize("change", ONE_EDGE)
def test_an_edge_by_kinds_of_its_ends(change: Change) -> None:
    found = [squared(charge.event(change)) for charge in (board(1.0), EVERYBODY, READING)]
    first, second = change.kinds
    assert found == pytest.approx(EDGES[first, second])


@pytest.mark.parametrize("kind", KINDS)
def test_the_columns_of_one_row_one_record_and_one_label(kind: Kind) -> None:
    charges = (board(1.0, classes=7), board(1.0, classes=7, by_everybody=True), READING)
    is_training = kind == "training"
    expected = {"rows": (1, 1, 1) if is_training else (0, 1, 0)}
    expected["record"] = (1, 4, 4) if is_training else (0, 4, 0)
    expected["label"] = (14 / 6, 14 / 6, 4) if is_training else (0, 0, 0)
    for what, squares in expected.items():
        found = [squared(charge.event(Change(what, (kind,)))) for charge in charges]  # type: ignore[arg-type]
        assert found == pytest.approx(squares), what


def test_two_rows_by_kinds() -> None:
    charges = (board(1.0), EVERYBODY, READING)
    found = {
        change.kinds: [squared(charge.event(change)) for charge in charges] for change in rows_emptied(2)
    }
    assert len(found) == 6
    assert found["training", "training"] == [4, 4, 4]
    assert found["training", "evaluated"] == found["training", "other"] == [1, 4, 1]
    assert found["evaluated", "evaluated"] == found["other", "other"] == [0, 4, 0]
    sampled = training(1, rate=0.1, sigma=1.0).event(Change("rows", ("training", "evaluated")))
    assert isinstance(sampled, StepEvent)
    assert (sampled.changed_trees, sampled.gone) == (1, 1)


class Tables(Charge):
    """Two noisy tables that one evaluated row adds 1 to, as a mechanism from outside would be written."""

    kind = "tables"

    def event(self, change: Change) -> Event | None:
        count = change.kinds.count("evaluated")
        if change.what != "rows":
            return UNBOUNDED if count else None
        return GaussianEvent(shift_over_sigma=count * math.sqrt(2) / 3.0) if count else None

    def with_shift(self, shift: float, *, scale: float = 1.0) -> Tables:
        raise NotImplementedError

    @property
    def sentence(self) -> str:
        return "Two noisy tables are released once."


def test_a_mechanism_from_outside_is_priced_for_the_rows_that_it_moves() -> None:
    tables = Tables(name="tables")
    charges = [board(2.0), training(100, 0.1, 20.0), tables]
    training_row = epsilon(charges, row_emptied("training"), delta=1e-6)
    evaluated = epsilon(charges, row_emptied("evaluated"), delta=1e-6)
    assert evaluated == pytest.approx(gaussian_epsilon(math.sqrt(2) / 3, 1e-6), rel=1e-9)
    assert epsilon(charges, ONE_ROW, delta=1e-6) == max(training_row, evaluated) == training_row
    assert Charge.from_json(tables.to_json()) == tables


def test_steps_on_trees_count_the_trees_of_the_change() -> None:
    steps = TreeSteps(
        draw=PoissonDraw(rate=0.5), changed_trees=4, num_trees=6, trees_of_record=2, sigma_over_clip=1.0
    )
    expected = {"rows": (4, 1), "edge": (4, 0), "record": (2, 0), "label": (1, 0)}
    for what, (changed, gone) in expected.items():
        kinds: tuple[Kind, ...] = ("training", "other") if what == "edge" else ("training",)
        event = steps.event(Change(what, kinds))  # type: ignore[arg-type]
        assert isinstance(event, StepEvent)
        assert (event.changed_trees, event.gone) == (changed, gone), what
    both = steps.event(Change("rows", ("other", "other")))
    assert isinstance(both, StepEvent)
    assert (both.changed_trees, both.gone) == (7, 1)
    assert steps.event(Change("label", ("evaluated",))) is None
