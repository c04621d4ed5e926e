"""Gaussian noise on a clipped sum."""

from __future__ import annotations

import secrets
from collections.abc import Mapping

import torch
from torch import Tensor


def noise_generator(device: torch.device | str, seed: int | None = None) -> torch.Generator:
    """A generator for noise alone, seeded by the operating system unless `seed` is given."""
    generator = torch.Generator(device=device)
    generator.manual_seed(secrets.randbits(64) - 2**63 if seed is None else seed)
    return generator


def noisy(
    sums: Mapping[str, Tensor], sigmas: Mapping[str, float], generator: torch.Generator
) -> dict[str, Tensor]:
    """Every sum plus N(0, sigma^2) per coordinate, each coordinate drawn anew.

    Args:
        sums: clipped sums, per parameter.
        sigmas: standard deviations, per parameter.
        generator: on the device of the sums; used for nothing else.
    """
    return {
        name: value
        + sigmas[name] * torch.randn(value.shape, generator=generator, device=value.device, dtype=value.dtype)
        for name, value in sums.items()
    }
