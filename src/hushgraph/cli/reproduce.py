"""`hushgraph reproduce`: the paper's tables and figures, and accuracy against epsilon on real graphs."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from hushgraph.cli import options, terminal
from hushgraph.cli.options import section
from hushgraph.errors import InputError

if TYPE_CHECKING:
    from hushgraph.privacy import choices
    from hushgraph.reproduction.runner import Options, Reproduction
    from hushgraph.reproduction.tables import Table

EXAMPLES = """\
hushgraph reproduce --list
hushgraph reproduce degree --quick
hushgraph reproduce transductive --data-root data --only ogbn-arxiv
hushgraph reproduce frontier --data-root data --only facebook_32_schools"""

MODES = {"both": ("as-published", "sound"), "sound": ("sound",), "as-published": ("as-published",)}
# A narrow terminal wraps lines; cutting figures short would be worse.
_NARROWEST = 120

_experiment, _output = section("Experiment"), section("Run and output")


def reproduce(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="An experiment of --list, or all the paper's.")
    ] = None,
    show_list: Annotated[bool, _experiment("List the experiments and their runs.", "--list")] = False,
    mode: Annotated[str, _experiment("How private models train. [both]", metavar="|".join(MODES))] = "both",
    seeds: Annotated[
        int | None, _experiment("Runs of each cell. [tables and frontier 3, the rest 1]", min=1)
    ] = None,
    only: Annotated[
        list[str] | None,
        _experiment("A dataset, a model or dataset/model; * is anything. [all]", metavar="PATTERN"),
    ] = None,
    quick: Annotated[bool, _experiment("Generated data, a few steps: does it run?", "--quick")] = False,
    dry_run: Annotated[bool, _experiment("Count the runs and stop.", "--dry-run")] = False,
    data_root: options.DataRoot = None,
    substitute: Annotated[
        list[str] | None,
        section("Data")("Read a dataset from a file of the data folder.", metavar="NAME=FILE"),
    ] = None,
    device: options.Device = "auto",
    out: Annotated[
        Path | None,
        _output("Folder of records, tables and figures. [reproduction; with --quick reproduction-quick]"),
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Run the paper's tables and figures, as published and sound.

    frontier is not the paper's: accuracy against epsilon of both methods, on graphs of the data folder.
    Finished runs are kept in --out, so the same command continues after an interruption. Started several
    times at once, it shares the runs out.
    """
    from hushgraph.reproduction import spec

    if show_list:
        listed = list_experiments(spec.names() if name in (None, "all") else (name,))
        typer.echo(json.dumps({"experiments": listed}) if as_json else _format_list(listed))
        return
    if name is None:
        raise InputError(f"no NAME: give one of {', '.join(spec.names())}, or all")
    out = out or Path("reproduction-quick" if quick else "reproduction")
    with terminal.status("Loading PyTorch", quiet=as_json) as line:
        from hushgraph.reproduction.data_sources import parse_substitutes
        from hushgraph.reproduction.runner import Options

        chosen = Options(
            out=out,
            substitutes=parse_substitutes(substitute or []),
            modes=MODES[mode],
            seeds=seeds,
            only=tuple(pattern for text in only or [] for pattern in text.split(",")),
            quick=quick,
            device=cast("choices.Device", device),
        )
        of_paper = [each for each in spec.names() if spec.load(each).kind != "frontier"]
        names = of_paper if name == "all" else (name,)
        try:
            result = run_experiments(names, chosen, quiet=as_json, dry_run=dry_run, line=line)
        except KeyboardInterrupt:
            message = f"stopped; finished runs are in {out}, the same command continues from there"
            raise terminal.StoppedError(message) from None
    if as_json:
        typer.echo(json.dumps(result, allow_nan=False))


