"""Noise on sums: on a grid that every sum shares, exact in integers, wider by what rounding can change."""

from __future__ import annotations

import math
import threading
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

from hushgraph.errors import PlanError
from hushgraph.noise import normal, source
from hushgraph.noise.source import FARTHEST, ExactNoise, add_on_grid, add_parts, join

# Some hundred thousand draws on a grid of 2^-40 standard deviations: two are equal once in 40 tests or more
# seldom, more than this once in 10^20. Noise that is used again is thousands of equal numbers.
FEW_EQUAL = 8


def exact(**changed: Any) -> ExactNoise:
    return ExactNoise(**{"sigma_over_clip": 10.0, "sum_error": 1e-4, **changed})


def zeros(*shape: int) -> torch.Tensor:
    return torch.zeros(*shape, dtype=torch.float64)


def test_results_are_the_sums_on_the_grid_plus_what_was_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = np.array([1, -2, 3 << 40, 4, 5], np.int64)

    def fill(out: np.ndarray, *_: object) -> None:
        out[:] = drawn

    monkeypatch.setattr(normal, "fill", fill)
    sums = {"a": torch.tensor([[0.5, -0.25]], dtype=torch.float64), "b": torch.tensor([1.0, 2.0, 0.0])}
    noise = exact()
    found = noise.add_noise(sums, {"a": 2.0, "b": 3.0})
    steps = {"a": 2.0 * noise.widening(5) / 2**40, "b": 3.0 * noise.widening(5) / 2**40}
    expected = {
        "a": (np.rint(np.array([[0.5, -0.25]]) / steps["a"]) + drawn[:2]) * steps["a"],
        "b": (np.rint(np.array([1.0, 2.0, 0.0]) / steps["b"]) + drawn[2:]) * steps["b"],
    }
    for name, value in expected.items():
        assert (found[name].shape, found[name].dtype) == (sums[name].shape, sums[name].dtype)
        np.testing.assert_array_equal(found[name].numpy(), value.astype(found[name].numpy().dtype))


@pytest.mark.parametrize("value", [0.0, -0.0, 1e-30, 0.1, -7.3, 1e5])
def test_every_result_is_on_the_grid(value: float) -> None:
    noise = exact()
    found = noise.add_noise({"w": torch.full((20_000,), value, dtype=torch.float64)}, {"w": 5.0})["w"].numpy()
    step = 5.0 * noise.widening(20_000) / 2**40
    assert np.array_equal(np.rint(found / step) * step, found)


def test_a_million_results_have_the_widened_standard_deviation() -> None:
    noise, count = exact(seed=3, sum_error=0.1), 1_000_000
    values = noise.add_noise({"w": zeros(count)}, {"w": 4.0})["w"].numpy() / (4.0 * noise.widening(count))
    assert noise.widening(count) == pytest.approx(1.2, rel=1e-4)
    assert abs(values.mean()) < 4 / math.sqrt(count)
    assert 1e-4 < stats.chi2.cdf(np.square(values).sum(), count) < 1 - 1e-4


@pytest.mark.parametrize("ahead", [False, True])
def test_tensors_and_steps_get_noise_of_their_own(ahead: bool) -> None:
    noise, sums = exact(draw_ahead=ahead), {"a": zeros(200, 200), "b": zeros(200, 200)}
    drawn = [noise.add_noise(sums, {"a": 1.0, "b": 1.0}) for _ in range(3)]
    rows = np.stack([one[name].flatten().numpy() for one in drawn for name in sums])
    assert np.abs(np.corrcoef(rows) - np.eye(6)).max() < 6 / 200
    assert rows.size - len(np.unique(rows)) <= FEW_EQUAL


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU is visible to torch")
def test_a_gpu_gets_the_noise_of_every_step_in_order() -> None:
    """Where the noise of many steps is drawn at once, and memory is used again."""
    sigmas = {"a": 1.0, "b": 3.0}
    sums = {"a": torch.rand(70, 90, dtype=torch.float64), "b": zeros(5)}
    on_gpu = {name: value.cuda() for name, value in sums.items()}
    noise, same = exact(seed=1), exact(seed=1)
    for _ in range(100):
        expected, found = same.add_noise(sums, sigmas), noise.add_noise(on_gpu, sigmas)
        for name in sums:
            assert torch.equal(found[name].cpu(), expected[name])


def test_noise_that_was_drawn_ahead_serves_one_size() -> None:
    noise = exact()
    for size in (5, 7, 7, 3):
        assert noise.add_noise({"w": zeros(size)}, {"w": 1.0})["w"].shape == (size,)


