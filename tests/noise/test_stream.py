"""The stream of random words is ChaCha20, and no part of it is used twice."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from hushgraph.noise.normal import blocks_of, fresh_keys, random_words, seeded_keys


def in_stream_order(words: np.ndarray) -> bytes:
    """Undo the order in which sixteen blocks are computed side by side."""
    return words.view(np.uint32).reshape(-1, 16, 16).transpose(0, 2, 1).tobytes()


def chacha20_block(key: bytes, block: int) -> bytes:
    """RFC 8439, section 2.3, word by word, with a 64-bit counter and nonce 0."""

    def quarter(a: int, b: int, c: int, d: int) -> None:
        for target, other, moved, bits in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
            x[target] = (x[target] + x[other]) % 2**32
            x[moved] ^= x[target]
            x[moved] = (x[moved] << bits | x[moved] >> 32 - bits) % 2**32

    head = np.frombuffer(b"expand 32-byte k" + key + block.to_bytes(8, "little") + bytes(8), np.uint32)
    x = [int(value) for value in head]
    for _ in range(10):
        for column in range(4):
            quarter(column, column + 4, column + 8, column + 12)
        for column in range(4):
            quarter(column, (column + 1) % 4 + 4, (column + 2) % 4 + 8, (column + 3) % 4 + 12)
    total = [(one + int(two)) % 2**32 for one, two in zip(x, head, strict=True)]
    return np.array(total, np.uint32).tobytes()


def test_the_first_block_of_the_zero_key_is_the_published_one() -> None:
    """RFC 8439, appendix A.1, test vectors 1 and 2."""
    found = in_stream_order(random_words(bytes(32), 0, 16)).hex()
    assert found.startswith("76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7")
    assert found[128:].startswith("9f07e7be5551387a98ba977c732d080dcb0f29a048e3656912c6533e32ee7aed")


@pytest.mark.parametrize("first", [0, 7, 2**32 - 5, 2**40])
def test_words_are_those_of_the_slow_cipher(first: int) -> None:
    key = np.random.default_rng(0).bytes(32)
    words = random_words(key, first, 200)
    assert len(words) >= 200
    expected = b"".join(chacha20_block(key, first + i) for i in range(blocks_of(words)))
    assert in_stream_order(words) == expected


def test_parts_of_a_stream_follow_each_other() -> None:
    key = bytes(range(32))
    whole, head = random_words(key, 0, 1000), random_words(key, 0, 300)
    tail = random_words(key, blocks_of(head), 600)
    np.testing.assert_array_equal(np.concatenate([head, tail])[: len(whole)], whole[: len(head) + len(tail)])


def test_keys_are_fresh_unless_a_seed_is_given() -> None:
    keys = [*itertools.islice(fresh_keys(), 100), *itertools.islice(fresh_keys(), 100)]
    assert len(set(keys)) == 200
    one, again, other = (list(itertools.islice(seeded_keys(seed), 50)) for seed in (1, 1, 2))
    assert one == again
    assert len({*one, *other}) == 100
    assert {len(key) for key in keys + one} == {32}
