"""Histograms of numbers: bins, what is counted, constants, and the file."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from hushgraph.errors import RunError
from hushgraph.graph.columns import Columns
from hushgraph.graph.graph import Graph
from hushgraph.scaling.histograms import (
    NUM_BINS,
    NoisyHistograms,
    count_numbers,
    find_scale,
    locate,
    release_histograms,
)


def make_graph(x: Any, *, train: list[int], columns: Columns, filled: Any = None) -> Graph:
    count = x.shape[0]
    return Graph.from_arrays(
        edge_index=np.empty((2, 0), np.int64),
        x=x,
        y=np.full(count, -1),
        num_classes=2,
        train_idx=train,
        columns=columns,
        filled=filled,
    )


def test_bins_are_a_tenth_of_asinh_wide_and_end_bins_take_the_rest() -> None:
    values = np.array([0.0, math.sinh(0.099), math.sinh(0.101), -1e-9, math.inf, -math.inf, 3e38, -3e38])
    assert locate(values).tolist() == [250, 250, 251, 249, NUM_BINS - 1, 0, NUM_BINS - 1, 0]


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
def test_only_training_rows_with_a_value_are_counted(form: Any) -> None:
    """Rows: a value; zero with a category; nothing at all; a filled cell; a row of another split."""
    x = np.array([[5.0, 1, 0], [0, 1, 0], [0, 0, 0], [7, 0, 1], [5, 1, 0]], np.float32)
    columns = Columns(features=["a"], categorical={"c": ["x"]}, fill={"a": 7.0}, indicators=["a"])
    filled = np.array([[False], [False], [False], [True], [False]])
    counts = count_numbers(make_graph(form(x), train=[0, 1, 2, 3], columns=columns, filled=filled), ["a"])
    expected = {int(locate(np.array([5.0]))[0]): 1, 250: 1}
    assert {int(place): int(counts[0, place]) for place in np.flatnonzero(counts[0])} == expected


def test_rows_are_counted_without_a_label_and_in_any_number_of_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.arange(1, 31, dtype=np.float32).reshape(10, 3)
    graph = make_graph(x, train=list(range(10)), columns=Columns(features=["a", "b", "c"]))
    at_once = count_numbers(graph, ["c", "a"])
    assert at_once.sum(axis=1).tolist() == [10, 10]
    monkeypatch.setattr("hushgraph.scaling.histograms._ROWS", 3)
    assert (count_numbers(graph, ["c", "a"]) == at_once).all()
    assert (at_once[1] == np.bincount(locate(x[:, 0]), minlength=NUM_BINS)).all()


def test_centre_and_spread_are_percentiles() -> None:
    """Of many draws, within half a bin of what NumPy computes from the draws themselves."""
    values = np.random.default_rng(3).lognormal(8.0, 1.3, 200_000)
    centre, spread = find_scale(np.bincount(locate(values), minlength=NUM_BINS))
    low, middle, high = np.percentile(np.arcsinh(values), [16, 50, 84])
    assert centre == pytest.approx(middle, abs=0.01)
    assert spread == pytest.approx((high - low) / 2, abs=0.01)


def test_constants_by_eye() -> None:
    counts = np.zeros(NUM_BINS, np.int64)
    assert find_scale(counts) == (0.0, 1.0)
    counts[250] = 10
    assert find_scale(counts) == (pytest.approx(0.05), 0.1)
    # Counts below 0 are cut, so that they do not take anything off their neighbours.
    counts[100] = -7
    assert find_scale(counts) == (pytest.approx(0.05), 0.1)
    # Half of the rows in [0, 0.1), half in [10, 10.1): the percentiles are 32% into either bin.
    counts[350] = 10
    assert find_scale(counts) == (pytest.approx(0.1), pytest.approx((10.068 - 0.032) / 2))


def test_noise_alone_does_not_decide_a_scale() -> None:
    """2,000 rows under noise of 8 counts: all bins together hold more noise than rows."""
    rng = np.random.default_rng(0)
    exact = np.bincount(locate(rng.lognormal(3.7, 0.25, 2_000)), minlength=NUM_BINS)
    noisy = exact + np.rint(rng.normal(0, 8.0, NUM_BINS)).astype(np.int64)
    assert np.maximum(noisy - exact, 0).sum() > 1_000
    (centre, spread), (right, usual) = find_scale(noisy, noise_std=8.0), find_scale(exact)
    assert centre == pytest.approx(right, abs=0.05)
    assert spread == pytest.approx(usual, rel=0.1)
    # Where no bin is loud, those above 0 still say something.
    assert find_scale(np.bincount([300], minlength=NUM_BINS), noise_std=8.0) == (pytest.approx(5.05), 0.1)


def test_noise_is_on_every_bin_and_without_noise_there_is_none() -> None:
    counts = np.zeros((2, NUM_BINS), np.int64)
    exact = release_histograms(counts, names=["a", "b"], noise_std=0.0)
    assert exact.noise_std == 0.0
    assert (exact.counts == 0).all()
    noisy = release_histograms(np.zeros((40, NUM_BINS), np.int64), names=["a"] * 40, noise_std=6.0)
    assert noisy.counts.std() == pytest.approx(math.sqrt(36 + 1 / 12), rel=0.02)
    assert noisy.noise_std >= 6.0


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    counts = np.arange(2 * NUM_BINS, dtype=np.int64).reshape(2, NUM_BINS)
    path = tmp_path / "scaling.json"
    NoisyHistograms(names=("a", "b"), counts=counts, noise_std=1.5, plan="p").save(path)
    return path


def test_a_file_is_read_as_it_was_written(saved: Path) -> None:
    histograms = NoisyHistograms.load(saved, plan="p")
    assert histograms.names == ("a", "b")
    assert histograms.counts[1, 3] == NUM_BINS + 3
    assert histograms.digest == NoisyHistograms.load(saved, plan="p").digest
    column = json.loads(saved.read_text())["columns"][0]
    assert (column["centre"], column["spread"]) == histograms.scales["a"]


@pytest.mark.parametrize("change", [{"centre": 3.0}, {"counts": [1]}])
def test_constants_that_are_not_those_of_the_counts_are_refused(saved: Path, change: Any) -> None:
    values = json.loads(saved.read_text())
    saved.write_text(json.dumps({**values, "columns": [{**values["columns"][0], **change}]}))
    with pytest.raises(RunError, match="missing or damaged"):
        NoisyHistograms.load(saved, plan="p")
