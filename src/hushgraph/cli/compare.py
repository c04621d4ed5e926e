"""`hushgraph compare` and `hushgraph demo`: five models side by side."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from hushgraph.cli import tables
from hushgraph.cli.config_file import ConfigFile, PrintConfig
from hushgraph.cli.data_root import DataRoot
from hushgraph.cli.failure import fail
from hushgraph.cli.help_sections import data_argument, options
from hushgraph.cli.terminal import console
from hushgraph.comparison import SETTINGS

EXAMPLES = """\
hushgraph compare people.npz --epsilon 4
hushgraph compare people.npz --epsilon 2 --model gat --split 0.6/0.2/0.2 \\
    --out five"""
DEMO_EXAMPLES = """\
hushgraph demo
hushgraph demo --out /tmp/demo --json"""

_model, _reading, _output = options("Models"), options("Data"), options("Run and output")


def compare(
    context: typer.Context,
    data: Annotated[str, data_argument("What to train on, as for train.")],
    epsilon: Annotated[float, _model("Of each of the three private models.")],
    model: Annotated[str, _model("The GNN. [gcn, the usual start]", metavar="gcn|gin|gat")] = "gcn",
    layers: Annotated[int, _model("r, its rounds of messages. [1: noise grows with K^r]")] = 1,
    delta: Annotated[float | None, _model("Of (epsilon, delta). [1 / (10 N)]")] = None,
    max_readers: Annotated[int | None, _model("K of trees; 0 reads no edge. [by epsilon]")] = None,
    steps: Annotated[int | None, _model("Updates of each model. [300 to 600, by the rule]")] = None,
    hidden: Annotated[int | None, _model("Width of each model. [64 to 256, by the rule]")] = None,
    symmetrize: Annotated[
        bool, _reading("Add the reverse of every edge. [edges as given]", "--symmetrize")
    ] = False,
    split: Annotated[str | None, _reading("Draw one, as 0.6/0.2/0.2. [the data's own, or that]")] = None,
    split_seed: Annotated[int, _reading("Of that draw. [0: a split is public]")] = 0,
    num_classes: Annotated[int | None, _reading("[largest label + 1, taken as public]")] = None,
    edges: tables.Edges = None,
    id_column: tables.Id = None,
    label: tables.Label = None,
    features: tables.Features = None,
    categorical: tables.Categorical = None,
    hash_column: tables.Hash = None,
    ignore: tables.Ignore = None,
    classes: tables.Classes = None,
    split_column: tables.SplitColumn = None,
    source: tables.Source = None,
    target: tables.Target = None,
    delimiter: tables.Delimiter = None,
    data_root: DataRoot = None,
    seed: Annotated[int | None, _output("Reproducible, so not private. [from the operating system]")] = None,
    device: Annotated[str, _output("[auto: a GPU if there is one]", metavar="auto|cpu|cuda")] = "auto",
    out: Annotated[
        Path | None, _output("Folder for comparison.json, report.html and the runs. [nothing is kept]")
    ] = None,
    config: ConfigFile = None,
    print_config: PrintConfig = False,
    as_json: Annotated[bool, _output("One JSON object as the last line of output.", "--json")] = False,
) -> int:
    """Train GNN, MLP, DP-Billboard, DP-GNN and DP-MLP side by side on your data.

    All on the same split: what privacy costs, and what the edges are still worth under it. With --out the
    same command goes on after an interruption.
    """
    arguments = {"epsilon": epsilon, "model": model, "num_layers": layers, "steps": steps, "device": device}
    arguments |= {"delta": delta, "max_readers": max_readers, "hidden": hidden, "num_classes": num_classes}
    arguments |= {"symmetrize": symmetrize, "split": split, "split_seed": split_seed, "seed": seed}
    arguments["columns"] = tables.columns_in(context.params)
    try:
        _compare(out, tables.with_edges(data, edges), as_json, **arguments)
    except KeyboardInterrupt:
        if out is None:
            return fail("interrupted, and nothing is kept; with --out it could go on", 130)
        begun = (out / SETTINGS).exists()
        return fail("stopped; the same command goes on from there" if begun else "interrupted", 130)
    return 0


def demo(
    out: Annotated[Path, _output("Folder to write; an earlier demonstration in it goes. [demo]")] = Path(
        "demo"
    ),
    as_json: Annotated[bool, _output("One JSON object as the last line of output.", "--json")] = False,
) -> None:
    """Compare five models on a generated graph and write a report.

    At epsilon 4; it takes about a minute and needs no data.
    """
    from hushgraph import datasets
    from hushgraph.cli import comparing

    comparing.clear_demo(out)
    _compare(out, datasets.load("demo"), as_json, name="demo", **comparing.DEMO)


def _compare(out: Path | None, data: Any, as_json: bool, **arguments: Any) -> None:
    from hushgraph.cli import comparing

    screen = console()
    found = comparing.compare_into(out, data, console=None if as_json else screen, **arguments)
    if as_json:
        typer.echo(json.dumps(comparing.as_json(found, out), allow_nan=False))
    else:
        screen.print()
        comparing.show(found, out, screen)
