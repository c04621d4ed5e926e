"""`hushgraph predict`: the class of every node."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from hushgraph.cli import tables
from hushgraph.cli.data_root import DataRoot
from hushgraph.cli.help_sections import data_argument, options

EXAMPLES = """\
hushgraph predict runs/people-gcn-1 people.npz --out classes.csv
hushgraph predict runs/people-gcn-1 more.npz --out more.npz --probabilities"""

_output = options("Options")


def predict(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a finished run.")],
    data: Annotated[str, data_argument("The graph: its own or another; labels and splits are not read.")],
    out: Annotated[Path, _output("The file to write: .csv or .npz.")],
    probabilities: Annotated[
        bool, _output("Write them too, one column a class. [classes alone]", "--probabilities")
    ] = False,
    symmetrize: Annotated[bool | None, _output("Add reverse edges. [as in training]")] = None,
    force: Annotated[bool, _output("Replace the file if it exists. [refuse]", "--force")] = False,
    device: Annotated[str, _output("[auto: a GPU if there is one]", metavar="auto|cpu|cuda")] = "auto",
    edges: tables.PlainEdges = None,
    data_root: DataRoot = None,
    as_json: Annotated[bool, _output("One JSON object as the last line of output.", "--json")] = False,
    quiet: Annotated[bool, _output("Print errors and --json alone.", "--quiet")] = False,
) -> None:
    """Predict the class of every node with a trained model."""
    from hushgraph.inference import predictions

    predictions.check_out(out, force=force)
    from hushgraph.training.run import Run

    loaded = Run.load(run, device=device)
    graph = loaded.read(tables.with_edges(data, edges), symmetrize=symmetrize)
    found = loaded.predict_proba(graph, symmetrize=False)
    predictions.save(
        out,
        found,
        with_probabilities=probabilities,
        node_names=graph.node_names,
        class_names=loaded.folder.class_names,
    )
    if as_json:
        about = {"out": str(out), "run": str(run), "nodes": len(found), "classes": found.shape[1]}
        typer.echo(json.dumps(about | {"probabilities": probabilities, "covered": False}))
    elif not quiet:
        typer.echo(f"{len(found):,} predictions in {out}. {predictions.NOT_COVERED}")
