"""The specifications of the experiments: TOML files, read into frozen dataclasses.

Every file in the folder `paper` is one experiment: its cells, their settings and the printed numbers.
`common.toml` holds what the paper states once for all of them.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from hushgraph._text import find_nearest
from hushgraph.errors import InputError

FOLDER = Path(__file__).parent / "paper"
COMMON = "common"
KINDS = ("table", "curve", "classes", "statistics", "frontier")
# Without noise, "non-private" has the settings of the paper and "non-private-ours" our defaults.
NON_PRIVATE = ("non-private", "non-private-ours")
DP_MODES = ("as-published", "sound")
# In the order in which figures show them.
MODES = (*NON_PRIVATE, *reversed(DP_MODES))
AXES = ("epsilon", "batch_size", "max_readers")
Axes = tuple[tuple[str, float], ...]
Published = tuple[float, "float | None"]
T = TypeVar("T")

# Names of printed columns that differ from those of the fields.
_PRINTED = {"lambda": "noise_multiplier", "K": "max_readers"}


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One row of a table of hyper-parameters, and the accuracy printed for it.

    Attributes:
        lr, batch_size, activation, n_enc, n_dec: as printed.
        noise_multiplier: lambda; None if the paper prints a dash.
        max_readers: K; None if the paper prints a dash.
        published: mean and standard deviation in percent; a missing spread is None.
        points: pairs of a value of the axis and an accuracy in percent, if the paper prints an axis.
    """

    lr: float | None = None
    batch_size: int | None = None
    activation: str | None = None
    n_enc: int | None = None
    n_dec: int | None = None
    noise_multiplier: float | None = None
    max_readers: int | None = None
    published: Published | None = None
    points: tuple[tuple[float, float], ...] = ()

    @property
    def has_settings(self) -> bool:
        """Whether this cell has settings of its own."""
        return self.lr is not None


@dataclass(frozen=True, kw_only=True)
class Column:
    """One dataset of a table.

    Attributes:
        name: the name of the column.
        dataset: its name in the catalog; that of the column by default.
        file: a file in the data folder instead.
        classes: how many classes that file has, as published.
        symmetrize: whether to add the reverse of every edge.
        split_by: an array of the file with one group per node; whole groups are assigned to the splits.
        split: fractions of a random split, drawn anew for every seed; by default the split of the data.
        setting: the setting of this column, if it is not that of the experiment.
        statistics: the numbers in the paper's table of datasets.
    """

    name: str
    dataset: str = ""
    file: str | None = None
    classes: int | None = None
    symmetrize: bool = False
    split_by: str | None = None
    split: str | None = None
    setting: str | None = None
    statistics: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Row:
    """One method of a table.

    Attributes:
        row: its name in records.
        printed: its name in the paper.
        model, layers, optimizer: the model and its optimizer.
        private: whether it is trained with noise.
        modes: the modes it runs in.
        like: the experiment whose settings its cells share.
        minus: two rows whose difference this row is; it runs nothing.
        arguments: of `train`, instead of the model and the settings of the cells.
        clear: the printed name of a second accuracy, that of predictions in the clear.
        new_nodes: whether test nodes are taken out before training and arrive afterwards.
        cells: the cells by column.
    """

    row: str
    printed: str = ""
    model: str = "gcn"
    layers: int = 1
    optimizer: str = "adam"
    private: bool = True
    modes: tuple[str, ...] = ()
    like: str | None = None
    minus: tuple[str, ...] = ()
    arguments: Mapping[str, Any] = field(default_factory=dict)
    clear: str | None = None
    new_nodes: bool = False
    cells: Mapping[str, Cell] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """One table or figure.

    Attributes:
        name: the name of its file.
        title: one line.
        kind: "table", "curve", "classes" (accuracy by class), "statistics" (of datasets; trains nothing) or
            "frontier" (default settings without a fixed seed, at every epsilon).
        source: the table or figure of the paper; empty if the experiment is not in the paper.
        setting: "transductive" or "inductive".
        epsilon: the budget of every private cell without an epsilon axis.
        seeds: the default number of runs per cell.
        noise_follows_batch: whether lambda is proportional to the batch size, so that noise per update is
            constant.
        axes: the values that vary within a cell.
        columns, rows: the datasets and the methods.
    """

    name: str
    title: str
    kind: str = "table"
    source: str = ""
    setting: str = "transductive"
    epsilon: float | None = None
    seeds: int = 1
    noise_follows_batch: bool = False
    axes: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    columns: tuple[Column, ...] = ()
    rows: tuple[Row, ...] = ()

    def column(self, name: str) -> Column:
        """Return the column of this name."""
        return next(column for column in self.columns if column.name == name)


@dataclass(frozen=True, kw_only=True)
class Common:
    """The settings that all experiments share.

    Attributes:
        hidden, heads, beta1, beta2, clip_percentile: as stated in the paper.
        epochs, least_steps, most_steps: the length of training without noise, which the paper does not state.
    """

    hidden: int
    heads: int
    beta1: float
    beta2: float
    clip_percentile: float
    epochs: int
    least_steps: int
    most_steps: int


