"""The device to compute on, how much memory there is, and how freed memory is kept."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from hushgraph.errors import InputError

# Names and defaults of glibc's malloc.h.
_TRIM_THRESHOLD, _MMAP_MAX = -1, -4
_DEFAULTS = {_TRIM_THRESHOLD: 128 * 1024, _MMAP_MAX: 65_536}
_KEPT = {_TRIM_THRESHOLD: 2**31 - 1, _MMAP_MAX: 0}


def choose_device(name: str) -> torch.device:
    """The device called `name`, where "auto" is a GPU if there is one; InputError where it is missing."""
    if name not in ("auto", "cpu", "cuda"):
        raise InputError(f"device={name!r}: expected auto, cpu or cuda")
    if name == "cuda" and not torch.cuda.is_available():
        raise InputError("device='cuda': no GPU is visible to torch; use cpu or auto")
    return torch.device(("cuda" if torch.cuda.is_available() else "cpu") if name == "auto" else name)


def physical_memory() -> int:
    """Bytes of memory that this machine has; a large number where it does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return 1 << 40


@contextmanager
def keep_freed_memory() -> Iterator[None]:
    """Within this context large tensors reuse pages; afterwards the pages go back to the system.

    glibc returns every large block at once when it is freed and takes it back page by page, which costs a
    step on the CPU a third of its time. Elsewhere than on glibc this does nothing.
    """
    try:
        libc = ctypes.CDLL(None)
        mallopt, malloc_trim = libc.mallopt, libc.malloc_trim
    except (AttributeError, OSError, TypeError):
        yield
        return
    try:
        for option, value in _KEPT.items():
            mallopt(option, value)
        yield
    finally:
        for option, value in _DEFAULTS.items():
            mallopt(option, value)
        malloc_trim(0)
