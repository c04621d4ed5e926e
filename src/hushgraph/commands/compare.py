"""`hushgraph compare` and `hushgraph demo`: four models side by side."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer


def compare(
    data: Annotated[str, typer.Argument(metavar="DATA", help="What to train on, as for train.")],
    epsilon: Annotated[float, typer.Option(help="Of each of the two private models.")],
    model: Annotated[str, typer.Option(metavar="gcn|gin|gat", help="The GNN.")] = "gcn",
    layers: Annotated[int, typer.Option(help="r, its rounds of message passing.")] = 1,
    steps: Annotated[
        int | None, typer.Option(help="Updates of each model.", show_default="600; 500 without privacy")
    ] = None,
    symmetrize: Annotated[bool, typer.Option("--symmetrize", help="Add the reverse of every edge.")] = False,
    split: Annotated[
        str | None, typer.Option(help="Draw one, as 0.6/0.2/0.2.", show_default="the data's own")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Reproducible, so not private.")] = None,
    device: Annotated[str, typer.Option(metavar="auto|cpu|cuda", help="Where to compute.")] = "auto",
    out: Annotated[
        Path | None, typer.Option(help="Folder for comparison.json, report.html and the runs.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object as the last line.")] = False,
) -> None:
    """GNN, DP-GNN, MLP and DP-MLP side by side, on the same split of your data."""
    arguments = {"epsilon": epsilon, "model": model, "num_layers": layers, "steps": steps, "device": device}
    _compare(out, data, as_json, **arguments, symmetrize=symmetrize, split=split, seed=seed)


def demo(
    out: Annotated[Path, typer.Option(help="Folder to write; an earlier demonstration in it goes.")] = Path(
        "demo"
    ),
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object as the last line.")] = False,
) -> None:
    """Compare four models on a generated graph at epsilon 4 and write a report: about a minute."""
    from hushgraph import comparing, datasets

    comparing.clear_demo(out)
    _compare(out, datasets.load("demo"), as_json, name="demo", **comparing.DEMO)


def _compare(out: Path | None, data: Any, as_json: bool, **arguments: Any) -> None:
    from rich.console import Console

    from hushgraph import comparing

    console = Console()
    found = comparing.compare_into(out, data, console=None if as_json else console, **arguments)
    if as_json:
        typer.echo(json.dumps(comparing.as_json(found, out), allow_nan=False))
    else:
        console.print()
        comparing.show(found, out, console)
