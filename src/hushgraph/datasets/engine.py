"""What `--engine` chooses to read tables with: memory, DuckDB or Spark.

DuckDB reads tables that are larger than memory, and arrays are then kept in files.
Spark writes what a run needs of its tables to files, which DuckDB then reads. Everything after reading is the
same code, so that a run has the same numbers either way. An engine that tallies boards itself is a `Source`
(`training/source.py`).
"""

from __future__ import annotations

import contextlib
import glob
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, get_args

from hushgraph._arrays import keep_on_disk
from hushgraph._files import lock_file, unlock_file
from hushgraph._text import suggest
from hushgraph.datasets.spark import is_master, read_by_spark
from hushgraph.datasets.tables.files import TableFiles, find_tables, is_tables
from hushgraph.datasets.tables.frames import is_frame
from hushgraph.errors import InputError, WriteError
from hushgraph.privacy import choices

DEFAULT_MEMORY = "4GiB"
_UNITS = {"": 1, "B": 1, "MB": 10**6, "GB": 10**9, "TB": 10**12, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}
_LEAST_MEMORY = 2**29
# What reading takes in memory: of an edge, two ends and the reads of both directions while they are sorted;
# of a node, labels, ballots and sums beside its cells, of which scaling makes a second table.
_BYTES_PER_EDGE, _BYTES_PER_NODE, _BYTES_PER_CELL = 16, 200, 8
# A line of a table of edges that is not counted, and the bytes of a file of nodes that become one in memory.
_BYTES_PER_LINE, _GROWTH = 10, 6
_LOCK = "lock"
OnEngine = Callable[[str], None]
"""Called with one line, before anything is read: what reads the tables, and why."""


@contextlib.contextmanager
def use_engine(
    engine: str | None,
    data: Any,
    *,
    memory: str | None = None,
    beside: Path | None = None,
    tell: OnEngine = lambda _: None,
) -> Iterator[bool]:
    """Read tables in this context as an engine does; yield whether arrays are in files.

    Args:
        engine: "memory", the default; "duckdb"; "auto", which is one of both by the sizes of the files; or
            "spark", a master of Spark such as "spark://host:7077", or the address of Spark Connect.
        data: what is read.
        memory: what DuckDB and sorting may use, "4GiB" unless given; with "auto", what there is, by default
            what is free.
        beside: the file or folder beside which work space is made, `NAME.work`, and removed; a folder for
            temporary files unless given.
        tell: told what "auto" chose.

    Guarantees:
        What is computed in this context is what is computed without it, number for number.
        Work space is as private as the tables: it is removed at the end, files of arrays have no names, and
        what a kill leaves is removed by the next call beside the same path.
    """
    chosen = choose_engine(engine, data, memory=memory, tell=tell)
    if chosen == "memory":
        yield False
        return
    if not is_tables(data):
        raise InputError(
            f"engine={engine!r}: it reads tables, CSV or Parquet, and DATA is none; leave engine out, or "
            "store nodes and edges as tables"
        )
    limit = parse_memory(memory or DEFAULT_MEMORY)
    reads = read_by_spark(chosen) if is_master(chosen) else contextlib.nullcontext()
    with reads, _open_work(beside) as folder, keep_on_disk(folder, memory=limit):
        yield True


def choose_engine(
    engine: str | None,
    data: Any,
    *,
    memory: str | None = None,
    tell: OnEngine = lambda _: None,
) -> str:
    """ "memory", "duckdb" or which Spark; InputError for anything else."""
    named = get_args(choices.Engine)
    if engine is not None and engine not in named and not is_master(engine):
        listed = ", ".join(named)
        raise InputError(
            f"engine={engine!r}: expected {listed} or a master of Spark, such as local[2] or "
            f"spark://host:7077{suggest(engine, named)}"
        )
    if engine in (None, "memory"):
        if memory is not None:
            raise InputError(f"memory={memory!r}: only an engine keeps to it; add --engine duckdb or auto")
        return "memory"
    if engine != "auto":
        return engine
    if not is_tables(data):
        tell("--engine auto: memory, since DATA is no table")
        return "memory"
    needed = estimate_memory(data)
    free = parse_memory(memory) if memory is not None else find_free_memory()
    is_enough = needed <= free
    sizes = f"about {needed / 2**30:.1f} GiB by the sizes of the files, and {free / 2**30:.1f} GiB"
    whose = "are free" if memory is None else "may be used"
    chosen = "memory" if is_enough else "duckdb"
    tell(f"--engine auto: {chosen}; in memory the tables take {sizes} {whose}")
    return chosen


