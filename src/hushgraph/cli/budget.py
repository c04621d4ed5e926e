"""`hushgraph budget`: what was spent on a data set, by what, and what is left."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hushgraph._text import digits_up, rounded_up
from hushgraph.cli import options, terminal
from hushgraph.cli.options import section
from hushgraph.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console

EXAMPLES = """\
hushgraph budget people.ledger --epsilon 10 --delta 1e-6
hushgraph budget people.ledger
hushgraph budget people.ledger --json"""

_total = section("A new budget")


def budget(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The budget of a data set.")],
    epsilon: Annotated[
        float | None, _total("The limit for all runs together. [no limit, only a record]")
    ] = None,
    delta: Annotated[float | None, _total("The delta of the total: at most 1 / (10 N).")] = None,
    as_json: options.Json = False,
) -> None:
    """Show what was spent on a data set, by what, and what is left.

    With --delta, and --epsilon for a total, a new budget is set up. Runs charge it with --budget FILE. It
    knows no data: keep one per data set, together with FILE.runs, its copies of ledgers.
    """
    if epsilon is not None and delta is None:
        raise InputError("--epsilon without --delta: a total has both; give --delta too, such as 1e-6")
    with terminal.status("Adding up the charges", quiet=as_json):
        from hushgraph.privacy.budget import DataBudget

        opened = (
            DataBudget.open(file) if delta is None else DataBudget.create(file, epsilon=epsilon, delta=delta)
        )
        facts = opened.to_json()
    if as_json:
        typer.echo(json.dumps(facts, allow_nan=False))
    else:
        _show(facts, terminal.console())


def _show(facts: dict[str, Any], screen: Console) -> None:
    """Print one line a charge, then the total and what is left."""
    from rich.markup import escape
    from rich.table import Table

    delta = f"delta = {digits_up(facts['delta'])}"
    if facts["charges"]:
        table = Table(box=None, pad_edge=False)
        for heading in ("time (UTC)", "command", "data", "folder of the run"):
            table.add_column(heading, overflow="fold")
        table.add_column("epsilon alone", justify="right")
        for charge in facts["charges"]:
            alone = rounded_up(float(charge["epsilon_at_budget_delta"]))
            texts = (charge["time"][:19], charge["command"], charge["data"], charge["folder"])
            table.add_row(*map(escape, texts), alone)
        screen.print(table, highlight=False)
        screen.print()
    spent, total = float(facts["epsilon_spent"]), facts["total_epsilon"]
    terminal.print_line(
        screen,
        f"Spent: epsilon {rounded_up(spent)} at {delta} by {len(facts['charges'])} "
        f"charge{'s' * (len(facts['charges']) != 1)} together ({facts['composition']}); "
        f"the sum of each alone is {rounded_up(float(facts['epsilon_sum']))}.",
    )
    if total is None:
        terminal.print_line(screen, "No total is set: charges are recorded, and nothing is refused.")
    else:
        left = math.floor(facts["epsilon_left"] * 100) / 100
        terminal.print_line(
            screen, f"Left: {left:.2f} of {total:g}. A run that would exceed the total is refused."
        )
