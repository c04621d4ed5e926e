"""Settings: everything that can be chosen about a run, one entry each in one table, hence a long file.

`train`, `prepare`, `compare`, the estimators, the command line, files for `--config` and the table of
settings in `docs/command-line.md` are made from the entries below. A new setting is one entry here, and is
read where `docs/architecture.md` says.
"""

import difflib
import inspect
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    TypeAlias,
    TypedDict,
    TypeVar,
    Union,
    get_args,
    get_origin,
)

from hushgraph._text import split_list, split_pair
from hushgraph._validate import convert_numbers
from hushgraph.errors import InputError
from hushgraph.graph.columns import EVERY_COLUMN, Columns, UnknownCategory, UnknownIds
from hushgraph.graph.records import read_places
from hushgraph.privacy import choices
from hushgraph.privacy.defaults import BILLBOARD_STEPS, LARGEST_BATCH, STEPS
from hushgraph.privacy.fields import refuse_noise_multiplier
from hushgraph.privacy.plans import PrivacyPlan
from hushgraph.runs.config import TrainingConfig

# Annotations are evaluated here, since entries are read off them; what needs torch is in quotes.
if TYPE_CHECKING:
    import torch
    from torch import nn

    from hushgraph.privacy.budget import BudgetEntry, DataBudget

OptimizerFactory: TypeAlias = "Callable[[Any], torch.optim.Optimizer]"
"""A function from parameters to an optimiser."""
PathLike: TypeAlias = "str | os.PathLike[str]"
Command = Literal["train", "plan", "compare", "check", "audit"]
_TRAIN: tuple[Command, ...] = ("train",)
_PRICED: tuple[Command, ...] = ("plan", "train")
_TRAINED: tuple[Command, ...] = ("train", "compare")
_ALL: tuple[Command, ...] = ("plan", "train", "compare")
_READING: tuple[Command, ...] = ("plan", "train", "compare", "audit")
_TABLES: tuple[Command, ...] = ("check", *_READING)
_Function = TypeVar("_Function", bound=Callable[..., Any])


@dataclass(frozen=True)
class Setting:
    """What is told about one setting.

    Attributes:
        name, type: of the argument; filled in by the table.
        help: one sentence, with the default and its reason in brackets.
        section: the heading under which commands list its flag.
        commands: those that have a flag for it; none for a setting of Python alone.
        default: None where it is chosen by a rule or by what the data says.
        flag: without leading dashes; its name with dashes unless given.
        metavar: how the value is shown; the choices, or the type, unless given.
        choices: the values it takes on the command line, where its type does not list them.
        excluded: commands that do not take some of its choices, and those choices.
        trees: whether it belongs to trees alone: a run that gives it is a run on trees.
        negated: whether its flag switches it off.
        column: the field of `Columns` that it fills in; of the same name where it is empty.
        read: turns the text of its flag into the value; a list of texts if the flag may be repeated.
        repeats: whether the flag may be given several times.
    """

    help: str
    default: Any = None
    name: str = ""
    type: Any = None
    section: str = "Run and output"
    commands: tuple[Command, ...] = _PRICED
    flag: str | None = None
    metavar: str | None = None
    choices: Any = None
    excluded: Mapping[Command, tuple[str, ...]] = field(default_factory=dict)
    trees: bool = False
    negated: bool = False
    column: str | None = None
    read: Callable[[Any], Any] | None = None
    repeats: bool = False

    @property
    def key(self) -> str:
        """The flag without dashes, which is the key in a file for `--config`."""
        return self.flag or self.name.replace("_", "-")

    @property
    def meaning(self) -> str:
        """The help of the argument."""
        return f"{'False: ' * self.negated}{self.help}{' Applies only to trees.' * self.trees}"

    @property
    def describes_data(self) -> bool:
        """Whether it says how to read the data."""
        return self.section in ("Data", "Tables (CSV or Parquet)")

    @property
    def values(self) -> tuple[str, ...]:
        """The choices on the command line; empty where it is no choice."""
        return list_values(self.type if self.choices is None else self.choices)


