"""`hushgraph report`: the page for a privacy reviewer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from hushgraph.cli import tables
from hushgraph.cli.data_root import DataRoot
from hushgraph.cli.help_sections import data_argument, options

EXAMPLES = """\
hushgraph report runs/people-gcn-1
hushgraph report runs/people-gcn-1 people.npz --out review.html"""

_output = options("Options")


def report(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a finished run.")],
    data: Annotated[str | None, data_argument("What it was trained on, for results per class.")] = None,
    out: Annotated[
        Path | None,
        _output("The page; its JSON twin is beside it. [RUN/report.html]"),
    ] = None,
    edges: tables.PlainEdges = None,
    data_root: DataRoot = None,
    as_json: Annotated[bool, _output("One JSON object as the last line of output.", "--json")] = False,
) -> None:
    """Write the page of a run for a privacy reviewer.

    The guarantee in words and figures, what it covers and what it does not; one file that needs no network.
    """
    from hushgraph.cli.comparing import comparison_of
    from hushgraph.report import write_report
    from hushgraph.runs.folder import RunFolder

    page = run / "report.html" if out is None else out
    comparison = comparison_of(run)
    if data is None:
        # Without weights, so that it works for runs of a module of the user's own too.
        compared = None if comparison is None else json.loads(comparison.to_json())
        write_report(RunFolder.open(run), page, comparison=compared)
    else:
        from hushgraph.training.run import Run

        Run.load(run).report(page, data=tables.with_edges(data, edges), comparison=comparison)
    facts = page.with_suffix(".json")
    if as_json:
        typer.echo(json.dumps({"out": str(page), "facts": str(facts), "run": str(run)}))
    else:
        typer.echo(f"Report in {page}, the same facts in {facts}.")