def names() -> tuple[str, ...]:
    """Return the names of all experiments, sorted."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.toml") if path.stem != COMMON))


@lru_cache(maxsize=64)
def load(name: str) -> Experiment:
    """Load the experiment called `name`."""
    if name not in names():
        near = find_nearest(name, names(), cutoff=0.4)
        advice = f"did you mean {near}?" if near else f"known: {', '.join(names())}"
        raise InputError(f"experiment {name!r} is not known; {advice}")
    return parse(name, _read(FOLDER / f"{name}.toml"))


@lru_cache(maxsize=1)
def load_common() -> Common:
    """Load the settings that all experiments share."""
    return _build(Common, _read(FOLDER / f"{COMMON}.toml"), COMMON)


def parse(name: str, given: Mapping[str, Any]) -> Experiment:
    """Build an experiment from the content of its file; InputError names an unknown or missing key."""
    values = dict(given)
    axes = {axis: tuple(float(v) for v in points) for axis, points in values.pop("axes", {}).items()}
    _check_known(axes, AXES, f"{name}, axes")
    columns = tuple(
        _build(Column, {"dataset": column, **about, "name": column}, f"{name}, columns.{column}")
        for column, about in values.pop("columns", {}).items()
    )
    rows = tuple(_build_row(row, f"{name}, rows") for row in values.pop("rows", []))
    values |= {"name": name, "axes": axes, "columns": columns, "rows": rows}
    experiment = _build(Experiment, values, name)
    _check(experiment)
    return experiment


def find_cell(experiment: Experiment, row: Row, column: str) -> Cell | None:
    """Return the cell of a row and column, with the settings of another experiment if the row says so."""
    own = Cell() if row.arguments else row.cells.get(column)
    if row.like is None or (own is not None and own.has_settings):
        return own
    other = load(row.like)
    like = next((r.cells.get(column) for r in other.rows if r.row == row.row), None)
    if like is None or own is None:
        return like
    return replace(like, published=own.published, points=own.points)


def published_numbers(experiment_name: str) -> dict[tuple[str, str, Axes], Published]:
    """Return the printed numbers: (column, printed row, axes) -> (mean, spread), accuracies in percent.

    Axes are pairs of name and value; the full batch of ogbn-arxiv is its 90,941 training nodes. In the table
    of datasets the rows are its headings. Figures have no printed numbers.
    """
    experiment = load(experiment_name)
    numbers: dict[tuple[str, str, Axes], Published] = {}
    for column in experiment.columns:
        for heading, value in column.statistics.items():
            numbers[column.name, heading, ()] = (value, None)
    axis = next(iter(experiment.axes), "")
    for row in experiment.rows:
        for column_name, own in row.cells.items():
            if own.published is not None:
                numbers[column_name, row.printed, ()] = own.published
            for value, accuracy in own.points:
                numbers[column_name, row.printed, ((axis, value),)] = (accuracy, None)
    return numbers


def published_by_row(experiment_name: str, column: str) -> dict[tuple[str, Axes], float]:
    """Return the printed means of a column, by the row of the records and the axes."""
    rows = {row.printed: row.row for row in load(experiment_name).rows if not row.minus}
    return {
        (rows[printed], axes): mean
        for (owner, printed, axes), (mean, _) in published_numbers(experiment_name).items()
        if owner == column and printed in rows
    }


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InputError(f"{path.name}: cannot be read ({error}); restore the file") from None


def _build_row(given: Mapping[str, Any], where: str) -> Row:
    values = dict(given)
    where = f"{where}.{values.get('row', '?')}"
    cells = {
        column: _build(Cell, {_PRINTED.get(k, k): v for k, v in about.items()}, f"{where}.cells.{column}")
        for column, about in values.pop("cells", {}).items()
    }
    values.setdefault("printed", values.get("row"))
    values.setdefault("modes", DP_MODES if values.get("private", True) else NON_PRIVATE)
    return _build(Row, {**values, "cells": cells}, where)


def _build(kind: type[T], values: Mapping[str, Any], where: str) -> T:
    """Build a dataclass from the keys of a table; an unknown key raises InputError with the nearest one."""
    known = [f.name for f in fields(kind)]  # type: ignore[arg-type]
    _check_known(values, known, where)
    try:
        return kind(**{name: _freeze(value) for name, value in values.items()})
    except TypeError as error:
        raise InputError(f"{where}: {str(error).split('() ')[-1]}; add it to the file") from None


def _freeze(value: Any) -> Any:
    return tuple(_freeze(one) for one in value) if isinstance(value, list) else value


def _check_known(values: Mapping[str, Any], known: Any, where: str) -> None:
    for name in values:
        if name not in known:
            nearest = find_nearest(name, known, cutoff=0.0)
            raise InputError(f"{where}: unknown key {name}; the nearest known one is {nearest}")


def _check(experiment: Experiment) -> None:
    """Raise InputError for an experiment that cannot run."""
    name = experiment.name
    if experiment.kind not in KINDS:
        raise InputError(f"{name}: kind={experiment.kind!r}; expected one of {', '.join(KINDS)}")
    columns = {column.name for column in experiment.columns}
    labels = {row.row for row in experiment.rows}
    for row in experiment.rows:
        unknown = sorted(set(row.cells) - columns)
        if unknown:
            raise InputError(f"{name}, rows.{row.row}: no column {unknown[0]}; known: {', '.join(columns)}")
        if set(row.modes) - set(MODES):
            raise InputError(f"{name}, rows.{row.row}: modes={row.modes}; expected some of {MODES}")
        if set(row.minus) - labels:
            raise InputError(f"{name}, rows.{row.row}: minus={row.minus}; expected two rows of the table")
        if any(own.points for own in row.cells.values()) and len(experiment.axes) != 1:
            raise InputError(f"{name}, rows.{row.row}: points need exactly one axis")