def list_values(hint: Any) -> tuple[str, ...]:
    """The values of a `Literal`, or of those in a union; empty for other types."""
    if get_origin(hint) in (Union, UnionType):
        return tuple(value for part in get_args(hint) for value in list_values(part))
    return get_args(hint) if get_origin(hint) is Literal else ()


def _read_pairs(
    flag: str, example: str, values: Iterable[str], *, convert: Callable[[str], Any] = str, expected: str = ""
) -> dict[str, Any]:
    """The columns of a flag such as `--hash city=16`, and what each holds; ValueError is not `expected`."""
    pairs: dict[str, Any] = {}
    for value in values:
        column, equals, text = split_pair(value)
        if not (column and equals and text):
            raise InputError(f"{flag}={value!r}: expected a column and what it holds, as {example}")
        if column in pairs:
            raise InputError(f"{flag}={value!r}: column {column!r} was given before; give it once")
        try:
            pairs[column] = convert(text)
        except ValueError:
            raise InputError(f"{flag}={value}: expected {expected.replace('COL', column)}") from None
    return pairs


def _read_rules(values: Iterable[str], *, convert: Callable[[str], Any] = str) -> dict[str, Any]:
    """The rules of a flag such as `--decimal ,`, by column; one without a column is for every column."""
    rules: dict[str, Any] = {}
    for value in values:
        column, equals, rule = split_pair(value) if "=" in value else ("", "", value)
        rules[column if equals else EVERY_COLUMN] = convert(rule)
    return rules


def read_names(values: Sequence[str]) -> list[str]:
    """The names of a flag such as `--ignore a,b`; repeats of the flag add up."""
    return [name for value in values for name in split_list(value)]


def _read_values(values: Sequence[str], *, flag: str, example: str = "COL=A|B") -> dict[str, list[str]]:
    """The values of a flag such as `--group region=north|south`, by column; repeats of the flag add up."""
    by_column: dict[str, list[str]] = {}
    for value in values:
        for column, listed in _read_pairs(flag, example, [value], convert=_split_values).items():
            by_column.setdefault(column, []).extend(listed)
    return by_column


def _read_label(values: Sequence[str]) -> str | list[str]:
    columns = read_names(values)
    return columns[0] if len(columns) == 1 else columns


def _read_bounds(text: str) -> tuple[float, ...] | str:
    if text == "private":
        return text
    try:
        return tuple(float(number) for number in text.split(","))
    except ValueError:
        raise InputError(f"bounds={text!r}: expected two numbers, as 0,100, or private") from None


def _read_weights(values: Sequence[str]) -> dict[str, float] | str:
    """The weights of `--class-weight`, by class; a text without "=" is refused where classes are known."""
    if any("=" not in value for value in values):
        return next(value for value in values if "=" not in value)
    return _read_pairs("class-weight", "NAME=0.1", values, convert=float, expected="a number from 0 to 1")


def _read_constants(values: Sequence[str]) -> dict[str, float]:
    """The constants of `--fill`, by column; a number alone is for every column of numbers."""
    try:
        return _read_rules(values, convert=float)
    except ValueError:
        raise InputError(
            f"fill={', '.join(values)!r}: expected a number, as 0, or a column and one, as COL=0"
        ) from None


def _read_scale(text: str) -> dict[str, Any]:
    """What `--scale` says of a column."""
    centre, spread, *log = text.split(",")
    if log not in ([], ["log"]):
        raise ValueError(text)
    return {"centre": float(centre), "spread": float(spread), "log": bool(log)}


