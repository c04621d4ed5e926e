"""Plans whose noise is given as the paper's multiplier."""

from __future__ import annotations

from typing import Any

from hushgraph.privacy.plans import PrivacyPlan


def make_plan(*, paper_noise_multiplier: float = 0.0, **fields: Any) -> PrivacyPlan:
    """A plan of trees or rows with the noise sigma = 2 C n `paper_noise_multiplier`."""
    return PrivacyPlan(**fields).with_paper_noise(paper_noise_multiplier)
