"""Solve a plan for the figure that is left out, and list the plans that differ in one choice."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from hushgraph.errors import PlanError
from hushgraph.privacy.defaults import LARGEST_BATCH, STEPS
from hushgraph.privacy.fields import check_one_noise
from hushgraph.privacy.guarantee import Assumption
from hushgraph.privacy.plans import PrivacyPlan, RowPlan, TreePlan


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


def solve(
    *,
    steps: int | None,
    sigma_over_clip: float | None,
    paper_noise_multiplier: float | None,
    epsilon: float | None,
    max_reads: int | None,
    batch_size: int | None,
    **fields: Any,
) -> Solved:
    """Solve for the one of steps, noise and epsilon that is None.

    With epsilon alone, the steps are those of a default run.

    Args:
        steps: the number of steps, or None.
        sigma_over_clip, paper_noise_multiplier: the noise in one of its two units, or None.
        epsilon: the target, or None.
        max_reads: D; None is unlimited, or K where reader-owned edges need a bound.
        batch_size: None is the batch size of a default run.
        **fields: the other fields of PrivacyPlan.

    Guarantees:
        If epsilon is given, the epsilon of the plan is at most that.
    """
    notes = []
    check_one_noise(sigma_over_clip, paper_noise_multiplier)
    noise = paper_noise_multiplier if sigma_over_clip is None else sigma_over_clip
    if epsilon is not None and steps is None and noise is None:
        steps = STEPS
        notes.append(f"--steps was not given; a run takes {STEPS} by default.")
    if batch_size is None:
        batch_size = min(fields["num_train_nodes"], LARGEST_BATCH)
        notes.append(f"--batch-size was not given; a run takes {batch_size:,} by default.")
    given = {"steps": steps, "sigma-over-clip": noise, "epsilon": epsilon}
    missing = [name for name, value in given.items() if value is None]
    if len(missing) != 1:
        names = ", ".join(f"--{name}" for name, value in given.items() if value is not None) or "none"
        raise PlanError(
            f"found {names}: expected two of --steps, --sigma-over-clip (or --paper-noise-multiplier) and "
            "--epsilon; the third is solved for"
        )
    needs_bound = (
        fields["sampler"] == "stable" and fields["edge_owner"] == "reader" and fields["num_layers"] > 0
    )
    if needs_bound and max_reads is None and fields["max_readers"] > 0:
        max_reads = fields["max_readers"]
        notes.append(f"--max-reads was not given; reader-owned edges need one, so D = K = {max_reads}.")
    kind = TreePlan if fields["num_layers"] else RowPlan
    plan: PrivacyPlan = kind(
        steps=1 if steps is None else steps,
        max_reads=max_reads,
        batch_size=batch_size,
        **fields,
    )
    if sigma_over_clip is not None:
        plan = replace(plan, sigma_over_clip=sigma_over_clip)
    if paper_noise_multiplier is not None:
        plan = plan.with_paper_noise(paper_noise_multiplier)
    if epsilon is not None:
        plan = plan.calibrated(epsilon=epsilon) if steps is not None else plan.with_steps_for(epsilon=epsilon)
    return Solved(plan=plan, solved_for=missing[0], notes=tuple(notes))


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
