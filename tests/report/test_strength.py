"""Mu, the trade-off curve and replaced rows, compared with the accountants."""

from __future__ import annotations

import math
import re
from itertools import pairwise
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from hushgraph.accounting.accountants import gaussian_delta, gaussian_epsilon
from hushgraph.privacy.changes import rows_emptied
from hushgraph.privacy.charges import epsilon
from hushgraph.privacy.guarantee import Guarantee
from hushgraph.privacy.plans import BillboardPlan, PrivacyPlan, TreePlan
from hushgraph.report.pages import render_template
from hushgraph.report.strength import (
    describe_replacement,
    describe_strength,
    draw_tradeoff,
)

COMMON: dict[str, Any] = {"num_train_nodes": 1000, "steps": 20}


def strength_of(plan: PrivacyPlan) -> dict[str, Any]:
    strength = describe_strength(Guarantee.of(plan))
    assert strength is not None
    return strength


def facts_of(plan: PrivacyPlan) -> dict[str, Any]:
    return {
        "strength": strength_of(plan),
        "guarantee": {"epsilon": Guarantee.of(plan).epsilon, "delta": plan.delta},
    }


def words_of(plan: PrivacyPlan) -> str:
    facts = facts_of(plan)
    return render_template("strength.html", facts=facts, tradeoff=draw_tradeoff(facts))


@pytest.mark.parametrize("boards", [1, 2])
@pytest.mark.parametrize("target", [0.5, 4.0])
def test_full_batches_are_one_gaussian_with_the_same_price(boards: int, target: float) -> None:
    plan = BillboardPlan(batch_size=1000, num_boards=boards, **COMMON).calibrated(epsilon=target)
    strength = strength_of(plan)
    assert strength["is_exact"]
    assert gaussian_epsilon(strength["mu"], plan.delta) == pytest.approx(plan.epsilon, rel=1e-9)
    # Two rows emptied together move everything twice as far, as one replaced row does.
    assert strength["replacement"]["epsilon"] == pytest.approx(plan.epsilon_group_of_two, rel=1e-9)
    assert strength["replacement"]["delta"] == plan.delta
    assert 0.5 < strength["best_guess"] < Guarantee.of(plan).best_guess
    assert "The Gaussian that fits" not in words_of(plan)


def test_full_batches_of_trees_count_every_changed_tree() -> None:
    plan = TreePlan(num_layers=1, max_readers=3, batch_size=1000, **COMMON).calibrated(epsilon=4.0)
    strength = strength_of(plan)
    assert strength["mu"] == pytest.approx(math.sqrt(20) * (2 * 4 - 1) / plan.sigma_over_clip)
    # Of 4 trees before and 4 after one is the same: 7 trees move by at most 2 C each.
    moved = math.sqrt(20) * 2 * 7 / plan.sigma_over_clip
    assert strength["replacement"]["epsilon"] == pytest.approx(gaussian_epsilon(moved, plan.delta))
    assert strength["replacement"]["epsilon"] <= plan.epsilon_group_of_two


def test_sampled_steps_have_a_gaussian_that_fits_and_is_called_that() -> None:
    plan = BillboardPlan(batch_size=100, **COMMON).calibrated(epsilon=4.0)
    strength = strength_of(plan)
    assert not strength["is_exact"]
    assert gaussian_delta(strength["mu"], plan.epsilon) == pytest.approx(plan.delta, rel=1e-6)
    assert "<p>The Gaussian that fits at this delta has mu = " in words_of(plan)
    assert strength["best_guess"] == Guarantee.of(plan).best_guess


@pytest.mark.parametrize("batch_size", [50, 400, 1000])
def test_a_replaced_row_costs_more_than_a_label_and_at_most_two_steps(batch_size: int) -> None:
    plan = BillboardPlan(batch_size=batch_size, **COMMON).calibrated(epsilon=2.0)
    cost = strength_of(plan)["replacement"]
    # Another label is one way to replace a row.
    assert cost["delta"] == plan.delta
    assert plan.epsilon <= plan.epsilon_label <= cost["epsilon"]
    # Two steps between neighbours: P(A) <= e^eps (e^eps Q(A) + delta') + delta', for every eps and delta'.
    smaller = plan.delta / (1 + math.exp(3.0))
    twice = 2 * epsilon(plan.charges, rows_emptied(), delta=smaller)
    assert twice <= 2 * 3.0
    assert cost["epsilon"] <= twice


