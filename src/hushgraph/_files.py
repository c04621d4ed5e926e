"""Files that are replaced as a whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from hushgraph.errors import WriteError


@contextlib.contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """A file to write that takes the place of `path` at the end, if nothing went wrong by then."""
    draft = path.with_name(path.name + ".draft")
    try:
        with draft.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        reason = error.strerror or error
        raise WriteError(f"{path}: cannot be written ({reason}); {_advice(error)}") from None
    finally:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)


def _advice(error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "free space or choose another folder"
    if isinstance(error, PermissionError):
        return "allow writing there or choose another folder"
    return "choose another folder"


def write_whole(path: Path, content: bytes) -> None:
    """Replace a file by `content`, or leave it as it was."""
    with whole_file(path) as file:
        file.write(content)
