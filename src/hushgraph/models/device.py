"""The device to compute on, its threads and its precision."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from hushgraph.errors import InputError

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


@contextmanager
def multiply_exactly() -> Iterator[None]:
    """Multiply float32 matrices on a GPU without TF32 inside the context.

    Norms and sums must be as exact as the bound on their rounding assumes.
    """
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = False
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
