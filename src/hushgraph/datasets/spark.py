"""Spark as the reader of tables: its executors write the columns that a run needs to plain Parquet files.

    tables, wherever they are -> executors -> Parquet in the work space -> the ordinary path

Nothing looks across rows but the order of nodes, which is that of their files, or else of their identifiers.
No row passes through this process, and nothing is drawn here: a task that is repeated costs time alone.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import os
import re
import shutil
import socket
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple
from urllib.parse import urlsplit

from hushgraph import errors
from hushgraph._text import SPARK_TABLE
from hushgraph.datasets.paths import format_path
from hushgraph.datasets.tables.table import Origin
from hushgraph.errors import GraphError, InputError, WriteError
from hushgraph.graph.columns import Columns

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from hushgraph.datasets.tables.files import TableFiles

_MASTER = re.compile(r"local(-cluster)?(\[.+\])?|yarn|(spark|k8s|sc)://.+")
# Where nothing else is given. Kubernetes has ports of its own.
_PORTS = {"spark": 7077, "sc": 15002}
# Seconds until a master that does not answer counts as unreachable.
_PATIENCE = 5.0
_TEXTS = {".csv": ",", ".tsv": "\t", ".txt": ","}
# Names of columns are case-sensitive, and types arrive as other writers of Parquet give them.
_WRITING = {
    "spark.sql.caseSensitive": "true",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.writeLegacyFormat": "false",
}
# Text as it is, and a table that is not well formed is an error.
_CSV = {"header": True, "multiLine": True, "escape": '"', "mode": "FAILFAST", "enforceSchema": False}
_ORDER = "hushgraph order"
# An error of ours at the end of a trace from an executor.
_TOLD = re.compile(r"^hushgraph\.errors\.(\w+): (.*)$", re.MULTILINE)
Role = Literal["nodes", "edges"]
_engine: ContextVar[str | None] = ContextVar("spark", default=None)


def is_master(engine: str) -> bool:
    """Whether this is "spark" or says which Spark: a master, or the address of Spark Connect."""
    return engine == "spark" or _MASTER.fullmatch(engine) is not None


@contextlib.contextmanager
def read_by_spark(engine: str) -> Iterator[None]:
    """Let Spark read tables in this context; InputError where it is not installed."""
    if importlib.util.find_spec("pyspark") is None:
        raise InputError(f"engine={engine!r}: Spark is not installed; pip install 'hushgraph[spark]'")
    token = _engine.set(engine)
    try:
        yield
    finally:
        _engine.reset(token)


def is_reading() -> bool:
    """Whether Spark reads tables at present."""
    return _engine.get() is not None


@contextlib.contextmanager
def _open_session(engine: str, given: Iterable[Any]) -> Iterator[SparkSession]:
    """The session of the DataFrames, or one that is open; else a new one, which ends with the context."""
    from pyspark.sql import SparkSession

    own = next((each.sparkSession for each in given if hasattr(each, "sparkSession")), None)
    session = own or SparkSession.getActiveSession()
    if session is not None:
        if engine != "spark":
            raise InputError(
                f"engine={engine!r}: a session of Spark is open already; give engine='spark' to use it, or "
                "stop it first"
            )
        yield session
        return
    remote = os.environ.get("SPARK_REMOTE") if engine == "spark" else None
    if engine.startswith("sc://"):
        remote = engine
    _check_reachable(engine, remote or engine)
    with tempfile.TemporaryFile() as log, contextlib.ExitStack() as stack:
        with name_errors(lambda reason: InputError(_explain_start(engine, reason, log))):
            builder: Any = SparkSession.builder
            session = builder.remote(remote).getOrCreate() if remote else _start(engine, log, stack)
        stack.callback(_stop, session)
        yield session


def _check_reachable(engine: str, address: str) -> None:
    """Refuse a master that does not answer, or no Java: Spark itself would try for minutes, and say much."""
    scheme, _, hosts = address.partition("://")
    home = os.environ.get("JAVA_HOME")
    if scheme != "sc" and shutil.which("java" if home is None else f"{home}/bin/java") is None:
        raise InputError(
            f"engine={engine!r}: Spark needs Java 17 or newer, and there is none; install it (on Debian "
            "apt-get install default-jre-headless), or set JAVA_HOME"
        )
    if scheme not in _PORTS or not hosts:
        return
    reason: object = None
    for host in hosts.split(","):
        try:
            place = urlsplit(f"//{host}")
            own = place.hostname or "", place.port or _PORTS[scheme]
            socket.create_connection(own, timeout=_PATIENCE).close()
            return
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
    raise InputError(f"engine={engine!r}: it cannot be reached ({reason}); start it, or correct the address")


def _start(engine: str, log: Any, stack: contextlib.ExitStack) -> SparkSession:
    """A session of this process's own, whose log is not shown: failures are told in one line."""
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    conf = SparkConf().setAppName("hushgraph").set("spark.ui.enabled", "false")
    if engine != "spark":
        conf.setMaster(engine)
    gateway = SparkContext._gateway
    if gateway is None:
        gateway = launch_gateway(conf, popen_kwargs={"stdout": log, "stderr": log})
        stack.callback(_end_gateway, gateway)
    context = SparkContext(conf=conf, gateway=gateway)
    is_chosen = "PYSPARK_PYTHON" in os.environ or conf.contains("spark.pyspark.python")
    if context.master.startswith("local") and not is_chosen:
        # Executors of this machine have the packages that this process has.
        context.pythonExec = sys.executable
    return SparkSession(context)


