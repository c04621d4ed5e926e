"""Promise: no epsilon is ever shown smaller than it is, and nothing unproven is called a guarantee."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hushgraph._text import digits_up, rounded_up
from hushgraph.errors import PlanError
from hushgraph.privacy.fields import CHOICES
from hushgraph.privacy.plans import PrivacyPlan
from plan_words import sentence, statement
from plans import make_plan

BASE: dict[str, Any] = {
    "num_train_nodes": 500,
    "num_layers": 1,
    "max_readers": 2,
    "batch_size": 50,
    "steps": 10,
    "paper_noise_multiplier": 1.0,
}


@settings(max_examples=500, deadline=None)
@given(st.floats(min_value=0.0, max_value=1e12, allow_subnormal=False), st.integers(0, 4))
def test_shown_figures_are_never_smaller(value: float, decimals: int) -> None:
    for text in (rounded_up(value, decimals=decimals), digits_up(value, digits=decimals + 1)):
        assert value <= float(text)
    assert float(rounded_up(value)) <= value + max(0.01, 0.01 * value) + 1e-300
    assert float(digits_up(value)) <= value * (1 + 1e-4)


@pytest.mark.parametrize("accountant", ["pair", "paper"])
@pytest.mark.parametrize("epsilon", [0.3, 2.0, 20.0])
@pytest.mark.parametrize("K", [0, 3])
def test_a_calibrated_plan_stays_within_its_target(accountant: str, epsilon: float, K: int) -> None:
    plan = make_plan(**{**BASE, "max_readers": K, "accountant": accountant}).calibrated(epsilon=epsilon)
    assert plan.epsilon <= epsilon
    fresh = PrivacyPlan.from_json(plan.to_json())
    assert fresh.epsilon <= epsilon
    assert float(rounded_up(fresh.epsilon)) >= fresh.epsilon


@pytest.mark.parametrize("noise", [0, 0.0])
@pytest.mark.parametrize("steps", [0, 10])
def test_not_private_is_infinite(noise: float, steps: int) -> None:
    plan = make_plan(**{**BASE, "paper_noise_multiplier": noise, "steps": steps})
    assert plan.epsilon == plan.epsilon_group_of_two == math.inf
    assert plan.guarantee == "none"
    assert plan.summary()["epsilon"] == "inf"
    assert sentence(plan).startswith("Nothing is guaranteed")


@pytest.mark.parametrize("accountant", ["pair", "paper"])
def test_more_exposure_never_costs_less(accountant: str) -> None:
    plan = make_plan(**BASE, accountant=accountant)
    sigma = plan.sigma_over_clip
    worse: list[dict[str, Any]] = [
        {"steps": 11},
        {"batch_size": 60},
        {"sigma_over_clip": 0.9 * sigma},
        {"delta": plan.delta / 2},
        {"max_readers": 3},
        {"edge_owner": "reader", "max_reads": 1},
    ]
    for change in worse:
        other = replace(plan, **change)
        assert other.sigma_over_clip <= sigma * (1 + 1e-12)
        assert other.epsilon > plan.epsilon, change
    assert plan.epsilon_group_of_two > plan.epsilon


@pytest.mark.parametrize("accountant", ["pair", "paper"])
@pytest.mark.parametrize("K", [0, 3])
def test_less_noise_never_costs_less_down_to_almost_none(accountant: str, K: int) -> None:
    plan = make_plan(**{**BASE, "max_readers": K, "accountant": accountant})

    def spent(noise: float) -> float:
        try:
            return plan.with_paper_noise(noise).epsilon
        except PlanError as refusal:
            if "cannot be priced" not in str(refusal):
                raise
            return math.inf

    figures = [spent(noise) for noise in (10.0, 1.0, 0.3, 0.1, 0.05, 0.02, 0.01, 1e-3, 1e-4)]
    finite = [figure for figure in figures if math.isfinite(figure)]
    assert len(finite) >= 4
    assert figures == sorted(figures)
    assert len(set(finite)) == len(finite)


def test_a_group_of_two_is_never_cheaper_even_when_every_tree_may_change() -> None:
    for nodes, K in ((50, 60), (50, 30), (50, 49), (1, 0), (2, 0)):
        plan = make_plan(
            num_train_nodes=nodes,
            num_layers=1,
            max_readers=K,
            batch_size=1,
            steps=2,
            paper_noise_multiplier=2.0,
            delta=1e-3,
        )
        assert plan.changed_trees <= nodes + 1
        assert plan.epsilon_group_of_two >= plan.epsilon


def test_only_what_is_proven_is_called_a_guarantee() -> None:
    names = ("edge_owner", "sampler", "accountant", "batches", "clipping", "noise")
    built = 0
    for values in itertools.product(*(CHOICES[name] for name in names)):
        choice = dict(zip(names, values, strict=True))
        bounded = {"max_reads": 2} if choice["sampler"] == "stable" else {}
        fits = (choice["accountant"] == "pair") == (choice["batches"] == "poisson")
        if not fits:
            with pytest.raises(PlanError, match="batches"):
                make_plan(**{**BASE, **choice, **bounded})
            continue
        plan = make_plan(**{**BASE, **choice, **bounded})
        built += 1
        proven = (
            not (choice["sampler"] == "paper" and choice["edge_owner"] == "reader")
            and choice["clipping"] != "percentile"
            and choice["noise"] == "common"
        )
        assert plan.guarantee == ("holds" if proven else "claimed by the paper")
        assert ("this is not a guarantee" in statement(plan)) == (not proven)
        assert ("differentially private" in statement(plan)) == proven
    assert built == 2 * 2 * 2 * 4 * 2
