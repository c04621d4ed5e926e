"""Figures with two intervals, from noisy tables of counts alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from hushgraph.errors import InputError
from hushgraph.tasks.task import FloatArray, Task

# Standard deviations are those of simulated tables: 1,000 of them know a standard deviation to about 2%.
_DRAWS = 1000
# Cells that are simulated at once.
_MOST_CELLS = 1 << 22
_SEED = 20240917
# Half of an interval of 95%.
_HALF = 1.959964
# A figure is shown where its noise interval is at most half as wide as its range.
_WIDEST = 0.5

_Tables = list[FloatArray]
_Compute = Callable[[_Tables], dict[str, FloatArray]]


def describe_figures(
    task: Task,
    splits: Mapping[str, Sequence[npt.NDArray[Any]]],
    *,
    noise_std: float,
    groups: Sequence[str] = (),
) -> list[dict[str, Any]]:
    """Every figure of every split, with what noise and sampling may have moved it by.

    Args:
        task: says which figures there are.
        splits: the noisy tables of every split, in the order of `task.tables`; with `groups`, every array has
            a leading axis of the groups. What is chosen by counts is chosen on the first other split.
        noise_std: the standard deviation of the noise on every cell.
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
    described = []
    for split, given in splits.items():
        others = next((tables for name, tables in splits.items() if name != split), None)
        for place, group in enumerate([None, *groups]):
            tables = _take_group(given, place, groups)
            std = noise_std * math.sqrt(len(groups)) if groups and group is None else noise_std
            other = None if others is None else _take_group(others, place, groups)
            where = {"split": split, "group": group}
            described += [where | figure for figure in _describe_tables(task, tables, std, other)]
    return described


def _check(
    task: Task,
    splits: Mapping[str, Sequence[npt.NDArray[Any]]],
    noise_std: float,
    groups: Sequence[str],
) -> None:
    if not 0 <= noise_std < math.inf:
        raise InputError(f"noise_std={noise_std}: expected a finite number of at least 0")
    leading = (len(groups),) if groups else ()
    expected = [leading + table.shape for table in task.tables]
    for split, tables in splits.items():
        shapes = [np.shape(table) for table in tables]
        if shapes != expected:
            raise InputError(f"splits[{split!r}] has tables of shapes {shapes}: expected {expected}")


def _take_group(tables: Sequence[npt.NDArray[Any]], place: int, groups: Sequence[str]) -> _Tables:
    """The tables of one group, or of the whole split for place 0."""
    arrays = [np.asarray(table, np.float64) for table in tables]
    if not groups:
        return arrays
    return [table.sum(0) if place == 0 else table[place - 1] for table in arrays]


def _describe_tables(
    task: Task, tables: _Tables, noise_std: float, other: _Tables | None
) -> list[dict[str, Any]]:
    def compute(batch: _Tables) -> dict[str, FloatArray]:
        return task.compute_figures(batch, noise_std=noise_std, other=other)

    def compute_exact(batch: _Tables) -> dict[str, FloatArray]:
        return task.compute_figures(batch, other=other)

    def add_noise(rng: np.random.Generator, table: FloatArray, draws: int) -> FloatArray:
        return table + noise_std * rng.standard_normal((draws, *table.shape))

    def draw_rows(rng: np.random.Generator, table: FloatArray, draws: int) -> FloatArray:
        fitted = fit_counts(table).ravel()
        total = fitted.sum()
        shares = fitted / total if total > 0 else np.full(fitted.size, 1 / fitted.size)
        return rng.multinomial(round(total), shares, draws).reshape(draws, *table.shape).astype(np.float64)

    values = {name: value[0] for name, value in compute([table[None] for table in tables]).items()}
    noise = _simulate(compute, tables, add_noise)
    known = task.sample_stds(tables)
    sampling = (
        _simulate(compute_exact, tables, draw_rows)
        if known is None
        else {name: np.asarray(std) for name, std in known.items()}
    )
    return [
        {"class": None if value.ndim == 0 else place, "figure": name}
        | _describe_value(each, noise[name].flat[place], sampling[name].flat[place], task.bound_figure(name))
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
    return np.maximum(table - surplus[last], 0.0)


def _simulate(
    compute: _Compute,
    tables: _Tables,
    draw: Callable[[np.random.Generator, FloatArray, int], FloatArray],
) -> dict[str, FloatArray]:
    """The standard deviation of every figure over drawn tables; NaN where some draw leaves it undefined."""
    rng = np.random.default_rng(_SEED)
    at_once = min(_DRAWS, max(1, _MOST_CELLS // max(table.size for table in tables)))
    parts = []
    for start in range(0, _DRAWS, at_once):
        draws = min(at_once, _DRAWS - start)
        parts.append(compute([draw(rng, table, draws) for table in tables]))
    stds = {}
    for name in parts[0]:
        drawn = np.concatenate([part[name] for part in parts])
        told = np.isfinite(drawn).all(0)
        stds[name] = np.where(told, np.where(np.isfinite(drawn), drawn, 0.0).std(0), np.nan)
    return stds


def _describe_value(
    value: float, noise_std: float, sampling_std: float, bounds: tuple[float, float]
) -> dict[str, Any]:
    nothing = {"value": None, "noise": None, "sampling": None, "noise_std": None, "sampling_std": None}
    if not math.isfinite(value):
        return nothing | {"why": "no rows"}
    low, high = bounds
    if not (math.isfinite(noise_std) and 2 * _HALF * noise_std <= _WIDEST * (high - low)):
        return nothing | {"why": "noise"}

    def span(std: float) -> list[float]:
        return [float(np.clip(value + sign * _HALF * std, low, high)) for sign in (-1, 1)]

    return {
        "value": float(np.clip(value, low, high)),
        "noise": span(noise_std),
        "sampling": span(sampling_std) if math.isfinite(sampling_std) else None,
        "noise_std": float(noise_std),
        "sampling_std": float(sampling_std) if math.isfinite(sampling_std) else None,
    }
