"""Secure noise: on a grid that every input shares, exact in integers, wider by what rounding can change."""

from __future__ import annotations

import copy
import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

import hushgraph as hg
from hushgraph.errors import InputError, PlanError
from hushgraph.gradients import ghost
from hushgraph.gradients.batch import Features, tree_batch
from hushgraph.gradients.clip import Clipping
from hushgraph.models.gnn import GNN
from hushgraph.noise import exact_normal
from hushgraph.noise.gaussian import noise_generator, noisy
from hushgraph.noise.secure_noise import SecureNoise, grid_step, on_grid
from hushgraph.sampling.stable import stable_lists
from hushgraph.sampling.trees import grow
from hushgraph.training import trainer as loop

SETTINGS: dict[str, Any] = {"hidden": 8, "max_readers": 2, "noise_multiplier": 1.0, "device": "cpu"}


def secure(*, batch_size: int = 1000, sigma_over_clip: float = 10.0, ahead: bool = False) -> SecureNoise:
    return SecureNoise(batch_size=batch_size, sigma_over_clip=sigma_over_clip, draw_ahead=ahead)


def test_results_are_the_sums_on_the_grid_plus_what_was_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = np.array([1, -2, 3 << 40, 4, 5], np.int64)
    monkeypatch.setattr(exact_normal, "draw", lambda count: drawn[:count])
    sums = {"a": torch.tensor([[0.5, -0.25]], dtype=torch.float64), "b": torch.tensor([1.0, 2.0, 0.0])}
    source = secure()
    found = noisy(sums, {"a": 2.0, "b": 3.0}, source)
    steps = {"a": 2.0 * source.widening(5) / 2**40, "b": 3.0 * source.widening(5) / 2**40}
    expected = {
        "a": (np.rint(np.array([[0.5, -0.25]]) / steps["a"]) + drawn[:2]) * steps["a"],
        "b": (np.rint(np.array([1.0, 2.0, 0.0]) / steps["b"]) + drawn[2:]) * steps["b"],
    }
    for name, value in expected.items():
        assert (found[name].shape, found[name].dtype) == (sums[name].shape, sums[name].dtype)
        np.testing.assert_array_equal(found[name].numpy(), value.astype(found[name].numpy().dtype))


@pytest.mark.parametrize("value", [0.0, -0.0, 1e-30, 0.1, -7.3, 1e5])
def test_every_result_is_on_the_grid(value: float) -> None:
    source, sums = secure(), {"w": torch.full((20_000,), value, dtype=torch.float64)}
    found = noisy(sums, {"w": 5.0}, source)["w"].numpy()
    step = grid_step(5.0 * source.widening(20_000))
    assert np.array_equal(np.rint(found / step) * step, found)


def test_no_value_is_reachable_from_one_of_two_neighbours_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """With torch's noise nearly every value is: which float32 numbers are possible depends on the sum."""
    real, count = exact_normal.draw, 200_000
    monkeypatch.setattr(exact_normal, "GRID_BITS", 2)
    monkeypatch.setattr(exact_normal, "draw", lambda size: real(size) >> 38)
    source = SecureNoise(batch_size=1, sigma_over_clip=1e-9)

    def reached(value: float, how: Any) -> set[float]:
        found = noisy({"w": torch.full((count,), value)}, {"w": 1.0}, how)["w"]
        return set(found[found.abs() < 2].tolist())

    one, other = reached(0.1, source), reached(0.4, source)
    assert one == other
    assert len(one) == 15
    generator = noise_generator("cpu", 3)
    one, other = reached(0.1, generator), reached(0.4, generator)
    assert len(one - other) > 0.5 * len(one)


def test_a_million_results_have_the_widened_standard_deviation() -> None:
    source, count = secure(), 1_000_000
    values = noisy({"w": torch.zeros(count)}, {"w": 4.0}, source)["w"].double().numpy()
    values /= 4.0 * source.widening(count)
    assert abs(values.mean()) < 6 / math.sqrt(count)
    assert 1e-9 < stats.chi2.cdf(np.square(values).sum(), count) < 1 - 1e-9
    assert abs((values**4).mean() - 3) < 6 * math.sqrt(96 / count)
    assert stats.kstest(values, "norm").pvalue > 1e-8


