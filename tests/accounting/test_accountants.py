"""What every accountant promises, checked on each of them."""

from __future__ import annotations

import itertools
import math
import subprocess
import sys
from collections.abc import Callable

import pytest

from hushgraph.accounting.accountants import Accountant, PairAccountant, make_accountant
from hushgraph.accounting.events import FixedSizeDraw, GaussianEvent, PoissonDraw, StepEvent
from hushgraph.accounting.renyi import RenyiAccountant
from hushgraph.errors import PlanError

DELTA = 1e-5
EventMaker = Callable[..., StepEvent]


def poisson(*, share: float = 0.1, trees: int = 3, sigma: float = 12.0, gone: int = 1) -> StepEvent:
    return StepEvent(draw=PoissonDraw(rate=share), changed_trees=trees, sigma_over_clip=sigma, gone=gone)


def fixed_size(*, share: float = 0.1, trees: int = 3, sigma: float = 12.0, gone: int = 1) -> StepEvent:
    draw = FixedSizeDraw(size=round(1000 * share), population=1000)
    return StepEvent(draw=draw, changed_trees=trees, sigma_over_clip=sigma, gone=gone)


@pytest.fixture(params=["pair", "paper"])
def name(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def event(name: str) -> EventMaker:
    return {"pair": poisson, "paper": fixed_size}[name]


def priced(name: str, *rows: tuple[StepEvent, int]) -> Accountant:
    accountant = make_accountant(name)
    for row in rows:
        accountant.compose(*row)
    return accountant


def test_no_step_costs_nothing(name: str, event: EventMaker) -> None:
    assert priced(name).epsilon(DELTA) == 0.0
    assert priced(name).delta(1.0) == 0.0
    assert priced(name, (event(), 0)).epsilon(DELTA) == 0.0
    assert priced(name, (event(), 0)).steps == 0


def test_equal_steps_are_merged(name: str, event: EventMaker) -> None:
    at_once, one_by_one = priced(name, (event(), 3)), priced(name, *[(event(), 1)] * 3)
    assert at_once.steps == one_by_one.steps == 3
    assert at_once.epsilon(DELTA) == one_by_one.epsilon(DELTA)


def test_order_does_not_matter(name: str, event: EventMaker) -> None:
    rows = [(event(), 40), (event(share=0.3), 5), (event(sigma=8.0), 10)]
    forth, back = priced(name, *rows), priced(name, *rows[::-1])
    assert forth.epsilon(DELTA) == pytest.approx(back.epsilon(DELTA), rel=1e-9)
    assert forth.delta(2.0) == pytest.approx(back.delta(2.0), rel=1e-9)


def test_mixed_steps_cost_more_than_their_parts_and_less_than_their_worst(
    name: str, event: EventMaker
) -> None:
    cheap, dear = event(sigma=12.0), event(sigma=8.0)
    mixed = priced(name, (cheap, 20), (dear, 20)).epsilon(DELTA)
    assert priced(name, (cheap, 40)).epsilon(DELTA) < mixed < priced(name, (dear, 40)).epsilon(DELTA)
    assert mixed > priced(name, (dear, 20)).epsilon(DELTA)


@pytest.mark.parametrize(
    ("field", "values"),
    [("share", [0.01, 0.05, 0.2, 0.8, 1.0]), ("trees", [1, 2, 5, 13]), ("sigma", [100.0, 30.0, 10.0, 5.0])],
)
def test_monotone_in_the_step(name: str, event: EventMaker, field: str, values: list[float]) -> None:
    epsilons = [priced(name, (event(**{field: value}), 50)).epsilon(DELTA) for value in values]
    assert all(low < high for low, high in itertools.pairwise(epsilons)), epsilons


def test_monotone_in_steps_and_delta(name: str, event: EventMaker) -> None:
    by_steps = [priced(name, (event(), steps)).epsilon(DELTA) for steps in (1, 2, 10, 100, 1000, 10_000)]
    assert by_steps == sorted(by_steps)
    assert by_steps[0] < by_steps[-1]
    accountant = priced(name, (event(), 100))
    by_delta = [accountant.epsilon(delta) for delta in (1e-10, 1e-8, 1e-6, 1e-3)]
    assert by_delta == sorted(by_delta, reverse=True)
    by_epsilon = [accountant.delta(epsilon) for epsilon in (0.1, 1.0, 2.0, 4.0, 8.0)]
    assert by_epsilon == sorted(by_epsilon, reverse=True)


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0])
def test_epsilon_and_delta_are_inverse(name: str, event: EventMaker, epsilon: float) -> None:
    accountant = priced(name, (event(), 100))
    assert accountant.epsilon(accountant.delta(epsilon)) == pytest.approx(epsilon, rel=1e-3)


