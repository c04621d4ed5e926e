"""The device to compute on, and how the C library treats freed memory."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from hushgraph.errors import InputError

# Names and defaults of glibc's malloc.h.
_TRIM_THRESHOLD, _MMAP_MAX = -1, -4
_DEFAULTS = {_TRIM_THRESHOLD: 128 * 1024, _MMAP_MAX: 65_536}
_KEEP = {_TRIM_THRESHOLD: 2**31 - 1, _MMAP_MAX: 0}


def choose_device(name: str) -> torch.device:
    """Return the device called `name`; "auto" is a GPU if there is one. Raise InputError if it is missing."""
    if name not in ("auto", "cpu", "cuda"):
        raise InputError(f"device={name!r}: expected auto, cpu or cuda")
    if name == "cuda" and not torch.cuda.is_available():
        raise InputError("device='cuda': no GPU is visible to torch; use cpu or auto")
    return torch.device(("cuda" if torch.cuda.is_available() else "cpu") if name == "auto" else name)


@contextmanager
def keep_freed_memory() -> Iterator[None]:
    """Reuse the pages of freed tensors inside the context; return them to the system at its end.

    By default glibc returns a large block as soon as it is freed and faults it in again page by page, which
    takes a third of the time of a step on the CPU. With another C library this does nothing.
    """
    try:
        libc = ctypes.CDLL(None)
        mallopt, malloc_trim = libc.mallopt, libc.malloc_trim
    except (AttributeError, OSError, TypeError):
        yield
        return
    try:
        for option, value in _KEEP.items():
            mallopt(option, value)
        yield
    finally:
        for option, value in _DEFAULTS.items():
            mallopt(option, value)
        malloc_trim(0)
