"""What the trainer is given in an audit: clipped sum, noise and lists, real or with a planted fault."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from hushgraph.noise.gaussian import noisy
from hushgraph.noise.secure_noise import SecureNoise
from hushgraph.training.trainer import AddsNoise, ClippedSum, new_noise
from hushgraph.privacy.plan import PrivacyPlan
from hushgraph.sampling.lists import BoundedLists


@dataclass(frozen=True, kw_only=True)
class Collaborators:
    """What a step of training calls.

    Attributes:
        clipped_sum: computes the clipped sum of one piece of a batch.
        noise: adds noise to the sum of all pieces.
        make_lists: draws bounded lists from a seed.
    """

    clipped_sum: ClippedSum
    noise: AddsNoise
    make_lists: Callable[[int], BoundedLists]


class Plant(Protocol):
    """A planted fault: takes the real collaborators and returns faulty ones."""

    def __call__(self, real: Collaborators, /) -> Collaborators: ...


def plant_nothing(real: Collaborators) -> Collaborators:
    """The code as it is."""
    return real


class FloatNoise:
    """float32 noise of torch's generator, which attacks on floating-point numbers see through."""

    def __init__(self, seed: int | None = None) -> None:
        self._generator = new_noise(torch.device("cpu"), seed)

    def add(self, sums: Mapping[str, Tensor], sigmas: Mapping[str, float]) -> dict[str, Tensor]:
        return noisy({name: value.float() for name, value in sums.items()}, sigmas, self._generator)


class ExactNoise:
    """The exact noise of training. It cannot be seeded."""

    def __init__(self, plan: PrivacyPlan) -> None:
        self._source = SecureNoise(batch_size=plan.batch_size, sigma_over_clip=plan.sigma_over_clip)

    def add(self, sums: Mapping[str, Tensor], sigmas: Mapping[str, float]) -> dict[str, Tensor]:
        return self._source.noisy(sums, sigmas)
