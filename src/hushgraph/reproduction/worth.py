"""What the noise of a run is worth: the epsilon that holds, or why there is none."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from hushgraph._text import rounded_up
from hushgraph.errors import PlanError
from hushgraph.privacy.guarantee import WHY_UNPROVEN
from hushgraph.privacy.plan import PrivacyPlan

SEEDED = (
    "Runs are seeded, so that a record can be made again; a seeded run is reproducible, not private. Every "
    "epsilon is that of the same run without a seed."
)


@dataclass(frozen=True, kw_only=True)
class Worth:
    """What can be said of a run's privacy.

    Attributes:
        holds: the epsilon that a proof covers; None where there is none.
        if_public: what noise and batches would be worth, had the thresholds not been read off private
            gradients; None where even then nothing would hold.
        reason: in words.
    """

    holds: float | None
    if_public: float | None
    reason: str


def worth(plan: PrivacyPlan, groups: int) -> Worth:
    """The worth of a plan whose model has `groups` groups of parameters that are clipped apart.

    Guarantees:
        A plan that anything unproven went into has no epsilon that holds.
    """
    if not plan.is_private:
        return Worth(holds=None, if_public=None, reason="none: trained without noise")
    if plan.guarantee == "holds":
        parts = f"{plan.sampler} sampler, {plan.batches} batches, {plan.accountant} accountant"
        return Worth(holds=plan.epsilon, if_public=plan.epsilon, reason=f"{parts}: all covered by a proof")
    reasons = "; ".join(WHY_UNPROVEN[reason] for reason in plan.unproven)
    if not reasons:
        return Worth(holds=None, if_public=None, reason="none: no finite epsilon can be shown for this noise")
    honest = _honest(plan, groups)
    then = (
        ""
        if honest is None
        else f". Were the thresholds public, noise and batches would be worth {_up(honest)}"
    )
    return Worth(holds=None, if_public=honest, reason=f"none: {reasons}{then}")


def _honest(plan: PrivacyPlan, groups: int) -> float | None:
    """Epsilon of the same noise and batches with public thresholds; None where the sampler has no bound."""
    if any("sampler" in reason for reason in plan.unproven):
        return None
    # One root moves every group by its own threshold: noise scaled to each alone is sqrt(groups) too small.
    scale = math.sqrt(groups) if plan.noise == "per-layer" else 1.0
    try:
        found = replace(plan, noise_multiplier=(plan.noise_multiplier or 0.0) / scale).epsilon
    except PlanError:
        return None
    return found if math.isfinite(found) else None


def _up(value: float) -> str:
    return f"epsilon = {rounded_up(value)}"
