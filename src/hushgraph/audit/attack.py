"""`audit_plan`: a lower bound on epsilon for a plan, by attacking its training."""

from __future__ import annotations

import math
import time
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import numpy as np

from hushgraph.audit.faults import fault_called
from hushgraph.audit.likelihood import Line, log_ratio
from hushgraph.audit.scene import Scene, scene_for
from hushgraph.audit.statistics import Floats, LowerBound, check_confidence, epsilon_lower_bound
from hushgraph.audit.trials import Attacked, Observer, World
from hushgraph.audit.weights import new_model, pointed, spread
from hushgraph.errors import InputError, PlanError
from hushgraph.privacy.plan import PrivacyPlan

# Group thresholds below every group's gradient, so that each group is clipped. Epsilon does not depend on C.
_SMALL_CLIP = 1e-3
_WEIGHTS_SEED = 3
_MODELS = ("gcn", "gin", "gat", "mlp")
_STEPS_IN_ALL, _FEWEST, _MOST = 4_000_000, 1_000, 20_000


@dataclass(frozen=True, kw_only=True)
class Audit:
    """A plan, what was done to it, and what came out.

    Attributes:
        plan: the plan that was attacked: the one given, on the graph of the attack.
        claimed: its epsilon.
        found: the lower bound.
        model, canary, fault, secure_noise: what was attacked; `fault` is None for the code as it is.
        path: "loop" where the training loop was run over and over, "train" where `hushgraph.train` was.
        trials: per world, those that chose the threshold included.
        shift: how far the canary moves the released sums, all steps together, in units of the noise.
        shift_at_most: the same for the pair that prices the plan, were every batch whole.
        seed: None where the operating system gave it.
        seconds: how long it took.
        with_row, without_row: [trials], the statistic.
    """

    plan: PrivacyPlan
    claimed: float
    found: LowerBound
    model: str
    canary: str
    fault: str | None
    path: str
    secure_noise: bool
    trials: int
    shift: float
    shift_at_most: float
    seed: int | None
    seconds: float
    with_row: Floats
    without_row: Floats

    @property
    def exceeds(self) -> bool:
        """Whether more was shown than is claimed: the claim is then false, at the confidence of `found`."""
        return self.found.epsilon > self.claimed

    @property
    def guarantee(self) -> str:
        """That of the plan; "none" where the loop or the plan was broken on purpose."""
        broken = self.fault is not None and self.plan.guarantee == "holds"
        return "none" if broken else self.plan.guarantee

    def record(self) -> dict[str, Any]:
        """Everything but the trials, for JSON."""
        plan = self.plan
        return {
            "lower_bound": self.found.epsilon,
            "claimed_epsilon": self.claimed if math.isfinite(self.claimed) else "inf",
            "exceeds": self.exceeds,
            "fault": self.fault,
            "model": self.model,
            "canary": self.canary,
            "path": self.path,
            "secure_noise": self.secure_noise,
            "layers": plan.num_layers,
            "train_nodes": plan.num_train_nodes,
            **{name: value for name, value in plan.summary().items() if name != "epsilon"},
            "guarantee": self.guarantee,
            "clipping": plan.clipping,
            "noise": plan.noise,
            "trials": self.trials,
            "shift": self.shift,
            "shift_at_most": self.shift_at_most,
            **{f"bound_{name}": value for name, value in asdict(self.found).items() if name != "epsilon"},
            "seed": self.seed,
            "seconds": round(self.seconds, 2),
        }


