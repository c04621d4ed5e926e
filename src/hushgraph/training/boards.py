"""The boards of a run: charged, then made, then read by every row."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from hushgraph._files import draft_path
from hushgraph.billboard.ballots import Ballots
from hushgraph.billboard.board import Board, digest_board, load_board
from hushgraph.billboard.reading import combine_boards
from hushgraph.errors import RunError
from hushgraph.gradients.batch import RowTable
from hushgraph.graph.graph import Graph
from hushgraph.inference.in_memory import WholeGraph, scores
from hushgraph.models.device import release_freed_memory
from hushgraph.privacy.charges import name_board
from hushgraph.privacy.ledger import Ledger
from hushgraph.privacy.plans import BillboardPlan
from hushgraph.runs.folder import BOARD_FILES, ENGINE_FILE, RunFolder
from hushgraph.training.parts import Parts

ByLeader = Callable[[Callable[[Ledger], None]], None]
"""Calls what it is given with the ledger, in the process that leads."""


@dataclass(eq=False)
class Boards:
    """The boards of a run, one after another as its steps come to them.

    Attributes:
        folder, graph: of the run.
        halfway: the weights that the ballots of a second board come from; read from their file unless known.
        boards: those that are made or loaded and not read yet; they are written over.
        parts: what makes, writes and reads boards.
    """

    folder: RunFolder
    graph: Graph
    halfway: Mapping[str, Tensor] | None = None
    boards: list[Board] = field(default_factory=list)
    parts: Parts = field(default_factory=Parts, kw_only=True)
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
        readings = self.parts.read_board(
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
            The charge is on disk before the tally is looked at. The ledger has the digest of a board before
            any name on disk leads to it, so that under one charge no second board is ever visible: one that
            is missing or is another ends the run. A board that a kill prevented from being released may be
            made under the charge that paid for it.
        """
        folder, graph, plan = self.folder, self.graph, get_billboard_plan(self.folder)
        if (folder.path / ENGINE_FILE).exists():
            raise RunError(f"run={folder.path}: an engine makes its board; go on with the same engine")
        path = folder.path / BOARD_FILES[place]
        if find_released(path, ledger, place, plan=plan.fingerprint()):
            return
        draws, charge = self.parts.board_draws(folder.config.seed, place), plan.board_charge(place)
        self._catch_up(num_boards=0, num_ballots=place + 1)
        # They were for these ballots.
        self._readings = None
        if not ledger.is_charged(charge.name):
            self.parts.charge(ledger, charge)
        board = self.parts.release_board(
            graph,
            self._ballots[place],
            noise_std=charge.noise_std,
            draws=draws,
            plan=plan.fingerprint(),
        )
        digest = digest_board([board.values], board.noise_std)
        self.parts.save_board(board, path, lambda: ledger.record_release(charge.name, digest))
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
            self._ballots.append(make_ballots(folder, graph, place, *known, labels=labels, parts=self.parts))


def check_released(folder: RunFolder, ledger: Ledger) -> None:
    """Refuse to go on with a run where a board that was released is missing or is another one."""
    for place, name in enumerate(BOARD_FILES[: folder.num_boards]):
        find_released(folder.path / name, ledger, place, plan=folder.plan.fingerprint())


def find_released(path: Path, ledger: Ledger, place: int, *, plan: str) -> bool:
    """Whether the board at `path` is there; where it is not, whether it may be made is checked.

    Args:
        path: of the file.
        ledger: of the run, open for writing.
        place: of the board in the run, from 0.
        plan: the fingerprint of the plan that pays for it.

    Raises:
        RunError: if the board is not the one that was released, if it was released and is missing, or if it
            was never charged.
    """
    draft = draft_path(path)
    file = path if path.exists() else draft if draft.exists() else None
    if file is None:
        ledger.check_unreleased(name_board(place))
        return False
    if not ledger.is_charged(name_board(place)):
        raise RunError(
            f"ledger={ledger.path}: it shows no charge for {file.name}, so what was spent is unknown; count "
            "the whole epsilon as spent and start a new run"
        )
    # A draft shows what the board would have shown: a complete one is the board, and another ends the run.
    board, name = load_board(file, plan=plan), name_board(place)
    digest = digest_board([board.values], board.noise_std)
    ledger.check_digest(name, digest)
    if ledger.releases.get(name) is None:
        ledger.record_release(name, digest)
    if file == draft:
        os.replace(draft, path)
    return True


def make_ballots(
    folder: RunFolder,
    graph: Graph,
    place: int,
    readings: npt.NDArray[np.float32] | None = None,
    halfway: Mapping[str, Tensor] | None = None,
    *,
    labels: Ballots | None = None,
    parts: Parts | None = None,
) -> Ballots:
    """What every row casts: its label and, on a second board, where it has none, what the model predicts.

    `readings` are of the boards before it, `halfway` the weights of the model, and `labels` the ballots of
    the first board, if known.
    """
    plan, parts = get_billboard_plan(folder), parts or Parts()
    ballots = labels or parts.label_ballots(graph, plan.edge_owner, num_classes=plan.num_classes)
    if place == 0:
        return ballots
    model = folder.build_model().eval()
    folder.load_halfway(model, halfway)
    # On the CPU, so that what is taken off later is what was cast.
    table = (
        Boards(folder, graph, parts=parts).read(place - 1, torch.device("cpu"))
        if readings is None
        else RowTable(graph, readings, "cpu", feature_norm=folder.config.feature_norm)
    )
    predicted = scores(model, WholeGraph(graph, table), depth=0)
    # Written over the scores: both would be as large as the board.
    with_soft = parts.soft_ballots(ballots, torch.softmax(predicted, 1, out=predicted).numpy())
    del predicted, table
    release_freed_memory()
    return with_soft


def get_billboard_plan(folder: RunFolder) -> BillboardPlan:
    """The plan of a billboard run; RunError for a run of another method."""
    if not isinstance(folder.plan, BillboardPlan):
        raise RunError(f"run={folder.path}: it was trained on trees and has no board; train with a billboard")
    return folder.plan