def test_a_replaced_row_moves_one_noisy_number_from_one_side_to_the_other() -> None:
    # One board alone: N(1, s^2) against N(-1, s^2), by counting the cells of a fine grid.
    noise: dict[str, Any] = {"num_boards": 1, "board_noise": (2.0,), "sigma_over_clip": 1.0}
    board = BillboardPlan(batch_size=1000, num_train_nodes=1000, steps=0, **noise)
    cost = strength_of(board)["replacement"]["epsilon"]
    cells = np.linspace(-30.0, 30.0, 600_001)
    present, other = (np.exp(-0.5 * ((cells - move) / 2.0) ** 2) for move in (1.0, -1.0))
    present, other = present / present.sum(), other / other.sum()
    assert np.maximum(present - math.exp(cost) * other, 0).sum() == pytest.approx(board.delta, rel=1e-3)


def test_fixed_batches_are_two_steps_between_neighbours() -> None:
    fixed: dict[str, Any] = {"num_layers": 1, "max_readers": 2, "accountant": "paper", "batch_size": 100}
    plan = TreePlan(**fixed, **COMMON).calibrated(epsilon=4.0)
    strength = strength_of(plan)
    assert strength["replacement"] == {
        "epsilon": 2 * plan.epsilon,
        "delta": pytest.approx(plan.delta * (1 + math.exp(plan.epsilon))),
    }
    large = strength_of(TreePlan(**fixed, **COMMON).calibrated(epsilon=30.0))
    assert large["replacement"] is None
    assert "give no bound here" in describe_replacement(large)
    assert "counts twice" in describe_replacement(large)


def test_without_a_guarantee_there_is_no_strength() -> None:
    plan = BillboardPlan(batch_size=1000, **COMMON).calibrated(epsilon=4.0)
    assert describe_strength(Guarantee.of(plan, seed_is_fixed=True)) is None
    assert draw_tradeoff({"strength": None, "guarantee": {}}) is None


@pytest.mark.parametrize("batch_size", [1000, 100])
def test_the_picture_shows_the_curve_and_a_blind_guess(batch_size: int) -> None:
    plan = BillboardPlan(batch_size=batch_size, **COMMON).calibrated(epsilon=2.0)
    svg = re.search("<svg.*</svg>", words_of(plan), re.DOTALL)
    assert svg is not None
    root = ElementTree.fromstring(svg[0])
    reference, curve = root.findall("polyline")
    assert (reference.attrib["class"], curve.attrib["class"]) == ("limit", "line")
    ends, points = (
        [tuple(map(float, pair.split(","))) for pair in line.attrib["points"].split()]
        for line in (reference, curve)
    )
    (left, top), (right, bottom) = ends
    # It never rises, lies below the blind guess, and stays the same when the axes are exchanged.
    shares = [((x - left) / (right - left), (bottom - y) / (bottom - top)) for x, y in points]
    assert all(second[1] <= first[1] for first, second in pairwise(shares))
    assert all(beta <= 1 - alpha + 1e-3 for alpha, beta in shares)
    assert min(alpha + beta for alpha, beta in shares) < 0.95
    alphas, betas = (np.array(values) for values in zip(*shares, strict=True))
    assert np.allclose(np.interp(betas, alphas, betas), alphas, atol=0.01)
    assert len(root.findall("circle")) == 0
    assert "with 5% false positives it misses at least" in words_of(plan)


def test_the_example_in_the_caption_is_rounded_down() -> None:
    plan = BillboardPlan(batch_size=100, **COMMON).calibrated(epsilon=1.0)
    bound = 1 - plan.delta - 0.05 * math.exp(plan.epsilon)
    assert f"at least {math.floor(1000 * bound) / 10:g}% of the rows" in words_of(plan)
