"""Training broken on purpose, to see whether the audit notices. Nothing here is reached by `train`.

A fault is a function from the trainer's collaborators to faulty ones, or a plan with a mistake in it. Two are
what the paper describes, which `PrivacyPlan` itself calls "claimed by the paper".
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from hushgraph.audit.collaborators import Collaborators, FloatNoise, Plant, plant_nothing
from hushgraph.billboard.ballots import GRID, Ballots, Int64Array, ballot_entries
from hushgraph.billboard.board import Board, cast, release
from hushgraph.billboard.reading import Float32Array
from hushgraph.errors import InputError
from hushgraph.graph.graph import EdgeOwner, Graph
from hushgraph.noise import normal
from hushgraph.noise.normal import seeded_keys
from hushgraph.noise.source import NoiseSource
from hushgraph.privacy import bounds, choices
from hushgraph.privacy.plans import PrivacyPlan, TreePlan
from hushgraph.tasks.task import Task


class _HalfNoise:
    """Adds half of the noise that was paid for."""

    guarantee: Literal["none"] = "none"

    def __init__(self, real: NoiseSource) -> None:
        self._real = real

    def add_noise(self, sums: Mapping[str, Tensor], sigmas: Mapping[str, float]) -> dict[str, Tensor]:
        return self._real.add_noise(sums, {name: sigma / 2 for name, sigma in sigmas.items()})


class _ReusedNoise:
    """Every second step repeats the noise of the step before it."""

    guarantee: Literal["none"] = "none"

    def __init__(self, real: NoiseSource) -> None:
        self._real = real
        self._kept: dict[str, Tensor] | None = None

    def add_noise(self, sums: Mapping[str, Tensor], sigmas: Mapping[str, float]) -> dict[str, Tensor]:
        if self._kept is not None:
            kept, self._kept = self._kept, None
            return {name: value + kept[name] for name, value in sums.items()}
        released = self._real.add_noise(sums, sigmas)
        self._kept = {name: released[name] - value for name, value in sums.items()}
        return released


class _StreamNoise:
    """Adds the noise of one seeded stream."""

    guarantee: Literal["none"] = "none"

    def __init__(self, seed: int) -> None:
        self._keys = seeded_keys(seed)

    def add_noise(self, sums: Mapping[str, Tensor], sigmas: Mapping[str, float]) -> dict[str, Tensor]:
        drawn = normal.draw(sum(value.numel() for value in sums.values()), self._keys)
        parts = torch.split(
            torch.from_numpy(drawn * 2.0**-normal.GRID_BITS), [value.numel() for value in sums.values()]
        )
        return {
            name: value + sigmas[name] * noise.view(value.shape)
            for (name, value), noise in zip(sums.items(), parts, strict=True)
        }


def _halve_noise(real: Collaborators) -> Collaborators:
    return replace(real, noise=_HalfNoise(real.noise))


def _reuse_noise(real: Collaborators) -> Collaborators:
    return replace(real, noise=_ReusedNoise(real.noise))


def _add_float_noise(real: Collaborators) -> Collaborators:
    return replace(real, noise=FloatNoise())


def _cast_in_full(real: Collaborators) -> Collaborators:
    """A ballot of norm 1 onto every place."""

    def make_ballots(graph: Graph, edge_owner: EdgeOwner, *, task: Task) -> Ballots:
        ballots = real.boards.make_ballots(graph, edge_owner, task=task)
        squares = task.entry_squares
        if squares is None:
            raise TypeError(f"{task}: expected a task of classes")
        own, rest = ballot_entries(np.minimum(ballots.list_sizes, 1), squares)
        votes = ballots.labels >= 0
        return replace(ballots, own=np.where(votes, own, 0), rest=np.where(votes, rest, 0))

    return replace(real, boards=replace(real.boards, make_ballots=make_ballots))


def _cast_validation_labels(real: Collaborators) -> Collaborators:
    """Rows of the validation split cast their labels too."""

    def make_ballots(graph: Graph, edge_owner: EdgeOwner, *, task: Task) -> Ballots:
        voters = np.union1d(graph.train_idx, graph.val_idx)
        mixed = replace(graph, train_idx=voters, val_idx=graph.val_idx[:0])
        return real.boards.make_ballots(mixed, edge_owner, task=task)

    return replace(real, boards=replace(real.boards, make_ballots=make_ballots))


def _double_shares(real: Collaborators) -> Collaborators:
    """Every board has the noise of a board with twice its share."""

    def release_board(tally: Int64Array, noise_std: float) -> list[Board]:
        return real.boards.release(tally, noise_std / math.sqrt(2))

    return replace(real, boards=replace(real.boards, release=release_board))


def _redraw_boards(real: Collaborators) -> Collaborators:
    """Every board leaves twice, with new noise, under one charge."""

    def release_board(tally: Int64Array, noise_std: float) -> list[Board]:
        return [*real.boards.release(tally, noise_std), *real.boards.release(tally, noise_std)]

    return replace(real, boards=replace(real.boards, release=release_board))


def _read_without_noise(real: Collaborators) -> Collaborators:
    """Rows read what was cast, and not what was released."""

    def read(
        boards: Sequence[Board], graph: Graph, edge_owner: EdgeOwner, *, own: Sequence[Ballots], **given: Any
    ) -> Float32Array:
        bare = [
            replace(board, values=(cast(graph, ballots) / GRID).astype(np.float32))
            for board, ballots in zip(boards, own, strict=True)
        ]
        return real.boards.read(bare, graph, edge_owner, own=own, **given)

    return replace(real, boards=replace(real.boards, read=read))


def _read_features(real: Collaborators) -> Collaborators:
    """A reading has the mean of the features of the nodes that a row lists in its first columns."""

    def read(boards: Sequence[Board], graph: Graph, edge_owner: EdgeOwner, **given: Any) -> Float32Array:
        readings = real.boards.read(boards, graph, edge_owner, **given)
        sums, sizes = np.zeros((graph.num_nodes, graph.num_features)), np.zeros(graph.num_nodes)
        for source, target in graph.edge_chunks():
            owners, places = (source, target) if edge_owner == "sender" else (target, source)
            np.add.at(sums, owners, graph.x[places])
            np.add.at(sizes, owners, 1)
        width = min(graph.num_features, readings.shape[1])
        readings[:, :width] += (sums / np.maximum(sizes, 1)[:, None])[:, :width].astype(np.float32)
        return readings

    return replace(real, boards=replace(real.boards, read=read))


def _share_stream(real: Collaborators) -> Collaborators:
    """Every board, and the steps, start the same stream of noise anew."""
    seed = secrets.randbits(64)

    def release_board(tally: Int64Array, noise_std: float) -> list[Board]:
        draws = partial(normal.draw, keys=seeded_keys(seed))
        return [release(tally, noise_std=noise_std, draws=draws)]

    return replace(real, noise=_StreamNoise(seed), boards=replace(real.boards, release=release_board))


@dataclass(frozen=True, kw_only=True)
class TooFewTrees(TreePlan):
    """Counts the trees that change as if there were one layer less."""

    @property
    def changed_trees(self) -> int:
        return bounds.occurrences(self.max_readers, max(0, self.num_layers - 1))


@dataclass(frozen=True, kw_only=True)
class Fault:
    """What is broken, and the setting in which it shows.

    Attributes:
        words: what is wrong.
        method: the method that it is planted in; None where it can be in either.
        plant: makes the trainer's collaborators faulty.
        plan: the class of the plan.
        changes: fields of the plan that this fault needs.
    """

    words: str
    method: choices.Method | None = None
    plant: Plant = plant_nothing
    plan: type[PrivacyPlan] = PrivacyPlan
    changes: Mapping[str, Any] = field(default_factory=dict)


FAULTS = {
    "half-noise": Fault(words="half of the planned noise is added", plant=_halve_noise),
    "reused-noise": Fault(words="every second step reuses the noise of the last", plant=_reuse_noise),
    "too-few-trees": Fault(words="n is counted for one layer less", method="trees", plan=TooFewTrees),
    "per-layer-noise": Fault(
        method="trees",
        words="noise per layer, scaled to each layer's threshold, as the paper has it",
        changes={"clipping": "groups", "noise": "per-layer", "max_readers": 0, "max_reads": None},
    ),
    "paper-sampler": Fault(
        method="trees",
        words="the paper's sampler where readers own the edges, as the paper has it",
        changes={"sampler": "paper", "edge_owner": "reader", "max_reads": None},
    ),
    "float-noise": Fault(words="float32 noise of torch's generator", plant=_add_float_noise),
    "full-ballots": Fault(
        words="a ballot weighs 1 at every place, not 1/sqrt of the number of places",
        method="billboard",
        plant=_cast_in_full,
    ),
    "double-share": Fault(
        words="every board has the noise of twice its share", method="billboard", plant=_double_shares
    ),
    "noiseless-reading": Fault(
        words="training reads the board without its noise", method="billboard", plant=_read_without_noise
    ),
    "redrawn-board": Fault(
        words="every board is drawn a second time, under one charge", method="billboard", plant=_redraw_boards
    ),
    "features-in-reading": Fault(
        words="a reading holds the features of neighbours", method="billboard", plant=_read_features
    ),
    "validation-labels": Fault(
        words="labels of the validation split are cast", method="billboard", plant=_cast_validation_labels
    ),
    "shared-stream": Fault(
        words="boards and steps use one stream of noise", method="billboard", plant=_share_stream
    ),
}


def get_fault(name: str) -> Fault:
    """Return the fault of this name; raise InputError listing the names if there is none."""
    if name not in FAULTS:
        raise InputError(f"fault={name!r}: expected one of {', '.join(FAULTS)}")
    return FAULTS[name]
