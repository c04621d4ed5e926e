"""What the trainer is given in an audit: clipped sum, noise and lists, real or with a planted fault."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from torch import Tensor

from hushgraph.gradients.sums import sum_error
from hushgraph.noise import source
from hushgraph.noise.source import NoiseSource
from hushgraph.privacy.plan import PrivacyPlan
from hushgraph.sampling.lists import BoundedLists
from hushgraph.training.trainer import ClippedSum


@dataclass(frozen=True, kw_only=True)
class Collaborators:
    """What a step of training calls.

    Attributes:
        clipped_sum: computes the clipped sum of one piece of a batch.
        noise: adds noise to the sum of all pieces.
        make_lists: draws bounded lists from a seed.
    """

    clipped_sum: ClippedSum
    noise: NoiseSource
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
        generator = torch.Generator()
        generator.manual_seed(secrets.randbits(63) if seed is None else seed)
        self._source = source.FloatNoise(generator)

    @property
    def guarantee(self) -> Literal["holds", "none"]:
        """Whoever sees the result can tell sums apart."""
        return "none"

    def add_noise(self, sums: Mapping[str, Tensor], sigmas: Mapping[str, float]) -> dict[str, Tensor]:
        """Every sum plus noise, in float32."""
        noisy = self._source.add_noise(sums, sigmas)
        return {name: value.float() for name, value in noisy.items()}


def make_exact_noise(plan: PrivacyPlan) -> NoiseSource:
    """The noise of training."""
    rows = plan.num_train_nodes * plan.rows_per_root
    error = sum_error(num_roots=plan.num_train_nodes, num_rows=rows)
    return source.ExactNoise(sigma_over_clip=plan.sigma_over_clip, sum_error=error, draw_ahead=False)
