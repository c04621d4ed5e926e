"""Persons under attack: canaries with three nodes each, at claims of 1 and 4, in plans of two steps."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hushgraph.accounting.accountants import gaussian_shift
from hushgraph.audit.attack import Effort, attack_board, attack_evaluated, stage_boards
from hushgraph.audit.runs import plant_nothing
from hushgraph.billboard.ballots import Ballots
from hushgraph.graph.graph import EdgeOwner, Graph
from hushgraph.privacy.plans import BillboardPlan
from hushgraph.tasks.task import Task
from hushgraph.training.parts import Parts

TRIALS = 2_000


def plan(claim: float) -> BillboardPlan:
    bare = BillboardPlan(
        num_train_nodes=100,
        num_classes=3,
        batch_size=100,
        steps=2,
        num_boards=1,
        protects="person",
        delta=1e-5,
    )
    return bare.calibrated(epsilon=claim).with_evaluation(2)


@pytest.mark.parametrize("claim", [1.0, 4.0])
def test_the_best_attack_on_a_person_reaches_the_claim_and_no_more(claim: float) -> None:
    effort = Effort(trials=TRIALS, rng=np.random.default_rng(1))
    stage = stage_boards(plan(claim), plant_nothing, effort.copies(2_000))
    assert stage.scene.has_persons
    assert stage.plan.protects == "person"
    shown = effort.spend(stage)
    there, empty = shown.pair(0)
    # All is Gaussian: the log-likelihood ratio has a difference of means of mu^2, and a deviation of mu.
    mu = (there.mean() - empty.mean()) / np.sqrt((there.var() + empty.var()) / 2)
    claimed, error = gaussian_shift(claim, 1e-5), np.sqrt(2 / TRIALS)
    assert claimed - 3 * error < mu < claimed + 3 * error
    # So many trials that half of the claim would be told from it.
    assert claimed / 2 > 3 * error
    assert shown.changed == 0


def cast_one_by_one(real: Parts) -> Parts:
    """Every node of a person casts a whole ballot."""

    def label_ballots(graph: Graph, edge_owner: EdgeOwner, *, task: Task) -> Ballots:
        return real.label_ballots(replace(graph, persons=None), edge_owner, task=task)

    return replace(real, label_ballots=label_ballots)


@pytest.mark.parametrize("claim", [1.0, 4.0])
def test_nodes_counted_one_by_one_are_caught(claim: float) -> None:
    common: dict[str, Any] = {"degree": 4, "effort": Effort(trials=1_000, rng=np.random.default_rng(2))}
    broken = attack_board(plan(claim), **common, plant=cast_one_by_one)
    assert broken.by_curve.epsilon > broken.claimed
    assert not attack_board(plan(claim), **common, plant=plant_nothing).exceeds


def test_an_evaluated_person_stays_below_the_claim() -> None:
    both = attack_evaluated(plan(4.0), effort=Effort(trials=2_000), plant=plant_nothing)
    assert [attack.name for attack in both] == ["row of the validation split", "tables of figures"]
    assert not any(attack.exceeds for attack in both)
    assert both[0].by_curve.epsilon > 0.5 * both[0].claimed
