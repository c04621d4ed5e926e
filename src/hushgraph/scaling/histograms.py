"""Histograms of numbers: counted over training rows, and given noise once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from hushgraph.graph.graph import Graph
from hushgraph.graph.persons import share_count
from hushgraph.noise import normal
from hushgraph.noise.counts import NoisyCounts, add_noise
from hushgraph.noise.rounded import Draws, Int64Array

# Bins of asinh(x), which are public. Values outside are counted in the first or the last one.
LEAST, BINS_PER_UNIT, NUM_BINS = -25, 10, 500
LEAST_SPREAD = 0.1
# Noise alone exceeds this many standard deviations in one of 4,300 bins. Without it, the noise of 500 bins
# would outweigh a few thousand rows.
_LOUD = 3.5
# Rows that are counted at a time.
_ROWS = 1 << 16


def count_numbers(graph: Graph, names: Sequence[str]) -> Int64Array:
    """Count the training rows of a graph that was read from tables, by asinh of their numbers.

    Args:
        graph: the data, as it was read.
        names: of numeric columns.

    Returns:
        int64 [len(names), NUM_BINS].

    Guarantees:
        A training row adds 1 to at most one bin of every column; which one depends on that row alone. An
        empty cell adds nothing, filled or not, and neither does a row whose features are all zero or missing.
        Rows of other splits add nothing. Where people have several nodes, the training rows of a person add
        at most `PERSON_GRID` to a column together, each the same part.
    """
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
        counts: int64 [columns, NUM_BINS], in steps of which one count has `grid`.
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
            for name, counts in zip(self.names, self.counts, strict=True)
        }

    def write_tables(self) -> dict[str, Any]:
        """Counts and constants by column."""
        return {
            "bins": {"of": "asinh", "least": LEAST, "width": 1 / BINS_PER_UNIT, "number": NUM_BINS},
            "columns": [
                {"name": name, "centre": centre, "spread": spread, "counts": counts.tolist()}
                for (name, (centre, spread)), counts in zip(self.scales.items(), self.counts, strict=True)
            ],
        } | ({} if self.grid == 1 else {"grid": self.grid})

    @classmethod
    def read_tables(cls, values: Mapping[str, Any]) -> dict[str, Any]:
        """See `NoisyCounts`; constants that are not those of the counts are then refused."""
        columns = values["columns"]
        counts = np.asarray([each["counts"] for each in columns], np.int64).reshape(-1, NUM_BINS)
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
