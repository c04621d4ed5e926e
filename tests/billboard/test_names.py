"""The index over names finds what a search of all names finds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hushgraph.billboard.names import NameIndex, unpack_texts

RNG = np.random.default_rng(0)
TEXTS = np.array([f"p{n}" for n in RNG.permutation(400)])


def search(names: Any, wanted: Any) -> list[int]:
    """The first place of every identifier, by its text."""
    texts = [str(name) for name in np.asarray(names).tolist()]
    return [texts.index(str(each)) if str(each) in texts else -1 for each in wanted]


@pytest.mark.parametrize(
    ("names", "wanted"),
    [
        (TEXTS, ["p7", "p400", "", "p", "p3", "p7", "p7, and longer than any of the names"]),
        (TEXTS, RNG.choice(TEXTS, 3000).tolist()),
        (np.array(["a", "b", "a"]), ["a", "b"]),
        (np.array(["1", "02", "x"]), [1, 2, 3]),
        (RNG.permutation(400) - 200, [-200, 199, 200, 5]),
        (RNG.permutation(400), ["7", "07", "+7", " 7", "7.0", "x", "1e2", "9" * 40, "-0"]),
        (np.array([3, 2**62]), np.array([3, 2**63], np.uint64)),
        (np.array(["", "ä", "日本", "😀"]), ["ä", "日本", "😀", "日", ""]),
        (np.array(["a", None, "b"], object), np.array(["b", None], object)),
    ],
)
def test_it_finds_what_a_search_finds(names: Any, wanted: Any) -> None:
    assert NameIndex(names, len(names)).find(wanted).tolist() == search(names, wanted)


def test_numbers_are_their_own_names_where_there_are_none() -> None:
    index = NameIndex(None, 3)
    assert index.find([0, 2, 3, -1]).tolist() == [0, 2, -1, -1]
    assert index.find(["0"]).tolist() == [-1]
    assert index.find([]).tolist() == []
    assert NameIndex(TEXTS, 400).find([]).tolist() == []


def test_names_with_one_key_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    def make_few_keys(names: Any) -> Any:
        return np.array([len(str(name)) for name in names], np.uint64)

    monkeypatch.setattr("hushgraph.billboard.names._make_keys", make_few_keys)
    wanted = ["p7", "p399", "p400", "", *TEXTS.tolist()]
    assert NameIndex(TEXTS, 400).find(wanted).tolist() == search(TEXTS, wanted)


@pytest.mark.parametrize("names", [["a", "", "bcd"], ["ä", "b", "日本"], [""], ["\ud800"], ["", ""]])
def test_packed_texts_are_unpacked(names: list[str]) -> None:
    encoded = [name.encode("utf-8", "surrogatepass") for name in names]
    ends = np.cumsum([len(each) for each in encoded])
    assert unpack_texts(np.frombuffer(b"".join(encoded), np.uint8), ends).tolist() == names


def test_shapes_are_kept() -> None:
    assert NameIndex(np.array([5, 6]), 2).find([[6, 5], [7, 6]]).tolist() == [[1, 0], [-1, 1]]
