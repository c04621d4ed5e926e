"""Random splits depend on node ids alone."""

from __future__ import annotations

import numpy as np
import pytest

from hushgraph.datasets.splits import parse_fractions, random_split
from hushgraph.errors import GraphError


def test_shares_and_partition() -> None:
    parts = random_split(100_000, (0.6, 0.3, 0.1), seed=1)
    # Six standard deviations of a binomial share are below 0.01 here.
    assert [len(part) / 100_000 for part in parts] == pytest.approx([0.6, 0.3, 0.1], abs=0.01)
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(100_000))
    assert all(np.array_equal(part, np.sort(part)) and part.dtype == np.int64 for part in parts)


def test_fractions_may_leave_nodes_over() -> None:
    parts = random_split(50_000, (0.1, 0.0, 0.2))
    assert [len(part) / 50_000 for part in parts] == pytest.approx([0.1, 0.0, 0.2], abs=0.01)


def test_a_node_keeps_its_place_when_the_graph_grows() -> None:
    small, large = random_split(1_000, (0.6, 0.2, 0.2)), random_split(5_000, (0.6, 0.2, 0.2))
    for few, many in zip(small, large, strict=True):
        assert np.array_equal(few, many[many < 1_000])


def test_seeds_give_unrelated_splits() -> None:
    first, second = (set(random_split(20_000, (0.5, 0.25, 0.25), seed=seed)[0].tolist()) for seed in (0, 1))
    assert len(first & second) / 20_000 == pytest.approx(0.25, abs=0.015)
    assert first == set(random_split(20_000, (0.5, 0.25, 0.25), seed=0)[0].tolist())


def test_neighbouring_ids_are_unrelated() -> None:
    mask = np.zeros(100_000, bool)
    mask[random_split(100_000, (0.5, 0.5, 0.0))[0]] = True
    for shift in (1, 2, 64, 1024):
        assert np.mean(mask[shift:] == mask[:-shift]) == pytest.approx(0.5, abs=0.01)


def test_parse() -> None:
    assert parse_fractions("0.6/0.2/0.2") == (0.6, 0.2, 0.2)


@pytest.mark.parametrize("text", ["0.6", "0.6/0.2", "a/b/c", "", "0.1/0.1/0.1/0.1"])
def test_parse_refused(text: str) -> None:
    with pytest.raises(GraphError, match="expected three fractions, train/val/test"):
        parse_fractions(text)


@pytest.mark.parametrize(
    "fractions",
    [(0.0, 0.5, 0.5), (0.6, 0.6, 0.0), (0.5, -0.1, 0.1), (float("nan"), 0.1, 0.1), (0.5, 0.5, 0.1)],
)
def test_fractions_refused(fractions: tuple[float, float, float]) -> None:
    with pytest.raises(GraphError, match="expected none below 0, training above 0, and a sum of at most 1"):
        random_split(10, fractions)
