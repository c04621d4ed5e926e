"""The epsilon that a proof covers for a run of the paper's method, or the reason why there is none."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from hushgraph._text import rounded_up
from hushgraph.errors import PlanError
from hushgraph.privacy.guarantee import WHY_UNPROVEN
from hushgraph.privacy.plans import PrivacyPlan

SEED_NOTE = (
    "Runs are seeded, so that a record can be made again; a seeded run is reproducible, not private. Every "
    "epsilon is that of the same run without a seed."
)


@dataclass(frozen=True, kw_only=True)
class ProvenEpsilon:
    """What is proven about the privacy of a run.

    Attributes:
        holds: the epsilon that a proof covers; None if there is none.
        if_public: the epsilon that would hold if the clipping thresholds did not depend on private gradients;
            None if none would hold even then.
        reason: the reason, in words.
    """

    holds: float | None
    if_public: float | None
    reason: str


def find_proven_epsilon(plan: PrivacyPlan, groups: int) -> ProvenEpsilon:
    """Return what is proven about a plan whose model has `groups` separately clipped groups of parameters.

    Guarantees:
        A plan with any unproven part has no epsilon that holds.
    """
    if not plan.is_private:
        return ProvenEpsilon(holds=None, if_public=None, reason="none: trained without noise")
    if plan.guarantee == "holds":
        reason = "every part is covered by a proof"
        return ProvenEpsilon(holds=plan.epsilon, if_public=plan.epsilon, reason=reason)
    reasons = "; ".join(WHY_UNPROVEN[reason] for reason in plan.unproven)
    if not reasons:
        reason = "none: no finite epsilon can be shown for this noise"
        return ProvenEpsilon(holds=None, if_public=None, reason=reason)
    if_public = _epsilon_with_public_thresholds(plan, groups)
    addition = (
        ""
        if if_public is None
        else ". Were the thresholds public, noise and batches would be worth epsilon = "
        + rounded_up(if_public)
    )
    return ProvenEpsilon(holds=None, if_public=if_public, reason=f"none: {reasons}{addition}")


def _epsilon_with_public_thresholds(plan: PrivacyPlan, groups: int) -> float | None:
    """Return epsilon of the same noise and batches; None if the sampler has no bound."""
    if any("sampler" in reason for reason in plan.unproven):
        return None
    # One root changes every group by its own threshold: noise scaled to each group is sqrt(groups) too small.
    scale = math.sqrt(groups) if plan.noise == "per-layer" else 1.0
    try:
        epsilon = replace(plan, sigma_over_clip=plan.sigma_over_clip / scale).epsilon
    except PlanError:
        return None
    return epsilon if math.isfinite(epsilon) else None
