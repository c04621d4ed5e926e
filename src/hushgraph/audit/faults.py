"""Training broken on purpose, to see whether the audit notices. Nothing here is reached by `train`.

A fault is a function from the parts of a session to faulty ones, or a plan with a mistake in it. Two are what
the paper describes, which `PrivacyPlan` itself calls "claimed by the paper".
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hushgraph._arrays import Float32Array
from hushgraph.audit.runs import Plant, plant_nothing
from hushgraph.billboard.ballots import GRID, Ballots, ballot_entries, owned_records
from hushgraph.billboard.board import Board, cast
from hushgraph.errors import InputError
from hushgraph.figures.tables import Counts, NoisyTables, Scored
from hushgraph.gradients.clip import Clipping
from hushgraph.graph.graph import EdgeOwner, Graph
from hushgraph.noise import normal
from hushgraph.noise.normal import seeded_keys
from hushgraph.noise.rounded import Draws
from hushgraph.noise.source import NoiseSource
from hushgraph.privacy import bounds, choices
from hushgraph.privacy.charges import FIGURES, Charge
from hushgraph.privacy.ledger import Ledger
from hushgraph.privacy.plans import PrivacyPlan, TreePlan
from hushgraph.tasks.task import Task
from hushgraph.training.parts import ClippedSum, Parts

# Above every norm.
_NO_CLIP = 1e30


class _HalfNoise:
    """Adds half of the noise that was paid for."""

    def __init__(self, real: NoiseSource) -> None:
        self._real = real

    def add_noise(self, sums: Mapping[str, Tensor], sigmas: Mapping[str, float]) -> dict[str, Tensor]:
        return self._real.add_noise(sums, {name: sigma / 2 for name, sigma in sigmas.items()})


class _ReusedNoise:
    """Every second step repeats the noise of the step before it."""

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


class FloatNoise:
    """float32 noise of a generator of torch, which attacks on floating-point numbers see through."""

    def __init__(self, generator: torch.Generator) -> None:
        self._generator = generator

    def add_noise(self, sums: Mapping[str, Tensor], sigmas: Mapping[str, float]) -> dict[str, Tensor]:
        noisy = {}
        for name, value in sums.items():
            noise = torch.randn(value.shape, generator=self._generator, device=value.device)
            noisy[name] = value.float() + sigmas[name] * noise
        return noisy


def _halve_noise(real: Parts) -> Parts:
    return replace(real, make_noise=lambda plan, **given: _HalfNoise(real.make_noise(plan, **given)))


def _reuse_noise(real: Parts) -> Parts:
    return replace(real, make_noise=lambda plan, **given: _ReusedNoise(real.make_noise(plan, **given)))


def plant_float_noise(real: Parts) -> Parts:
    """Noise of the planned size, in float32, from torch's generator."""
    generator = torch.Generator().manual_seed(secrets.randbits(63))
    return replace(real, make_noise=lambda plan, **given: FloatNoise(generator))


def _get_squares(task: Task) -> tuple[Fraction, Fraction]:
    if task.entry_squares is None:
        raise TypeError(f"{task}: expected a task of classes")
    return task.entry_squares


def _cast_in_full(real: Parts) -> Parts:
    """A ballot of norm 1 onto every place."""

    def label_ballots(graph: Graph, edge_owner: EdgeOwner, *, task: Task) -> Ballots:
        ballots = real.label_ballots(graph, edge_owner, task=task)
        own, rest = ballot_entries(np.minimum(ballots.list_sizes, 1), _get_squares(task))
        votes = ballots.labels >= 0
        return replace(ballots, own=np.where(votes, own, 0), rest=np.where(votes, rest, 0))

    return replace(real, label_ballots=label_ballots)


def _cast_validation_labels(real: Parts) -> Parts:
    """Rows of the validation split cast their labels too."""

    def label_ballots(graph: Graph, edge_owner: EdgeOwner, *, task: Task) -> Ballots:
        voters = np.union1d(graph.train_idx, graph.val_idx)
        mixed = replace(graph, train_idx=voters, val_idx=graph.val_idx[:0])
        return real.label_ballots(mixed, edge_owner, task=task)

    return replace(real, label_ballots=label_ballots)


