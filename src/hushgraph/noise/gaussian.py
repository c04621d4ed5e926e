"""Gaussian noise on a clipped sum."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

# torch's state of a Mersenne Twister: three words, then one word of eight bytes for each of its numbers.
_TWISTER_NUMBERS = 624
_TWISTER_BEGIN, _TWISTER_BYTES = 24, 5056


def noise_generator(device: torch.device | str, seed: int | None = None) -> torch.Generator:
    """A generator for noise alone, seeded by the operating system unless `seed` is given.

    Guarantees:
        Without a seed, its state is 19,968 random bits on the CPU and 64 on a GPU.
    """
    generator = torch.Generator(device=device)
    if seed is not None:
        generator.manual_seed(seed)
        return generator
    # Negative seeds are those above 2^63.
    generator.manual_seed(secrets.randbits(64) - 2**63)
    if generator.device.type == "cpu":
        # The CPU's generator looks at 32 bits of a seed: few enough to try all of them.
        generator.set_state(torch.from_numpy(_random_state(generator.get_state().numpy())))
    return generator


def _random_state(state: np.ndarray) -> np.ndarray:
    """A copy of a freshly seeded state of the CPU's generator with all its numbers drawn anew."""
    state = state.copy()
    end = _TWISTER_BEGIN + 8 * _TWISTER_NUMBERS
    numbers = state[_TWISTER_BEGIN:end].view(np.uint64)
    # Another layout must not pass unnoticed: what is drawn would be lost, and 32 bits are left.
    if len(state) != _TWISTER_BYTES or int(numbers[0]) != int(state[:4].view(np.uint32)[0]):
        raise RuntimeError(
            f"torch {torch.__version__} keeps its generator in {len(state)} bytes of another layout; use the "
            "version this package asks for, or secure_noise"
        )
    numbers[:] = np.frombuffer(os.urandom(4 * _TWISTER_NUMBERS), np.uint32)
    return state


class NoiseSource(Protocol):
    """Adds the noise of one step to clipped sums."""

    def add_noise(self, sums: Mapping[str, Tensor], sigmas: Mapping[str, float]) -> dict[str, Tensor]:
        """Every sum plus N(0, sigma^2) per coordinate, each coordinate drawn anew.

        Args:
            sums: clipped sums, per parameter.
            sigmas: standard deviations, per parameter.
        """


class GaussianNoise:
    """Noise from a generator of torch.

    Args:
        device: of the sums.
        seed: of the generator, which is used for nothing else; from the operating system unless given.
    """

    def __init__(self, device: torch.device | str, seed: int | None = None) -> None:
        # Apart from every other stream that starts from the same seed.
        self._generator = noise_generator(device, None if seed is None else seed ^ 0x6E6F697365)

    def add_noise(self, sums: Mapping[str, Tensor], sigmas: Mapping[str, float]) -> dict[str, Tensor]:
        """Every sum plus N(0, sigma^2) per coordinate, in the precision of the sum."""
        return {
            name: value
            + sigmas[name]
            * torch.randn(value.shape, generator=self._generator, device=value.device, dtype=value.dtype)
            for name, value in sums.items()
        }
