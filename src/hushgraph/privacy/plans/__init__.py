"""Plans: one class a method, siblings behind `PrivacyPlan`. Importing this registers those built in."""

from __future__ import annotations

from hushgraph.privacy.plans.billboard import BillboardPlan
from hushgraph.privacy.plans.plan import (
    FIGURES_ARE,
    PREDICTIONS,
    PrivacyPlan,
    json_number,
)
from hushgraph.privacy.plans.rows import RowPlan
from hushgraph.privacy.plans.trees import LARGEST_TREE, TreePlan, bound_tree_size

__all__ = [
    "FIGURES_ARE",
    "LARGEST_TREE",
    "PREDICTIONS",
    "BillboardPlan",
    "PrivacyPlan",
    "RowPlan",
    "TreePlan",
    "bound_tree_size",
    "json_number",
]