def list_experiments(names: Sequence[str]) -> list[dict[str, Any]]:
    """Experiments, with their columns and how many runs they have in both modes with their own seeds."""
    from hushgraph.reproduction import spec
    from hushgraph.reproduction.jobs import list_jobs

    listed = []
    for name in names:
        experiment = spec.load(name)
        listed.append(
            {
                "name": name,
                "title": experiment.title,
                "source": experiment.source or "not in the paper",
                "columns": [column.name for column in experiment.columns],
                "seeds": experiment.seeds,
                "runs": len(list_jobs(experiment, modes=MODES["both"])),
            }
        )
    return listed


def _format_list(experiments: Sequence[dict[str, Any]]) -> str:
    """Two lines an experiment: its runs and title, then its columns."""
    lines = []
    for one in experiments:
        lines.append(f"{one['name']:20} {one['runs']:4} runs  {one['title']}")
        lines.append(f"{'':31}{', '.join(one['columns'])}")
    return "\n".join(lines)


def run_experiments(
    names: Sequence[str],
    chosen: Options,
    *,
    quiet: bool = False,
    dry_run: bool = False,
    line: terminal.StatusLine | None = None,
) -> dict[str, Any]:
    """Run experiments, print and write their tables, draw their figures.

    Args:
        names: of experiments.
        chosen: how to run them.
        quiet: print nothing but progress.
        dry_run: count the runs and stop.
        line: shows progress.

    Returns:
        What `--json` prints.
    """
    from hushgraph.reproduction.runner import Reproduction
    from hushgraph.reproduction.tables import render, write

    line = terminal.StatusLine(quiet=True) if line is None else line
    screen = terminal.console()
    screen.quiet, screen.width = quiet, max(screen.width, _NARROWEST)

    def say(text: str) -> None:
        line.clear()
        terminal.print_line(screen, text)

    work = Reproduction(names, chosen, say=say)
    counts = {"planned": len(work.plan), "left": len(work.left), "to_train": work.trainings}
    say(f"Records: {counts['planned']}; to make: {counts['left']}; runs to train: {counts['to_train']}.")
    if chosen.quick and chosen.substitutes:
        say("--quick generates its data: --substitute is not used.")
    if dry_run:
        return {"dry_run": True, **counts, "skipped": work.skipped}
    _run_work(work, counts["left"], line)
    tables = work.tables()
    if not tables:
        raise InputError(f"nothing was measured: {'; '.join(work.skipped) or 'no budget pays for a step'}")
    for table in tables:
        say(f"\n{table.title}")
        for part in render(table):
            screen.print(part, highlight=False, markup=False)
        for note in table.notes:
            say(note)
    with work.records.results():
        for table in tables:
            write(table, chosen.out)
        figures = _draw_figures(tables, chosen.out, say)
    say(f"\nRecords, tables and figures are in {chosen.out}.")
    return {
        **counts,
        "out": str(chosen.out),
        "records": str(work.records.path),
        "tables": [table.as_json() for table in tables],
        "figures": [str(path) for path in figures],
        "skipped": work.skipped,
    }


def _run_work(work: Reproduction, total: int, line: terminal.StatusLine) -> None:
    """Train what is left, with a bar that moves within runs too."""
    done, label = 0, ""
    # Imported here, since PyTorch takes seconds.
    from hushgraph.training.interruption import delay_interrupts

    with delay_interrupts() as check:

        def begin(number: int, name: str) -> None:
            nonlocal done, label
            done, label = number, name
            line.count("run", number, total, figures=name, logged=name)

        def observe(step: int, steps: int) -> None:
            line.count("run", done + step / steps, total, figures=label, logged=label)
            check()

        try:
            work.run(begin, observe)
        finally:
            work.records.tidy()
    line.show("Writing tables and figures")


def _draw_figures(tables: Sequence[Table], out: Path, say: Callable[[str], None]) -> list[Path]:
    """Draw what was trained; statistics of datasets have no figure."""
    if not any(table.is_measured for table in tables):
        return []
    if importlib.util.find_spec("matplotlib") is None:
        say("no figures: matplotlib is not installed; pip install 'hushgraph[plots]'")
        return []
    from hushgraph.reproduction.figures import draw

    return draw(tables, out / "figures")
