"""Promise: no price of sampled steps is below what a second method computes from the contract's formulas.

The second method is `contour_price`, which shares nothing with the package and nothing with `dp_accounting`.
What moves by how much is written out here too.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import hushgraph as hg
from contour_price import Release, divergences
from hushgraph.accounting import accountants, pair_losses
from hushgraph.accounting.events import Event, GaussianEvent, PoissonDraw, StepEvent
from hushgraph.privacy.charges import Steps
from hushgraph.privacy.plans import BillboardPlan, PrivacyPlan
from plans import plan_steps

FIGURES = ("epsilon", "epsilon_group_of_two", "epsilon_edge", "epsilon_label")
RECORD = Path(__file__).parent.parent / "data" / "golden.json"
GOLDEN = [PrivacyPlan.from_json(json.dumps(one["plan"])) for one in json.loads(RECORD.read_text())["plans"]]
SAMPLED = [plan for plan in GOLDEN if plan.sampling_rate < 1 and plan.accountant == "pair"]
# The grid of losses may cost this much.
EXCESS = 1e-3


def board(**others: Any) -> BillboardPlan:
    fields = {"num_train_nodes": 2000, "batch_size": 200, "num_classes": 3, "num_boards": 1, "steps": 60}
    return BillboardPlan(**fields | others).calibrated(epsilon=2.0)


def trees(**others: Any) -> PrivacyPlan:
    fields = {"num_train_nodes": 2000, "batch_size": 200, "num_layers": 1, "max_readers": 3, "steps": 60}
    return plan_steps(**fields | others).calibrated(epsilon=2.0)


def list_releases(plan: PrivacyPlan, figure: str) -> list[Release]:
    """What a figure composes, by the formulas of the contract."""
    if isinstance(plan, BillboardPlan):
        label = math.sqrt(2 * plan.num_classes / (plan.num_classes - 1))
        # How far the first and the second board move, and the examples drawn on either side.
        first, second, upper, lower = {
            "epsilon": (1.0, 1.0, 1, 0),
            "epsilon_group_of_two": (2.0, 2.0, 2, 0),
            "epsilon_edge": (math.sqrt(2), 4.0, 2, 2),
            "epsilon_label": (label, label, 1, 1),
        }[figure]
        boards = [
            Release(upper=1, lower=0, rate=1.0, sigma=noise / move)
            for noise, move in zip(plan.board_noise, (first, second), strict=False)
        ]
    else:
        n = sum(plan.max_readers**level for level in range(plan.num_layers + 1))
        beside = sum(plan.max_readers**level for level in range(plan.num_layers))
        of_an_edge = 4 * beside
        if plan.edge_owner == "reader":
            assert plan.max_reads is not None
            n, of_an_edge = n + plan.max_reads * beside, 6 * beside
        upper, lower = {
            "epsilon": (n, n - 1),
            "epsilon_group_of_two": (2 * n, 2 * n - 1),
            "epsilon_edge": (of_an_edge, of_an_edge),
            "epsilon_label": (1, 1),
        }[figure]
        boards = []
    rate = plan.batch_size / plan.num_train_nodes
    steps = Release(upper=upper, lower=lower, rate=rate, sigma=plan.sigma_over_clip, count=plan.steps)
    return [*boards, steps]


def find_flattered(plan: PrivacyPlan) -> list[str]:
    """The figures of a plan that are below what the second method computes."""
    return [name for name in FIGURES if compare(plan, name)[0] > plan.delta]


def compare(plan: PrivacyPlan, figure: str) -> list[float]:
    """Delta by the second method at a figure, and at a little less."""
    epsilon = getattr(plan, figure)
    return divergences(list_releases(plan, figure), [epsilon, epsilon / (1 + EXCESS)])


@pytest.mark.parametrize("figure", FIGURES)
@pytest.mark.parametrize("place", range(len(SAMPLED)))
def test_kept_prices_are_those_of_the_second_method(place: int, figure: str) -> None:
    plan = SAMPLED[place]
    here, below = compare(plan, figure)
    assert here <= plan.delta < below


def test_runs_of_several_kinds_together_are_priced_from_above() -> None:
    """A board, steps that `dp_accounting` has an event for, and steps that it has none for."""
    draw = PoissonDraw(rate=0.1)
    charges: list[tuple[Event, int]] = [
        (GaussianEvent(shift_over_sigma=0.4), 1),
        (StepEvent(draw=draw, changed_trees=1, sigma_over_clip=4.0), 200),
        (StepEvent(draw=draw, changed_trees=8, sigma_over_clip=60.0), 100),
    ]
    epsilon = accountants.price(charges, delta=1e-6, accountant="pair")
    releases = [
        Release(upper=1, lower=0, rate=1.0, sigma=1 / 0.4),
        Release(upper=1, lower=0, rate=0.1, sigma=4.0, count=200),
        Release(upper=8, lower=7, rate=0.1, sigma=60.0, count=100),
    ]
    here, below = divergences(releases, [epsilon, epsilon / (1 + EXCESS)])
    assert here <= 1e-6 < below


def count_noise_too_often(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with sigma counted 1.3 times in the step or the training that it is given first."""

    def wrong(given: Any, *others: Any) -> Any:
        if isinstance(given, (StepEvent, Steps)):
            given = replace(given, sigma_over_clip=1.3 * given.sigma_over_clip)
        return function(given, *others)

    return wrong


def forget_prices() -> None:
    """A fault must not be hidden by a price kept from before, nor leave one behind."""
    accountants._price.cache_clear()


@pytest.fixture
def plant(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """A function that counts the noise 1.3 times in a function of a module."""

    def plant(home: ModuleType | type[Steps], name: str) -> None:
        monkeypatch.setattr(home, name, count_noise_too_often(getattr(home, name)))
        forget_prices()

    yield plant
    forget_prices()


@pytest.mark.parametrize(
    ("home", "name", "of_boards", "of_trees"),
    [
        (pair_losses, "own_event", ["epsilon"], []),
        (pair_losses, "build_losses", ["epsilon_group_of_two", "epsilon_edge", "epsilon_label"], FIGURES),
        (Steps, "event", FIGURES, FIGURES),
    ],
)
def test_noise_counted_too_often_is_seen(
    home: ModuleType | type[Steps],
    name: str,
    of_boards: list[str],
    of_trees: list[str],
    plant: Callable[..., None],
) -> None:
    """Wherever a step becomes what `dp_accounting` composes; each place serves other figures."""
    assert find_flattered(board()) == find_flattered(trees()) == []
    plant(home, name)
    assert find_flattered(board()) == list(of_boards)
    assert find_flattered(trees()) == list(of_trees)


@pytest.mark.parametrize("method", [{"method": "billboard"}, {"method": "trees", "max_readers": 2}])
def test_a_run_with_noise_counted_too_often_is_seen(
    method: dict[str, Any], plant: Callable[..., None]
) -> None:
    data = hg.datasets.synthetic(num_nodes=300, num_classes=3, seed=1)
    settings = {"epsilon": 2.0, "batch_size": 30, "steps": 20, "hidden": 4, "device": "cpu"} | method
    assert find_flattered(hg.train(data, **settings).plan) == []
    plant(pair_losses, "own_event")
    plant(pair_losses, "build_losses")
    run = hg.train(data, **settings)
    assert run.epsilon <= 2.0
    assert find_flattered(run.plan) == list(FIGURES)