_split_values = partial(split_list, separator="|")
_budget, _reads = partial(Setting, section="Budget"), partial(Setting, section="What training may read")
_model, _training = partial(Setting, section="Model"), partial(Setting, section="Training")
_python = partial(_training, commands=())
_data, _run = partial(Setting, section="Data", commands=_READING), partial(Setting, section="Run and output")
_asked = partial(_data, commands=_TABLES)
_table = partial(Setting, section="Tables (CSV or Parquet)", commands=_TABLES, column="")
_list = partial(_table, metavar="A,B,...", read=read_names, repeats=True)
_rules = partial(_table, read=_read_rules, repeats=True)
_values = partial(_table, metavar="COL=A|B", repeats=True)
SECTIONS = (
    "Budget",
    "What training may read",
    "Model",
    "Training",
    "Data",
    "Tables (CSV or Parquet)",
    "Run and output",
)
"""Headings of the help, in order."""


class Settings(TypedDict, total=False):
    """What a run is: the arguments of `prepare`."""

    epsilon: Annotated[
        float | None,
        _budget("Spend at most this; the noise follows, or the steps if noise is given.", commands=_ALL),
    ]
    sigma_over_clip: Annotated[
        float | None,
        _budget("Noise, sigma / C; epsilon follows, or the steps if epsilon is given.", trees=True),
    ]
    paper_noise_multiplier: Annotated[
        float | None, _budget("The same in the paper's notation: lambda = sigma / (2 C n).", trees=True)
    ]
    private: Annotated[
        bool,
        _budget(
            "No clipping, no noise, epsilon infinite.",
            True,
            flag="non-private",
            negated=True,
            commands=_TRAIN,
        ),
    ]
    delta: Annotated[float | None, _budget("The delta of (epsilon, delta). [1 / (10 N)]", commands=_ALL)]
    max_readers: Annotated[
        int | None,
        _reads(
            "K, how many training nodes read one node; 0 reads no edge. [by epsilon]",
            commands=_ALL,
            trees=True,
        ),
    ]
    max_reads: Annotated[
        int | None,
        _reads(
            "D, how many nodes one training node reads. [4 K + 4, which is free; K if readers own]",
            trees=True,
        ),
    ]
    edge_owner: Annotated[
        choices.EdgeOwner,
        _reads("Whose row holds an edge. [sender, whom it names first]", PrivacyPlan.edge_owner),
    ]
    directed: Annotated[
        bool,
        _reads(
            "An edge is one record. [two, one in the row of each end]",
            PrivacyPlan.directed,
            commands=_READING,
        ),
    ]
    sampler: Annotated[
        choices.Sampler,
        _reads("How lists are cut. [stable, which has a proof]", PrivacyPlan.sampler, trees=True),
    ]
    accountant: Annotated[
        choices.Accountant,
        _reads("What prices a step. [pair, the tighter one]", PrivacyPlan.accountant, trees=True),
    ]
    clipping: Annotated[
        choices.Clipping | str,
        _reads("How gradients are bounded. [normalised, which reads no data]", PrivacyPlan.clipping),
    ]
    clip: Annotated[
        float,
        _reads(
            "C, the largest gradient norm of a root. [1: the learning rate sets the scale]", PrivacyPlan.clip
        ),
    ]
    noise: Annotated[
        choices.Noise,
        _reads(
            "One sigma for all layers, or one per layer. [common, which has a proof]",
            PrivacyPlan.noise,
            trees=True,
        ),
    ]
    method: Annotated[
        choices.Method | None,
        _model("Training method. [billboard, or trees if a setting is given that only trees have]"),
    ]
    model: Annotated[
        "choices.Model | nn.Module | None",
        _model(
            "Architecture for trees, or in Python a module of your own. [gcn, the usual start]",
            choices=choices.Model,
            # An MLP is what the model is compared with.
            excluded={"compare": ("mlp",)},
            commands=_ALL,
            trees=True,
        ),
    ]
    num_layers: Annotated[
        int | None,
        _model("r, rounds of messages. [1: noise grows with K^r]", flag="layers", commands=_ALL, trees=True),
    ]
    hidden: Annotated[
        int | None,
        _model(
            f"Width of hidden layers. [64; trees {TrainingConfig.hidden}: noise grows with it]",
            commands=_TRAINED,
        ),
    ]
    encoder_layers: Annotated[
        int,
        _model(
            "Linear layers before messages. [1: fewer layers tolerate more noise]",
            TrainingConfig.encoder_layers,
            commands=_TRAIN,
            trees=True,
        ),
    ]
    decoder_layers: Annotated[
        int,
        _model(
            "Linear layers after messages. [1: fewer layers tolerate more noise]",
            TrainingConfig.decoder_layers,
            commands=_TRAIN,
            trees=True,
        ),
    ]
    activation: Annotated[
        choices.Activation,
        _model(
            "Activation of hidden layers. [tanh, which is bounded]",
            TrainingConfig.activation,
            commands=_TRAIN,
        ),
    ]
    batch_size: Annotated[
        int | None, _training(f"Expected roots a step. [all, up to {LARGEST_BATCH:,}: noise weighs less]")
    ]
    steps: Annotated[
        int | None,
        _training(f"Updates. [{BILLBOARD_STEPS}; trees up to {STEPS}; fewer without privacy]", commands=_ALL),
    ]
    optimizer: Annotated[
        "choices.Optimizer | OptimizerFactory",
        _training(
            "Update rule. [adam, which needs the least tuning]",
            TrainingConfig.optimizer,
            choices=choices.Optimizer,
            commands=_TRAIN,
        ),
    ]
    learning_rate: Annotated[
        float | None,
        _training("Learning rate, falling to 0. [lower the more noise]", flag="lr", commands=_TRAIN),
    ]
    momentum: Annotated[
        float | None, _python("Momentum of sgd; the first beta of adam. [0.7; 0.9 without privacy]")
    ]
    list_size: Annotated[
        float | None, _python("Scale of the size of a row's list as an input of a billboard. [by task]")
    ]
    own_place: Annotated[
        bool | None, _python("The board at a row's own place is an input of a billboard. [by task]")
    ]
    feature_norm: Annotated[
        float | None,
        _python(
            "Every row of features is scaled to this norm, from that row alone; 0 leaves them. [by task]"
        ),
    ]
    schedule: Annotated[
        choices.Schedule,
        _python("cosine takes the learning rate to 0 at the last step. [cosine]", TrainingConfig.schedule),
    ]
    average: Annotated[
        float,
        _python(
            "Decay of the moving average of weights that the run ends with; 0 keeps the last. [0.98]",
            TrainingConfig.average,
        ),
    ]
    stability: Annotated[
        float, _python("Added to norms by normalised clipping. [0.1]", TrainingConfig.stability)
    ]
    reading_scale: Annotated[
        float | None,
        _python("What one standard deviation of the board's noise becomes in a reading. [by task]"),
    ]
    reading_radius: Annotated[
        float | None, _python("Readings are shortened so that their norm stays below this. [by task]")
    ]
    resample_every: Annotated[
        int, _python("Steps between fresh lists of trees. [50]", TrainingConfig.resample_every)
    ]
    evaluate_every: Annotated[
        int, _python("Steps between looks at the validation split. [50]", TrainingConfig.evaluate_every)
    ]
    setting: Annotated[
        choices.Setting,
        _data(
            "inductive drops edges between splits. [transductive]",
            TrainingConfig.setting,
            commands=_PRICED,
            trees=True,
        ),
    ]
    symmetrize: Annotated[
        bool,
        _data("Add the reverse of every edge. [edges as given]", TrainingConfig.symmetrize),
    ]
    split: Annotated[
        str | None,
        _data("Draw a random split, such as 0.6/0.2/0.2. [the data's own, or that one]"),
    ]
    split_seed: Annotated[int, _data("Seed of that split. [0: a split is public]", TrainingConfig.split_seed)]
    edge_weight: Annotated[
        str | None,
        _asked(
            "Column of edges: the weight of a record; as COL:log1p, COL:sqrt, or count. [none]",
            metavar="COL[:FUNCTION]",
        ),
    ]
    people: Annotated[
        str | None, _data("For a PyG HeteroData: the type of nodes that are people. [refused]", commands=())
    ]
    num_classes: Annotated[
        int | None,
        _data("How many classes there are. [the data's own, or largest label + 1, assumed public]"),
    ]
    columns: Annotated[
        Columns | Mapping[str, Any] | None,
        _table("The settings of tables together, as `Columns`. [none]", commands=(), column=None),
    ]
    task: Annotated[
        choices.Task,
        _asked("What is asked of a node. [auto: by what is declared, two classes are binary]", "auto"),
    ]
    positive: Annotated[
        str | int | None,
        _asked("For two classes: the one whose probability is the score. [the second]", metavar="NAME"),
    ]
    rare: Annotated[bool, _asked("The positive class is rare: it alone casts ballots. [no]", False)]
    bounds: Annotated[
        Sequence[float] | str | None,
        _asked(
            "For task number: lowest and highest value, declared; private spends budget on them. [none]",
            metavar="A,B",
            read=_read_bounds,
        ),
    ]
    unit: Annotated[
        str | None,
        _data(
            "For task number: the unit of predictions and errors. [the name of its column]",
            metavar="NAME",
            commands=_ALL,
        ),
    ]
    class_weight: Annotated[
        Mapping[str, float] | str | None,
        _data(
            "How much an example of a class counts, 0 to 1, after clipping; repeat it. [1 each]",
            metavar="NAME=W",
            read=_read_weights,
            repeats=True,
            commands=("check", *_ALL),
        ),
    ]
    id: Annotated[str | None, _table("Column of node ids, text or numbers. [id]", metavar="COL")]
    label: Annotated[
        str | Sequence[str] | None,
        _table(
            "Column of classes; or columns of 0 and 1, one a label, or 'genre_*'. [label]",
            metavar="COL[,COL...]",
            read=_read_label,
            repeats=True,
        ),
    ]
    features: Annotated[Sequence[str] | None, _list("Columns of numbers. [all left over]")]
    categorical: Annotated[
        Mapping[str, Sequence[str]] | None,
        _values(
            "A column and its values, one-hot; repeat it. [none: values are public]",
            read=partial(_read_values, flag="categorical"),
        ),
    ]
    hashed: Annotated[
        Mapping[str, int] | None,
        _table(
            "A column and its number of buckets, one-hot; repeat it. [none]",
            flag="hash",
            metavar="COL=N",
            read=partial(
                _read_pairs, "hash", "COL=16", convert=int, expected="a number of buckets, as COL=16"
            ),
            repeats=True,
        ),
    ]
    ignore: Annotated[Sequence[str] | None, _list("Columns not to read. [none]")]
    classes: Annotated[
        Sequence[str] | None, _list("Names of the classes, or labels, in order. [labels are numbers]")
    ]
    separator: Annotated[
        str | None,
        _table("Separator between the labels of one cell. [; for task labels]", metavar="TEXT"),
    ]
    person: Annotated[
        str | None,
        _table(
            "Column that says whose a node is, where people have several: protects persons. [none]",
            metavar="COL",
        ),
    ]
    split_column: Annotated[
        str | None, _table("Column with train, val, test. [split]", metavar="COL", column="split")
    ]
    source: Annotated[str | None, _table("Column of an edge: who is read. [source]", metavar="COL")]
    target: Annotated[str | None, _table("Column of an edge: who reads. [target]", metavar="COL")]
    delimiter: Annotated[
        str | None, _table("Delimiter of CSV files, or tab. [by the first line of each file]", metavar="CHAR")
    ]
    missing: Annotated[Sequence[str] | None, _list("Texts that count as an empty cell, not in ids. [none]")]
    fill: Annotated[
        Mapping[str, float] | float | None,
        _rules(
            "Value of empty numeric cells: 0 for all columns, or COL=0; repeat it. [refused]",
            metavar="[COL=]X",
            read=_read_constants,
        ),
    ]
    indicators: Annotated[
        Sequence[str] | None,
        _list("Filled columns that get one more feature: 1 where a cell was empty. [none]"),
    ]
    numbers: Annotated[
        choices.Numbers | None,
        _table(
            "Scale numeric columns: private spends budget on constants, declared uses --scale only. "
            "[private]",
            commands=_ALL,
            column=None,
        ),
    ]
    scale: Annotated[
        Mapping[str, Any] | None,
        _table(
            "A numeric column with a declared centre and spread, at no cost; repeat it. [none]",
            metavar="COL=C,S[,log]",
            read=partial(
                _read_pairs,
                "scale",
                "COL=40,15",
                convert=_read_scale,
                expected="a centre and a spread, as COL=40,15, and perhaps log",
            ),
            repeats=True,
        ),
    ]
    decimal: Annotated[
        Mapping[str, str] | str | None,
        _rules(
            "Decimal separator: a comma for all columns, or COL=, for one. [a point]", metavar="[COL=]CHAR"
        ),
    ]
    thousands: Annotated[
        Mapping[str, str] | str | None,
        _rules("Thousands separator, given as for --decimal. [none]", metavar="[COL=]CHAR"),
    ]
    percent: Annotated[Sequence[str] | None, _list("Columns where 12% is 0.12; * for all. [refused]")]
    booleans: Annotated[
        Sequence[str] | None,
        _list("Columns of true or yes, 1, and false or no, 0. [refused]", flag="boolean"),
    ]
    dates: Annotated[
        Mapping[str, str] | None,
        _table(
            "A column and the day that its days are counted from; repeat it. [refused]",
            flag="date",
            metavar="COL=YYYY-MM-DD",
            read=partial(_read_pairs, "date", "COL=2000-01-01"),
            repeats=True,
        ),
    ]
    date_format: Annotated[
        Mapping[str, str] | str | None,
        _rules("Format of dates, as %d.%m.%Y; COL= for one column. [year-month-day]", metavar="[COL=]FORMAT"),
    ]
    cycles: Annotated[
        Mapping[str, Sequence[str]] | None,
        _values(
            "A date and weekday, month, day, hour: sine and cosine too. [none]",
            read=partial(_read_values, flag="cycles", example="COL=weekday|month"),
        ),
    ]
    looked_up: Annotated[
        Sequence[str] | None, _list("What was inferred from rows and is assumed public: classes, ... [none]")
    ]
    group: Annotated[
        Mapping[str, Sequence[str]] | None,
        _values(
            "A column and its values: covered figures by group. [none: values are public]",
            read=partial(_read_values, flag="group", example="region=north|south"),
        ),
    ]
    edge_date: Annotated[str | None, _table("Column of edges: the date of a record. [none]", metavar="COL")]
    since: Annotated[str | None, _table("Records before this day are dropped. [none]", metavar="DATE")]
    until: Annotated[str | None, _table("Records after this day are dropped. [none]", metavar="DATE")]
    half_life: Annotated[
        float | None, _table("Days after which a record counts half, by its age on --until. [none]")
    ]
    relation: Annotated[
        Mapping[str, Sequence[str]] | None,
        _values(
            "Column of edges and its values, a board or a map each. [none: values are public]",
            read=partial(_read_values, flag="relation", example="kind=calls|pays"),
        ),
    ]
    places: Annotated[
        Sequence[str] | str | None,
        _table(
            "Places that are not people: a file of their names, or their number. [none]",
            metavar="FILE|hash:N",
            read=read_places,
        ),
    ]
    unknown_category: Annotated[
        UnknownCategory | None, _table("A value that categorical does not list. [refuse]")
    ]
    unknown_ids: Annotated[UnknownIds | None, _table("Edges with an end that is not a node. [refuse]")]
    seed: Annotated[
        int | None, _run("Reproducible, so not private. [from the operating system]", commands=_TRAINED)
    ]
    exact_figures: Annotated[
        bool,
        _run(
            "Exact figures too, for you alone: the guarantee does not cover them. [no]",
            TrainingConfig.exact_figures,
            commands=_TRAINED,
        ),
    ]
    train_accuracy: Annotated[
        bool,
        _run(
            "Report training accuracy of a private run too; it is not covered. [no]",
            TrainingConfig.train_accuracy,
            commands=_TRAIN,
        ),
    ]


