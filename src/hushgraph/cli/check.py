"""`hushgraph check`: what the columns of tables look like, every problem at once, and a graph.toml."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hushgraph.cli import options, terminal
from hushgraph.cli.options import section
from hushgraph.errors import WriteError

if TYPE_CHECKING:
    from hushgraph.datasets.tables.check import Check

EXAMPLES = """\
hushgraph check people
hushgraph check people --label school
hushgraph check accounts.csv --edges 'tx_*.csv' --label fraud"""

_output = section("Run and output")


@options.with_flags("check")
def check(
    data: Annotated[str, options.data_argument("A folder of tables, the table of nodes, or a .toml.")],
    *,
    edges: options.Edges = None,
    out: Annotated[
        Path | None, _output("Where to write the settings. [graph.toml beside the nodes, if there is none]")
    ] = None,
    force: Annotated[bool, _output("Replace that file if it exists. [keep it]", "--force")] = False,
    as_json: options.Json = False,
    **flags: Any,
) -> int:
    """List what tables hold and every problem before training.

    It shows private data, to you alone: do not share what it prints. Nothing is trained or spent. The exit
    code is 2 where something has to be corrected before training.
    """
    with terminal.status(f"Reading {data}", quiet=as_json):
        from hushgraph.datasets.tables.check import check as check_tables

        settings = options.read_settings(flags)
        weight = settings.pop("edge_weight", None)
        if weight is not None:
            settings["columns"] = {**(settings["columns"] or {}), "edge_weight": weight}
        result = check_tables(options.join_edges(data, edges), **settings)
        failure, written = None, None
        try:
            written = _write(result, out, force=force)
        except WriteError as error:
            # After the findings, which do not depend on that file.
            failure = error if out is not None else WriteError(f"{error}, with --out graph.toml")
    next_command = _name_places(result.next_command(written), flags["places"])
    if as_json:
        path = None if written is None else str(written)
        facts = result.to_json(written) | {"out": path, "next": next_command}
        typer.echo(json.dumps(facts, allow_nan=False))
    else:
        _show(result, written, next_command)
    if failure is not None:
        raise failure
    return 0 if result.can_train else 2


def _write(result: Check, out: Path | None, *, force: bool) -> Path | None:
    """Write the settings; None where the file of the data is kept."""
    if out is None and not force and result.target().exists():
        return None
    return result.write(out, force=force)


def _name_places(command: str, places: str | None) -> str:
    """The next command with the file of places that was given; the result holds the names alone."""
    return (
        command if places is None else command.replace(" --places FILE", f" --places {shlex.quote(places)}")
    )


def _show(result: Check, written: Path | None, next_command: str) -> None:
    screen = terminal.console()
    terminal.print_line(screen, result.to_text())
    kept = written or result.target()
    verb = "written: it names columns and rules, no values" if written else "kept; --force replaces it"
    if kept.exists():
        again = (
            "" if written is None or result.can_train else " Give --force with the next check to replace it."
        )
        terminal.print_line(screen, f"\n{kept} {verb}.{again}")
    if not result.can_train:
        count = sum(problem.stops for problem in result.problems)
        noun = "1 problem stops" if count == 1 else f"{count} problems stop"
        print(f"hushgraph: {noun} training; see above, then run check again", file=sys.stderr)
        return
    terminal.print_line(screen, f"Next: {next_command}")
    looked_up = result.to_columns().looked_up
    if looked_up:
        is_one = len(looked_up) == 1
        what, they = ("1 thing was", "it is") if is_one else (f"{len(looked_up)} things were", "they are")
        terminal.print_line(
            screen,
            f"{what} read off the data: {', '.join(looked_up)}. A guarantee assumes that {they} public, and "
            f"says so, until you take {'it' if is_one else 'them'} out of looked_up or --looked-up.",
        )
