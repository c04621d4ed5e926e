"""`audit_training`: the whole of `hushgraph.train`, with its ledger and its folder, once a trial."""

from __future__ import annotations

import time

import numpy as np

from hushgraph.audit.attack import Stage
from hushgraph.audit.result import Audit
from hushgraph.audit.statistics import Floats, check_confidence
from hushgraph.audit.trials import Observer, World
from hushgraph.audit.weights import Weights, new_model, use
from hushgraph.errors import PlanError
from hushgraph.privacy.plans import PrivacyPlan
from hushgraph.training.train import train


def audit_training(
    plan: PrivacyPlan,
    *,
    model: str = "gcn",
    trials: int = 400,
    confidence: float = 0.95,
    observer: Observer | None = None,
) -> Audit:
    """Bound epsilon from below by the final weights of `hushgraph.train` alone.

    Args:
        plan: with noise and a single step; plain gradient descent of rate 1 makes that step visible.
        model: "gcn", "gin", "gat" or "mlp".
        trials: trainings a world. They are slow, so there are few, and the bound is far below what it can be.
        confidence: of the bound.
        observer: called with the number of trials done since it was last called.

    Guarantees:
        As those of `audit_plan`.
    """
    begin = time.monotonic()
    check_confidence(confidence)
    if plan.steps != 1:
        raise PlanError(f"steps={plan.steps}: final weights show a single step; expected 1")
    stage = Stage.of(plan, model=model, canary="strongest")
    with_row, without_row = (
        _final_weights(world, stage.lines[0].direction, trials, observer)
        for world in (stage.there, stage.empty)
    )
    return stage.audit(with_row, without_row, confidence=confidence, seed=None, begin=begin, path="train")


def _final_weights(world: World, direction: Weights, trials: int, observer: Observer | None) -> Floats:
    """[trials]: how far training moved the weights against the direction, times the batch size."""
    plan, start = world.plan, world.phases[0]
    moves = np.empty(trials)
    for trial in range(trials):
        module = new_model(world.model, plan)
        use(module, start)
        train(
            world.graph,
            model=module,
            num_layers=plan.num_layers,
            sigma_over_clip=plan.sigma_over_clip,
            delta=plan.delta,
            max_readers=plan.max_readers,
            max_reads=plan.max_reads,
            edge_owner=plan.edge_owner,
            batch_size=plan.batch_size,
            steps=plan.steps,
            sampler=plan.sampler,
            accountant=plan.accountant,
            clipping=plan.clipping,
            clip=plan.clip,
            optimizer="sgd",
            learning_rate=1.0,
            momentum=0.0,
            schedule="constant",
            average=0.0,
            device="cpu",
            progress=False,
        )
        moved = sum(
            float(((start[name] - parameter.detach()) * direction[name]).sum())
            for name, parameter in module.named_parameters()
        )
        moves[trial] = moved * plan.batch_size
        if observer is not None:
            observer(1)
    return moves
