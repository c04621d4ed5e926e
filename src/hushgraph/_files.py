"""Files that are replaced as a whole or not at all, and tensors in such files."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from hushgraph.errors import RunError, WriteError

if TYPE_CHECKING:
    from torch import Tensor

_SUM = "sum"


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


def write_tensors(path: Path, tensors: Mapping[str, Tensor], about: Mapping[str, str]) -> None:
    """Replace the file by these tensors and texts, with a checksum, or leave it as it was."""
    import safetensors.torch

    flat = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
    write_whole(path, safetensors.torch.save(flat, {**about, _SUM: _checksum(flat, about)}))


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Read what `write_tensors` wrote; raise RunError where the checksum does not match."""
    import safetensors
    import safetensors.torch

    try:
        with safetensors.safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            about = dict(file.metadata() or {})
    except (OSError, safetensors.SafetensorError) as error:
        reason = " ".join(str(error).split())
        raise RunError(f"run={path.parent}: {path.name} cannot be read ({reason}); restore it") from None
    if about.pop(_SUM, None) != _checksum(tensors, about):
        raise RunError(
            f"run={path.parent}: {path.name} is damaged (its checksum does not match); restore it from a "
            "copy, or train again"
        )
    return tensors, about


def _checksum(tensors: Mapping[str, Tensor], about: Mapping[str, str]) -> str:
    import torch

    digest = hashlib.sha256()
    for name, value in sorted(tensors.items()):
        digest.update(json.dumps([name, str(value.dtype), list(value.shape)]).encode())
        # As bytes, since NumPy lacks some types; a tensor without dimensions cannot be viewed that way.
        digest.update(value.contiguous().reshape(-1).view(torch.uint8).numpy().data)
    digest.update(json.dumps(sorted(about.items())).encode())
    return digest.hexdigest()
