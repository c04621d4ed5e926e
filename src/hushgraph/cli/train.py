"""`hushgraph train`: one private model, and what is printed before, during and after training."""

from __future__ import annotations

import itertools
import json
import os
import re
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hushgraph._text import digits_up, rounded_up
from hushgraph.cli import options, terminal
from hushgraph.cli.options import ConfigFile, PrintConfig, section
from hushgraph.cli.plan import ask_prepare, list_cautions, list_facts, show_plan
from hushgraph.errors import InputError
from hushgraph.figures.names import KEYS, SPLITS, format_figure, name_figure
from hushgraph.privacy.guarantee import Guarantee
from hushgraph.privacy.plans import FIGURES_ARE, PrivacyPlan
from hushgraph.privacy.units import speak
from hushgraph.report.results import format_result
from hushgraph.runs.config import TrainingConfig
from hushgraph.settings import ENGINE, TABLE

if TYPE_CHECKING:
    from hushgraph.privacy.budget import DataBudget
    from hushgraph.runs.folder import RunFolder
    from hushgraph.training.run import Run
    from hushgraph.training.trainer import Observer

EXAMPLES = """\
hushgraph train demo --epsilon 4
hushgraph train people.npz --epsilon 2 --model gin --symmetrize --out gin
hushgraph train people.npz --resume gin
hushgraph train nodes.csv --edges edges.csv --epsilon 4 --label school \\
    --classes red,blue --hash city=16 --split 0.6/0.2/0.2"""

_output = section("Run and output")


@options.with_flags("train")
def train(
    context: typer.Context,
    data: options.Data,
    *,
    edges: options.Edges = None,
    data_root: options.DataRoot = None,
    resume: Annotated[Path | None, _output("Continue the run in this folder, on its DATA.")] = None,
    charge_again: Annotated[
        bool,
        _output("With --resume: charge a copied folder to its budget as a run of its own.", "--charge-again"),
    ] = False,
    dry_run: Annotated[
        bool, _output("Print what it would do and cost; train, write and spend nothing.", "--dry-run")
    ] = False,
    keep_rows: Annotated[
        bool, _output("Does nothing: DuckDB writes no rows since 0.2.0.", "--keep-rows", hidden=True)
    ] = False,
    config: ConfigFile = None,
    print_config: PrintConfig = False,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
    **flags: Any,
) -> None:
    """Train one model with node-level differential privacy.

    Only --epsilon must be given: defaults, in brackets, are chosen without looking at private data.
    """
    if keep_rows:
        terminal.warn((), (), notices=["--keep-rows: DuckDB writes no rows any more; there are none to keep"])
    if dry_run:
        _show_dry_run(context)
        return
    with terminal.status("Loading PyTorch", quiet=as_json or quiet) as line:
        # Imported here, since PyTorch takes seconds.
        import hushgraph.training.train  # noqa: F401

        terminal.show_loading(line, data)
        run = _train(context, line)
        line.clear()
        if run is None or (quiet and not as_json):
            return
        if as_json:
            typer.echo(json.dumps(list_result(run), allow_nan=False))
        else:
            show_result(run)


