"""The boards of a run: charged, then made, then read by every row."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from hushgraph.accounting.events import GaussianEvent
from hushgraph.billboard.ballots import Ballots, label_ballots, with_probabilities
from hushgraph.billboard.board import Board, Draws, cast_and_release, load_board, save_board
from hushgraph.billboard.reading import combine_boards, read_scaled
from hushgraph.errors import RunError
from hushgraph.gradients.batch import RowTable
from hushgraph.graph.graph import Graph
from hushgraph.inference.in_memory import WholeGraph, scores
from hushgraph.models.device import release_freed_memory
from hushgraph.noise import normal
from hushgraph.noise.normal import seeded_keys
from hushgraph.privacy import bounds
from hushgraph.privacy.ledger import Ledger
from hushgraph.privacy.plan import BillboardPlan
from hushgraph.runs.folder import BOARD_FILES, ENGINE_FILE, RunFolder

ByLeader = Callable[[Callable[[Ledger], None]], None]
"""Calls what it is given with the ledger, in the process that leads."""


@dataclass(eq=False)
class Boards:
    """The boards of a run, one after another as its steps come to them.

    Attributes:
        folder, graph: of the run.
        halfway: the weights that the ballots of a second board come from; read from their file unless known.
        boards: those that are made or loaded and not read yet; they are written over.
    """

    folder: RunFolder
    graph: Graph
    halfway: Mapping[str, Tensor] | None = None
    boards: list[Board] = field(default_factory=list)
    _ballots: list[Ballots] = field(default_factory=list)
    _readings: npt.NDArray[np.float32] | None = None

    def read(self, place: int, device: torch.device, *, by_leader: ByLeader | None = None) -> RowTable:
        """Own features of every row, and its own reading of all boards up to this one.

        Args:
            place: of the last board to read.
            device: where to compute with the rows.
            by_leader: with it, the board is made first, unless it is there.
        """
        if by_leader is not None:
            by_leader(lambda ledger: self._make(ledger, place))
        self._catch_up(num_boards=place + 1, num_ballots=place + 1)
        plan, config = get_billboard_plan(self.folder), self.folder.config
        # Those of the boards before are as large as the new ones.
        self._readings = None
        # A board is kept in its file until it is read again.
        board, parts = combine_boards(self.boards[: place + 1], in_place=True)
        self.boards = []
        readings = read_scaled(
            board,
            self.graph,
            plan.edge_owner,
            own=list(zip(parts, self._ballots, strict=False)),
            scale=config.reading_scale,
            radius=config.reading_radius,
        )
        del board
        if place + 1 < self.folder.num_boards:
            self._readings = readings
        else:
            self._ballots = []
        release_freed_memory()
        return RowTable(self.graph, readings, device, feature_norm=config.feature_norm)

    def _make(self, ledger: Ledger, place: int) -> None:
        """Charge a board, then cast, release and write it, unless it is there.

        Guarantees:
            The charge is on disk before the tally is looked at. A board that is on disk is never made again.
            Until it is on disk nothing of it has left this process, so a board that a kill prevented may be
            made under the charge that paid for it.
        """
        folder, graph, plan = self.folder, self.graph, get_billboard_plan(self.folder)
        if (folder.path / ENGINE_FILE).exists():
            raise RunError(f"run={folder.path}: an engine makes its board; go on with the same engine")
        path = folder.path / BOARD_FILES[place]
        if path.exists():
            return
        draws, event = _choose_draws(folder.config.seed, place), _board_event(plan, place)
        self._catch_up(num_boards=0, num_ballots=place + 1)
        # They were for these ballots.
        self._readings = None
        if ledger.boards_charged <= place:
            ledger.charge(event)
        board = cast_and_release(
            graph,
            self._ballots[place],
            noise_std=plan.board_noise[place],
            draws=draws,
            plan=plan.fingerprint(),
        )
        save_board(board, path)
        release_freed_memory()
        if len(self.boards) == place:
            self.boards.append(board)

    def _catch_up(self, *, num_boards: int, num_ballots: int) -> None:
        """Load boards that were made elsewhere, by an earlier session or by the process that leads."""
        folder, graph = self.folder, self.graph
        for place in range(len(self.boards), num_boards):
            path, plan = folder.path / BOARD_FILES[place], folder.plan.fingerprint()
            self.boards.append(load_board(path, plan=plan))
        for place in range(len(self._ballots), num_ballots):
            known = self._readings, self.halfway
            labels = self._ballots[0] if self._ballots else None
            self._ballots.append(make_ballots(folder, graph, place, *known, labels=labels))


def _choose_draws(seed: int | None, place: int) -> Draws:
    """Draws of the operating system's; of a seeded run, such as can be drawn again."""
    if seed is None:
        return normal.draw
    # Apart from the stream of the steps, which starts from the seed itself, and from that of another board.
    return partial(normal.draw, keys=seeded_keys(f"board {place} of {seed}"))


def make_ballots(
    folder: RunFolder,
    graph: Graph,
    place: int,
    readings: npt.NDArray[np.float32] | None = None,
    halfway: Mapping[str, Tensor] | None = None,
    *,
    labels: Ballots | None = None,
) -> Ballots:
    """What every row casts: its label and, on a second board, where it has none, what the model predicts.

    `readings` are of the boards before it, `halfway` the weights of the model, and `labels` the ballots of
    the first board, if known.
    """
    plan = get_billboard_plan(folder)
    ballots = labels or label_ballots(graph, plan.edge_owner, num_classes=plan.num_classes)
    if place == 0:
        return ballots
    model = folder.build_model().eval()
    folder.load_halfway(model, halfway)
    # On the CPU, so that what is taken off later is what was cast.
    table = (
        Boards(folder, graph).read(place - 1, torch.device("cpu"))
        if readings is None
        else RowTable(graph, readings, "cpu", feature_norm=folder.config.feature_norm)
    )
    predicted = scores(model, WholeGraph(graph, table), depth=0)
    # Written over the scores: both would be as large as the board.
    with_soft = with_probabilities(ballots, torch.softmax(predicted, 1, out=predicted).numpy())
    del predicted, table
    release_freed_memory()
    return with_soft


def get_billboard_plan(folder: RunFolder) -> BillboardPlan:
    """The plan of a billboard run; RunError for a run of another method."""
    if not isinstance(folder.plan, BillboardPlan):
        raise RunError(f"run={folder.path}: it was trained on trees and has no board; train with a billboard")
    return folder.plan


def _board_event(plan: BillboardPlan, place: int) -> GaussianEvent:
    """What a board costs one emptied row."""
    [(event, _)] = bounds.events([plan.board_charge(place)], bounds.rows_emptied(1))
    if not isinstance(event, GaussianEvent):
        raise TypeError(f"{event}: expected the event of a board")
    return event
