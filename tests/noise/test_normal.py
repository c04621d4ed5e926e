"""Exact normal draws: the table against mpmath, decisions against exact fractions, counts against chances.

And the words below them: ChaCha20, of which no part is used twice.
"""

from __future__ import annotations

import itertools
import math
from itertools import pairwise

import mpmath
import numpy as np
import pytest
from scipy import stats

import exact_normal
from hushgraph.noise import normal
from hushgraph.noise.normal import WordStream, fresh_keys, seeded_keys

COUNT = 1_000_000
STEPS = 2**normal.GRID_BITS


def exact_exponent(cell: int, place: int, bits: int) -> mpmath.mpf:
    t = mpmath.mpf(place) / 2**bits
    return (cell * t + t * t / 2) / 4096


@pytest.fixture(scope="module")
def draws() -> np.ndarray:
    """From a seed, so that good draws never fail by chance."""
    return normal.draw(COUNT, seeded_keys(0))


def assert_normal(values: np.ndarray) -> None:
    """Moments and distribution function are those of a standard normal."""
    count = len(values)
    assert abs(values.mean()) < 4 / math.sqrt(count)
    assert 1e-4 < stats.chi2.cdf(np.square(values).sum(), count) < 1 - 1e-4
    assert abs((values**3).mean()) < 4 * math.sqrt(15 / count)
    assert abs((values**4).mean() - 3) < 4 * math.sqrt(96 / count)
    assert stats.kstest(values, "norm").pvalue > 1e-4


def assert_counts(values: np.ndarray, width: float) -> None:
    """Counts in cells of one width are as expected, the last ones joined to 20 and more."""
    end = 0.5
    while len(values) * stats.norm.sf(end + width) > 20:
        end += width
    edges = np.concatenate([[-np.inf], np.arange(-end, end + width / 2, width), [np.inf]])
    expected = len(values) * np.diff(stats.norm.cdf(edges))
    assert stats.chisquare(np.histogram(values, edges)[0], expected).pvalue > 1e-4


def test_the_table_is_what_mpmath_says() -> None:
    cuts = normal.table().cuts
    with mpmath.workprec(400):
        weights = [mpmath.exp(-((mpmath.mpf(j) / 64) ** 2) / 2) for j in range(normal.CELLS)]
        total, below = mpmath.fsum(weights), mpmath.mpf(0)
        for j, weight in enumerate(weights):
            digits = int(mpmath.floor(below / total * 2**192))
            assert [digits >> 128, digits >> 64 & 2**64 - 1, digits & 2**64 - 1] == cuts[j].tolist()
            below += weight


def test_the_guide_names_a_cell_only_where_it_is_certain() -> None:
    cuts, guide = normal.table()
    digits = [int(a) << 128 | int(b) << 64 | int(c) for a, b, c in cuts] + [1 << 192]
    for cell, (begin, end) in enumerate(pairwise(digits)):
        assert begin < end
        named = np.flatnonzero(guide == cell)
        # Every number with these first bits lies in the cell, and the next on either side reaches out of it.
        if len(named):
            assert begin <= int(named[0]) << 178
            assert int(named[-1]) + 1 << 178 <= end
            assert begin > int(named[0]) - 1 << 178
            assert end < int(named[-1]) + 2 << 178
    assert 200 < (guide < 0).sum() < 400


def test_cells_are_found_by_all_their_digits() -> None:
    cuts = normal.table().cuts
    for cell in (0, 1, 63, 500, 900, normal.CELLS - 1):
        cut = sum(int(value) << 64 * (2 - k) for k, value in enumerate(cuts[cell]))
        for digits, expected in ((cut, -1), (cut + 1, cell), (cut - 1, cell - 1)):
            if not 0 <= digits < 2**192 or (cell == 0 and digits <= cut):
                continue
            word = digits >> 178 << 50
            # The first word of the number has 14 bits of the word drawn before and 50 of the next.
            parts = (digits >> 128) % 2**50 << 14, digits >> 64 & 2**64 - 1, digits & 2**64 - 1
            state = np.zeros(6, np.int64)
            found = normal._find_cell(np.uint64(word), np.array(parts, np.uint64), state, cuts)
            assert (found, state[1]) == (expected, 3)