class RunSettings(Settings, total=False):
    """What a run is, and where: the arguments of `train` and of estimators."""

    device: Annotated[
        choices.Device, _run("Where to train. [auto: a GPU if there is one]", "auto", commands=_TRAINED)
    ]
    out: Annotated[
        "PathLike | None",
        _run(
            "Folder of the run, new or empty. [runs/DATA-MODEL-N; in Python a temporary one]", commands=_TRAIN
        ),
    ]
    budget: Annotated[
        "PathLike | DataBudget | BudgetEntry | None",
        _budget("Charge the whole cost to this budget of the data; see budget. [none]", commands=_TRAINED),
    ]
    engine: Annotated[
        str,
        _run(
            "What reads tables: memory; duckdb, if larger than memory; auto, by size; or Spark. [memory]",
            "memory",
            commands=_TRAIN,
            metavar="auto|memory|duckdb|spark|MASTER",
        ),
    ]
    memory: Annotated[
        str | None,
        _run("Memory that the engine may use, such as 8GiB. [4GiB]", metavar="SIZE", commands=_TRAIN),
    ]
    progress: Annotated[
        bool | None, _run("Show a bar, or lines in a log. [a bar in terminals and notebooks]", commands=())
    ]


def list_settings(kind: Any) -> dict[str, Setting]:
    """The entries of `Settings` or `RunSettings` by name."""
    return {
        name: replace(
            entry, name=name, type=hint.__origin__, column=name if entry.column == "" else entry.column
        )
        for name, hint in kind.__annotations__.items()
        for entry in hint.__metadata__
    }


