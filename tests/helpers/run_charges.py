"""Charges of runs that are not trained, in a budget."""

from __future__ import annotations

from hushgraph.privacy.budget import DataBudget
from hushgraph.privacy.run_charge import RunCharge


def write_charge(budget: DataBudget, charge: RunCharge) -> None:
    """Write a charge, unless its run was charged before."""
    with budget.charging(charge):
        pass
