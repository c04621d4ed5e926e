"""Whole files: what to do where one cannot be written."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from hushgraph._files import write_whole
from hushgraph.errors import WriteError


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
