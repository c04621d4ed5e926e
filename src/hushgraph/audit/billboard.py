"""`audit_billboard`: boards and steps attacked together, boards alone, and other people's predictions."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hushgraph.audit.anew import AnewTrials
from hushgraph.audit.board_scene import NUM_CLASSES, BoardScene, Difference, move_billboard, plant_row
from hushgraph.audit.board_trials import BoardsSeen, BoardTrials, run_boards
from hushgraph.audit.collaborators import (
    BoardCollaborators,
    Collaborators,
    Plant,
    make_exact_noise,
    plant_nothing,
)
from hushgraph.audit.curve import total_shift
from hushgraph.audit.faults import get_fault
from hushgraph.audit.likelihood import Line, log_ratio
from hushgraph.audit.numbers import NumbersAudit, attack_numbers
from hushgraph.audit.result import Attack, Audit
from hushgraph.audit.row_weights import new_row_model, point_at_features
from hushgraph.audit.row_world import RowWorld
from hushgraph.audit.statistics import Floats, check_confidence
from hushgraph.audit.trials import Observer, quiet_process
from hushgraph.errors import InputError, PlanError
from hushgraph.gradients.rows import RowSums
from hushgraph.privacy.changes import TRAINING_ROW, Change
from hushgraph.privacy.charges import Charge, epsilon, list_events
from hushgraph.privacy.plans import BillboardPlan
from hushgraph.sampling.lists import BoundedLists

# The row that is attacked with everything: it lists a few places, so that their number counts.
_DEGREE = 4
_LARGE_DEGREE, _LARGE_TRIALS = 1000, 20_000
# Trials that share a call, and cells of boards that do: on few rows, calls cost more than numbers.
_COPIES, _CELLS = 2000, 200_000
# Draws of the attack on everything; steps where trials cannot be stacked.
_DRAWS, _STEPS = 100_000_000, 20_000
_FEWEST, _MOST = 100, 200_000
_GUESSES = 400
# How many bounds there are, which hold together.
_BOUNDS = 8
_CHANGES: dict[Difference, Change] = {
    "emptied": TRAINING_ROW,
    "flipped": Change("label", ("training",)),
    "unlabelled": Change("rows", ("evaluated",)),
}
# Other differences between two worlds, with the part of the trials that each gets.
_OTHER_CLAIMS: dict[Difference, tuple[str, int]] = {
    "flipped": ("one label flipped", 4),
    "unlabelled": ("row of the validation split", 2),
}


def attack_board(
    plan: BillboardPlan, *, degree: int, trials: int, confidence: float = 0.95, fault: str | None = None
) -> Attack:
    """Attack the first board alone, beside what that board costs by itself.

    Args:
        plan: whose first board is attacked.
        degree: how many places the canary lists.
        trials: per world.
        confidence: of the bound.
        fault: the name of a mistake to plant.

    Guarantees:
        As those of `audit_plan`.
    """
    plant = plant_nothing if fault is None else get_fault(fault).plant
    stage = _Stage(plan=plan, plant=plant, seed=None, observer=None)
    return _attack_board(stage, degree, trials, confidence)


def audit_billboard(
    plan: BillboardPlan,
    *,
    trials: int | None = None,
    confidence: float = 0.95,
    fault: str | None = None,
    fresh_runs: int = 150,
    numbers: bool = True,
    seed: int | None = None,
    observer: Observer | None = None,
) -> Audit:
    """Attack boards and steps under `plan` and bound its epsilon from below.

    The first figures are about everything that is released, for one emptied row. Then come, each beside its
    own claim: one label flipped; a row without a training label; the first board alone, with rows of one and
    of 1,000 places; other people's predictions; whole runs without shortcuts, where readings decide the
    gradients; and the noise of any two charges, compared. Last the released digits.

    Args:
        plan: with noise. Its boards, their noise, edge owner, clipping, steps, sampling rate and delta are
            attacked; training nodes and classes become those of the made graphs.
        trials: of the attack on everything, per world; the others follow it. By default as many as fit into
            some twenty seconds, 100 to 200,000.
        confidence: with which all bounds hold together. Attacks on digits have their own.
        fault: the name of a mistake to plant, see `faults.FAULTS`.
        fresh_runs: whole runs a world in which nothing is remembered, at most `trials`; 0 does without.
            Faults that only they see turn a sum around, which few trials show.
        numbers: also attack the digits of released numbers.
        seed: of batches that are drawn. Exact noise has none.
        observer: called with the number of trials done since it was last called.

    Guarantees:
        As those of `audit_plan`, for all attacks together.

    Examples:
        >>> from hushgraph.audit.billboard import audit_billboard
        >>> from hushgraph.privacy.plans import BillboardPlan
        >>> plan = BillboardPlan(num_train_nodes=100, num_classes=3, batch_size=100, steps=2)
        >>> audit = audit_billboard(plan.calibrated(epsilon=4.0), trials=500, fresh_runs=0, numbers=False)
        >>> audit.exceeds, audit.others_changed
        (False, 0)
    """
    begin = time.monotonic()
    check_confidence(confidence)
    if trials is not None and trials < 10:
        raise InputError(f"trials={trials}: expected at least 10")
    if fresh_runs and fresh_runs < 10:
        raise InputError(f"fresh_runs={fresh_runs}: expected at least 10, or 0 to do without")
    if not plan.is_private or plan.steps == 0:
        raise PlanError("the plan has no noise or no steps, so there is nothing to audit; give both")
    plant = plant_nothing if fault is None else get_fault(fault).plant
    stage = _Stage(plan=plan, plant=plant, seed=seed, observer=observer)
    trials = stage.affordable_trials() if trials is None else trials
    each = 1 - (1 - confidence) / _BOUNDS
    run = stage.run(trials=trials)
    main = run.measure("boards and steps", run.log_ratios, each)
    attacks = (
        run.measure("other people's predictions", run.predictions, each),
        *(_attack_row(stage, difference, trials, each) for difference in _OTHER_CLAIMS),
        _attack_board(stage, 1, trials, each),
        _attack_board(stage, _LARGE_DEGREE, min(trials, _LARGE_TRIALS), each),
        *_attack_anew(stage, min(fresh_runs, trials), each),
    )
    return Audit(
        plan=run.plan,
        claimed=main.claimed,
        by_curve=main.by_curve,
        by_event=main.by_event,
        numbers=_attack_digits(stage, trials) if numbers else None,
        model="billboard",
        canary=f"degree {_DEGREE}",
        fault=fault,
        path="loop",
        secure_noise=True,
        trials=trials,
        shift=run.shift,
        shift_at_most=total_shift(run.plan.events),
        seed=seed,
        seconds=time.monotonic() - begin,
        with_row=run.log_ratios[0],
        without_row=run.log_ratios[1],
        method="billboard",
        attacks=attacks,
        others_changed=run.changed,
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class _Seen:
    """What trials of both worlds show, beside what is claimed for the change between the worlds.

    Attributes:
        plan: on the rows of the scene.
        change: how the worlds differ.
        log_ratios, predictions: of either world, [trials].
        changed: other rows that differ, given the same boards and weights.
        shift: how far apart the worlds are, in units of the noise.
    """

    plan: BillboardPlan
    change: Change
    log_ratios: tuple[Floats, Floats]
    predictions: tuple[Floats, Floats]
    changed: int
    shift: float

    def measure(self, name: str, statistic: tuple[Floats, Floats], confidence: float) -> Attack:
        """Bound epsilon by one of the two statistics."""
        return _measure(name, statistic, self.plan, self.plan.charges, self.change, confidence)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Stage:
    """The plan that is attacked, and the fault in the code that carries it out."""

    plan: BillboardPlan
    plant: Plant
    seed: int | None
    observer: Observer | None

    def affordable_trials(self) -> int:
        """As many trials a world as fit into some twenty seconds."""
        scene = plant_row(self.plan, degree=_DEGREE)
        cells = scene.graphs[0].num_nodes * NUM_CLASSES * self.plan.num_boards
        parameters = sum(parameter.numel() for parameter in new_row_model().parameters())
        draws = 2 * (cells + parameters * self.plan.steps)
        most = _DRAWS // draws if self.plan.sampling_rate == 1 else _STEPS // (2 * self.plan.steps)
        return max(_FEWEST, min(_MOST, most))

    def make_boards(self) -> BoardCollaborators:
        """The code of boards, with the fault; made anew for every call, so that no memory spans two."""
        return self.plant(_collect_real(self.plan)).boards

    def run(self, *, difference: Difference = "emptied", trials: int) -> _Seen:
        """Boards, predictions and, where the canary has a gradient, steps."""
        scene = plant_row(self.plan, degree=_DEGREE, difference=difference)
        plan = move_billboard(self.plan, scene)
        stack = BoardTrials(plan=plan, scene=scene, boards=self.make_boards(), copies=min(_COPIES, trials))
        there, empty = (self._run_boards(stack, world, trials) for world in (0, 1))
        steps, steps_shift = self._run_steps(plan, scene, trials)
        boards = [np.concatenate([call.log_ratios.sum(axis=1) for call in calls]) for calls in (there, empty)]
        looks = [np.concatenate([call.predictions for call in calls]) for calls in (there, empty)]
        shifts = [shift / noise for shift, noise in zip(there[0].shifts, plan.board_noise, strict=True)]
        return _Seen(
            plan=plan,
            change=_CHANGES[difference],
            log_ratios=(boards[0][:trials] + steps[0], boards[1][:trials] + steps[1]),
            predictions=(looks[0][:trials], looks[1][:trials]),
            changed=max(call.changed for call in (*there, *empty)),
            shift=math.hypot(*shifts, steps_shift),
        )

    def _run_boards(self, stack: BoardTrials, world: int, trials: int) -> list[BoardsSeen]:
        """As many calls as make up these trials."""
        calls = []
        with quiet_process():
            for _ in range(math.ceil(trials / stack.copies)):
                calls.append(run_boards(stack, world, self.make_boards()))
                self.observe(stack.copies)
        return calls

    def _run_steps(
        self, plan: BillboardPlan, scene: BoardScene, trials: int
    ) -> tuple[tuple[Floats, Floats], float]:
        """The log-likelihood ratios of the steps of either world, and how far apart the worlds are."""
        there, empty = (
            RowWorld(
                graph=graph,
                plan=plan,
                model="billboard",
                key_seed=0,
                phases=point_at_features(),
                plant=self.plant,
            )
            for graph in scene.graphs
        )
        pairs = list(zip(there.sums(), empty.sums(), strict=True))
        if all(np.array_equal(a[name], b[name]) for a, b in pairs for name in a):
            # A row without a training label has no gradient.
            return (np.zeros(trials), np.zeros(trials)), 0.0
        lines = [Line.between(*pair, there.sigmas(), (there.roots, empty.roots)) for pair in pairs]
        directions = [line.direction for line in lines]
        first, second = (
            log_ratio(
                world.released(directions, trials=trials, seed=self.seed, observer=self.observer), lines, plan
            )
            for world in (there, empty)
        )
        shifts = [lines[step % len(lines)].shift for step in range(plan.steps)]
        return (first, second), math.hypot(*shifts)

    def observe(self, count: int) -> None:
        """Tell the observer, if there is one."""
        if self.observer is not None:
            self.observer(count)


def _measure(
    name: str,
    statistic: tuple[Floats, Floats],
    plan: BillboardPlan,
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


def _attack_row(stage: _Stage, difference: Difference, trials: int, confidence: float) -> Attack:
    """Another difference than an emptied row with a label, with fewer trials."""
    name, part = _OTHER_CLAIMS[difference]
    seen = stage.run(difference=difference, trials=max(10, trials // part))
    return seen.measure(name, seen.log_ratios, confidence)


def _attack_board(stage: _Stage, degree: int, trials: int, confidence: float) -> Attack:
    """The first board alone, with a row that lists so many places."""
    scene = plant_row(stage.plan, degree=degree, alone=True)
    plan = move_billboard(stage.plan, scene)
    cells = scene.graphs[0].num_nodes * NUM_CLASSES
    copies = max(1, min(trials, _CELLS // cells))
    stack = BoardTrials(plan=plan, scene=scene, boards=stage.make_boards(), copies=copies)
    ratios = []
    for world in (0, 1):
        calls = []
        for _ in range(math.ceil(trials / copies)):
            release = stack.first_release(world, stage.make_boards())
            calls.append(release.log_ratio(copies, plan.board_noise[0]))
            stage.observe(copies)
        ratios.append(np.concatenate(calls)[:trials])
    return _measure(
        f"first board, row of degree {degree:,}",
        (ratios[0], ratios[1]),
        plan,
        [plan.board_charge(0)],
        TRAINING_ROW,
        confidence,
    )


def _attack_anew(stage: _Stage, trials: int, confidence: float) -> tuple[Attack, ...]:
    """Whole runs without shortcuts, by likelihood and by the noise that charges have in common."""
    if not trials:
        return ()
    anew = AnewTrials.of(stage.plan, stage.plant)
    there, empty = (
        anew.run(world, trials=trials, seed=stage.seed, observer=stage.observer) for world in (0, 1)
    )
    plan, one_row = anew.plan, TRAINING_ROW
    charges = plan.charges
    by_ratio = there.log_ratios, empty.log_ratios
    by_difference = there.differences, empty.differences
    return (
        _measure("whole runs, readings decide", by_ratio, plan, charges, one_row, confidence),
        _measure("noise of two charges compared", by_difference, plan, charges, one_row, confidence),
    )


def _attack_digits(stage: _Stage, trials: int) -> NumbersAudit:
    return attack_numbers(
        stage.plan, model="mlp", trials=min(_GUESSES, trials), plant=stage.plant, seed=stage.seed
    )


def _collect_real(plan: BillboardPlan) -> Collaborators:
    """What a run calls, for a fault to wrap; boards need no lists."""

    def refuse_lists(*_: Any) -> BoundedLists:
        raise RuntimeError("boards have no bounded lists")

    return Collaborators(clipped_sum=RowSums(), noise=make_exact_noise(plan), make_lists=refuse_lists)
