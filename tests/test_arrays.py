"""Arrays in files: as others, without a name on disk, and refused where there is no room."""

from __future__ import annotations

import errno
import gc
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hushgraph import _arrays
from hushgraph.errors import WriteError
from hushgraph.graph import reads
from hushgraph.graph.checks import cut_edges


@pytest.fixture(autouse=True)
def _all_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_arrays, "_LEAST_MAPPED", 1)


def is_mapped(array: Any) -> bool:
    """Whether the numbers of an array are in a file."""
    while isinstance(array, np.ndarray) and not isinstance(array, np.memmap):
        array = array.base
    return array is not None


def test_arrays_are_in_memory_unless_asked_for(tmp_path: Path) -> None:
    assert not is_mapped(_arrays.empty(5, np.int64))
    with _arrays.keep_on_disk(tmp_path, memory=1) as disk:
        assert _arrays.find_disk() is disk
        made = [
            _arrays.empty((3, 2), np.float32),
            _arrays.zeros(4, np.int64),
            _arrays.full((2, 2), np.nan, np.float64),
            _arrays.full(3, "abc", "U3"),
            _arrays.take(np.arange(10).reshape(5, 2), np.array([4, 0])),
        ]
        assert all(map(is_mapped, made))
        # Objects have no place in a file.
        assert not is_mapped(_arrays.full(3, None, object))
        assert not list(tmp_path.iterdir())
    assert _arrays.find_disk() is None
    assert made[1].tolist() == [0] * 4
    assert np.isnan(made[2]).all()
    assert made[3].tolist() == ["abc"] * 3
    assert made[4].tolist() == [[8, 9], [0, 1]]
    # They stay when the context is over, and nothing is left on disk when they go.
    made[0][:] = 7
    assert made[0].sum() == 42
    made.clear()
    gc.collect()
    assert not list(tmp_path.iterdir())


def test_what_is_looked_up_is_in_memory_where_a_quarter_holds_it(tmp_path: Path) -> None:
    assert not is_mapped(_arrays.looked_up(5, np.int64))
    with _arrays.keep_on_disk(tmp_path, memory=4 * 8 * 10):
        assert not is_mapped(_arrays.looked_up((5, 2), np.int64))
        assert is_mapped(_arrays.looked_up(11, np.int64))


def test_small_arrays_are_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_arrays, "_LEAST_MAPPED", 100)
    with _arrays.keep_on_disk(tmp_path, memory=1):
        assert not is_mapped(_arrays.zeros(12, np.int64))
        assert is_mapped(_arrays.zeros(13, np.int64))
        assert _arrays.zeros(12, np.int64).tolist() == [0] * 12


def test_a_disk_without_room_is_refused_before_it_is_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that is mapped and has no room would end the process by a signal."""

    def refuse(*given: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    with (
        _arrays.keep_on_disk(tmp_path, memory=1),
        pytest.raises(WriteError, match=r"no room for 0\.0 GiB of work space \(No space left"),
    ):
        _arrays.empty(5, np.int64)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("symmetrize", [False, True])
@pytest.mark.parametrize("block_bits", [0, 3, 10])
def test_reads_are_the_same_in_any_number_of_blocks(
    tmp_path: Path, symmetrize: bool, block_bits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reads, "_BLOCK_BITS", block_bits)
    rng = np.random.default_rng(3)
    edges = rng.integers(0, 300, (2, 4_000))
    # A row that is longer than a block of others, and rows without reads at the end.
    edges[1, :900] = 7
    chunks = cut_edges(edges % 280, 300, 100)
    expected = reads.build_reads(chunks, 300, symmetrize=symmetrize)
    with _arrays.keep_on_disk(tmp_path, memory=1):
        built = reads.build_reads(chunks, 300, symmetrize=symmetrize)
    for name, value in expected._asdict().items():
        assert np.array_equal(getattr(built, name), value)
        assert np.asarray(getattr(built, name)).dtype == np.asarray(value).dtype


def test_a_read_without_reverse_is_found() -> None:
    rng = np.random.default_rng(5)
    edges = rng.integers(0, 200, (2, 1_000))
    both = reads.build_reads(cut_edges(edges, 200), 200, symmetrize=True)
    assert not reads.lacks_reverse(both.indptr, both.indices)
    counts = np.diff(both.indptr)
    for row in np.flatnonzero(counts)[:50]:
        kept = np.ones(len(both.indices), np.bool_)
        kept[both.indptr[row]] = False
        counts[row] -= 1
        indptr = np.concatenate([[0], np.cumsum(counts)])
        assert reads.lacks_reverse(indptr, both.indices[kept])
        counts[row] += 1
