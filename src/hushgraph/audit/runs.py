"""Real runs under an attacker's eyes: the session of `hushgraph.train`, its ledger, boards, steps and folder.

This is the one place of the audit that starts a session. What is released is noted where it leaves: a board
where it is made visible, the noisy sum of a step in an optimiser of the attacker's own. Faults are planted on
top of what notes, so that whatever they let out is noted too.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numba
import numpy as np
import torch
from torch import Tensor, nn

from hushgraph.billboard.ballots import Ballots
from hushgraph.billboard.board import Board
from hushgraph.figures.tables import Counts, NoisyTables
from hushgraph.gradients.clip import Clipping
from hushgraph.graph.graph import Graph
from hushgraph.noise.counts import NoisyCounts
from hushgraph.privacy.ledger import Ledger
from hushgraph.privacy.plans import PrivacyPlan
from hushgraph.runs.config import TrainingConfig
from hushgraph.runs.consistency import BOARD_FILES
from hushgraph.runs.folder import RunFolder
from hushgraph.training.boards import make_ballots
from hushgraph.training.distributed import Group
from hushgraph.training.memory import GraphView, Memory
from hushgraph.training.parts import ClippedSum, Parts
from hushgraph.training.running import Begin, begin_in_memory, run_plan
from hushgraph.training.steps import build_trainer
from hushgraph.training.trainer import State, Trainer

Weights = dict[str, Tensor]
Plant = Callable[[Parts], Parts]
"""A planted fault: from real parts to faulty ones."""

_CPU = torch.device("cpu")
_NEVER = 1 << 60


def plant_nothing(real: Parts) -> Parts:
    """Plant no fault: return the real parts."""
    return real


def choose_config(plan: PrivacyPlan, *, hidden: int, model: str = "mlp", **settings: Any) -> TrainingConfig:
    """Build the configuration of a run whose weights are set by the attacker's optimiser."""
    usual = {"schedule": "constant", "average": 0.0, "resample_every": _NEVER, "evaluate_every": _NEVER}
    name: Any = "mlp" if plan.num_layers == 0 else model
    return TrainingConfig(model=name, optimizer="own", hidden=hidden, **{**usual, **settings})


@dataclass(eq=False)
class Seen:
    """What a run released, and the values it was computed from.

    Attributes:
        folder: of the run.
        parts: what the session called, faults included.
        boards: every board that was made visible, with its place in the run.
        sums: the released noisy sum of every step.
        starts: the weights that every step started from.
        moved: the weights that plain gradient descent makes of a step.
        tables: all tables of figures that were made visible.
        charged: releases and steps on disk in the ledger, at each release of a board, a step or figures.
        ballots: what was cast onto every board that was made.
        exact: the clipped sum of every step, before noise.
        counts: the counts of evaluated rows, by split, before noise.
        batches: the pieces of a batch of every step.
    """

    folder: RunFolder
    parts: Parts
    boards: list[tuple[int, Board]] = field(default_factory=list)
    tables: list[NoisyTables] = field(default_factory=list)
    sums: list[Weights] = field(default_factory=list)
    starts: list[Weights] = field(default_factory=list)
    moved: list[Weights] = field(default_factory=list)
    charged: list[tuple[str, int, int]] = field(default_factory=list)
    ballots: list[Ballots] = field(default_factory=list)
    exact: list[Weights] = field(default_factory=list)
    counts: list[Mapping[str, Counts]] = field(default_factory=list)
    batches: list[list[Any]] = field(default_factory=list)

    def released_boards(self, count: int) -> list[Board]:
        """The first boards as the run reads them: the last that was visible at each place."""
        last = dict(self.boards)
        return [replace(last[place], values=last[place].values.copy()) for place in range(count)]