def test_every_piece_has_a_key_of_its_own_in_whichever_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    keys: list[bytes] = []
    threads: set[str] = set()
    real = normal.fill

    def fill(out: np.ndarray, given: list[bytes], first: int, last: int) -> None:
        keys.extend(given[first:last])
        threads.add(threading.current_thread().name)
        real(out, given, first, last)

    monkeypatch.setattr(normal, "fill", fill)
    noises = [exact(), exact()]
    for _ in range(5):
        for noise in noises:
            noise.add_noise({"w": zeros(2 * normal.PIECE + 1)}, {"w": 1.0})
    for noise in noises:
        noise._drawer.take()  # type: ignore[union-attr]
    assert len(keys) >= 2 * 3 * 6
    assert len(set(keys)) == len(keys)
    assert all(name.startswith("noise") for name in threads)


def test_a_seed_repeats_a_run() -> None:
    sums, sigmas = {"w": zeros(3 * normal.PIECE)}, {"w": 1.0}

    def three_steps(noise: ExactNoise) -> np.ndarray:
        return np.stack([noise.add_noise(sums, sigmas)["w"].numpy() for _ in range(3)])

    one = three_steps(exact(seed=1))
    np.testing.assert_array_equal(one, three_steps(exact(seed=1, draw_ahead=False)))
    assert np.isin(one, three_steps(exact(seed=2))).sum() <= FEW_EQUAL
    assert np.isin(one, three_steps(exact())).sum() <= FEW_EQUAL


def on_a_gpu(values: torch.Tensor, step: float) -> torch.Tensor:
    return add_on_grid(values, torch.zeros(len(values), dtype=torch.int64), torch.tensor(step).double())


def on_a_cpu(values: torch.Tensor, step: float) -> torch.Tensor:
    out, none = torch.empty(len(values), dtype=torch.float64), np.zeros(len(values), np.int64)
    add_parts(values.numpy(), none, np.array([step]), np.array([len(values)]), FARTHEST, out.numpy())
    return out


@pytest.mark.parametrize("round_to", [on_a_cpu, on_a_gpu])
def test_rounding_to_the_grid_moves_two_sums_apart_by_one_step_at_most(round_to: Any) -> None:
    rng = np.random.default_rng(0)
    for scale in (1e-9, 1.0, 1e6):
        one, other = torch.from_numpy(scale * rng.standard_normal((2, 10_000)))
        rounded = round_to(one, 0.3), round_to(other, 0.3)
        assert (
            (rounded[0] - rounded[1]).abs() <= (one - other).abs() * (1 + 1e-12) + 0.3 * (1 + 1e-12)
        ).all()
        assert ((rounded[0] - one).abs() <= 0.15 * (1 + 1e-9)).all()


@pytest.mark.parametrize("round_to", [on_a_cpu, on_a_gpu])
def test_sums_beyond_64_bits_stop_at_the_last_place(round_to: Any) -> None:
    values = torch.tensor([1e200, -1e200, 3e38], dtype=torch.float64)
    assert (round_to(values, 1e-9) / 1e-9).tolist() == pytest.approx([2.0**61, -(2.0**61), 2.0**61])
    assert 2**61 + (normal.CELLS << 34) < 2**63


def test_widening_makes_up_for_what_it_says() -> None:
    noise, size = exact(sum_error=0.002, sigma_over_clip=40.0), 200_000
    wider = noise.widening(size)
    # In units of C: the step of the grid, and what one changed root can move the rounded sum by.
    step = 40.0 * wider / 2**40
    moved = 1 + source.NORM_EXCESS + 2 * 0.002 + step * math.sqrt(size)
    assert 40.0 * wider / moved >= 40.0 * (1 - 1e-15)
    assert 1.004 < wider < 1.0041


def test_a_grid_too_coarse_for_the_model_is_refused() -> None:
    with pytest.raises(PlanError, match=r"sigma_over_clip=1e\+09 with 1000000 parameters: too much noise"):
        exact(sigma_over_clip=1e9).widening(1_000_000)


def test_parts_of_one_tensor_are_joined_without_a_copy() -> None:
    flat = torch.arange(14.0)
    parts = [flat[2:8].view(2, 3), flat[8:9], flat[9:13].view(2, 2)]
    joined = join(parts)
    assert torch.equal(joined, flat[2:13])
    assert joined.data_ptr() == flat[2:].data_ptr()


def test_other_tensors_are_copied() -> None:
    flat = torch.arange(12.0)
    apart = [flat[0:3], flat[4:6]]
    swapped = [flat[4:6], flat[0:4]]
    turned = [flat[0:6].view(2, 3).T, flat[6:7]]
    mixed = [flat[0:2], torch.ones(2, 2)]
    for parts in (apart, swapped, turned, mixed):
        joined = join(parts)
        assert joined.tolist() == [number for part in parts for number in part.reshape(-1).tolist()]
        assert joined.untyped_storage().data_ptr() != flat.untyped_storage().data_ptr()
