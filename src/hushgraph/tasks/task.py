"""`Task`: the interface of all tasks, and the register of tasks by name.

A label is an entry of the array `y` of a graph. Arrays of labels are integers, with -1 for no label, or
floating-point numbers, with NaN for no label; several numbers per node are further columns.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np
import numpy.typing as npt

from hushgraph._arrays import FloatArray
from hushgraph.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor

Tables = Sequence[npt.NDArray[Any]]
"""One array for every table of a task."""


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """How good predictions are.

    Attributes:
        figures: numbers about quality, by name; the headline of the task among them.
    """

    figures: Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table of counts of evaluated rows; a row adds 1 to one cell, or to none.

    Attributes:
        name: what the table is called, such as "confusion".
        shape: the number of cells along every axis, which is public.
        axes: what every axis is, such as ("label", "predicted class").
        cells_of_a_row: how many cells a row adds to, where these are several tables in one, or sums.
        grid: 1 for counts. For sums, to which a row adds a vector of norm at most 1, how many steps 1 has.
    """

    name: str
    shape: tuple[int, ...]
    axes: tuple[str, ...]
    cells_of_a_row: int = 1
    grid: int = 1


@dataclass(frozen=True, kw_only=True)
class Task(ABC):
    """What is asked of a node.

    The fields of a task are its public settings; they are written to the folder of a run. Clipping, noise and
    what is charged are no task's: docs/architecture.md says what a task may change.

    Attributes:
        name: what the task is called in files.
        headline: the figure that validation and test results show, such as "accuracy".
        answer: what is predicted of a node, as words inside a sentence.
        hub_task: what hubs of models call it.
    """

    name: ClassVar[str]
    headline: ClassVar[str]
    answer: ClassVar[str] = "the class"
    hub_task: ClassVar[str] = "node-classification"

    @property
    @abstractmethod
    def num_outputs(self) -> int:
        """How many numbers a model computes for a node."""

    @property
    @abstractmethod
    def ballot_width(self) -> int:
        """How many numbers a row casts onto a place, and so how wide a board and a reading are."""

    @property
    @abstractmethod
    def label_change(self) -> float:
        """The largest squared change of a ballot when the label of a row becomes another one."""

    @property
    def is_centred(self) -> bool:
        """Whether the numbers of every ballot add up to 0, so that the mean of a place is noise alone."""
        return False

    @property
    def entry_squares(self) -> tuple[Fraction, Fraction] | None:
        """The squares of what a ballot gives to its class and takes from every other.

        Ballots of this form are counted exactly, by classes. None for ballots of another form: they are
        rounded onto the grid from `make_ballots`.
        """
        return None

    @property
    def first_output(self) -> float:
        """What every output of a model is before training, where nothing is read; public."""
        return 0.0

    @property
    def judged_by(self) -> str:
        """The figure that models are compared by, as tables of figures call it; the headline unless given."""
        return self.headline

    @property
    def question(self) -> str:
        """What is asked of a node, as words inside a sentence."""
        return f"{self.num_outputs} outputs"

    def check(self) -> None:
        """Raise GraphError where nothing can be learnt, whatever the labels."""
        return

    @abstractmethod
    def check_labels(self, labels: Any) -> npt.NDArray[Any]:
        """Convert labels to the array that the other methods take; raise GraphError for what is no label."""

    @abstractmethod
    def make_ballots(self, labels: npt.NDArray[Any]) -> FloatArray:
        """float64 [rows, ballot_width]: t(y) of labelled rows, of Euclidean norm at most 1."""

    @abstractmethod
    def predict_ballots(self, outputs: Tensor) -> FloatArray:
        """float64 [rows, ballot_width]: what rows without a label cast, from the outputs of a released model.

        Longer ballots are scaled to norm 1; what is not finite casts nothing.
        """

    @staticmethod
    @abstractmethod
    def loss(outputs: Tensor, labels: Tensor) -> Tensor:
        """[rows]: the loss of every row, differentiable by its outputs; 0 for a row without a label.

        The loss of a row depends on the outputs and the label of that row alone.
        """

    @abstractmethod
    def show(self, outputs: Tensor) -> Tensor:
        """[rows, num_outputs]: outputs as they are shown to users, such as probabilities."""

    def average(
        self, shown: Tensor, mean_of_neighbours: Callable[[Tensor], Tensor], is_alone: Tensor
    ) -> Tensor:
        """[rows, num_outputs]: predictions that count neighbours in the clear; the mean of both here.

        Args:
            shown: what `show` gave.
            mean_of_neighbours: the mean over the neighbours of every row of numbers, [rows, ...]; 0 without.
            is_alone: [rows], which rows have no neighbours.
        """
        import torch

        return torch.where(is_alone[:, None], shown, (shown + mean_of_neighbours(shown)) / 2)

    @abstractmethod
    def predict(self, shown: Tensor) -> Tensor:
        """[rows]: one prediction for every row, from what `show` gave, not from outputs themselves."""

    @abstractmethod
    def evaluate(self, predicted: npt.NDArray[Any], labels: npt.NDArray[Any]) -> Evaluation:
        """Compare predictions with the labels of at least one row; every row has a label."""

    @property
    def tables(self) -> tuple[Table, ...]:
        """The tables of counts from which figures that may be published are computed; none unless defined.

        Noise on every cell grows with the root of the number of tables.
        """
        return ()

    def locate(self, shown: npt.NDArray[np.floating[Any]], labels: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        """int64 [rows, cells]: the cells that every row adds to, table after table, counted in C order.

        Args:
            shown: [rows, num_outputs], what `show` makes of outputs.
            labels: [rows, ...], as `check_labels` gives them.

        Guarantees:
            The cells of a row depend on that row alone. A row without a label of the task, or with a number
            in `shown` that is not finite, is counted nowhere: its cells are -1.
        """
        return np.empty((len(labels), 0), np.int64)

    def measure(self, shown: npt.NDArray[Any], labels: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        """int64 [rows, cells]: what every row adds to the cells that `locate` gives: 1 unless these are sums.

        Guarantees:
            To a table of sums a row adds a vector of norm at most `grid`, in integers, that depends on that
            row alone.
        """
        cells = sum(table.cells_of_a_row for table in self.tables)
        return np.ones((len(labels), cells), np.int64)

    @property
    def num_tables(self) -> int:
        """m: the square of the norm of what a row adds to all tables together, at most."""
        return sum(table.cells_of_a_row if table.grid == 1 else 1 for table in self.tables)

    def sample_stds(self, tables: Tables) -> dict[str, float] | None:
        """What sampling of rows moves figures by; None where tables are counts, which tell by themselves."""
        return None

    def compute_figures(
        self, tables: Tables, *, noise_std: float = 0.0, other: Tables | None = None
    ) -> dict[str, FloatArray]:
        """Figures of quality, by name, as functions of tables alone.

        Args:
            tables: one array [batch, *shape] for every table of `tables`. Counts may be noisy, so negative.
            noise_std: the standard deviation of the noise on every cell; 0 for exact counts.
            other: one array [*shape] for every table, of another split: what is chosen by counts, such as the
                most frequent class, is chosen on it, so that noise does not help the choice. Where there is
                none, it is chosen on `tables`.

        Returns:
            float64 [batch] for a figure of all rows, float64 [batch, classes] for a figure of every class.
            NaN where a denominator is not positive. Noise may move a figure out of its range.
        """
        return {}

    def bound_figure(self, name: str) -> tuple[float, float]:
        """The range of a figure."""
        return -math.inf, math.inf

    def tabulate(
        self, shown: npt.NDArray[Any], names: npt.NDArray[Any], *, with_scores: bool, label: str | None
    ) -> dict[str, npt.NDArray[Any]]:
        """The columns of a table of predictions, by name.

        Args:
            shown: [rows, num_outputs], what `show` gave.
            names: [num_outputs], of the outputs; numbers from 0 where they have none.
            with_scores: whether outputs that the prediction is made from have columns too.
            label: what the column of labels was called; None where it had no name.
        """
        return name_columns("output", names, shown)

    @property
    def scored(self) -> tuple[int, ...]:
        """The outputs that a threshold may be put on, as `show` gives them; none unless defined."""
        return ()

    @property
    def score_bounds(self) -> tuple[float, float]:
        """The lowest and the highest value of these outputs."""
        return 0.0, 1.0

    def bin_scores(self, tables: Tables) -> tuple[FloatArray, FloatArray] | None:
        """Public edges of score bins, and rows in the bins, from the tables of a split.

        Returns:
            float64 [edges] and [outputs of `scored`, edges + 1, 2], rows without and with the label; None
            where the tables have no bins of scores.
        """
        return None

    def rank(self, shown: npt.NDArray[Any], labels: npt.NDArray[Any]) -> dict[str, float]:
        """Exact figures of the order that outputs put labelled rows in; none unless a task has some.

        Args:
            shown: [rows, num_outputs], what `show` gave.
            labels: of these rows, all of them labelled.
        """
        return {}

    def to_json(self) -> dict[str, Any]:
        """The name and the settings, for `read_task`."""
        return {"name": self.name, **asdict(self)}


def name_columns(
    prefix: str, names: npt.NDArray[Any], values: npt.NDArray[Any]
) -> dict[str, npt.NDArray[Any]]:
    """The columns of [rows, names] by name, as prefix_NAME."""
    return {f"{prefix}_{name}": column for name, column in zip(names, values.T, strict=True)}


def is_labelled(labels: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """bool [rows]: which rows have a label."""
    has: npt.NDArray[np.bool_] = labels >= 0 if labels.dtype.kind in "iu" else ~np.isnan(labels)
    if has.ndim > 1:
        has = np.all(has, axis=1)
    return has


def no_label(dtype: Any) -> float:
    """Return the value of a missing label in this NumPy or torch type: -1 of integers, NaN of floats."""
    return -1 if "int" in str(dtype) else float("nan")


_TASKS: dict[str, type[Task]] = {}
_TaskType = TypeVar("_TaskType", bound=type[Task])


def register(task: _TaskType) -> _TaskType:
    """Make a task known by its name, so that run folders can be read; a decorator of the class."""
    _TASKS[task.name] = task
    return task


def read_task(settings: Mapping[str, Any]) -> Task:
    """The task that `Task.to_json` described; InputError for a name that is not registered."""
    given = dict(settings)
    name = str(given.pop("name", ""))
    if name not in _TASKS:
        known = ", ".join(sorted(_TASKS))
        raise InputError(f"task={name!r}: expected one of {known}; import the module that registers it")
    return _TASKS[name](**given)