ENGINE = ("engine", "memory")
"""The settings that say where tables are read; the numbers of a run do not depend on them."""
RETIRED = "noise_multiplier"
"""A name that meant two things."""
TABLE = list_settings(RunSettings)
"""Every setting by name."""
_PREPARED = list_settings(Settings)
# What other libraries and papers call a setting, by flag; where its value is another, how it follows.
SYNONYMS: dict[str, str | tuple[str, str]] = {
    "arch": "model",
    "batch": "batch-size",
    "bs": "batch-size",
    "clip-norm": "clip",
    "d": "max-reads",
    "depth": "layers",
    "epochs": ("steps", "one step is one update"),
    "eps": "epsilon",
    "expected-batch-size": "batch-size",
    "gpu": "device",
    "hidden-channels": "hidden",
    "hidden-dim": "hidden",
    "hidden-size": "hidden",
    "hops": "layers",
    "iterations": "steps",
    "k": "max-readers",
    "learning-rate": "lr",
    "max-degree": "max-readers",
    "max-epochs": ("steps", "one step is one update"),
    "max-grad-norm": "clip",
    "max-steps": "steps",
    "noise-multiplier": (
        "paper-noise-multiplier",
        "sigma / (2 C n), which it was here; for sigma / C, as elsewhere, give --sigma-over-clip",
    ),
    "num-epochs": ("steps", "one step is one update"),
    "num-hops": "layers",
    "num-layers": "layers",
    "num-steps": "steps",
    "num-train-nodes": "train-nodes",
    "output": "out",
    "output-dir": "out",
    "random-seed": "seed",
    "random-state": "seed",
    "sigma": ("sigma-over-clip", "sigma / C"),
    "target-delta": "delta",
    "target-epsilon": "epsilon",
    "undirected": "symmetrize",
}


