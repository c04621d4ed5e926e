from __future__ import annotations

import numpy as np
import pytest

from hushgraph.accounting.events import FixedSizeDraw, PoissonDraw
from hushgraph.errors import PlanError
from hushgraph.sampling import batches as batches_file
from hushgraph.sampling.batches import FixedSizeBatches, PoissonBatches


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_each_batcher_names_its_draw() -> None:
    assert PoissonBatches(num_slots=9, rate=0.25, rng=rng()).draws == PoissonDraw(rate=0.25)
    assert FixedSizeBatches(num_slots=9, size=4, rng=rng()).draws == FixedSizeDraw(size=4, population=9)


def test_poisson_sizes_and_joins_are_binomial() -> None:
    batches = PoissonBatches(num_slots=50, rate=0.2, rng=rng(1))
    joined = np.zeros((4000, 50), dtype=bool)
    for row in joined:
        batch = batches.draw()
        assert batch.dtype == np.int64
        row[batch] = True
        assert batch.tolist() == np.flatnonzero(row).tolist()
    sizes = joined.sum(axis=1)
    assert sizes.mean() == pytest.approx(10, abs=4 * (8 / 4000) ** 0.5)
    assert sizes.var() == pytest.approx(8, rel=0.12)
    assert np.abs(joined.mean(axis=0) - 0.2).max() < 4.5 * (0.16 / 4000) ** 0.5
    correlation = np.corrcoef(joined.T)
    assert np.abs(correlation[np.triu_indices(50, 1)]).max() < 5 / 4000**0.5


def test_poisson_batches_can_be_empty_or_everything() -> None:
    sizes = [len(PoissonBatches(num_slots=3, rate=0.01, rng=rng(seed)).draw()) for seed in range(50)]
    assert 0 in sizes
    assert PoissonBatches(num_slots=1000, rate=1.0, rng=rng()).draw().tolist() == list(range(1000))


def test_fixed_size_batches_are_distinct_and_uniform() -> None:
    batches = FixedSizeBatches(num_slots=20, size=5, rng=rng(2))
    counts = np.zeros((20, 20))
    for _ in range(4000):
        batch = batches.draw()
        assert batch.dtype == np.int64
        assert len(batch) == 5
        assert np.all(np.diff(batch) > 0)
        counts[np.ix_(batch, batch)] += 1
    assert np.abs(np.diag(counts) / 4000 - 0.25).max() < 4.5 * (0.1875 / 4000) ** 0.5
    pairs = counts[np.triu_indices(20, 1)] / 4000
    p = 5 * 4 / (20 * 19)
    assert np.abs(pairs - p).max() < 4.5 * (p / 4000) ** 0.5


def test_fixed_size_of_everything() -> None:
    assert FixedSizeBatches(num_slots=7, size=7, rng=rng()).draw().tolist() == list(range(7))


@pytest.mark.parametrize("rate", [0.0, -0.1, 1.1, float("nan"), float("inf")])
def test_rates_that_are_no_probability_cannot_be_charged(rate: float) -> None:
    with pytest.raises(PlanError, match="rate="):
        _ = PoissonBatches(num_slots=5, rate=rate, rng=rng()).draws


@pytest.mark.parametrize("size", [0, -1, 6])
def test_sizes_that_cannot_be_drawn_cannot_be_charged(size: int) -> None:
    with pytest.raises(PlanError, match=f"size={size}.*population=5"):
        _ = FixedSizeBatches(num_slots=5, size=size, rng=rng()).draws


@pytest.mark.parametrize("rate", [0.2, 0.125, 0.05, 0.003])
def test_many_slots_are_drawn_by_coins_at_the_same_rate(rate: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches_file, "_MANY_SLOTS", 0)
    slots, draws = 1000, 3000
    batches = PoissonBatches(num_slots=slots, rate=rate, rng=rng(5))
    joined = np.zeros((draws, slots), dtype=bool)
    for row in joined:
        batch = batches.draw()
        assert batch.dtype == np.int64
        assert np.all(np.diff(batch) > 0)
        row[batch] = True
    variance = rate * (1 - rate)
    assert abs(joined.mean() - rate) < 4.5 * (variance / joined.size) ** 0.5
    assert np.abs(joined.mean(axis=0) - rate).max() < 5.5 * (variance / draws) ** 0.5
    sizes = joined.sum(axis=1)
    assert sizes.var() == pytest.approx(slots * variance, rel=0.15)
    # Neighbours, which share a random word, and slots a word apart join independently.
    for apart in (1, 64):
        both = (joined[:, apart:] & joined[:, :-apart]).mean()
        assert abs(both - rate**2) < 5 * (rate**2 / joined[:, apart:].size) ** 0.5
    # So do the draws of one slot in two batches.
    again = (joined[1:] & joined[:-1]).mean()
    assert abs(again - rate**2) < 5 * (rate**2 / joined[1:].size) ** 0.5


def test_every_slot_can_join_where_slots_do_not_fill_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches_file, "_MANY_SLOTS", 0)
    batches = PoissonBatches(num_slots=131, rate=0.25, rng=rng(6))
    seen = np.zeros(131, dtype=int)
    for _ in range(400):
        np.add.at(seen, batches.draw(), 1)
    assert seen.min() > 60
    assert seen.max() < 140


def test_few_slots_are_drawn_as_ever() -> None:
    drawn = PoissonBatches(num_slots=5000, rate=0.01, rng=rng(7)).draw()
    assert drawn.tolist() == np.flatnonzero(rng(7).random(5000) < 0.01).tolist()