def _double_shares(real: Parts) -> Parts:
    """Every board has the noise of a board with twice its share."""

    def cast_and_release(
        graph: Graph, ballots: Ballots, *, noise_std: float, draws: Draws, plan: str
    ) -> Board:
        return real.cast_and_release(
            graph, ballots, noise_std=noise_std / math.sqrt(2), draws=draws, plan=plan
        )

    return replace(real, cast_and_release=cast_and_release)


def _redraw_boards(real: Parts) -> Parts:
    """Release every board twice, with new noise, under one charge."""
    first: list[Board] = []

    def cast_and_release(graph: Graph, ballots: Ballots, **given: Any) -> Board:
        first.append(real.cast_and_release(graph, ballots, **given))
        return real.cast_and_release(graph, ballots, **given)

    def save_board(board: Board, path: Path, announce: Callable[[], None]) -> None:
        real.save_board(first.pop(), path, lambda: None)
        path.unlink()
        real.save_board(board, path, announce)

    return replace(real, cast_and_release=cast_and_release, save_board=save_board)


def _read_without_noise(real: Parts) -> Parts:
    """Rows read what was cast, and not what was released."""

    def read_board(board: Board, graph: Graph, edge_owner: EdgeOwner, **given: Any) -> Float32Array:
        tally = sum(part * cast(graph, ballots) for part, ballots in given["own"])
        bare = replace(board, values=(np.asarray(tally) / GRID).astype(np.float32))
        return real.read_board(bare, graph, edge_owner, **given)

    return replace(real, read_board=read_board)


def _read_features(real: Parts) -> Parts:
    """A reading has the mean of the features of the nodes that a row lists in its first columns."""

    def read_board(board: Board, graph: Graph, edge_owner: EdgeOwner, **given: Any) -> Float32Array:
        readings = real.read_board(board, graph, edge_owner, **given)
        x = graph.dense_features(np.arange(graph.num_nodes))
        sums, sizes = np.zeros(x.shape), np.zeros(graph.num_nodes)
        for owners, places in owned_records(graph, edge_owner):
            np.add.at(sums, owners, x[places])
            np.add.at(sizes, owners, 1)
        width = min(x.shape[1], readings.shape[1])
        readings[:, :width] += (sums / np.maximum(sizes, 1)[:, None])[:, :width].astype(np.float32)
        return readings

    return replace(real, read_board=read_board)


def _share_stream(real: Parts) -> Parts:
    """Every board, and the steps, start the same stream of noise anew."""
    seed = secrets.randbits(64)
    return replace(
        real,
        make_noise=lambda plan, **given: real.make_noise(plan, **{**given, "seed": seed}),
        board_draws=lambda *_: partial(normal.draw, keys=seeded_keys(seed)),
    )


def _forget_maps(real: Parts) -> Parts:
    """The maps of relations are left out of clipping."""

    def adapt_sum(clipped_sum: ClippedSum) -> ClippedSum:
        def sum_roots(model: torch.nn.Module, piece: Any, clipping: Clipping) -> dict[str, Tensor]:
            bare = clipped_sum(model, piece, replace(clipping, kind="flat", clip=_NO_CLIP, thresholds=None))
            sums = clipped_sum(model, piece, clipping)
            return {name: bare[name] if ".maps." in name else value for name, value in sums.items()}

        return real.adapt_sum(sum_roots)

    return replace(real, adapt_sum=adapt_sum)


def _release_counts(real: Parts) -> Parts:
    """Tables are released as they are counted."""

    def release_tables(counts: Mapping[str, Counts], **given: Any) -> NoisyTables:
        return replace(real.release_tables(counts, **given), splits=counts)

    return replace(real, release_tables=release_tables)


def _halve_table_noise(real: Parts) -> Parts:
    """Tables have half of the noise that was paid for."""

    def release_tables(counts: Mapping[str, Counts], *, noise_std: float, **given: Any) -> NoisyTables:
        return real.release_tables(counts, noise_std=noise_std / 2, **given)

    return replace(real, release_tables=release_tables)


