"""The lock beside a ledger, so that one process at a time can write."""

from __future__ import annotations

import os
from pathlib import Path

from hushgraph.errors import RunError


def acquire(path: Path) -> int:
    """Lock the ledger at `path`; return a descriptor. The lock ends with the process at the latest."""
    try:
        import fcntl
    except ImportError:
        raise RunError(
            f"ledger={path}: this system cannot lock files, so spending cannot be guarded"
        ) from None
    try:
        descriptor = os.open(lock_path(path), os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise RunError(
            f"ledger={path}: cannot be locked ({error}); choose a folder you can write to"
        ) from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        is_held = is_same(descriptor, lock_path(path))
    except OSError:
        is_held = False
    if not is_held:
        os.close(descriptor)
        raise RunError(f"ledger={path}: another process is writing to it; wait for it to end")
    return descriptor


def release(descriptor: int) -> None:
    """Release a lock, also if a forked child still has its descriptor open."""
    import fcntl

    fcntl.flock(descriptor, fcntl.LOCK_UN)
    os.close(descriptor)


def lock_path(path: Path) -> Path:
    """Path of the lock of a ledger."""
    return path.with_name(path.name + ".lock")


def is_same(descriptor: int, path: Path) -> bool:
    """Whether the open file is still the one at `path`, neither removed nor replaced."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except OSError:
        return False
