"""`hushgraph predict`: the class of every node."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from hushgraph.cli import options, terminal
from hushgraph.cli.options import section

EXAMPLES = """\
hushgraph predict runs/people-gcn-1 people.npz --out classes.csv
hushgraph predict runs/people-gcn-1 more.npz --out more.npz --probabilities"""

_COVERED = (
    "A prediction is computed from the node's own row, the boards and the weights: it is covered towards "
    "everybody else."
)

_output = section("Run and output")


def predict(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a finished run.")],
    data: Annotated[
        str, options.data_argument("The graph: its own or another; labels and splits are not read.")
    ],
    out: Annotated[Path, _output("The file to write: .csv or .npz.")],
    probabilities: Annotated[
        bool, _output("Write them too, one column a class. [classes alone]", "--probabilities")
    ] = False,
    in_the_clear: Annotated[
        bool, _output("Of a billboard: read neighbours too, not covered. [covered]", "--in-the-clear")
    ] = False,
    symmetrize: Annotated[bool | None, section("Data")("Add reverse edges. [as in training]")] = None,
    force: Annotated[bool, _output("Replace the file if it exists. [refuse]", "--force")] = False,
    device: options.Device = options.DEVICE,
    edges: options.PlainEdges = None,
    data_root: options.DataRoot = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Predict the class of every node with a trained model."""
    with terminal.status("Loading PyTorch", quiet=as_json or quiet) as line:
        from hushgraph.inference import predictions

        predictions.check_out(out, force=force)
        from hushgraph.training.run import Run

        line.show(f"Loading {run}")
        loaded = Run.load(run, device=device)
        terminal.show_loading(line, data)
        source = options.join_edges(data, edges)
        if loaded.plan.covers_predictions:
            # A board belongs to one graph, which is read as it was for training.
            graph = loaded.folder.read_graph(source)
        else:
            graph = loaded.read(source, symmetrize=symmetrize)
        line.show("Predicting")
        scores = loaded.predict_proba(graph, symmetrize=False, in_the_clear=in_the_clear)
        predictions.save(
            out,
            scores,
            with_probabilities=probabilities,
            node_names=graph.node_names,
            class_names=loaded.folder.class_names,
        )
    holds = loaded.result["guarantee"] == "holds"
    is_covered = holds and loaded.plan.covers_predictions and not in_the_clear
    if as_json:
        about = {"out": str(out), "run": str(run), "nodes": len(scores), "classes": scores.shape[1]}
        typer.echo(json.dumps(about | {"probabilities": probabilities, "covered": is_covered}))
    elif not quiet:
        note = _COVERED if is_covered else predictions.NOT_COVERED
        typer.echo(f"{len(scores):,} predictions in {out}. {note}")
