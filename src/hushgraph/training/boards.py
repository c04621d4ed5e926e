"""The boards of a run, in memory or in mapped files: made once they are charged, found again, and read."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch

from hushgraph._files import read_tensors
from hushgraph.billboard.ballots import Ballots
from hushgraph.billboard.board import Board, digest_board, load_board
from hushgraph.billboard.combined import combine_boards
from hushgraph.billboard.scaled import add_free_inputs
from hushgraph.graph.graph import Graph
from hushgraph.inference.in_memory import WholeGraph, scores
from hushgraph.inputs.features import RowTable
from hushgraph.privacy.charges import name_board
from hushgraph.privacy.ledger import Ledger
from hushgraph.runs.checkpoint import fill_model
from hushgraph.runs.consistency import BOARD_FILES
from hushgraph.runs.folder import RunFolder
from hushgraph.training.parts import Parts
from hushgraph.training.releases import find_released


@dataclass(eq=False)
class Boards:
    """The boards of a run, one after another as its steps come to them.

    Attributes:
        folder, graph: of the run.
        boards: those that are made or loaded and not read yet; they are written over.
        parts: what makes, writes and reads boards.
    """

    folder: RunFolder
    graph: Graph
    boards: list[Board] = field(default_factory=list)
    parts: Parts = field(default_factory=Parts, kw_only=True)
    _ballots: list[Ballots] = field(default_factory=list)
    _readings: npt.NDArray[np.float32] | None = None

    def read_boards(self, place: int, device: torch.device) -> RowTable:
        """Own features of every row, and its own reading of all boards up to this one.

        Args:
            place: of the last board to read.
            device: where to compute with the rows.
        """
        self._catch_up(num_boards=place + 1, num_ballots=place + 1)
        plan, config = self.folder.plan, self.folder.config
        # Readings of earlier boards take as much memory as the new ones.
        self._readings = None
        # A board is kept in its file until it is read again.
        board, shares = combine_boards(
            self.boards[: place + 1], centred=self.folder.task.is_centred, in_place=True
        )
        self.boards = []
        readings = self.parts.read_board(
            board,
            self.graph,
            plan.edge_owner,
            own=list(zip(shares, self._ballots[: len(shares)], strict=True)),
            scale=config.reading_scale,
            radius=config.reading_radius,
            damped=config.damped,
        )
        readings = add_free_inputs(
            readings,
            board,
            self._ballots[0].list_sizes,
            list_size=config.list_size,
            own_places=np.arange(self.graph.num_nodes) if config.own_place else None,
            scale=config.reading_scale,
            radius=config.reading_radius,
        )
        del board
        if place + 1 < self.folder.num_boards:
            self._readings = readings
        else:
            self._ballots = []
        return RowTable(self.graph, readings, device, feature_norm=config.feature_norm)

    def find_board(self, place: int, ledger: Ledger) -> bool:
        """See `BoardSource`; a complete draft becomes the board."""
        folder = self.folder
        fingerprint = folder.plan.fingerprint()
        return find_released(
            folder.path / BOARD_FILES[place],
            ledger,
            name_board(place),
            lambda file: digest_of(load_board(file, plan=fingerprint)),
        )

    def make_board(self, place: int, ledger: Ledger) -> None:
        """See `BoardSource`."""
        folder, plan = self.folder, self.folder.plan
        self._catch_up(num_boards=0, num_ballots=place + 1)
        # Readings of earlier boards were needed for these ballots alone.
        self._readings = None
        board = self.parts.cast_and_release(
            self.graph,
            self._ballots[place],
            noise_std=plan.board_noise[place],
            draws=self.parts.board_draws(folder.config.seed, place),
            plan=plan.fingerprint(),
        )
        path, digest = folder.path / BOARD_FILES[place], digest_of(board)
        self.parts.save_board(board, path, lambda: ledger.record_release(name_board(place), digest))
        if len(self.boards) == place:
            self.boards.append(board)

    def _catch_up(self, *, num_boards: int, num_ballots: int) -> None:
        """Load boards that were made elsewhere, by an earlier session or by the process that leads."""
        folder, graph = self.folder, self.graph
        for place in range(len(self.boards), num_boards):
            path, plan = folder.path / BOARD_FILES[place], folder.plan.fingerprint()
            self.boards.append(self.parts.load_board(path, plan=plan))
        for place in range(len(self._ballots), num_ballots):
            labels = self._ballots[0] if self._ballots else None
            ballots = make_ballots(folder, graph, place, self._readings, labels=labels, parts=self.parts)
            self._ballots.append(ballots)


def digest_of(board: Board) -> str:
    """What tells a board from any other."""
    return digest_board([board.values], board.noise_std)


def make_ballots(
    folder: RunFolder,
    graph: Graph,
    place: int,
    readings: npt.NDArray[np.float32] | None = None,
    *,
    labels: Ballots | None = None,
    parts: Parts | None = None,
) -> Ballots:
    """What every row casts: its label and, on a second board, where it has none, what the model predicts.

    `readings` are of the boards before it, `halfway` the weights of the model, and `labels` the ballots of
    the first board, if known.
    """
    plan, parts = folder.plan, parts or Parts()
    ballots = labels or parts.label_ballots(graph, plan.edge_owner, task=folder.task)
    if place == 0:
        return ballots
    model = folder.build_model().eval()
    path = folder.halfway_path
    fill_model(model, read_tensors(path)[0], path)
    # On the CPU, so that what is taken off later is what was cast.
    table = (
        Boards(folder, graph, parts=parts).read_boards(place - 1, torch.device("cpu"))
        if readings is None
        else RowTable(graph, readings, "cpu", feature_norm=folder.config.feature_norm)
    )
    predicted = scores(model, WholeGraph(graph, table), depth=0)
    return parts.soft_ballots(ballots, predicted, folder.task)
