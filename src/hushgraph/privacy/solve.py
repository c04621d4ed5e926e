"""A plan with the figure that it was solved for, and the plans that differ in one choice."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from hushgraph.privacy.guarantee import Assumption
from hushgraph.privacy.plans import PrivacyPlan


@dataclass(frozen=True, kw_only=True)
class Solved:
    """A solved plan.

    Attributes:
        plan: the plan, with noise.
        solved_for: the figure that was left out: "steps", "sigma-over-clip" or "epsilon".
        notes: settings that were chosen, as sentences.
        assumptions: what its guarantee takes as public although nobody declared it.
        task: what is asked of a node; None where that is not known.
    """

    plan: PrivacyPlan
    solved_for: str
    notes: tuple[str, ...]
    assumptions: tuple[Assumption, ...] = ()
    task: str | None = None


def neighbours(plan: PrivacyPlan) -> list[tuple[str, PrivacyPlan]]:
    """Return plans that differ in one setting and add the same noise (sigma / C), each with a label.

    None where the noise follows from the other settings.
    """
    if not plan.takes_noise:
        return []
    K, D, batch, steps = plan.max_readers, plan.max_reads, plan.batch_size, plan.steps
    changes: list[tuple[str, dict[str, Any]]] = []
    if plan.num_layers > 0:
        for readers in sorted({0, K // 2, max(1, 2 * K)} - {K}):
            changes.append((f"K = {readers}", {"max_readers": readers}))
        if D is not None and plan.edge_owner == "reader":
            for reads in sorted({max(1, D // 2), max(1, 2 * D)} - {D}):
                changes.append((f"D = {reads}", {"max_reads": reads}))
    for size in sorted({max(1, batch // 2), min(2 * batch, plan.num_train_nodes)} - {batch}):
        changes.append((f"batch = {size}", {"batch_size": size}))
    for count in sorted({max(1, steps // 2), max(1, 2 * steps)} - {steps}):
        changes.append((f"steps = {count}", {"steps": count}))
    return [(label, replace(plan, **change)) for label, change in changes]
