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
from hushgraph.settings import TABLE

if TYPE_CHECKING:
    from hushgraph.datasets.tables.check import Check

EXAMPLES = """\
hushgraph check people
hushgraph check people --label school
hushgraph check nodes.csv --edges edges.csv --out graph.toml"""

_output = section("Run and output")


@options.with_flags("check")
def check(
    context: typer.Context,
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

        columns = options.read_settings(flags)["columns"]
        result = check_tables(options.join_edges(data, edges), columns=columns)
        written = _write(result, out, force=force)
    if as_json:
        path = None if written is None else str(written)
        typer.echo(json.dumps(result.to_json() | {"out": path}, allow_nan=False))
    else:
        _show(result, written, "" if written else _repeat_flags(context))
    return 0 if result.can_train else 2


def _write(result: Check, out: Path | None, *, force: bool) -> Path | None:
    """Write the settings; None where the file of the data is kept."""
    if out is None and not force and result.target().exists():
        return None
    return result.write(out, force=force)


def _repeat_flags(context: typer.Context) -> str:
    """The table flags of this call, which the next one needs too where no file keeps them."""
    words = []
    for parameter in context.command.params:
        value = context.params.get(str(parameter.name))
        if parameter.name in TABLE and value:
            for each in value if isinstance(value, (list, tuple)) else [value]:
                words += [parameter.opts[0], shlex.quote(str(each))]
    return "".join(f" {word}" for word in words)


def _show(result: Check, written: Path | None, flags: str) -> None:
    screen = terminal.console()
    terminal.print_line(screen, result.to_text())
    kept = written or result.target()
    verb = "written: it names columns and rules, no values" if written else "kept; --force replaces it"
    terminal.print_line(screen, f"\n{kept} {verb}.")
    if not result.can_train:
        count = sum(problem.stops for problem in result.problems)
        noun = "1 problem stops" if count == 1 else f"{count} problems stop"
        print(f"hushgraph: {noun} training; see above, then run check again", file=sys.stderr)
        return
    terminal.print_line(screen, f"Next: {result.next_command()}{flags}")
    if result.declared:
        names = ", ".join(f"--{name}" for name in result.declared)
        terminal.print_line(
            screen, f"What {names} lists was read off the data: to run it is to call it public."
        )
