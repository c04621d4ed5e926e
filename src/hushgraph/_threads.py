"""Threads: how many there are, who has them, and work that several of them share."""

from __future__ import annotations

import contextlib
import math
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")
# What `use_one_pool` leaves to others than torch; None outside of it.
_own_threads: int | None = None


def count_threads() -> int:
    """How many threads to compute with: as many as torch, and no more than this process may use.

    torch follows OMP_NUM_THREADS and `torch.set_num_threads`. The system may allow fewer processors, or a
    share of their time (cgroups of containers).
    """
    if _own_threads is not None:
        return _own_threads
    # Imported here and below: reading tables needs no torch, nor does who only names a device need numba.
    import torch

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
    import torch

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
    import numba
    import torch

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


def map_in_order(work: Callable[[_Item], _Result], items: Iterable[_Item]) -> Iterator[_Result]:
    """Yield what `work` gives for every item, in their order, from `count_threads` threads.

    Few items are worked on before their turn, so that few results are held.
    """
    threads = count_threads()
    if threads == 1:
        yield from map(work, items)
        return
    waiting: deque[Future[_Result]] = deque()
    with ThreadPoolExecutor(threads, "map") as pool:
        for item in items:
            waiting.append(pool.submit(work, item))
            if len(waiting) > threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
