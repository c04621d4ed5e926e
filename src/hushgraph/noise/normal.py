"""Normal numbers rounded down to a grid, exactly, from random words and one small table.

|Z| is made of a cell j and a place t within it: |Z| = (j + t) / 64. The cell is drawn with probability in
proportion to exp(-(j / 64)^2 / 2), t uniformly, and both are kept with probability exp(-y),
y = (j t + t^2 / 2) / 4096. What is kept has density in proportion to exp(-Z^2 / 2).

Nearly every draw takes one word: 14 bits find the cell in a table, 15 accept, 34 are t, one is the sign.
Where these do not decide, further bits are drawn until they do. docs/secure-noise.md has the proof.

The words come from ChaCha20 (RFC 8439), as the package `cryptography` computes it.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from decimal import Context, Decimal
from functools import cache
from typing import NamedTuple

import numba
import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20

# A draw is a multiple of 2^-40 standard deviations.
GRID_BITS = 40
CELL_BITS = 6
# 16 standard deviations: what lies beyond has probability below 2^-188.
CELLS = 16 << CELL_BITS
# Digits of the cumulative probabilities: 192 bits, three words.
CUT_WORDS = 3
_GUIDE_BITS, _PLACE_BITS = 14, GRID_BITS - CELL_BITS
# Bits of the table while it is computed, and the digits of what it is computed from.
_TABLE_BITS = 320
_DECIMALS = Context(prec=120)
# What float64 arithmetic below may be wrong by is under 2^-50.
SLACK = 2.0**-48
# Words that are left for a draw when it begins: 40 tries of at most 6, and a try fails once in 150.
_WORDS_FOR_ONE = 256
# Draws of one key: their words stay in the cache of a core.
PIECE = 1 << 15
KEY_BYTES = 32
# Blocks of 16 numbers of 32 bits whose words are interleaved.
_BLOCKS, _BLOCK = 16, 16
_GROUP_BYTES = 4 * _BLOCKS * _BLOCK
# Places of the state that the kernel shares with `draw`.
_DONE, _NEXT, _CELL, _PLACE, _LEVEL, _SIGN = 0, 1, 2, 3, 4, 5
_OPEN, _BROKEN = 1, 2


class Table(NamedTuple):
    """Cells by cumulative probability.

    Attributes:
        cuts: uint64 [CELLS, 3]: probability of all cells before this one, the first 192 bits after the point.
        guide: int16 [2^14]: the cell of all numbers that begin with these 14 bits, or -1.
    """

    cuts: npt.NDArray[np.uint64]
    guide: npt.NDArray[np.int16]


@cache
def table() -> Table:
    """The table, computed with integers that bound it from both sides."""
    digits = _cumulative_digits()
    mask = (1 << 64) - 1
    cuts = np.array([[value >> shift & mask for shift in (128, 64, 0)] for value in digits], np.uint64)
    guide = np.full(1 << _GUIDE_BITS, -1, np.int16)
    # Digits of numbers that begin with g lie in [g, g + 1) << 178.
    unit = 64 * CUT_WORDS - _GUIDE_BITS
    firsts = [value >> unit for value in digits] + [1 << _GUIDE_BITS]
    for cell in range(CELLS):
        begin = firsts[cell] + (digits[cell] != firsts[cell] << unit)
        guide[begin : firsts[cell + 1]] = cell
    return Table(cuts, guide)


def _cumulative_digits() -> list[int]:
    """floor(2^192 F_j) for every cell j, F_j the probability of the cells before it."""
    lower, upper = zip(*(_bound_exp(cell * cell, 2 * CELL_BITS + 1) for cell in range(CELLS)), strict=True)
    below, above, digits = 0, 0, []
    total_below, total_above = sum(lower), sum(upper)
    for low, high in zip(lower, upper, strict=True):
        least = (below << 64 * CUT_WORDS) // total_above
        most = (above << 64 * CUT_WORDS) // total_below
        if least != most:
            raise ArithmeticError("the table needs more bits to be computed with")
        digits.append(least)
        below, above = below + low, above + high
    return digits


def _bound_exp(numerator: int, bits: int) -> tuple[int, int]:
    """Bounds of 2^320 exp(-y) from below and from above, y = numerator / 2^bits at most 128."""
    # Python rounds quotients and exp of decimal numbers correctly, to so many digits that both together
    # move this by far less than 1.
    power = _DECIMALS.exp(_DECIMALS.divide(Decimal(-numerator), Decimal(1 << bits)))
    nearest = int(_DECIMALS.multiply(power, Decimal(1 << _TABLE_BITS)))
    return nearest - 1, nearest + 2


@numba.njit(cache=True, nogil=True)
def _before(cuts, cell, u0, u1, u2):  # type: ignore[no-untyped-def]
    """-1 where the digits u are below those of the cell, 0 where they agree, 1 above."""
    if u0 != cuts[cell, 0]:
        return -1 if u0 < cuts[cell, 0] else 1
    if u1 != cuts[cell, 1]:
        return -1 if u1 < cuts[cell, 1] else 1
    if u2 != cuts[cell, 2]:
        return -1 if u2 < cuts[cell, 2] else 1
    return 0


@numba.njit(cache=True, nogil=True)
def _find_cell(word, words, state, cuts):  # type: ignore[no-untyped-def]
    """The cell of a number that begins with the first 14 bits of `word`; -1 where 192 bits do not decide."""
    at = state[_NEXT]
    u0 = (word >> np.uint64(50) << np.uint64(50)) | (words[at] >> np.uint64(14))
    u1, u2 = words[at + 1], words[at + 2]
    state[_NEXT] += 3
    low, high = 0, CELLS
    # The last cell whose cut is not above u.
    while high - low > 1:
        middle = (low + high) >> 1
        order = _before(cuts, middle, u0, u1, u2)
        if order == 0:
            return -1
        if order < 0:
            high = middle
        else:
            low = middle
    return low


@numba.njit(cache=True, nogil=True)
def _is_kept(cell, place, level, slack):  # type: ignore[no-untyped-def]
    """1 where a number that begins with `level` is below exp(-y), 0 where above, -1 where too near.

    `place` and `level` are the first 64 bits of t and of the number.
    """
    t = np.float64(place) * 2.0**-64
    y = (np.float64(cell) * t + 0.5 * t * t) * 2.0**-12
    power = 1.0
    for number in range(16, 0, -1):
        power = 1.0 - y / number * power
    value = np.float64(level) * 2.0**-64
    if value + slack < power:
        return 1
    if value - slack > power:
        return 0
    return -1


@numba.njit(cache=True, nogil=True)
def _fill(out, words, state, cuts, guide, slack):  # type: ignore[no-untyped-def]
    """Draw while words last; _OPEN where one draw waits for a decision, _BROKEN where words repeat.

    Whether another draw is begun depends on the words behind it alone, so it chooses nothing about the draw.
    """
    done, last = state[_DONE], len(words) - _WORDS_FOR_ONE
    state[_DONE] = len(out)
    while done < len(out):
        if state[_NEXT] > last:
            state[_DONE] = done
            break
        fails = 0
        while True:
            word = words[state[_NEXT]]
            state[_NEXT] += 1
            cell = np.int64(guide[np.int64(word >> np.uint64(50))])
            if cell < 0:
                cell = _find_cell(word, words, state, cuts)
            level = np.int64(word >> np.uint64(35)) & 0x7FFF
            place = np.int64(word) & 0x3FFFFFFFF
            sign = -(np.int64(word >> np.uint64(34)) & 1)
            # exp(-y) >= 1 - y, and y is largest at the end of the cell.
            if level < 32764 - 8 * cell and cell >= 0:
                break
            if cell < 0 or fails == 40:
                return _BROKEN
            at = state[_NEXT]
            state[_NEXT] += 2
            long_level = (np.uint64(level) << np.uint64(49)) | (words[at] >> np.uint64(15))
            long_place = (np.uint64(place) << np.uint64(30)) | (words[at + 1] >> np.uint64(34))
            kept = _is_kept(cell, long_place, long_level, slack)
            if kept < 0:
                state[_DONE], state[_CELL], state[_SIGN] = done, cell, sign
                state[_PLACE], state[_LEVEL] = np.int64(long_place), np.int64(long_level)
                return _OPEN
            if kept:
                break
            fails += 1
        # Rounded down, a number between -1 and 0 is -1: all bits are turned over.
        out[done] = ((cell << _PLACE_BITS) | place) ^ sign
        done += 1
    return 0


def is_below_exp(cell: int, place: int, level: int, bits: int) -> bool | None:
    """Whether a number is below exp(-y) if it and t begin with these `bits` bits; None where both can be."""

    def exponent(t: int) -> int:
        # y times 2^(2 bits + 13).
        return (2 * cell * t << bits) + t * t

    scale = 2 * bits + 2 * CELL_BITS + 1
    least, most = _bound_exp(exponent(place + 1), scale)[0], _bound_exp(exponent(place), scale)[1]
    if (level + 1) << (_TABLE_BITS - bits) <= least:
        return True
    if level << (_TABLE_BITS - bits) >= most:
        return False
    return None


def _decide(state: npt.NDArray[np.int64], words: npt.NDArray[np.uint64]) -> bool:
    """The open draw of `state`, with 192 more bits of both numbers."""
    place, level = (int(state[at]) % 2**64 for at in (_PLACE, _LEVEL))
    for word in words[:3]:
        place = place << 64 | int(word)
    for word in words[3:6]:
        level = level << 64 | int(word)
    kept = is_below_exp(int(state[_CELL]), place, level, 256)
    if kept is None:
        raise RuntimeError(_REPEATS)
    return kept


_REPEATS = "random words repeat themselves; the generator of this system is broken"


def _count_words(draws: int) -> int:
    """Words that nearly always suffice."""
    return draws * 17 // 16 + 2 * _WORDS_FOR_ONE


class WordStream:
    """The random words of a key, each given out once: ChaCha20 with nonce 0, from block 0 on.

    Within a group of 16 blocks they are ordered by their place in the block, then by block. Seeded runs
    depend on that order.

    Args:
        key: 32 random bytes, used nowhere else.
    """

    def __init__(self, key: bytes) -> None:
        self._cipher = Cipher(ChaCha20(key, bytes(16)), mode=None).encryptor()

    def take(self, count: int) -> npt.NDArray[np.uint64]:
        """The next words, at least `count` of them: those of whole groups."""
        groups = -(-8 * count // _GROUP_BYTES)
        numbers = np.frombuffer(self._cipher.update(bytes(groups * _GROUP_BYTES)), np.uint32)
        return numbers.reshape(groups, _BLOCKS, _BLOCK).transpose(0, 2, 1).reshape(-1).view(np.uint64)


def fill_piece(out: npt.NDArray[np.int64], key: bytes, *, slack: float = SLACK) -> None:
    """Fill `out` with floor(2^40 z) for independent standard normal numbers z, from the stream of `key`.

    Args:
        out: any length; short ones serve the cache of a core better.
        key: 32 random bytes, used nowhere else.
        slack: draws this close to a decision are decided with integers.

    Guarantees:
        If the words of the stream are uniform and independent, the total variation distance to exact draws is
        below 2^-180 a draw.
    """
    state, (cuts, guide), stream = np.zeros(6, np.int64), table(), WordStream(key)
    while state[_DONE] < len(out):
        words = stream.take(_count_words(len(out) - int(state[_DONE])))
        state[_NEXT] = 0
        while (code := _fill(out, words, state, cuts, guide, slack)) == _OPEN:
            at = int(state[_NEXT])
            state[_NEXT] += 6
            if _decide(state, words[at : at + 6]):
                place = state[_PLACE] >> 30 & 0x3FFFFFFFF
                out[state[_DONE]] = (state[_CELL] << _PLACE_BITS | place) ^ state[_SIGN]
                state[_DONE] += 1
        if code == _BROKEN:
            raise RuntimeError(_REPEATS)


def fill(out: npt.NDArray[np.int64], keys: Sequence[bytes], first: int, last: int) -> None:
    """Fill pieces of rows as `fill_piece` does, holding the interpreter's lock for a small part of the time.

    Args:
        out: [rows, size]; each row is cut into pieces of `PIECE`.
        keys: one of 32 random bytes for every piece, row by row.
        first, last: which pieces are filled.
    """
    pieces = count_pieces(out.shape[1])
    for number in range(first, last):
        row, begin = number // pieces, number % pieces * PIECE
        fill_piece(out[row, begin : begin + PIECE], keys[number])


def draw(count: int, keys: Iterator[bytes] | None = None) -> npt.NDArray[np.int64]:
    """int64 [count]: floor(2^40 z) for independent standard normal z; a new key for every `PIECE` of them.

    Args:
        count: how many.
        keys: 32 random bytes each; the operating system's unless given.
    """
    keys = fresh_keys() if keys is None else keys
    out, pieces = np.empty(count, np.int64), count_pieces(count)
    fill(out[None], [next(keys) for _ in range(pieces)], 0, pieces)
    return out


def count_pieces(count: int) -> int:
    """How many keys `count` draws take."""
    return -(-count // PIECE)


def fresh_keys() -> Iterator[bytes]:
    """Keys from the operating system, each used once and not kept."""
    while True:
        yield os.urandom(KEY_BYTES)


def seeded_keys(seed: int | str) -> Iterator[bytes]:
    """The keys of a reproducible run: SHAKE-256 of the seed and a counter."""
    number = 0
    while True:
        yield hashlib.shake_256(f"hushgraph noise {seed} {number}".encode()).digest(KEY_BYTES)
        number += 1
