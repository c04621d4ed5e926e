"""An engine from outside: SQLite keeps the edges, adds up ballots by place and board by row."""

import os
import sqlite3
from collections.abc import Iterable, Mapping
from contextlib import closing
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from torch import nn

import hushgraph as hg
from hushgraph.billboard.ballots import GRID, Ballots, ballots_of_lists
from hushgraph.billboard.board import Board, load_board, release
from hushgraph.billboard.combined import combine_boards, place_weights
from hushgraph.billboard.reading import normalise
from hushgraph.billboard.scaled import scale_readings
from hushgraph.graph.graph import Graph
from hushgraph.inference.in_memory import WholeGraph
from hushgraph.inputs.features import RowTable
from hushgraph.methods.base import PublicFigures
from hushgraph.methods.choose import choose_method
from hushgraph.privacy.charges import name_board
from hushgraph.privacy.ledger import Ledger
from hushgraph.runs.consistency import BOARD_FILES
from hushgraph.runs.folder import RunFolder
from hushgraph.settings import RunSettings, complete
from hushgraph.tasks.task import Task, no_label
from hushgraph.training.boards import digest_of
from hushgraph.training.memory import GraphView
from hushgraph.training.parts import Parts
from hushgraph.training.releases import find_released
from hushgraph.training.running import run_plan


class SqliteEngine:
    """A `Source` with one board: rows are those of `graph`, edges those of the database."""

    device = torch.device("cpu")

    def __init__(self, folder: RunFolder, graph: Graph, parts: Parts, database: sqlite3.Connection) -> None:
        self.folder, self.graph, self.parts, self.database = folder, graph, parts, database
        self.num_nodes = graph.num_nodes
        self.resume_call = "nothing"
        ends = ("source", "target") if folder.plan.edge_owner == "sender" else ("target", "source")
        # A row lists a place once, and never itself.
        database.execute(
            "CREATE TEMP TABLE records AS SELECT DISTINCT {} AS owner, {} AS place FROM edges "
            "WHERE source <> target".format(*ends)
        )

    @cached_property
    def ballots(self) -> Ballots:
        sizes = self._collect("SELECT owner, COUNT(*) FROM records GROUP BY owner", 1, np.int64)[:, 0]
        labels = np.full_like(self.graph.y, no_label(self.graph.y.dtype))
        labels[self.graph.train_idx] = self.graph.y[self.graph.train_idx]
        return ballots_of_lists(sizes, labels, self.folder.plan.edge_owner, task=self.folder.task)

    def find_board(self, place: int, ledger: Ledger) -> bool:
        return find_released(self._path, ledger, name_board(place), lambda file: digest_of(self._load(file)))

    def make_board(self, place: int, ledger: Ledger) -> None:
        names = self._fill("ballots", self.ballots.dense(np.arange(self.num_nodes)))
        sums = ", ".join(f"SUM({name})" for name in names)
        query = f"SELECT place, {sums} FROM records JOIN ballots ON owner = node GROUP BY place"
        board = release(
            self._collect(query, len(names), np.int64),
            noise_std=self.folder.plan.board_noise[place],
            draws=self.parts.board_draws(self.folder.config.seed, place),
            plan=self.folder.plan.fingerprint(),
        )
        # The ledger has the digest before the file has its name.
        announce = partial(ledger.record_release, name_board(place), digest_of(board))
        self.parts.save_board(board, self._path, announce)

    def read(self, place: int) -> GraphView:
        config = self.folder.config
        board, _ = combine_boards([self._load(self._path)], centred=self.folder.task.is_centred)
        weights = place_weights(board)[:, None]
        names = self._fill("board", np.hstack([weights * board.values, weights, weights**2]))
        sums = ", ".join(f"SUM({name})" for name in names)
        query = f"SELECT owner, {sums} FROM records JOIN board ON place = node GROUP BY owner"
        total = self._collect(query, len(names), np.float64)
        # A row's own ballot is taken off what it reads.
        own = self.ballots.dense(np.arange(self.num_nodes)) / GRID
        readings = normalise(total[:, :-2] - total[:, -2:-1] * own, total[:, -1])
        scaled = scale_readings(readings, board, scale=config.reading_scale, radius=config.reading_radius)
        table = RowTable(self.graph, scaled, self.device, feature_norm=config.feature_norm)
        return GraphView(self.folder, WholeGraph(self.graph, table))

    def list_facts(self) -> Mapping[str, str]:
        return {}

    def check(self, ledger: Ledger) -> None:
        self.find_board(0, ledger)

    def prepare(self, model: nn.Module) -> None:
        pass

    @property
    def _path(self) -> Any:
        return self.folder.path / BOARD_FILES[0]

    def _load(self, file: Any) -> Board:
        return load_board(file, plan=self.folder.plan.fingerprint())

    def _fill(self, table: str, values: np.ndarray) -> list[str]:
        """A table with the columns node, v0, v1 ...; return the names of the last."""
        names = [f"v{k}" for k in range(values.shape[1])]
        self.database.execute(f"CREATE TEMP TABLE {table} (node INTEGER PRIMARY KEY, {', '.join(names)})")
        marks = ", ".join("?" for _ in names)
        rows: Iterable[Any] = ((node, *row) for node, row in enumerate(values.tolist()))
        self.database.executemany(f"INSERT INTO {table} VALUES (?, {marks})", rows)
        return names

    def _collect(self, query: str, width: int, dtype: Any) -> np.ndarray:
        """[nodes, width]: what a query gives for nodes, and 0 for the others."""
        result = np.zeros((self.num_nodes, width), dtype)
        for node, *values in self.database.execute(query):
            result[node] = values
        return result


def train_database(
    path: str | os.PathLike[str], out: str | os.PathLike[str], *, task: Task, epsilon: float, **settings: Any
) -> hg.Run:
    """Train on the tables nodes(id, label, split, one column per feature) and edges(source, target)."""
    with closing(sqlite3.connect(path)) as database, database:
        rows = database.execute("SELECT * FROM nodes ORDER BY id").fetchall()
        kind = task.check_labels(np.zeros(1, np.int64)).dtype
        splits = np.array([row[2] for row in rows])
        graph = Graph.from_arrays(
            edge_index=np.zeros((2, 0), np.int64),
            x=np.array([row[3:] for row in rows], np.float32),
            y=np.array([no_label(kind) if row[1] is None else row[1] for row in rows], kind),
            task=task,
            **{f"{split}_idx": np.flatnonzero(splits == split) for split in ("train", "val", "test")},
        )
        full = complete({"epsilon": epsilon, **settings}, kind=RunSettings)
        public = PublicFigures(
            graph.num_nodes,
            len(graph.train_idx),
            task.num_outputs,
            most_boards=1,
            label_change=task.label_change,
        )
        plan, config = choose_method(full).plan(public, full)

        def begin(folder: RunFolder, graph: Graph, parts: Parts) -> Any:
            engine = SqliteEngine(folder, graph, parts, database)
            return engine, folder.start

        return run_plan(out, graph, plan, config, begin=begin, data=os.fspath(path))