def _train(context: typer.Context, line: terminal.StatusLine) -> Run | None:
    """Train or resume as the flags say; None in all processes of a group but the first."""
    from hushgraph.training import distributed
    from hushgraph.training import train as training
    from hushgraph.training.interruption import delay_interrupts

    flags = context.params
    data, edges, resume = flags["data"], flags["edges"], flags["resume"]
    is_silent = flags["as_json"] or flags["quiet"]
    out: Path | None = resume or flags["out"]
    folders: list[RunFolder] = []
    notes: list[str] = []

    def announce(folder: RunFolder) -> None:
        folders.append(folder)
        text = "" if is_silent else describe_run(folder, data, is_new=resume is None)
        line.clear()
        if text:
            typer.echo(text)
            # Whoever goes on with a run has read them when it began.
            terminal.warn(folder.warnings if resume is None else (), notes)
        line.show("Preparing the first step")

    try:
        group = context.with_resource(distributed.join_group())
        with group.share_errors():
            settings = _read_settings(context)
        source = options.join_edges(data, edges)
        with delay_interrupts() as check:
            observe = count_steps(line, check)
            hooks: dict[str, Any] = {"device": flags["device"], "observer": observe, "on_start": announce}
            if out is None:
                out = Path(group.broadcast(lambda: str(choose_folder(data, settings))))
            with group.share_errors():
                hooks |= options.choose_engine(flags, line, is_silent=is_silent or not group.leads)
            if resume is None:
                hooks["on_notes"] = notes.extend
                run = training.train(source, out=out, **(settings | hooks))
            else:
                run = training.resume(resume, source, charge_again=flags["charge_again"], **hooks)
    except KeyboardInterrupt:
        given: dict[str, Any] = {"edges": edges}
        if flags["engine"] != "memory":
            given |= {name: flags[name] for name in ENGINE}
        more = "".join(
            f" --{name} {shlex.quote(str(each))}"
            for name, value in given.items()
            for each in (value if isinstance(value, (list, tuple)) else [value])
            if each
        )
        message = describe_stop(folders[0], data) + more if folders else "interrupted"
        raise terminal.StoppedError(message) from None
    if resume is not None and not (folders or is_silent) and group.leads:
        line.clear()
        typer.echo(f"{resume} was finished before; nothing was trained.")
    return run if group.leads else None


def _read_settings(context: typer.Context) -> dict[str, Any]:
    """The arguments of `hushgraph.train` that the flags stand for; none for a run that is resumed."""
    flags = context.params
    if flags["charge_again"] and flags["resume"] is None:
        raise InputError("--charge-again without --resume: a new run is charged anyway; leave it out")
    if flags["resume"] is not None:
        # What a run is, and not where it is computed.
        given = options.list_given(context, [name for name in TABLE if name not in {"device", *ENGINE}])
        if given:
            raise InputError(
                f"{', '.join(given)}: a resumed run keeps its settings; leave out all but --resume"
            )
        return {}
    settings = options.read_settings(flags)
    for name in ("out", "device", *ENGINE):
        del settings[name]
    return settings


def _show_dry_run(context: typer.Context) -> None:
    """Print what this call would do and cost."""
    flags = context.params
    if flags["resume"] is not None:
        raise InputError("--dry-run with --resume: a resumed run keeps its plan; see hushgraph report")
    is_silent = flags["as_json"] or flags["quiet"]
    with terminal.status("Loading PyTorch", quiet=is_silent) as line:
        from hushgraph.datasets.engine import use_engine
        from hushgraph.privacy.budget import DataBudget
        from hushgraph.runs.folder import check_out

        settings = _read_settings(context)
        budget = settings.pop("budget")
        if flags["out"] is not None:
            check_out(flags["out"])
        opened = None if budget is None else DataBudget.open(budget)
        chosen = options.choose_engine(flags, line, is_silent=is_silent)
        tables = options.join_edges(flags["data"], flags["edges"])
        # Where nothing is written but work space.
        with use_engine(chosen["engine"], tables, memory=chosen["memory"], beside=flags["out"]):
            solved, prepared = ask_prepare(context, settings, line)
        if opened is not None:
            _check_budget(opened, prepared.plan, is_seeded=prepared.config.seed is not None)
        warnings, notes = list_cautions(context, prepared, opened)
    graph, config = prepared.graph, prepared.config
    if flags["as_json"]:
        facts = list_facts(solved, is_seeded=config.seed is not None)
        about = {"dry_run": True, "model": config.model, "hidden": config.hidden, "warnings": warnings}
        typer.echo(json.dumps(facts | about | {"learning_rate": config.learning_rate}, allow_nan=False))
    elif not flags["quiet"]:
        screen = terminal.console()
        text = describe_training(solved.plan, config, flags["data"], graph.num_features, graph.task.question)
        terminal.print_line(screen, f"Dry run: nothing is trained, written or spent.\n{text}\n")
        show_plan(solved, screen, is_seeded=config.seed is not None)
        terminal.warn(warnings, notes)