def with_settings(kind: Any, *, without: Collection[str] = ()) -> Callable[[_Function], _Function]:
    """Return a decorator that spells out the `**settings` of a function.

    Its signature and the end of its docstring then name every setting, for `help`, editors and scikit-learn.

    Args:
        kind: `Settings` or `RunSettings`.
        without: settings that the function does not take. Its own parameters are left out too.
    """

    def spell_out(function: _Function) -> _Function:
        signature = inspect.signature(function)
        own = [each for each in signature.parameters.values() if each.kind is not each.VAR_KEYWORD]
        skipped = {*without, *(each.name for each in own)}
        entries = [entry for name, entry in list_settings(kind).items() if name not in skipped]
        added = [
            inspect.Parameter(
                each.name, inspect.Parameter.KEYWORD_ONLY, default=each.default, annotation=each.type
            )
            for each in entries
        ]
        lines = [f"    {each.name}: {each.meaning}" for each in entries]
        function.__dict__["__signature__"] = signature.replace(parameters=[*own, *added])
        function.__doc__ = "\n".join([inspect.cleandoc(function.__doc__ or ""), "", "Settings:", *lines])
        return function

    return spell_out


def complete(settings: Mapping[str, Any], *, kind: Any = Settings) -> dict[str, Any]:
    """All settings, with defaults for those that are left out.

    Raises:
        InputError: listing what is no setting, with the nearest one, or no number.
    """
    table = list_settings(kind)
    check_names(settings, table)
    full = {name: settings.get(name, entry.default) for name, entry in table.items()}
    types = {name: inspect.formatannotation(entry.type) for name, entry in table.items()}
    return convert_numbers(full, types)


