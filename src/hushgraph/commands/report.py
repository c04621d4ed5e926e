"""`hushgraph report`: the page for a privacy reviewer."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def report(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a finished run.")],
    data: Annotated[
        str | None, typer.Argument(metavar="DATA", help="What it was trained on, for results per class.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="The page; its JSON twin is beside it.", show_default="RUN/report.html"),
    ] = None,
) -> None:
    """Write the report of a run: the guarantee in words and figures, for a privacy reviewer."""
    from hushgraph.comparing import comparison_of
    from hushgraph.report import write_report

    page = run / "report.html" if out is None else out
    write_report(run, page, data=data, comparison=comparison_of(run))
    typer.echo(f"Report in {page}, the same facts in {page.with_suffix('.json')}.")
