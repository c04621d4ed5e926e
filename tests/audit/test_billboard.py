"""Attacks on boards: they see what the code releases, attain the shift that is priced, and stay below it."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from hushgraph.audit import words
from hushgraph.audit.attack import audit_plan
from hushgraph.audit.billboard import attack_board, audit_billboard
from hushgraph.audit.board_scene import NUM_CLASSES, Difference, move_billboard, plant_row, repeat_graph
from hushgraph.audit.board_trials import BoardTrials, run_boards
from hushgraph.audit.collaborators import BoardCollaborators
from hushgraph.audit.curve import total_shift
from hushgraph.audit.row_weights import new_row_model, point_at_features
from hushgraph.audit.trials import make_clipping
from hushgraph.audit.weights import use
from hushgraph.billboard.ballots import label_ballots
from hushgraph.billboard.board import cast
from hushgraph.errors import InputError, PlanError
from hushgraph.gradients.batch import RowTable
from hushgraph.gradients.rows import RowSums
from hushgraph.privacy.plans import BillboardPlan
from hushgraph.tasks.classes import Classes


def plan(epsilon: float = 4.0, **changes: Any) -> BillboardPlan:
    usual = {"num_train_nodes": 1000, "batch_size": 1000, "steps": 2, "delta": 1e-5}
    return BillboardPlan(**{**usual, **changes}).calibrated(epsilon=epsilon)


def board_trials(given: BillboardPlan, *, copies: int, **scene: Any) -> BoardTrials:
    made = plant_row(given, **{"degree": 4, **scene})
    return BoardTrials(
        plan=move_billboard(given, made), scene=made, boards=BoardCollaborators(), copies=copies
    )


@pytest.mark.parametrize("owner", ["sender", "reader"])
@pytest.mark.parametrize(
    ("difference", "shifts"),
    [("emptied", (1.0, 1.0)), ("flipped", (math.sqrt(3), math.sqrt(3))), ("unlabelled", (0.0, 1.0))],
)
def test_boards_move_by_what_is_priced(
    owner: str, difference: Difference, shifts: tuple[float, float]
) -> None:
    for degree in (1, 4, 1000):
        trials = board_trials(plan(edge_owner=owner), copies=2, degree=degree, difference=difference)
        seen = run_boards(trials, 0, trials.boards)
        # In whole units of the grid, rounded towards zero.
        assert seen.shifts == pytest.approx(shifts, abs=1e-4)
        assert all(shift <= most for shift, most in zip(seen.shifts, shifts, strict=True))
        assert seen.changed == 0


def test_copies_side_by_side_get_what_each_gets_alone() -> None:
    graph = plant_row(plan(), degree=3).graphs[0]
    alone = cast(graph, label_ballots(graph, "sender", task=Classes(num_classes=NUM_CLASSES)))
    stack = repeat_graph(graph, 4)
    beside = cast(stack, label_ballots(stack, "sender", task=Classes(num_classes=NUM_CLASSES)))
    assert np.array_equal(beside, np.tile(alone, (4, 1)))


@pytest.mark.parametrize("world", [0, 1])
def test_log_ratios_are_those_of_two_gaussians(world: int) -> None:
    """mean +-mu^2 / 2 and variance mu^2, for each board; boards have noise of their own."""
    given = plan(epsilon=10.0)
    trials = board_trials(given, copies=4000)
    seen = run_boards(trials, world, trials.boards).log_ratios
    mu = 1 / np.array(given.board_noise)
    assert seen.mean(0) == pytest.approx((mu**2 / 2) * (1 - 2 * world), abs=0.08)
    assert seen.std(0) == pytest.approx(mu, rel=0.06)
    assert abs(np.corrcoef(seen.T)[0, 1]) < 0.08


def test_readings_do_not_turn_the_gradient_of_the_canary() -> None:
    """The shortcut of the quick attack: any readings within the public radius give the same clipped sum."""
    made = plant_row(plan(), degree=4)
    graph = made.graphs[0]
    given = move_billboard(plan(), made)
    model = new_row_model()
    use(model, point_at_features()[0])
    rng = np.random.default_rng(0)
    sums = []
    for readings in (np.zeros((graph.num_nodes, NUM_CLASSES)), rng.normal(size=(graph.num_nodes, 3)) * 3):
        table = RowTable(graph, readings.astype(np.float32), "cpu", feature_norm=0.0)
        parts = RowSums()(model, table.take(np.array([made.canary])), make_clipping(given))
        sums.append(torch.cat([part.flatten() for part in parts.values()]))
    assert float(sums[0].norm()) == pytest.approx(given.clip, rel=1e-6)
    assert float((sums[0] - sums[1]).norm()) < 1e-6 * given.clip


def test_a_clean_audit_stays_below_all_its_claims() -> None:
    audit = audit_billboard(plan(), trials=6000, fresh_runs=20, numbers=False)
    assert not audit.exceeds
    assert audit.others_changed == 0
    assert audit.claimed == pytest.approx(4.0, rel=1e-6)
    assert 0.75 * audit.claimed < audit.lower_bound < audit.claimed
    assert audit.shift == pytest.approx(audit.shift_at_most, rel=1e-5)
    assert audit.shift <= audit.shift_at_most
    names = [attack.name for attack in audit.attacks]
    assert len(names) == len(set(names)) == 7
    for attack in audit.attacks:
        assert attack.lower_bound < attack.claimed
    assert audit.record()["attacked"] == "2 boards and 2 steps"
    assert audit.record()["guarantee"] == "holds"
    shown = dict(words.rows(audit))
    assert shown["one label flipped"].endswith("8.38 claimed")
    assert "95% confidence" in words.verdict(audit)


def test_claims_are_those_of_the_plan() -> None:
    given = plan(num_classes=NUM_CLASSES)
    audit = audit_plan(given, trials=20, numbers=False, seed=1)
    claims = {attack.name: attack.claimed for attack in audit.attacks}
    assert audit.claimed == given.epsilon
    assert claims["one label flipped"] == given.epsilon_label
    assert claims["row of the validation split"] == given.epsilon_evaluated
    assert claims["other people's predictions"] == given.epsilon


def test_a_row_without_a_label_shows_nothing_on_one_board() -> None:
    audit = audit_billboard(plan(num_boards=1), trials=2000, fresh_runs=0, numbers=False)
    row = next(attack for attack in audit.attacks if "validation" in attack.name)
    assert (row.claimed, row.lower_bound) == (0.0, 0.0)
    assert not audit.exceeds


@pytest.mark.parametrize("degree", [1, 1000])
def test_a_board_alone_shows_most_of_its_own_claim(degree: int) -> None:
    given = plan(epsilon=10.0, num_boards=1, board_share=0.9999)
    attack = attack_board(given, degree=degree, trials=6000 if degree == 1000 else 40_000)
    assert 0.85 * attack.claimed < attack.lower_bound < attack.claimed
    assert attack.claimed == pytest.approx(10.0, rel=1e-3)


def test_batches_that_are_drawn() -> None:
    audit = audit_billboard(plan(10.0, batch_size=500), trials=600, fresh_runs=0, numbers=False)
    assert audit.by_curve is not None
    assert audit.by_curve.family == "pair"
    assert audit.plan.sampling_rate == pytest.approx(0.5, rel=0.005)
    assert 0.2 * audit.claimed < audit.lower_bound < audit.claimed


def test_the_shift_of_all_charges() -> None:
    given = plan()
    mu = [1 / given.board_noise[0], 1 / given.board_noise[1], math.sqrt(2) / given.sigma_over_clip]
    assert total_shift(given.charges) == pytest.approx(math.hypot(*mu))


def test_what_cannot_be_audited_is_refused() -> None:
    with pytest.raises(InputError, match="trials=3"):
        audit_billboard(plan(), trials=3)
    with pytest.raises(InputError, match="fresh_runs=3"):
        audit_billboard(plan(), fresh_runs=3)
    with pytest.raises(PlanError, match="nothing to audit"):
        audit_billboard(replace(plan(), sigma_over_clip=0.0, board_noise=()))
    with pytest.raises(InputError, match="expected one of half-noise"):
        audit_billboard(plan(), fault="no-noise")