def audit_plan(
    plan: PrivacyPlan,
    *,
    model: str = "gcn",
    canary: str = "strongest",
    trials: int | None = None,
    confidence: float = 0.95,
    fault: str | None = None,
    remember: bool = True,
    secure_noise: bool = False,
    seed: int | None = None,
    observer: Observer | None = None,
) -> Audit:
    """Attack training under `plan` and bound its epsilon from below.

    Small graphs are made in which one row, the canary's, changes as many trees as the plan allows. The loop
    is run many times with that row and many times without, every noisy sum is seen by an optimiser of the
    attacker's, and how well the two can be told apart bounds epsilon. No data is read.

    Args:
        plan: with noise. Its depth, K, D, edge owner, sampler, accountant, clipping, noise, steps, sampling
            rate and delta are attacked; its number of training nodes becomes that of the made graph.
        model: "gcn", "gin", "gat" or "mlp", of a few hidden units and chosen weights.
        canary: "strongest", "read" or "hub", see `scene.scene_for`.
        trials: per world; half of them choose the threshold. By default 20,000, fewer of more than 200 steps.
        confidence: of the bound.
        fault: the name of a mistake to plant, see `faults.FAULTS`.
        remember: False computes every clipped sum anew in every trial, which is slow.
        secure_noise: attack training with `secure_noise`, which cannot be seeded.
        seed: makes the audit reproducible.
        observer: called with the number of trials done since it was last called.

    Guarantees:
        With probability at least `confidence` the bound is at most the epsilon at the plan's delta of the
        training that was attacked. A bound above the claim refutes the claim; one below proves nothing.

    Examples:
        >>> from hushgraph import PrivacyPlan
        >>> from hushgraph.audit import audit_plan
        >>> plan = PrivacyPlan(num_train_nodes=100, num_layers=1, max_readers=2, batch_size=100, steps=2)
        >>> audit = audit_plan(plan.calibrated(epsilon=4.0), trials=500)
        >>> audit.found.epsilon <= audit.claimed
        True
    """
    begin = time.monotonic()
    check_confidence(confidence)
    if trials is None:
        trials = max(_FEWEST, min(_MOST, _STEPS_IN_ALL // max(1, plan.steps)))
    if trials < 10:
        raise InputError(f"trials={trials}: expected at least 10")
    stage = Stage.of(plan, model=model, canary=canary, fault=fault, remember=remember, secure=secure_noise)
    directions = [line.direction for line in stage.lines]
    seen = [
        world.released(directions, trials=trials, seed=own, observer=observer)
        for world, own in zip((stage.there, stage.empty), _seeds(seed), strict=True)
    ]
    with_row, without_row = (log_ratio(each, stage.lines, stage.plan) for each in seen)
    return stage.audit(with_row, without_row, confidence=confidence, seed=seed, begin=begin)


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
        secure: bool = False,
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
        scene = scene_for(plan, canary=canary)
        plan = _on(plan, scene)
        module = new_model(model, plan)
        by_groups = plan.clipping == "groups"
        phases = spread(module, seed=_WEIGHTS_SEED) if by_groups else pointed(module)
        there, empty = (
            World(
                graph=graph,
                plan=plan,
                model=model,
                key_seed=scene.key_seed,
                phases=phases,
                trainer=Attacked if fault is None else fault_called(fault).trainer,
                remember=remember,
                secure=secure,
            )
            for graph in (scene.graph, scene.emptied)
        )
        sums = zip(there.sums(), empty.sums(), strict=True)
        lines = [Line.between(*each, there.sigmas(), (there.roots, empty.roots)) for each in sums]
        return cls(plan=plan, model=model, canary=canary, fault=fault, there=there, empty=empty, lines=lines)

    def audit(
        self,
        with_row: Floats,
        without_row: Floats,
        *,
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
            found=epsilon_lower_bound(with_row, without_row, delta=plan.delta, confidence=confidence),
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


def _on(plan: PrivacyPlan, scene: Scene) -> PrivacyPlan:
    """The plan with the training nodes of the made graph, the same noise and nearly the same batches."""
    nodes = len(scene.graph.train_idx)
    rate = plan.sampling_rate
    changes: dict[str, Any] = {"num_train_nodes": nodes, "batch_size": max(1, round(rate * nodes))}
    if plan.clipping == "groups":
        changes["clip"] = _SMALL_CLIP
    made = replace(plan, **changes)
    return replace(made, noise_multiplier=plan.sigma_over_clip / (2 * made.changed_trees))


def _seeds(seed: int | None) -> tuple[int | None, int | None]:
    """One for each world; none where none was given."""
    if seed is None:
        return None, None
    first, second = np.random.SeedSequence(seed).generate_state(2, np.uint32)
    return int(first), int(second)


def planted(plan: PrivacyPlan, fault: str) -> PrivacyPlan:
    """The plan, without noise as yet, of training that has this fault: calibrate it to make its claim."""
    wanted = fault_called(fault)
    values = {field.name: getattr(plan, field.name) for field in fields(PrivacyPlan)}
    return wanted.plan(**{**values, **wanted.changes, "noise_multiplier": None})
