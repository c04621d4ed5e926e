"""Arrays in files: written in blocks, mapped, taken by rows, refused when damaged."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hushgraph.errors import GraphError
from hushgraph.graph import mapped
from hushgraph.graph.mapped import ArrayFile, MappedRows, open_mapped, release, write_array


def test_a_file_written_in_blocks_is_what_numpy_reads(tmp_path: Path) -> None:
    values = np.arange(35, dtype=np.float16).reshape(7, 5)
    write_array(tmp_path / "x.npy", values, block_bytes=20)
    np.testing.assert_array_equal(np.load(tmp_path / "x.npy"), values)
    with ArrayFile(tmp_path / "i.npy", np.int32) as file:
        file.append(np.array([1, 2], np.int64))
        file.append(np.array([], np.int64))
        file.append(np.array([3], np.int64))
    array = np.load(tmp_path / "i.npy")
    assert (array.dtype, array.tolist(), file.rows) == (np.dtype(np.int32), [1, 2, 3], 3)


def test_a_mapped_file_can_be_read_after_its_pages_were_let_go(tmp_path: Path) -> None:
    write_array(tmp_path / "y.npy", np.arange(10_000))
    array = open_mapped(tmp_path / "y.npy", ndim=1, kinds="iu")
    assert isinstance(array, np.memmap)
    assert not array.flags.writeable
    before = array.sum()
    release(array)
    assert array.sum() == before
    release(np.arange(3))


def test_an_empty_file_needs_no_map(tmp_path: Path) -> None:
    write_array(tmp_path / "none.npy", np.empty(0, np.int64))
    assert open_mapped(tmp_path / "none.npy", ndim=1, kinds="i").shape == (0,)


@pytest.mark.parametrize("largest", [1 << 40, 0])
def test_rows_come_in_the_order_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, largest: int
) -> None:
    monkeypatch.setattr(mapped, "MAPPED_BYTES", largest)
    monkeypatch.setattr(mapped, "_MANY_ROWS", 10)
    values = np.arange(600, dtype=np.float32).reshape(200, 3)
    write_array(tmp_path / "x.npy", values)
    rows = MappedRows(open_mapped(tmp_path / "x.npy", ndim=2, kinds="f"))
    for asked in (np.array([7, 3, 3, 199]), np.arange(199, -1, -1), np.empty(0, np.int64)):
        np.testing.assert_array_equal(rows.take(asked), values[asked])


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "y.npy is missing"),
        (b"not numpy", "is not a .npy file"),
        (b"", "is not a .npy file"),
    ],
)
def test_what_is_no_array(tmp_path: Path, content: bytes | None, says: str) -> None:
    if content is not None:
        (tmp_path / "y.npy").write_bytes(content)
    with pytest.raises(GraphError, match=says) as caught:
        open_mapped(tmp_path / "y.npy", ndim=1, kinds="i")
    assert "\n" not in str(caught.value)


def test_arrays_of_another_shape_or_length(tmp_path: Path) -> None:
    path = tmp_path / "y.npy"
    np.save(path, np.zeros((2, 2)))
    with pytest.raises(GraphError, match=r"dtype float64 and shape \[2, 2\]; expected 1 dimension of kind i"):
        open_mapped(path, ndim=1, kinds="i")
    np.save(path, np.asfortranarray(np.zeros((2, 3))))
    with pytest.raises(GraphError, match="in row order"):
        open_mapped(path, ndim=2, kinds="f")
    np.save(path, np.array([None, 1]))
    with pytest.raises(GraphError, match="dtype object"):
        open_mapped(path, ndim=1, kinds="iO")
    np.save(path, np.arange(9))
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(GraphError, match=r"declares shape \[9\], 8 bytes each, but holds 64 bytes"):
        open_mapped(path, ndim=1, kinds="i")


def test_a_file_that_is_cut_while_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mapped, "MAPPED_BYTES", 0)
    write_array(tmp_path / "x.npy", np.zeros((100, 3)))
    rows = MappedRows(open_mapped(tmp_path / "x.npy", ndim=2, kinds="f"))
    with (tmp_path / "x.npy").open("r+b") as file:
        file.truncate(1000)
    with pytest.raises(GraphError, match="ended early"):
        rows.take(np.array([0, 99]))
