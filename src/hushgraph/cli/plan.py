"""`hushgraph plan`: price a run without touching data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hushgraph.cli.config_file import ConfigFile, PrintConfig
from hushgraph.cli.help_sections import options
from hushgraph.cli.terminal import console

if TYPE_CHECKING:
    from hushgraph.privacy.solve import Solved

EXAMPLES = """\
hushgraph plan --train-nodes 90941 --batch-size 10000 --max-readers 7 \\
    --steps 600 --epsilon 4
hushgraph plan --train-nodes 90941 --batch-size 10000 --max-readers 7 \\
    --steps 668 --noise-multiplier 2 --accountant paper"""

_figures, _bounds, _output = options("Give two"), options("The run"), options("Run and output")


def plan(
    train_nodes: Annotated[int, _bounds("N, how many nodes are in the training split.")],
    max_readers: Annotated[int, _bounds("K, how many training nodes read one node, at most.")],
    batch_size: Annotated[
        int | None, _bounds("Expected number of roots in a batch. [N, at most 200,000, as for train]")
    ] = None,
    layers: Annotated[int, _bounds("r, rounds of message passing. [1: the cost grows with K^r]")] = 1,
    max_reads: Annotated[
        int | None,
        _bounds(
            "D, how many nodes one training node reads, at most. [unlimited, which is free; K if readers own]"
        ),
    ] = None,
    edge_owner: Annotated[
        str, _bounds("Whose row holds an edge. [sender, as if undirected]", metavar="sender|reader")
    ] = "sender",
    steps: Annotated[int | None, _figures("How many updates. [600, as for train, beside --epsilon]")] = None,
    noise_multiplier: Annotated[float | None, _figures("lambda = sigma / (2 C n).")] = None,
    epsilon: Annotated[float | None, _figures("The epsilon to stay within.")] = None,
    delta: Annotated[float | None, _bounds("Of (epsilon, delta). [1 / (10 N)]")] = None,
    sampler: Annotated[
        str, _bounds("How lists are cut. [stable, which has a proof]", metavar="stable|paper")
    ] = "stable",
    accountant: Annotated[
        str, _bounds("What prices a step. [pair, the tighter one]", metavar="pair|paper")
    ] = "pair",
    clip: Annotated[
        float, _bounds("C, the largest norm of one root's gradient. [1: epsilon is the same]")
    ] = 1.0,
    config: ConfigFile = None,
    print_config: PrintConfig = False,
    html: Annotated[
        Path | None,
        _output("Also write a page, and its JSON twin, that shows what other choices cost. [no page]"),
    ] = None,
    explain: Annotated[bool, _output("Print the whole statement.", "--explain")] = False,
    as_json: Annotated[bool, _output("One JSON object as the last line of output.", "--json")] = False,
) -> None:
    """Price a run without touching data.

    Of steps, noise multiplier and epsilon give two; the third is solved for. With epsilon alone, steps are
    those that train would take.
    """
    from hushgraph.privacy import solve as planner

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
    if html is not None:
        _write_page(solved, html)
    if as_json:
        written = {} if html is None else {"html": str(html)}
        typer.echo(json.dumps(planner.as_json(solved) | written, allow_nan=False))
    else:
        planner.show(solved, console(), explain=explain)
        if html is not None:
            typer.echo(f"\nPlanner page in {html}, the same figures in {html.with_suffix('.json')}.")


def _write_page(solved: Solved, html: Path) -> None:
    """Write the planner page, with a bar on standard error where that is a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from hushgraph.privacy.grid import usable_processes
    from hushgraph.report import write_planner_page

    screen = Console(stderr=True)
    with Progress(
        TextColumn("pricing plans"),
        MofNCompleteColumn(),
        BarColumn(bar_width=20),
        TimeRemainingColumn(),
        TextColumn("left"),
        console=screen,
        transient=True,
        redirect_stdout=False,
        disable=not screen.is_terminal,
    ) as bar:
        task = bar.add_task("", total=None)
        write_planner_page(
            solved,
            html,
            processes=usable_processes(),
            observer=lambda done, total: bar.update(task, completed=done, total=total),
        )
