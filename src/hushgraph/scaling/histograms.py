"""Histograms of numbers: counted over training rows, and given noise once."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from hushgraph._arrays import Int64Array
from hushgraph.graph.graph import Graph
from hushgraph.graph.persons import share_count
from hushgraph.noise import normal
from hushgraph.noise.counts import NoisyCounts, add_noise
from hushgraph.noise.rounded import Draws
from hushgraph.tasks.number import Number

# Bins of asinh(x), which are public. Values outside are counted in the first or the last one.
LEAST, BINS_PER_UNIT, NUM_BINS = -25, 10, 500
LEAST_SPREAD = 0.1
# Noise alone exceeds this many standard deviations in one of 4,300 bins. Without it, the noise of 500 bins
# would outweigh a few thousand rows.
_LOUD = 3.5
# Bounds of a number: how many bins are joined to one; what noise alone reaches in one of 300 releases (one
# bin far away would be a bound); the part of the counts that a finer width may lose to noise; the part beyond
# each bound.
_BOUND_WIDTHS = (1, 2, 4, 8, 16, 32)
_LOUD_FOR_BOUNDS = 4.5
_ENOUGH_KEPT, _OUTER = 0.95, 0.005
# Rows that are counted at a time.
_ROWS = 1 << 16


def count_numbers(graph: Graph, names: Sequence[str]) -> Int64Array:
    """Count the training rows of a graph by asinh of their numbers.

    Args:
        graph: the data, as it was read.
        names: of numeric columns of tables; none for other data.

    Returns:
        int64 [len(names), NUM_BINS]; one line more, the last, for the number to predict where its bounds are
        to be released.

    Guarantees:
        A training row adds 1 to at most one bin of every line; which one depends on that row alone. An empty
        cell adds nothing, filled or not, and neither does a row whose features are all zero or missing; to
        the last line, a row without a label adds nothing. Rows of other splits add nothing. Where people have
        several nodes, the training rows of a person add at most `PERSON_GRID` to a line together.
    """
    counts = _count_columns(graph, names)
    if not isinstance(graph.task, Number) or not graph.task.needs_bounds:
        return counts
    labelled = graph.train_idx[~np.isnan(graph.y[graph.train_idx])]
    shares = share_count(graph.persons, graph.train_idx, graph.num_nodes)
    target = np.zeros((1, NUM_BINS), np.int64)
    np.add.at(target[0], locate(graph.y[labelled]), 1 if shares is None else shares[labelled])
    return np.concatenate([counts, target])


def _count_columns(graph: Graph, names: Sequence[str]) -> Int64Array:
    columns = graph.columns
    numbers = () if columns is None else tuple(columns.features or ())
    flags = 0 if columns is None else len(columns.indicators)
    places = [numbers.index(name) for name in names]
    counts = np.zeros((len(names), NUM_BINS), np.int64)
    shares = share_count(graph.persons, graph.train_idx, graph.num_nodes)
    for begin in range(0, len(graph.train_idx), _ROWS):
        rows = graph.train_idx[begin : begin + _ROWS]
        part = graph.x[rows]
        values = _take_columns(part, slice(0, len(numbers)))
        is_given = ~np.isnan(values)
        if graph.filled is not None:
            is_given &= ~graph.filled[rows]
        others = part[:, len(numbers) : part.shape[1] - flags]
        is_used = (is_given & (values != 0)).any(axis=1) | _has_nonzero(others)
        for number, place in enumerate(places):
            is_counted = is_given[:, place] & is_used
            bins = locate(values[is_counted, place])
            np.add.at(counts[number], bins, 1 if shares is None else shares[rows[is_counted]])
    return counts


def locate(values: npt.NDArray[Any]) -> Int64Array:
    """int64 [n]: the bin of every value; NaN is not allowed, infinities are."""
    places = np.floor((np.arcsinh(values.astype(np.float64)) - LEAST) * BINS_PER_UNIT)
    inside: Int64Array = np.clip(places, 0, NUM_BINS - 1).astype(np.int64)
    return inside


def _take_columns(part: Any, columns: slice) -> npt.NDArray[np.float32]:
    taken = part[:, columns]
    dense: npt.NDArray[np.float32] = taken.toarray() if sparse.issparse(taken) else taken
    return dense


def _has_nonzero(part: Any) -> npt.NDArray[np.bool_]:
    """bool [rows]: whether a row has anything but zeros."""
    if sparse.issparse(part):
        kept = part.tocsr()
        kept.eliminate_zeros()
        has_any: npt.NDArray[np.bool_] = np.diff(kept.indptr) > 0
        return has_any
    return np.asarray((part != 0).any(axis=1))


@dataclass(frozen=True, kw_only=True, eq=False)
class NoisyHistograms(NoisyCounts):
    """What is released: noisy counts of every column, and what follows from them.

    Attributes:
        names: of the columns.
        counts: int64 [lines, NUM_BINS]: a line of every column, and one of the number to predict where its
            bounds are paid for. In steps of which one count has `grid`.
        grid: 1 unless people have several nodes.
    """

    names: tuple[str, ...]
    counts: Int64Array
    grid: int = 1

    @cached_property
    def scales(self) -> dict[str, tuple[float, float]]:
        """Centre and spread of asinh, by column: a function of the noisy counts alone."""
        return {
            name: find_scale(counts, noise_std=self.noise_std * self.grid)
            for name, counts in zip(self.names, self.counts, strict=False)
        }

    @property
    def has_target(self) -> bool:
        """Whether the last line is of the number to predict."""
        return len(self.counts) > len(self.names)

    @cached_property
    def bounds(self) -> tuple[float, float]:
        """Bounds of the number to predict, from the noisy counts alone."""
        return find_bounds(self.counts[-1], noise_std=self.noise_std * self.grid)

    def write_tables(self) -> dict[str, Any]:
        """Counts and constants by column."""
        tables: dict[str, Any] = {
            "bins": {"of": "asinh", "least": LEAST, "width": 1 / BINS_PER_UNIT, "number": NUM_BINS},
            "columns": [
                {"name": name, "centre": centre, "spread": spread, "counts": counts.tolist()}
                for (name, (centre, spread)), counts in zip(self.scales.items(), self.counts, strict=False)
            ],
        }
        if self.has_target:
            tables["target"] = {"bounds": list(self.bounds), "counts": self.counts[-1].tolist()}
        return tables | ({} if self.grid == 1 else {"grid": self.grid})

    @classmethod
    def read_tables(cls, values: Mapping[str, Any]) -> dict[str, Any]:
        """See `NoisyCounts`; constants that are not those of the counts are then refused."""
        columns = values["columns"]
        lines = [*columns, values["target"]] if "target" in values else columns
        counts = np.asarray([each["counts"] for each in lines], np.int64).reshape(-1, NUM_BINS)
        names = tuple(each["name"] for each in columns)
        return {"names": names, "counts": counts, "grid": int(values.get("grid", 1))}


def find_scale(counts: Int64Array, *, noise_std: float = 0.0) -> tuple[float, float]:
    """Return centre and spread of what a histogram counts.

    The centre is the median; the spread is half the distance of the 16th and the 84th percentile, at least
    0.1. Counts that noise alone reaches are taken as 0, and where all of them are, those above 0 are kept.
    Where nothing is left, values stay as they are: 0 and 1.

    Args:
        counts: int64 [NUM_BINS], with or without noise.
        noise_std: of the noise.
    """
    kept = np.where(counts > _LOUD * noise_std, counts, 0)
    ends = np.cumsum(kept if kept.any() else np.maximum(counts, 0))
    if not ends[-1]:
        return 0.0, 1.0

    def percentile(part: float) -> float:
        target = part * int(ends[-1])
        place = int(np.searchsorted(ends, target))
        before = int(ends[place - 1]) if place else 0
        return LEAST + (place + (target - before) / (int(ends[place]) - before)) / BINS_PER_UNIT

    return percentile(0.5), max(LEAST_SPREAD, (percentile(0.84) - percentile(0.16)) / 2)


def find_bounds(counts: Int64Array, *, noise_std: float = 0.0) -> tuple[float, float]:
    """Return the bounds of a number to predict, from its histogram.

    Bins that noise alone reaches are cut, and whole bins are kept from the one with the
    0.5th percentile to the one with the 99.5th: bounds are up to a bin wider than that, and a few numbers
    beyond them count as the bound. Few rows spread over many bins would all be cut, so neighbouring bins are
    joined: of the widths 0.1, 0.2, 0.4, ... up to 3.2, the finest is taken at which the bins that are left
    hold at least 95% of what they hold at the best of them. Where nothing is left at any width, the bounds
    are those of all bins, which are public.

    Args:
        counts: int64 [NUM_BINS], with or without noise.
        noise_std: of the noise.
    """
    kept = {}
    for width in _BOUND_WIDTHS:
        joined = np.add.reduceat(counts, np.arange(0, NUM_BINS, width))
        kept[width] = np.where(joined > _LOUD_FOR_BOUNDS * noise_std * np.sqrt(width), joined, 0)
    most = max(int(each.sum()) for each in kept.values())
    if most <= 0:
        return _undo_asinh(0), _undo_asinh(NUM_BINS)
    width = next(width for width, each in kept.items() if each.sum() >= _ENOUGH_KEPT * most)
    ends = np.cumsum(kept[width])
    first, last = np.searchsorted(ends, np.array([_OUTER, 1 - _OUTER]) * ends[-1])
    return _undo_asinh(int(first) * width), _undo_asinh(min(NUM_BINS, (int(last) + 1) * width))


def _undo_asinh(edge: int) -> float:
    """The number at an edge between bins, to six digits: it is shown to people."""
    return float(f"{math.sinh(LEAST + edge / BINS_PER_UNIT):.6g}")


def release_histograms(
    counts: Int64Array,
    *,
    names: Sequence[str],
    noise_std: float,
    draws: Draws = normal.draw,
    plan: str = "",
    grid: int = 1,
) -> NoisyHistograms:
    """Add noise to all histograms of a run, once, as `add_noise` says.

    Args:
        counts: what `count_numbers` gave.
        names: of the columns.
        noise_std, draws: as in `add_noise`.
        plan, grid: as in `NoisyHistograms`.
    """
    noisy, std = add_noise(counts, noise_std=noise_std, draws=draws, grid=grid)
    return NoisyHistograms(names=tuple(names), counts=noisy, noise_std=std, plan=plan, grid=grid)
