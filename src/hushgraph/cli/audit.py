"""`hushgraph audit`: a lower bound on epsilon, next to the claimed one."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hushgraph._files import check_parent, write_whole
from hushgraph.cli import options, terminal
from hushgraph.cli.options import section
from hushgraph.errors import InputError
from hushgraph.settings import TABLE

if TYPE_CHECKING:
    from hushgraph.audit.result import Audit
    from hushgraph.audit.source import Settings

EXAMPLES = """\
hushgraph audit --epsilon 4
hushgraph audit people.npz --epsilon 4 --out audit.json
hushgraph audit runs/people-billboard-1
hushgraph audit --epsilon 4 --fault redrawn-board"""

_attack, _output = section("The attack"), section("Run and output")
_DATA = {name: entry for name, entry in TABLE.items() if "audit" in entry.commands and entry.describes_data}
_READING = [*_DATA, "edges"]
# What is asked of data, beside what its columns are.
_DATA_ARGUMENTS = [name for name, entry in _DATA.items() if entry.column is None]
# Arguments of `train`, and what they mean here.
_PLAN = {
    "epsilon": "The epsilon that is claimed; a run has its own.",
    "delta": "The delta of (epsilon, delta). [as train for DATA; 1e-5]",
    "method": "Boards and steps, or steps alone. [billboard; trees with a flag that only they have]",
    "model": "Model for trees, with a few hidden units. [gcn]",
    "num_layers": "For trees: r, rounds of messages. [1]",
    "max_readers": "K. [as train for DATA; 2]",
    "max_reads": "D. [as train; K if readers own]",
    "edge_owner": "Whose row holds an edge. [sender]",
    "steps": "T. [as train for DATA; 2]",
    "batch_size": "Expected roots a step. [as train for DATA; all]",
}
_FLAGS = [
    replace(TABLE[name], help=text, section="What is audited", commands=("audit",))
    for name, text in _PLAN.items()
]
_PLAN_ARGUMENTS = (*_PLAN, "directed")
_TREES_ONLY = ("model", "num_layers", "max_readers", "max_reads", "canary")
# What a run has its own values of.
_OF_RUN = (*_PLAN_ARGUMENTS, "fault", *_READING)


@options.with_flags("audit", more=_FLAGS)
def audit(
    context: typer.Context,
    subject: Annotated[
        str | None,
        typer.Argument(
            metavar="SOURCE", help="A run's folder, or DATA as for train. [a plan of two full batches]"
        ),
    ] = None,
    *,
    canary: Annotated[
        str | None,
        _attack("Canary for trees. [strongest: all trees that may change do]", metavar="strongest|read|hub"),
    ] = None,
    trials: Annotated[
        int | None, _attack("Number with the row, and as many without. [100 to 200,000: some twenty seconds]")
    ] = None,
    confidence: Annotated[float, _attack("Joint confidence of all bounds. [0.95]")] = 0.95,
    fault: Annotated[
        str | None,
        _attack(
            "Audit a run broken on purpose; a wrong name lists them. [the code as it is]", metavar="NAME"
        ),
    ] = None,
    edges: options.Edges = None,
    data_root: options.DataRoot = None,
    seed: Annotated[int | None, _output("Seed of the trials. [from the operating system]")] = None,
    out: Annotated[Path | None, _output("Also write the JSON record here. [not kept]")] = None,
    as_json: options.Json = False,
    **flags: Any,
) -> int:
    """Attack boards and training: a lower bound on epsilon.

    The attack is on small generated graphs, never on your data, of which only public figures are used: it
    spends nothing.
    """
    if out is not None:
        # Before the attack, which takes long.
        check_parent(out)
        if out.is_dir():
            raise InputError(f"out={out}: it is a folder; expected the name of a file")
    with terminal.status("Loading PyTorch", quiet=as_json) as line:
        result, promised = _run_audit(context, line)
        record = result.record() | {"source": subject}
        if out is not None:
            write_whole(out, json.dumps(record, indent=2, allow_nan=False).encode() + b"\n")
    if as_json:
        typer.echo(json.dumps(record, allow_nan=False))
    else:
        _show_audit(result, out)
    # A refuted claim is a failure, unless the user asked for a refutation.
    return 1 if result.exceeds and fault is None and promised == "holds" else 0


def _run_audit(context: typer.Context, line: terminal.StatusLine) -> tuple[Audit, str]:
    """Attack the plan that the flags describe; return the result and the guarantee that was attacked."""
    from hushgraph.audit.attack import audit_plan

    flags = context.params
    settings = _choose_settings(context, line)
    line.show("Preparing the first trial")
    done = 0

    def observe(trials: int) -> None:
        nonlocal done
        done += trials
        line.show(f"Trials in both worlds: {done:,}")

    result = audit_plan(
        settings.plan,
        model=settings.model,
        observer=observe,
        canary=flags["canary"] or "strongest",
        task=settings.task,
        class_weights=settings.class_weights,
        relations=settings.relations,
        **{name: flags[name] for name in ("trials", "confidence", "fault", "seed")},
    )
    return replace(result, assumptions=settings.assumptions), settings.plan.guarantee


def _choose_settings(context: typer.Context, line: terminal.StatusLine) -> Settings:
    """The plan of a run, of data, or of neither."""
    from hushgraph.audit.source import is_run, settings_for, settings_of_run, settings_without_data

    flags = context.params
    subject, fault = flags["subject"], flags["fault"]
    if subject is not None and is_run(subject):
        given = options.list_given(context, _OF_RUN)
        if given:
            raise InputError(f"{', '.join(given)}: the run {subject} has its own; leave it out")
        return settings_of_run(subject)
    if subject is None and (given := options.list_given(context, _READING)):
        raise InputError(f"{', '.join(given)} without DATA: there is nothing to read; give DATA as well")
    if subject is not None:
        _check_exists(subject)
    if flags["epsilon"] is None:
        raise InputError("no --epsilon: expected the epsilon to audit, or the folder of a run")
    if subject is None:
        line.show("Choosing noise")
        own = {name: flags[name] for name in _PLAN_ARGUMENTS if name != "method"}
        return settings_without_data(_choose_method(context), fault=fault, **own)
    if fault is not None:
        raise InputError(f"--fault {fault} with {subject}: a fault changes the plan; leave DATA out")
    terminal.show_loading(line, subject)
    arguments = {name: flags[name] for name in _PLAN_ARGUMENTS}
    settings = options.read_settings(flags)
    arguments |= {name: settings[name] for name in _DATA_ARGUMENTS}
    arguments |= {"columns": settings["columns"], "method": _choose_method(context)}
    return settings_for(options.join_edges(subject, flags["edges"]), **arguments)


def _check_exists(subject: str) -> None:
    """Refuse what is neither a run nor data, before anything else is asked about it."""
    from hushgraph.datasets.catalog import registry as catalog
    from hushgraph.datasets.paths import path_exists

    if not path_exists(Path(subject)):
        try:
            catalog.describe(subject)
        except InputError as error:
            raise InputError(f"{subject[:80]}: not the folder of a run, and {error}") from None


def _choose_method(context: typer.Context) -> str:
    """The method of the fault, the given one, or the billboard unless a flag is for trees."""
    from hushgraph.audit.faults import get_fault

    flags = context.params
    given = options.list_given(context, _TREES_ONLY)
    fault = flags["fault"]
    needed = None if fault is None else get_fault(fault).method
    method = flags["method"] or needed or ("trees" if given else "billboard")
    if needed not in (None, method):
        raise InputError(f"--fault {fault} with --method {method}: that fault is one of {needed}")
    if given and method != "trees":
        raise InputError(
            f"{', '.join(given)} with --method {method}: applies only to --method trees; leave it out, or "
            "give that"
        )
    return str(method)


def _show_audit(result: Audit, out: Path | None) -> None:
    from hushgraph.audit import words

    screen = terminal.console()
    terminal.print_entries(screen, words.list_entries(result))
    screen.print(f"\n{words.verdict(result)}", highlight=False)
    if out is not None:
        typer.echo(f"Written: {out}")
