"""The `hushgraph` command: parse, call, print, exit code."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hushgraph.errors import HushgraphError, InputError
from hushgraph.help_sections import SectionedCommand, options

if TYPE_CHECKING:
    from hushgraph.runs import RunFolder

# Parameters of `train` that are not settings of the run, so that they may accompany --resume.
_NOT_SETTINGS = {"data", "resume", "device", "as_json", "quiet"}
# Settings that `hushgraph.train` has other names for.
_RENAMED = {"layers", "lr", "non_private", "out"}


_budget, _model, _bounds = options("Budget"), options("Model"), options("What training may read")
_learning, _reading, _output = options("Training"), options("Data"), options("Run and output")

app = typer.Typer(
    name="hushgraph",
    help="Graph neural networks with node-level differential privacy.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False,
) -> None:
    """Graph neural networks with node-level differential privacy."""
    if version:
        import hushgraph

        typer.echo(f"hushgraph {hushgraph.__version__}")
    elif context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command()
def plan(
    train_nodes: Annotated[int, typer.Option(help="N, how many nodes are in the training split.")],
    batch_size: Annotated[int, typer.Option(help="Expected number of roots in a batch.")],
    max_readers: Annotated[int, typer.Option(help="K, how many training nodes read one node, at most.")],
    layers: Annotated[int, typer.Option(help="r, rounds of message passing.")] = 1,
    max_reads: Annotated[
        int | None,
        typer.Option(
            help="D, how many nodes one training node reads, at most.",
            show_default="unlimited; K for readers",
        ),
    ] = None,
    edge_owner: Annotated[
        str, typer.Option(metavar="sender|reader", help="Whose row holds an edge.")
    ] = "sender",
    steps: Annotated[int | None, typer.Option(help="How many steps.")] = None,
    noise_multiplier: Annotated[float | None, typer.Option(help="lambda = sigma / (2 C n).")] = None,
    epsilon: Annotated[float | None, typer.Option(help="The epsilon to stay within.")] = None,
    delta: Annotated[float | None, typer.Option(help="delta.", show_default="1 / (10 N)")] = None,
    sampler: Annotated[str, typer.Option(metavar="stable|paper")] = "stable",
    accountant: Annotated[str, typer.Option(metavar="pair|paper")] = "pair",
    clip: Annotated[float, typer.Option(help="C, the largest norm of one root's gradient.")] = 1.0,
    explain: Annotated[bool, typer.Option("--explain", help="Print the whole statement.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object as the last line.")] = False,
) -> None:
    """Price a run without touching data: of steps, noise and epsilon give two, the third is solved for."""
    from hushgraph import planner

    solved = planner.solve(
        num_train_nodes=train_nodes,
        num_layers=layers,
        max_readers=max_readers,
        max_reads=max_reads,
        edge_owner=edge_owner,
        batch_size=batch_size,
        steps=steps,
        noise_multiplier=noise_multiplier,
        epsilon=epsilon,
        delta=delta,
        sampler=sampler,
        accountant=accountant,
        clip=clip,
    )
    if as_json:
        typer.echo(json.dumps(planner.as_json(solved), allow_nan=False))
    else:
        from rich.console import Console

        planner.show(solved, Console(), explain=explain)


@app.command(cls=SectionedCommand)
def train(
    context: typer.Context,
    data: Annotated[
        str, typer.Argument(metavar="DATA", help="A name (demo), or the path of an .npz or .pt.")
    ],
    epsilon: Annotated[float | None, _budget("Spend at most this; the noise follows.")] = None,
    noise_multiplier: Annotated[
        float | None, _budget("lambda = sigma / (2 C n); epsilon follows, or with --epsilon the steps.")
    ] = None,
    non_private: Annotated[
        bool, _budget("No clipping, no noise, epsilon infinite.", "--non-private")
    ] = False,
    delta: Annotated[float | None, _budget("Of (epsilon, delta). [1 / (10 N)]")] = None,
    max_readers: Annotated[
        int | None, _bounds("K, how many training nodes read one node; 0 reads no edge. [by epsilon]")
    ] = None,
    max_reads: Annotated[
        int | None,
        _bounds("D, how many nodes one training node reads. [4 K + 4, which is free; K if readers own]"),
    ] = None,
    edge_owner: Annotated[
        str | None,
        _bounds("Whose row holds an edge. [sender; reader if directed]", metavar="sender|reader"),
    ] = None,
    sampler: Annotated[
        str, _bounds("How lists are cut. [stable, which has a proof]", metavar="stable|paper")
    ] = "stable",
    accountant: Annotated[
        str, _bounds("What prices a step. [pair, the tighter one]", metavar="pair|paper")
    ] = "pair",
    clipping: Annotated[
        str,
        _bounds("Also groups, percentile. [normalised, which reads no data]", metavar="normalised|flat|..."),
    ] = "normalised",
    clip: Annotated[float, _bounds("C, the norm of one root's gradient. [1: lr sets the scale]")] = 1.0,
    noise: Annotated[
        str, _bounds("Its spread. [common, which has a proof]", metavar="common|per-layer")
    ] = "common",
    model: Annotated[
        str, _model("The architecture. [gcn, the usual start]", metavar="gcn|gin|gat|mlp")
    ] = "gcn",
    layers: Annotated[int, _model("r, rounds of messages. [1: noise grows with K^r]")] = 1,
    hidden: Annotated[int | None, _model("Width. [128: noise grows with it; 256 without privacy]")] = None,
    encoder_layers: Annotated[int, _model("Linear layers before messages. [1: shallow stands noise]")] = 1,
    decoder_layers: Annotated[int, _model("Linear layers after messages. [1, likewise]")] = 1,
    activation: Annotated[
        str, _model("[tanh, which bounds what it passes on]", metavar="tanh|relu")
    ] = "tanh",
    batch_size: Annotated[
        int | None, _learning("Expected roots a step. [all, up to 200,000: noise weighs less]")
    ] = None,
    steps: Annotated[int | None, _learning("Updates. [600; 500 without privacy]")] = None,
    optimizer: Annotated[str, _learning("[adam, which needs the least tuning]", metavar="adam|sgd")] = "adam",
    lr: Annotated[float | None, _learning("Learning rate, falling to 0. [lower the more noise]")] = None,
    setting: Annotated[
        str, _reading("inductive drops edges between splits. [transductive]", metavar="NAME")
    ] = "transductive",
    symmetrize: Annotated[
        bool, _reading("Add the reverse of every edge. [edges as given]", "--symmetrize")
    ] = False,
    split: Annotated[str | None, _reading("Draw one, as 0.6/0.2/0.2. [the data's own]")] = None,
    split_seed: Annotated[int, _reading("Of that draw. [0: a split is public]")] = 0,
    num_classes: Annotated[int | None, _reading("[largest label + 1, taken as public]")] = None,
    seed: Annotated[int | None, _output("Reproducible, so not private. [from the operating system]")] = None,
    device: Annotated[str, _output("[auto: a GPU if there is one]", metavar="auto|cpu|cuda")] = "auto",
    out: Annotated[Path | None, _output("Folder of the run. [runs/DATA-MODEL-N, the first free N]")] = None,
    resume: Annotated[Path | None, _output("Go on with the run in this folder, on its DATA.")] = None,
    train_accuracy: Annotated[
        bool, _output("Also for a private run: a private figure, not covered. [no]", "--train-accuracy")
    ] = False,
    as_json: Annotated[bool, _output("One JSON object as the last line of output.", "--json")] = False,
    quiet: Annotated[bool, _output("Print errors and --json alone.", "--quiet")] = False,
) -> int:
    """Train a graph neural network with node-level differential privacy.

    Only --epsilon must be given: defaults, in brackets, are chosen without looking at private data.
    """
    from hushgraph import presentation, training
    from hushgraph.interruption import Interruption
    from hushgraph.progress import StepProgress

    path = resume or out or presentation.free_folder(data, model)
    begun: list[RunFolder] = []

    def announce(folder: RunFolder) -> None:
        begun.append(folder)
        if not (as_json or quiet):
            typer.echo(presentation.announcement(folder))

    try:
        with Interruption() as interruption, StepProgress(quiet=quiet) as progress:

            def observe(done: int, total: int, epsilon: float, accuracy: float | None) -> None:
                progress(done, total, epsilon, accuracy)
                interruption.check()

            watching: dict[str, Any] = {"device": device, "observer": observe, "on_start": announce}
            if resume is not None:
                _refuse_settings(context)
                run = training.resume(resume, data, **watching)
            else:
                settings = {
                    name: value
                    for name, value in context.params.items()
                    if name not in _NOT_SETTINGS | _RENAMED
                }
                settings |= {"num_layers": layers, "learning_rate": lr, "private": not non_private}
                run = training.train(data, out=path, **settings, **watching)
    except KeyboardInterrupt:
        return _fail(presentation.stopped(begun[0], data) if begun else "interrupted", 130)
    if as_json:
        typer.echo(json.dumps(presentation.as_json(run), allow_nan=False))
    elif not quiet:
        from rich.console import Console

        presentation.show(run, Console())
    return 0


@app.command()
def predict(
    run: Annotated[Path, typer.Argument(help="Folder of a finished run.")],
    data: Annotated[str, typer.Argument(help="The graph: its own or another one; no split is needed.")],
    out: Annotated[Path, typer.Option(help="The file to write: .csv or .npz.")],
    probabilities: Annotated[
        bool, typer.Option("--probabilities", help="Write them too, one column a class.")
    ] = False,
    symmetrize: Annotated[
        bool | None, typer.Option(help="Add reverse edges.", show_default="as in training")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it exists.")] = False,
    device: Annotated[str, typer.Option(metavar="auto|cpu|cuda", help="Where to compute.")] = "auto",
    quiet: Annotated[bool, typer.Option("--quiet", help="Print only errors.")] = False,
) -> None:
    """Predict the class of every node of a graph with a trained model."""
    from hushgraph import predictions

    predictions.check_out(out, force=force)
    from hushgraph.finished_run import Run

    found = Run.load(run, device=device).probabilities(data, symmetrize=symmetrize)
    predictions.save(out, found, with_probabilities=probabilities)
    if not quiet:
        typer.echo(f"{len(found):,} predictions in {out}. {predictions.NOT_COVERED}")


@app.command()
def compare(
    data: Annotated[str, typer.Argument(metavar="DATA", help="What to train on, as for train.")],
    epsilon: Annotated[float, typer.Option(help="Of each of the two private models.")],
    model: Annotated[str, typer.Option(metavar="gcn|gin|gat", help="The GNN.")] = "gcn",
    layers: Annotated[int, typer.Option(help="r, its rounds of message passing.")] = 1,
    steps: Annotated[
        int | None, typer.Option(help="Updates of each model.", show_default="600; 500 without privacy")
    ] = None,
    symmetrize: Annotated[bool, typer.Option("--symmetrize", help="Add the reverse of every edge.")] = False,
    split: Annotated[
        str | None, typer.Option(help="Draw one, as 0.6/0.2/0.2.", show_default="the data's own")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Reproducible, so not private.")] = None,
    device: Annotated[str, typer.Option(metavar="auto|cpu|cuda", help="Where to compute.")] = "auto",
    out: Annotated[
        Path | None, typer.Option(help="Folder for comparison.json, report.html and the runs.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object as the last line.")] = False,
) -> None:
    """GNN, DP-GNN, MLP and DP-MLP side by side, on the same split of your data."""
    arguments = {"epsilon": epsilon, "model": model, "num_layers": layers, "steps": steps, "device": device}
    _compare(out, data, as_json, **arguments, symmetrize=symmetrize, split=split, seed=seed)


@app.command()
def report(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a finished run.")],
    data: Annotated[
        str | None, typer.Argument(metavar="DATA", help="What it was trained on, for results per class.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="The page; its JSON twin is beside it.", show_default="RUN/report.html"),
    ] = None,
) -> None:
    """Write the report of a run: the guarantee in words and figures, for a privacy reviewer."""
    from hushgraph.comparing import comparison_of
    from hushgraph.report import write_report

    page = run / "report.html" if out is None else out
    write_report(run, page, data=data, comparison=comparison_of(run))
    typer.echo(f"Report in {page}, the same facts in {page.with_suffix('.json')}.")


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder to write; an earlier demonstration in it goes.")] = Path(
        "demo"
    ),
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object as the last line.")] = False,
) -> None:
    """Compare four models on a generated graph at epsilon 4 and write a report: about a minute."""
    from hushgraph import comparing, datasets

    comparing.clear_demo(out)
    _compare(out, datasets.load("demo"), as_json, name="demo", **comparing.DEMO)


def _compare(out: Path | None, data: Any, as_json: bool, **arguments: Any) -> None:
    from rich.console import Console

    from hushgraph import comparing

    console = Console()
    found = comparing.compare_into(out, data, console=None if as_json else console, **arguments)
    if as_json:
        typer.echo(json.dumps(comparing.as_json(found, out), allow_nan=False))
    else:
        console.print()
        comparing.show(found, out, console)


def _refuse_settings(context: typer.Context) -> None:
    """A resumed run keeps the settings it began with."""
    given = [
        parameter.opts[0]
        for parameter in context.command.params
        if parameter.name not in _NOT_SETTINGS and _is_given(context, str(parameter.name))
    ]
    if given:
        raise InputError(f"{', '.join(given)}: a resumed run keeps its settings; leave out all but --resume")


def _is_given(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and give its exit code: 0 done, 1 failed, 2 bad input, 3 over budget."""
    try:
        code = app(
            args=None if arguments is None else list(arguments), prog_name="hushgraph", standalone_mode=False
        )
    except HushgraphError as error:
        return _fail(str(error), error.exit_code)
    except typer.TyperException as error:
        return _fail(error.format_message(), 2)
    except (typer.Abort, KeyboardInterrupt):
        return _fail("interrupted", 130)
    except BrokenPipeError:
        # Whoever read our output has left; Python would complain once more when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return code if isinstance(code, int) else 0


def _fail(message: str, code: int) -> int:
    """One line on standard error."""
    print("hushgraph: " + " ".join(message.split()), file=sys.stderr)
    return code
