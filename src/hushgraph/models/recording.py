"""Work on a GPU that is always the same: recorded once as a CUDA graph, then replayed."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Generic, TypeVar

import torch

_Result = TypeVar("_Result")

# Calls before the recording, which let libraries choose their kernels and memory.
_WARM_UP = 2


class Recording(Generic[_Result]):
    """Calls `work`, and on a GPU replays what it started the last time.

    Args:
        work: reads and writes the same tensors at every call, and depends on nothing but what they hold.
        device: that of the tensors; on a CPU every call calls `work`.

    Guarantees:
        Computes what `work` computes. Its result is the same tensors at every call once it is recorded, so
        that a call overwrites the result of the last one.
    """

    def __init__(self, work: Callable[[], _Result], device: torch.device) -> None:
        self._work, self._is_on_gpu = work, device.type == "cuda"
        self._calls = 0
        self._recorded: tuple[torch.cuda.CUDAGraph, _Result] | None = None

    def __call__(self) -> _Result:
        if not self._is_on_gpu or self._calls < _WARM_UP:
            self._calls += 1
            return self._work()
        if self._recorded is None:
            self._recorded = _record(self._work)
        graph, result = self._recorded
        graph.replay()
        return result


def _record(work: Callable[[], _Result]) -> tuple[torch.cuda.CUDAGraph, _Result]:
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        # Other threads may go on using the GPU meanwhile.
        graph.capture_begin(capture_error_mode="thread_local")
        try:
            result = work()
        finally:
            graph.capture_end()
    torch.cuda.current_stream().wait_stream(stream)
    return graph, result


def choose_room(mean: float, most: int) -> int:
    """Return a capacity that nearly every draw fits, of `mean` expected out of `most`."""
    return min(most, math.ceil(mean + 8 * math.sqrt(mean)))
