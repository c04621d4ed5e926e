"""`hushgraph compare` and `hushgraph demo`: five models side by side, their folder and their table."""

from __future__ import annotations

import importlib.util
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hushgraph._files import write_whole
from hushgraph._text import rounded_up
from hushgraph.cli import options, terminal
from hushgraph.cli.options import ConfigFile, PrintConfig, section
from hushgraph.cli.train import count_steps
from hushgraph.comparison.comparing import DEMO_MARK, SETTINGS, name_run
from hushgraph.comparison.comparing import compare as compare_models
from hushgraph.comparison.result import BILLBOARD, FOLDERS, Comparison, Entry
from hushgraph.errors import InputError, RunError, explain
from hushgraph.figures.names import format_figure, name_figure
from hushgraph.privacy.guarantee import judge_size, name_assumed

if TYPE_CHECKING:
    from rich.console import Console

    from hushgraph.runs.folder import RunFolder

EXAMPLES = """\
hushgraph compare people.npz --epsilon 4
hushgraph compare people.npz --epsilon 2 --model gat --split 0.6/0.2/0.2 \\
    --out five"""
DEMO_EXAMPLES = """\
hushgraph demo
hushgraph demo --out /tmp/demo --json"""
# The colour of a row whose guarantee holds, by how large its epsilon is.
_COLOURS = {None: "green", "large": "yellow", "huge": "red"}
# Few steps of narrow models: done in a minute on two cores, and enough for all five to settle.
DEMO: dict[str, Any] = {"epsilon": 4.0, "steps": 100, "hidden": 32, "evaluate_every": 10}

_FIGURE, _RESULT = "compare.svg", "comparison.json"
_FILES = (_RESULT, "report.html", "report.json", _FIGURE, SETTINGS)
_FOLDERS = tuple(FOLDERS.values())
_output = section("Run and output")


@options.with_flags("compare", required=["epsilon"])
def compare(
    context: typer.Context,
    data: Annotated[str, options.data_argument("What to train on, as for train.")],
    *,
    edges: options.Edges = None,
    data_root: options.DataRoot = None,
    out: Annotated[
        Path | None, _output("Folder for comparison.json, report.html and the runs. [nothing is kept]")
    ] = None,
    config: ConfigFile = None,
    print_config: PrintConfig = False,
    as_json: options.Json = False,
    **flags: Any,
) -> None:
    """Train five models side by side on your data.

    GNN, MLP, DP-Billboard, DP-GNN and DP-MLP, all on the same split: what privacy costs, and what the edges
    are still worth under it. With --out the same command continues after an interruption.
    """
    arguments = {name: value for name, value in options.read_settings(flags).items() if value is not None}
    try:
        _compare(out, data, lambda: options.join_edges(data, edges), as_json, **arguments)
    except KeyboardInterrupt:
        if out is None:
            message = "interrupted, and nothing is kept; with --out it could continue"
        elif (out / SETTINGS).exists():
            message = "stopped; the same command continues from there"
        else:
            message = "interrupted"
        raise terminal.StoppedError(message) from None


def demo(
    out: Annotated[Path, _output("Folder to write; an earlier demo in it is replaced. [demo]")] = Path(
        "demo"
    ),
    as_json: options.Json = False,
) -> None:
    """Compare five models on a generated graph and write a report.

    At epsilon 4; it takes about a minute and needs no data.
    """

    def generate() -> Any:
        from hushgraph import datasets

        return datasets.load("demo")

    clear_demo(out)
    _compare(out, "demo", generate, as_json, name="demo", **DEMO)


def _compare(out: Path | None, source: str, load: Callable[[], Any], as_json: bool, **arguments: Any) -> None:
    with terminal.status("Loading PyTorch", quiet=as_json) as line:
        screen = terminal.console()
        announce = None if as_json else screen
        result = compare_into(out, load(), line=line, source=source, screen=announce, **arguments)
    if as_json:
        about = json.loads(result.to_json()) | {"out": None if out is None else str(out)}
        typer.echo(json.dumps(about, allow_nan=False))
    else:
        screen.print()
        show_comparison(result, out, screen)


def compare_into(
    out: Path | None,
    data: Any,
    *,
    line: terminal.StatusLine | None = None,
    source: str | None = None,
    screen: Console | None = None,
    **arguments: Any,
) -> Comparison:
    """Compare, and with a folder write the comparison, its report and, with matplotlib, its figure there.

    Args:
        out: the folder: new, without a comparison, or with an interrupted one of the same settings; None
            keeps nothing.
        data: what to train on.
        line: shows progress.
        source: the path or name of the data, for that line.
        screen: where each run is announced.
        **arguments: of `hushgraph.compare`.
    """
    if out is not None:
        _check_folder(out)
    line = terminal.StatusLine(quiet=True) if line is None else line
    if source is not None:
        terminal.show_loading(line, source)

    def announce(folder: RunFolder) -> None:
        line.clear()
        if screen is not None:
            terminal.print_line(screen, _describe_run(folder))
        line.show("Preparing the first step")

    # Imported here, since PyTorch takes seconds.
    from hushgraph.training.interruption import delay_interrupts

    with delay_interrupts() as check:
        hooks: dict[str, Any] = {"observer": count_steps(line, check), "on_start": announce}
        result = compare_models(data, out=out, **hooks, **arguments)
    if out is not None:
        line.show("Writing the report")
        _write_results(result, out, data)
    return result