def _stop(session: SparkSession) -> None:
    with contextlib.suppress(Exception):
        session.stop()


def _end_gateway(gateway: Any) -> None:
    """End Java, where it was started here: what is trained next needs the memory."""
    from pyspark import SparkContext

    if (process := getattr(gateway, "proc", None)) is None:
        return
    SparkContext._gateway = SparkContext._jvm = None
    with contextlib.suppress(Exception):
        gateway.shutdown()
    process.stdin.close()
    process.wait()


def _explain_start(engine: str, reason: str, log: Any) -> str:
    log.seek(0)
    lines = log.read().decode(errors="replace").split("\n")
    errors = [line for line in lines if "Exception" in line or "rror" in line]
    why = _shorten(errors[-1]) if errors and "Java gateway" in reason else reason
    return f"engine={engine!r}: Spark cannot be started ({why[:200]}); check Java, master and settings"


@contextlib.contextmanager
def name_errors(explain: Callable[[str], Exception]) -> Iterator[None]:
    """Raise what `explain` makes of an error of Spark, in one line, or what our code said in an executor."""
    try:
        yield
    except Exception as error:
        is_ours = type(error).__module__.partition(".")[0] not in ("pyspark", "py4j", "grpc")
        if is_ours and not isinstance(error, OSError):
            raise
        told = _TOLD.search(str(error))
        if told is not None:
            raise getattr(errors, told[1])(told[2]) from None
        raise explain(_shorten(str(error))) from None


def _shorten(text: str) -> str:
    """What an error of Spark says, without the names of classes, tasks and states, or a trace."""
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    first = lines[1] if len(lines) > 1 and lines[0].startswith("An error occurred") else (lines or [""])[0]
    # Of Python in an executor, what its trace ends with.
    raised = re.findall(r"^[\w.]*(?:Error|Exception)\w*: .+$", text, re.MULTILINE)
    first = raised[-1] if raised and "Traceback (most recent call last)" in text else first
    first = re.sub(r"^.*\(TID \d+\) \([^()]*\): ", "", first.removeprefix(": "))
    return re.sub(r"^([\w$]+\.)+[\w$]+: |\[[A-Z_.]+\] ?| ?SQLSTATE: \w+;?", "", first).strip(" .")


