from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest

from hushgraph.sampling import lists as lists_file
from hushgraph.sampling.lists import BoundedLists
from hushgraph.sampling.trees import grow


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


def test_large_lists_are_kept_in_files_that_leave_no_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert lists([1, 2, 1]).on_disk_if_large().indices.base is None
    monkeypatch.setattr(lists_file, "LARGEST_IN_MEMORY", 0)
    some = lists([1, 2, 1]).on_disk_if_large()
    assert isinstance(some.indices, np.memmap)
    assert some == lists([1, 2, 1])
    assert list(tmp_path.iterdir()) == []
    assert grow(some, [0, 2], 1).nodes.tolist() == grow(lists([1, 2, 1]), [0, 2], 1).nodes.tolist()
    none = BoundedLists(indptr=np.zeros(2, np.int64), indices=np.empty(0, np.int32))
    assert none.on_disk_if_large() is none
