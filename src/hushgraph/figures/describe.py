"""Figures with two intervals, from noisy tables of counts alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from hushgraph._arrays import FloatArray
from hushgraph.errors import InputError
from hushgraph.tasks.task import Tables, Task

# Ends of an interval of 95% come from this many simulated tables: its coverage is then right to half a point.
_NOISE_DRAWS = 4000
_SAMPLING_DRAWS = 500
# Cells that are simulated at once.
_MOST_CELLS = 1 << 22
_SEED = 20240917
HALF = 1.959964
"""Half of an interval of 95%, in standard deviations."""
# Sums of sizes, which noise makes larger: quantiles of noisier tables lie too high.
_SUMS_OF_SIZES = ("calibration_error",)
# A figure is shown where its noise interval is at most half as wide as its range.
_WIDEST = 0.5

_Tables = list[FloatArray]


def describe_figures(
    task: Task,
    splits: Mapping[str, Tables],
    *,
    noise_std: float,
    groups: Sequence[str] = (),
) -> list[dict[str, Any]]:
    """Every figure of every split, with what noise and sampling may have moved it by.

    Args:
        task: says which figures there are.
        splits: the noisy tables of every split, in the order of `task.tables`; with `groups`, every array has
            a leading axis of the groups. What is chosen by counts is chosen on the first other split.
        noise_std: the standard deviation of the Gaussian noise on every cell, before rounding to integers;
            rounding to steps of a grid adds a variance of 1/12 of a squared step, which intervals allow for.
            0 for exact counts.
        groups: their names, which are declared. The whole split is the sum over groups.

    Returns:
        One dict for every figure: split; group and class, or None; figure, its name; value; noise and
        sampling, intervals [low, high] of 95%, and noise_std and sampling_std, which they rest on. The noise
        interval is where the figure of the exact counts is. The sampling interval is how far it would be
        elsewhere for other rows of the same population. A value that cannot be told is None, with the reason
        as why: "no rows" or "noise".

    Guarantees:
        A function of its arguments alone: what is said, and whether it is said, follows from noisy counts.

    Examples:
        >>> import numpy as np
        >>> from hushgraph.figures.describe import describe_figures
        >>> from hushgraph.tasks.classes import Classes
        >>> confusion = np.array([[410, 60, 31], [44, 350, 12], [9, 21, 290]])
        >>> calibration = np.zeros((12, 2), np.int64)
        >>> calibration[8] = [180, 1050]
        >>> described = describe_figures(
        ...     Classes(num_classes=3), {"test": [confusion, calibration]}, noise_std=4.0
        ... )
        >>> accuracy = next(each for each in described if each["figure"] == "accuracy")
        >>> round(accuracy["value"], 3), [round(end, 2) for end in accuracy["noise"]]
        (0.854, [0.84, 0.87])
    """
    _check(task, splits, noise_std, groups)
    std_of_cell = find_cell_std(task, noise_std)
    described = []
    for split, given in splits.items():
        others = next((tables for name, tables in splits.items() if name != split), None)
        for place, group in enumerate([None, *groups]):
            tables = _take_group(given, place, groups)
            std = std_of_cell * math.sqrt(len(groups)) if groups and group is None else std_of_cell
            other = None if others is None else _take_group(others, place, groups)
            where = {"split": split, "group": group}
            described += [where | figure for figure in describe_tables(task, tables, std, other)]
    return described


def _check(task: Task, splits: Mapping[str, Tables], noise_std: float, groups: Sequence[str]) -> None:
    if not 0 <= noise_std < math.inf:
        raise InputError(f"noise_std={noise_std}: expected a finite number of at least 0")
    leading = (len(groups),) if groups else ()
    expected = [leading + table.shape for table in task.tables]
    for split, tables in splits.items():
        shapes = [np.shape(table) for table in tables]
        if shapes != expected:
            raise InputError(f"splits[{split!r}] has tables of shapes {shapes}: expected {expected}")


def _take_group(tables: Tables, place: int, groups: Sequence[str]) -> _Tables:
    """The tables of one group, or of the whole split for place 0."""
    arrays = [np.asarray(table, np.float64) for table in tables]
    if not groups:
        return arrays
    return [table.sum(0) if place == 0 else table[place - 1] for table in arrays]


def find_cell_std(task: Task, noise_std: float) -> float:
    """The standard deviation of the noise on a cell with what rounding adds to it."""
    steps = min((table.grid for table in task.tables), default=1)
    return math.hypot(noise_std, math.sqrt(1 / 12) / steps) if noise_std > 0 else 0.0


def describe_tables(
    task: Task, tables: _Tables, noise_std: float, other: _Tables | None
) -> list[dict[str, Any]]:
    """The figures of one split or group, as in `describe_figures`.

    Args:
        task: says which figures there are.
        tables: noisy, float64.
        noise_std: what `find_cell_std` gives.
        other: the tables of the split that classes and thresholds are chosen on; None for these ones.
    """

    def compute(batch: _Tables) -> dict[str, FloatArray]:
        return task.compute_figures(batch, noise_std=noise_std, other=other)

    def compute_exact(batch: _Tables) -> dict[str, FloatArray]:
        return task.compute_figures(batch, other=other)

    def add_noise(rng: np.random.Generator, draws: int) -> _Tables:
        return [table + noise_std * rng.standard_normal((draws, *table.shape)) for table in tables]

    def draw_rows(rng: np.random.Generator, draws: int) -> _Tables:
        return [_draw_like(table, rng, draws) for table in fitted]

    fitted = [fit_counts(table) for table in tables]
    values = {name: value[0] for name, value in compute([table[None] for table in tables]).items()}
    at_once = max(1, _MOST_CELLS // max((table.size for table in tables), default=1))
    noisy = _simulate(compute, add_noise, _NOISE_DRAWS, at_once)
    known = task.sample_stds(tables)
    if known is None:
        sampled = _simulate(compute_exact, draw_rows, _SAMPLING_DRAWS, at_once)
    else:
        rng = np.random.default_rng(_SEED)
        sampled = {
            name: float(value) + known[name] * rng.standard_normal(_SAMPLING_DRAWS)
            for name, value in values.items()
        }
    return [
        {"class": None if value.ndim == 0 else place, "figure": name}
        | _describe_value(
            each,
            noisy[name].reshape(_NOISE_DRAWS, -1)[:, place],
            sampled[name].reshape(_SAMPLING_DRAWS, -1)[:, place],
            task.bound_figure(name),
            is_centred=name in _SUMS_OF_SIZES,
        )
        for name, value in values.items()
        for place, each in enumerate(np.atleast_1d(value))
    ]


def fit_counts(table: FloatArray) -> FloatArray:
    """The nearest table without negative counts that has the same total; zeros where that is not positive.

    One number is taken off every cell, and what is negative then becomes 0. Cutting alone would add rows that
    are not there to every empty cell.
    """
    total = table.sum()
    if total <= 0:
        return np.zeros_like(table)
    falling = np.sort(table, axis=None)[::-1]
    surplus = (np.cumsum(falling) - total) / np.arange(1, table.size + 1)
    last = np.flatnonzero(falling > surplus)[-1]
    fitted: FloatArray = np.maximum(table - surplus[last], 0.0)
    return fitted


def _draw_like(table: FloatArray, rng: np.random.Generator, draws: int) -> FloatArray:
    """[draws, *shape]: as many rows as the table has, drawn with its shares."""
    total = table.sum()
    if total <= 0:
        return np.zeros((draws, *table.shape))
    drawn = rng.multinomial(round(total), table.ravel() / total, draws)
    return drawn.reshape(draws, *table.shape).astype(np.float64)


def _simulate(
    compute: Callable[[_Tables], dict[str, FloatArray]],
    draw: Callable[[np.random.Generator, int], _Tables],
    draws: int,
    at_once: int,
) -> dict[str, FloatArray]:
    """Figures of drawn tables: [draws] or [draws, classes] each. The same draws for the same tables."""
    rng = np.random.default_rng(_SEED)
    parts = [
        compute(draw(rng, min(at_once, draws - start))) for start in range(0, draws, min(at_once, draws))
    ]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _describe_value(
    value: float, noisy: FloatArray, sampled: FloatArray, bounds: tuple[float, float], *, is_centred: bool
) -> dict[str, Any]:
    """Value and intervals; the noise interval is where 95% of the figures of noisier tables are.

    A figure with a noisy denominator has a skewed distribution. Its quantiles follow that, so that they cover
    more evenly than a multiple of the standard deviation. Where noise moves a figure to one side on average,
    more noise moves it once more; the interval also spans those quantiles about the value. A centred
    interval reaches as far to both sides of the value.
    """
    nothing = {"value": None, "noise": None, "sampling": None, "noise_std": None, "sampling_std": None}
    if not math.isfinite(value):
        return nothing | {"why": "no rows"}
    low, high = bounds
    if not np.isfinite(noisy).all():
        return nothing | {"why": "noise"}
    start, middle, end = np.quantile(noisy, [0.025, 0.5, 0.975])
    start, end = start + min(value - middle, 0.0), end + max(value - middle, 0.0)
    if is_centred:
        start, end = value - HALF * noisy.std(), value + HALF * noisy.std()
    if end - start > _WIDEST * (high - low):
        return nothing | {"why": "noise"}

    def cut(*numbers: float) -> list[float]:
        return [float(np.clip(number, low, high)) for number in numbers]

    # Resampled rows may leave a small class without any.
    told = sampled[np.isfinite(sampled)]
    sampling_std = float(told.std()) if len(told) else math.nan
    is_told = len(told) > 0
    return {
        "value": cut(value)[0],
        "noise": cut(start, end),
        "sampling": cut(value - HALF * sampling_std, value + HALF * sampling_std) if is_told else None,
        "noise_std": float(noisy.std()),
        "sampling_std": sampling_std if is_told else None,
    }
