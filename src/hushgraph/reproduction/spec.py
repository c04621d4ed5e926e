"""The specifications of the experiments: TOML files, read into frozen dataclasses.

Every file in the folder `paper` is one experiment: its cells, their settings and the printed numbers.
`common.toml` holds what the paper states once for all of them.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from hushgraph._text import find_nearest
from hushgraph.errors import InputError

FOLDER = Path(__file__).parent / "paper"
COMMON = "common"
# Without noise, "non-private" has the settings of the paper and "non-private-ours" our defaults.
NON_PRIVATE = ("non-private", "non-private-ours")
DP_MODES = ("as-published", "sound")
# In the order in which figures show them.
MODES = (*NON_PRIVATE, *reversed(DP_MODES))
Axes = tuple[tuple[str, float], ...]
Published = tuple[float, "float | None"]

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

    def is_called(self, data: str) -> bool:
        """Whether data of this name is that of the column, which may be a part of another dataset."""
        return data.replace("_", "-") in {name.replace("_", "-") for name in (self.name, self.dataset)}


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
        notes: what a reader of the table must know besides what follows from its records.
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
    notes: tuple[str, ...] = ()

    @property
    def has_fixed_seeds(self) -> bool:
        """Whether the seed determines a run; else it draws the split alone."""
        return self.kind != "frontier"

    def column(self, name: str) -> Column:
        """Return the column of this name."""
        return next(column for column in self.columns if column.name == name)


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
def load_common() -> Mapping[str, Any]:
    """Load the settings that all experiments share."""
    return _read(FOLDER / f"{COMMON}.toml")


def parse(name: str, given: Mapping[str, Any]) -> Experiment:
    """Build an experiment from the content of its file."""
    values = dict(given)
    axes = {axis: tuple(map(float, points)) for axis, points in values.pop("axes", {}).items()}
    columns = tuple(
        Column(**{"dataset": column, **about, "name": column})
        for column, about in values.pop("columns", {}).items()
    )
    rows = tuple(map(_parse_row, values.pop("rows", [])))
    return Experiment(name=name, axes=axes, columns=columns, rows=rows, **values)


def _parse_row(given: Mapping[str, Any]) -> Row:
    cells = {
        column: Cell(**{_PRINTED.get(key, key): value for key, value in about.items()})
        for column, about in given.get("cells", {}).items()
    }
    modes = DP_MODES if given.get("private", True) else NON_PRIVATE
    return Row(**{"printed": given["row"], "modes": modes, **given, "cells": cells})


def find_cell(row: Row, column: str) -> Cell | None:
    """Return the cell of a row and column, with the settings of another experiment if the row says so."""
    own = Cell() if row.arguments else row.cells.get(column)
    if row.like is None or (own is not None and own.has_settings):
        return own
    other = load(row.like)
    like = next((r.cells.get(column) for r in other.rows if r.row == row.row), None)
    if like is None or own is None:
        return like
    return replace(like, published=own.published, points=own.points)


def published_numbers(experiment: Experiment) -> dict[tuple[str, str, Axes], Published]:
    """Return the printed numbers: (column, printed row, axes) -> (mean, spread), accuracies in percent.

    Axes are pairs of name and value; the full batch of ogbn-arxiv is its 90,941 training nodes. In the table
    of datasets the rows are its headings. Figures have no printed numbers.
    """
    numbers: dict[tuple[str, str, Axes], Published] = {}
    for column in experiment.columns:
        for heading, value in column.statistics.items():
            numbers[column.name, heading, ()] = (value, None)
    axis = next(iter(experiment.axes), "")
    for row in experiment.rows:
        for column_name, own in row.cells.items():
            if own.published is not None:
                mean, spread = own.published
                numbers[column_name, row.printed, ()] = (mean, spread)
            for value, accuracy in own.points:
                numbers[column_name, row.printed, ((axis, value),)] = (accuracy, None)
    return numbers


def _read(path: Path) -> dict[str, Any]:
    return tomllib.loads(path.read_text(encoding="utf-8"))
