"""`hushgraph report`: the page for a privacy reviewer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from hushgraph.cli import options, terminal
from hushgraph.cli.compare import read_comparison
from hushgraph.cli.options import section

EXAMPLES = """\
hushgraph report runs/people-gcn-1
hushgraph report runs/people-gcn-1 people.npz --out review.html"""


def report(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a finished run.")],
    data: Annotated[
        str | None, options.data_argument("What it was trained on, for results per class.")
    ] = None,
    out: Annotated[
        Path | None,
        section("Run and output")("The page; its JSON twin is beside it. [RUN/report.html]"),
    ] = None,
    edges: options.PlainEdges = None,
    data_root: options.DataRoot = None,
    as_json: options.Json = False,
) -> None:
    """Write the page of a run for a privacy reviewer.

    The guarantee in words and figures, what it covers and what it does not; one file that needs no network.
    """
    with terminal.status("Writing the report" if data is None else "Loading PyTorch", quiet=as_json) as line:
        from hushgraph.report import write_report
        from hushgraph.runs.folder import RunFolder
        from hushgraph.training.run import Run

        page = run / "report.html" if out is None else out
        if data is not None:
            terminal.show_loading(line, data)
        comparison = read_comparison(run)
        if data is None:
            # Without weights, so that it works for a module of the user's own too.
            compared = None if comparison is None else json.loads(comparison.to_json())
            write_report(RunFolder.open(run), page, comparison=compared)
        else:
            Run.load(run).report(page, data=options.join_edges(data, edges), comparison=comparison)
    facts = page.with_suffix(".json")
    if as_json:
        typer.echo(json.dumps({"out": str(page), "facts": str(facts), "run": str(run)}))
    else:
        typer.echo(f"Report in {page}, the same facts in {facts}.")
