"""What `hushgraph compare` and `hushgraph demo` do around a comparison: progress, folder, output."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hushgraph._files import write_whole
from hushgraph._text import rounded_up
from hushgraph.cli.progress import StepProgress
from hushgraph.comparison import BILLBOARD, FOLDERS, SETTINGS, Comparison, compare, name_run
from hushgraph.errors import InputError, RunError
from hushgraph.privacy.guarantee import sentence
from hushgraph.training.interruption import Interruption

if TYPE_CHECKING:
    from rich.console import Console

    from hushgraph.runs.folder import RunFolder

FIGURE = "compare.svg"
RESULT = "comparison.json"
FILES = (RESULT, "report.html", "report.json", FIGURE, SETTINGS)
DEMO_MARK = ".hushgraph-demo"
# Few steps of narrow models: done in a minute on two cores.
DEMO: dict[str, Any] = {"epsilon": 4.0, "steps": 100, "hidden": 32, "evaluate_every": 10}


def compare_into(out: Path | None, data: Any, *, console: Console | None, **arguments: Any) -> Comparison:
    """Compare, with a progress bar for each run; with a folder, write the comparison and its report there.

    Where matplotlib is installed there is a figure of them too.

    Args:
        out: the folder: new, without a comparison, or with one of these settings that was interrupted; None
            keeps nothing.
        data: what to train on.
        console: where each run is announced; None says nothing.
        **arguments: of `compare`.
    """
    if out is not None:
        # With its settings there, whatever else is there but the result is the beginning of one.
        known = (RESULT,) if (out / SETTINGS).exists() else (*FILES, *FOLDERS.values())
        for name in known:
            if (out / name).exists():
                raise RunError(f"out={out}: there is a {name} in it already; choose another folder")
    with contextlib.ExitStack() as bars, Interruption() as interruption:
        current = StepProgress()

        def begin(folder: RunFolder) -> None:
            nonlocal current
            bars.close()
            if console is not None:
                console.print(_announcement(folder), highlight=False, markup=False, soft_wrap=True)
            current = bars.enter_context(StepProgress())

        def observe(done: int, total: int, epsilon: float, accuracy: float | None) -> None:
            current(done, total, epsilon, accuracy)
            interruption.check()

        found = compare(data, out=out, observer=observe, on_start=begin, **arguments)
    if out is not None:
        write_whole(out / RESULT, found.to_json().encode())
        found.runs[BILLBOARD].report(out / "report.html", data=data, comparison=found)
        if importlib.util.find_spec("matplotlib") is not None:
            from hushgraph.plots.comparison import ModelBar, draw_comparison

            models = [
                ModelBar(
                    name=row.name,
                    test_accuracy=row.test_accuracy,
                    epsilon=row.epsilon,
                    guarantee=row.guarantee,
                    predictions=row.predictions,
                )
                for row in found.rows
            ]
            title = f"Five models on {found.data}"
            draw_comparison(models, out / FIGURE, title=title, note=found.cost)
    return found


def as_json(comparison: Comparison, out: Path | None) -> dict[str, Any]:
    """The comparison, and where it is."""
    about: dict[str, Any] = json.loads(comparison.to_json())
    return {**about, "out": None if out is None else str(out)}


def show(comparison: Comparison, out: Path | None, console: Console) -> None:
    """One table, the guarantee, what the trials cost, and where everything is."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    table.add_column("model")
    for heading in ("epsilon", "validation", "test", "macro-F1"):
        table.add_column(heading, justify="right")
    table.add_column("guarantee")
    table.add_column("predictions")
    for row in comparison.rows:
        table.add_row(
            row.name,
            rounded_up(row.epsilon),
            *(_percent(value) for value in (row.val_accuracy, row.test_accuracy, row.macro_f1)),
            row.guarantee,
            # Towards whom is said below the table.
            row.predictions.removesuffix(" towards everybody else"),
            style="green" if row.guarantee == "holds" else "red",
        )
    console.print(table, highlight=False)
    if not comparison.seeded:
        promise = sentence(comparison.runs[BILLBOARD].plan)
        console.print(f"\n{BILLBOARD}: {promise}", highlight=False, markup=False)
    console.print(f"\n{comparison.cost}", highlight=False, markup=False)
    if out is not None:
        console.print(
            f"\nThe report is in {out / 'report.html'}, the figures in {out / RESULT}, and each "
            f"run in a folder of its own in {out}.",
            highlight=False,
            markup=False,
            soft_wrap=True,
        )


def comparison_of(run: Path) -> Comparison | None:
    """The comparison that the run in this folder was made for, if it lies beside it."""
    from hushgraph.runs.folder import RunFolder

    file = run.absolute().parent / RESULT
    if run.absolute().name not in FOLDERS.values() or not file.is_file():
        return None
    try:
        found = Comparison.from_json(file.read_text())
    except (OSError, UnicodeDecodeError, RunError) as error:
        raise RunError(f"{file}: {error}") from None
    plan = RunFolder.open(run).plan.fingerprint()
    is_one = any(FOLDERS[row.name] == run.absolute().name and row.plan == plan for row in found.rows)
    return found if is_one else None


def clear_demo(out: Path) -> None:
    """Make the folder of a demonstration, or empty that of an earlier one; anybody else's is left alone."""
    try:
        inside = sorted(path.name for path in out.iterdir()) if out.exists() else []
        known = {DEMO_MARK, *FILES, *FOLDERS.values()}
        foreign = [name for name in inside if name not in known]
        if foreign or (inside and DEMO_MARK not in inside):
            raise InputError(
                f"out={out}: it holds {(foreign or inside)[0]}, which no demonstration wrote; choose another "
                "folder with --out"
            )
        for name in inside:
            path = out / name
            if path.is_symlink() or not path.is_dir():
                path.unlink()
            else:
                shutil.rmtree(path)
        out.mkdir(parents=True, exist_ok=True)
        (out / DEMO_MARK).touch()
    except OSError as error:
        raise RunError(f"out={out}: cannot be written ({error.strerror}); choose another folder") from None


def _announcement(folder: RunFolder) -> str:
    """One line: which of the models comes next."""
    plan = folder.plan
    how = "privately" if plan.is_private else "without privacy"
    reads = f", {folder.config.model}, K = {plan.max_readers}" if plan.num_layers else ""
    return (
        f"Training {name_run(folder)} {how}: {plan.num_train_nodes:,} training nodes, {plan.steps:,} "
        f"steps{reads}."
    )


def _percent(value: float | None) -> str:
    return "none" if value is None else f"{value:.2%}"
