"""Training on the rows of an engine: Parquet files are streamed, and rows are never all in memory.

Poisson batches of several steps are drawn ahead, so that one pass over the files serves them all. In a
process group every process draws from row blocks of its own; a row is in one block.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from torch import nn

from hushgraph.accounting.events import Draw, PoissonDraw
from hushgraph.engines.duck import make_rows, parse_memory, resume_rows
from hushgraph.engines.duck_phases import OnPhase
from hushgraph.engines.plan import board_folder, read_mark, remove_private, rows_folder
from hushgraph.engines.released import BOARD
from hushgraph.engines.tables import digest_files, quote, quote_list, quote_name
from hushgraph.errors import DivergedError, GraphError, InputError, RunError
from hushgraph.figures.tables import Scored
from hushgraph.gradients.rows import RowPass, RowSums, find_chain
from hushgraph.inputs.rows import Rows
from hushgraph.models.gnn import scale_rows
from hushgraph.privacy.ledger import Ledger
from hushgraph.runs.folder import RunFolder
from hushgraph.sampling.batches import PoissonBatches
from hushgraph.sampling.random import KeyedGenerator
from hushgraph.training.distributed import Group, current_group
from hushgraph.training.parts import Parts
from hushgraph.training.run import Run
from hushgraph.training.running import run_session
from hushgraph.training.session import Learner, OnStart
from hushgraph.training.source import StepParts, check_release
from hushgraph.training.trainer import Observer, State

# Rows of a file that are read at a time.
BLOCK = 1 << 18
# A pass over the files serves at most this many steps.
_MOST_AHEAD = 64


@dataclass(frozen=True, kw_only=True, eq=False)
class RowFiles:
    """The rows that an engine wrote: a source that reads its board no more, and the view of these rows.

    Attributes:
        connection: to DuckDB.
        folder: of the run.
        files: the Parquet files, in order.
        most_rows: rows that may be in memory at a time.
    """

    connection: Any
    folder: RunFolder
    files: tuple[str, ...]
    most_rows: int = 1 << 20

    device = torch.device("cpu")

    @classmethod
    def open(
        cls, connection: Any, folder: RunFolder, rows: str | os.PathLike[str] | None, **limits: int
    ) -> RowFiles:
        """Open the rows of a run, or those at a path or pattern that an engine wrote elsewhere."""
        pattern = os.fspath(rows_folder(folder.path) if rows is None else rows)
        pattern = pattern if any(sign in pattern for sign in "*?[") else f"{pattern}/*.parquet"
        files = sorted(
            name for (name,) in connection.execute("SELECT file FROM glob(?)", [pattern]).fetchall()
        )
        if not files:
            raise RunError(f"run={folder.path}: no rows at {pattern}; make them with an engine first")
        opened = cls(connection=connection, folder=folder, files=tuple(files), **limits)
        opened._check_columns()
        return opened

    @property
    def _columns(self) -> list[str]:
        """Features in order, then the reading."""
        columns = self.folder.columns
        if columns is None or columns.features is None:
            raise RunError(
                f"run={self.folder.path}: it was not begun by an engine; train it with hushgraph.train"
            )
        return [*columns.features, *(f"reading_{k}" for k in range(self.folder.num_classes))]

    def _check_columns(self) -> None:
        described = self.connection.execute(
            f"DESCRIBE SELECT * FROM read_parquet({quote_list(self.files)})"
        ).fetchall()
        missing = {*self._columns, "label", "split"} - {row[0] for row in described}
        if missing:
            raise GraphError(
                f"{self.files[0]}: no column {', '.join(sorted(missing))}; expected rows of an engine"
            )

    @cached_property
    def blocks(self) -> list[tuple[str, int, int]]:
        """File, block of the file and number of training rows, of all blocks in order."""
        counted = self.connection.execute(
            f"SELECT filename, file_row_number // {BLOCK} AS block, count(*) FILTER (split = 'train') "
            f"FROM read_parquet({quote_list(self.files)}, filename = true, file_row_number = true) "
            "GROUP BY ALL ORDER BY ALL"
        ).fetchall()
        total = sum(count for _, _, count in counted)
        if total != self.folder.plan.num_train_nodes:
            raise RunError(
                f"run={self.folder.path}: the rows have {total} training nodes, the run has "
                f"{self.folder.plan.num_train_nodes}; give the rows of this run"
            )
        return [(str(name), int(block), int(count)) for name, block, count in counted]

    def read_block(self, file: str, block: int, split: str) -> Rows:
        """The rows of one block that are in a split, in the order of the file."""
        names = ", ".join(quote_name(name) for name in self._columns)
        begin = block * BLOCK
        part = self.connection.execute(
            f"SELECT {names}, label FROM read_parquet({quote(file)}, file_row_number = true) WHERE "
            f"file_row_number >= {begin} AND file_row_number < {begin + BLOCK} AND split = {quote(split)} "
            "ORDER BY file_row_number"
        ).fetchnumpy()
        cells = np.stack([np.asarray(part[name], np.float32) for name in self._columns], axis=1)
        width = self.folder.num_features
        # Scaled as the rows of a graph in memory are.
        cells[:, :width] = scale_rows(
            torch.from_numpy(cells[:, :width].copy()), self.folder.config.feature_norm
        )
        return Rows(dense=cells, labels=np.asarray(part["label"], np.int64))

    @property
    def num_nodes(self) -> int:
        """Rows that steps can see: those of training nodes."""
        return self.folder.plan.num_train_nodes

    @property
    def resume_call(self) -> str:
        """How to go on with an interrupted run."""
        return f"hushgraph.engines.train_rows({str(self.folder.path)!r})"

    def list_facts(self) -> Mapping[str, str]:
        """See `Source`."""
        return {"rows": str(self.blocks)}

    def check(self, ledger: Ledger) -> None:
        """Rows come from a board: refuse to go on where it was not charged, is missing or is another one."""
        if not ledger.is_charged(BOARD):
            raise RunError(
                f"run={self.folder.path}: its ledger shows no board; make the rows again in a new folder"
            )
        engine, storage = read_mark(self.folder)
        if storage is None and not board_folder(self.folder.path).is_dir():
            ledger.check_unreleased(BOARD)
        elif engine == "duckdb":
            check_release(ledger, BOARD, digest_files(self.connection, self.folder))

    def find_board(self, place: int, ledger: Ledger) -> bool:
        """See `BoardSource`; `check` verified it when the ledger was opened."""
        return True

    def make_board(self, place: int, ledger: Ledger) -> None:
        """See `BoardSource`; never needed, as rows were written with their readings."""
        raise RunError(f"run={self.folder.path}: rows make no board; go on with the engine that wrote them")

    def prepare(self, model: nn.Module) -> None:
        """See `Source`; there is nothing to load."""

    def read(self, place: int) -> RowFiles:
        """See `Source`; rows are written with their readings."""
        return self

    def build_steps(self, state: State, *, key: int, group: Group, parts: Parts) -> StepParts:
        """See `View`; every process has a key of its own, since its rows are its own."""
        batches = RowStream(
            files=self,
            rate=self.folder.plan.sampling_rate,
            most_rows=self.most_rows,
            rng=KeyedGenerator(key + group.rank),
            group=group,
        )
        sums = RowSums()
        return StepParts(batches, parts.adapt_sum(sums), sums)

    def score(self, model: nn.Module, split: str) -> Iterator[Scored]:
        """See `View`; a block of a file is a part."""
        chain = find_chain(model)
        if chain is None:
            raise TypeError(f"{type(model).__name__}: expected a chain of Linear layers")
        scorer, task = RowPass(chain), self.folder.task
        for file, block, _ in self.blocks:
            rows = self.read_block(file, block, split)
            if len(rows.labels):
                yield Scored(task.show(scorer.scores(rows)).numpy(), rows.labels)


@dataclass(eq=False)
class RowStream:
    """The batches of a run whose rows are in files.

    Attributes:
        files: the rows.
        rate: q.
        most_rows: rows that may be in memory at a time.
        rng: of this process alone, since its rows are its own.
        group: the processes that share the blocks.

    Guarantees:
        Every training row joins every batch independently with probability `rate`. Which rows do depends
        neither on what rows hold nor on other processes.
    """

    files: RowFiles
    rate: float
    most_rows: int
    rng: KeyedGenerator
    group: Group = field(default_factory=Group)

    # Clipped sums of rows are computed in threads of `RowPass`.
    has_own_threads = True

    @property
    def draw(self) -> Draw:
        """How the rows of one step are drawn, for the accountant."""
        return PoissonDraw(rate=self.rate)

    @cached_property
    def _share(self) -> list[tuple[str, int, int]]:
        return self.files.blocks[self.group.rank :: self.group.size]

    @cached_property
    def _num_slots(self) -> int:
        return sum(count for _, _, count in self._share)

    def iterate(self, first_step: int) -> Generator[Any, None, None]:
        """Yield batches without end: all rows in pieces, or as many Poisson batches ahead as fit."""
        if not self._num_slots:
            while True:
                yield []
        if self.rate == 1.0:
            kept = list(self._read_all()) if self._num_slots <= self.most_rows else None
            while True:
                yield self._read_all() if kept is None else kept
        # A batch has rarely twice as many rows as expected.
        expected = max(1.0, self.rate * self._num_slots)
        ahead = int(min(max(1, self.most_rows // (2 * expected)), _MOST_AHEAD))
        while True:
            for batch in self._draw_batches(ahead):
                yield [batch]

    def _read_all(self) -> Iterator[Rows]:
        for file, block, count in self._share:
            if count:
                yield self.files.read_block(file, block, "train")

    def _draw_batches(self, ahead: int) -> list[Rows]:
        """Independent batches from one pass over the blocks."""
        batches = PoissonBatches(num_slots=self._num_slots, rate=self.rate, rng=self.rng)
        draws = [batches.draw() for _ in range(ahead)]
        parts: list[list[Rows]] = [[] for _ in range(ahead)]
        begin = 0
        for file, block, count in self._share:
            rows = self.files.read_block(file, block, "train")
            for drawn, part in zip(draws, parts, strict=True):
                first, last = np.searchsorted(drawn, [begin, begin + count])
                part.append(rows.take(drawn[first:last] - begin))
            begin += count
        return [_join(part) for part in parts]


def _join(parts: list[Rows]) -> Rows:
    return Rows(
        dense=np.concatenate([part.dense for part in parts]),
        labels=np.concatenate([part.labels for part in parts]),
    )


def train_tables(
    nodes: str | os.PathLike[str],
    edges: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    memory: int | str = "4GiB",
    threads: int | None = None,
    resume: bool = False,
    charge_again: bool = False,
    keep_rows: bool = False,
    observer: Observer | None = None,
    on_start: OnStart | None = None,
    on_phase: OnPhase | None = None,
    **settings: Any,
) -> Run:
    """`make_rows`, then `train_rows`: from tables that need not fit memory to a finished run.

    Args:
        nodes, edges, out, memory, threads, on_phase: as in `make_rows`.
        resume: go on with the run in `out`, which keeps its settings; nothing else goes on with a folder that
            is there.
        charge_again: with `resume`, as in `hushgraph.resume`.
        keep_rows: as in `train_rows`.
        observer, on_start: as in `hushgraph.train`.
        settings: the other arguments of `make_rows`.
    """
    group = current_group()

    def make() -> None:
        limits: dict[str, Any] = {"memory": memory, "threads": threads, "on_phase": on_phase}
        if resume:
            if settings:
                raise InputError(f"{', '.join(settings)}: a resumed run keeps its settings; leave them out")
            resume_rows(out, nodes, edges, charge_again=charge_again, **limits)
        else:
            make_rows(nodes, edges, out, **limits, **settings)

    group.broadcast(make)
    folder = RunFolder.open(out)
    if group.leads and on_start is not None and not folder.is_finished:
        on_start(folder)
    return train_rows(out, memory=memory, threads=threads, keep_rows=keep_rows, observer=observer)


def train_rows(
    path: str | os.PathLike[str],
    *,
    rows: str | os.PathLike[str] | None = None,
    memory: int | str = "4GiB",
    threads: int | None = None,
    keep_rows: bool = False,
    observer: Observer | None = None,
) -> Run:
    """Train on the rows that an engine made for a run, or go on with training that was interrupted.

    In a process group of `torch.distributed` every process reads its own blocks of rows; all of them call
    this, and the first keeps the ledger and writes the run. Rows must be where every process can read them.

    Args:
        path: the folder of the run that `make_rows` began.
        rows: where the rows are, if not in `RUN.rows`.
        memory: what a process may use for rows and DuckDB.
        threads: of DuckDB.
        keep_rows: leave `RUN.rows`, which is as private as the tables, when training has finished. It is
            deleted otherwise; rows elsewhere are never.
        observer: told about progress, as by `hushgraph.train`.

    Returns:
        The finished run; at once where it was finished before.

    Guarantees:
        Every step is charged before it is taken, in the ledger that the board was charged in; together they
        are what the plan's epsilon says. Noise is exact and drawn anew after an interruption.

    Examples:
        >>> import duckdb, hushgraph as hg
        >>> people = "SELECT i AS id, i % 7 AS age, i % 2 AS label, 'train' AS split FROM range(500) AS t(i)"
        >>> pairs = "SELECT i AS source, (i * 17 + 2) % 500 AS target FROM range(500) AS t(i)"
        >>> for name, sql in (("nodes", people), ("edges", pairs)):
        ...     _ = duckdb.execute(f"COPY ({sql}) TO '{name}.parquet'")
        >>> _ = hg.engines.make_rows("nodes.parquet", "edges.parquet", "streamed-run", edge_owner="sender",
        ...                          num_classes=2, epsilon=4.0, steps=5)
        >>> run = hg.engines.train_rows("streamed-run")
        >>> run.epsilon <= 4.0, run.result["guarantee"]
        (True, 'holds')
    """
    import duckdb

    group, parts, limit = current_group(), Parts(), parse_memory(memory)
    keep_rows = keep_rows or rows is not None
    settings: dict[str, Any] = {"memory_limit": f"{limit // 2 // 2**20}MiB"}
    if threads is not None:
        settings["threads"] = threads
    with group.share_errors():
        folder = RunFolder.open(path)
    if group.broadcast(lambda: folder.is_finished):
        # A kill may have come before the rows were removed.
        _remove_rows(folder, group, keep_rows)
        return Run.load(path, device="cpu")
    resumed = group.broadcast(lambda: Ledger.open(folder.ledger_path, read_only=True).steps_charged > 0)
    with duckdb.connect(config=settings) as connection:
        with group.share_errors():
            most_rows = max(1, limit // 4 // (4 * folder.input_width))
            files = RowFiles.open(connection, folder, rows, most_rows=most_rows)
            learner = Learner.build(folder, files, group=group, resumed=resumed, parts=parts)
        hooks: dict[str, Any] = {"progress": False, "observer": observer}
        open_ledger = partial(folder.go_on, check=files.check)
        try:
            run = run_session(folder, files, learner, open_ledger, group=group, parts=parts, **hooks)
        except DivergedError:
            _remove_rows(folder, group, keep_rows)
            raise
    _remove_rows(folder, group, keep_rows)
    return run


def _remove_rows(folder: RunFolder, group: Group, keep_rows: bool) -> None:
    """Remove what is as private as the tables: every step is charged, so that no resume will need it."""
    if group.leads and not keep_rows:
        remove_private(folder.path)
