"""A billboard run on tables larger than memory: DuckDB joins identifiers, sums by key are streamed from disk.

    tables -> records -> charge -> board, released once -> readings -> rows

What is released is `board/` in the folder of the run. Two folders beside it are as private as the tables:
`RUN.rows` holds the rows for training, and `RUN.work` is removed at the end.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from hushgraph.billboard.ballots import Ballots, Int64Array, add_label_ballots, ballots_of_lists
from hushgraph.billboard.board import Board, Draws, release, save_board
from hushgraph.billboard.reading import (
    NOTHING,
    add_own,
    add_records,
    combine_boards,
    normalise,
    place_weights,
    scale_readings,
    take_off,
)
from hushgraph.datasets.tables.files import find_tables
from hushgraph.engines.plan import (
    board_folder,
    board_noise,
    charge_board,
    choose_owner,
    open_run,
    plan_run,
    publish,
    read_about,
    write_about,
)
from hushgraph.engines.records import Int32Array, Records
from hushgraph.engines.tables import Tables, open_database, read_board_values
from hushgraph.errors import InputError, RunError
from hushgraph.graph.columns import Columns, merge_columns
from hushgraph.noise import normal
from hushgraph.privacy import choices
from hushgraph.privacy.budget import DataBudget
from hushgraph.runs.folder import BOARD_FILES, RunFolder, check_out

Float32Array = npt.NDArray[np.float32]
OnPhase = Callable[[str], None]
"""Called with the name of every phase when it begins."""

_UNITS = {"": 1, "B": 1, "MB": 10**6, "GB": 10**9, "TB": 10**12, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}
_LEAST_MEMORY = 2**29
# Arrays that are kept for every node while records are streamed.
_BYTES_PER_NODE = 24
# What the identifier of a place may take, and how often the board is in memory while it is written.
_BYTES_PER_NAME, _COPIES = 64, 3
# Rows whose ballots are computed at a time.
_BLOCK = 1 << 20


def make_rows(
    nodes: str | os.PathLike[str],
    edges: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    edge_owner: choices.EdgeOwner | None = None,
    num_classes: int | None = None,
    epsilon: float | None = None,
    private: bool = True,
    delta: float | None = None,
    batch_size: int | None = None,
    steps: int | None = None,
    learning_rate: float | None = None,
    hidden: int | None = None,
    symmetrize: bool = False,
    columns: Columns | Mapping[str, Any] | None = None,
    budget: str | os.PathLike[str] | DataBudget | None = None,
    memory: int | str = "4GiB",
    threads: int | None = None,
    draws: Draws = normal.draw,
    on_phase: OnPhase | None = None,
) -> RunFolder:
    """Cast and read the board of a run on tables that need not fit memory; training can begin after it.

    The call can be repeated after a kill: it goes on where it stopped, and returns at once when it is done.

    Args:
        nodes, edges: a Parquet or CSV file each, or a pattern such as "edges/*.parquet".
        out: the folder of the run.
        edge_owner: whose row holds an edge record: the sender's unless given.
        num_classes: c, which is public; it follows from the names in `columns.classes` where these are given.
        epsilon: the budget of board and training together.
        private: False makes a board without noise.
        delta, batch_size, steps, learning_rate, hidden: as in `hushgraph.train`.
        symmetrize: add the reverse of every edge.
        columns: what the columns mean. Features are numbers.
        budget: the budget of the data, which the whole run is charged to before it begins.
        memory: what the process may use, such as "8GiB". Half goes to DuckDB; 24 bytes a node are needed of
            the rest.
        threads: of DuckDB; as many as there are cores unless given.
        draws: the randomness of the noise.
        on_phase: told what begins.

    Returns:
        The folder of the run: `board/part-*.parquet` (identifier, one number per class), and
        beside it `RUN.rows/part-*.parquet` (identifier, features, reading, label, split) in the order of
        the node table.

    Guarantees:
        The tally is the sum of integer ballots, exactly that of `hushgraph.billboard.board.cast`. Every
        cell gets one draw, in the order of places. The charge is in the ledger before the tally is computed,
        and once: a repeated call pays with the charge that is there. A board is released as a whole, by a
        rename; a board that is released is never made again. What an interrupted call had drawn was never
        released and is removed before anything is drawn again.

    Examples:
        >>> import duckdb, hushgraph as hg
        >>> people = "SELECT i AS id, i % 7 AS age, i % 2 AS label, 'train' AS split FROM range(500) AS t(i)"
        >>> pairs = "SELECT i AS source, (i * 17 + 2) % 500 AS target FROM range(500) AS t(i)"
        >>> for name, sql in (("nodes", people), ("edges", pairs)):
        ...     _ = duckdb.execute(f"COPY ({sql}) TO '{name}.parquet'")
        >>> run = hg.engines.make_rows("nodes.parquet", "edges.parquet", "people-run", edge_owner="sender",
        ...                            num_classes=2, epsilon=4.0)
        >>> duckdb.execute("SELECT count(*) FROM 'people-run.rows/*.parquet'").fetchone()
        (500,)
    """
    owner = choose_owner(edge_owner)
    settings: dict[str, Any] = {
        "epsilon": epsilon,
        "private": private,
        "delta": delta,
        "batch_size": batch_size,
        "steps": steps,
        "learning_rate": learning_rate,
        "hidden": hidden,
    }

    def describe(tables: Tables) -> RunFolder:
        plan, config = plan_run(
            num_train_nodes=tables.count_training_nodes(),
            num_classes=tables.num_classes,
            edge_owner=owner,
            **settings,
        )
        return RunFolder(
            path=Path(out),
            plan=plan,
            config=replace(config, symmetrize=symmetrize),
            num_features=len(tables.features),
            num_classes=tables.num_classes,
            split_id=tables.split_id(),
            data=os.fspath(nodes),
            columns=tables.columns,
        )

    tables = _Source(nodes, edges, columns, num_classes)
    maker = _Maker(Path(out), tables, parse_memory(memory), threads, draws, on_phase or _tell_nobody)
    return maker.run(describe, budget)


def resume_rows(
    path: str | os.PathLike[str],
    nodes: str | os.PathLike[str],
    edges: str | os.PathLike[str],
    *,
    memory: int | str = "4GiB",
    threads: int | None = None,
    on_phase: OnPhase | None = None,
) -> RunFolder:
    """Go on with `make_rows` in the folder that it began, with the settings of that run.

    Args:
        path: the folder of the run.
        nodes, edges: the same tables as before.
        memory, threads, on_phase: as in `make_rows`.

    Guarantees:
        Those of `make_rows`: one charge, one release.
    """
    folder = RunFolder.open(path)

    def describe(tables: Tables) -> RunFolder:
        return replace(folder, split_id=tables.split_id(), num_features=len(tables.features))

    tables = _Source(nodes, edges, folder.columns, folder.num_classes)
    maker = _Maker(folder.path, tables, parse_memory(memory), threads, normal.draw, on_phase or _tell_nobody)
    return maker.run(describe, None)


def rows_folder(out: Path) -> Path:
    """Where the rows of a run are, which are as private as its tables: beside its folder, never in it."""
    return out.with_name(f"{out.name}.rows")


def work_folder(out: Path) -> Path:
    """Where a run keeps what is as private as its tables until its rows are written: beside its folder."""
    return out.with_name(f"{out.name}.work")


def find_pair(
    data: str, edges: str | os.PathLike[str] | None, columns: Mapping[str, Any] | None
) -> tuple[str, str, Mapping[str, Any]]:
    """Nodes, edges and columns of DATA: two files or patterns, or a folder or TOML file that names them."""
    if edges is not None and Path(data).suffix in (".parquet", ".csv", ".tsv"):
        return data, os.fspath(edges), columns or {}
    # A connection and a folder are for DataFrames alone.
    files = find_tables(data if edges is None else (data, Path(edges)), None, Path())
    return str(files.nodes), str(files.edges), merge_columns(files.columns, columns or {})


class _Source(NamedTuple):
    """The tables of a run, as they are named."""

    nodes: str | os.PathLike[str]
    edges: str | os.PathLike[str]
    columns: Columns | Mapping[str, Any] | None
    num_classes: int | None


@dataclass(frozen=True)
class _Maker:
    """Makes the rows of a run within limits."""

    path: Path
    source: _Source
    memory: int
    threads: int | None
    draws: Draws
    tell: OnPhase

    def run(
        self,
        describe: Callable[[Tables], RunFolder],
        budget: str | os.PathLike[str] | DataBudget | None,
    ) -> RunFolder:
        """Check the tables, create the run or go on with it, and take the phases that are left."""
        path, work = self.path, work_folder(self.path)
        is_new = not (path / "run.json").exists()
        if not is_new and rows_folder(path).is_dir():
            shutil.rmtree(work, ignore_errors=True)
            return RunFolder.open(path)
        if is_new:
            check_out(path)
            if rows_folder(path).exists():
                raise RunError(
                    f"out={path}: {rows_folder(path).name} beside it holds rows of another run; remove them, "
                    "or choose another folder"
                )
        try:
            work.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunError(
                f"out={path}: cannot be created ({error.strerror}); choose another folder"
            ) from None
        try:
            with open_database(work, memory=self.memory // 2, threads=self.threads) as connection:
                self.tell("check tables")
                tables = Tables.open(
                    connection,
                    self.source.nodes,
                    self.source.edges,
                    work=work,
                    columns=self.source.columns,
                    num_classes=self.source.num_classes,
                )
                _check_memory(self.memory, tables.num_nodes)
                folder = open_run(describe(tables), budget)
                is_new = False
                _Phases(folder, tables, self.memory, self.draws, self.tell).run()
        except BaseException:
            if is_new:
                # A run that was refused leaves nothing.
                shutil.rmtree(work, ignore_errors=True)
            raise
        shutil.rmtree(work)
        return folder


@dataclass(frozen=True, eq=False)
class _Phases:
    """The phases of a run on tables."""

    folder: RunFolder
    tables: Tables
    memory: int
    draws: Draws
    tell: OnPhase

    @property
    def work(self) -> Path:
        return work_folder(self.folder.path)

    def run(self) -> None:
        """Sort records, charge and release the board, write the rows; finished phases are skipped."""
        records = Records.open(self.work / "records")
        if records is None:
            self.tell("sort records")
            records = Records.write(
                self.work / "records",
                self.tables.records(self.folder.plan.edge_owner, symmetrize=self.folder.config.symmetrize),
                num_nodes=self.tables.num_nodes,
                most_in_memory=self.memory // 4,
            )
        labels = self.tables.training_labels()
        with charge_board(self.folder):
            if not board_folder(self.folder).is_dir():
                self.tell("make board")
                self._make_board(records, labels)
        self.tell("write rows")
        self._save_for_predictions()
        self._write_rows(records, labels)

    def _save_for_predictions(self) -> None:
        """Write the released board as `hushgraph predict` reads it, where it fits memory."""
        cells = self.tables.num_nodes * (4 * self.tables.num_classes + _BYTES_PER_NAME)
        path = self.folder.path / BOARD_FILES[0]
        if path.exists() or _COPIES * cells > self.memory // 2:
            return
        about = read_about(self.folder)
        values = np.concatenate(list(self._read_board(about["files"])))
        names = self.tables.read_ids(self._board_files(about["files"]))
        board = Board(values=values, noise_std=about["noise_std"], names=names, plan=about["plan"])
        save_board(board, path)

    def _board_files(self, count: int) -> list[str]:
        return [str(board_folder(self.folder) / f"part-{i:05d}.parquet") for i in range(count)]

    def _read_board(self, count: int) -> Iterator[Float32Array]:
        return read_board_values(self.tables.connection, self._board_files(count), self.tables.num_classes)

    def _make_board(self, records: Records, labels: Int32Array) -> None:
        """Cast, add noise and write range after range of places; release all of it at once."""
        draft = self.work / "board"
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir()
        sizes = records.list_sizes()
        gain, rest = _entries(sizes, labels, self.tables.num_classes)
        noise, std, number = board_noise(self.folder), 0.0, 0
        for begin, end in self._ranges(records):
            tally = _cast_range(records, begin, end, labels, gain, rest, self.tables.num_classes)
            board = release(tally, noise_std=noise, draws=self.draws)
            self.tables.write_board(draft / f"part-{number:05d}.parquet", begin, board.values)
            std, number = board.noise_std, number + 1
        about = {"noise_std": std.hex(), "plan": self.folder.plan.fingerprint(), "places": len(sizes)}
        write_about(draft, {**about, "classes": self.tables.num_classes, "files": number})
        publish(draft, board_folder(self.folder))

    def _write_rows(self, records: Records, labels: Int32Array) -> None:
        board = self._load_board()
        weights, sizes = place_weights(board), records.list_sizes()
        draft = self.work / "rows"
        draft.mkdir(exist_ok=True)
        for number, (begin, end) in enumerate(self._ranges(records)):
            path = draft / f"part-{number:05d}.parquet"
            if path.exists():
                continue
            ballots = ballots_of_lists(
                sizes[begin:end].astype(np.int64),
                labels[begin:end].astype(np.int64),
                self.folder.plan.edge_owner,
                num_classes=board.num_classes,
            )
            readings = _read_range(records, begin, end, board, weights, ballots)
            config = self.folder.config
            scaled = scale_readings(readings, board, scale=config.reading_scale, radius=config.reading_radius)
            unfinished = path.with_suffix(".draft")
            self.tables.write_rows(unfinished, begin, scaled)
            unfinished.rename(path)
        publish(draft, rows_folder(self.folder.path))

    def _load_board(self) -> Board:
        """The released board as training reads it, in a file that is mapped into memory."""
        about = read_about(self.folder)
        shape = (self.tables.num_nodes, self.tables.num_classes)
        values = np.memmap(self.work / "values", np.float32, "w+", shape=shape)
        begin = 0
        for part in self._read_board(about["files"]):
            centred, _ = combine_boards([Board(values=part, noise_std=about["noise_std"])])
            values[begin : begin + len(part)] = centred.values
            begin += len(part)
        return Board(values=np.asarray(values), noise_std=about["noise_std"])

    def _ranges(self, records: Records) -> Iterator[tuple[int, int]]:
        """Ranges of rows whose sums, in float64, take at most a sixteenth of the memory."""
        most = max(1, self.memory // (16 * 8 * self.tables.num_classes))
        for begin, end in records.ranges():
            for first in range(begin, end, most):
                yield first, min(first + most, end)


def _entries(
    sizes: Int32Array, labels: Int32Array, num_classes: int
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """int32 [N] each: what a row adds to its class beyond the rest, and what it takes from all classes."""
    gain, rest = np.empty(len(sizes), np.int32), np.empty(len(sizes), np.int32)
    for begin in range(0, len(sizes), _BLOCK):
        block = slice(begin, begin + _BLOCK)
        # The owner of edges makes no difference to what is cast.
        ballots = ballots_of_lists(
            sizes[block].astype(np.int64), labels[block].astype(np.int64), "sender", num_classes=num_classes
        )
        gain[block], rest[block] = ballots.own + ballots.rest, ballots.rest
    return gain, rest


def _cast_range(
    records: Records,
    begin: int,
    end: int,
    labels: Int32Array,
    gain: Int32Array,
    rest: Int32Array,
    num_classes: int,
) -> Int64Array:
    """int64 [end - begin, c]: the tally of these places. Private."""
    tally = np.zeros((end - begin, num_classes), np.int64)
    taken = np.zeros(end - begin, np.int64)
    for owners, places in records.of_places(begin):
        owners, places = _within(owners, places, places, begin, end)
        add_label_ballots(owners, places - begin, labels, gain, rest, tally, taken)
    tally -= taken[:, None]
    return tally


def _read_range(
    records: Records, begin: int, end: int, board: Board, weights: npt.NDArray[np.float64], ballots: Ballots
) -> Float32Array:
    """float32 [end - begin, c]: the readings of these rows, their own ballots taken off."""
    count = end - begin
    sums, slots = np.zeros((count, board.num_classes)), np.arange(count)
    square, own_weight = np.zeros(count), np.zeros(count)
    for owners, places in records.of_owners(begin):
        owners, places = _within(owners, places, owners, begin, end)
        owners = owners - begin
        add_records(owners, places, slots, weights, board.values, sums, square)
        add_own(owners, places, slots, weights, own_weight, NOTHING, np.empty(0, np.int32), False)
    take_off(sums, own_weight, ballots, slots)
    return normalise(sums, square)


def _within(
    owners: Int64Array, places: Int64Array, keys: Int64Array, begin: int, end: int
) -> tuple[Int64Array, Int64Array]:
    """The records whose key is in the range; all of them where the file holds no others."""
    inside = (keys >= begin) & (keys < end)
    return (owners, places) if inside.all() else (owners[inside], places[inside])


def parse_memory(memory: int | str) -> int:
    """The bytes of "8GiB", "500MB" or a number of bytes; InputError for anything else or too little."""
    text = str(memory).replace(" ", "").upper()
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([A-Z]*)", text)
    if match is None or match[2] not in _UNITS:
        raise InputError(f"memory={memory!r}: expected a size such as '8GiB'")
    size = int(float(match[1]) * _UNITS[match[2]])
    if size < _LEAST_MEMORY:
        raise InputError(f"memory={memory!r}: expected at least 512MiB")
    return size


def _check_memory(memory: int, num_nodes: int) -> None:
    needed = 2 * _BYTES_PER_NODE * num_nodes
    if needed > memory:
        raise InputError(
            f"memory={memory // 2**20}MiB: {num_nodes:,} nodes need at least {needed // 2**20 + 1}MiB; "
            "give more"
        )


def _tell_nobody(phase: str) -> None:
    """Without an observer nobody is told."""