def check_names(given: Mapping[str, Any], known: Mapping[str, Setting], *, who: str = "train") -> None:
    """Raise InputError for a name that is no setting; suggest the one whose flag it is, or the nearest."""
    by_flag = {entry.key: name for name, entry in known.items()}
    for name, value in given.items():
        if name == RETIRED:
            refuse_noise_multiplier(value)
        if name not in known:
            flag = name.replace("_", "-")
            meant = SYNONYMS.get(flag, flag)
            near = difflib.get_close_matches(name, known, n=1)
            meant = by_flag.get(meant if isinstance(meant, str) else meant[0], near[0] if near else "")
            raise InputError(f"{name}: {who} has no such argument{f'; did you mean {meant}?' * bool(meant)}")


def take_columns(settings: Mapping[str, Any]) -> Columns | Mapping[str, Any] | None:
    """`columns` with the settings of single columns put in; None where there are none of both."""
    columns: Columns | Mapping[str, Any] | None = settings["columns"]
    single = {
        entry.column: settings[name]
        for name, entry in _PREPARED.items()
        if entry.column is not None and settings[name] is not None
    }
    if not single:
        return columns
    return replace(columns, **single) if isinstance(columns, Columns) else {**(columns or {}), **single}


def take_column(
    columns: Columns | Mapping[str, Any] | None, name: str
) -> tuple[Columns | Mapping[str, Any] | None, Any]:
    """The columns without one that other data than tables has too, and what was given for it, if anything."""
    if not isinstance(columns, Mapping) or name not in columns:
        return columns, None
    others = {each: value for each, value in columns.items() if each != name}
    return others or None, columns[name]


def list_given_for_trees(settings: Mapping[str, Any]) -> list[str]:
    """The settings given that belong to trees alone; a module of one's own counts as none of them."""
    return [
        name
        for name, entry in _PREPARED.items()
        if entry.trees
        and (value := settings[name]) != entry.default
        and (name != "model" or isinstance(value, str))
    ]
