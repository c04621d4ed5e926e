"""The keyed generator: batches follow from the key alone, and are uniform."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from hushgraph.sampling import batches
from hushgraph.sampling.batches import FixedSizeBatches, PoissonBatches
from hushgraph.sampling.random import KeyedGenerator


def test_one_key_gives_one_stream_and_another_key_another() -> None:
    one, two, other = KeyedGenerator(1), KeyedGenerator(1), KeyedGenerator(2)
    for _ in range(2):
        drawn = one.random(1000)
        assert np.array_equal(drawn, two.random(1000))
        assert not np.isin(drawn, other.random(1000)).any()
    assert one.integers(2**63) == two.integers(2**63) != one.integers(2**63)


def test_numbers_are_uniform_and_never_repeat() -> None:
    generator = KeyedGenerator(3)
    drawn = np.concatenate([generator.random(100_000), generator.random(100_000)])
    assert len(np.unique(drawn)) == len(drawn)
    assert 0 <= drawn.min() < drawn.max() < 1
    assert stats.kstest(drawn, "uniform").pvalue > 1e-4
    bits = np.unpackbits(generator.integers(0, 2**64, 20_000, dtype=np.uint64).view(np.uint8))
    assert stats.binomtest(int(bits.sum()), len(bits)).pvalue > 1e-4


@pytest.mark.parametrize("many", [False, True])
def test_poisson_batches_have_their_rate(many: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if many:
        monkeypatch.setattr(batches, "_MANY_SLOTS", 1)
    drawer = PoissonBatches(num_slots=2000, rate=0.07, rng=KeyedGenerator(4))
    sizes = np.array([len(drawer.draw()) for _ in range(300)])
    assert stats.binomtest(int(sizes.sum()), 2000 * 300, 0.07).pvalue > 1e-4
    assert abs(sizes.var() / (2000 * 0.07 * 0.93) - 1) < 0.4


def test_sets_of_fixed_size_are_equally_likely() -> None:
    drawer = FixedSizeBatches(num_slots=5, size=2, rng=KeyedGenerator(5))
    found: dict[tuple[int, ...], int] = {}
    for _ in range(2000):
        drawn = tuple(drawer.draw().tolist())
        found[drawn] = found.get(drawn, 0) + 1
    assert len(found) == 10
    assert stats.chisquare(list(found.values())).pvalue > 1e-4


def test_what_it_cannot_draw_securely_is_refused() -> None:
    generator = KeyedGenerator(6)
    with pytest.raises(TypeError, match="draws vectors only"):
        generator.random((2, 3))
    with pytest.raises(TypeError, match="power of two"):
        generator.integers(10)
    with pytest.raises(TypeError, match="64-bit words only"):
        generator.integers(0, 16, 3)
    with pytest.raises(TypeError, match="without replacement"):
        generator.choice(10, 3)
    with pytest.raises(OverflowError):
        KeyedGenerator(2**256)
