"""Exact noise for clipped sums, on a grid."""

from __future__ import annotations

import math
import os
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import pairwise
from typing import Protocol

import numba
import numpy as np
import torch
from torch import Tensor

from hushgraph.errors import PlanError
from hushgraph.models.recording import Recording
from hushgraph.noise import normal
from hushgraph.noise.normal import fresh_keys, seeded_keys

# What the clipped gradient of a root may exceed C by, as a part of C.
NORM_EXCESS = 1e-6
# The largest number of steps from zero that a sum may be away: with the noise it stays within int64.
FARTHEST = 2.0**61
# Draws for a GPU: threads, steps of a block, numbers of a block, and how far ahead of the steps they are.
_MOST_WORKERS = 4
_MOST_STEPS = 16
_BLOCK = 1 << 19
_STEPS_AHEAD = 4
_LEAST_BLOCKS = 2
# A CPU draws up to so many numbers in the time that handing them to a thread takes.
_FEW = 1 << 12


class NoiseSource(Protocol):
    """Adds noise to clipped sums."""

    def add_noise(self, sums: Mapping[str, Tensor], sigmas: Mapping[str, float]) -> dict[str, Tensor]:
        """Every sum plus noise of its standard deviation, each coordinate drawn anew."""
        ...


class ExactNoise:
    """Adds normal noise to clipped sums in whole steps of a grid.

    Args:
        sigma_over_clip: standard deviation of the noise in units of C.
        sum_error: what rounding may move the clipped sum of a batch by, in units of C (`sum_error` in
            `hushgraph.gradients.sums`).
        seed: of a reproducible run; nothing is then guaranteed. The operating system's randomness without it.
        draw_ahead: draw the noise of the next call in other threads meanwhile.

    Guarantees:
        Without a seed, the result has the distribution of the Gaussian mechanism with standard deviation
        `widening` * sigma, rounded down to the grid, up to a total variation distance of 2^-180 a coordinate.
        `widening` makes up for what rounding adds to the change of a sum, so the plan's epsilon holds.
        No random word is used twice.

    Example:
        >>> import torch
        >>> source = ExactNoise(sigma_over_clip=2.0, sum_error=0.0)
        >>> source.add_noise({"w": torch.zeros(3, dtype=torch.float64)}, {"w": 2.0})["w"].shape
        torch.Size([3])
    """

    def __init__(
        self, *, sigma_over_clip: float, sum_error: float, seed: int | None = None, draw_ahead: bool = True
    ) -> None:
        self._sigma_over_clip, self._sum_error = sigma_over_clip, sum_error
        self._keys = fresh_keys() if seed is None else seeded_keys(seed)
        self._draw_ahead = draw_ahead
        self._drawer: _Drawer | None = None
        self._adder: _Adder | None = None

    def widening(self, size: int) -> float:
        """The factor by which the standard deviation of `size` coordinates is larger than asked for.

        A changed root moves the sum by at most C (1 + a), and rounding `size` coordinates to the grid adds at
        most one step times sqrt(size), which is b times the wider sigma: (1 + a) / (1 - b) makes up for both.
        """
        a = NORM_EXCESS + 2 * self._sum_error
        b = self._sigma_over_clip * math.sqrt(size) * 2.0**-normal.GRID_BITS
        if b > 0.5:
            raise PlanError(
                f"sigma_over_clip={self._sigma_over_clip:.3g} with {size} parameters: too much noise for its "
                "grid; use less noise or a smaller model"
            )
        return (1 + a) / (1 - b)

    def add_noise(self, sums: Mapping[str, Tensor], sigmas: Mapping[str, float]) -> dict[str, Tensor]:
        """Every sum, rounded to its grid, plus noise; on its device and in its precision.

        On a GPU the next call writes to the same tensors.
        """
        size = sum(value.numel() for value in sums.values())
        device = next(iter(sums.values())).device
        wider = self.widening(size)
        steps = {name: sigmas[name] * wider * 2.0**-normal.GRID_BITS for name in sums}
        if self._drawer is None or self._drawer.size != size:
            self._drawer = _Drawer(size, self._keys, device, ahead=self._draw_ahead)
        if device.type == "cuda":
            return self._add_at_once(sums, steps, self._drawer)
        values, noisy = list(sums.values()), torch.empty(size, dtype=torch.float64)
        ends = np.cumsum([value.numel() for value in values])
        add_parts(
            join(values).detach().double().numpy(),
            self._drawer.take().numpy(),
            np.array(list(steps.values())),
            ends,
            FARTHEST,
            noisy.numpy(),
        )
        return _name_parts(noisy, sums)

    def _add_at_once(
        self, sums: Mapping[str, Tensor], steps: Mapping[str, float], drawer: _Drawer
    ) -> dict[str, Tensor]:
        """All sums as one: on a GPU the time goes into starting operations."""
        key = (tuple(steps.values()), tuple(value.numel() for value in sums.values()))
        if self._adder is None or self._adder.key != key:
            self._adder = _Adder(key, next(iter(sums.values())).device)
        return _name_parts(self._adder.add(list(sums.values()), drawer), sums)


