"""Files that are replaced as a whole or not at all, written once, or locked; and tensors in them."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import platform
import shutil
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast

import numpy as np
import numpy.typing as npt

from hushgraph.errors import InputError, RunError, WriteError

if TYPE_CHECKING:
    from torch import Tensor

_SUM = "sum"
# What files call the types of arrays.
_KINDS = {"float32": "F32", "int64": "I64", "uint8": "U8"}
Buffer = bytes | memoryview
# How a system answers that does not know unnamed files, or whose file system has none.
_NO_UNNAMED_FILES = (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL)


def check_system() -> None:
    """Raise RunError on Windows, which lacks what ledgers rely on; docs/deploying.md says what."""
    if platform.system() == "Windows":
        raise RunError("hushgraph runs on Linux and macOS; on Windows, use it inside WSL 2, which is Linux")


@contextlib.contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """A file to write that takes the place of `path` at the end, if nothing went wrong by then."""
    draft = draft_path(path)
    try:
        with draft.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
        sync_folder(path.parent)
    except OSError as error:
        raise _write_error(path, error) from None
    finally:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)


@contextlib.contextmanager
def whole_folder(place: Path) -> Iterator[Path]:
    """A folder to fill that becomes `place` at the end, if nothing went wrong; an empty one is replaced."""
    draft = place.with_name(f"{place.name}.draft")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)
    yield draft
    sync_folder(draft)
    draft.replace(place)
    sync_folder(place.absolute().parent)


def check_parent(path: Path) -> None:
    """Refuse a file to write in a folder that is not there."""
    if not path.parent.is_dir():
        raise InputError(f"out={path}: there is no folder {path.parent}; make it first")


def draft_path(path: Path) -> Path:
    """What a file is called until it takes the place of `path`."""
    return path.with_name(path.name + ".draft")


@contextlib.contextmanager
def open_unnamed(folder: Path) -> Iterator[BinaryIO | None]:
    """A file on the disk of `folder` that no name leads to, so that a kill leaves nothing of it.

    None where the system or the file system has no such files.
    """
    flag = getattr(os, "O_TMPFILE", None)
    descriptor: int | None = None
    if flag is not None:
        try:
            descriptor = os.open(folder, flag | os.O_RDWR, 0o644)
        except OSError as error:
            if error.errno not in _NO_UNNAMED_FILES:
                raise _write_error(folder, error) from None
    if descriptor is None:
        yield None
        return
    file = cast(BinaryIO, os.fdopen(descriptor, "w+b"))
    try:
        yield file
    except BaseException:
        # On a full disk, closing would try to write once more and hide the first error.
        with contextlib.suppress(OSError):
            file.close()
        raise
    file.close()


def name_file(file: BinaryIO, path: Path) -> None:
    """Give a file of `open_unnamed` its name; WriteError where that name is taken."""
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        # A folder as `src_dir_fd` makes Python follow the link to the open file.
        os.link(f"/proc/self/fd/{file.fileno()}", path, src_dir_fd=folder, follow_symlinks=True)
        os.fsync(folder)
    except OSError as error:
        raise _write_error(path, error) from None
    finally:
        os.close(folder)


def write_once(path: Path, content: Sequence[Buffer], announce: Callable[[], None]) -> None:
    """Write a file that must never be made a second time.

    Args:
        path: of the file, which is not there yet.
        content: of the file, in parts.
        announce: notes down that the file leaves the process. It is called before any name on disk leads to
            the content, and after everything that may fail for want of space, where the file system allows.
    """
    with open_unnamed(path.parent) as file:
        if file is None:
            announce()
            with whole_file(path) as draft:
                draft.writelines(content)
            return
        try:
            file.writelines(content)
            file.flush()
            os.fsync(file.fileno())
        except OSError as error:
            raise _write_error(path, error) from None
        announce()
        name_file(file, path)


def sync_folder(folder: Path) -> None:
    """Sync the names in a folder, or the content of a file, to disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write_error(path: Path, error: OSError) -> WriteError:
    return WriteError(f"{path}: cannot be written ({error.strerror or error}); {_advice(error)}")


