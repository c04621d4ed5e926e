"""Noise that stands up to attacks on floating-point numbers: cryptographic, exact, on a grid."""

from __future__ import annotations

import math
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from hushgraph.errors import PlanError
from hushgraph.noise import exact_normal

# The largest number of steps from zero that a sum may be away: with the noise it stays within int64.
_FARTHEST = 2.0**61
# What the tests of clipping allow a root's norm to exceed C by.
_NORM_EXCESS = 1e-6
# What float32 may lose of the sum of a batch, twice, in units of C and per root: docs/secure-noise.md.
_SUM_EXCESS = 2.0**-21
# Threads that draw ahead; the kernel and the operating system's generator both let others run.
_WORKERS = 4


class SecureNoise:
    """Adds normal noise to clipped sums in whole steps of a grid.

    Args:
        batch_size: expected number of roots in a batch.
        sigma_over_clip: standard deviation of the noise in units of C.
        draw_ahead: draw the noise of the next call while the caller does something else.

    Guarantees:
        Randomness is the operating system's, and none is used twice.
        What is added is distributed exactly as normal numbers of standard deviation `widening` * sigma,
        rounded down to the grid. Sums are on the grid before, so the result is the Gaussian mechanism,
        rounded: what it costs is what the accountant says, and which values are possible says nothing.
        Rounding to the grid and, up to the stated size, rounding in float32 are paid for by `widening`.
    """

    def __init__(self, *, batch_size: int, sigma_over_clip: float, draw_ahead: bool = False) -> None:
        self._batch_size, self._sigma_over_clip = batch_size, sigma_over_clip
        self._workers = ThreadPoolExecutor(_WORKERS) if draw_ahead else None
        self._ahead: list[Future[npt.NDArray[np.int64]]] = []

    def widening(self, size: int) -> float:
        """By what the standard deviation of `size` coordinates is larger than asked for.

        A changed root moves the sum by at most C (1 + a), and rounding `size` coordinates to the grid adds
        at most one step times sqrt(size), which is b times the wider sigma: (1 + a) / (1 - b) makes up for
        both.
        """
        a = _NORM_EXCESS + _SUM_EXCESS * self._batch_size
        b = self._sigma_over_clip * math.sqrt(size) * 2.0**-exact_normal.GRID_BITS
        if b > 0.5:
            raise PlanError(
                f"sigma_over_clip={self._sigma_over_clip:.3g} with {size} parameters: too much noise for the "
                "grid of secure noise; use less noise or a smaller model"
            )
        return (1 + a) / (1 - b)

    def add_noise(self, sums: Mapping[str, Tensor], sigmas: Mapping[str, float]) -> dict[str, Tensor]:
        """Every sum, rounded to its grid, plus noise; on its device and in its precision."""
        sizes = [value.numel() for value in sums.values()]
        ends = np.cumsum(sizes)
        noise = np.split(self._drawn(int(ends[-1])), ends[:-1])
        # One move to the CPU and one back, whatever the number of tensors.
        flat = torch.cat([value.detach().reshape(-1) for value in sums.values()])
        values = np.split(flat.cpu().double().numpy(), ends[:-1])
        wider = self.widening(int(ends[-1]))
        found = []
        for name, value, drawn in zip(sums, values, noise, strict=True):
            step = grid_step(sigmas[name] * wider)
            found.append((on_grid(value, step) + drawn) * step)
        back = torch.from_numpy(np.concatenate(found)).to(device=flat.device)
        parts = torch.split(back, sizes)
        return {
            name: part.view_as(value).to(value.dtype)
            for (name, value), part in zip(sums.items(), parts, strict=True)
        }

    def _drawn(self, count: int) -> npt.NDArray[np.int64]:
        if self._workers is None:
            return exact_normal.draw(count)
        ahead, self._ahead = self._ahead, []
        found = np.concatenate([part.result() for part in ahead]) if ahead else exact_normal.draw(count)
        share = -(-count // _WORKERS)
        for begin in range(0, count, share):
            self._ahead.append(self._workers.submit(exact_normal.draw, min(share, count - begin)))
        return found if len(found) == count else exact_normal.draw(count)


def grid_step(sigma: float) -> float:
    """The distance of neighbouring values on the grid for noise of standard deviation `sigma`."""
    return sigma * 2.0**-exact_normal.GRID_BITS


def on_grid(values: npt.NDArray[np.float64], step: float) -> npt.NDArray[np.int64]:
    """The nearest multiples of `step`; what is too far for 64 bits becomes the farthest that is not."""
    # Two values move no farther apart by the limits, and no sum of a batch reaches them.
    nearest = np.clip(np.rint(values / step), -_FARTHEST, _FARTHEST)
    return nearest.astype(np.int64)