@pytest.mark.parametrize("ahead", [False, True])
def test_tensors_and_steps_get_noise_of_their_own(ahead: bool) -> None:
    source, sums = secure(ahead=ahead), {"a": torch.zeros(200, 200), "b": torch.zeros(200, 200)}
    drawn = [noisy(sums, {"a": 1.0, "b": 1.0}, source) for _ in range(3)]
    rows = np.stack([one[name].flatten().numpy() for one in drawn for name in sums])
    assert np.abs(np.corrcoef(rows) - np.eye(6)).max() < 6 / 200
    assert len(np.unique(rows)) > 0.9 * rows.size


def test_noise_that_was_drawn_ahead_serves_one_size() -> None:
    source = secure(ahead=True)
    for size in (5, 7, 7, 3):
        assert noisy({"w": torch.zeros(size)}, {"w": 1.0}, source)["w"].shape == (size,)


def test_rounding_to_the_grid_moves_two_sums_apart_by_one_step_at_most() -> None:
    rng = np.random.default_rng(0)
    for scale in (1e-9, 1.0, 1e6):
        one, other = scale * rng.standard_normal((2, 10_000))
        apart = np.abs(on_grid(one, 0.3) - on_grid(other, 0.3)) * 0.3
        assert (apart <= np.abs(one - other) * (1 + 1e-12) + 0.3).all()
        assert (np.abs(on_grid(one, 0.3) * 0.3 - one) <= 0.15 * (1 + 1e-9)).all()


def test_sums_beyond_64_bits_stop_at_the_last_place() -> None:
    found = on_grid(np.array([1e200, -1e200, np.finfo(np.float32).max]), 1e-9)
    assert found.tolist() == [2**61, -(2**61), 2**61]
    assert (found.astype(object) + int(exact_normal.draw(1000).max()) < 2**63).all()


def test_widening_makes_up_for_what_it_says() -> None:
    source = secure(batch_size=90_000, sigma_over_clip=40.0)
    size = 200_000
    wider = source.widening(size)
    assert 1.04 < wider < 1.05
    # In units of C: the step of the grid, and what one changed root can move the rounded sum by.
    step = 40.0 * wider / 2**40
    moved = 1 + 1e-6 + 90_000 * 2.0**-21 + step * math.sqrt(size)
    assert 40.0 * wider / moved >= 40.0 * (1 - 1e-15)
    assert secure(batch_size=100).widening(size) < 1.0001


def test_a_grid_too_coarse_for_the_model_is_refused() -> None:
    with pytest.raises(PlanError, match=r"sigma_over_clip=1e\+09 with 1000000 parameters: too much noise"):
        secure(sigma_over_clip=1e9).widening(1_000_000)


@pytest.mark.parametrize("name", ["gcn", "gin", "gat"])
@pytest.mark.parametrize("same_labels", [False, True])
def test_float32_loses_less_of_a_sum_than_is_allowed_for(name: str, same_labels: bool) -> None:
    """Where all gradients point the same way a sum is longest, and so is what rounding loses of it."""
    graph = hg.datasets.synthetic(num_nodes=4000, num_classes=4, num_features=32, average_degree=6, seed=1)
    lists = stable_lists(
        graph,
        num_nodes=graph.num_nodes,
        train_mask=graph.train_mask,
        max_readers=3,
        max_reads=8,
        edge_owner="sender",
        seed=1,
    )
    labels = np.zeros_like(graph.y) if same_labels else graph.y
    batch = tree_batch(grow(lists, graph.train_idx, 1), Features(graph), labels)
    torch.manual_seed(0)
    model = GNN(32, 4, model=name, hidden=32)  # type: ignore[arg-type]

    def passed(model: GNN, x: Tensor) -> ghost._Pass:
        return ghost._Pass.of(model, dataclasses.replace(batch, x=x))

    single = passed(model, batch.x)
    factors = Clipping().factors(*single.squared_norms())
    found = single.weighted_sums(factors)
    exact = passed(copy.deepcopy(model).double(), batch.x.double()).weighted_sums(factors.double())
    lost = math.sqrt(sum(float((found[key].double() - exact[key]).square().sum()) for key in found))
    assert 0 < 2 * lost < 2.0**-21 * batch.num_roots


@pytest.fixture(scope="module")
def graph() -> hg.Graph:
    return hg.datasets.synthetic(num_nodes=150, num_classes=3, num_features=8, average_degree=5)