def estimate_memory(data: Any) -> int:
    """Bytes that training in memory takes for these tables, from rows of Parquet and sizes of CSV."""
    files = _find_files(data)
    if files is None:
        # DataFrames are in memory already.
        return 0
    nodes = 0
    for path in files.nodes:
        counted = _count_parquet(path)
        if counted is None:
            nodes += _GROWTH * path.stat().st_size
        else:
            nodes += counted[0] * (_BYTES_PER_NODE + _BYTES_PER_CELL * counted[1])
    edges = 0
    for path in files.edges:
        counted = _count_parquet(path)
        edges += path.stat().st_size // _BYTES_PER_LINE if counted is None else counted[0]
    return nodes + _BYTES_PER_EDGE * edges


def _find_files(data: Any) -> TableFiles | None:
    if isinstance(data, Sequence) and not isinstance(data, str) and any(map(is_frame, data)):
        return None
    return find_tables(data, None, Path())


def _count_parquet(path: Path) -> tuple[int, int] | None:
    """Rows and columns of a Parquet file by its last bytes; None for another file, or a damaged one."""
    import duckdb

    if path.suffix.casefold() != ".parquet":
        return None
    pattern = glob.escape(str(path.absolute()))
    with duckdb.connect() as connection, contextlib.suppress(duckdb.Error):
        rows = connection.execute("SELECT num_rows FROM parquet_file_metadata(?)", [pattern]).fetchall()
        columns = connection.execute("SELECT name FROM parquet_schema(?)", [pattern]).fetchall()
        return int(rows[0][0]), len(columns)
    return None


def find_free_memory() -> int:
    """Bytes that a process could have, by what the system says and by the limit of its container."""
    free = 0
    with contextlib.suppress(OSError, ValueError, IndexError):
        lines = Path("/proc/meminfo").read_text().splitlines()
        free = 1024 * int(next(line for line in lines if line.startswith("MemAvailable")).split()[1])
    if not free and hasattr(os, "sysconf"):
        free = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    with contextlib.suppress(OSError, ValueError):
        free = min(free, int(Path("/sys/fs/cgroup/memory.max").read_text()))
    return free


def parse_memory(memory: str) -> int:
    """The bytes of "8GiB", "500MB" or "1000000000"; InputError for anything else or too little."""
    text = str(memory).replace(" ", "").upper()
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([A-Z]*)", text)
    if match is None or match[2] not in _UNITS:
        raise InputError(f"memory={memory!r}: expected a size such as '8GiB'")
    size = int(float(match[1]) * _UNITS[match[2]])
    if size < _LEAST_MEMORY:
        raise InputError(f"memory={memory!r}: expected at least 512MiB")
    return size


def work_folder(beside: Path) -> Path:
    """Where work space for a run, or a file, is made."""
    place = beside if beside.name not in ("", "..") else beside.resolve()
    return place.with_name(f"{place.name}.work")


@contextlib.contextmanager
def _open_work(beside: Path | None) -> Iterator[Path]:
    """A folder of this process's own, locked while it is used; nothing of it is left."""
    if beside is None:
        with tempfile.TemporaryDirectory(prefix="hushgraph-") as temporary:
            yield Path(temporary)
        return
    work = work_folder(beside)
    new = [each for each in (work, *work.parents) if not each.exists()]
    try:
        work.mkdir(parents=True, exist_ok=True)
        _remove_abandoned(work)
        own = Path(tempfile.mkdtemp(dir=work))
        lock = lock_file(own / _LOCK)
    except (OSError, ValueError) as error:
        _remove_empty(new)
        reason = getattr(error, "strerror", None) or error
        raise WriteError(f"{work}: cannot be created ({reason}); choose another folder") from None
    try:
        yield own
    finally:
        unlock_file(lock)
        shutil.rmtree(own, ignore_errors=True)
        _remove_empty([work, *(each for each in new if each != work)])


def _remove_abandoned(work: Path) -> None:
    """Remove what processes that have ended left here."""
    for folder in work.iterdir():
        with contextlib.suppress(OSError):
            unlock_file(lock_file(folder / _LOCK, flags=os.O_RDWR))
            shutil.rmtree(folder, ignore_errors=True)


def _remove_empty(folders: Sequence[Path]) -> None:
    """Remove folders, the innermost first, as far as they hold nothing."""
    with contextlib.suppress(OSError):
        for folder in folders:
            folder.rmdir()