def _check_budget(budget: DataBudget, plan: PrivacyPlan, *, is_seeded: bool) -> None:
    """Raise BudgetExceededError where the budget of the data does not allow a run by `plan`."""
    from hushgraph.privacy.run_charge import RunCharge

    guarantee = Guarantee.of(plan, seed_is_fixed=is_seeded)
    charge = RunCharge.of_plan(plan, guarantee, run="dry run", command="train", data="")
    budget.check(charge)


def choose_folder(data: str, settings: dict[str, Any]) -> Path:
    """runs/<data>-<model>-<n> with the first n that is not taken; a billboard is named by its method."""
    stem = re.sub(r"[^A-Za-z0-9_.-]+", "_", Path(data).stem) or "data"
    from hushgraph.methods.choose import choose_method

    model = settings["model"] or choose_method(settings).short_name
    places = (Path("runs") / f"{stem}-{model}-{number}" for number in itertools.count(1))
    return next(place for place in places if not place.exists())


def count_steps(line: terminal.StatusLine, check: Callable[[], None]) -> Observer:
    """Show every step on the status line, then let `check` end the run where that is asked for."""

    def observe(done: int, total: int, epsilon: float, accuracy: float | None) -> None:
        logged, figures = progress_figures(epsilon, None), progress_figures(epsilon, accuracy)
        line.count("step", done, total, figures=figures, logged=logged)
        check()

    return observe


def progress_figures(epsilon: float, accuracy: float | None) -> str:
    """Epsilon so far, rounded up, and the latest validation accuracy, for the bar."""
    shown = f"epsilon {rounded_up(epsilon)}"
    return shown if accuracy is None else f"{shown}  validation {accuracy:.1%}"


def describe_training(
    plan: PrivacyPlan, config: TrainingConfig, data: str, num_features: int, question: str
) -> str:
    """One line: what is trained on what, from public figures alone."""
    how = "privately" if plan.is_private else "without privacy"
    kind = plan.describe_model(config.model)
    reads = f"K = {plan.max_readers}, " if plan.num_layers else ""
    ids = "node ids, a person as a whole" if plan.protects == "person" else "node ids"
    drawn = f" The split {config.split} is drawn from the {ids}." if config.split else ""
    return (
        f"Training {how} on {data}: {kind}, {num_features:,} features, {question}, "
        f"{plan.num_train_nodes:,} {speak('training nodes, N', plan.protects).removesuffix(', N')}; "
        f"{reads}{plan.steps:,} steps of about {plan.batch_size:,} {plan.protects}s.{drawn}"
    )


def describe_run(folder: RunFolder, data: str, *, is_new: bool = False) -> str:
    """`describe_training` for a run that starts or continues; a second line where the data has a new name.

    Args:
        folder: of the run.
        data: the name of the data in this call; a resumed run may have started under another one.
        is_new: whether it starts, so that its ledger shows no step.
    """
    text = describe_training(folder.plan, folder.config, data, folder.num_features, folder.task.question)
    done = 0 if is_new else _count_steps(folder)
    if done:
        text += f" Continuing after step {done:,}."
    # The same file may be named from the current folder or in full.
    if os.path.abspath(data) != os.path.abspath(folder.data):
        text += (
            f"\nThis run started on {folder.data} and continues with {data}: it must be the same data. Only "
            "the numbers of nodes and features and the training nodes are compared."
        )
    return text


def describe_stop(folder: RunFolder, data: str) -> str:
    """One line for a run that Ctrl-C ended: how far it came, and how to continue."""
    again = f"hushgraph train {shlex.quote(data)} --resume {shlex.quote(str(folder.path))}"
    return f"stopped after step {_count_steps(folder)} of {folder.plan.steps}; continue with: {again}"


def list_result(run: Run) -> dict[str, Any]:
    """What `--json` prints: the keys that other programs rely on, then where the run is."""
    return {**run.result, "out": str(run.folder.path), "notices": _list_notices(run)}


def _list_notices(run: Run) -> list[str]:
    """What covered figures say about a model that has learnt little; empty where figures are not covered."""
    from hushgraph.training.cautions import list_figure_notices

    return list_figure_notices(run.figures, task=run.folder.task)


