"""What `hushgraph reproduce` does around the runner: progress, tables and figures, interruption."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from hushgraph.cli.terminal import console
from hushgraph.errors import InputError
from hushgraph.reproduction import spec
from hushgraph.reproduction.jobs import list_jobs
from hushgraph.reproduction.runner import DP_MODES, Options, Reproduction
from hushgraph.training.interruption import Interruption


def listed(names: Sequence[str]) -> list[dict[str, Any]]:
    """Experiments, with their columns and how many runs they have in both modes with their own seeds."""
    found = []
    for name in names:
        experiment = spec.load(name)
        found.append(
            {
                "name": name,
                "title": experiment.title,
                "source": experiment.source or "not in the paper",
                "columns": [column.name for column in experiment.columns],
                "seeds": experiment.seeds,
                "runs": len(list_jobs(experiment, modes=DP_MODES)),
            }
        )
    return found


def list_text(experiments: Sequence[dict[str, Any]]) -> str:
    """What `listed` gives as text, a line an experiment and one for its columns."""
    lines = []
    for one in experiments:
        lines.append(f"{one['name']:20} {one['runs']:4} runs  {one['title']}")
        lines.append(f"{'':31}{', '.join(one['columns'])}")
    return "\n".join(lines)


def reproduce(
    names: Sequence[str], options: Options, *, quiet: bool = False, dry_run: bool = False
) -> dict[str, Any]:
    """Run experiments, print and write their tables, draw their figures.

    Args:
        names: of experiments.
        options: how.
        quiet: print nothing but progress on a terminal.
        dry_run: count the runs and stop.

    Returns:
        What `--json` prints.
    """
    screen, bar_console = console(), Console(stderr=True)
    # A narrow terminal wraps lines; cutting figures short would be worse.
    screen.quiet, screen.width = quiet, max(screen.width, 120)

    def say(line: str) -> None:
        screen.print(line, highlight=False, markup=False, soft_wrap=True)

    work = Reproduction(names, options, say=say)
    counts = {"planned": len(work.plan), "left": len(work.left), "to_train": work.trainings}
    say(f"Records: {counts['planned']}; to make: {counts['left']}; runs to train: {counts['to_train']}.")
    if options.quick and options.substitutes:
        say("--quick generates its data: --substitute is not used.")
    if dry_run:
        return {"dry_run": True, **counts, "skipped": work.skipped}
    with (
        Progress(
            TextColumn("run"),
            MofNCompleteColumn(),
            BarColumn(bar_width=20),
            TimeRemainingColumn(),
            TextColumn("left  {task.fields[label]}"),
            console=bar_console,
            transient=True,
            redirect_stdout=False,
            disable=quiet or not bar_console.is_terminal,
        ) as bar,
        Interruption() as interruption,
    ):
        task = bar.add_task("", total=counts["left"], label="")
        done = 0

        def begin(number: int, label: str) -> None:
            nonlocal done
            done = number
            bar.update(task, completed=number, label=label)

        def observe(step: int, steps: int) -> None:
            bar.update(task, completed=done + step / steps)
            interruption.check()

        try:
            work.run(begin, observe)
        finally:
            work.records.tidy()
    found = work.tables()
    if not found:
        raise InputError(f"nothing was measured: {'; '.join(work.skipped) or 'no budget pays for a step'}")
    for table in found:
        say(f"\n{table.title}")
        for part in table.rich():
            screen.print(part, highlight=False, markup=False)
        for note in table.notes:
            say(note)
    with work.records.results():
        for table in found:
            table.write(options.out)
        figures = _drawn(work.recorded(), options.out, say)
    say(f"\nRecords, tables and figures are in {options.out}.")
    return {
        **counts,
        "out": str(options.out),
        "records": str(work.records.path),
        "tables": [table.as_json() for table in found],
        "figures": [str(path) for path in figures],
        "skipped": work.skipped,
    }


def _drawn(records: list[dict[str, Any]], out: Path, say: Any) -> list[Path]:
    if not records:
        return []
    if importlib.util.find_spec("matplotlib") is None:
        say("no figures: matplotlib is not installed; pip install 'hushgraph[plots]'")
        return []
    from hushgraph.reproduction.figures import draw

    return draw(records, out / "figures")