def _check_folder(out: Path) -> None:
    """Refuse a folder that holds a finished comparison, or files of the same names."""
    # With its settings there, all else but the result is an interrupted comparison.
    taken = (_RESULT,) if (out / SETTINGS).exists() else (*_FILES, *_FOLDERS)
    for name in taken:
        if (out / name).exists():
            raise RunError(f"out={out}: there is a {name} in it already; choose another folder")


def _write_results(result: Comparison, out: Path, data: Any) -> None:
    write_whole(out / _RESULT, result.to_json().encode())
    result.runs[BILLBOARD].report(out / "report.html", data=data, comparison=result)
    if importlib.util.find_spec("matplotlib") is not None:
        from hushgraph.comparison.figure import draw_comparison

        title, note = f"Five models on {result.data}", " ".join([result.cost, *result.notices])
        draw_comparison(result.entries, out / _FIGURE, title=title, note=note)


def show_comparison(result: Comparison, out: Path | None, screen: Console) -> None:
    """Print one table, the guarantee, what the trials cost, and where everything is."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    table.add_column("model")
    words, has_f1 = name_figure(result.figure), any(row.macro_f1 is not None for row in result.entries)
    for heading in ("epsilon", f"validation\n{words}", f"test\n{words}", *["macro-F1"] * has_f1):
        table.add_column(heading, justify="right")
    table.add_column("guarantee")
    table.add_column("predictions")
    for row in result.entries:
        table.add_row(
            row.name,
            rounded_up(row.epsilon),
            *(_format(row.figure, value) for value in (row.validation, row.test)),
            *[_format("macro_f1", row.macro_f1)] * has_f1,
            row.guarantee + "*" * (row.guarantee == "holds" and bool(result.assumptions)),
            # Towards whom is printed below the table.
            row.predictions.removesuffix(" towards everybody else"),
            style=_choose_colour(row),
        )
    screen.print(table, highlight=False)
    if result.assumptions:
        screen.print(f"*{name_assumed(result.assumptions).removeprefix(',')}", highlight=False)
    if not result.seeded:
        promise = result.runs[BILLBOARD].folder.guarantee.statement.sentence
        screen.print(f"\n{BILLBOARD}: {promise}", highlight=False, markup=False)
    screen.print(f"\n{result.cost}", highlight=False, markup=False)
    terminal.warn(result.warnings, [], notices=result.notices)
    if out is not None:
        terminal.print_line(
            screen,
            f"\nThe report is in {out / 'report.html'}, the figures in {out / _RESULT}, and each "
            f"run in a folder of its own in {out}.",
        )


def _choose_colour(row: Entry) -> str:
    """How a row of the table is coloured: red where nothing is guaranteed, or next to nothing."""
    size = judge_size(row.epsilon, row.delta)
    return _COLOURS[None if size is None else size.level] if row.guarantee == "holds" else "red"


def read_comparison(run: Path) -> Comparison | None:
    """The comparison that the run in this folder belongs to, if it lies beside it."""
    from hushgraph.runs.folder import RunFolder

    file = run.absolute().parent / _RESULT
    if run.absolute().name not in _FOLDERS or not file.is_file():
        return None
    try:
        result = Comparison.from_json(file.read_text())
    except (OSError, UnicodeDecodeError, RunError) as error:
        raise RunError(f"{file}: {error}") from None
    plan = RunFolder.open(run).plan.fingerprint()
    is_one = any(FOLDERS[row.name] == run.absolute().name and row.plan == plan for row in result.entries)
    return result if is_one else None


def clear_demo(out: Path) -> None:
    """Create the folder of a demo, or empty that of an earlier one; refuse a folder with other files."""
    with explain(RunError, f"out={out}: cannot be written", "choose another folder"):
        inside = sorted(path.name for path in out.iterdir()) if out.exists() else []
        known = {DEMO_MARK, *_FILES, *_FOLDERS}
        foreign = [name for name in inside if name not in known]
        if foreign or (inside and DEMO_MARK not in inside):
            raise InputError(
                f"out={out}: it holds {(foreign or inside)[0]}, which no demo wrote; choose another "
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


def _describe_run(folder: RunFolder) -> str:
    """One line: which of the models comes next."""
    plan = folder.plan
    how = "privately" if plan.is_private else "without privacy"
    reads = f", {folder.config.model}, K = {plan.max_readers}" if plan.num_layers else ""
    return (
        f"Training {name_run(folder)} {how}: {plan.num_train_nodes:,} training nodes, {plan.steps:,} "
        f"steps{reads}."
    )


def _format(figure: str, value: float | None) -> str:
    return "none" if value is None else format_figure(figure, value)
