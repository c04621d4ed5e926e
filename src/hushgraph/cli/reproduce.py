"""`hushgraph reproduce`: the paper's tables and figures, as published and with a guarantee that holds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from hushgraph.cli.data_root import DataRoot
from hushgraph.cli.failure import fail
from hushgraph.cli.help_sections import options
from hushgraph.errors import InputError

EXAMPLES = """\
hushgraph reproduce --list
hushgraph reproduce degree --quick
hushgraph reproduce transductive --data-root data --only ogbn-arxiv
hushgraph reproduce all --substitute ogbn-arxiv=mine.npz --dry-run"""

MODES = {"both": ("as-published", "sound"), "sound": ("sound",), "as-published": ("as-published",)}

_what, _reading, _output = options("Experiment"), options("Data"), options("Run and output")


def reproduce(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="An experiment of --list, or all.")
    ] = None,
    show_list: Annotated[bool, _what("List the experiments and their runs.", "--list")] = False,
    mode: Annotated[
        str, _what("How private models train. [both]", metavar="both|sound|as-published")
    ] = "both",
    seeds: Annotated[int | None, _what("Runs of each cell. [tables 3, the rest 1]", min=1)] = None,
    only: Annotated[
        list[str] | None,
        _what("A dataset, a model or dataset/model; * is anything. [all]", metavar="PATTERN"),
    ] = None,
    quick: Annotated[bool, _what("Generated data, a few steps: does it run?", "--quick")] = False,
    dry_run: Annotated[bool, _what("Count the runs and stop.", "--dry-run")] = False,
    data_root: DataRoot = None,
    substitute: Annotated[
        list[str] | None,
        _reading("Read a dataset from a file of the data folder.", metavar="NAME=FILE"),
    ] = None,
    device: Annotated[str, _output("[auto: a GPU if there is one]", metavar="auto|cpu|cuda")] = "auto",
    out: Annotated[
        Path | None,
        _output("Folder of records, tables and figures. [reproduction; with --quick reproduction-quick]"),
    ] = None,
    as_json: Annotated[bool, _output("One JSON object as the last line of output.", "--json")] = False,
) -> int:
    """Run the paper's tables and figures, as published and sound.

    Finished runs are kept in --out, so the same command goes on after an interruption. Started several times
    at once, it shares the runs out.
    """
    from hushgraph.cli import reproducing
    from hushgraph.reproduction import spec
    from hushgraph.reproduction.data_sources import parse_substitutes
    from hushgraph.reproduction.runner import Options

    if show_list:
        wanted = spec.names() if name in (None, "all") else (name,)
        listed = reproducing.listed(wanted)
        typer.echo(json.dumps({"experiments": listed}) if as_json else reproducing.list_text(listed))
        return 0
    if name is None:
        raise InputError(f"no NAME: give one of {', '.join(spec.names())}, or all")
    out = out or Path("reproduction-quick" if quick else "reproduction")
    chosen = Options(
        out=out,
        substitutes=parse_substitutes(substitute or []),
        modes=MODES[mode],
        seeds=seeds,
        only=tuple(pattern for text in only or [] for pattern in text.split(",")),
        quick=quick,
        device=device,
    )
    names = spec.names() if name == "all" else (name,)
    try:
        found = reproducing.reproduce(names, chosen, quiet=as_json, dry_run=dry_run)
    except KeyboardInterrupt:
        return fail(f"stopped; finished runs are in {out}, the same command goes on from there", 130)
    if as_json:
        typer.echo(json.dumps(found, allow_nan=False))
    return 0
