"""`hushgraph audit`: a lower bound on epsilon, next to the claimed one."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hushgraph.cli import tables
from hushgraph.cli.data_root import DataRoot
from hushgraph.cli.help_sections import options
from hushgraph.cli.sources import is_given
from hushgraph.cli.terminal import console
from hushgraph.errors import InputError

if TYPE_CHECKING:
    from hushgraph.audit.attack import Audit
    from hushgraph.audit.source import Settings

EXAMPLES = """\
hushgraph audit --epsilon 4 --layers 2 --max-readers 2
hushgraph audit people.npz --epsilon 4 --out audit.json --figure audit.svg
hushgraph audit runs/people-gcn-1
hushgraph audit --epsilon 4 --max-readers 2 --fault half-noise"""

_plan, _attack, _output = options("What is audited"), options("The attack"), options("Run and output")
# Parameters that a run has already decided.
_PLAN = ["epsilon", "delta", "model", "layers", "max_readers", "max_reads", "edge_owner", "steps"]
_PLAN += ["batch_size", "secure_noise", "fault", "edges"]
# A plan for no data in particular: every batch whole, and few steps, so that trials are cheap.
_TRAIN_NODES, _DELTA, _READERS, _STEPS = 1000, 1e-5, 2, 2


def audit(
    context: typer.Context,
    source: Annotated[
        str | None,
        typer.Argument(
            metavar="SOURCE", help="A run's folder, or DATA as for train. [a plan of two whole batches]"
        ),
    ] = None,
    epsilon: Annotated[float | None, _plan("The epsilon that is claimed; a run has its own.")] = None,
    delta: Annotated[float | None, _plan("Of (epsilon, delta). [as train for DATA; 1e-5]")] = None,
    model: Annotated[str, _plan("Of a few hidden units. [gcn]", metavar="gcn|gin|gat|mlp")] = "gcn",
    layers: Annotated[int, _plan("r, rounds of messages. [1]")] = 1,
    max_readers: Annotated[int | None, _plan("K. [as train for DATA; 2]")] = None,
    max_reads: Annotated[int | None, _plan("D. [as train; K if readers own]")] = None,
    edge_owner: Annotated[
        str | None, _plan("Whose row holds an edge. [sender]", metavar="sender|reader")
    ] = None,
    steps: Annotated[int | None, _plan("T. [as train for DATA; 2]")] = None,
    batch_size: Annotated[int | None, _plan("Expected roots a step. [as train for DATA; all]")] = None,
    secure_noise: Annotated[
        bool, _plan("Attack secure noise; slower. [torch's generator]", "--secure-noise")
    ] = False,
    canary: Annotated[
        str, _attack("[strongest: all trees that may change do]", metavar="strongest|read|hub")
    ] = "strongest",
    trials: Annotated[int | None, _attack("With the row, and without. [20,000; fewer of many steps]")] = None,
    confidence: Annotated[float, _attack("Of the bound. [0.95]")] = 0.95,
    fault: Annotated[
        str | None,
        _attack(
            "Audit training broken on purpose. [the code as it is]",
            metavar="half-noise|reused-noise|too-few-trees|per-layer-noise|paper-sampler",
        ),
    ] = None,
    edges: tables.PlainEdges = None,
    data_root: DataRoot = None,
    seed: Annotated[int | None, _output("Of the trials. [from the operating system]")] = None,
    out: Annotated[Path | None, _output("Also write the JSON record here. [not kept]")] = None,
    figure: Annotated[Path | None, _output("Also draw both worlds, as .svg or .png. [no figure]")] = None,
    as_json: Annotated[bool, _output("One JSON object as the last line of output.", "--json")] = False,
) -> int:
    """Attack training: a lower bound on epsilon beside the claim.

    The attack is on small graphs made for it, never on your data, of which only public figures are used.
    """
    from hushgraph._files import write_whole
    from hushgraph.audit.attack import audit_plan

    if figure is not None:
        from hushgraph.audit.figure import check_figure

        check_figure(figure)
    settings = _settings(
        context,
        source,
        {
            "epsilon": epsilon,
            "delta": delta,
            "model": model,
            "num_layers": layers,
            "max_readers": max_readers,
            "max_reads": max_reads,
            "edge_owner": edge_owner,
            "steps": steps,
            "batch_size": batch_size,
            "secure_noise": secure_noise,
        },
        fault,
        edges,
    )
    plan = settings.plan
    with _progress() as observer:
        found = audit_plan(
            plan,
            model=settings.model,
            canary=canary,
            trials=trials,
            confidence=confidence,
            fault=fault,
            secure_noise=settings.secure_noise,
            seed=seed,
            observer=observer,
        )
    record = found.record() | {"source": source}
    if out is not None:
        write_whole(out, json.dumps(record, indent=2, allow_nan=False).encode() + b"\n")
    if figure is not None:
        from hushgraph.audit.figure import draw_audit

        draw_audit(found, figure)
    if as_json:
        typer.echo(json.dumps(record, allow_nan=False))
    else:
        _show(found, [path for path in (out, figure) if path is not None])
    # A claim that is refuted is a failure, unless the refutation is what was asked for.
    return 1 if found.exceeds and fault is None and plan.guarantee == "holds" else 0


def _settings(
    context: typer.Context, source: str | None, given: dict[str, Any], fault: str | None, edges: Path | None
) -> Settings:
    """The plan of a run, of data, or of neither."""
    from hushgraph.audit.source import is_run, settings_for, settings_of_run

    if source is not None and is_run(source):
        wrong = [f"--{name.replace('_', '-')}" for name in _PLAN if is_given(context, name)]
        if wrong:
            raise InputError(f"{', '.join(wrong)}: the run {source} has its own; leave it out")
        return settings_of_run(source)
    if source is None and edges is not None:
        raise InputError(f"--edges {edges} without DATA: give the table of nodes as well")
    if source is not None:
        _check_there(source)
    if given["epsilon"] is None:
        raise InputError("no --epsilon: expected the epsilon to audit, or the folder of a run")
    if source is not None:
        if fault is not None:
            raise InputError(f"--fault {fault} with {source}: faults are for made plans; leave DATA out")
        return settings_for(tables.with_edges(source, edges), **given)
    return _made(given, fault)


def _check_there(source: str) -> None:
    """Refuse what is neither a run nor data, before anything is asked about it."""
    from hushgraph.datasets.catalog import registry as catalog
    from hushgraph.datasets.paths import path_exists

    if not path_exists(Path(source)):
        try:
            catalog.describe(source)
        except InputError as error:
            raise InputError(f"{source[:80]}: not the folder of a run, and {error}") from None


def _made(given: dict[str, Any], fault: str | None) -> Settings:
    """A plan for no data in particular."""
    from hushgraph.audit.attack import planted
    from hushgraph.audit.source import Settings
    from hushgraph.privacy.plan import PrivacyPlan

    layers = 0 if given["model"] == "mlp" else given["num_layers"]
    readers = _READERS if given["max_readers"] is None else given["max_readers"]
    owner = given["edge_owner"] or "sender"
    reads = readers if given["max_reads"] is None and owner == "reader" else given["max_reads"]
    plan = PrivacyPlan(
        num_train_nodes=_TRAIN_NODES,
        num_layers=layers,
        max_readers=readers,
        max_reads=reads,
        edge_owner=owner,
        batch_size=given["batch_size"] or _TRAIN_NODES,
        steps=_STEPS if given["steps"] is None else given["steps"],
        delta=_DELTA if given["delta"] is None else given["delta"],
    )
    if fault is not None:
        plan = planted(plan, fault)
    return Settings(
        plan=plan.calibrated(epsilon=given["epsilon"]),
        model=given["model"],
        secure_noise=given["secure_noise"],
    )


@contextlib.contextmanager
def _progress() -> Iterator[Callable[[int], None]]:
    """A count of trials on standard error, where that is a terminal."""
    from rich.console import Console
    from rich.progress import Progress, TextColumn, TimeElapsedColumn

    screen = Console(stderr=True)
    columns = (TextColumn("trials, both worlds"), TextColumn("{task.completed}"), TimeElapsedColumn())
    with Progress(
        *columns, console=screen, transient=True, redirect_stdout=False, disable=not screen.is_terminal
    ) as bar:
        task = bar.add_task("", total=None)
        yield lambda done: bar.advance(task, done)


def _show(found: Audit, written: list[Path]) -> None:
    from rich.table import Table

    from hushgraph.audit import words

    table = Table(box=None, show_header=False, pad_edge=False)
    for name, value in words.rows(found):
        table.add_row(name, value)
    screen = console()
    screen.print(table)
    screen.print(f"\n{words.verdict(found)}", highlight=False)
    for path in written:
        typer.echo(f"Written: {path}")
