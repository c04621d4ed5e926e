"""`hushgraph predict`: the class of every node."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def predict(
    run: Annotated[Path, typer.Argument(help="Folder of a finished run.")],
    data: Annotated[str, typer.Argument(help="The graph: its own or another one; no split is needed.")],
    out: Annotated[Path, typer.Option(help="The file to write: .csv or .npz.")],
    probabilities: Annotated[
        bool, typer.Option("--probabilities", help="Write them too, one column a class.")
    ] = False,
    symmetrize: Annotated[
        bool | None, typer.Option(help="Add reverse edges.", show_default="as in training")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it exists.")] = False,
    device: Annotated[str, typer.Option(metavar="auto|cpu|cuda", help="Where to compute.")] = "auto",
    quiet: Annotated[bool, typer.Option("--quiet", help="Print only errors.")] = False,
) -> None:
    """Predict the class of every node of a graph with a trained model."""
    from hushgraph import predictions

    predictions.check_out(out, force=force)
    from hushgraph.finished_run import Run

    found = Run.load(run, device=device).probabilities(data, symmetrize=symmetrize)
    predictions.save(out, found, with_probabilities=probabilities)
    if not quiet:
        typer.echo(f"{len(found):,} predictions in {out}. {predictions.NOT_COVERED}")
