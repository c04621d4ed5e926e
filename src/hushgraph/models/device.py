"""The device to compute on, and how the C library treats freed memory."""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from hushgraph.errors import InputError

# Names and defaults of glibc's malloc.h.
_TRIM_THRESHOLD, _MMAP_MAX = -1, -4
_DEFAULTS = {_TRIM_THRESHOLD: 128 * 1024, _MMAP_MAX: 65_536}
_KEEP = {_TRIM_THRESHOLD: 2**31 - 1, _MMAP_MAX: 0}


# What `use_one_pool` leaves to others than torch; None outside of it.
_own_threads: int | None = None


def choose_device(name: str) -> torch.device:
    """Return the device called `name`; "auto" is a GPU if there is one. Raise InputError if it is missing."""
    if name not in ("auto", "cpu", "cuda"):
        raise InputError(f"device={name!r}: expected auto, cpu or cuda")
    if name == "cuda" and not torch.cuda.is_available():
        raise InputError("device='cuda': no GPU is visible to torch; use cpu or auto")
    return torch.device(("cuda" if torch.cuda.is_available() else "cpu") if name == "auto" else name)


def count_threads() -> int:
    """How many threads to compute with: as many as torch, and no more than this process may use.

    torch follows OMP_NUM_THREADS and `torch.set_num_threads`. The system may allow fewer processors, or a
    share of their time (cgroups of containers).
    """
    if _own_threads is not None:
        return _own_threads
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(torch.get_num_threads(), allowed, _read_quota()))


@contextmanager
def use_one_pool(has_own_threads: bool = True) -> Iterator[None]:
    """Let torch compute in the calling thread alone inside the context, where others share the work.

    Threads of torch wait for work by spinning: beside other threads they take the processors away from them.
    Where torch itself shares the work with numba, both use equally many threads.
    `count_threads` still gives what it gave before, and torch has its threads back afterwards.
    """
    global _own_threads
    if _own_threads is not None:
        yield
        return
    if not has_own_threads:
        with _share_threads():
            yield
        return
    before, _own_threads = torch.get_num_threads(), count_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
        _own_threads = None


@contextmanager
def _share_threads() -> Iterator[None]:
    """Let numba use as many threads as torch, inside the context; torch has as many as before afterwards."""
    # Imported here, because commands that only name a device need no compiler.
    import numba

    # Both may use OpenMP, whose number of threads numba sets for everybody when it is asked for its own.
    of_torch, threads = torch.get_num_threads(), count_threads()
    of_numba = numba.get_num_threads()
    numba.set_num_threads(min(threads, numba.config.NUMBA_NUM_THREADS))
    torch.set_num_threads(of_torch)
    try:
        yield
    finally:
        numba.set_num_threads(of_numba)
        torch.set_num_threads(of_torch)


def _read_quota() -> int:
    """The processors whose time the control group of this process may use; very many without a limit."""
    with contextlib.suppress(OSError, ValueError):
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return math.ceil(int(quota) / int(period))
    return 1 << 16


def release_freed_memory() -> None:
    """Return the pages of freed arrays to the system, of which glibc keeps many; nothing elsewhere."""
    with contextlib.suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)


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