@pytest.mark.parametrize("batch_size", [20, 90])
def test_a_run_says_that_its_noise_is_secure(graph: hg.Graph, tmp_path: Path, batch_size: int) -> None:
    run = hg.train(graph, steps=3, secure_noise=True, batch_size=batch_size, out=tmp_path / "run", **SETTINGS)
    assert run.result["secure_noise"] is True
    assert run.result["guarantee"] == "holds"
    assert json.loads((tmp_path / "run" / "run.json").read_text())["config"]["secure_noise"] is True
    run.report(tmp_path / "report.html")
    assert "come from cryptographic generators" in (tmp_path / "report.html").read_text()
    other = hg.train(graph, steps=3, batch_size=batch_size, **SETTINGS)
    assert "secure_noise" not in other.result


def test_all_noise_of_a_secure_run_is_exact(
    graph: hg.Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[int] = []
    real = exact_normal.draw
    monkeypatch.setattr(exact_normal, "draw", lambda count: drawn.append(count) or real(count))
    monkeypatch.setattr(torch, "randn", None)

    def stop(done: int, *others: Any) -> None:
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        hg.train(graph, steps=400, secure_noise=True, batch_size=1, observer=stop, out=tmp_path, **SETTINGS)
    before = len(drawn)
    run = hg.resume(tmp_path, graph, device="cpu")
    size = sum(p.numel() for p in run.model.parameters())
    assert before >= 2
    assert drawn == [size] * (400 - run.result["steps_lost"])
    assert run.result["secure_noise"] is True


@pytest.mark.parametrize("batch_size", [20, 90])
def test_sums_of_a_secure_run_are_short_and_added_up_in_float64(
    graph: hg.Graph, batch_size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What float32 loses of a sum grows faster than the roots in it, and the allowance for it does not."""
    pieces: list[int] = []
    types: set[torch.dtype] = set()
    real_sum, real_noisy = ghost.clipped_sum, SecureNoise.noisy

    def clipped_sum(model: Any, batch: Any, clipping: Clipping) -> dict[str, Tensor]:
        pieces.append(batch.num_roots)
        return real_sum(model, batch, clipping)

    def noisy(self: SecureNoise, sums: Any, sigmas: Any) -> dict[str, Tensor]:
        types.update(value.dtype for value in sums.values())
        return real_noisy(self, sums, sigmas)

    monkeypatch.setattr(ghost, "clipped_sum", clipped_sum)
    monkeypatch.setattr(SecureNoise, "noisy", noisy)
    monkeypatch.setattr(loop, "SECURE_ROOTS", 7)
    run = hg.train(graph, steps=3, secure_noise=True, batch_size=batch_size, **SETTINGS)
    assert max(pieces) == 7
    assert types == {torch.float64}
    assert {p.dtype for p in run.model.parameters()} == {torch.float32}


@pytest.mark.parametrize("batch_size", [40, 83])
def test_roots_without_a_label_take_no_part_in_sums(batch_size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """They give nothing; left in, they would still change how the sum of the others is rounded."""
    whole = hg.datasets.synthetic(num_nodes=150, num_classes=3, num_features=8, average_degree=5, seed=1)
    labels = whole.y.copy()
    labels[whole.train_idx[::3]] = -1
    bare = dataclasses.replace(whole, y=labels)
    seen: list[Tensor] = []
    real = ghost.clipped_sum

    def clipped_sum(model: Any, batch: Any, clipping: Clipping) -> dict[str, Tensor]:
        seen.append(batch.labels)
        return real(model, batch, clipping)

    monkeypatch.setattr(ghost, "clipped_sum", clipped_sum)
    hg.train(bare, steps=3, secure_noise=True, batch_size=batch_size, **SETTINGS)
    assert len(seen) == 3
    assert all(bool((found >= 0).all()) and 0 < len(found) <= 64 for found in seen)


def test_a_seed_and_secure_noise_contradict_each_other(graph: hg.Graph) -> None:
    with pytest.raises(InputError, match=r"^secure_noise and seed=0: .* leave one of them out$"):
        hg.train(graph, steps=3, secure_noise=True, seed=0, **SETTINGS)


def test_secure_noise_without_privacy_is_refused(graph: hg.Graph, tmp_path: Path) -> None:
    with pytest.raises(PlanError, match=r"^secure_noise: training without privacy adds no noise"):
        hg.train(graph, private=False, secure_noise=True, device="cpu", out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
