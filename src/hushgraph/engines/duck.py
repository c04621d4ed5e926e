"""A billboard run on tables larger than memory: DuckDB joins identifiers, sums by key are streamed from disk.

    tables -> records -> charge -> board, released once -> readings -> rows

What is released is `board/` in the folder of the run; `board-1.safetensors` shows the same numbers. Two
folders beside it are as private as the tables: `RUN.rows` holds the rows for training, and `RUN.work` is
removed at the end.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from hushgraph.datasets.tables.files import find_tables
from hushgraph.engines.duck_phases import OnPhase, Phases
from hushgraph.engines.plan import (
    begin_run,
    check_engine_settings,
    check_new,
    describe_run,
    open_begun,
    with_engine_settings,
    work_folder,
)
from hushgraph.engines.tables import Tables, open_database
from hushgraph.errors import InputError, RunError
from hushgraph.graph.columns import Columns, merge_columns
from hushgraph.noise import normal
from hushgraph.noise.rounded import Draws
from hushgraph.privacy.ledger import Ledger
from hushgraph.runs.folder import RunFolder

_UNITS = {"": 1, "B": 1, "MB": 10**6, "GB": 10**9, "TB": 10**12, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}
_LEAST_MEMORY = 2**29
_ENGINE = "duckdb"
# Arrays that are kept for every node while records are streamed.
_BYTES_PER_NODE = 24


@with_engine_settings
def make_rows(
    nodes: str | os.PathLike[str],
    edges: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    memory: int | str = "4GiB",
    threads: int | None = None,
    draws: Draws = normal.draw,
    on_phase: OnPhase | None = None,
    **settings: Any,
) -> RunFolder:
    """Cast and read the board of a run on tables that need not fit memory; training can begin after it.

    After a kill `resume_rows` goes on where it stopped. A call that is refused leaves nothing behind.

    Args:
        nodes, edges: a Parquet or CSV file each, or a pattern such as "edges/*.parquet".
        out: the folder of the run, which must be new or empty.
        memory: what the process may use, such as "8GiB". Half goes to DuckDB; 24 bytes a node are needed of
            the rest.
        threads: of DuckDB; as many as there are cores unless given.
        draws: the randomness of the noise.
        on_phase: told what begins.
        settings: listed below. The number of classes follows from `columns.classes` where these are named;
            features are numbers.

    Returns:
        The folder of the run: `board/part-*.parquet` (identifier, one number per class), and
        beside it `RUN.rows/part-*.parquet` (identifier, features, reading, label, split) in the order of
        the node table, as private as the tables; `train_rows` deletes them when training has finished.

    Guarantees:
        The tally is the sum of integer ballots, exactly that of `hushgraph.billboard.board.cast`. Every
        cell gets one draw, in the order of places. The charge is in the ledger before the tally is computed,
        and once: a resumed run pays with the charge that is there. The ledger has the digest of the board
        before any name on disk leads to a number of it, so that under one charge no second board is ever
        visible: one that is missing or is another ends the run. What an interrupted call had drawn before
        that had no name, and is gone.

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
    full = check_engine_settings(settings)
    tables = _Source(nodes, edges, full["columns"], full["num_classes"])
    maker = _Maker(Path(out), tables, parse_memory(memory), threads, draws, on_phase or _tell_nobody)
    return maker.begin(full)


def resume_rows(
    path: str | os.PathLike[str],
    nodes: str | os.PathLike[str],
    edges: str | os.PathLike[str],
    *,
    memory: int | str = "4GiB",
    threads: int | None = None,
    charge_again: bool = False,
    on_phase: OnPhase | None = None,
) -> RunFolder:
    """Go on with `make_rows` in the folder that it began, with the settings of that run.

    Args:
        path: the folder of the run.
        nodes, edges: the same tables as before. Other training nodes, numbers of nodes or features are
            refused, also where the run is finished; values are not compared.
        memory, threads, on_phase: as in `make_rows`.
        charge_again: as in `hushgraph.resume`.

    Guarantees:
        Those of `make_rows`: one charge, one release.
    """
    folder, _ = open_begun(path, engine=_ENGINE)
    tables = _Source(nodes, edges, folder.columns, folder.num_classes)
    maker = _Maker(folder.path, tables, parse_memory(memory), threads, normal.draw, on_phase or _tell_nobody)
    return maker.resume(folder, charge_again=charge_again)


