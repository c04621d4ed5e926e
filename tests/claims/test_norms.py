"""Promise: no root's clipped gradient is longer than C (1 + 1e-6), whatever its rows."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from benchmark_scripts import script
from effort import choose
from hushgraph.gradients import clip
from hushgraph.gradients import layer_rules as layers
from hushgraph.gradients.clip import Clipping
from hushgraph.gradients.layer_rules import Rows

norm_search = script("norm_search")
pytestmark = pytest.mark.filterwarnings("ignore:(overflow|invalid value) encountered:RuntimeWarning")


NEEDS_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=NEEDS_GPU)])
def test_no_case_of_a_search_exceeds_c(device: str) -> None:
    worst = norm_search.search(choose(250, 2000), seed=1, device=device)
    assert set(worst) == set(norm_search.KINDS)
    for case in worst.values():
        assert case.excess <= 1e-6, case.description
    # Clipping is tight: roots come as near to C as the margin lets them.
    assert all(case.excess > -1e-4 for case in worst.values())


def test_the_search_sees_a_margin_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Layers whose rows add up keep clear of C by the margin; without it they reach C."""
    kinds = ("layer norm", "embedding", "scale", "shared encoder", "sparse encoder")
    with_margin = norm_search.search(100, seed=0)
    monkeypatch.setattr(clip, "ROUNDING_MARGIN", 0.0)
    without = norm_search.search(100, seed=0)
    for kind in kinds:
        assert with_margin[kind].excess < -1e-6 < without[kind].excess, kind


def excess(layer: nn.Module, rows: Rows) -> float:
    """By how much one root exceeds C = 1 with flat clipping."""
    squares, sizes = layers.squared_norms(layer, rows)
    factors = Clipping(kind="flat").factors(
        squares.expand(3, 1) * torch.tensor([[1.0], [0], [0]]), sizes.expand(3, 1)
    )
    sums = layers.weighted_sums(layer, rows, factors[0])
    return math.sqrt(sum(float(value.square().sum()) for value in sums.values())) - 1


def leading(width: int, lanes: int) -> Tensor:
    """Numbers whose squares a float32 sum that begins with the first ones would all lose."""
    x = np.full((1, width), math.sqrt(0.499 * 64.0**2 * 2.0**-23), np.float32)
    x[0, :lanes] = 64
    return torch.from_numpy(x)


@pytest.mark.parametrize("width", [1433, 1 << 16, 1 << 18, 1 << 20])
@pytest.mark.parametrize("lanes", [4, 8, 16, 32])
@pytest.mark.parametrize("count", [1, 2])
def test_wide_rows(width: int, lanes: int, count: int) -> None:
    layer = nn.Linear(width, 3, device="meta")
    rows = norm_search.rows_of(leading(width, lanes).expand(count, -1), torch.ones(count, 3))
    assert -1e-4 < excess(layer, rows) <= 1e-6


@pytest.mark.parametrize("count", [1000, 100_000, 1_000_000])
def test_hubs(count: int) -> None:
    rng = np.random.default_rng(0)
    one, other = torch.from_numpy(rng.standard_normal((2, 1, 8)).astype(np.float32))
    inputs, gradients = one.expand(count, -1).contiguous(), other.expand(count, -1).contiguous()
    for layer in (nn.LayerNorm(8), nn.Linear(8, 8)):
        assert -1e-4 < excess(layer, norm_search.rows_of(inputs, gradients)) <= 1e-6
    places = torch.zeros(count, dtype=torch.int64)
    assert -1e-4 < excess(nn.Embedding(4, 8), norm_search.rows_of(places, gradients)) <= 1e-6
