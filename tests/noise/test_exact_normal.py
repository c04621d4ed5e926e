"""Exact normal draws: their chances are those of the integers they come from."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

import exact_normal

COUNT = 1_000_000
STEPS = 2**exact_normal.GRID_BITS


@pytest.fixture(scope="module")
def draws() -> np.ndarray:
    """From bytes that are the same every time, so that good draws never fail by chance."""
    return exact_normal.draw(COUNT, np.random.default_rng(0).bytes)


def assert_normal(values: np.ndarray) -> None:
    """Mean, variance, moments and distribution function are those of a standard normal."""
    count = len(values)
    assert abs(values.mean()) < 4 / math.sqrt(count)
    assert 1e-4 < stats.chi2.cdf(np.square(values).sum(), count) < 1 - 1e-4
    # Standard deviations of the third and fourth power of a normal number: sqrt(15) and sqrt(96).
    assert abs((values**3).mean()) < 4 * math.sqrt(15 / count)
    assert abs((values**4).mean() - 3) < 4 * math.sqrt(96 / count)
    assert stats.kstest(values, "norm").pvalue > 1e-4


def test_a_million_draws_are_normal(draws: np.ndarray) -> None:
    assert draws.dtype == np.int64
    assert_normal(draws / STEPS)


def test_the_check_sees_a_wrong_distribution(draws: np.ndarray) -> None:
    values = draws / STEPS
    for wrong in (1.01 * values, values + 0.01, np.clip(values, -3, 3), np.trunc(4 * values) / 4):
        with pytest.raises(AssertionError):
            assert_normal(wrong)


def test_counts_in_bins_are_as_expected_far_into_the_tails(draws: np.ndarray) -> None:
    edges = np.concatenate([[-np.inf], np.arange(-4.0, 4.01, 0.125), [np.inf]])
    found = np.histogram(draws / STEPS, edges)[0]
    expected = COUNT * np.diff(stats.norm.cdf(edges))
    assert expected.min() > 20
    assert stats.chisquare(found, expected).pvalue > 1e-4


def test_fine_digits_are_uniform_and_signs_even(draws: np.ndarray) -> None:
    """Below 2^-20 standard deviations the density is flat, so the last twenty digits are fair bits."""
    for bit in range(20):
        ones = int((draws >> bit & 1).sum())
        assert stats.binomtest(ones, COUNT).pvalue > 1e-5, bit
    assert stats.binomtest(int((draws < 0).sum()), COUNT).pvalue > 1e-4
    assert len(np.unique(draws)) == COUNT


def test_draws_do_not_depend_on_each_other(draws: np.ndarray) -> None:
    values = draws / STEPS
    for lag in (1, 2, 3, 1000):
        assert abs(np.corrcoef(values[:-lag], values[lag:])[0, 1]) < 5 / math.sqrt(COUNT)
        assert abs(np.corrcoef(values[:-lag] ** 2, values[lag:] ** 2)[0, 1]) < 5 / math.sqrt(COUNT)


def test_where_buffers_end_makes_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    """A draw that were begun again because bytes ran out would be smaller: large ones take more bytes."""
    monkeypatch.setattr(exact_normal, "_LARGEST_BUFFER", 1 << 14)
    asked: list[int] = []
    rng = np.random.default_rng(1)

    def source(count: int) -> bytes:
        asked.append(count)
        return rng.bytes(count)

    values = exact_normal.draw(300_000, source) / STEPS
    assert len(asked) > 500
    assert_normal(values)


def test_the_operating_system_gives_new_draws_every_time() -> None:
    one, two = exact_normal.draw(10_000), exact_normal.draw(10_000)
    assert np.isin(one, two).sum() < 3
    for values in (one / STEPS, two / STEPS):
        assert abs(values.mean()) < 6 / 100
        assert abs(values.var() - 1) < 6 * math.sqrt(2) / 100


@pytest.mark.parametrize("count", [0, 1, 2, 7])
def test_as_many_as_asked_for(count: int) -> None:
    assert exact_normal.draw(count).shape == (count,)


@pytest.mark.parametrize(
    "source",
    [lambda n: bytes(n), lambda n: b"\xff" * n, lambda n: b"\x01" * n],
    ids=["zeros", "255", "ones"],
)
def test_a_broken_source_ends_in_an_error(source: Callable[[int], bytes]) -> None:
    with pytest.raises(RuntimeError, match="the generator of this system is broken"):
        exact_normal.draw(1000, source)


def test_chances_of_one_in_are_exact() -> None:
    """Over all 256 values of a byte, those that decide say yes exactly once in `count`."""
    for count in range(1, 129):
        answers = []
        for value in range(256):
            # The zero after it decides where the value does not, and is told by what was used.
            state = np.zeros(3, np.int64)
            answer = exact_normal._one_in(count, np.array([value, 0], np.uint8), state)
            if state[0] == 1:
                answers.append(answer)
        assert len(answers) == 256 - 256 % count
        assert sum(answers) * count == len(answers)


def test_a_fraction_is_compared_byte_by_byte_and_kept() -> None:
    x, state = np.zeros(16, np.uint8), np.zeros(3, np.int64)
    # The first byte of x is drawn as 7 and ties with 7; the second as 9, which 8 is below.
    source = np.array([7, 7, 9, 8, 7, 9, 200, 199], np.uint8)
    assert exact_normal._below(x, source, state)
    assert (state[0], state[1], list(x[:2])) == (4, 2, [7, 9])
    # The next number ties twice with what x is known to be; then a third byte of x is drawn.
    assert exact_normal._below(x, source, state)
    assert (state[1], list(x[:3])) == (3, [7, 9, 200])


@pytest.mark.parametrize(
    ("function", "chance"),
    [
        (exact_normal._exp_half, math.exp(-0.5)),
        (exact_normal._exp_fraction, math.exp(-0.75)),
        (exact_normal._exp_half_square, math.exp(-(0.75**2) / 2)),
    ],
)
def test_exponential_chances(function: Callable[..., bool], chance: float) -> None:
    source, state = np.frombuffer(np.random.default_rng(2).bytes(1 << 20), np.uint8), np.zeros(3, np.int64)
    x = np.zeros(16, np.uint8)
    x[0] = 192
    given = () if function is exact_normal._exp_half else (x,)
    yes, count = 0, 20_000
    for _ in range(count):
        state[1] = 16
        yes += function(*given, source, state)
    assert state[0] < len(source)
    assert stats.binomtest(yes, count, chance).pvalue > 1e-4


def test_whole_parts_have_the_chances_of_their_squares() -> None:
    source, state = np.frombuffer(np.random.default_rng(2).bytes(1 << 20), np.uint8), np.zeros(3, np.int64)
    found = np.bincount([exact_normal._whole_part(source, state) for _ in range(20_000)], minlength=5)
    weights = np.exp(-(np.arange(40.0) ** 2) / 2)
    expected = 20_000 * weights / weights.sum()
    tail = [found[3:].sum(), expected[3:].sum()]
    assert stats.chisquare([*found[:3], tail[0]], [*expected[:3], tail[1]]).pvalue > 1e-4