def test_decisions_in_floating_point_are_right_outside_the_slack() -> None:
    """Numbers as near to exp(-y) as the slack lets decide, on both sides, with a slack 4 times smaller."""
    rng = np.random.default_rng(0)
    for cell, place in zip(
        rng.integers(0, normal.CELLS, 3000), rng.integers(0, 2**64, 3000, np.uint64), strict=True
    ):
        with mpmath.workprec(200):
            level = mpmath.exp(-exact_exponent(int(cell), int(place), 64)) * 2**64
            apart = 2.0**64 * normal.SLACK / 2
            for sign, expected in ((-1, 1), (1, 0)):
                near = int(mpmath.floor(level + sign * apart))
                if 0 <= near < 2**64:
                    found = normal._is_kept(cell, place, np.uint64(near), normal.SLACK / 4)
                    assert found == expected


def test_decisions_with_integers_are_exact() -> None:
    rng = np.random.default_rng(1)
    with mpmath.workprec(600):
        for cell in rng.integers(0, normal.CELLS, 200).tolist():
            place = int.from_bytes(rng.bytes(32), "little")
            level = int(mpmath.floor(mpmath.exp(-exact_exponent(cell, place, 256)) * 2**256))
            assert normal.is_below_exp(cell, place, level, 256) is None
            # y changes by up to 2^-258 within what is known of t.
            assert normal.is_below_exp(cell, place, level - 2, 256) is True
            assert normal.is_below_exp(cell, place, level + 2, 256) is False


def test_quick_acceptance_is_below_the_exact_chance() -> None:
    """All numbers whose first 15 bits are accepted at once are below exp(-y) at the end of the cell."""
    with mpmath.workprec(100):
        for cell in range(normal.CELLS):
            assert mpmath.mpf(32764 - 8 * cell) / 2**15 <= mpmath.exp(-exact_exponent(cell, 1, 0))


def test_a_million_draws_are_normal(draws: np.ndarray) -> None:
    assert draws.dtype == np.int64
    assert_normal(draws / STEPS)
    # Wider than, as wide as and narrower than the cells of the table.
    for width in (0.25, 1 / 64, 1 / 200):
        assert_counts(draws / STEPS, width)


def test_the_checks_see_a_wrong_distribution(draws: np.ndarray) -> None:
    values = draws / STEPS
    for wrong in (1.01 * values, values + 0.01, np.clip(values, -3, 3), np.trunc(4 * values) / 4):
        with pytest.raises(AssertionError):
            assert_normal(wrong)
    # Uniform within cells instead of normal: seen at a width below theirs.
    rng = np.random.default_rng(0)
    coarse = (np.floor(16 * values) + rng.random(COUNT)) / 16
    with pytest.raises(AssertionError):
        assert_counts(coarse, 1 / 200)


def test_places_within_a_cell_follow_the_density() -> None:
    """Beyond one standard deviation t is denser at the beginning of a cell, by what acceptance takes away."""
    draws = normal.draw(5_000_000, seeded_keys(9))
    sizes = np.where(draws < 0, ~draws, draws)
    places = (sizes[sizes >= STEPS] & 2**34 - 1) / 2**34
    cells, edges = np.arange(64, normal.CELLS)[:, None], np.linspace(0, 1, 5)[None, :]
    chances = np.diff(stats.norm.cdf((cells + edges) / 64), axis=1).sum(0)
    found = np.histogram(places, 4, (0, 1))[0]
    assert stats.chisquare(found, len(places) * chances / chances.sum()).pvalue > 1e-4
    assert stats.chisquare(found).pvalue < 1e-4


def test_draws_agree_with_those_by_comparing_bytes(draws: np.ndarray) -> None:
    other = exact_normal.draw(100_000, np.random.default_rng(0).bytes)
    assert stats.ks_2samp(draws[:100_000], other).pvalue > 1e-4


def test_fine_digits_are_uniform_and_signs_even(draws: np.ndarray) -> None:
    for bit in range(20):
        assert stats.binomtest(int((draws >> bit & 1).sum()), COUNT).pvalue > 1e-5, bit
    assert stats.binomtest(int((draws < 0).sum()), COUNT).pvalue > 1e-4
    assert len(np.unique(draws)) == COUNT


def test_draws_do_not_depend_on_each_other(draws: np.ndarray) -> None:
    values = draws / STEPS
    for lag in (1, 2, 3, 16, normal.PIECE):
        for one in (values, values**2):
            assert abs(np.corrcoef(one[:-lag], one[lag:])[0, 1]) < 5 / math.sqrt(COUNT)


def test_draws_that_integers_decide_have_the_same_distribution() -> None:
    """With a large slack one draw in a hundred waits for a decision with integers."""
    out = np.empty(100_000, np.int64)
    normal.fill_piece(out, bytes(32), slack=0.05)
    assert_normal(out / STEPS)
    assert_counts(out / STEPS, 1 / 64)


