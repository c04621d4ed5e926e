"""What training is given in an audit: clipped sum, noise, lists and boards, real or with a planted fault."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

import torch
from torch import Tensor

from hushgraph.billboard import ballots, board
from hushgraph.billboard.ballots import Ballots, Int64Array
from hushgraph.billboard.board import Board
from hushgraph.billboard.reading import Float32Array, read_boards
from hushgraph.gradients.sums import sum_error
from hushgraph.graph.graph import EdgeOwner, Graph
from hushgraph.noise import source
from hushgraph.noise.source import NoiseSource
from hushgraph.privacy.plans import PrivacyPlan
from hushgraph.tasks.task import Task
from hushgraph.training.parts import ClippedSum
from hushgraph.training.tree_batches import MakeLists


class MakeBallots(Protocol):
    """What every row with a training label casts."""

    def __call__(self, graph: Graph, edge_owner: EdgeOwner, /, *, task: Task) -> Ballots: ...


class ReleaseBoard(Protocol):
    """Every board that leaves under one charge; the last is the one that is read."""

    def __call__(self, tally: Int64Array, noise_std: float, /) -> list[Board]: ...


class ReadBoards(Protocol):
    """What every row reads of the boards, as the model gets it."""

    def __call__(
        self,
        boards: Sequence[Board],
        graph: Graph,
        edge_owner: EdgeOwner,
        /,
        *,
        own: Sequence[Ballots],
        scale: float,
        radius: float,
    ) -> Float32Array: ...


def release_once(tally: Int64Array, noise_std: float) -> list[Board]:
    """One board for one charge, with noise of its own."""
    return [board.release(tally, noise_std=noise_std)]


@dataclass(frozen=True, kw_only=True)
class BoardCollaborators:
    """What makes a board and reads it: the code of training.

    Attributes:
        make_ballots: what rows with a training label cast.
        release: adds noise to a tally.
        read: the readings of all rows.
    """

    make_ballots: MakeBallots = ballots.label_ballots
    release: ReleaseBoard = release_once
    read: ReadBoards = read_boards


@dataclass(frozen=True, kw_only=True)
class Collaborators:
    """What a run calls.

    Attributes:
        clipped_sum: computes the clipped sum of one piece of a batch.
        noise: adds noise to the sum of all pieces.
        make_lists: draws bounded lists from a seed.
        boards: makes boards and reads them, in a run that has boards.
    """

    clipped_sum: ClippedSum
    noise: NoiseSource
    make_lists: MakeLists
    boards: BoardCollaborators = field(default_factory=BoardCollaborators)


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
