"""The second opinion: it agrees with prices that are right, and refuses those that flatter."""

from __future__ import annotations

import pytest

import hushgraph as hg
from hushgraph.accounting.accountants import gaussian_epsilon, price
from hushgraph.accounting.events import Event, GaussianEvent, PoissonDraw, StepEvent
from hushgraph.accounting.second_opinion import confirm_price
from hushgraph.errors import PlanError

STEP = StepEvent(draw=PoissonDraw(rate=0.1), changed_trees=3, gone=1, sigma_over_clip=4.0)
CHARGES: dict[str, tuple[tuple[Event, int], ...]] = {
    "steps": ((STEP, 200),),
    "board and steps": ((GaussianEvent(shift_over_sigma=0.3), 1), (STEP, 50)),
}


@pytest.mark.parametrize("name", CHARGES)
def test_right_prices_are_confirmed_and_flattering_ones_refused(name: str) -> None:
    epsilon = price(CHARGES[name], delta=1e-6, accountant="pair")
    confirm_price(CHARGES[name], delta=1e-6, epsilon=epsilon)
    with pytest.raises(PlanError, match="dp_accounting computes delta"):
        confirm_price(CHARGES[name], delta=1e-6, epsilon=0.999 * epsilon)


def test_prices_that_need_no_grid_are_not_asked_about() -> None:
    every = StepEvent(draw=PoissonDraw(rate=0.999), changed_trees=1, sigma_over_clip=40.0)
    ceiling = gaussian_epsilon(1 / 40, 1e-6)
    confirm_price([(every, 1)], delta=1e-6, epsilon=ceiling)


@pytest.mark.parametrize("method", ["billboard", "trees"])
def test_training_on_sampled_batches_asks_for_it(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[float] = []

    def refuse(charges: object, *, delta: float, epsilon: float) -> None:
        asked.append(epsilon)
        raise PlanError("a flattering price")

    monkeypatch.setattr("hushgraph.accounting.second_opinion.confirm_price", refuse)
    data = hg.datasets.synthetic(num_nodes=300, num_classes=3, seed=1)
    settings = {"steps": 5, "hidden": 8, "device": "cpu", "method": method}
    with pytest.raises(PlanError, match="a flattering price"):
        hg.train(data, epsilon=4.0, batch_size=50, **settings)  # type: ignore[arg-type]
    assert 0 < asked[0] <= 4.0
    assert hg.train(data, epsilon=4.0, **settings).epsilon <= 4.0  # type: ignore[arg-type]
