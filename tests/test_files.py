"""Whole files: what to do where one cannot be written; and arrays and tensors in them."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch

from hushgraph._files import pack_arrays, pack_tensors, read_arrays, read_tensors, write_whole
from hushgraph.errors import RunError, WriteError


@pytest.mark.parametrize(
    ("number", "advice"),
    [
        (errno.ENOSPC, "free space or choose another folder"),
        (errno.EDQUOT, "free space or choose another folder"),
        (errno.EACCES, "allow writing there or choose another folder"),
        (errno.EPERM, "allow writing there or choose another folder"),
        (errno.EROFS, "choose another folder"),
        (errno.EIO, "choose another folder"),
    ],
)
def test_the_advice_fits_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, advice: str
) -> None:
    def fail(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "replace", fail)
    path = tmp_path / "file"
    with pytest.raises(WriteError) as caught:
        write_whole(path, b"new")
    assert str(caught.value) == f"{path}: cannot be written ({os.strerror(number)}); {advice}"
    assert not list(tmp_path.iterdir())


def test_arrays_are_written_as_tensors_are(tmp_path: Path) -> None:
    """Each reads what the other writes, safetensors included, and none of the arrays is copied."""
    arrays = {
        "values": np.arange(6, dtype=np.float32).reshape(3, 2),
        "names": np.array([7, -1, 2**62]),
        "name_bytes": np.array([1, 2, 3], np.uint8),
        "nothing": np.empty((0, 4), np.float32),
    }
    about = {"kind": "numbers", "plan": "é"}
    parts = pack_arrays(arrays, about)
    assert any(np.shares_memory(np.frombuffer(part, np.uint8), arrays["values"]) for part in parts[2:])
    own, other = tmp_path / "own", tmp_path / "other"
    own.write_bytes(b"".join(parts))
    tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
    other.write_bytes(pack_tensors(tensors, about))
    assert own.stat().st_size == other.stat().st_size
    loaded = safetensors.torch.load_file(own)
    for path in (own, other):
        read, said = read_arrays(path)
        assert said == about
        for name, array in arrays.items():
            assert np.array_equal(read[name], array)
            assert read[name].dtype == array.dtype
            assert torch.equal(loaded[name], tensors[name])
            assert name == "nothing" or not read[name].flags.writeable
    assert read_tensors(own)[1] == about


def test_arrays_that_changed_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "arrays"
    content = b"".join(pack_arrays({"values": np.ones(3, np.float32)}, {"kind": "numbers"}))
    for wrong, message in (
        (content[:-1] + b"\x00", "its checksum does not match"),
        (content[:-1], "cannot be read"),
        (content.replace(b"F32", b"I32"), "cannot be read"),
        (content.replace(b"numbers", b"letters"), "its checksum does not match"),
    ):
        path.write_bytes(wrong)
        with pytest.raises(RunError, match=message):
            read_arrays(path)
