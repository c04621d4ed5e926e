"""Histograms of numbers: counted over training rows, given noise once, and the file that keeps them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from hushgraph._files import write_once
from hushgraph.errors import RunError
from hushgraph.graph.graph import Graph
from hushgraph.noise import normal
from hushgraph.noise.rounded import Draws, find_divisor, find_std, round_draws

Int64Array = npt.NDArray[np.int64]
# Bins of asinh(x), which are public. Values outside are counted in the first or the last one.
LEAST, BINS_PER_UNIT, NUM_BINS = -25, 10, 500
LEAST_SPREAD = 0.1
# Noise alone exceeds this many standard deviations in one of 4,300 bins. Without it, the noise of 500 bins
# would outweigh a few thousand rows.
_LOUD = 3.5
FORMAT = 1
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
        Rows of other splits add nothing.
    """
    columns = graph.columns
    numbers = () if columns is None else tuple(columns.features or ())
    flags = 0 if columns is None else len(columns.indicators)
    places = [numbers.index(name) for name in names]
    counts = np.zeros((len(names), NUM_BINS), np.int64)
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
            counted = values[is_given[:, place] & is_used, place]
            counts[number] += np.bincount(locate(counted), minlength=NUM_BINS)
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
class NoisyHistograms:
    """What is released: noisy counts of every column, and what follows from them.

    Attributes:
        names: of the columns.
        counts: int64 [columns, NUM_BINS].
        noise_std: the standard deviation of the noise on every bin, before rounding to integers; 0 for none.
        plan: the fingerprint of the plan that paid for them.
    """

    names: tuple[str, ...]
    counts: Int64Array
    noise_std: float
    plan: str = ""

    @cached_property
    def scales(self) -> dict[str, tuple[float, float]]:
        """Centre and spread of asinh, by column: a function of the noisy counts alone."""
        return {
            name: find_scale(counts, noise_std=self.noise_std)
            for name, counts in zip(self.names, self.counts, strict=True)
        }

    @property
    def digest(self) -> str:
        """What tells these histograms from any other."""
        return hashlib.sha256(json.dumps(self.to_json(), sort_keys=True).encode()).hexdigest()

    def to_json(self) -> dict[str, Any]:
        """The histograms as JSON values."""
        return {
            "format": FORMAT,
            "plan": self.plan,
            "noise_std": self.noise_std.hex(),
            "bins": {"of": "asinh", "least": LEAST, "width": 1 / BINS_PER_UNIT, "number": NUM_BINS},
            "columns": [
                {"name": name, "centre": centre, "spread": spread, "counts": counts.tolist()}
                for (name, (centre, spread)), counts in zip(self.scales.items(), self.counts, strict=True)
            ],
        }


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
) -> NoisyHistograms:
    """Add noise to all histograms of a run, once. Charge it before; a second call is a second charge.

    Args:
        counts: what `count_numbers` gave.
        names: of the columns.
        noise_std: s, in counts; 0 for a run without privacy.
        draws: the randomness. Every release needs draws of its own.
        plan: as in `NoisyHistograms`.

    Guarantees:
        A noisy count is a function of count + N(0, s'^2), s' >= s, and of nothing else about the rows: the
        Gaussian mechanism, rounded to integers (`round_draws` has the proof).
    """
    if not noise_std:
        return NoisyHistograms(names=tuple(names), counts=counts, noise_std=0.0, plan=plan)
    divisor = find_divisor(noise_std, grid=1)
    noise = round_draws(draws(counts.size), divisor).reshape(counts.shape)
    return NoisyHistograms(
        names=tuple(names), counts=counts + noise, noise_std=find_std(divisor, grid=1), plan=plan
    )


def save_histograms(
    histograms: NoisyHistograms, path: Path, announce: Callable[[], None] = lambda: None
) -> None:
    """Write histograms into a new file; `announce` is called when they are about to be visible on disk."""
    write_once(path, json.dumps(histograms.to_json(), sort_keys=True).encode(), announce)


def load_histograms(path: Path, *, plan: str) -> NoisyHistograms:
    """What `save_histograms` wrote; RunError where it is missing, damaged or of another run."""
    try:
        values = json.loads(path.read_text())
        if values["format"] != FORMAT:
            raise RunError(
                f"run={path.parent}: {path.name} has format {values['format']!r}; update hushgraph"
            )
        histograms = NoisyHistograms(
            names=tuple(str(each["name"]) for each in values["columns"]),
            counts=np.asarray([each["counts"] for each in values["columns"]], np.int64).reshape(-1, NUM_BINS),
            noise_std=float.fromhex(values["noise_std"]),
            plan=str(values["plan"]),
        )
        if histograms.to_json() != values:
            raise ValueError("its constants are not those of its counts")
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        reason = type(error).__name__
        raise RunError(
            f"run={path.parent}: {path.name} is missing or damaged ({reason}); restore it"
        ) from None
    if histograms.plan != plan:
        raise RunError(f"run={path.parent}: {path.name} belongs to another run; restore the one of this run")
    return histograms