def test_where_buffers_end_makes_no_difference() -> None:
    """A draw begun again because words ran out would be smaller: large ones take more words."""
    out = np.empty(60_000, np.int64)
    for piece, key in zip(np.split(out, 20_000), seeded_keys(5), strict=False):
        normal.fill_piece(piece, key)
    assert_normal(out / STEPS)


def test_where_words_do_not_last_new_ones_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(normal, "_count_words", lambda _: 2 * normal._WORDS_FOR_ONE)
    out = np.empty(5_000, np.int64)
    normal.fill_piece(out, bytes(32))
    assert len(np.unique(out)) == len(out)


def test_pieces_are_the_same_filled_together_or_one_by_one() -> None:
    size = 2 * normal.PIECE + 100
    keys = [key for key, _ in zip(seeded_keys(3), range(2 * normal.count_pieces(size)), strict=False)]
    together, apart = np.zeros((2, size), np.int64), np.zeros((2, size), np.int64)
    for first, last in ((0, 1), (1, 5)):
        normal.fill(together, keys, first, last)
    pieces = [row[at : at + normal.PIECE] for row in apart for at in range(0, size, normal.PIECE)]
    for piece, key in zip(pieces[:5], keys, strict=False):
        normal.fill_piece(piece, key)
    np.testing.assert_array_equal(together, apart)
    assert not together[1, 2 * normal.PIECE :].any()


def test_the_operating_system_gives_new_draws_every_time() -> None:
    one, two = normal.draw(10_000), normal.draw(10_000)
    assert np.isin(one, two).sum() < 3


def test_a_seed_gives_the_same_draws_whatever_the_count() -> None:
    long, short = normal.draw(2 * normal.PIECE + 5, seeded_keys(1)), normal.draw(normal.PIECE, seeded_keys(1))
    np.testing.assert_array_equal(long[: normal.PIECE], short)
    assert not np.array_equal(short, normal.draw(normal.PIECE, seeded_keys(2)))


@pytest.mark.parametrize("count", [0, 1, 2, 7])
def test_as_many_as_asked_for(count: int) -> None:
    assert normal.draw(count).shape == (count,)


def test_words_that_never_accept_end_in_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    # All ones: the last numbers of the table, and a level that is above every chance but one.
    monkeypatch.setattr(WordStream, "take", lambda self, count: np.full(count, 2**64 - 1, np.uint64))
    with pytest.raises(RuntimeError, match="the generator of this system is broken"):
        normal.fill_piece(np.empty(10, np.int64), bytes(32))


def test_a_tie_of_all_digits_ends_in_an_error() -> None:
    with mpmath.workprec(600):
        level = int(mpmath.floor(mpmath.exp(-exact_exponent(100, 2**255, 256)) * 2**256))
    state = np.zeros(6, np.int64)
    state[2], state[3] = 100, np.uint64(2**63).astype(np.int64)
    state[4] = np.uint64(level >> 192).astype(np.int64)
    words = [0, 0, 0, *(level >> shift & 2**64 - 1 for shift in (128, 64, 0))]
    with pytest.raises(RuntimeError, match="random words repeat themselves"):
        normal._decide(state, np.array(words, np.uint64))


def test_the_words_of_the_zero_key_are_the_published_ones() -> None:
    """RFC 8439, appendix A.1, test vectors 1 and 2: the first two of sixteen blocks that are interleaved."""
    words = WordStream(bytes(32)).take(16).view(np.uint32).reshape(16, 16)
    first, second = (words[:, block].tobytes().hex() for block in (0, 1))
    assert first == (
        "76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7"
        "da41597c5157488d7724e03fb8d84a376a43b8f41518a11cc387b669b2ee6586"
    )
    assert second == (
        "9f07e7be5551387a98ba977c732d080dcb0f29a048e3656912c6533e32ee7aed"
        "29b721769ce64e43d57133b074d839d531ed1f28510afb45ace10a1f4b794d6f"
    )


def test_parts_of_a_stream_follow_each_other() -> None:
    key = bytes(range(32))
    stream, whole = WordStream(key), WordStream(key).take(1000)
    parts = np.concatenate([stream.take(300), stream.take(600)])
    np.testing.assert_array_equal(parts, whole[: len(parts)])
    assert len(np.unique(whole)) == len(whole)


def test_keys_are_fresh_unless_a_seed_is_given() -> None:
    keys = [*itertools.islice(fresh_keys(), 100), *itertools.islice(fresh_keys(), 100)]
    assert len(set(keys)) == 200
    one, again, other = (list(itertools.islice(seeded_keys(seed), 50)) for seed in (1, 1, 2))
    assert one == again
    assert len({*one, *other}) == 100
    assert {len(key) for key in keys + one} == {32}
