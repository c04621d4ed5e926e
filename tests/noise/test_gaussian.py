"""The default noise: torch's generator with full entropy, normal, independent."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import stats

from hushgraph.noise import gaussian as noise
from hushgraph.noise.gaussian import noise_generator, noisy

COUNT = 1_000_000


def numbers_of(generator: torch.Generator) -> np.ndarray:
    """The 624 numbers of the Mersenne Twister."""
    return generator.get_state().numpy()[24 : 24 + 8 * 624].view(np.uint64)


def test_a_seed_alone_would_leave_32_bits() -> None:
    """Why the state is filled: seeds that agree in 32 bits give the same noise on the CPU."""
    one, two = torch.Generator().manual_seed(5), torch.Generator().manual_seed(5 + (7 << 32))
    assert torch.equal(torch.randn(100, generator=one), torch.randn(100, generator=two))


def test_the_whole_state_comes_from_the_operating_system(monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = numbers_of(noise_generator("cpu")), numbers_of(noise_generator("cpu"))
    assert (one != two).sum() > 620
    assert max(one.max(), two.max()) < 2**32
    chosen = np.arange(624, dtype=np.uint32) * 6_700_417
    monkeypatch.setattr(noise.os, "urandom", lambda count: chosen.tobytes()[:count])
    assert np.array_equal(numbers_of(noise_generator("cpu")), chosen)


def test_what_is_drawn_follows_from_the_state() -> None:
    """numpy's Mersenne Twister with the same numbers gives the same bits."""
    generator = noise_generator("cpu")
    twister = np.random.MT19937()
    key = numbers_of(generator).astype(np.uint32)
    twister.state = {"bit_generator": "MT19937", "state": {"key": key, "pos": 624}}
    found = torch.rand(2000, generator=generator).double().numpy()
    assert np.array_equal(found, twister.random_raw(2000) % 2**24 / 2**24)


def test_another_layout_of_the_state_is_refused() -> None:
    state = torch.Generator().manual_seed(3).get_state().numpy()
    other = state.copy()
    other[24] += 1
    for wrong in (other, np.concatenate([state, state])):
        with pytest.raises(RuntimeError, match="another layout"):
            noise._random_state(wrong)


def test_a_seed_gives_the_same_noise_again() -> None:
    sums = {"w": torch.zeros(50)}
    one, two, other = (noisy(sums, {"w": 1.0}, noise_generator("cpu", seed))["w"] for seed in (1, 1, 2))
    assert torch.equal(one, two)
    assert not torch.isclose(one, other).any()


@pytest.fixture(scope="module")
def million() -> np.ndarray:
    """Noise of standard deviation 3, divided by it."""
    sums = {"a": torch.ones(1000, 600), "b": torch.ones(COUNT - 600_000)}
    found = noisy(sums, {"a": 3.0, "b": 3.0}, noise_generator("cpu", 7))
    assert {name: value.shape for name, value in found.items()} == {k: v.shape for k, v in sums.items()}
    return (torch.cat([value.flatten() for value in found.values()]).double().numpy() - 1) / 3


def test_a_million_draws_are_normal(million: np.ndarray) -> None:
    assert abs(million.mean()) < 4 / math.sqrt(COUNT)
    assert 1e-4 < stats.chi2.cdf(np.square(million).sum(), COUNT) < 1 - 1e-4
    assert abs((million**3).mean()) < 4 * math.sqrt(15 / COUNT)
    assert abs((million**4).mean() - 3) < 4 * math.sqrt(96 / COUNT)
    assert stats.kstest(million, "norm").pvalue > 1e-4


def test_draws_do_not_depend_on_each_other(million: np.ndarray) -> None:
    for lag in (1, 2, 16, 624, 400_000):
        assert abs(np.corrcoef(million[:-lag], million[lag:])[0, 1]) < 5 / math.sqrt(COUNT - lag)


def test_tensors_and_steps_are_independent() -> None:
    generator = noise_generator("cpu", 8)
    sums = {"a": torch.zeros(300, 300), "b": torch.zeros(300, 300)}
    drawn = [noisy(sums, {"a": 1.0, "b": 1.0}, generator) for _ in range(2)]
    rows = np.stack([one[name].flatten().numpy() for one in drawn for name in sums])
    correlations = np.corrcoef(rows) - np.eye(4)
    assert np.abs(correlations).max() < 5 / math.sqrt(rows.shape[1])
