from __future__ import annotations

import numpy as np
import pytest

from hushgraph.sampling.lists import BoundedLists


def lists(indices: list[int]) -> BoundedLists:
    return BoundedLists(indptr=np.array([0, 2, 2, 3]), indices=np.array(indices, dtype=np.int32))


def test_counts_and_reads() -> None:
    some = lists([1, 2, 1])
    assert (some.num_nodes, some.num_kept) == (3, 3)
    assert some.reads_of(0).tolist() == [1, 2]
    assert some.reads_of(1).tolist() == []
    assert some.reads_count().tolist() == [2, 0, 1]
    assert some.readers_count().tolist() == [0, 2, 1]


def test_equality_is_by_content() -> None:
    assert lists([1, 2, 1]) == lists([1, 2, 1])
    assert lists([1, 2, 1]) != lists([1, 2, 0])
    assert lists([1, 2, 1]) != "lists"
    with pytest.raises(TypeError):
        hash(lists([1, 2, 1]))