def show_result(run: Run) -> None:
    """Print the result as a table, and the guarantee in a sentence."""
    result, guarantee = run.result, run.folder.guarantee
    rows = [
        *_list_figures(run),
        ("epsilon", rounded_up(guarantee.epsilon)),
        ("delta", digits_up(guarantee.delta)),
        ("guarantee", guarantee.kind_in_words),
        ("steps", f"{run.plan.steps:,}"),
        ("seconds", f"{result['seconds']:.1f}"),
        ("folder", str(run.folder.path)),
    ]
    if guarantee.kind == "holds":
        rows.append(("to publish", str(run.folder.release_path)))
    statement, screen = guarantee.statement, terminal.console()
    terminal.print_entries(screen, rows)
    if result.get("steps_lost"):
        screen.print(
            f"\n{result['steps_lost']:,} steps were paid for and lost when the run was killed; the weights "
            "have learnt nothing from them.",
            highlight=False,
        )
    screen.print(f"\n{statement.sentence}", highlight=False)
    if run.plan.is_private:
        covers = f"It covers {statement.covers}. " if result["guarantee"] == "holds" else ""
        screen.print(f"{covers}{describe_figures(run)}", highlight=False)
    terminal.warn((), (), notices=_list_notices(run))


def describe_figures(run: Run) -> str:
    """One sentence or two: whether the figures of a private run are covered, and why not."""
    if run.result.get("figures") == FIGURES_ARE[True]:
        return (
            "Figures are covered too: they are computed from noisy counts of validation and test rows, which "
            "pay for that and not for training. The interval in brackets is what the noise may have moved."
        )
    if run.config.seed is not None:
        why = "The seed is fixed, so that no noise covers them"
    elif run.plan.can_evaluate:
        why = "No noise was paid for to cover them"
    else:
        why = "A prediction reads its neighbours in the clear, so that no noise covers them"
    return f"Figures are exact, read off the private graph and its labels, and not covered. {why}."


# Of figures of whole splits, those that the terminal shows.
_SHOWN = (*KEYS, "majority_baseline")


def _list_figures(run: Run) -> list[tuple[str, str]]:
    """The figures of a run, a row each: covered ones with what noise may have moved them by."""
    result, task = run.result, run.folder.task
    rows = []
    if "bounds" in result:
        low, high = result["bounds"]
        rows.append(("bounds, from a noisy histogram", f"{low:g} to {high:g}"))
    if result.get("figures") == FIGURES_ARE[True]:
        for row in run.figures:
            if row["class"] is None and row["figure"] in _SHOWN:
                group = "" if row["group"] is None else f", {row['group']}"
                name = f"{SPLITS[row['split']]} {name_figure(row['figure'], run.folder.unit)}{group}"
                rows.append((name, _show_interval(row)))
        note = "  (exact: the guarantee does not cover it)"
        exact = result.get("exact_figures", {})
        rows += [
            (f"exact {_name_key(key, run.folder.unit)}", format_result(exact, key) + note) for key in exact
        ]
    else:
        figures = dict.fromkeys((task.headline, KEYS.get(task.judged_by, task.judged_by)))
        keys = [f"{split}_{figure}" for split in ("val", "test") for figure in figures]
        rows += [(_name_key(key), format_result(result, key)) for key in keys]
    key = f"train_{task.headline}"
    if key in result:
        note = "  (private: the guarantee does not cover this figure)" if run.plan.is_private else ""
        rows.append((_name_key(key), format_result(result, key) + note))
    return rows


def _show_interval(row: Mapping[str, Any]) -> str:
    """A covered figure and its noise interval; what hides it, where there is none."""
    if row["value"] is None:
        return "too few rows to tell from noise"
    value, low, high = (format_figure(row["figure"], each) for each in (row["value"], *row["noise"]))
    return f"{value}  [{low}, {high}]"


def _name_key(key: str, unit: str = "") -> str:
    split, _, figure = key.partition("_")
    return f"{SPLITS.get(split, split)} {name_figure(figure, unit)}"


def _count_steps(folder: RunFolder) -> int:
    from hushgraph.privacy.ledger import Ledger

    return Ledger.open(folder.ledger_path, read_only=True).steps_charged
