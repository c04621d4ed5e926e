"""Whole runs, one at a time, nothing remembered: boards are read, and what is read decides gradients.

Every trial casts, releases, reads, trains, casts again and trains again. The rows of a crowd read a place of
the canary's, and the gradient of each points where its reading points. Given the boards, those readings are
the same in both worlds; if they are not, the sum turns around, and few trials are needed to see it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Literal

import numpy as np
from torch import Tensor, nn

from hushgraph.audit.board_scene import BoardScene, move_billboard, plant_crowd
from hushgraph.audit.board_trials import BoardTrials, Release
from hushgraph.audit.collaborators import Collaborators, Plant
from hushgraph.audit.row_weights import copy_weights, point_at_readings
from hushgraph.audit.row_world import RowWorld, new_row_batches
from hushgraph.audit.statistics import Floats
from hushgraph.audit.trials import (
    CONSTANT,
    FreeLedger,
    Observer,
    RecordSums,
    make_clipping,
    quiet_process,
)
from hushgraph.audit.weights import Weights, use
from hushgraph.billboard.ballots import GRID, Ballots
from hushgraph.billboard.board import cast
from hushgraph.billboard.reading import Float32Array
from hushgraph.gradients.batch import RowTable
from hushgraph.noise.source import NoiseSource
from hushgraph.privacy.plans import BillboardPlan
from hushgraph.sampling.random import RandomSource
from hushgraph.training.optimizers import SGD
from hushgraph.training.trainer import State, Trainer

MOST_STEPS = 4
# Public settings under which a reading outweighs the constant inputs of the network.
_SCALE, _RADIUS = 1e3, 1e6
# Residuals that agree to the digits of a float32 are equal.
_EQUAL = 1e-10


@dataclass(frozen=True, kw_only=True)
class SeenAnew:
    """Two statistics of every trial of one world.

    Attributes:
        log_ratios: [trials], log of how much likelier all releases are with the row, by the planned noise.
        differences: [trials], how much more alike the noise of two charges is if the row is there.
    """

    log_ratios: Floats
    differences: Floats


@dataclass(frozen=True, kw_only=True, eq=False)
class AnewTrials:
    """Both worlds of whole runs.

    Attributes:
        plan: with as many training nodes as the scene, and few steps.
        scene: the two graphs.
        plant: the fault, if any.
    """

    plan: BillboardPlan
    scene: BoardScene
    plant: Plant

    @classmethod
    def of(cls, plan: BillboardPlan, plant: Plant) -> AnewTrials:
        """For a plan of any number of steps; the first of them are attacked, under their own claim."""
        scene = plant_crowd(plan)
        moved = move_billboard(plan, scene)
        return cls(plan=replace(moved, steps=min(plan.steps, MOST_STEPS)), scene=scene, plant=plant)

    def run(self, world: int, *, trials: int, seed: int | None, observer: Observer | None) -> SeenAnew:
        """So many runs of one world, each from the beginning."""
        stage = RowWorld(
            graph=self.scene.graphs[world],
            plan=self.plan,
            model="billboard",
            key_seed=0,
            phases=point_at_readings(),
        )
        rng, model, clipped_sum = stage.new_rng(seed), stage.new_model(), stage.new_clipped_sum()
        lists = stage.collaborators(None).make_lists
        seen = []
        with quiet_process():
            for _ in range(trials):
                real = Collaborators(clipped_sum=clipped_sum, noise=stage.new_noise(None), make_lists=lists)
                seen.append(_Run(self, world, self.plant(real), rng, model).release_all())
                if observer is not None:
                    observer(1)
        ratios, differences = np.array(seen).T
        return SeenAnew(log_ratios=ratios, differences=differences)


class _Schedule(SGD):
    """Sets the weights of the next step, whatever was released."""

    def __init__(self, model: nn.Module, phases: list[Weights], first_step: int) -> None:
        super().__init__(model.parameters(), lr=1.0)
        self._model, self._phases, self._step = model, phases, first_step
        use(model, phases[first_step % len(phases)])

    def step(self) -> None:
        self._step += 1
        use(self._model, self._phases[self._step % len(self._phases)])


@dataclass(eq=False)
class _KeepReleased:
    """Noise that keeps what it was given and what was released."""

    real: NoiseSource
    sums: list[Weights] = field(default_factory=list)
    released: list[Weights] = field(default_factory=list)
    guarantee: Literal["none"] = "none"

    def add_noise(self, sums: Mapping[str, Tensor], sigmas: Mapping[str, float]) -> dict[str, Tensor]:
        self.sums.append(dict(sums))
        noisy = self.real.add_noise(sums, sigmas)
        self.released.append(noisy)
        return noisy


class _Run:
    """One run of one world, and what the attacker computes beside it."""

    def __init__(
        self, stage: AnewTrials, world: int, given: Collaborators, rng: RandomSource, model: nn.Module
    ) -> None:
        self._plan, self._world, self._given, self._rng = stage.plan, world, given, rng
        self._boards = BoardTrials(
            plan=stage.plan, scene=stage.scene, boards=given.boards, copies=1, scale=_SCALE, radius=_RADIUS
        )
        self._model, self._phases = model, point_at_readings()
        self._ratio = 0.0
        # What is left of every release if one world's value is taken off, in units of the noise.
        self._residuals: tuple[list[Floats], list[Floats]] = ([], [])

    def release_all(self) -> tuple[float, float]:
        """Boards and steps in turn; return both statistics."""
        plan, boards = self._plan, self._boards
        ballots: list[list[Ballots]] = [[own] for own in boards.label_ballots]
        read = []
        begin = 0
        release = boards.first_release(self._world, self._given.boards)
        for place, end in enumerate(plan.segment_ends):
            self._compare_boards(release, plan.board_noise[place])
            read.append(release.boards[-1])
            readings = [boards.read(each, read, ballots[each]) for each in (0, 1)]
            self._take_steps(readings, begin, end)
            begin = end
            if place + 1 < plan.num_boards:
                for each in (0, 1):
                    ballots[each].append(boards.next_ballots(each, boards.score(each, readings[each])))
                tallies = cast(boards.graphs[0], ballots[0][-1]), cast(boards.graphs[1], ballots[1][-1])
                noisy = self._given.boards.release(tallies[self._world], plan.board_noise[place + 1])
                release = Release(boards=noisy, tallies=tallies)
        return self._ratio, self._compare_noise()

    def _compare_boards(self, release: Release, noise_std: float) -> None:
        self._ratio += float(release.log_ratio(1, noise_std)[0])
        for board in release.boards:
            for residuals, tally in zip(self._residuals, release.tallies, strict=True):
                residuals.append(((board.values - tally / GRID) / board.noise_std).ravel())

    def _take_steps(self, readings: list[Float32Array], begin: int, end: int) -> None:
        """Train the world, and compute the sums of both from the same boards."""
        if begin == end:
            return
        tables = [
            RowTable(graph, seen, "cpu", feature_norm=0.0)
            for graph, seen in zip(self._boards.graphs, readings, strict=True)
        ]
        kept = _KeepReleased(self._given.noise)
        self._train(self._world, tables, kept, self._plan, begin, end)
        whole_batches = replace(self._plan, batch_size=self._plan.num_train_nodes)
        expected = []
        for world in (0, 1):
            if world == self._world and self._plan.sampling_rate == 1:
                expected.append(kept.sums)
                continue
            recorder = RecordSums()
            self._train(world, tables, recorder, whole_batches, begin, end)
            expected.append(recorder.sums)
        rate, sigma = self._plan.sampling_rate, self._plan.sigma_over_clip * self._plan.clip
        for released, there, empty in zip(kept.released, *expected, strict=True):
            seen, first, second = (_flatten(sums) / sigma for sums in (released, there, empty))
            first, second = rate * first, rate * second
            self._ratio += float((seen - (first + second) / 2) @ (first - second))
            for residuals, place in zip(self._residuals, (first, second), strict=True):
                residuals.append(seen - place)

    def _train(
        self,
        world: int,
        tables: list[RowTable],
        noise: NoiseSource,
        plan: BillboardPlan,
        begin: int,
        end: int,
    ) -> None:
        """The steps from `begin` to `end` on the rows of one world."""
        graph = self._boards.graphs[world]
        optimizer = _Schedule(self._model, self._phases, begin)
        trainer = Trainer(
            plan=plan,
            config=CONSTANT,
            state=State(self._model, optimizer, copy_weights(self._model)),
            batches=new_row_batches(graph, tables[world], plan, self._rng),
            clipping=make_clipping(plan),
            ledger=FreeLedger(begin),
            noise=noise,
            clipped_sum=self._given.clipped_sum,
        )
        trainer.run(lambda _: None, until=end)

    def _compare_noise(self) -> float:
        """How much more alike the noise of any two charges is in the first world than in the second."""
        there, empty = (
            sum(math.log(_distance(*pair) + _EQUAL) for pair in combinations(residuals, 2))
            for residuals in self._residuals
        )
        return empty - there


def _distance(first: Floats, second: Floats) -> float:
    size = min(len(first), len(second))
    return float(np.square(first[:size] - second[:size]).mean())


def _flatten(sums: Weights) -> Floats:
    return np.concatenate([value.double().numpy().ravel() for value in sums.values()])
