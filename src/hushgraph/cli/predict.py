"""`hushgraph predict`: the class, the labels or the number of every node."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from hushgraph.cli import options, terminal
from hushgraph.cli.options import section

EXAMPLES = """\
hushgraph predict runs/people-gcn-1 people.npz --out classes.csv
hushgraph predict runs/people-gcn-1 more.npz --out p.parquet --probabilities
hushgraph predict runs/people-billboard-1 new.csv --edges lists.csv --new \\
    --out p.csv
hushgraph predict runs/bank-billboard-1 bank --out flags.csv --top 1%"""

_output = section("Run and output")


def predict(
    run: Annotated[
        Path, typer.Argument(metavar="RUN", help="Folder of a finished run, RUN/release or an address.")
    ],
    data: Annotated[
        str,
        options.data_argument(
            "Billboard runs: the training graph, or new nodes with --new. Other runs: any graph."
        ),
    ],
    out: Annotated[
        str,
        _output("The file to write: .csv, .parquet or .npz; of Spark, a folder of Parquet.", metavar="PATH"),
    ],
    probabilities: Annotated[
        bool,
        _output("Write probabilities too, one column per class or label. [predictions]", "--probabilities"),
    ] = False,
    threshold: Annotated[
        float | None, _output("Flag scores above it: a probability, or the number. [no flags]", metavar="T")
    ] = None,
    top: Annotated[
        str | None, _output("Flag at most about this share, by released score bins. [no flags]", metavar="1%")
    ] = None,
    new: Annotated[
        bool, _output("DATA is nodes that were not there at training. [nodes of the graph]", "--new")
    ] = False,
    in_the_clear: Annotated[
        bool, _output("Billboard runs: read neighbours too; not covered. [covered]", "--in-the-clear")
    ] = False,
    symmetrize: Annotated[bool | None, section("Data")("Add reverse edges. [as in training]")] = None,
    force: Annotated[bool, _output("Replace the file if it exists. [refuse]", "--force")] = False,
    engine: Annotated[
        str,
        _output(
            "As in train: or Spark's master. [memory]",
            metavar="auto|memory|duckdb|spark|MASTER",
        ),
    ] = "memory",
    memory: Annotated[
        str | None, _output("What the engine may use, such as 8GiB. [4GiB]", metavar="SIZE")
    ] = None,
    device: options.Device = "auto",
    edges: options.Edges = None,
    data_root: options.DataRoot = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Predict every node with a trained model.

    --threshold and --top add a column of flags. A threshold of --top is read off what the run released, never
    by rank: whether a node is flagged does not depend on the scores of others.
    """
    with terminal.status("Loading PyTorch", quiet=as_json or quiet) as line:
        from hushgraph.inference.predictions import check_out

        check_out(out, force=force)
        from hushgraph._text import is_elsewhere
        from hushgraph.datasets.engine import use_engine
        from hushgraph.training.run import Run

        given = {"engine": engine, "memory": memory, "data": data, "edges": edges}
        chosen = options.choose_engine(given, line, is_silent=as_json or quiet)
        line.show(f"Loading {run}")
        tables = options.join_edges(data, edges)
        beside = None if is_elsewhere(out) else Path(out)
        with use_engine(chosen["engine"], tables, memory=chosen["memory"], beside=beside) as is_on_disk:
            loaded = Run.load(run, device="cpu" if is_on_disk and device == "auto" else device)
            terminal.show_loading(line, data)
            summary = loaded.write_predictions(
                tables,
                out,
                probabilities=probabilities,
                force=force,
                new=new,
                symmetrize=symmetrize,
                in_the_clear=in_the_clear,
                threshold=threshold,
                top=top,
            )
    about = summary.to_json()
    if as_json:
        typer.echo(json.dumps({"out": out, "run": str(run), "probabilities": probabilities, **about}))
    elif not quiet:
        count = about["nodes"]
        typer.echo(f"{count:,} prediction{'s' * (count != 1)} in {out}. {summary.explanation}")
        typer.echo("\n".join(summary.to_lines()))
        terminal.warn((), summary.notes)
