"""What an audit shows: bounds beside claims."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from hushgraph.audit.checks import Check
from hushgraph.audit.curve import Charges, CurveBound, curve_lower_bound
from hushgraph.audit.numbers import NumbersAudit
from hushgraph.audit.statistics import Floats, LowerBound, epsilon_lower_bound
from hushgraph.privacy.guarantee import Assumption, write_assumptions
from hushgraph.privacy.plans import PrivacyPlan, json_number


@dataclass(frozen=True, kw_only=True)
class Attack:
    """One attack, beside the claim that it is about.

    Attributes:
        name: what was attacked.
        claimed: the epsilon that is claimed for it.
        by_curve, by_event: the lower bounds, as in `Audit`.
        trials: per world.
    """

    name: str
    claimed: float
    by_curve: CurveBound | None
    by_event: LowerBound
    trials: int

    @classmethod
    def measure(
        cls,
        name: str,
        with_row: Floats,
        without_row: Floats,
        *,
        claimed: float,
        plan: PrivacyPlan,
        charges: Charges | None = None,
        confidence: float,
    ) -> Attack:
        """Bound epsilon by the statistic of both worlds; `charges` are what makes the claim."""
        return cls(
            name=name,
            claimed=claimed,
            by_curve=curve_lower_bound(
                with_row, without_row, plan=plan, charges=charges, confidence=confidence
            ),
            by_event=epsilon_lower_bound(with_row, without_row, delta=plan.delta, confidence=confidence),
            trials=len(with_row),
        )

    @property
    def lower_bound(self) -> float:
        """The bound by the trade-off curve, or the one that assumes nothing where there is no curve."""
        return self.by_event.epsilon if self.by_curve is None else self.by_curve.epsilon

    @property
    def most_shown(self) -> float:
        """The larger of both lower bounds."""
        return max(self.lower_bound, self.by_event.epsilon)

    @property
    def exceeds(self) -> bool:
        """Whether a lower bound is above the claim."""
        return self.most_shown > self.claimed

    def record(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "name": self.name,
            "lower_bound": self.lower_bound,
            "lower_bound_by_event": self.by_event.epsilon,
            "claimed_epsilon": self.claimed,
            "exceeds": self.exceeds,
            "trials": self.trials,
            "confidence": self.by_event.confidence,
        }


@dataclass(frozen=True, kw_only=True)
class Audit(Attack):
    """A plan, what was done to it, and what came out; it is its own first attack, on everything released.

    Attributes:
        name: what was released.
        claimed: epsilon of the plan.
        by_curve: the lower bound if the mechanism has a trade-off curve of the priced family; None for
            batches of fixed size.
        by_event: the lower bound that assumes nothing.
        trials: per world, those that chose the threshold included.
        plan: the plan that was attacked: the one given, on the graph of the attack.
        numbers: what attacks on floating-point numbers found; None where they were not tried.
        model, canary, fault: what was attacked; `fault` is None for the code as it is.
        shift: how far the canary moves the released sums, all steps together, in units of the noise.
        shift_at_most: the same for the pair that prices the plan, were every batch whole.
        seed: None where the operating system gave it.
        seconds: how long it took.
        attacks: further attacks, each beside a claim of its own.
        others_changed: rows of other people whose reading or prediction differs between the worlds, given the
            same boards and weights; None where predictions are not covered.
        assumptions: what the guarantee takes as public although nobody declared it.
        checks: plain checks of what real runs released.
    """

    plan: PrivacyPlan
    numbers: NumbersAudit | None = None
    model: str
    canary: str
    fault: str | None = None
    shift: float
    shift_at_most: float
    seed: int | None = None
    seconds: float = 0.0
    attacks: tuple[Attack, ...] = ()
    others_changed: int | None = None
    assumptions: tuple[Assumption, ...] = ()
    checks: tuple[Check, ...] = ()

    @property
    def bound_exceeds(self) -> bool:
        """Whether a lower bound is above its claim, which is then false at the bound's confidence."""
        return super().exceeds or any(attack.exceeds for attack in self.attacks)

    @property
    def exceeds(self) -> bool:
        """Whether more was shown than is claimed: by a bound, digits, predictions that change or a check."""
        by_numbers = self.numbers is not None and self.numbers.exceeds
        return self.bound_exceeds or by_numbers or bool(self.others_changed) or bool(self.failed_checks)

    @property
    def failed_checks(self) -> tuple[Check, ...]:
        """The plain checks that failed."""
        return tuple(check for check in self.checks if check.failure)

    @property
    def guarantee(self) -> str:
        """The guarantee of the plan; "none" where the loop or the plan was broken on purpose."""
        broken = self.fault is not None and self.plan.guarantee == "holds"
        return "none" if broken else self.plan.guarantee

    def record(self) -> dict[str, Any]:
        """Everything but the trials, for JSON."""
        plan = self.plan
        curve = {} if self.by_curve is None else asdict(self.by_curve)
        if curve and math.isinf(curve["noise_at_most"]):
            curve["noise_at_most"] = "inf"
        return {
            "lower_bound": self.lower_bound,
            "lower_bound_by_event": self.by_event.epsilon,
            "claimed_epsilon": json_number(self.claimed),
            "exceeds": self.exceeds,
            "attacked": self.name,
            "fault": self.fault,
            "model": self.model,
            "canary": self.canary,
            # Real runs are attacked.
            "path": "session",
            "secure_noise": self.fault != "float-noise",
            "layers": plan.num_layers,
            "train_nodes": plan.num_train_nodes,
            **{name: value for name, value in plan.summary().items() if name != "epsilon"},
            "guarantee": self.guarantee,
            "assumptions": write_assumptions(self.assumptions),
            "clipping": plan.clipping,
            "noise": plan.noise,
            "trials": self.trials,
            "shift": self.shift,
            "shift_at_most": self.shift_at_most,
            **{f"bound_{name}": value for name, value in asdict(self.by_event).items() if name != "epsilon"},
            **{f"curve_{name}": value for name, value in curve.items() if name != "epsilon"},
            "attacks": [attack.record() for attack in self.attacks],
            "others_changed": self.others_changed,
            "checks": [asdict(check) for check in self.checks],
            "numbers": None if self.numbers is None else self.numbers.record(),
            "seed": self.seed,
            "seconds": round(self.seconds, 2),
        }
