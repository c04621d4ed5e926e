"""`audit_plan`: a lower bound on epsilon for a plan, by attacking its training."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, fields, replace

import numpy as np

from hushgraph.audit.billboard import audit_billboard
from hushgraph.audit.collaborators import plant_nothing
from hushgraph.audit.curve import curve_lower_bound
from hushgraph.audit.faults import get_fault
from hushgraph.audit.likelihood import Line, log_ratio
from hushgraph.audit.numbers import NumbersAudit, attack_numbers
from hushgraph.audit.result import Audit
from hushgraph.audit.scene import move_plan, scene_for
from hushgraph.audit.statistics import Floats, check_confidence, epsilon_lower_bound
from hushgraph.audit.trials import Observer, World
from hushgraph.audit.weights import new_model, pointed, pointed_temperatures, spread
from hushgraph.errors import InputError, PlanError
from hushgraph.privacy.plans import BillboardPlan, PrivacyPlan

_WEIGHTS_SEED = 3
_MODELS = ("gcn", "gin", "gat", "mlp")
# Exact draws of the default number of trials, and steps where trials cannot be stacked, in both worlds: ten
# to twenty seconds. Fewer trials than the fewest would show nothing.
_DRAWS, _STEPS = 24_000_000, 20_000
_FEWEST, _MOST = 100, 200_000
# Of the attacks on digits.
_GUESSES = 400


def audit_plan(
    plan: PrivacyPlan,
    *,
    model: str = "gcn",
    canary: str = "strongest",
    trials: int | None = None,
    confidence: float = 0.95,
    fault: str | None = None,
    remember: bool = True,
    secure_noise: bool = True,
    numbers: bool = True,
    seed: int | None = None,
    observer: Observer | None = None,
) -> Audit:
    """Attack training under `plan` and bound its epsilon from below.

    Small graphs are made in which one row, the canary's, changes as many trees as the plan allows. The loop
    is run many times with that row and many times without, every noisy sum is seen by an optimiser of the
    attacker's, and how well the two can be told apart bounds epsilon. No data is read. Then the released
    numbers are attacked, see `numbers.attack_numbers`. A `BillboardPlan` has boards beside its steps, and
    both are attacked, see `billboard.audit_billboard`; `model`, `canary`, `remember` and `secure_noise` are
    for trees.

    Args:
        plan: with noise. Its depth, K, D, edge owner, sampler, accountant, clipping, noise, steps, sampling
            rate and delta are attacked; its number of training nodes becomes that of the made graph.
        model: "gcn", "gin", "gat" or "mlp", of a few hidden units and chosen weights.
        canary: "strongest", "read" or "hub", see `scene.scene_for`.
        trials: per world; a fifth of them chooses the threshold. By default as many as fit into ten to
            twenty seconds, 100 to 200,000.
        confidence: of each bound. Attacks on digits have their own.
        fault: the name of a mistake to plant, see `faults.FAULTS`.
        remember: False computes every clipped sum anew in every trial, which is slow.
        secure_noise: attack training with exact noise, which cannot be seeded; False attacks torch's noise.
        numbers: also attack the digits of released numbers, in at most 400 trials.
        seed: of batches, and of torch's noise. It makes an audit of torch's noise reproducible.
        observer: called with the number of trials done since it was last called.

    Guarantees:
        With probability at least `confidence`, `by_event` is at most the epsilon at the plan's delta of the
        training that was attacked; so is `by_curve` if that training has a trade-off curve of the family
        that was priced. Each bound above the claim refutes the claim; one below proves nothing.

    Examples:
        >>> from hushgraph import PrivacyPlan
        >>> from hushgraph.audit import audit_plan
        >>> plan = PrivacyPlan(num_train_nodes=100, num_layers=1, max_readers=2, batch_size=100, steps=2)
        >>> audit = audit_plan(plan.calibrated(epsilon=4.0), trials=500)
        >>> audit.lower_bound <= audit.claimed
        True
    """
    if isinstance(plan, BillboardPlan):
        return audit_billboard(
            plan,
            trials=trials,
            confidence=confidence,
            fault=fault,
            numbers=numbers,
            seed=seed,
            observer=observer,
        )
    begin = time.monotonic()
    check_confidence(confidence)
    if trials is not None and trials < 10:
        raise InputError(f"trials={trials}: expected at least 10")
    stage = Stage.of(plan, model=model, canary=canary, fault=fault, remember=remember, secure=secure_noise)
    trials = stage.affordable_trials() if trials is None else trials
    directions = [line.direction for line in stage.lines]
    seen = [
        world.released(directions, trials=trials, seed=own, observer=observer)
        for world, own in zip((stage.there, stage.empty), _seeds(seed), strict=True)
    ]
    with_row, without_row = (log_ratio(each, stage.lines, stage.plan) for each in seen)
    guesses = None
    if numbers:
        guesses = attack_numbers(
            plan,
            model=model,
            trials=min(_GUESSES, trials),
            plant=stage.there.plant,
            secure_noise=secure_noise,
            seed=seed,
        )
    return stage.audit(with_row, without_row, numbers=guesses, confidence=confidence, seed=seed, begin=begin)


@dataclass(frozen=True, kw_only=True, eq=False)
class Stage:
    """Two worlds ready for trials, and the line along which they differ in each phase."""

    plan: PrivacyPlan
    model: str
    canary: str
    fault: str | None
    there: World
    empty: World
    lines: list[Line]

    @classmethod
    def of(
        cls,
        plan: PrivacyPlan,
        *,
        model: str,
        canary: str,
        fault: str | None = None,
        remember: bool = True,
        secure: bool = True,
    ) -> Stage:
        """Check what is asked for and set it up."""
        if model not in _MODELS:
            raise InputError(f"model={model!r}: expected one of {', '.join(_MODELS)}")
        if (plan.num_layers == 0) != (model == "mlp"):
            raise InputError(
                f"model={model!r}, layers={plan.num_layers}: expected no layers of an mlp, more of the others"
            )
        if not plan.is_private or plan.steps == 0:
            raise PlanError("the plan has no noise or no steps, so there is nothing to audit; give both")
        if plan.clipping == "percentile":
            raise PlanError("clipping='percentile': thresholds read off data are not audited; choose another")
        if canary == "hub" and plan.edge_owner == "sender" and plan.reads_edges:
            # Only a full list has something to displace; D has no price where senders own the edges.
            plan = replace(plan, max_reads=1)
        by_groups = plan.clipping == "groups"
        temperatures = None if by_groups else pointed_temperatures(plan.num_layers)
        scene = scene_for(plan, canary=canary, temperatures=temperatures)
        plan = move_plan(plan, scene)
        module = new_model(model, plan)
        phases = spread(module, seed=_WEIGHTS_SEED) if by_groups else pointed(module)
        there, empty = (
            World(
                graph=graph,
                plan=plan,
                model=model,
                key_seed=scene.key_seed,
                phases=phases,
                plant=plant_nothing if fault is None else get_fault(fault).plant,
                remember=remember,
                secure=secure,
            )
            for graph in (scene.graph, scene.emptied)
        )
        sums = zip(there.sums(), empty.sums(), strict=True)
        lines = [Line.between(*each, there.sigmas(), (there.roots, empty.roots)) for each in sums]
        return cls(plan=plan, model=model, canary=canary, fault=fault, there=there, empty=empty, lines=lines)

    def affordable_trials(self) -> int:
        """As many trials a world as fit into ten to twenty seconds."""
        world, steps = self.there, self.plan.steps
        cost = sum(parameter.numel() for parameter in world.new_model().parameters())
        most = _DRAWS // (2 * cost * steps) if world.stacks else _STEPS // (2 * steps)
        return max(_FEWEST, min(_MOST, most))

    def audit(
        self,
        with_row: Floats,
        without_row: Floats,
        *,
        numbers: NumbersAudit | None = None,
        confidence: float,
        seed: int | None,
        begin: float,
        path: str = "loop",
    ) -> Audit:
        """What these trials show."""
        plan = self.plan
        shifts = [self.lines[step % len(self.lines)].shift for step in range(plan.steps)]
        return Audit(
            plan=plan,
            claimed=plan.epsilon,
            by_curve=curve_lower_bound(with_row, without_row, plan=plan, confidence=confidence),
            by_event=epsilon_lower_bound(with_row, without_row, delta=plan.delta, confidence=confidence),
            numbers=numbers,
            model=self.model,
            canary=self.canary,
            fault=self.fault,
            path=path,
            secure_noise=self.there.secure,
            trials=len(with_row),
            shift=math.hypot(*shifts),
            shift_at_most=math.sqrt(plan.steps) * (2 * plan.changed_trees - 1) / plan.sigma_over_clip,
            seed=seed,
            seconds=time.monotonic() - begin,
            with_row=with_row,
            without_row=without_row,
        )


def _seeds(seed: int | None) -> tuple[int | None, int | None]:
    """One for each world; none where none was given."""
    if seed is None:
        return None, None
    first, second = np.random.SeedSequence(seed).generate_state(2, np.uint32)
    return int(first), int(second)


def planted(plan: PrivacyPlan, fault: str) -> PrivacyPlan:
    """The plan, without noise as yet, of training that has this fault: calibrate it to make its claim."""
    wanted = get_fault(fault)
    values = {field.name: getattr(plan, field.name) for field in fields(PrivacyPlan)}
    return wanted.plan(**{**values, **wanted.changes, "sigma_over_clip": 0.0})
