"""Normal draws rounded down to a grid, exactly, from random bytes: no floating-point number is involved.

A normal number is made of a sign, a whole part k and a fraction x: k is drawn with chances in proportion to
exp(-k^2 / 2), x uniformly, and the two are kept with probability exp(-k x - x^2 / 2). All chances come from
comparing random bytes (von Neumann 1951; Karney 2016). A byte of x is drawn when it is first asked for,
so x has as many digits as any comparison needs.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import numba
import numpy as np
import numpy.typing as npt

# A draw is a multiple of 2^-40 standard deviations.
GRID_BITS = 40
_GRID_BYTES = GRID_BITS // 8
# All bytes of a fraction agree with those of another draw once in 2^128.
_FRACTION_BYTES = 16
# A draw takes 22 bytes on average; that it takes as many as are always left for it is beyond possibility.
_BYTES_FOR_ONE = 1 << 13
_LARGEST_BUFFER = 1 << 20
# Places of the state that the kernels share.
_NEXT, _KNOWN, _TIED = 0, 1, 2


@numba.njit(cache=True, nogil=True, inline="always")
def _byte(source, state):  # type: ignore[no-untyped-def]
    """The next byte. Past the end it begins anew, and `_fill` trusts nothing that took so many."""
    value = source[state[_NEXT] & (len(source) - 1)]
    state[_NEXT] += 1
    return value


@numba.njit(cache=True, nogil=True)
def _one_in(count, source, state):  # type: ignore[no-untyped-def]
    """True with probability 1 / count, for a count up to 128."""
    limit = 256 - 256 % count
    while state[_NEXT] <= len(source):
        value = _byte(source, state)
        if value < limit:
            return value % count == 0
    return False


@numba.njit(cache=True, nogil=True)
def _below(x, source, state):  # type: ignore[no-untyped-def]
    """True with probability x: a uniform number is below the fraction."""
    for place in range(_FRACTION_BYTES):
        if place >= state[_KNOWN]:
            x[place] = _byte(source, state)
            state[_KNOWN] += 1
        value = _byte(source, state)
        if value != x[place]:
            return value < x[place]
    state[_TIED] = 1
    return False


# The next three: a chain goes on with probabilities c, c / 2, c / 3 and so on, and its length is even with
# probability exp(-c).


@numba.njit(cache=True, nogil=True)
def _exp_half(source, state):  # type: ignore[no-untyped-def]
    """True with probability exp(-1 / 2)."""
    length = 0
    while length < 63 and _one_in(2 * (length + 1), source, state):
        length += 1
    return length % 2 == 0


@numba.njit(cache=True, nogil=True)
def _exp_fraction(x, source, state):  # type: ignore[no-untyped-def]
    """True with probability exp(-x)."""
    length = 0
    while length < 127 and _one_in(length + 1, source, state) and _below(x, source, state):
        length += 1
    return length % 2 == 0


@numba.njit(cache=True, nogil=True)
def _exp_half_square(x, source, state):  # type: ignore[no-untyped-def]
    """True with probability exp(-x^2 / 2)."""
    length = 0
    while (
        length < 63
        and _one_in(2 * (length + 1), source, state)
        and _below(x, source, state)
        and _below(x, source, state)
    ):
        length += 1
    return length % 2 == 0


@numba.njit(cache=True, nogil=True)
def _whole_part(source, state):  # type: ignore[no-untyped-def]
    """k with probability in proportion to exp(-k^2 / 2)."""
    k = 0
    while state[_NEXT] <= len(source):
        k = 0
        while _exp_half(source, state) and state[_NEXT] <= len(source):
            k += 1
        tries = k * (k - 1)
        while tries and _exp_half(source, state) and state[_NEXT] <= len(source):
            tries -= 1
        if not tries:
            break
    return k


@numba.njit(cache=True, nogil=True)
def _is_kept(k, x, source, state):  # type: ignore[no-untyped-def]
    """True with probability exp(-k x - x^2 / 2)."""
    if not _exp_half_square(x, source, state):
        return False
    while k and _exp_fraction(x, source, state):
        k -= 1
    return not k


@numba.njit(cache=True, nogil=True)
def _size(x, source, state):  # type: ignore[no-untyped-def]
    """|z| of a standard normal z, in steps of the grid, rounded down."""
    k = 0
    while state[_NEXT] <= len(source):
        # The fraction of a try that is not kept goes with it.
        k, state[_KNOWN] = _whole_part(source, state), 0
        if _is_kept(k, x, source, state):
            break
    size = np.int64(k)
    for place in range(_GRID_BYTES):
        if place >= state[_KNOWN]:
            x[place] = _byte(source, state)
        size = (size << 8) | np.int64(x[place])
    return size


@numba.njit(cache=True, nogil=True)
def _fill(out, begin, source):  # type: ignore[no-untyped-def]
    """Draws from `begin` on, while bytes last; where it stopped, or -1 where a draw cannot be trusted.

    Whether another draw is begun depends on the bytes behind it alone, so it chooses nothing about the draw.
    The length of `source` is a power of two.
    """
    state, x = np.zeros(3, np.int64), np.zeros(_FRACTION_BYTES, np.uint8)
    while begin < len(out) and state[_NEXT] <= len(source) - _BYTES_FOR_ONE:
        size = _size(x, source, state)
        # Rounded down, a number between -1 and 0 is -1.
        out[begin] = -1 - size if _byte(source, state) & 1 else size
        begin += 1
    return -1 if state[_TIED] or state[_NEXT] > len(source) else begin


def draw(count: int, random_bytes: Callable[[int], bytes] = os.urandom) -> npt.NDArray[np.int64]:
    """int64 [count]: floor(2^40 z) for independent standard normal numbers z.

    Args:
        count: how many.
        random_bytes: gives so many independent uniform bytes; the operating system's generator.

    Guarantees:
        The distribution is exactly that of normal numbers rounded down, if the bytes are uniform and
        independent. What could make it another one, of probability below 2^-120 a draw, raises instead.
    """
    out = np.empty(count, np.int64)
    done = 0
    while done < count:
        wanted = 32 * (count - done) + 2 * _BYTES_FOR_ONE
        length = min(1 << wanted.bit_length(), _LARGEST_BUFFER)
        done = _fill(out, done, np.frombuffer(random_bytes(length), np.uint8))
        if done < 0:
            raise RuntimeError("random bytes repeat themselves; the generator of this system is broken")
    return out