def _name_parts(joined: Tensor, sums: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The parts of a flat tensor by the names of the sums, in their shapes and precision."""
    parts = torch.split(joined, [value.numel() for value in sums.values()])
    return {
        name: part.view(value.shape).to(value.dtype)
        for (name, value), part in zip(sums.items(), parts, strict=True)
    }


def join(tensors: Sequence[Tensor]) -> Tensor:
    """One flat tensor with the numbers of all: a view where they are parts of one tensor, in this order."""
    first = tensors[0]
    storage, end = first.untyped_storage().data_ptr(), first.storage_offset()
    for tensor in tensors:
        is_next = tensor.storage_offset() == end and tensor.untyped_storage().data_ptr() == storage
        if not is_next or tensor.dtype != first.dtype or not tensor.is_contiguous():
            return torch.cat([tensor.reshape(-1) for tensor in tensors])
        end += tensor.numel()
    return first.as_strided((end - first.storage_offset(),), (1,), first.storage_offset())


class _Adder:
    """Adds noise on a GPU: sums, noise and steps of the grid in flat tensors, the addition recorded.

    Args:
        key: the step of every sum's grid, and how many numbers each has.
        device: the GPU.
    """

    def __init__(self, key: tuple[tuple[float, ...], tuple[int, ...]], device: torch.device) -> None:
        self.key = key
        steps, sizes = torch.tensor(key[0], dtype=torch.float64), torch.tensor(key[1])
        step = torch.repeat_interleave(steps, sizes).to(device)
        sums = self._sums = torch.zeros_like(step)
        noise = self._noise = torch.zeros_like(step, dtype=torch.int64)
        self._add = Recording(lambda: add_on_grid(sums, noise, step), device)

    @torch.no_grad()
    def add(self, values: list[Tensor], drawer: _Drawer) -> Tensor:
        """float64: all values, one behind the other, with the noise that `drawer` gives.

        The next call writes to the same tensor.
        """
        self._sums.copy_(join(values))
        drawer.copy_to(self._noise)
        return self._add()


class _Drawer:
    """Draws of one size, in page-locked memory where a GPU will read them.

    For a GPU, the noise of several steps is drawn at once: threads that ask for the interpreter's lock at
    every step would hold up the one that starts the work of the GPU.
    """

    def __init__(self, size: int, keys: Iterator[bytes], device: torch.device, *, ahead: bool) -> None:
        self.size = size
        self._keys, self._is_pinned = keys, device.type == "cuda"
        ahead = self._ahead = ahead and (self._is_pinned or size > _FEW)
        together = max(1, min(_MOST_STEPS, _BLOCK // max(1, size)))
        self._steps = together if self._is_pinned and ahead else 1
        self._num_workers = min(_MOST_WORKERS, os.cpu_count() or 1) if self._is_pinned else 1
        self._workers = ThreadPoolExecutor(self._num_workers, "noise") if ahead else None
        self._most_upcoming = max(_LEAST_BLOCKS, _STEPS_AHEAD // self._steps) if self._is_pinned else 1
        self._upcoming: deque[tuple[Tensor, list[Future[None]]]] = deque()
        self._block, self._given = torch.empty(0, size, dtype=torch.int64), 0
        # Page-locked memory takes long to get. What a GPU may still be reading is not written to.
        self._in_use: deque[tuple[Tensor, torch.cuda.Event]] = deque()

    def take(self) -> Tensor:
        """int64 [size], each given out once; to be copied before the next is taken."""
        if self._given == len(self._block):
            self._go_on()
        self._given += 1
        return self._block[self._given - 1]

    def copy_to(self, target: Tensor) -> None:
        """Copy what `take` gives to a tensor on the GPU."""
        target.copy_(self.take(), non_blocking=True)

    def _go_on(self) -> None:
        """Take the next block, and begin others."""
        if self._is_pinned and len(self._block):
            event = torch.cuda.Event()  # type: ignore[no-untyped-call]
            event.record()
            self._in_use.append((self._block, event))
        self._block, pieces = self._upcoming.popleft() if self._upcoming else self._begin()
        self._given = 0
        while self._ahead and len(self._upcoming) < self._most_upcoming:
            self._upcoming.append(self._begin())
        for piece in pieces:
            piece.result()

    def _begin(self) -> tuple[Tensor, list[Future[None]]]:
        block = self._new_block()
        # Keys are handed out here, in order, whichever thread comes first.
        keys = [next(self._keys) for _ in range(len(block) * normal.count_pieces(self.size))]
        if self._workers is None:
            normal.fill(block.numpy(), keys, 0, len(keys))
            return block, []
        parts = np.linspace(0, len(keys), min(self._num_workers, len(keys)) + 1).astype(int).tolist()
        return block, [
            self._workers.submit(normal.fill, block.numpy(), keys, first, last)
            for first, last in pairwise(parts)
        ]

    def _new_block(self) -> Tensor:
        if self._in_use and (len(self._in_use) > self._most_upcoming or self._in_use[0][1].query()):  # type: ignore[no-untyped-call]
            block, event = self._in_use.popleft()
            event.synchronize()
            return block
        return torch.empty(self._steps, self.size, dtype=torch.int64, pin_memory=self._is_pinned)


def add_on_grid(values: Tensor, noise: Tensor, steps: Tensor) -> Tensor:
    """float64: the nearest multiples of `steps`, plus `noise` steps, added up as integers.

    What is too far for 64 bits becomes the farthest that is not: two values move no farther apart by that,
    and no sum of a batch reaches it.
    """
    nearest = torch.round(values / steps).clamp_(-FARTHEST, FARTHEST).long()
    return (nearest + noise).double() * steps


@numba.njit(cache=True, nogil=True, error_model="numpy")
def add_parts(values, noise, steps, ends, farthest, out):  # type: ignore[no-untyped-def]
    """The same on a CPU: parts of `values` end at `ends`, each with a step of its own."""
    begin = 0
    for part in range(len(ends)):
        for i in range(begin, ends[part]):
            nearest = min(max(np.rint(values[i] / steps[part]), -farthest), farthest)
            out[i] = np.float64(np.int64(nearest) + noise[i]) * steps[part]
        begin = ends[part]
