"""Trials of the boards of a run: cast, released, read and cast again by the code of training, many at a time.

Trials share a call by standing side by side in one graph without an edge between them: ballots, noise and
readings are computed place by place and row by row, so that each copy gets what it would get alone. Every
number has noise of its own.

The attacker knows the code and everything released so far. So it can compute what either world would have
cast next, without the noise, and compares that with what was released.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from hushgraph.audit.board_scene import UNIQUE, BoardScene, repeat_graph
from hushgraph.audit.collaborators import BoardCollaborators
from hushgraph.audit.row_weights import follow_readings, new_row_model
from hushgraph.audit.statistics import Floats
from hushgraph.audit.weights import use
from hushgraph.billboard.ballots import GRID, Ballots, Int64Array, with_predictions
from hushgraph.billboard.board import Board, cast
from hushgraph.billboard.reading import Float32Array
from hushgraph.gradients.batch import RowTable
from hushgraph.graph.graph import Graph
from hushgraph.inference.covered import score_table
from hushgraph.privacy.plans import BillboardPlan
from hushgraph.runs.config import TrainingConfig

_DEFAULTS = TrainingConfig()


@dataclass(frozen=True, kw_only=True)
class Release:
    """What left under one charge: every board, and the two tallies that the attacker compares them with.

    Attributes:
        boards: as released; the last is read.
        tallies: what either world casts, given all boards before.
    """

    boards: list[Board]
    tallies: tuple[Int64Array, Int64Array]

    def log_ratio(self, copies: int, noise_std: float) -> Floats:
        """[copies]: log of how much likelier these boards are in the first world, by the planned noise."""
        there, empty = self.tallies
        apart = ((there - empty) / GRID).reshape(copies, -1)
        middle = ((there + empty) / (2 * GRID)).reshape(copies, -1)
        offset = np.einsum("ij,ij->i", middle, apart)
        total = np.zeros(copies)
        for board in self.boards:
            total += np.einsum("ij,ij->i", board.values.reshape(copies, -1), apart) - offset
        return total / noise_std**2

    @property
    def shift(self) -> float:
        """How far apart the tallies of all copies are, where a ballot has norm 1."""
        apart = self.tallies[0] - self.tallies[1]
        return math.sqrt(float(np.square(apart[apart != 0] / GRID).sum()))


@dataclass(frozen=True, kw_only=True, eq=False)
class BoardTrials:
    """Both worlds, `copies` of each side by side.

    Attributes:
        plan: with as many training nodes as a copy.
        scene: the two graphs.
        boards: the code that makes and reads boards, or a faulty one.
        copies: trials that share a call.
        scale, radius: of the readings.
    """

    plan: BillboardPlan
    scene: BoardScene
    boards: BoardCollaborators
    copies: int
    scale: float = _DEFAULTS.reading_scale
    radius: float = _DEFAULTS.reading_radius

    @cached_property
    def graphs(self) -> tuple[Graph, Graph]:
        if self.copies == 1:
            return self.scene.graphs
        there, empty = (repeat_graph(graph, self.copies) for graph in self.scene.graphs)
        return there, empty

    @cached_property
    def label_ballots(self) -> tuple[Ballots, Ballots]:
        """What rows with labels cast, in either world."""
        plan = self.plan
        there, empty = (
            self.boards.make_ballots(graph, plan.edge_owner, task=graph.task) for graph in self.graphs
        )
        return there, empty

    @cached_property
    def label_tallies(self) -> tuple[Int64Array, Int64Array]:
        """The tallies of the first board: the same in every trial."""
        there, empty = map(cast, self.graphs, self.label_ballots)
        return there, empty

    def first_release(self, world: int, boards: BoardCollaborators) -> Release:
        """The first board of a world, made by `boards`."""
        released = boards.release(self.label_tallies[world], self.plan.board_noise[0])
        return Release(boards=released, tallies=self.label_tallies)

    def read(self, world: int, boards: list[Board], ballots: list[Ballots]) -> Float32Array:
        """The readings of a world, given the boards; `ballots` are what its rows cast onto them."""
        return self.boards.read(
            boards,
            self.graphs[world],
            self.plan.edge_owner,
            own=ballots,
            scale=self.scale,
            radius=self.radius,
        )

    def next_ballots(self, world: int, scores: Tensor) -> Ballots:
        """What everybody casts onto the second board, by these scores of the model."""
        return with_predictions(self.label_ballots[world], scores, self.graphs[world].task)

    def score(self, world: int, readings: Float32Array) -> Tensor:
        """The scores of all rows by weights that follow the readings, which the attacker chose."""
        model = new_row_model()
        use(model, follow_readings())
        graph = self.graphs[world]
        with torch.no_grad():
            return score_table(model, graph, RowTable(graph, readings, "cpu", feature_norm=0.0))

    def others(self) -> npt.NDArray[np.bool_]:
        """Every node but the canaries."""
        size = self.scene.graphs[0].num_nodes
        return np.asarray(np.arange(self.copies * size) % size != self.scene.canary)


@dataclass(frozen=True, kw_only=True)
class BoardsSeen:
    """What one call shows of `copies` trials.

    Attributes:
        log_ratios: [copies, boards].
        predictions: [copies], how far the predictions for the witnesses point to the canary's class.
        changed: other rows whose reading or prediction differs between the worlds, given the same boards and
            weights: none, bit for bit, or the theorem does not hold.
        shifts: [boards], by which the tallies of one copy differ, in units of a ballot.
    """

    log_ratios: Floats
    predictions: Floats
    changed: int
    shifts: tuple[float, ...]


def run_boards(trials: BoardTrials, world: int, boards: BoardCollaborators) -> BoardsSeen:
    """All boards of a run in one world, and what everybody is predicted after them.

    Args:
        trials: the worlds.
        world: 0 with the canary's row, 1 without.
        boards: releases; made anew for every call where a fault has a memory.
    """
    plan = trials.plan
    releases = [trials.first_release(world, boards)]
    ballots = [[own] for own in trials.label_ballots]
    changed = 0
    while True:
        read = [release.boards[-1] for release in releases]
        readings = [trials.read(each, read, ballots[each]) for each in (0, 1)]
        scores = [trials.score(each, readings[each]) for each in (0, 1)]
        changed = max(changed, _count_changed(trials, readings, scores))
        if len(releases) == plan.num_boards:
            break
        for each in (0, 1):
            ballots[each].append(trials.next_ballots(each, scores[each]))
        tallies = cast(trials.graphs[0], ballots[0][-1]), cast(trials.graphs[1], ballots[1][-1])
        noise_std = plan.board_noise[len(releases)]
        releases.append(Release(boards=boards.release(tallies[world], noise_std), tallies=tallies))
    pairs = list(zip(releases, plan.board_noise, strict=True))
    return BoardsSeen(
        log_ratios=np.stack([each.log_ratio(trials.copies, noise) for each, noise in pairs], axis=1),
        predictions=_look_at_witnesses(trials, scores[world]),
        changed=changed,
        shifts=tuple(each.shift / math.sqrt(trials.copies) for each in releases),
    )


def _count_changed(trials: BoardTrials, readings: list[Float32Array], scores: list[Tensor]) -> int:
    is_same = (readings[0] == readings[1]).all(axis=1) & (scores[0] == scores[1]).all(dim=1).numpy()
    return int((~is_same & trials.others()).sum())


def _look_at_witnesses(trials: BoardTrials, scores: Tensor) -> Floats:
    """[copies]: the mean log-odds of the canary's class among the predictions for the witnesses."""
    logs = scores.double().log_softmax(1).view(trials.copies, -1, scores.shape[1])
    seen = logs[:, torch.from_numpy(trials.scene.witnesses)]
    others = [number for number in range(scores.shape[1]) if number != UNIQUE]
    return np.asarray((seen[..., UNIQUE] - seen[..., others].mean(-1)).mean(1))
