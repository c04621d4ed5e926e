"""`hushgraph plan`: price a run without touching data."""

from __future__ import annotations

import json
from typing import Annotated

import typer


def plan(
    train_nodes: Annotated[int, typer.Option(help="N, how many nodes are in the training split.")],
    batch_size: Annotated[int, typer.Option(help="Expected number of roots in a batch.")],
    max_readers: Annotated[int, typer.Option(help="K, how many training nodes read one node, at most.")],
    layers: Annotated[int, typer.Option(help="r, rounds of message passing.")] = 1,
    max_reads: Annotated[
        int | None,
        typer.Option(
            help="D, how many nodes one training node reads, at most.",
            show_default="unlimited; K for readers",
        ),
    ] = None,
    edge_owner: Annotated[
        str, typer.Option(metavar="sender|reader", help="Whose row holds an edge.")
    ] = "sender",
    steps: Annotated[int | None, typer.Option(help="How many steps.")] = None,
    noise_multiplier: Annotated[float | None, typer.Option(help="lambda = sigma / (2 C n).")] = None,
    epsilon: Annotated[float | None, typer.Option(help="The epsilon to stay within.")] = None,
    delta: Annotated[float | None, typer.Option(help="delta.", show_default="1 / (10 N)")] = None,
    sampler: Annotated[str, typer.Option(metavar="stable|paper")] = "stable",
    accountant: Annotated[str, typer.Option(metavar="pair|paper")] = "pair",
    clip: Annotated[float, typer.Option(help="C, the largest norm of one root's gradient.")] = 1.0,
    explain: Annotated[bool, typer.Option("--explain", help="Print the whole statement.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object as the last line.")] = False,
) -> None:
    """Price a run without touching data: of steps, noise and epsilon give two, the third is solved for."""
    from hushgraph import planner

    solved = planner.solve(
        num_train_nodes=train_nodes,
        num_layers=layers,
        max_readers=max_readers,
        max_reads=max_reads,
        edge_owner=edge_owner,
        batch_size=batch_size,
        steps=steps,
        noise_multiplier=noise_multiplier,
        epsilon=epsilon,
        delta=delta,
        sampler=sampler,
        accountant=accountant,
        clip=clip,
    )
    if as_json:
        typer.echo(json.dumps(planner.as_json(solved), allow_nan=False))
    else:
        from rich.console import Console

        planner.show(solved, Console(), explain=explain)
