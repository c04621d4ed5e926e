"""What a plan guarantees, in words."""

from __future__ import annotations

from hushgraph.privacy.guarantee import Guarantee
from hushgraph.privacy.plans import PrivacyPlan


def sentence(plan: PrivacyPlan) -> str:
    return Guarantee.of(plan).statement.sentence


def statement(plan: PrivacyPlan) -> str:
    return Guarantee.of(plan).statement.to_text()
