"""How much memory there is, and memory that is freed between steps, which stays with the process."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager

# Names and defaults of glibc's malloc.h.
_TRIM_THRESHOLD, _MMAP_MAX = -1, -4
_DEFAULTS = {_TRIM_THRESHOLD: 128 * 1024, _MMAP_MAX: 65_536}
_KEPT = {_TRIM_THRESHOLD: 2**31 - 1, _MMAP_MAX: 0}


def physical_memory() -> int:
    """Bytes of memory that this machine has; a large number where it does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return 1 << 40


@contextmanager
def freed_memory_kept() -> Iterator[None]:
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