def _advice(error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "free space or choose another folder"
    if isinstance(error, PermissionError):
        return "allow writing there or choose another folder"
    return "choose another folder"


def lock_path(path: Path) -> Path:
    """Path of the lock beside a file."""
    return path.with_name(path.name + ".lock")


def lock_file(path: Path, *, wait: bool = False, flags: int = os.O_RDWR | os.O_CREAT) -> int:
    """Open and lock a file; return its descriptor. The lock ends with the process at the latest.

    Args:
        path: what is locked: a file beside what it guards, or that itself.
        wait: for whoever holds the lock. Otherwise BlockingIOError is raised.
        flags: how the file is opened.

    Raises:
        OSError: if it cannot be opened, or if this system cannot lock files.
        RunError: on Windows.
    """
    check_system()
    # Imported here: who only writes files does not need it.
    from filelock import lock_descriptor, unlock_descriptor

    while True:
        descriptor = os.open(path, flags, 0o666)
        try:
            is_held = lock_descriptor(descriptor, blocking=wait)
        except BaseException:
            os.close(descriptor)
            raise
        # Whoever waited for a file that was removed meanwhile holds a lock that nobody looks at.
        if is_held and is_same(descriptor, path):
            return descriptor
        if is_held:
            unlock_descriptor(descriptor)
        os.close(descriptor)
        if not wait:
            raise BlockingIOError(errno.EWOULDBLOCK, "another process has locked it")


def unlock_file(descriptor: int) -> None:
    """Release a lock and close its file, also if a forked child still has the descriptor open."""
    from filelock import unlock_descriptor

    unlock_descriptor(descriptor)
    os.close(descriptor)


def is_same(descriptor: int, path: Path) -> bool:
    """Whether the open file is still the one at `path`, neither removed nor replaced."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except OSError:
        return False


def append_line(descriptor: int, line: bytes) -> None:
    """Append to an open file and sync it; OSError where not all of it was written."""
    if os.write(descriptor, line) != len(line):
        raise OSError("the line was cut short")
    os.fsync(descriptor)


def write_whole(path: Path, content: bytes) -> None:
    """Replace a file by `content`, or leave it as it was."""
    with whole_file(path) as file:
        file.write(content)


def read_toml(
    path: Path, name: str, *, keys: Iterable[str] = (), kind: type[InputError] = InputError
) -> dict[str, Any]:
    """The content of a TOML file of these keys; errors are of this kind and begin with `name`."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise kind(f"{name}: cannot be read ({error.strerror}); give a TOML file") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        reason = " ".join(str(error).split())[:100]
        expected = f"; expected keys {', '.join(keys)}" if keys else ""
        raise kind(f"{name}: not TOML ({reason}){expected}") from None


def write_tensors(path: Path, tensors: Mapping[str, Tensor], about: Mapping[str, str]) -> None:
    """Replace the file by these tensors and texts, with a checksum, or leave it as it was."""
    write_whole(path, pack_tensors(tensors, about))


def pack_tensors(tensors: Mapping[str, Tensor], about: Mapping[str, str]) -> bytes:
    """The content of a file with these tensors and texts, with a checksum."""
    import safetensors.torch

    flat = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
    packed: bytes = safetensors.torch.save(flat, {**about, _SUM: _sum_up(flat, about)})
    return packed


def pack_arrays(arrays: Mapping[str, npt.NDArray[Any]], about: Mapping[str, str]) -> list[Buffer]:
    """As `pack_tensors`, of arrays that may be larger than memory: in parts, none of which is a copy."""
    names = sorted(arrays, key=lambda name: (-arrays[name].itemsize, name))
    flat = {name: np.ascontiguousarray(arrays[name]) for name in names}
    header: dict[str, Any] = {"__metadata__": {**about, _SUM: _sum_up(flat, about)}}
    end = 0
    for name, array in flat.items():
        begin, end = end, end + array.nbytes
        kind = _KINDS[array.dtype.name]
        header[name] = {"dtype": kind, "shape": list(array.shape), "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return [len(text).to_bytes(8, "little"), text, *(_as_bytes(array) for array in flat.values())]


def read_arrays(path: Path) -> tuple[dict[str, npt.NDArray[Any]], dict[str, str]]:
    """As `read_tensors`, of what `pack_arrays` packed; the arrays are mapped from the file, to be read."""
    import safetensors

    try:
        # It checks that the header is that of the file.
        with safetensors.safe_open(path, framework="numpy"):
            pass
        with path.open("rb") as file:
            size = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(size))
        about = dict(header.pop("__metadata__", {}))
        types = {kind: name for name, kind in _KINDS.items()}
        arrays = {}
        for name, facts in header.items():
            dtype, shape = np.dtype(types[facts["dtype"]]), tuple(facts["shape"])
            offset = 8 + size + facts["data_offsets"][0]
            is_empty = facts["data_offsets"][0] == facts["data_offsets"][1]
            mapped = np.empty(shape, dtype) if is_empty else np.memmap(path, dtype, "r", offset, shape)
            arrays[name] = np.asarray(mapped)
    except (OSError, safetensors.SafetensorError, KeyError) as error:
        raise _unreadable(path, error) from None
    _check_sum(path, arrays, about)
    return arrays, about


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Read what `write_tensors` wrote; raise RunError where the checksum does not match."""
    import safetensors
    import safetensors.torch

    try:
        with safetensors.safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            about = dict(file.metadata() or {})
    except (OSError, safetensors.SafetensorError) as error:
        raise _unreadable(path, error) from None
    _check_sum(path, tensors, about)
    return tensors, about


def _unreadable(path: Path, error: Exception) -> RunError:
    reason = " ".join(str(error).split())
    return RunError(f"run={path.parent}: {path.name} cannot be read ({reason}); restore it")


def _check_sum(path: Path, values: Mapping[str, Tensor | npt.NDArray[Any]], about: dict[str, str]) -> None:
    """Take the checksum out of the texts of a file; RunError where it is another one."""
    if about.pop(_SUM, None) != _sum_up(values, about):
        raise RunError(
            f"run={path.parent}: {path.name} is damaged (its checksum does not match); restore it from a "
            "copy, or train again"
        )


def _sum_up(values: Mapping[str, Tensor | npt.NDArray[Any]], about: Mapping[str, str]) -> str:
    """The checksum of tensors, or of arrays that stand for them, and of texts."""
    digest = hashlib.sha256()
    for name, value in sorted(values.items()):
        kind = f"torch.{value.dtype.name}" if isinstance(value, np.ndarray) else str(value.dtype)
        digest.update(json.dumps([name, kind, list(value.shape)]).encode())
        digest.update(_as_bytes(value))
    digest.update(json.dumps(sorted(about.items())).encode())
    return digest.hexdigest()


def _as_bytes(value: Tensor | npt.NDArray[Any]) -> Buffer:
    if isinstance(value, np.ndarray):
        return value.reshape(-1).view(np.uint8).data
    import torch

    # As bytes, since NumPy lacks some types; a tensor without dimensions cannot be viewed that way.
    return value.contiguous().reshape(-1).view(torch.uint8).numpy().data
