"""`audit_plan`: a lower bound on epsilon for a plan, by attacking real runs of it."""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any

import numpy as np

from hushgraph.accounting.accountants import compose_shifts
from hushgraph.audit.checks import Check, check_noise_of_steps, check_runs
from hushgraph.audit.faults import get_fault
from hushgraph.audit.numbers import NumbersAudit, attack_numbers
from hushgraph.audit.result import Attack, Audit
from hushgraph.audit.runs import Plant, plant_nothing
from hushgraph.audit.scene import Difference, choose_blocks, plant_rows, plant_trees
from hushgraph.audit.statistics import Floats, check_can_audit
from hushgraph.audit.trials import Observer, Shown, Stage
from hushgraph.audit.weights import point_maps, point_rows, point_trees, spread
from hushgraph.billboard.lists import Block
from hushgraph.errors import InputError, PlanError
from hushgraph.graph.records import RelationInfo
from hushgraph.privacy.changes import TRAINING_ROW, Change, row_emptied
from hushgraph.privacy.charges import Charge, epsilon, list_events
from hushgraph.privacy.defaults import choose_reading
from hushgraph.privacy.plans import PrivacyPlan
from hushgraph.tasks.task import Task
from hushgraph.tasks.two_classes import TwoClasses

_WEIGHTS_SEED = 3
_MODELS = ("gcn", "gin", "gat", "mlp")
# Seconds that the first figures get by default, trials of one world at least and at most, canaries of a run.
_SECONDS, _FEWEST, _MOST = 10.0, 100, 200_000
_COPIES, _TREE_COPIES, _STEPS_OF_A_RUN = 2000, 200, 200
# Places of the canary that is attacked with everything, and of one whose places are many.
_DEGREE, _LARGE_DEGREE, _LARGE_TRIALS, _LARGE_SECONDS = 4, 1000, 200, 2.5
# Places of all canaries of a run together.
_PLACES = 20_000
_GUESSES = 400
# Nodes of a canary, where persons are protected.
_NODES_EACH = 3
_HIDDEN_OF_TREES, _HIDDEN_AT_MAPS = 2, 16
# In names of the weights of R-GCN.
_MAPS = ".maps."
# The part of the trials that each other difference between two worlds gets: one of so many.
_PART = 4
# How many bounds of boards and steps there are, which hold together; tables of figures add one.
_BOUNDS = 6


