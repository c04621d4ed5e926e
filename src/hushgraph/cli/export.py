"""`hushgraph export`: a released model for programs that do not have hushgraph."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hushgraph.cli import options, terminal
from hushgraph.cli.options import section

EXAMPLES = """\
hushgraph export runs/people-billboard-1 --out served
hushgraph export runs/people-billboard-1/release --out served --json"""

_output = section("Run and output")


def export(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a finished run, or RUN/release.")],
    out: Annotated[Path, _output("The folder to write, new or empty.")],
    as_json: options.Json = False,
) -> None:
    """Write a released model as ONNX, with the board as Parquet.

    From what was released and nothing else. README.md in the folder has the few lines of Python that serve it
    without hushgraph.
    """
    with terminal.status("Loading PyTorch", quiet=as_json) as line:
        from hushgraph.export.bundle import export_run

        line.show(f"Exporting {run}")
        place = export_run(run, out)
        files = sorted(file.name for file in place.iterdir())
    facts = {"run": str(run), "out": str(place), "files": files}
    terminal.finish(
        facts, f"{', '.join(files)} in {place}. README.md says how to serve them.", as_json=as_json
    )
