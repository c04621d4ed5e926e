"""What the budget of the data had spent before this run, and with it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hushgraph._text import rounded_up
from hushgraph.errors import RunError
from hushgraph.privacy.plans import json_number
from hushgraph.report.pages import format_epsilon

if TYPE_CHECKING:
    from hushgraph.privacy.budget import BudgetEntry


def describe_budget(entry: BudgetEntry | None) -> dict[str, Any] | None:
    """Return what was spent before, with and since a run, as JSON values; None for a run without a budget.

    Where the budget does not tell, there is a `problem` instead of figures.
    """
    if entry is None:
        return None
    from hushgraph.privacy.budget import DataBudget
    from hushgraph.privacy.run_charge import compose_charges

    name = Path(entry.file).name
    try:
        budget = DataBudget.open(entry.file)
    except RunError:
        return {"file": name, "problem": "it could not be read when this page was written"}
    runs = [charge.run for charge in budget.charges]
    if entry.run not in runs:
        return {"file": name, "problem": "it has no charge for this run"}
    place = runs.index(entry.run)
    before, until = budget.charges[:place], budget.charges[: place + 1]
    return {
        "file": name,
        "problem": None,
        "total": budget.total,
        "delta": budget.delta,
        "before": json_number(compose_charges(before, budget.delta)),
        "with_this_run": json_number(compose_charges(until, budget.delta)),
        "spent": json_number(budget.spent),
        "runs_before": len(before),
        "runs_since": len(runs) - len(until),
    }


def write_spent(budget: Mapping[str, Any]) -> str:
    """Return "X of Y", what was spent with this run."""
    spent = format_epsilon(budget["with_this_run"])
    return spent if budget["total"] is None else f"{spent} of {rounded_up(budget['total'])}"