@contextlib.contextmanager
def change_settings(session: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Change settings of a session within the context, then restore them: it may be the caller's."""
    old = {name: session.conf.get(name, None) for name in settings}
    try:
        for name, value in settings.items():
            session.conf.set(name, value)
        yield
    finally:
        for name, former in old.items():
            session.conf.unset(name) if former is None else session.conf.set(name, former)


def fetch_tables(
    files: TableFiles,
    columns: Columns | Mapping[str, Any] | None,
    folder: Path,
    *,
    needs_split: bool,
) -> TableFiles:
    """Let Spark write the tables to Parquet files in a folder; return these files.

    Args:
        files: what was given: files, addresses, names of tables and DataFrames.
        columns: as in `arrays_from_tables`. Columns that have no role are empty in the files.
        folder: that executors must reach as this process does.
        needs_split: whether the nodes must have a column of splits.
    """
    engine, numbers = str(_engine.get()), count()
    with _open_session(engine, (*files.nodes, *files.edges)) as session, change_settings(session, _WRITING):
        fetcher = _Fetcher(
            session=session,
            columns=files.columns_with(columns),
            is_fixed=isinstance(columns, Columns),
            needs_split=needs_split,
        )

        def fetch(sources: Iterable[Any], role: Role) -> dict[Path, Origin]:
            paths = {folder / f"{role}-{next(numbers)}": run for run in _find_runs(sources)}
            return {path: fetcher.write(run, role, path) for path, run in paths.items()}

        nodes = fetch(files.nodes, "nodes")
        relations = {name: fetch(sources, "edges") for name, sources in files.relations.items()}
        edges = fetch(() if relations else files.edges, "edges")
    for each in relations.values():
        edges |= each
    return replace(
        files,
        nodes=tuple(nodes),
        edges=tuple(edges),
        relations={name: tuple(each) for name, each in relations.items()},
        origins=nodes | edges,
    )


class Frames(NamedTuple):
    """Tables that Spark has opened and not read yet. Columns without a role are empty.

    Attributes:
        session: what opened them.
        nodes: their table.
        edges: by the name of their relation, "" where it has none.
        origins: of the nodes and then of every table of edges; rows are not counted.
    """

    session: SparkSession
    nodes: DataFrame
    edges: dict[str, DataFrame]
    origins: tuple[Origin, ...]


@contextlib.contextmanager
def open_frames(files: TableFiles, columns: Columns) -> Iterator[Frames]:
    """Open the tables of `files` by Spark, with the columns that a run keeps."""
    edges = dict(files.relations) or {"": files.edges}
    with (
        _open_session(str(_engine.get()), (*files.nodes, *files.edges)) as session,
        change_settings(session, _WRITING),
    ):
        fetcher = _Fetcher(session=session, columns=columns, is_fixed=True, needs_split=False)
        nodes = fetcher.open(files.nodes, "nodes")
        opened = {name: fetcher.open(sources, "edges") for name, sources in edges.items()}
        named = (_name_origin(sources, "edges") for sources in edges.values())
        yield Frames(session, nodes, opened, (_name_origin(files.nodes, "nodes"), *named))


def _name_origin(sources: Sequence[Any], role: Role) -> Origin:
    return Origin(_name_sources([*sources], role), _find_delimiter(sources[0]) is not None, 0)


def _find_runs(sources: Iterable[Any]) -> list[list[Any]]:
    """Files that follow each other in the order of their names are read together; anything else by itself."""
    runs: list[list[Any]] = []
    for source in sources:
        last: Any = runs[-1][-1] if runs else None
        is_next = isinstance(source, Path) and isinstance(last, Path)
        if is_next and last.suffix == source.suffix and last < source:
            runs[-1].append(source)
        else:
            runs.append([source])
    return runs


@dataclass(frozen=True, kw_only=True)
class _Fetcher:
    """Writes tables by one session; other attributes as the arguments of `fetch_tables`."""

    session: SparkSession
    columns: Columns
    is_fixed: bool
    needs_split: bool

    def write(self, sources: list[Any], role: Role, path: Path) -> Origin:
        """Let executors write a table; the rows that they wrote are counted where they are written."""
        from pyspark.sql import Observation
        from pyspark.sql import functions as f

        name, seen = _name_sources(sources, role), Observation()
        with name_errors(partial(_explain, name, path)):
            table, place = self._open(sources)
            names = table.columns
            cells = self._choose(names, role)
            if role == "nodes" and place is not None:
                table = table.select(*cells, place.alias(_ORDER)).orderBy(_ORDER).drop(_ORDER)
            elif role == "nodes" and self.columns.id in names:
                table = table.select(*cells).orderBy(quote(self.columns.id))
            else:
                table = table.select(*cells)
            if not self._has_all(names, role):
                # What is missing is told before rows are read.
                table = table.limit(0)
            table = table.observe(seen, f.count(f.lit(1)).alias("rows"))
            table.write.option("compression", "snappy").parquet(f"file://{path.absolute()}")
            return Origin(name, _find_delimiter(sources[0]) is not None, int(seen.get["rows"]))

    def open(self, sources: Sequence[Any], role: Role) -> DataFrame:
        """All rows of a table, in no order."""
        with name_errors(partial(_explain, _name_sources([*sources], role), None)):
            tables = [self._open(run)[0] for run in _find_runs(sources)]
            chosen = [table.select(*self._choose(table.columns, role)) for table in tables]
            return functools.reduce(type(chosen[0]).unionByName, chosen)

    def _open(self, sources: list[Any]) -> tuple[DataFrame, Column | None]:
        """A table, and where each of its rows is in files; None for a table that is in no order."""
        from pyspark.sql import functions as f

        first = sources[0]
        if not isinstance(first, (str, Path)):
            return first, None
        if isinstance(first, str) and first.startswith(SPARK_TABLE):
            return self.session.table(first.removeprefix(SPARK_TABLE)), None
        paths = [each if isinstance(each, str) else _escape(each) for each in sources]
        delimiter = _find_delimiter(first)
        if delimiter is None:
            table = self.session.read.parquet(*paths)
        else:
            own = {"sep": self.columns.delimiter or delimiter, **_CSV}
            table = self.session.read.options(**own).csv(paths)
        parts = f.split(f.col("_metadata.file_path"), "/")
        place = f.struct(parts, f.col("_metadata.file_block_start"), f.monotonically_increasing_id())
        return table, place

    def _choose(self, names: list[str], role: Role) -> list[Column]:
        """All columns, those without a role empty: what is read is what a run needs."""
        from pyspark.sql import functions as f

        used = self._list_used(names, role)
        empty = f.lit(None).cast("boolean")
        return [f.col(quote(name)) if name in used else empty.alias(name) for name in names]

    def _list_used(self, names: list[str], role: Role) -> set[str]:
        if role == "edges":
            return {*self.columns.edge_columns}
        columns = self.columns.resolve_names(names)
        used = {columns.id, *columns.label_columns, *(columns.features or ()), *columns.categorical}
        used |= {*columns.hashed, *columns.group, *columns.dates, *columns.booleans, *columns.cycles}
        return used | {name for name in (columns.split, columns.person) if name is not None}

    def _has_all(self, names: list[str], role: Role) -> bool:
        """Whether no column is missing, as far as that is known: a run predicts without labels."""
        if self.is_fixed:
            return True
        is_split = (
            role == "edges" or not self.needs_split or "split" in names or self.columns.split is not None
        )
        return is_split and self._list_used(names, role) <= {*names}


def _name_sources(sources: list[Any], role: Role) -> str:
    """What messages call a table."""
    first = sources[0]
    if not isinstance(first, (str, Path)):
        return f"the DataFrame of {role}"
    return format_path(first) + (f" and {len(sources) - 1} more" if len(sources) > 1 else "")


def _find_delimiter(source: Any) -> str | None:
    """The usual delimiter of a text file; None for anything else."""
    is_file = isinstance(source, (str, Path)) and not str(source).startswith(SPARK_TABLE)
    return _TEXTS.get(Path(source).suffix.casefold()) if is_file else None


def _escape(path: Path) -> str:
    """A path as Spark reads it, with its wildcards escaped."""
    return "file://" + re.sub(r"([\\\[\]{}*?])", r"\\\1", str(path.absolute()))


def quote(name: str) -> str:
    """The name of a column in Spark."""
    return "`" + name.replace("`", "``") + "`"


def _explain(name: str, path: Path | None, reason: str) -> Exception:
    """What stands in the way of reading a table, or of writing it to a path."""
    if path is not None and (str(path.absolute()) in reason or "No space left" in reason):
        return WriteError(
            f"{path.parent}: executors of Spark cannot write there ({reason[:200]}); free space, or choose "
            "by --out a file system that driver and executors share"
        )
    return GraphError(
        f"{name}: Spark cannot read it ({reason[:200]}); correct the name, or let Spark read it"
    )
