"""The boards of a run: charged, then made, then read by every row."""

from __future__ import annotations

import numpy as np
import torch

from hushgraph.accounting.events import GaussianEvent
from hushgraph.billboard.ballots import Ballots, cast, label_ballots, with_probabilities
from hushgraph.billboard.board import release, save_board
from hushgraph.errors import RunError
from hushgraph.graph.graph import Graph
from hushgraph.inference.covered import RowTable, read_boards, score_table
from hushgraph.privacy.billboard_plan import BillboardPlan
from hushgraph.privacy.ledger import Ledger
from hushgraph.runs.folder import RunFolder


def make_board(folder: RunFolder, graph: Graph, ledger: Ledger, place: int) -> None:
    """Charge a board, then make and write it, unless it is there.

    Guarantees:
        The charge is on disk before the tally is looked at. A board that is on disk is never made again.
        Until it is on disk nothing of it has left this process, so a board that a kill prevented may be made
        again under the charge that paid for it.
    """
    plan = billboard_plan(folder)
    if folder.board_path(place).exists():
        return
    if ledger.boards_charged <= place:
        ledger.charge(_board_event(plan, place))
    tally = cast(graph, cast_ballots(folder, graph, place))
    board = release(
        tally,
        noise_std=plan.board_noise[place] if plan.is_private else 0.0,
        names=graph.node_names,
        plan=plan.fingerprint(),
    )
    save_board(board, folder.board_path(place))


def cast_ballots(folder: RunFolder, graph: Graph, place: int) -> Ballots:
    """What every row casts: its label, and on a second board what the first model says where it has none."""
    plan = billboard_plan(folder)
    ballots = label_ballots(graph, plan.edge_owner, num_classes=plan.num_classes)
    if place == 0:
        return ballots
    model = folder.build_model(place - 1)
    folder.load_round(place - 1, model)
    table = build_table(folder, graph, torch.device("cpu"), num_boards=place)
    return with_probabilities(ballots, score_table(model, graph, table).softmax(1).numpy())


def build_table(folder: RunFolder, graph: Graph, device: torch.device, *, num_boards: int) -> RowTable:
    """Own features and own readings of every node of the graph that the boards were made on."""
    plan, config = billboard_plan(folder), folder.config
    readings = read_boards(
        folder.load_boards(num_boards),
        graph,
        plan.edge_owner,
        own=[cast_ballots(folder, graph, place) for place in range(num_boards)],
        scale=config.reading_scale,
        damped=config.damped,
    )
    return RowTable(graph, readings.astype(np.float32), device, feature_norm=config.feature_norm)


def billboard_plan(folder: RunFolder) -> BillboardPlan:
    """The plan of a billboard run; RunError for a run of another method."""
    if not isinstance(folder.plan, BillboardPlan):
        raise RunError(f"run={folder.path}: it was trained on trees and has no board; train with a billboard")
    return folder.plan


def _board_event(plan: BillboardPlan, place: int) -> GaussianEvent:
    """What a board costs one emptied row."""
    std = plan.board_noise[place]
    return GaussianEvent(shift_over_sigma=1 / std if std else float("inf"))
