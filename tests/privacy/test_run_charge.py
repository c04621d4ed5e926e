"""Several runs in one budget: a row may be of another kind in every run, and the largest price counts."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any, ClassVar

import dp_accounting
import pytest
from dp_accounting.pld import PLDAccountant

from hushgraph.accounting.events import Event, GaussianEvent, PoissonDraw
from hushgraph.privacy.changes import Change
from hushgraph.privacy.charges import Charge, RowSteps
from hushgraph.privacy.run_charge import RunCharge, _count_divisions, _divide, compose_charges

DELTA = 1e-6


@dataclass(frozen=True, kw_only=True)
class Tables(Charge):
    """Noisy tables that evaluated rows alone are counted in."""

    shift: float

    kind: ClassVar[str] = "tables of a test"

    def event(self, change: Change) -> Event | None:
        evaluated = change.kinds.count("evaluated")
        return GaussianEvent(shift_over_sigma=evaluated * self.shift) if evaluated else None

    def with_shift(self, shift: float, *, scale: float = 1.0) -> Tables:
        raise NotImplementedError

    @property
    def sentence(self) -> str:
        return ""


def make_run(*charges: Charge, run: str = "a", **others: Any) -> RunCharge:
    return RunCharge(
        run=run,
        epsilon=4.0,
        delta=DELTA,
        accountant="pair",
        charges=charges,
        command="train",
        data="",
        **others,
    )


def steps(times: int, sigma: float, rate: float = 0.01) -> RowSteps:
    return RowSteps(draw=PoissonDraw(rate=rate), sigma_over_clip=sigma, times=times)


def compose(*events: tuple[dp_accounting.DpEvent, int]) -> float:
    """Epsilon by the accountant of another library."""
    books = PLDAccountant(value_discretization_interval=1e-3)
    for event, times in events:
        books.compose(event, times)
    return float(books.get_epsilon(DELTA))


def sampled(sigma: float, rate: float = 0.01) -> dp_accounting.DpEvent:
    return dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(sigma))


def released(shift: float) -> dp_accounting.DpEvent:
    return dp_accounting.GaussianDpEvent(1 / shift)


def test_two_runs_of_4_cost_evaluated_rows_more_than_training_rows() -> None:
    # The figures of the privacy contract: q = 0.01, and both kinds of rows pay 4 for one run.
    times, sigma, shift = 350, 0.697146, 0.837858
    training, evaluated = (sampled(sigma), times), (released(shift), 1)
    assert compose(training) == pytest.approx(4.0, abs=0.01)
    assert compose(evaluated) == pytest.approx(4.0, abs=0.01)
    by_kinds = {
        "training twice": compose(training, training),
        "once each": compose(training, evaluated),
        "evaluated twice": compose(evaluated, evaluated),
    }
    assert by_kinds["training twice"] == pytest.approx(4.88, abs=0.01)
    assert by_kinds["evaluated twice"] == pytest.approx(5.93, abs=0.01)
    assert max(by_kinds.values()) == by_kinds["evaluated twice"]
    charges = steps(times, sigma), Tables(name="tables", shift=shift)
    alone = compose_charges([make_run(*charges)], DELTA)
    both = compose_charges([make_run(*charges), make_run(*charges, run="b")], DELTA)
    assert (alone, both) == pytest.approx((4.0, by_kinds["evaluated twice"]), rel=0.005)


def test_the_dearest_row_may_be_of_another_kind_in_each_run() -> None:
    # Rows of one run may be evaluated in the next, whose split nobody declared to be the same.
    first = {"training": (sampled(0.75), 600), "evaluated": (released(0.1), 1)}
    second = {"training": (sampled(2.0), 100), "evaluated": (released(0.8), 1)}
    prices = {
        kinds: compose(first[kinds[0]], second[kinds[1]])
        for kinds in itertools.product(("training", "evaluated"), repeat=2)
    }
    largest = max(prices, key=lambda kinds: prices[kinds])
    assert largest == ("training", "evaluated")
    runs = [
        make_run(steps(600, 0.75), Tables(name="tables", shift=0.1)),
        make_run(steps(100, 2.0), Tables(name="tables", shift=0.8), run="b"),
    ]
    assert compose_charges(runs, DELTA) == pytest.approx(prices[largest], rel=0.005)
    assert compose_charges(runs[::-1], DELTA) == compose_charges(runs, DELTA)


def test_many_runs_cost_no_less_than_any_sequence_and_little_more() -> None:
    number, charges = 40, (steps(100, 2.0), Tables(name="tables", shift=0.08))
    runs = [make_run(*charges, run=str(place)) for place in range(number)]
    together = compose_charges(runs, DELTA)
    exact = [
        compose(*((event, times) for event, times in both if times))
        for evaluated in range(0, number + 1, 5)
        for both in [((sampled(2.0), 100 * (number - evaluated)), (released(0.08), evaluated))]
    ]
    assert max(exact) <= together * 1.001
    # Three runs of 40 count for both kinds: parts of three make at most 16.
    assert together <= 1.06 * max(exact)


def test_a_counter_repeats_runs() -> None:
    from collections import Counter

    run = make_run(steps(10, 2.0), Tables(name="tables", shift=0.1))
    apart = [make_run(*run.charges, run=name) for name in "abc"]
    assert compose_charges(Counter({run: 3}), DELTA) == compose_charges(apart, DELTA)
    opaque = make_run(run="old")
    assert compose_charges(Counter({opaque: 3}), 4 * DELTA) == 12.0
    assert compose_charges(Counter({opaque: 5}), 4 * DELTA) == math.inf


@pytest.mark.parametrize("kinds", [1, 2, 3])
@pytest.mark.parametrize("parts", [1, 2, 4, 7])
def test_every_division_of_like_runs_is_counted_for(kinds: int, parts: int) -> None:
    for number in range(1, 12):
        listed = list(_divide(number, kinds, parts))
        assert len(listed) == _count_divisions(number, kinds, parts)
        every = [
            division
            for division in itertools.product(range(number + 1), repeat=kinds)
            if sum(division) == number
        ]
        if number <= parts:
            assert sorted(listed) == every
        for division in every:
            assert any(
                all(have <= counted for have, counted in zip(division, other, strict=True))
                for other in listed
            )
        width = math.ceil(number / parts)
        assert all(sum(other) <= number + kinds * (width - 1) + width * (kinds - 1) for other in listed)
