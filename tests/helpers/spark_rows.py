"""What Spark leaves of a run, computed in memory: a charged board, and rows in Parquet files to train on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import numpy as np

from hushgraph.billboard.ballots import label_ballots
from hushgraph.billboard.board import Board, cast, digest_board, release
from hushgraph.billboard.reading import read_boards
from hushgraph.engines.plan import (
    BOARD,
    begin_run,
    board_folder,
    board_noise,
    check_engine_settings,
    describe_run,
    rows_folder,
)
from hushgraph.graph.columns import Columns
from hushgraph.graph.graph import Graph
from hushgraph.noise import normal
from hushgraph.privacy.ledger import Ledger
from hushgraph.runs.folder import RunFolder, split_id
from hushgraph.training.source import release_board


@dataclass(frozen=True)
class Tables:
    """What is public about a graph that stands for tables."""

    graph: Graph

    @property
    def columns(self) -> Columns:
        names = [f"f{number}" for number in range(self.graph.num_features)]
        return Columns(features=tuple(names), split="split")

    @property
    def num_classes(self) -> int:
        return self.graph.num_classes

    @property
    def num_nodes(self) -> int:
        return self.graph.num_nodes

    @property
    def features(self) -> tuple[str, ...]:
        return tuple(self.columns.features or ())

    def count_training_nodes(self) -> int:
        return len(self.graph.train_idx)

    def split_id(self) -> str:
        return split_id(self.graph)


@dataclass
class _Source:
    graph: Graph
    folder: RunFolder
    board: Board | None = None

    def find_board(self, place: int, ledger: Ledger) -> bool:
        return False

    def make_board(self, place: int, ledger: Ledger) -> None:
        ballots = label_ballots(self.graph, self.folder.plan.edge_owner, task=self.folder.task)
        self.board = release(cast(self.graph, ballots), noise_std=board_noise(self.folder), draws=normal.draw)
        ledger.record_release(BOARD, digest_board([self.board.values], self.board.noise_std))
        board_folder(self.folder.path).mkdir()


def make_rows(graph: Graph, out: Path, **settings: Any) -> tuple[RunFolder, Board]:
    """Begin a run as Spark does: charge and release its board, and write its rows beside the folder."""
    tables = Tables(graph)
    full = check_engine_settings(settings)
    folder = describe_run(out, tables, full, data="DataFrame")
    source = _Source(graph, folder)
    with begin_run(folder, engine="spark") as ledger:
        release_board(folder, source, ledger, 0)
    assert source.board is not None
    config, owner = folder.config, folder.plan.edge_owner
    readings = read_boards(
        [source.board],
        graph,
        owner,
        own=[label_ballots(graph, owner, task=folder.task)],
        scale=config.reading_scale,
        radius=config.reading_radius,
    )
    split = np.full(graph.num_nodes, "", "U5")
    for name in ("train", "val", "test"):
        split[getattr(graph, f"{name}_idx")] = name
    columns = {"id": np.arange(graph.num_nodes)}
    columns |= {name: graph.x[:, number].copy() for number, name in enumerate(tables.features)}
    columns |= {f"reading_{k}": readings[:, k].copy() for k in range(graph.num_classes)}
    rows_folder(out).mkdir()
    with duckdb.connect() as connection:
        connection.register("given", columns | {"label": graph.y, "split": split})
        connection.execute(f"COPY (SELECT * FROM given) TO '{rows_folder(out)}/part-0.parquet'")
    return folder, source.board
