"""No step diverges more than the pair: random two-dimensional steps, integrated numerically."""

from __future__ import annotations

import itertools

import numpy as np
import numpy.typing as npt
import pytest

from hushgraph.accounting.pair_losses import PairLoss

FloatArray = npt.NDArray[np.float64]
EPSILONS = np.array([0.0, 0.05, 0.2, 0.7, 2.0])
CONFIGURATIONS = 100
# What the kink of [.]_+ costs the trapezoid rule here; it falls with the square of the cut.
TOLERANCE = 2e-5


def random_means(rng: np.random.Generator, trees: int, *, own_root: bool, kind: str) -> FloatArray:
    """For every subset of the changed roots a mean no longer than its size; row 0 is v's own root.

    `kind` is "opposed" for vectors along the first axis, the worst there is, "spread" for vectors around it,
    and "subsets" for a mean per subset that is no sum of its members' gradients, which is allowed too.
    """
    subsets = np.array(list(itertools.product([0, 1], repeat=trees)), dtype=float)
    if not own_root:
        subsets[:, 0] = 0.0
    if kind == "subsets":
        angles, lengths = rng.uniform(-np.pi, np.pi, len(subsets)), rng.uniform(0, 1, len(subsets))
        rays = np.column_stack([np.cos(angles), np.sin(angles)]) * lengths[:, None]
        return subsets.sum(axis=1, keepdims=True) * rays
    angles = rng.normal(0.0, 0.0 if kind == "opposed" else 0.6, trees)
    lengths = rng.choice([1.0, 1.0, rng.uniform()], trees)
    return subsets @ (np.column_stack([np.cos(angles), np.sin(angles)]) * lengths[:, None])


def weights(trees: int, rate: float) -> FloatArray:
    sizes = np.array([sum(subset) for subset in itertools.product([0, 1], repeat=trees)])
    out: FloatArray = rate**sizes * (1 - rate) ** (trees - sizes)
    return out


def density(
    points: tuple[FloatArray, FloatArray], means: FloatArray, probs: FloatArray, sigma: float
) -> FloatArray:
    """Density of the mixture on the grid, from one factor per axis."""
    x, y = (
        np.exp(-0.5 * ((axis[:, None] - means[:, k]) / sigma) ** 2) / (sigma * np.sqrt(2 * np.pi))
        for k, axis in enumerate(points)
    )
    out: FloatArray = (x * probs) @ y.T
    return out


def divergences(
    a: FloatArray, b: FloatArray, trees: int, rate: float, sigma: float
) -> tuple[FloatArray, FloatArray]:
    """Hockey-stick divergences of the two mixtures in both directions, at every epsilon.

    Turned so that the means differ along the first axis, across the kink, which is cut finely; along the kink
    the integrand is smooth, and the rule exact on a coarse cut.
    """
    probs = weights(trees, rate)
    x, y = probs @ (a - b)
    turn = np.array([[x, -y], [y, x]]) / max(np.hypot(x, y), 1e-300)
    reach = trees + 7 * sigma
    across, along = np.linspace(-reach, reach, 1201), np.linspace(-reach, reach, 81)
    cell = (across[1] - across[0]) * (along[1] - along[0])
    p, q = (density((across, along), means @ turn, probs, sigma) for means in (a, b))
    assert p.sum() * cell == pytest.approx(1.0, abs=1e-6)
    forth = [np.maximum(p - np.exp(epsilon) * q, 0.0).sum() * cell for epsilon in EPSILONS]
    back = [np.maximum(q - np.exp(epsilon) * p, 0.0).sum() * cell for epsilon in EPSILONS]
    return np.array(forth), np.array(back)


def of_pair(trees: int, rate: float, sigma: float) -> tuple[FloatArray, FloatArray]:
    forth = PairLoss(upper_trees=trees, lower_trees=trees - 1, rate=rate, sigma=sigma)
    back = PairLoss(upper_trees=trees - 1, lower_trees=trees, rate=rate, sigma=sigma)
    return forth.divergence(EPSILONS), back.divergence(EPSILONS)


def largest_excess(rng: np.random.Generator, *, shift: float = 1.0) -> float:
    """How far random steps go beyond the pair, at most; `shift` scales the pair's shifts."""
    worst = -np.inf
    for k in range(CONFIGURATIONS):
        trees, rate = 1 + k % 4, float(rng.choice([0.05, 0.3, 0.7, 1.0]))
        sigma = float(rng.choice([0.7, 1.5, 4.0]))
        kind = ("opposed", "spread", "subsets")[k % 3]
        a = random_means(rng, trees, own_root=True, kind=kind)
        b = -random_means(rng, trees, own_root=False, kind=kind)
        found = divergences(a, b, trees, rate, sigma)
        allowed = of_pair(trees, rate, sigma / shift)
        worst = max(worst, *(float((f - p).max()) for f, p in zip(found, allowed, strict=True)))
    return worst


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_no_step_exceeds_the_pair(seed: int) -> None:
    assert largest_excess(np.random.default_rng(seed)) <= TOLERANCE


def test_the_pair_is_attained() -> None:
    """The worst step itself, with every gradient as long as allowed and opposed, equals the pair."""
    for trees, rate, sigma in [(1, 0.3, 1.5), (3, 0.3, 1.5), (4, 0.7, 4.0), (2, 1.0, 1.5)]:
        subsets = np.array(list(itertools.product([0, 1], repeat=trees)), dtype=float)
        own = np.column_stack([subsets.sum(axis=1), np.zeros(len(subsets))])
        other = np.column_stack([-subsets[:, 1:].sum(axis=1), np.zeros(len(subsets))])
        found, allowed = divergences(own, other, trees, rate, sigma), of_pair(trees, rate, sigma)
        for row, limit in zip(found, allowed, strict=True):
            assert row == pytest.approx(limit, abs=TOLERANCE)


def test_a_pair_with_half_the_shifts_is_found_out() -> None:
    assert largest_excess(np.random.default_rng(0), shift=0.5) > 0.05


def test_a_pair_that_forgets_the_own_root_is_found_out() -> None:
    """Bin(n-1, q) on both sides: too small, and the worst step shows it."""
    trees, rate, sigma = 2, 0.3, 1.5
    subsets = np.array(list(itertools.product([0, 1], repeat=trees)), dtype=float)
    own = np.column_stack([subsets.sum(axis=1), np.zeros(len(subsets))])
    other = np.column_stack([-subsets[:, 1:].sum(axis=1), np.zeros(len(subsets))])
    wrong = PairLoss(upper_trees=trees - 1, lower_trees=trees - 1, rate=rate, sigma=sigma)
    found, _ = divergences(own, other, trees, rate, sigma)
    assert (found - wrong.divergence(EPSILONS)).max() > 0.01
