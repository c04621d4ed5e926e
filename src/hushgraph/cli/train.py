"""`hushgraph train`: one private model."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hushgraph.cli import tables
from hushgraph.cli.config_file import ConfigFile, PrintConfig
from hushgraph.cli.data_root import DataRoot
from hushgraph.cli.failure import fail
from hushgraph.cli.help_sections import data_argument, options
from hushgraph.cli.sources import is_given, where_given
from hushgraph.cli.terminal import console
from hushgraph.errors import InputError

if TYPE_CHECKING:
    from hushgraph.runs.folder import RunFolder

# Parameters of `train` that are not settings of the run, so that they may accompany --resume.
_NOT_SETTINGS = {"data", "edges", "data_root", "resume", "device", "as_json", "quiet"}
_NOT_SETTINGS |= {"config", "print_config"}
# Settings that `hushgraph.train` has other names for.
_RENAMED = {"layers", "lr", "non_private", "out", *tables.FLAGS}

EXAMPLES = """\
hushgraph train demo --epsilon 4
hushgraph train people.npz --epsilon 2 --model gin --symmetrize --out gin
hushgraph train people.npz --resume gin
hushgraph train nodes.csv --edges edges.csv --epsilon 4 --label school \\
    --classes red,blue --hash city=16 --split 0.6/0.2/0.2"""

_budget, _model, _bounds = options("Budget"), options("Model"), options("What training may read")
_learning, _reading, _output = options("Training"), options("Data"), options("Run and output")


def train(
    context: typer.Context,
    data: Annotated[str, data_argument("A name (demo), an .npz or .pt, a folder of tables or its .toml.")],
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
        _bounds("[normalised, which reads no data]", metavar="normalised|flat|groups|percentile"),
    ] = "normalised",
    clip: Annotated[float, _bounds("C, the norm of one root's gradient. [1: lr sets the scale]")] = 1.0,
    noise: Annotated[
        str, _bounds("Its spread. [common, which has a proof]", metavar="common|per-layer")
    ] = "common",
    secure_noise: Annotated[
        bool,
        _bounds("Cryptographic, exact, on a grid; a little slower. [torch's generator]", "--secure-noise"),
    ] = False,
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
    steps: Annotated[int | None, _learning("Updates. [600; 300 to 600 without privacy]")] = None,
    optimizer: Annotated[str, _learning("[adam, which needs the least tuning]", metavar="adam|sgd")] = "adam",
    lr: Annotated[float | None, _learning("Learning rate, falling to 0. [lower the more noise]")] = None,
    setting: Annotated[
        str,
        _reading("inductive drops edges between splits. [transductive]", metavar="transductive|inductive"),
    ] = "transductive",
    symmetrize: Annotated[
        bool, _reading("Add the reverse of every edge. [edges as given]", "--symmetrize")
    ] = False,
    split: Annotated[str | None, _reading("Draw one, as 0.6/0.2/0.2. [the data's own, or that]")] = None,
    split_seed: Annotated[int, _reading("Of that draw. [0: a split is public]")] = 0,
    num_classes: Annotated[int | None, _reading("[largest label + 1, taken as public]")] = None,
    edges: tables.Edges = None,
    id_column: tables.Id = None,
    label: tables.Label = None,
    features: tables.Features = None,
    categorical: tables.Categorical = None,
    hash_column: tables.Hash = None,
    ignore: tables.Ignore = None,
    classes: tables.Classes = None,
    split_column: tables.SplitColumn = None,
    source: tables.Source = None,
    target: tables.Target = None,
    delimiter: tables.Delimiter = None,
    data_root: DataRoot = None,
    seed: Annotated[int | None, _output("Reproducible, so not private. [from the operating system]")] = None,
    device: Annotated[str, _output("[auto: a GPU if there is one]", metavar="auto|cpu|cuda")] = "auto",
    out: Annotated[Path | None, _output("Folder of the run. [runs/DATA-MODEL-N, the first free N]")] = None,
    resume: Annotated[Path | None, _output("Go on with the run in this folder, on its DATA.")] = None,
    config: ConfigFile = None,
    print_config: PrintConfig = False,
    train_accuracy: Annotated[
        bool, _output("Also for a private run: a private figure, not covered. [no]", "--train-accuracy")
    ] = False,
    as_json: Annotated[bool, _output("One JSON object as the last line of output.", "--json")] = False,
    quiet: Annotated[bool, _output("Print errors and --json alone.", "--quiet")] = False,
) -> int:
    """Train one model with node-level differential privacy.

    Only --epsilon must be given: defaults, in brackets, are chosen without looking at private data.
    """
    from hushgraph.cli import presentation
    from hushgraph.cli.progress import StepProgress
    from hushgraph.training import distributed
    from hushgraph.training import train as training
    from hushgraph.training.interruption import Interruption

    begun: list[RunFolder] = []

    def announce(folder: RunFolder) -> None:
        begun.append(folder)
        if not (as_json or quiet):
            typer.echo(presentation.announcement(folder, data))

    try:
        group = context.with_resource(distributed.join_group())
        with group.share_errors():
            given = tables.with_edges(data, edges)
            settings = {} if resume is not None else _settings(context)
            if resume is not None:
                _refuse_settings(context)
        path = resume or out or Path(group.broadcast(lambda: str(presentation.free_folder(data, model))))
        with Interruption() as interruption, StepProgress(quiet=quiet or not group.leads) as progress:

            def observe(done: int, total: int, epsilon: float, accuracy: float | None) -> None:
                progress(done, total, epsilon, accuracy)
                interruption.check()

            watching: dict[str, Any] = {"device": device, "observer": observe, "on_start": announce}
            if resume is not None:
                run = training.resume(resume, given, **watching)
                if not (begun or as_json or quiet) and group.leads:
                    typer.echo(f"{resume} was finished before; nothing was trained.")
            else:
                run = training.train(given, out=path, **settings, **watching)
    except distributed.ReportedError as error:
        return error.exit_code
    except KeyboardInterrupt:
        more = "" if edges is None else f" --edges {shlex.quote(str(edges))}"
        return fail(presentation.stopped(begun[0], data) + more if begun else "interrupted", 130)
    if not group.leads:
        return 0
    if as_json:
        typer.echo(json.dumps(presentation.as_json(run), allow_nan=False))
    elif not quiet:
        presentation.show(run, console())
    return 0


def _settings(context: typer.Context) -> dict[str, Any]:
    """The arguments of `hushgraph.train` that were given as flags."""
    given = context.params
    settings = {name: value for name, value in given.items() if name not in _NOT_SETTINGS | _RENAMED}
    settings |= {"num_layers": given["layers"], "learning_rate": given["lr"]}
    return settings | {"private": not given["non_private"], "columns": tables.columns_in(given)}


def _refuse_settings(context: typer.Context) -> None:
    """A resumed run keeps the settings it began with."""
    given = [
        where_given(context, str(parameter.name)) + parameter.opts[0]
        for parameter in context.command.params
        if parameter.name not in _NOT_SETTINGS and is_given(context, str(parameter.name))
    ]
    if given:
        raise InputError(f"{', '.join(given)}: a resumed run keeps its settings; leave out all but --resume")