@dataclass(eq=False)
class _Notes:
    """Record what a session releases.

    Attributes:
        seen: filled while the session runs.
        in_detail: also note the ledger on disk, ballots, exact sums and batches.
        is_over: whether the session has ended.
    """

    seen: Seen
    in_detail: bool
    is_over: bool = False

    def parts(self) -> Parts:
        """Return the real parts, each of which is recorded."""
        real = Parts()
        if not self.in_detail:
            return replace(real, save_board=self._note_board(real))
        return replace(
            real,
            save_board=self._note_board(real),
            cast_and_release=self._note_ballots(real),
            adapt_sum=self._note_sums,
            release_tables=self._note_counts(real),
            save_counts=self._note_tables(real),
        )

    def _note_board(self, real: Parts) -> Callable[[Board, Path, Callable[[], None]], None]:
        def save_board(board: Board, path: Path, announce: Callable[[], None]) -> None:
            place = BOARD_FILES.index(path.name)
            self.seen.boards.append((place, replace(board, values=board.values.copy())))
            self.note_charges("board")
            real.save_board(board, path, announce)

        return save_board

    def _note_ballots(self, real: Parts) -> Any:
        def cast_and_release(graph: Graph, ballots: Ballots, **given: Any) -> Board:
            self.seen.ballots.append(ballots)
            return real.cast_and_release(graph, ballots, **given)

        return cast_and_release

    def _note_counts(self, real: Parts) -> Any:
        def release_tables(counts: Mapping[str, Counts], **given: Any) -> NoisyTables:
            if not self.is_over:
                self.seen.counts.append(counts)
            return real.release_tables(counts, **given)

        return release_tables

    def _note_tables(self, real: Parts) -> Callable[[NoisyCounts, Path, Callable[[], None]], None]:
        def save_counts(counts: NoisyCounts, path: Path, announce: Callable[[], None]) -> None:
            if isinstance(counts, NoisyTables):
                self.seen.tables.append(counts)
                self.note_charges("figures")
            real.save_counts(counts, path, announce)

        return save_counts

    def _note_sums(self, clipped_sum: ClippedSum) -> ClippedSum:
        def noted(model: nn.Module, piece: Any, clipping: Clipping) -> Weights:
            sums = clipped_sum(model, piece, clipping)
            if self.is_over:
                return sums
            if len(self.seen.exact) == len(self.seen.sums):
                self.seen.exact.append({})
                self.seen.batches.append([])
            total = self.seen.exact[-1]
            for name, value in sums.items():
                total[name] = total.get(name, 0.0) + value.detach().double()
            self.seen.batches[-1].append(piece)
            return sums

        return noted

    def note_charges(self, kind: str) -> None:
        """What the ledger on disk shows now."""
        if self.in_detail:
            ledger = Ledger.open(self.seen.folder.ledger_path, read_only=True)
            self.seen.charged.append((kind, ledger.releases_charged, ledger.steps_charged))


class Witness(torch.optim.SGD):
    """An optimiser of the attacker's: notes every released sum, then sets the weights of the next step.

    A guarantee on the noisy sums holds whatever an optimiser makes of them.

    Args:
        parameters: of the model, in order.
        names: of the parameters.
        phases: the weights of step t are those of phase t modulo their number; without any, plain descent.
        notes: where to note.
        batch_size: what the released sums were divided by.
    """

    def __init__(
        self, parameters: Iterator[Tensor], names: list[str], phases: list[Weights], notes: _Notes, size: int
    ) -> None:
        super().__init__(parameters, lr=1.0 if phases else 0.01)
        self._named = dict(zip(names, self.param_groups[0]["params"], strict=True))
        self._phases, self._notes, self._batch_size = phases, notes, size
        self._use_phase()

    def _use_phase(self) -> None:
        if self._phases:
            use(self._named, self._phases[len(self._notes.seen.sums) % len(self._phases)])

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        seen = self._notes.seen
        seen.starts.append(_copy(self._named))
        self._notes.note_charges("step")
        grads = {name: parameter.grad for name, parameter in self._named.items()}
        seen.sums.append({name: g.double() * self._batch_size for name, g in grads.items() if g is not None})
        super().step()
        seen.moved.append(_copy(self._named))
        self._use_phase()