def find_pair(
    data: str, edges: Sequence[str | os.PathLike[str]] | None, columns: Mapping[str, Any] | None
) -> tuple[str, str, Mapping[str, Any]]:
    """Nodes, edges and columns of DATA: two files or patterns, or a folder or TOML file that names them."""
    if edges and Path(data).suffix in (".parquet", ".csv", ".tsv"):
        return data, _name_one(edges), columns or {}
    # A connection and a folder are for DataFrames alone.
    files = find_tables((data, _name_one(edges)) if edges else data, None, Path())
    return (
        _name_one(files.given["nodes"]),
        _name_one(files.given["edges"]),
        merge_columns(files.columns, columns or {}),
    )


def _name_one(paths: Sequence[str | os.PathLike[str]]) -> str:
    """The one path or pattern of a table."""
    if len(paths) > 1:
        raise InputError(
            f"{os.fspath(paths[0])} and {os.fspath(paths[1])}: an engine takes one file or one pattern for "
            "each table; give a pattern that both match"
        )
    return os.fspath(paths[0])


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

    def begin(self, settings: Mapping[str, Any]) -> RunFolder:
        """Check the tables as a whole, then create the run and take its phases."""
        check_new(self.path)
        new, is_begun = self._make_work(may_be_there=False), False
        try:
            with self._open_tables() as tables:
                data = os.fspath(self.source.nodes)
                folder = describe_run(self.path, tables, settings, data=data)
                phases = self._phases(folder, tables)
                phases.read_tables()
                with begin_run(folder, engine=_ENGINE) as ledger:
                    is_begun = True
                    phases.run(ledger)
        except BaseException:
            if not is_begun:
                _remove_folders(new)
            raise
        shutil.rmtree(self._work)
        return folder

    def resume(self, folder: RunFolder, *, charge_again: bool) -> RunFolder:
        """Check that the tables are those of the run, and take the phases that are left.

        The ledger is locked first, then everything is checked, and only then is anything charged.
        """
        with contextlib.ExitStack() as stack:
            new, is_checked = self._make_work(may_be_there=True), False

            def check_tables() -> Phases:
                phases = self._phases(folder, stack.enter_context(self._open_tables()))
                phases.check_same_tables()
                return phases

            try:
                if folder.is_finished:
                    check_tables()
                else:
                    checked: list[Phases] = []

                    def check(ledger: Ledger) -> None:
                        checked.append(check_tables())
                        checked[0].check(ledger)

                    ledger = stack.enter_context(folder.go_on(charge_again=charge_again, check=check))
                    is_checked = True
                    checked[0].run(ledger)
            except BaseException:
                if not is_checked:
                    _remove_folders(new)
                raise
        shutil.rmtree(self._work)
        return folder

    @property
    def _work(self) -> Path:
        return work_folder(self.path)

    def _make_work(self, *, may_be_there: bool) -> list[Path]:
        """Make the folder to work in; return which folders are new, the innermost first."""
        folders = [self._work, *self._work.parents]
        try:
            new = [each for each in folders if not each.exists()]
            self._work.mkdir(parents=True, exist_ok=may_be_there)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise RunError(f"out={self.path}: cannot be created ({reason}); choose another folder") from None
        return new

    @contextlib.contextmanager
    def _open_tables(self) -> Iterator[Tables]:
        with open_database(self._work, memory=self.memory // 2, threads=self.threads) as connection:
            self.tell("check tables")
            tables = Tables.open(
                connection,
                self.source.nodes,
                self.source.edges,
                work=self._work,
                columns=self.source.columns,
                num_classes=self.source.num_classes,
            )
            _check_memory(self.memory, tables.num_nodes)
            yield tables

    def _phases(self, folder: RunFolder, tables: Tables) -> Phases:
        return Phases(folder, tables, self.memory, self.draws, self.tell)


def _remove_folders(new: list[Path]) -> None:
    """Remove the folder to work in, and those around it as far as they hold nothing else."""
    for path in new[:1]:
        shutil.rmtree(path, ignore_errors=True)
    with contextlib.suppress(OSError):
        for path in new[1:]:
            path.rmdir()


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
