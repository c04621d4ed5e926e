"""Random words from ChaCha20 (RFC 8439), sixteen blocks at a time."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator

import numba
import numpy as np
import numpy.typing as npt

KEY_BYTES = 32
# Blocks that are computed side by side; the compiler makes vectors of them.
_LANES = 16
_BLOCK = 16
_GROUP = _LANES * _BLOCK
_CONSTANTS = np.frombuffer(b"expand 32-byte k", np.uint32)


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


def random_words(key: bytes, first_block: int, count: int) -> npt.NDArray[np.uint64]:
    """At least `count` words of the stream of `key`, from block `first_block` on.

    The words are those of ChaCha20 with nonce 0 and a 64-bit block counter. Within a group of 16 blocks they
    are ordered by their place in the block, then by block.
    """
    groups = -(-2 * count // _GROUP)
    out = np.empty(groups * _GROUP, np.uint32)
    _fill(np.frombuffer(key, np.uint32), np.uint64(first_block), out)
    return out.view(np.uint64)


def blocks_of(words: npt.NDArray[np.uint64]) -> int:
    """How many blocks of the stream `words` are: the next ones begin there."""
    return 2 * len(words) // _BLOCK


@numba.njit(cache=True, nogil=True, inline="always")
def _rotate(x, bits):  # type: ignore[no-untyped-def]
    return np.uint32((x << np.uint32(bits)) | (np.uint32(x) >> np.uint32(32 - bits)))


@numba.njit(cache=True, nogil=True, inline="always")
def _quarter_round(a, b, c, d):  # type: ignore[no-untyped-def]
    a = np.uint32(a + b)
    d = _rotate(np.uint32(d ^ a), 16)
    c = np.uint32(c + d)
    b = _rotate(np.uint32(b ^ c), 12)
    a = np.uint32(a + b)
    d = _rotate(np.uint32(d ^ a), 8)
    c = np.uint32(c + d)
    b = _rotate(np.uint32(b ^ c), 7)
    return a, b, c, d


@numba.njit(cache=True, nogil=True)
def _double_round(x):  # type: ignore[no-untyped-def]
    """Columns, then diagonals, of every lane."""
    for i in range(_LANES):
        x0, x1, x2, x3 = x[i], x[16 + i], x[32 + i], x[48 + i]
        x4, x5, x6, x7 = x[64 + i], x[80 + i], x[96 + i], x[112 + i]
        x8, x9, x10, x11 = x[128 + i], x[144 + i], x[160 + i], x[176 + i]
        x12, x13, x14, x15 = x[192 + i], x[208 + i], x[224 + i], x[240 + i]
        x0, x4, x8, x12 = _quarter_round(x0, x4, x8, x12)
        x1, x5, x9, x13 = _quarter_round(x1, x5, x9, x13)
        x2, x6, x10, x14 = _quarter_round(x2, x6, x10, x14)
        x3, x7, x11, x15 = _quarter_round(x3, x7, x11, x15)
        x0, x5, x10, x15 = _quarter_round(x0, x5, x10, x15)
        x1, x6, x11, x12 = _quarter_round(x1, x6, x11, x12)
        x2, x7, x8, x13 = _quarter_round(x2, x7, x8, x13)
        x3, x4, x9, x14 = _quarter_round(x3, x4, x9, x14)
        x[i], x[16 + i], x[32 + i], x[48 + i] = x0, x1, x2, x3
        x[64 + i], x[80 + i], x[96 + i], x[112 + i] = x4, x5, x6, x7
        x[128 + i], x[144 + i], x[160 + i], x[176 + i] = x8, x9, x10, x11
        x[192 + i], x[208 + i], x[224 + i], x[240 + i] = x12, x13, x14, x15


@numba.njit(cache=True, nogil=True)
def _fill(key, first_block, out):  # type: ignore[no-untyped-def]
    """The key stream, group after group; word w of lane i stands at 16 w + i of its group."""
    first, x = np.zeros(_GROUP, np.uint32), np.empty(_GROUP, np.uint32)
    for i in range(_LANES):
        for w in range(4):
            first[16 * w + i] = _CONSTANTS[w]
        for w in range(8):
            first[16 * (4 + w) + i] = key[w]
    for begin in range(0, len(out), _GROUP):
        for i in range(_LANES):
            block = first_block + np.uint64(begin // _BLOCK + i)
            first[16 * 12 + i] = np.uint32(block & np.uint64(0xFFFFFFFF))
            first[16 * 13 + i] = np.uint32(block >> np.uint64(32))
        x[:] = first
        for _ in range(10):
            _double_round(x)
        for k in range(_GROUP):
            out[begin + k] = x[k] + first[k]
