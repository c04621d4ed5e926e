"""Plans whose noise is given as the paper's multiplier."""

from __future__ import annotations

from typing import Any

from hushgraph.privacy.plans import PrivacyPlan, RowPlan, TreePlan


def plan_steps(**fields: Any) -> PrivacyPlan:
    """A plan of trees, or of rows where there are no layers."""
    kind = TreePlan if fields.get("num_layers") else RowPlan
    return kind(**fields)


def make_plan(*, paper_noise_multiplier: float = 0.0, **fields: Any) -> PrivacyPlan:
    """A plan of trees or rows with the noise sigma = 2 C n `paper_noise_multiplier`."""
    return plan_steps(**fields).with_paper_noise(paper_noise_multiplier)
