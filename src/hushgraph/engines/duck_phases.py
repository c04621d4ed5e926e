"""The phases of a run on tables, by DuckDB: records, board, readings, rows; each is found again or made."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

import numpy as np
import numpy.typing as npt

from hushgraph._files import write_whole
from hushgraph.billboard.ballots import ballots_of_lists
from hushgraph.billboard.board import Board, load_board, release, save_board
from hushgraph.billboard.reading import (
    combine_boards,
    place_weights,
    scale_readings,
)
from hushgraph.engines.plan import (
    board_folder,
    board_noise,
    check_same_nodes,
    publish,
    read_about,
    rows_folder,
    work_folder,
    write_about,
)
from hushgraph.engines.records import Int32Array, Records
from hushgraph.engines.released import BOARD, map_values, read_digest, release_values, released_std
from hushgraph.engines.sums import cast_range, list_entries, read_range
from hushgraph.engines.tables import Tables, board_files, digest_files, read_board_values
from hushgraph.errors import RunError
from hushgraph.noise.rounded import Draws
from hushgraph.privacy.ledger import Ledger
from hushgraph.runs.consistency import BOARD_FILES
from hushgraph.runs.folder import RunFolder
from hushgraph.training.boards import digest_of
from hushgraph.training.source import check_release, find_released, release_board

Float32Array = npt.NDArray[np.float32]
OnPhase = Callable[[str], None]
"""Called with the name of every phase when it begins."""

# How many lines the tables have: as private as they are.
_COUNTS = "tables.json"
# What the identifier of a place may take, and how often the board is in memory while it is written.
_BYTES_PER_NAME, _COPIES = 64, 3


@dataclass(frozen=True, eq=False)
class Phases:
    """The phases of a run on tables."""

    folder: RunFolder
    tables: Tables
    memory: int
    draws: Draws
    tell: OnPhase

    @property
    def work(self) -> Path:
        return work_folder(self.folder.path)

    def check_same_tables(self) -> None:
        """Refuse tables with other training nodes or features, or other numbers of rows, than at first."""
        num_features = len(self.tables.features)
        check_same_nodes(self.folder, split_id=self.tables.split_id(), num_features=num_features)
        path = self.work / _COUNTS
        if path.exists() and json.loads(path.read_text()) != self._counts:
            raise RunError(
                f"run={self.folder.path}: the tables have other numbers of rows than when it began; give the "
                "data it began with"
            )

    @property
    def _counts(self) -> dict[str, int]:
        return {"nodes": self.tables.nodes.num_rows, "edges": self.tables.edges.num_rows}

    def read_tables(self) -> None:
        """Read records and labels; GraphError for those that cannot be used."""
        _ = self._records, self._labels

    @cached_property
    def _records(self) -> Records:
        """The records, sorted unless they are already."""
        records = Records.open(self.work / "records")
        if records is None:
            self.tell("sort records")
            write_whole(self.work / _COUNTS, json.dumps(self._counts).encode())
            records = Records.write(
                self.work / "records",
                self.tables.records(self.folder.plan.edge_owner, symmetrize=self.folder.config.symmetrize),
                num_nodes=self.tables.num_nodes,
                most_in_memory=self.memory // 4,
            )
        return records

    @cached_property
    def _labels(self) -> Int32Array:
        return self.tables.training_labels()

    def check(self, ledger: Ledger) -> None:
        """Refuse to go on where the board was released and is missing, or is another one."""
        if board_folder(self.folder.path).is_dir():
            check_release(ledger, BOARD, digest_files(self.tables.connection, self.folder))
        else:
            self._find_values(ledger)
        saved = self.folder.path / BOARD_FILES[0]
        if saved.exists():
            check_release(ledger, BOARD, digest_of(load_board(saved, plan=self.folder.plan.fingerprint())))

    def run(self, ledger: Ledger) -> None:
        """Charge and release the board, write the rows; finished phases are skipped.

        The ledger is locked: no other process can make a board under the same charge.
        """
        release_board(self.folder, self, ledger, 0)
        self._save_for_predictions()
        if not rows_folder(self.folder.path).is_dir():
            self.tell("write rows")
            self._write_rows()

    def find_board(self, place: int, ledger: Ledger) -> bool:
        """See `BoardSource`; released numbers are published where a kill prevented it."""
        if board_folder(self.folder.path).is_dir():
            return True
        if not self._find_values(ledger):
            return False
        self._publish_board()
        return True

    def make_board(self, place: int, ledger: Ledger) -> None:
        """See `BoardSource`."""
        self.tell("make board")
        release_values(self._values_path, self._make_values(), noise_std=self._std, ledger=ledger)
        self._publish_board()

    def _publish_board(self) -> None:
        """Write the board as Parquet, from numbers that are released."""
        values = map_values(self._values_path, self._shape)
        draft = self.work / "board"
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir()
        ranges = list(self._ranges())
        for number, (begin, end) in enumerate(ranges):
            self.tables.write_board(draft / f"part-{number:05d}.parquet", begin, values[begin:end])
        places, classes = self._shape
        about = {"noise_std": self._std.hex(), "plan": self.folder.plan.fingerprint(), "places": places}
        write_about(draft, {**about, "classes": classes, "files": len(ranges)})
        publish(draft, board_folder(self.folder.path))

    @property
    def _values_path(self) -> Path:
        return self.work / "board.values"

    @property
    def _std(self) -> float:
        return released_std(board_noise(self.folder))

    @property
    def _shape(self) -> tuple[int, int]:
        return self.tables.num_nodes, self.tables.num_classes

    def _find_values(self, ledger: Ledger) -> bool:
        read = partial(read_digest, shape=self._shape, noise_std=self._std)
        return find_released(self._values_path, ledger, BOARD, read)

    def _make_values(self) -> Iterator[Float32Array]:
        """Cast and add noise, range after range of places. Nothing of it has left the process."""
        c, noise = self.tables.num_classes, board_noise(self.folder)
        gain, rest = list_entries(self._records.list_sizes(), self._labels, c)
        for begin, end in self._ranges():
            tally = cast_range(self._records, begin, end, self._labels, gain, rest, c)
            yield release(tally, noise_std=noise, draws=self.draws).values

    def _save_for_predictions(self) -> None:
        """Write the released board as `hushgraph predict` reads it, where it fits memory."""
        path = self.folder.path / BOARD_FILES[0]
        cells = self.tables.num_nodes * (4 * self.tables.num_classes + _BYTES_PER_NAME)
        if path.exists() or _COPIES * cells > self.memory // 2:
            return
        about = read_about(self.folder)
        values = np.concatenate(list(read_board_values(self.tables.connection, self.folder)))
        names = self.tables.read_ids(board_files(self.folder))
        board = Board(values=values, noise_std=about["noise_std"], names=names, plan=about["plan"])
        save_board(board, path)

    def _write_rows(self) -> None:
        board, records, labels = self._load_board(), self._records, self._labels
        weights, sizes = place_weights(board), records.list_sizes()
        # With another limit of memory files hold other rows.
        draft = self.work / f"rows-{self._most_rows}"
        draft.mkdir(exist_ok=True)
        for number, (begin, end) in enumerate(self._ranges()):
            path = draft / f"part-{number:05d}.parquet"
            if path.exists():
                continue
            ballots = ballots_of_lists(
                sizes[begin:end].astype(np.int64),
                labels[begin:end].astype(np.int64),
                self.folder.plan.edge_owner,
                task=self.folder.task,
            )
            readings = read_range(records, begin, end, board, weights, ballots)
            config = self.folder.config
            scaled = scale_readings(readings, board, scale=config.reading_scale, radius=config.reading_radius)
            unfinished = path.with_suffix(".draft")
            self.tables.write_rows(unfinished, begin, scaled)
            unfinished.rename(path)
        publish(draft, rows_folder(self.folder.path))

    def _load_board(self) -> Board:
        """The released board as training reads it, in a file that is mapped into memory."""
        about = read_about(self.folder)
        values = np.memmap(self.work / "values", np.float32, "w+", shape=self._shape)
        begin = 0
        for part in read_board_values(self.tables.connection, self.folder):
            centred, _ = combine_boards([Board(values=part, noise_std=about["noise_std"])])
            values[begin : begin + len(part)] = centred.values
            begin += len(part)
        return Board(values=np.asarray(values), noise_std=about["noise_std"])

    @property
    def _most_rows(self) -> int:
        """How many rows have sums, in float64, that take at most a sixteenth of the memory."""
        return max(1, self.memory // (16 * 8 * self.tables.num_classes))

    def _ranges(self) -> Iterator[tuple[int, int]]:
        """Ranges of rows that are computed at a time."""
        for begin, end in self._records.ranges():
            for first in range(begin, end, self._most_rows):
                yield first, min(first + self._most_rows, end)