def test_without_noise_nothing_is_private(name: str, event: EventMaker) -> None:
    accountant = priced(name, (event(), 10), (event(sigma=0.0), 1))
    assert accountant.epsilon(DELTA) == math.inf
    assert accountant.delta(100.0) == 1.0


def test_ends_of_the_scale(name: str, event: EventMaker) -> None:
    accountant = priced(name, (event(), 10))
    assert accountant.epsilon(0.0) == math.inf
    assert accountant.epsilon(1.0) == 0.0
    assert accountant.delta(math.inf) == 0.0


def test_refuses_the_other_draw_and_adds_nothing(name: str) -> None:
    accountant = make_accountant(name)
    other = {"pair": fixed_size, "paper": poisson}[name]()
    assert not accountant.supports(other)
    with pytest.raises(PlanError, match="use accountant=") as refusal:
        accountant.compose(other)
    assert type(other.draw).__name__ in str(refusal.value)
    assert "\n" not in str(refusal.value)
    assert accountant.steps == 0


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"trees": 0}, r"changed_trees=0: expected 1 or more"),
        ({"sigma": -1.0}, r"sigma_over_clip=-1.0: expected a finite number"),
        ({"sigma": math.nan}, r"sigma_over_clip=nan: expected"),
        ({"sigma": math.inf}, r"sigma_over_clip=inf: expected"),
        ({"gone": -1}, r"gone=-1: expected 0 to changed_trees=3"),
        ({"gone": 4}, r"gone=4: expected 0 to changed_trees=3"),
        ({"share": 0.0}, r"(rate=0.0|size=0): expected"),
        ({"share": 1.5}, r"(rate=1.5|size=1500): expected"),
    ],
)
def test_refuses_meaningless_numbers(
    name: str, event: EventMaker, wrong: dict[str, float], message: str
) -> None:
    with pytest.raises(PlanError, match=message):
        make_accountant(name).compose(event(**wrong))


def test_refuses_meaningless_questions(name: str, event: EventMaker) -> None:
    accountant = priced(name, (event(), 1))
    with pytest.raises(PlanError, match=r"count=-1: expected 0 or more"):
        accountant.compose(event(), -1)
    for delta in (-0.1, 1.1, math.nan):
        with pytest.raises(PlanError, match="expected a probability"):
            accountant.epsilon(delta)
    for epsilon in (-1.0, math.nan):
        with pytest.raises(PlanError, match="expected 0 or more"):
            accountant.delta(epsilon)


@pytest.mark.parametrize("shift", [-1.0, math.nan])
def test_refuses_meaningless_shifts(name: str, shift: float) -> None:
    with pytest.raises(PlanError, match=r"shift_over_sigma=.*: expected 0 or more"):
        make_accountant(name).compose(GaussianEvent(shift_over_sigma=shift))


@pytest.mark.parametrize("steps", [1, 10, 1000, 10_000])
@pytest.mark.parametrize("share", [0.001, 0.1, 0.999])
def test_doubled_precision_changes_little(name: str, event: EventMaker, steps: int, share: float) -> None:
    usual, doubled = {
        "pair": (PairAccountant(), PairAccountant(precision=2.0)),
        "paper": (RenyiAccountant(), RenyiAccountant(points=240)),
    }[name]
    for accountant in (usual, doubled):
        accountant.compose(event(share=share, trees=2, sigma=4.0), steps)
    epsilon = usual.epsilon(DELTA)
    assert epsilon == pytest.approx(doubled.epsilon(DELTA), rel=5e-3)


def test_the_paper_prices_no_gaussian_release() -> None:
    accountant = make_accountant("paper")
    with pytest.raises(PlanError, match=r"event=GaussianEvent: the 'paper' accountant .* use accountant="):
        accountant.compose(GaussianEvent(shift_over_sigma=1.0))
    assert accountant.steps == 0


def test_unknown_accountant() -> None:
    with pytest.raises(PlanError, match="accountant='moments': expected 'pair' or 'paper'"):
        make_accountant("moments")  # type: ignore[arg-type]


def test_imports_are_light() -> None:
    code = (
        "import sys\n"
        "import hushgraph.accounting.events\n"
        "print([m for m in ('dp_accounting', 'scipy', 'numpy', 'torch') if m in sys.modules])\n"
        "from hushgraph.accounting.accountants import make_accountant\n"
        "make_accountant('pair'), make_accountant('paper')\n"
        "print('torch' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["[]", "False"]