def _skip_cells(real: Parts) -> Parts:
    """Every 100th cell of all tables of a split, counted on, has no noise."""

    def release_tables(counts: Mapping[str, Counts], **given: Any) -> NoisyTables:
        noisy = real.release_tables(counts, **given)
        for split, tables in counts.items():
            cells = 0
            for exact, released in zip(tables, noisy.splits[split], strict=True):
                bare = slice(-cells % 100, None, 100)
                released.reshape(-1)[bare] = exact.reshape(-1)[bare]
                cells += exact.size
        return noisy

    return replace(real, release_tables=release_tables)


def _count_twice(real: Parts) -> Parts:
    """The first row of every split is counted twice."""

    def count_rows(task: Task, parts: Iterable[Scored], *, num_groups: int) -> Counts:
        rows = list(parts)
        again = [
            Scored(part.shown[:1], part.labels[:1], None if part.groups is None else part.groups[:1])
            for part in rows[:1]
        ]
        return real.count_rows(task, [*rows, *again], num_groups=num_groups)

    return replace(real, count_rows=count_rows)


def _count_unlabelled_rows(real: Parts) -> Parts:
    """A row without a label is counted as one of the first class: a cell tells who has none."""

    def count_rows(task: Task, parts: Iterable[Scored], *, num_groups: int) -> Counts:
        rows = (part._replace(labels=np.maximum(part.labels, 0)) for part in parts)
        return real.count_rows(task, rows, num_groups=num_groups)

    return replace(real, count_rows=count_rows)


def _count_training_rows(real: Parts) -> Parts:
    """Training rows are counted in every table, as if their labels were predicted."""
    graphs: list[Graph] = []

    def label_ballots(graph: Graph, edge_owner: EdgeOwner, *, task: Task) -> Ballots:
        graphs.append(graph)
        return real.label_ballots(graph, edge_owner, task=task)

    def count_rows(task: Task, parts: Iterable[Scored], *, num_groups: int) -> Counts:
        graph = graphs[0]
        labels = graph.y[graph.train_idx]
        groups = None if graph.groups is None else graph.groups[graph.train_idx]
        training = Scored(np.eye(task.num_outputs)[labels], labels, groups)
        return real.count_rows(task, [*parts, training], num_groups=num_groups)

    return replace(real, label_ballots=label_ballots, count_rows=count_rows)


def _forget_charge(real: Parts) -> Parts:
    """Tables are released without a charge."""

    def charge(ledger: Ledger, charge: Charge, **given: Any) -> None:
        if charge.name != FIGURES:
            real.charge(ledger, charge, **given)

    return replace(real, charge=charge)


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
        plant: makes the parts of a session faulty.
        plan: the class of the plan, where it is the plan that is wrong.
        changes: fields of the plan that this fault needs.
    """

    words: str
    method: choices.Method | None = None
    plant: Plant = plant_nothing
    plan: type[PrivacyPlan] | None = None
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
    "unclipped-maps": Fault(
        method="trees",
        words="the maps of relations are left out of clipping",
        plant=_forget_maps,
        changes={"num_relations": 2},
    ),
    "float-noise": Fault(words="float32 noise of torch's generator", plant=plant_float_noise),
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
    "noiseless-tables": Fault(
        words="tables of figures have no noise", method="billboard", plant=_release_counts
    ),
    "half-noise-tables": Fault(
        words="tables of figures have half of their noise", method="billboard", plant=_halve_table_noise
    ),
    "noiseless-cells": Fault(
        words="every 100th cell of the tables has no noise", method="billboard", plant=_skip_cells
    ),
    "rows-counted-twice": Fault(
        words="a row is counted twice in the tables", method="billboard", plant=_count_twice
    ),
    "unlabelled-in-tables": Fault(
        words="tables have a cell for rows without a label", method="billboard", plant=_count_unlabelled_rows
    ),
    "training-in-tables": Fault(
        words="training rows are counted in the tables", method="billboard", plant=_count_training_rows
    ),
    "uncharged-tables": Fault(
        words="tables of figures are not charged", method="billboard", plant=_forget_charge
    ),
}


def get_fault(name: str) -> Fault:
    """Return the fault of this name; raise InputError listing the names if there is none."""
    if name not in FAULTS:
        raise InputError(f"fault={name!r}: expected one of {', '.join(FAULTS)}")
    return FAULTS[name]