@contextlib.contextmanager
def watch_run(
    graph: Graph,
    plan: PrivacyPlan,
    config: TrainingConfig,
    *,
    phases: list[Weights] | None = None,
    plant: Plant = plant_nothing,
    in_detail: bool = False,
    begin: Begin = begin_in_memory,
) -> Iterator[Seen]:
    """One run of the real session on made data, in a temporary folder that goes with the context.

    Args:
        graph, plan, config: of the run.
        phases: the weights of the steps in turn; plain gradient descent decides them unless given.
        plant: a fault.
        in_detail: also note ballots, exact sums, batches and the ledger on disk.
        begin: where rows are, and what is released before boards and steps.
    """
    with tempfile.TemporaryDirectory(prefix="hushgraph-audit-") as path:
        data = "made for an audit"
        folder = RunFolder.describe(path, graph, plan, config, data=data)
        seen = Seen(folder=folder, parts=Parts())
        notes = _Notes(seen, in_detail)
        seen.parts = plant(notes.parts())
        names = [name for name, _ in folder.build_model().named_parameters()]

        def make_optimizer(parameters: Any) -> Any:
            return Witness(parameters, names, phases or [], notes, plan.batch_size)

        with quiet_process():
            own: dict[str, Any] = {"begin": begin, "optimizer": make_optimizer, "parts": seen.parts}
            run_plan(path, graph, plan, config, data=data, **own)
        notes.is_over = True
        yield seen


@dataclass(frozen=True, kw_only=True, eq=False)
class Rerun:
    """What a session computes from given boards and weights, before noise, on the rows of some world.

    Attributes:
        seen: the run whose boards and folder are used.
        graph: the rows of this world.
    """

    seen: Seen
    graph: Graph

    def ballots(self, place: int, labels: Ballots | None) -> Ballots:
        """What the rows of this world cast onto a board; `labels` are the ballots of the first, if known."""
        return make_ballots(self.seen.folder, self.graph, place, labels=labels, parts=self.seen.parts)

    def view(self, place: int) -> GraphView:
        """What the rows of this world see: their features and, with boards, their readings."""
        count = min(place + 1, self.seen.folder.num_boards)
        boards, parts = self.seen.released_boards(count), self.seen.parts
        return Memory(self.seen.folder, self.graph, boards=boards, parts=parts, device=_CPU).read(place)

    def trainer(self, view: GraphView) -> Trainer:
        """The trainer of the session, with whole batches and no noise."""
        folder, model = self.seen.folder, self.seen.folder.build_model()
        folder = replace(folder, plan=replace(folder.plan, batch_size=folder.plan.num_train_nodes))
        state = State(
            model, torch.optim.SGD(model.parameters(), lr=1.0), _copy(dict(model.named_parameters()))
        )
        common: dict[str, Any] = {"group": Group(), "parts": self.seen.parts}
        steps = GraphView(folder, view.graph).build_steps(state, key=0, **common)
        return build_trainer(folder, state, steps, ledger=None, noise=None, **common)

    def clipped_sums(self, view: GraphView, phases: list[Weights]) -> list[Weights]:
        """The clipped sum over all roots, for each setting of the weights."""
        trainer = self.trainer(view)
        with contextlib.closing(trainer.batches.iterate(0)) as batches:
            pieces = list(next(batches))
        model, sums = trainer.state.model, []
        for weights in phases:
            use(dict(model.named_parameters()), weights)
            total: Weights = {}
            for piece in pieces:
                for name, value in trainer.clipped_sum(model, piece, trainer.clipping).items():
                    total[name] = total.get(name, torch.zeros(())) + value.double()
            sums.append(total)
        return sums


def use(parameters: dict[str, Tensor], weights: Weights) -> None:
    """Copy weights into parameters."""
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(weights[name])


def _copy(parameters: dict[str, Any]) -> Weights:
    return {name: parameter.detach().clone() for name, parameter in parameters.items()}


def flatten(sums: Weights) -> np.ndarray:
    """Concatenate all values into one float64 vector."""
    return np.concatenate([value.double().numpy().ravel() for value in sums.values()])


@contextlib.contextmanager
def quiet_process() -> Iterator[None]:
    """Use one thread: on tensors this small, threads only wait for each other."""
    before = torch.get_num_threads(), numba.get_num_threads()
    torch.set_num_threads(1)
    numba.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before[0])
        numba.set_num_threads(before[1])
