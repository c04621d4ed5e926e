"""The board: noise is a rounded normal number, the grid is exact, and files are checked."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

import exact_normal
from hushgraph._files import write_tensors
from hushgraph.billboard import board as board_module
from hushgraph.billboard.ballots import GRID, label_ballots
from hushgraph.billboard.board import (
    Board,
    cast,
    cast_and_release,
    load_board,
    noise_divisor,
    release,
    save_board,
)
from hushgraph.errors import PlanError, RunError
from hushgraph.graph.graph import Graph
from hushgraph.noise import normal
from hushgraph.privacy.charges.gaussian import LARGEST_NOISE
from hushgraph.privacy.plans import BillboardPlan
from hushgraph.tasks.classes import Classes


def seeded(seed: int = 0) -> Any:
    """Exact draws from bytes that are the same every time."""
    source = np.random.default_rng(seed).bytes
    return lambda count: exact_normal.draw(count, source)


def board(**changes: Any) -> Board:
    values = np.arange(6, dtype=np.float32).reshape(3, 2)
    return Board(**({"values": values, "noise_std": 1.5, "plan": "abc"} | changes))


@pytest.mark.parametrize("std", [0.3, 1.7, 42.0])
def test_noise_is_normal_with_the_standard_deviation_that_is_stated(std: float) -> None:
    noisy = release(np.zeros((100_000, 2), np.int64), noise_std=std, draws=seeded())
    z = noisy.values.astype(np.float64).ravel() / noisy.noise_std
    assert stats.kstest(z, "norm").pvalue > 1e-3
    assert 1e-3 < stats.chi2.cdf(np.square(z).sum(), z.size) < 1 - 1e-3
    assert abs(np.corrcoef(z[::2], z[1::2])[0, 1]) < 4 / math.sqrt(z.size / 2)


def test_the_check_sees_too_little_noise() -> None:
    noisy = release(np.zeros((100_000, 2), np.int64), noise_std=1.0, draws=seeded())
    z = 0.99 * noisy.values.astype(np.float64).ravel() / noisy.noise_std
    assert not 1e-3 < stats.chi2.cdf(np.square(z).sum(), z.size) < 1 - 1e-3


@pytest.mark.parametrize("std", [1e-6, 1e-3, 0.3, 1.0, 5.97, 1000.0, 65_536.0])
def test_noise_is_never_less_than_asked_for(std: float) -> None:
    m = noise_divisor(std)
    # In units of the grid the standard deviation is 2^40 / m.
    assert Fraction(1 << 40, m * GRID) >= Fraction(std) > Fraction(1 << 40, (m + 1) * GRID)
    used = release(np.zeros((1, 2), np.int64), noise_std=std, draws=seeded()).noise_std
    assert std <= used <= std * (1 + std / 65_000 + 1e-12)
    assert noise_divisor(used) == m


@pytest.mark.parametrize("owner", ["sender", "reader"])
def test_a_board_made_in_parts_is_that_of_the_whole_tally(
    owner: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    edges = np.random.default_rng(1).integers(0, 40_000, (2, 90_000))
    labels = np.arange(40_000) % 3
    graph = Graph.from_arrays(edge_index=edges, x=np.ones((40_000, 1)), y=labels, train_idx=np.arange(20_000))
    ballots = label_ballots(graph, owner, task=Classes(num_classes=3))
    std, keys = 0.7, normal.seeded_keys
    whole = release(cast(graph, ballots), noise_std=std, draws=partial(normal.draw, keys=keys(1)))
    monkeypatch.setattr(board_module, "_HELD_TALLY", 3)
    assert len(list(board_module._cut_places(40_000, ballots.width))) == 2
    draws = partial(normal.draw, keys=keys(1))
    parts = cast_and_release(graph, ballots, noise_std=std, draws=draws, plan="a")
    assert np.array_equal(parts.values, whole.values)
    assert (parts.noise_std, parts.plan, parts.names) == (whole.noise_std, "a", None)


def test_the_board_is_a_rounding_of_tally_plus_noise() -> None:
    """With fractions: floor(T + (2^40 z + h) / m), where all that is known of 2^40 z is its integer part."""
    rng = np.random.default_rng(2)
    tally = rng.integers(-(2**20), 2**20, (50, 3))
    draws = rng.integers(-(2**42), 2**42, 150)
    m = noise_divisor(0.9)
    noisy = release(tally, noise_std=0.9, draws=lambda count: draws)
    for t, z, value in zip(tally.flat, draws, noisy.values.flat, strict=True):
        for fraction in (Fraction(0), Fraction(1, 3), Fraction(999_999, 1_000_000)):
            exact = math.floor(int(t) + (int(z) + fraction + m // 2) / m)
            assert value == np.float32(exact / GRID)


def test_which_values_are_possible_does_not_depend_on_the_tally() -> None:
    """The same draws on another tally: every value moves by exactly the difference."""
    tally = np.array([[0, 5], [-1000, 12]])
    plain = release(np.zeros((2, 2), np.int64), noise_std=0.01, draws=seeded())
    moved = release(tally, noise_std=0.01, draws=seeded())
    np.testing.assert_array_equal((moved.values.astype(np.float64) - plain.values) * GRID, tally)


def test_every_release_has_noise_of_its_own() -> None:
    tally = np.zeros((100, 2), np.int64)
    first, second = (release(tally, noise_std=1.0).values for _ in range(2))
    assert not np.any(first == second)


def test_blocks_of_draws_do_not_repeat(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hushgraph.billboard.board._BLOCK", 7)
    counts = itertools.count(1)
    noisy = release(
        np.zeros((10, 2), np.int64), noise_std=1.0, draws=lambda count: np.full(count, next(counts) << 40)
    )
    np.testing.assert_allclose(noisy.values.ravel(), np.repeat([1.0, 2.0, 3.0], [7, 7, 6]))


def test_a_board_without_noise() -> None:
    tally = np.array([[GRID, -GRID], [0, GRID // 2]])
    bare = release(tally, noise_std=0.0)
    assert bare.noise_std == 0.0
    assert bare.values.tolist() == [[1.0, -1.0], [0.0, 0.5]]
    assert release(tally, noise_std=1.0).noise_std > 0.0


@pytest.mark.parametrize("std", [1e-9, 70_000.0, math.inf, math.nan, -1.0])
def test_noise_beyond_the_grid_is_refused(std: float) -> None:
    with pytest.raises(PlanError, match=r"noise_std=.*boards take noise from 1e-06 to 65536"):
        release(np.zeros((1, 2), np.int64), noise_std=std)


@pytest.mark.parametrize("epsilon", [1e300, 1e13, 1e-12])
def test_a_plan_with_noise_beyond_the_grid_is_refused(epsilon: float) -> None:
    """Before anything is charged."""
    plan = BillboardPlan(num_train_nodes=1000, num_classes=3, batch_size=1000, steps=10, delta=1e-9)
    with pytest.raises(PlanError, match=r"epsilon=.*boards take from 1e-06 to 65536; use another epsilon"):
        plan.calibrated(epsilon=epsilon)
    assert noise_divisor(LARGEST_NOISE) == 1


def test_broken_randomness_is_refused() -> None:
    with pytest.raises(RuntimeError, match="source of randomness is broken"):
        release(
            np.zeros((1, 2), np.int64), noise_std=1.0, draws=lambda count: np.full(count, np.int64(-(2**63)))
        )


@pytest.mark.parametrize(
    "names", [None, np.array([7, -2, 2**40]), np.array(["b", "", "ä€"]), np.array(["x", "yy", "z"], object)]
)
def test_files_keep_everything(names: Any, tmp_path: Path) -> None:
    save_board(board(names=names, noise_std=1 / 3), tmp_path / "board.safetensors")
    loaded = load_board(tmp_path / "board.safetensors", plan="abc")
    np.testing.assert_array_equal(loaded.values, board().values)
    assert (loaded.noise_std, loaded.plan, loaded.num_places, loaded.width) == (1 / 3, "abc", 3, 2)
    assert (loaded.names is None) == (names is None)
    if names is not None:
        assert loaded.names is not None
        assert loaded.names.tolist() == names.tolist()


def test_damaged_and_foreign_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "board.safetensors"
    save_board(board(), path)
    with pytest.raises(RunError, match="belongs to another run"):
        load_board(path, plan="other")
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)
    with pytest.raises(RunError, match="damaged"):
        load_board(path)
    path.write_bytes(content[:20])
    with pytest.raises(RunError, match="cannot be read"):
        load_board(path)
    with pytest.raises(RunError, match="cannot be read"):
        load_board(tmp_path / "none.safetensors")
    write_tensors(path, {}, {"kind": "weights"})
    with pytest.raises(RunError, match="is not a board"):
        load_board(path)
    write_tensors(path, {}, {"kind": "hushgraph board 1", "plan": "", "noise_std": "0x1p+0"})
    with pytest.raises(RunError, match="lacks parts of a board"):
        load_board(path)
    about = {"kind": "hushgraph board 1", "plan": "", "noise_std": "0x1p+0"}
    for wrong in (3e38, -1e12, np.inf, np.nan):
        write_tensors(path, {"values": torch.tensor([[0.0, wrong]])}, about)
        with pytest.raises(RunError, match="holds numbers that no board has"):
            load_board(path)


def test_places_by_name() -> None:
    assert board().places_of([0, 2, 3, -1]).tolist() == [0, 2, -1, -1]
    assert board().places_of(["0"]).tolist() == [-1]
    assert board().places_of([]).tolist() == []
    numbered = board(names=np.array([30, 10, 20]))
    assert numbered.places_of(np.array([10, 30, 15, 99])).tolist() == [1, 0, -1, -1]
    assert numbered.places_of(["10", "x"]).tolist() == [1, -1]
    named = board(names=np.array(["bob", "al", "ann"], object))
    assert named.places_of(["ann", "al", "zoe", "a"]).tolist() == [2, 1, -1, -1]
    assert named.places_of(np.array(["bob"], object)).tolist() == [0]
    assert named.places_of([5]).tolist() == [-1]


@pytest.mark.parametrize(
    ("changes", "kind", "message"),
    [
        ({"values": np.zeros(3, np.float32)}, RunError, r"expected float32 \[places, width\]"),
        ({"values": np.zeros((3, 2))}, RunError, "values have dtype float64"),
        ({"noise_std": math.inf}, RunError, "noise_std=inf: expected a finite number"),
        ({"names": np.array([1, 2])}, RunError, r"names have shape \[2\]; expected one for each of 3"),
    ],
)
def test_boards_that_are_none_are_refused(changes: dict[str, Any], kind: type, message: str) -> None:
    with pytest.raises(kind, match=message):
        board(**changes)