@dataclass(frozen=True, kw_only=True, eq=False)
class Effort:
    """How many trials there are, and who is told.

    Attributes:
        trials: of a world; None for as many as fit into the time.
        rng: decides which canaries are there.
        observer: told how many trials were done.
    """

    trials: int | None
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(secrets.randbits(128)))
    observer: Observer | None = None

    def copies(self, most: int) -> int:
        """Canaries of a run: an even number, no more than the trials need."""
        return most if self.trials is None else max(2, min(most, 2 * self.trials))

    def spend(self, stage: Stage, *, part: int = 1, most: int = _MOST, seconds: float = _SECONDS) -> Shown:
        """Run until there are enough trials, or the time is over."""
        begin, shown, done = time.monotonic(), [], 0
        wanted = most if self.trials is None else min(most, max(10, self.trials // part))
        while done < wanted:
            shown.append(stage.run(self.rng))
            done += stage.trials_per_run
            if self.observer is not None:
                self.observer(2 * stage.trials_per_run)
            is_late = time.monotonic() - begin > seconds / part
            if self.trials is None and is_late and done >= _FEWEST:
                break
        joined = Shown.join(shown)
        return replace(joined, there=joined.there[:, :wanted], empty=joined.empty[:, :wanted])


def audit_plan(
    plan: PrivacyPlan,
    *,
    model: str = "gcn",
    canary: str = "strongest",
    trials: int | None = None,
    confidence: float = 0.95,
    fault: str | None = None,
    numbers: bool = True,
    seed: int | None = None,
    observer: Observer | None = None,
    task: Task | None = None,
    class_weights: tuple[float, ...] | None = None,
    relations: Sequence[RelationInfo] = (),
) -> Audit:
    """Attack real runs under `plan` and bound its epsilon from below.

    Small graphs are made in which single rows, the canaries', differ as much as they can. Real sessions train
    on them, about half of the canaries there and half emptied; everything that is released is seen, and how
    well the two can be told apart bounds epsilon. Then come plain checks of what was released (`checks`) and
    attacks on digits (`numbers`). No data is read.

    Where the plan protects persons, a canary is a person with three nodes, emptied together.

    A plan with boards is attacked with them: for one emptied row; then, each beside its own claim, other
    people's predictions, one label flipped, a row of the validation split, its tables of figures alone, and
    the first board alone.
    `model` and `canary` are for trees.

    Args:
        plan: with noise. Its boards, depth, K, D, edge owner, sampler, accountant, clipping, noise, steps,
            sampling rate and delta are attacked; training nodes and classes become those of the made graphs.
        model: "gcn", "gin", "gat" or "mlp", of a few hidden units and chosen weights.
        canary: "strongest", "read" or "hub", see `scene.plant_trees`.
        trials: per world; a fifth of them chooses the threshold. By default as many as fit into some ten
            seconds, 100 to 200,000.
        confidence: with which all bounds hold together. Attacks on digits have their own.
        fault: the name of a mistake to plant, see `faults.FAULTS`.
        numbers: also attack the digits of released numbers, in at most 400 trials.
        seed: of which canaries are there. Batches and noise have none.
        observer: called with the number of trials done since it was last called.
        task: what a `BillboardPlan` is for: its ballots, losses, inputs and tables are attacked, of three
            classes or labels where there are many; one of c classes unless given.
        class_weights: of the run, where examples of its classes are weighted.
        relations: of the run, where its records are not plain: what has weights, and what names places that
            are not people. As many relations as the plan has unless given.

    Guarantees:
        With probability at least `confidence`, `by_event` is at most the epsilon at the plan's delta of the
        run that was attacked; so is `by_curve` if that run has a trade-off curve of the family that was
        priced. Each bound above the claim refutes the claim; one below proves nothing.

    Examples:
        >>> from hushgraph.audit import audit_plan
        >>> from hushgraph.privacy.plans import BillboardPlan
        >>> plan = BillboardPlan(num_train_nodes=100, num_classes=3, batch_size=100, steps=2)
        >>> audit = audit_plan(plan.calibrated(epsilon=4.0), trials=500, numbers=False)
        >>> audit.exceeds, audit.others_changed
        (False, 0)
    """
    begin = time.monotonic()
    check_can_audit(plan, trials, confidence)
    plant = plant_nothing if fault is None else get_fault(fault).plant
    effort = Effort(trials=trials, rng=np.random.default_rng(seed), observer=observer)
    blocks = choose_blocks(plan, relations)
    if plan.num_boards:
        asked = {"task": task, "class_weights": class_weights, "blocks": blocks}
        audit = _audit_boards(plan, plant, effort, confidence, **asked)
    else:
        audit = _audit_trees(plan, plant, effort, confidence, model=model, canary=canary, blocks=blocks)
    guesses: NumbersAudit | None = None
    if numbers:
        name, most = model if plan.num_layers else "mlp", min(_GUESSES, trials or _GUESSES)
        guesses = attack_numbers(plan, model=name, trials=most, plant=plant, seed=seed)
    return replace(audit, numbers=guesses, fault=fault, seed=seed, seconds=time.monotonic() - begin)


def _audit_boards(plan: PrivacyPlan, plant: Plant, effort: Effort, confidence: float, **asked: Any) -> Audit:
    """Boards and steps together, then every other claim; `asked` are as in `stage_boards`."""
    each = 1 - (1 - confidence) / (_BOUNDS + (plan.num_tables > 0))
    stage = stage_boards(plan, plant, effort.copies(_COPIES), **asked)
    shown = effort.spend(stage)
    charges = stage.plan.charges
    emptied = partial(_measure, stage.plan, change=TRAINING_ROW, confidence=each)
    boards = f"{plan.num_boards} board{'s' * (plan.num_boards > 1)}"
    main = emptied(f"{boards} and {plan.steps} steps", shown.pair(0), charges)
    attacks = [
        emptied("other people's predictions", shown.pair(2), charges),
        emptied(f"first board, row of degree {_DEGREE}", shown.pair(1), [plan.board_charge(0)]),
    ]
    flipped = stage_boards(plan, plant, effort.copies(_COPIES), difference="flipped", **asked)
    statistic, label = effort.spend(flipped, part=_PART).pair(0), Change("label", ("training",))
    attacks.append(_measure(flipped.plan, "one label flipped", statistic, charges, label, each))
    common: dict[str, Any] = {"confidence": each, "effort": effort, "plant": plant, **asked}
    attacks += attack_evaluated(plan, part=_PART, **common)
    attacks.append(attack_board(plan, degree=_LARGE_DEGREE, most=_LARGE_TRIALS, **common))
    return _collect(
        stage,
        shown,
        main,
        attacks,
        # These are the same for every task, and made of classes.
        checks=check_runs(plan, plant),
        canary=f"degree {_DEGREE}",
        model="billboard",
    )


def stage_boards(
    plan: PrivacyPlan,
    plant: Plant,
    copies: int,
    *,
    degree: int = _DEGREE,
    difference: Difference = "emptied",
    task: Task | None = None,
    class_weights: tuple[float, ...] | None = None,
    blocks: tuple[Block, ...] | None = None,
) -> Stage:
    """Runs with boards, with so many canaries each; inputs are those of the task, records of the blocks."""
    several = 1 if difference == "flipped" else _count_nodes(plan)
    if several == 1:
        # One label of one node is flipped.
        plan = replace(plan, protects="node")
    scene = plant_rows(
        plan,
        copies=copies,
        degree=degree,
        difference=difference,
        task=task,
        nodes_each=several,
        blocks=blocks,
    )
    phases: Any = partial(point_rows, difference=difference, task=scene.task)
    reading = choose_reading(scene.task.name)
    inputs = {name: getattr(reading, name) for name in ("list_size", "own_place", "damped")}
    if class_weights is not None and isinstance(scene.task, TwoClasses):
        inputs["class_weights"] = class_weights
    return Stage.of(plan, scene, phases, plant=plant, hidden=1, **inputs)


def _count_nodes(plan: PrivacyPlan) -> int:
    """Nodes of a canary: several where persons are protected."""
    return _NODES_EACH if plan.protects == "person" else 1


def attack_evaluated(
    plan: PrivacyPlan, *, effort: Effort, plant: Plant, part: int = 1, confidence: float = 0.95, **asked: Any
) -> list[Attack]:
    """Attack a row of the validation split: all that is released of it, then its tables of figures alone.

    Args:
        plan: whose second board and tables are attacked. Without tables the second attack is left out.
        part: one of so many of the trials are run.
        effort, plant, confidence, asked: as in `attack_board`.

    Guarantees:
        As those of `audit_plan`.
    """
    stage = stage_boards(plan, plant, effort.copies(_COPIES), difference="evaluated", **asked)
    shown, (change,) = effort.spend(stage, part=part), row_emptied("evaluated")
    wanted = [("row of the validation split", 0, stage.plan.charges)]
    if stage.plan.evaluation_charge is not None:
        wanted.append(("tables of figures", 3, (stage.plan.evaluation_charge,)))
    return [
        _measure(stage.plan, name, shown.pair(statistic), charges, change, confidence)
        for name, statistic, charges in wanted
    ]


def attack_board(
    plan: PrivacyPlan,
    *,
    degree: int,
    effort: Effort,
    plant: Plant,
    most: int = _MOST,
    confidence: float = 0.95,
    **asked: Any,
) -> Attack:
    """Attack the first board of real runs alone, beside what that board costs by itself.

    Args:
        plan: whose first board is attacked.
        degree: how many places the canary lists.
        effort: how many trials there are.
        plant: a mistake to plant, or `plant_nothing`.
        most: trials of a world, at most.
        confidence: of the bound.
        asked: `task`, `class_weights` and `blocks`, as in `stage_boards`.

    Guarantees:
        As those of `audit_plan`.
    """
    copies = effort.copies(min(_COPIES, 2 * (_PLACES // (2 * degree))))
    stage = stage_boards(plan, plant, copies, degree=degree, **asked)
    shown = effort.spend(stage, most=most, seconds=_LARGE_SECONDS)
    name = f"first board, row of degree {degree:,}"
    return _measure(stage.plan, name, shown.pair(1), [plan.board_charge(0)], TRAINING_ROW, confidence)


def _measure(
    plan: PrivacyPlan,
    name: str,
    statistic: tuple[Floats, Floats],
    charges: Sequence[Charge],
    change: Change,
    confidence: float,
) -> Attack:
    """Bound epsilon beside what these charges cost for this change."""
    return Attack.measure(
        name,
        *statistic,
        claimed=epsilon(charges, [change], delta=plan.delta),
        plan=plan,
        charges=list_events(charges, change),
        confidence=confidence,
    )


def _audit_trees(plan: PrivacyPlan, plant: Plant, effort: Effort, confidence: float, **asked: Any) -> Audit:
    """The steps of trees, or of rows that read no board; `asked` are as in `stage_trees`."""
    stage = stage_trees(plan, plant, effort, **asked)
    stages = {"steps": (stage, 1)}
    if any(_MAPS in name for name in stage.phases[0]):
        stages["steps, maps of relations"] = stage_trees(plan, plant, effort, at_maps=True, **asked), _PART
    shown_by = {name: effort.spend(each, part=part) for name, (each, part) in stages.items()}
    main, *attacks = (
        Attack.measure(
            name,
            *shown_by[name].pair(0),
            claimed=each.plan.epsilon,
            plan=each.plan,
            confidence=1 - (1 - confidence) / len(stages),
        )
        for name, (each, _) in stages.items()
    )
    checks = check_noise_of_steps(stage)
    names = {name: asked[name] for name in ("canary", "model")}
    return _collect(stage, shown_by["steps"], main, attacks, checks=checks, **names)


def stage_trees(
    plan: PrivacyPlan,
    plant: Plant,
    effort: Effort,
    *,
    model: str,
    canary: str,
    blocks: tuple[Block, ...] = (),
    at_maps: bool = False,
) -> Stage:
    """Check what is asked for and set up runs on trees.

    Args:
        plan, plant, effort: what is attacked, and how often.
        model, canary, blocks: as in `plant_trees`; of a run with several relations "gcn" has maps of them.
        at_maps: attack the gradients of the maps of relations, one canary at a time.
    """
    if model not in _MODELS:
        raise InputError(f"model={model!r}: expected one of {', '.join(_MODELS)}")
    if (plan.num_layers == 0) != (model == "mlp"):
        raise InputError(
            f"model={model!r}, layers={plan.num_layers}: expected no layers of an mlp, more of the others"
        )
    if plan.clipping == "percentile":
        raise PlanError("clipping='percentile': thresholds read off data are not audited; choose another")
    if canary == "hub" and plan.edge_owner == "sender" and plan.reads_edges:
        # Only a full list has something to displace; D has no price where senders own the edges.
        plan = replace(plan, max_reads=1)
    by_groups = plan.clipping == "groups"
    # Of groups of layers, and in maps, every part tells of the canary, and only the first layer keeps copies
    # apart.
    copies = 1 if by_groups or at_maps else effort.copies(_TREE_COPIES)
    wanted = _MOST if effort.trials is None else effort.trials
    repeats = max(1, min(_STEPS_OF_A_RUN // plan.steps, math.ceil(2 * wanted / copies)))
    scene = plant_trees(
        plan,
        copies=copies,
        canary=canary,
        nodes_each=_count_nodes(plan),
        temperatures=(1.0, 0.0) if at_maps else None,
        blocks=blocks,
    )
    phases: Any = partial(point_maps if at_maps else point_trees, plan=plan)
    if by_groups and not at_maps:
        phases = partial(spread, seed=_WEIGHTS_SEED)
    hidden = _HIDDEN_AT_MAPS if at_maps else _HIDDEN_OF_TREES
    return Stage.of(plan, scene, phases, plant=plant, hidden=hidden, model=model, repeats=repeats)


def _collect(
    stage: Stage,
    shown: Shown,
    main: Attack,
    attacks: list[Attack],
    *,
    checks: tuple[Check, ...],
    canary: str,
    model: str,
) -> Audit:
    """What these trials show."""
    plan, has_boards = stage.plan, stage.plan.num_boards > 0
    if shown.shift == 0:
        raise InputError("this canary changes nothing under this plan; choose another canary")
    of_steps = math.sqrt(plan.steps) * (2 * plan.changed_trees - 1) / plan.sigma_over_clip
    return Audit(
        **vars(main),
        plan=plan,
        model=model,
        canary=canary,
        shift=shown.shift,
        shift_at_most=compose_shifts(plan.events) if has_boards else of_steps,
        attacks=tuple(attacks),
        others_changed=shown.changed if has_boards else None,
        checks=checks,
    )


def planted(plan: PrivacyPlan, fault: str) -> PrivacyPlan:
    """The plan, without noise as yet, of training that has this fault: calibrate it to make its claim."""
    wanted = get_fault(fault)
    values = {each.name: getattr(plan, each.name) for each in fields(plan)}
    return (wanted.plan or type(plan))(**{**values, **wanted.changes, "sigma_over_clip": 0.0})
