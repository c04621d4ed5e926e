"""The boards of a run: charged, then made, then read by every row."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import numpy.typing as npt
import torch

from hushgraph.accounting.events import GaussianEvent
from hushgraph.billboard.ballots import Ballots, cast, label_ballots, with_probabilities
from hushgraph.billboard.board import Board, Draws, release, save_board
from hushgraph.errors import RunError
from hushgraph.gradients.batch import RowTable
from hushgraph.graph.graph import Graph
from hushgraph.inference.covered import read_boards
from hushgraph.inference.in_memory import WholeGraph, scores
from hushgraph.noise import normal
from hushgraph.noise.normal import seeded_keys
from hushgraph.privacy import bounds
from hushgraph.privacy.ledger import Ledger
from hushgraph.privacy.plan import BillboardPlan
from hushgraph.runs.folder import ENGINE_FILE, RunFolder


def make_board(folder: RunFolder, graph: Graph, ledger: Ledger, ballots: Ballots, place: int) -> Board:
    """Charge a board, then make and write it, unless it is there; `ballots` are those of `make_ballots`.

    Guarantees:
        The charge is on disk before the tally is looked at. A board that is on disk is never made again.
        Until it is on disk nothing of it has left this process, so a board that a kill prevented may be made
        under the charge that paid for it.
    """
    plan, path = get_billboard_plan(folder), folder.board_path(place)
    if (folder.path / ENGINE_FILE).exists():
        raise RunError(f"run={folder.path}: an engine makes its board; go on with the same engine")
    if path.exists():
        return folder.load_board(place)
    draws = _choose_draws(folder.config.seed, place)
    if ledger.boards_charged <= place:
        ledger.charge(_board_event(plan, place))
    board = release(
        cast(graph, ballots),
        noise_std=plan.board_noise[place],
        draws=draws,
        names=graph.node_names,
        plan=plan.fingerprint(),
    )
    save_board(board, path)
    return board


def _choose_draws(seed: int | None, place: int) -> Draws:
    """Draws of the operating system's; of a seeded run, such as can be drawn again."""
    if seed is None:
        return normal.draw
    # Apart from the stream of the steps, which starts from the seed itself, and from that of another board.
    return partial(normal.draw, keys=seeded_keys(f"board {place} of {seed}"))


def make_ballots(
    folder: RunFolder,
    graph: Graph,
    boards: Sequence[Board],
    place: int,
    readings: npt.NDArray[np.float32] | None = None,
) -> Ballots:
    """What every row casts: its label and, on a second board, where it has none, what the model predicts.

    `boards` are those before this one, or all of them; `readings` are of the boards before it, if known.
    """
    plan = get_billboard_plan(folder)
    ballots = label_ballots(graph, plan.edge_owner, num_classes=plan.num_classes)
    if place == 0:
        return ballots
    model = folder.build_model().eval()
    folder.load_halfway(model)
    # On the CPU, so that what is taken off later is what was cast.
    table = (
        build_table(folder, graph, torch.device("cpu"), boards[:place])
        if readings is None
        else RowTable(graph, readings, "cpu", feature_norm=folder.config.feature_norm)
    )
    return with_probabilities(ballots, scores(model, WholeGraph(graph, table), depth=0).softmax(1).numpy())


def build_table(
    folder: RunFolder,
    graph: Graph,
    device: torch.device,
    boards: Sequence[Board],
    ballots: Sequence[Ballots] | None = None,
) -> RowTable:
    """Own features and own reading of every node of the graph that the boards were made on.

    `ballots` are those of the boards, if known.
    """
    plan, config = get_billboard_plan(folder), folder.config
    if ballots is None:
        ballots = [make_ballots(folder, graph, boards, place) for place in range(len(boards))]
    readings = read_boards(
        boards,
        graph,
        plan.edge_owner,
        own=ballots,
        scale=config.reading_scale,
        radius=config.reading_radius,
    )
    return RowTable(graph, readings, device, feature_norm=config.feature_norm)


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
