"""Factors from norms: never more than C, zero where a norm is not finite."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from hushgraph.errors import PlanError
from hushgraph.gradients.clip import GROUPS, Clipping, group_of

KINDS = pytest.mark.parametrize("kind", ["normalised", "flat", "groups"])


def squares(*roots: tuple[float, float, float]) -> Tensor:
    """Squared norms [groups, roots] from norms per root."""
    return torch.tensor(roots).T.square()


def test_flat_leaves_small_gradients_alone() -> None:
    given = squares((0.0, 0.3, 0.4), (3.0, 0.0, 4.0))
    factors = Clipping(kind="flat", clip=1.0).factors(given, given)
    assert factors.shape == (3, 2)
    torch.testing.assert_close(factors[0], torch.tensor([1.0, 0.2], dtype=torch.float64), rtol=1e-4, atol=0)
    assert torch.equal(factors[0], factors[2])


def test_normalised_gives_every_root_nearly_norm_c() -> None:
    given = squares((0.0, 0.3, 0.4), (30.0, 0.0, 40.0))
    factors = Clipping(clip=2.0, stability=0.5).factors(given, given)
    expected = torch.tensor([2 / (0.5 + 0.5), 2 / (50 + 0.5)], dtype=torch.float64)
    torch.testing.assert_close(factors[1], expected, rtol=1e-4, atol=0)


def test_groups_are_clipped_one_by_one() -> None:
    given = squares((3.0, 4.0, 1.0))
    clipping = Clipping.of_groups((1.0, 2.0, 2.0))
    assert clipping.clip == 3.0
    expected = torch.tensor([1 / 3, 0.5, 1.0], dtype=torch.float64)
    torch.testing.assert_close(clipping.factors(given, given)[:, 0], expected, rtol=1e-4, atol=0)


def test_groups_share_c_evenly_unless_told() -> None:
    clipping = Clipping(kind="groups", clip=3.0)
    assert clipping.thresholds == pytest.approx((math.sqrt(3),) * 3)
    assert clipping == Clipping(kind="groups", clip=3.0, thresholds=clipping.thresholds)


@KINDS
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("stability", [0.0, 0.1])
def test_no_root_ends_above_c(kind: str, dtype: torch.dtype, stability: float) -> None:
    generator = torch.Generator().manual_seed(0)
    # Norms from 1e-25 to 1e18, some groups exactly zero.
    exponents = 43 * torch.rand(3, 5000, generator=generator, dtype=torch.float64) - 25
    norms = torch.where(torch.rand(3, 5000, generator=generator) < 0.1, 0, 10**exponents)
    clipping = Clipping(kind=kind, clip=0.7, stability=stability)
    given = norms.square().to(dtype)
    clipped = norms * clipping.factors(given, given).double()
    assert float(clipped.square().sum(0).sqrt().max()) <= 0.7 * (1 + 1e-6)
    if clipping.thresholds is not None:
        assert float(clipped.max()) <= clipping.thresholds[0] * (1 + 1e-6)


@KINDS
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_gets_factor_zero_in_every_group(kind: str, bad: float) -> None:
    clipping = Clipping(kind=kind)
    given = squares((1.0, 2.0, 3.0), (1.0, 2.0, 3.0), (1.0, 2.0, 3.0))
    hit = given.clone()
    hit[1, 1] = bad
    expected = clipping.factors(given, given)
    expected[:, 1] = 0
    assert torch.equal(clipping.factors(hit, given), expected)
    assert torch.equal(clipping.factors(given, hit), expected)


@KINDS
def test_zero_and_less_than_zero_by_rounding_give_finite_factors(kind: str) -> None:
    given = torch.tensor([[0.0, -1e-9]]).expand(3, 2)
    factors = Clipping(kind=kind, stability=0.0).factors(given, torch.zeros(3, 2))
    assert bool(factors.isfinite().all())


@KINDS
def test_what_cancelled_lowers_the_factor(kind: str) -> None:
    given = torch.full((3, 1), 1.0)
    clipping = Clipping(kind=kind)
    assert bool((clipping.factors(given, 1e6 * given) < 0.8 * clipping.factors(given, given)).all())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"kind": "adaptive"},
            "clipping='adaptive': expected 'normalised', 'flat', 'groups' or a registered rule",
        ),
        ({"clip": 0.0}, "clip=0.0: expected a finite norm above 0"),
        ({"clip": math.inf}, "clip=inf: expected a finite norm above 0"),
        ({"clip": math.nan}, "clip=nan: expected a finite norm above 0"),
        ({"stability": -0.1}, "stability=-0.1: expected a finite number, at least 0"),
        ({"stability": math.nan}, "stability=nan: expected a finite number"),
        ({"thresholds": (1.0, 1.0, 1.0)}, "only clipping 'groups' takes thresholds"),
        ({"kind": "groups", "thresholds": (1.0, 1.0)}, "expected 3 finite norms above 0"),
        ({"kind": "groups", "thresholds": (1.0, 1.0, 0.0)}, "expected 3 finite norms above 0"),
        ({"kind": "groups", "thresholds": (1.0, 1.0, math.nan)}, "expected 3 finite norms above 0"),
        (
            {"kind": "groups", "thresholds": (1.0, 2.0, 2.0)},
            "root sum of squares 3, clip=1.0: expected them to",
        ),
    ],
)
def test_impossible_clipping_is_refused(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(PlanError) as caught:
        Clipping(**arguments)
    assert message in str(caught.value)


def test_parameters_belong_to_the_part_they_are_named_after() -> None:
    named = {
        "encoder.0.weight": 0,
        "layers.0.linear.bias": 1,
        "decoder.weight": 2,
        "encoders.weight": 1,
        "w": 1,
    }
    assert {name: group_of(name) for name in named} == named
    assert GROUPS == ("encoder", "aggregation", "decoder")
