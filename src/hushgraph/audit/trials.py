"""Trials: real runs with many canaries side by side, about half of them there, and what they show.

The attacker knows the code and everything released so far. So it computes what either world would have
released next, without the noise, by the code of the session (`runs.Rerun`), and compares that with what was
released.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch

from hushgraph.audit.likelihood import Line
from hushgraph.audit.runs import Plant, Rerun, Seen, Weights, choose_config, flatten, watch_run
from hushgraph.audit.scene import KEY_SEED, Scene, move_plan
from hushgraph.audit.statistics import Floats
from hushgraph.audit.watched import segment_of
from hushgraph.audit.weights import find_outputs
from hushgraph.billboard.ballots import GRID, Ballots
from hushgraph.billboard.board import Board, cast
from hushgraph.figures.tables import choose_grids
from hushgraph.graph.columns import Columns
from hushgraph.graph.graph import Graph
from hushgraph.inference.in_memory import scores
from hushgraph.privacy.plans import PrivacyPlan
from hushgraph.runs.config import TrainingConfig
from hushgraph.runs.folder import RunFolder
from hushgraph.sampling.lists import BoundedLists
from hushgraph.training.evaluation import count_tables, make_tables
from hushgraph.training.memory import GraphView
from hushgraph.training.parts import Parts

Observer = Callable[[int], None]
MakePhases = Callable[[torch.nn.Module], list[Weights]]
# The weights of the first layer: a column for every copy.
_FIRST_LAYER = "encoder.0.weight"


def fix_keys(plant: Plant) -> Plant:
    """The fault, in a run whose lists have the keys that the attacker chose."""

    def planted(real: Parts) -> Parts:
        def make_lists(graph: Graph, plan: PrivacyPlan, _: int) -> BoundedLists:
            return real.make_lists(graph, plan, KEY_SEED)

        return plant(replace(real, make_lists=make_lists))

    return planted


@dataclass(frozen=True, kw_only=True, eq=False)
class Shown:
    """What runs show of both worlds.

    Attributes:
        there, empty: [statistics, trials]; the log-likelihood ratio of everything first, then, of boards,
            that of the first board, how far the predictions for witnesses point to the canary's class, and
            the log-likelihood ratio of tables of figures.
        changed: other rows whose reading or prediction differs between the worlds, given the same boards and
            weights: none, bit for bit, or the theorem does not hold.
        shift: how far apart the worlds are, in units of the noise.
    """

    there: Floats
    empty: Floats
    changed: int
    shift: float

    def pair(self, statistic: int) -> tuple[Floats, Floats]:
        """Both worlds, as many trials of each."""
        trials = min(self.there.shape[1], self.empty.shape[1])
        return self.there[statistic, :trials], self.empty[statistic, :trials]

    @classmethod
    def join(cls, parts: list[Shown]) -> Shown:
        """Put the trials of several runs together."""
        return cls(
            there=np.concatenate([part.there for part in parts], axis=1),
            empty=np.concatenate([part.empty for part in parts], axis=1),
            changed=max(part.changed for part in parts),
            shift=parts[0].shift,
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class Stage:
    """A scene, ready for runs.

    Attributes:
        plan: of one trial, on the rows of the scene.
        scene: the canaries.
        config: of the runs.
        phases: settings of the weights; step t uses phase t modulo their number.
        plant: the fault, if any.
        repeats: trials of each canary in one run, one behind the other; boards are made once a run.
    """

    plan: PrivacyPlan
    scene: Scene
    config: TrainingConfig
    phases: list[Weights]
    plant: Plant
    repeats: int = 1

    @classmethod
    def of(
        cls,
        plan: PrivacyPlan,
        scene: Scene,
        make_phases: MakePhases,
        *,
        plant: Plant,
        hidden: int,
        model: str = "mlp",
        repeats: int = 1,
        **settings: Any,
    ) -> Stage:
        """Choose everything that follows from plan and scene; `settings` are those of the configuration."""
        plan = move_plan(plan, scene)
        config = choose_config(plan, hidden=hidden, model=model, **settings)
        folder = RunFolder.describe("", scene.graphs[0], plan, config, data="")
        phases = make_phases(folder.build_model())
        return cls(
            plan=plan,
            scene=scene,
            config=config,
            phases=phases,
            plant=fix_keys(plant),
            repeats=repeats,
        )

    @property
    def trials_per_run(self) -> int:
        """In each world."""
        return max(1, self.scene.copies * self.repeats // 2)

    def run(self, rng: np.random.Generator) -> Shown:
        """One run; where there is one canary, one run of each world."""
        if self.scene.copies == 1:
            there, empty = (self._run_world(np.array([is_there])) for is_there in (True, False))
            return replace(there, empty=empty.empty, changed=max(there.changed, empty.changed))
        # Exactly half of them.
        is_there = rng.permutation(self.scene.copies) < self.scene.copies // 2
        return self._run_world(is_there)

    def _run_world(self, is_there: np.ndarray) -> Shown:
        plan = replace(self.plan, steps=self.plan.steps * self.repeats)
        graph = self.scene.graph(is_there)
        schedule = [self.phases[step % len(self.phases)] for step in range(self.plan.steps)]
        with watch_run(graph, plan, self.config, phases=schedule, plant=self.plant) as seen:
            attacker = Attacker(stage=self, seen=seen, graph=graph)
            statistics = attacker.statistics()
            shift, changed = math.hypot(*attacker.shifts()), attacker.count_changed()
        # [statistics, copies, repeats]
        there, empty = (statistics[:, mask].reshape(len(statistics), -1) for mask in (is_there, ~is_there))
        return Shown(there=there, empty=empty, changed=changed, shift=shift)

    def view(self, sums: Weights) -> Floats:
        """[copies, width]: the part of a sum that is about each copy."""
        if self.scene.copies == 1:
            return flatten(sums)[None]
        return np.asarray(sums[_FIRST_LAYER].double().numpy()[:, : self.scene.copies].T)


@dataclass(frozen=True, kw_only=True, eq=False)
class Attacker:
    """What one run let out, beside what either world would have let out.

    Attributes:
        stage, seen: the run, and what it let out.
        graph: its data.
    """

    stage: Stage
    seen: Seen
    graph: Graph

    @cached_property
    def worlds(self) -> tuple[Rerun, Rerun]:
        there, empty = (Rerun(seen=self.seen, graph=graph) for graph in self.stage.scene.graphs)
        return there, empty

    @cached_property
    def views(self) -> list[tuple[GraphView, GraphView]]:
        """What rows see in either world, after each board; once without boards."""
        places = range(max(1, self.seen.folder.num_boards))
        return [(self.worlds[0].view(place), self.worlds[1].view(place)) for place in places]

    @cached_property
    def lines(self) -> list[list[Line]]:
        """For every segment of the run and every phase, where both worlds are."""
        stage, scene = self.stage, self.stage.scene
        by_segment = []
        for pair in self.views:
            trainer = self.worlds[0].trainer(pair[0])
            named = {name: torch.full_like(p, trainer.sigmas[name]) for name, p in stage.phases[0].items()}
            sigmas = stage.view(named)[0]
            sums = [
                world.clipped_sums(view, stage.phases) for world, view in zip(self.worlds, pair, strict=True)
            ]
            by_segment.append(
                [
                    Line.between(stage.view(there), stage.view(empty), sigmas, scene.roots)
                    for there, empty in zip(*sums, strict=True)
                ]
            )
        return by_segment

    @cached_property
    def tallies(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """What either world casts onto every board, given all boards before."""
        tallies: list[tuple[np.ndarray, np.ndarray]] = []
        labels: list[Ballots | None] = [None, None]
        for place in range(self.seen.folder.num_boards):
            cast_here = []
            for number, world in enumerate(self.worlds):
                ballots = world.ballots(place, labels[number])
                labels[number] = labels[number] or ballots
                cast_here.append(cast(world.graph, ballots))
            tallies.append((cast_here[0], cast_here[1]))
        return tallies

    def statistics(self) -> Floats:
        """[statistics, copies, repeats], as in `Shown`."""
        steps = self._compare_steps()
        if not self.seen.folder.num_boards:
            return steps[None]
        boards = [self._compare_board(board, place) for place, board in self.seen.boards]
        first = np.sum([b for (place, _), b in zip(self.seen.boards, boards, strict=True) if not place], 0)
        tables = self._compare_tables()
        total = np.sum(boards, axis=0) + steps[:, 0] + tables
        return np.stack([total, first, self._look_at_witnesses(), tables])[..., None]

    def _compare_steps(self) -> Floats:
        """[copies, repeats]: the log-likelihood ratio of the steps of every trial."""
        stage = self.stage
        ratios = np.zeros((stage.scene.copies, stage.repeats))
        for step, released in enumerate(self.seen.sums):
            line = self._find_line(step)
            ratio = line.log_ratio(stage.view(released), stage.plan.sampling_rate)
            ratios[:, min(step // stage.plan.steps, stage.repeats - 1)] += ratio
        return ratios

    def _find_line(self, step: int) -> Line:
        # A faulty ledger allows steps beyond the plan.
        lines = self.lines[segment_of(self.seen.folder.plan, step)]
        return lines[step % self.stage.plan.steps % len(self.stage.phases)]

    def _compare_board(self, board: Board, place: int) -> Floats:
        """[copies]: the log-likelihood ratio of a board that was visible."""
        scene, noise_std = self.stage.scene, self.stage.plan.board_noise[place]
        there, empty = (scene.by_copy(tally) / GRID for tally in self.tallies[place])
        seen = scene.by_copy(board.values).astype(np.float64)
        return np.asarray(((seen - (there + empty) / 2) * (there - empty)).sum(axis=1) / noise_std**2)

    def _compare_tables(self) -> Floats:
        """[copies]: the log-likelihood ratio of tables in which every canary is a group; 0 without tables.

        They are made once more, as the session makes them: its own tables count all canaries together.
        """
        folder, parts, copies = self.seen.folder, self.seen.parts, self.stage.scene.copies
        if not (folder.plan.num_tables and self.stage.scene.is_evaluated):
            return np.zeros(copies)
        named = Columns(group={"canary": [str(copy) for copy in range(copies)]})
        folder, last = replace(folder, columns=named), len(self.views) - 1
        model = self._load_model()
        there, empty = (count_tables(folder, view, model, parts=parts) for view in self.views[last])
        view = Rerun(seen=self.seen, graph=self.graph).view(last)
        released = make_tables(folder, view, model, parts=parts).splits
        ratios = np.zeros(copies)
        grids = choose_grids(folder.task, by_person=folder.plan.protects == "person")
        for split, tables in released.items():
            counted = zip(grids, tables, there[split], empty[split], strict=True)
            for grid, seen, with_row, without in counted:
                apart = (seen - (with_row + without) / 2) * (with_row - without)
                noise = folder.plan.table_noise * grid
                ratios += apart.reshape(copies, -1).sum(axis=1) / noise**2
        return ratios

    def _look_at_witnesses(self) -> Floats:
        """[copies]: the mean log-odds of the canary's label among the predictions for the witnesses.

        Against the mean of the other outputs, where there are some; of a number it is the number itself.
        """
        outputs = self._scores(0)[torch.from_numpy(self.stage.scene.witnesses)].double()
        right, _ = find_outputs(self.stage.scene.task)
        others = [number for number in range(outputs.shape[-1]) if number != right]
        against = outputs[..., others].mean(-1) if others else 0.0
        return np.asarray((outputs[..., right] - against).mean(1))

    def _scores(self, world: int) -> torch.Tensor:
        """The scores of all rows of a world, by the final weights."""
        with torch.no_grad():
            return scores(self._load_model(), self.views[-1][world].graph, depth=0)

    def _load_model(self) -> torch.nn.Module:
        """The model with the final weights."""
        model = self.seen.folder.build_model().eval()
        self.seen.folder.load_weights(model)
        return model

    def count_changed(self) -> int:
        """Rows other than the canaries' whose reading or prediction differs between the worlds."""
        if not self.seen.folder.num_boards:
            return 0
        nodes = np.arange(self.stage.scene.graphs[0].num_nodes)
        is_other = ~np.isin(self.stage.scene.owners, self.stage.scene.canaries)
        differs = np.zeros(len(nodes), np.bool_)
        for pair in self.views:
            there, empty = (view.graph.features.take(nodes).dense for view in pair)
            differs |= (there != empty).any(axis=1)
        return int((differs & is_other).sum())

    def shifts(self) -> list[float]:
        """How far apart the worlds of one copy are at every release, in units of the noise."""
        stage, scene = self.stage, self.stage.scene
        shifts = [
            float(np.sqrt(np.square(scene.by_copy(there - empty)[0] / GRID).sum())) / noise
            for (there, empty), noise in zip(self.tallies, stage.plan.board_noise, strict=True)
        ]
        shifts += [float(self._find_line(step).shift[0]) for step in range(stage.plan.steps)]
        return shifts
