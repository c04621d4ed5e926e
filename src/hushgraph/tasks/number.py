"""A number between bounds, such as views or an age."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from hushgraph._arrays import FloatArray
from hushgraph.errors import GraphError
from hushgraph.tasks.task import Evaluation, Table, Tables, Task, is_labelled, register

if TYPE_CHECKING:
    from torch import Tensor

# One count is this many steps of the sums that figures are computed from.
_GRID = 1 << 20
# What is summed over rows, each between -1 and 1: 1, y, y^2, e, e^2, |e|. With one common factor the six
# numbers of a row have norm at most 1.
_SUMS = ("rows", "y", "y^2", "error", "error^2", "|error|")
_FACTOR = 1 / math.sqrt(len(_SUMS))


def squared_error(outputs: Tensor, labels: Tensor) -> Tensor:
    """[rows]: the squared error of the scaled number; 0 where a row has no label, NaN."""
    import torch

    errors = outputs[:, 0] - torch.nan_to_num(labels)
    return torch.where(labels.isnan(), 0.0, errors.square())


@register
@dataclass(frozen=True, kw_only=True)
class Number(Task):
    """A number. Labels are kept scaled: -1 is the lower bound, 1 the upper one; what is beyond goes there.

    Attributes:
        low, high: the bounds.
        unit: what the number counts, for tables of predictions; empty unless declared.
        bounds: "declared"; "private" where they are still to be released by a charge, and labels are numbers
            as they were given until then; "released" afterwards (`with_bounds`).
    """

    name: ClassVar[str] = "number"
    headline: ClassVar[str] = "r2"
    answer: ClassVar[str] = "a number"
    hub_task: ClassVar[str] = "node-regression"
    loss = staticmethod(squared_error)

    low: float = -1.0
    high: float = 1.0
    unit: str = ""
    bounds: Literal["declared", "private", "released"] = "declared"

    def __post_init__(self) -> None:
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low < self.high):
            raise GraphError(
                f"bounds={self.low},{self.high}: expected two finite numbers, the lower one first"
            )

    @property
    def num_outputs(self) -> int:
        """1."""
        return 1

    @property
    def ballot_width(self) -> int:
        """1."""
        return 1

    @property
    def question(self) -> str:
        """The bounds."""
        if self.needs_bounds:
            return "a number, between bounds from a noisy histogram"
        return f"a number from {self.low:g} to {self.high:g}"

    @property
    def needs_bounds(self) -> bool:
        """Whether the bounds are still to be released."""
        return self.bounds == "private"

    def with_bounds(self, low: float, high: float) -> Number:
        """The same number between bounds that were released."""
        return replace(self, low=low, high=high, bounds="released")

    @property
    def label_change(self) -> float:
        """4: from one bound to the other."""
        return 4.0

    def scale(self, numbers: npt.ArrayLike) -> npt.NDArray[np.float32]:
        """Numbers as labels: 2 (y - low) / (high - low) - 1, cut at the bounds; NaN stays.

        Where bounds are still to be released, numbers stay as they are.
        """
        values = np.asarray(numbers, np.float64)
        if self.needs_bounds:
            with np.errstate(over="ignore"):
                return values.astype(np.float32)
        cut = np.clip(values, self.low, self.high)
        return (2 * (cut - self.low) / (self.high - self.low) - 1).astype(np.float32)

    def check_labels(self, labels: Any) -> npt.NDArray[Any]:
        """Convert scaled numbers, NaN for none."""
        array = np.asarray(labels)
        if array.dtype.kind not in "fiu" or array.ndim != 1:
            raise GraphError(f"y has dtype {array.dtype}, ndim={array.ndim}; expected a list of numbers")
        return array.astype(np.float32, copy=False)

    def make_ballots(self, labels: npt.NDArray[Any]) -> FloatArray:
        """The scaled number."""
        return np.clip(labels.astype(np.float64), -1, 1)[:, None]

    def predict_ballots(self, outputs: Tensor) -> FloatArray:
        """The predicted number, scaled and cut at the bounds."""
        ballots: FloatArray = outputs.double().clip(-1, 1).cpu().numpy()
        return ballots

    def show(self, outputs: Tensor) -> Tensor:
        """The number in its own unit."""
        numbers = (outputs.clip(-1, 1) + 1) / 2 * (self.high - self.low) + self.low
        # Rounding may have gone past a bound.
        return numbers.clip(self.low, self.high)

    def predict(self, shown: Tensor) -> Tensor:
        """What `show` gave."""
        return shown[:, 0]

    def evaluate(self, predicted: npt.NDArray[Any], labels: npt.NDArray[Any]) -> Evaluation:
        """R^2 and the mean absolute error, in the unit of the number, of what `show` gave."""
        truth = self._restore(labels)
        errors = predicted.astype(np.float64) - truth
        spread = np.square(truth - truth.mean()).sum()
        r2 = float(1 - np.square(errors).sum() / spread) if spread else 0.0
        return Evaluation(figures={"r2": r2, "mae": float(np.abs(errors).mean())})

    def _restore(self, labels: npt.NDArray[Any]) -> FloatArray:
        values: FloatArray = (labels.astype(np.float64) + 1) / 2 * (self.high - self.low) + self.low
        return values

    @property
    def tables(self) -> tuple[Table, ...]:
        """Six sums over rows, to which every row adds a vector of norm at most 1."""
        size, axes = len(_SUMS), (", ".join(_SUMS),)
        return (Table(name="sums", shape=(size,), axes=axes, cells_of_a_row=size, grid=_GRID),)

    def locate(self, shown: npt.NDArray[Any], labels: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        """int64 [rows, 6]: every sum; none without a label."""
        return np.where(is_labelled(labels)[:, None], np.arange(len(_SUMS)), -1)

    def measure(self, shown: npt.NDArray[Any], labels: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        """int64 [rows, 6]: what every row adds to the sums, in steps of the grid."""
        y = np.clip(np.nan_to_num(labels.astype(np.float64)), -1, 1)
        # What is not finite goes to its bound.
        predicted = np.nan_to_num(self.scale(shown[:, 0]).astype(np.float64), nan=1.0)
        error = np.clip((predicted - y) / 2, -1, 1)
        parts = np.stack([np.ones_like(y), y, y**2, error, error**2, np.abs(error)], axis=1)
        # Rounded towards zero, so that the norm does not grow.
        return np.trunc(parts * (_FACTOR * (1 - 2.0**-40) * _GRID)).astype(np.int64)

    def compute_figures(
        self, tables: Tables, *, noise_std: float = 0.0, other: Tables | None = None
    ) -> dict[str, FloatArray]:
        """R^2, the mean absolute error and the root of the mean squared error, from the sums."""
        sums = np.asarray(tables[0], np.float64) / _FACTOR
        rows, y, squares, _, error_squares, errors = np.moveaxis(sums, -1, 0)
        half = (self.high - self.low) / 2
        is_any = rows > 0
        count = np.where(is_any, rows, 1.0)
        spread = squares / count - np.square(y / count)
        mean_square = 4 * error_squares / count
        with np.errstate(invalid="ignore", divide="ignore"):
            r2 = np.where(is_any & (spread > 0), 1 - mean_square / spread, np.nan)
        return {
            "r2": r2,
            "mae": np.where(is_any, 2 * half * errors / count, np.nan),
            "rmse": np.where(is_any, half * np.sqrt(np.maximum(mean_square, 0.0)), np.nan),
        }

    def sample_stds(self, tables: Tables) -> dict[str, float]:
        """What sampling moves the figures by, from the same sums; of R^2 by its large-sample formula."""
        figures = {name: float(value[0]) for name, value in self.compute_figures([tables[0][None]]).items()}
        rows, _, _, _, error_squares, errors = np.asarray(tables[0], np.float64) / _FACTOR
        count = max(rows, 1.0)
        spread = max(error_squares / count - (errors / count) ** 2, 0.0)
        r2 = figures["r2"]
        root = math.sqrt(count)
        return {
            "r2": 2 * math.sqrt(max(r2, 0.0)) * (1 - r2) / root if math.isfinite(r2) else math.nan,
            "mae": (self.high - self.low) * math.sqrt(spread) / root,
            "rmse": figures["rmse"] / math.sqrt(2) / root,
        }

    def tabulate(
        self, shown: npt.NDArray[Any], names: npt.NDArray[Any], *, with_scores: bool, label: str | None
    ) -> dict[str, npt.NDArray[Any]]:
        """The number, and its unit: the declared one, or the name of the column of labels."""
        columns: dict[str, npt.NDArray[Any]] = {"number": shown[:, 0]}
        unit = self.unit or label
        return columns | ({"unit": np.full(len(shown), unit)} if unit else {})

    @property
    def scored(self) -> tuple[int, ...]:
        """The number itself; sums over rows have no bins of it."""
        return (0,)

    @property
    def score_bounds(self) -> tuple[float, float]:
        """The bounds of the number."""
        return self.low, self.high

    def bound_figure(self, name: str) -> tuple[float, float]:
        """R^2 is at most 1; errors are within the bounds."""
        return (-1.0, 1.0) if name == "r2" else (0.0, self.high - self.low)
