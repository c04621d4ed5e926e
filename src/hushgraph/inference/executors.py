"""Predictions in the executors of Spark: rows are cut into parts, and the ordinary code scores each.

    nodes and edges, wherever they are -> parts of rows with their edges -> scores, where they are to be

A prediction is a function of one row and of what was released, so that parts need nothing of each other. What
does look across rows, which ids are rows and which edge belongs to whom, is joined by Spark before the cut.
No row passes through the driver, and nothing is drawn: a task that is repeated costs time alone.
"""

from __future__ import annotations

import importlib.util
import math
import re
import shutil
import tempfile
import weakref
import zipfile
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial, reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hushgraph import __version__
from hushgraph._text import is_elsewhere
from hushgraph.datasets.spark import Frames, change_settings, name_errors, open_frames, quote
from hushgraph.datasets.tables.files import TableFiles, find_sources
from hushgraph.datasets.tables.new_rows import ListedBy
from hushgraph.datasets.tables.reading import open_database
from hushgraph.datasets.tables.table import FIXED, Origin
from hushgraph.errors import GraphError, InputError, WriteError
from hushgraph.graph.columns import Columns
from hushgraph.inference.predicted import Predicted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

# Rows and edges of a part, on average; a part is in the memory of one executor.
_PART_ROWS, _PART_EDGES = 1 << 16, 1 << 20
_INTEGERS, _FLOATS = ("tinyint", "smallint", "int", "bigint"), ("float", "double")
_TYPES = {"i": "bigint", "b": "boolean", "U": "string", "f4": "float", "f8": "double"}
# Columns of ours beside those of the tables; their names are no names of columns anywhere else.
_PART, _TABLE, _SOURCE, _TARGET = (f"hushgraph {name}" for name in ("part", "table", "source", "target"))
_NEW_SOURCE, _NEW_TARGET, _FIRST = (f"hushgraph {name}" for name in ("new source", "new target", "first"))
_NAMES = "hushgraph names"
_COUNTED = ("unknown", "listed", "owned", "trained", "places")
_NAMED = 5
# The archives of releases that a session has.
_sent: MutableMapping[Any, dict[Any, str]] = weakref.WeakKeyDictionary()


class Counts(NamedTuple):
    """What executors counted while they wrote; every row once, however often its task ran.

    Attributes:
        rows: that were written.
        listed, unknown: places that rows list, and how many of these the board does not have.
        unknown_names: a few of the latter, in order.
        skipped: edges that no row owns.
        trained: training rows, or persons with one; 0 for new rows.
        places: places of nodes on the board; 0 for new rows.
    """

    rows: int
    listed: int
    unknown: int
    unknown_names: tuple[str, ...]
    skipped: int
    trained: int
    places: int


class PartCounts(NamedTuple):
    """What a part adds to `Counts`: `trained` and `places`."""

    trained: int = 0
    places: int = 0


@dataclass(frozen=True, kw_only=True)
class PartScorer:
    """Scores the rows of a part; executors call it.

    Attributes:
        load: opens the run in a folder.
        options: of `Run.predict_part`.
        probabilities: as in `Predicted.to_columns`.
        archive: the name of the release where executors unpack it.
        origins: of the tables, as in `Frames`.
        relations: the names of tables of edges.
        integer_ids: whether ids are written as integers.
        version: of the package where this was made.
    """

    load: Callable[..., Any]
    options: Mapping[str, Any]
    probabilities: bool
    archive: str = ""
    origins: tuple[Origin, ...] = ()
    relations: tuple[str, ...] = ()
    integer_ids: bool = False
    version: str = __version__

    def __call__(self, nodes: Any, edges: Any) -> Any:
        """Return the Arrow table of scores of a part, from those of its rows and of their edges."""
        run = _load_run(self.load, self.archive, self.version)
        with tempfile.TemporaryDirectory() as folder:
            files = self._write_part(nodes, edges, Path(folder))
            try:
                predicted, counts = run.predict_part(files, **self.options)
            except InputError as error:
                raise type(error)(f"{error} (rows are counted within a part of the table)") from None
        return self._as_arrow(predicted, counts, edges)

    def _write_part(self, nodes: Any, edges: Any, folder: Path) -> TableFiles:
        """Files of the part, as Spark would have written them."""
        import pyarrow as pa
        import pyarrow.compute as pc
        from pyarrow import parquet

        tables = [nodes.drop_columns([_PART])]
        for number in range(len(self.relations)):
            prefix = f"{number}:"
            own = edges.filter(pc.equal(edges[_TABLE], number))
            own = own.select([each for each in own.column_names if each.startswith(prefix)])
            tables.append(own.rename_columns([each.removeprefix(prefix) for each in own.column_names]))
        origins = {}
        for number, (own, origin) in enumerate(zip(tables, self.origins, strict=True)):
            path = folder / str(number)
            path.mkdir()
            parquet.write_table(own, path / "part.parquet")
            origins[path] = origin._replace(rows=own.num_rows)
        new = [
            edges.filter(edges[flag])[end] for flag, end in ((_NEW_SOURCE, _SOURCE), (_NEW_TARGET, _TARGET))
        ]
        also_new = pa.chunked_array([chunk for each in new for chunk in each.chunks], new[0].type).unique()
        first, *others = origins
        return TableFiles(
            nodes=(first,),
            edges=tuple(others),
            columns={},
            relations={name: (path,) for name, path in zip(self.relations, others, strict=True) if name},
            origins=origins,
            also_new=np.array(also_new.to_pylist()),
        )

    def _as_arrow(self, predicted: Predicted, part: PartCounts, edges: Any) -> Any:
        """The columns of predictions, with what is counted of the part in its first row."""
        import pyarrow as pa
        import pyarrow.compute as pc

        columns = {
            name: pa.array(np.ascontiguousarray(values))
            for name, values in predicted.to_columns(probabilities=self.probabilities).items()
        }
        if self.integer_ids:
            name, ids = next(iter(columns.items()))
            columns[name] = ids.cast(pa.int64())
        new, rows = predicted.new_nodes, len(predicted.probabilities)
        owned = pc.sum(pc.and_(edges[_FIRST], pc.not_equal(edges[_SOURCE], edges[_TARGET]))).as_py()
        counts = {"owned": owned or 0, **part._asdict()}
        counts |= {"unknown": new.num_unknown if new else 0, "listed": len(new.places) if new else 0}
        for name, count in counts.items():
            columns[_count(name)] = pa.array(np.r_[count, np.zeros(rows - 1, np.int64)].astype(np.int64))
        names = [list(new.unknown_names) if new else [], *([None] * (rows - 1))]
        return pa.table(columns | {_NAMES: pa.array(names, pa.list_(pa.string()))})


@lru_cache(maxsize=1)
def _load_run(load: Callable[..., Any], archive: str, version: str) -> Any:
    """The run, once for each process of an executor."""
    import torch
    from pyspark import SparkFiles

    if version != __version__:
        raise InputError(
            f"executors have hushgraph {__version__}, and this process {version}; install one version"
        )
    torch.set_num_threads(1)
    return load(Path(SparkFiles.getRootDirectory()) / archive, device="cpu")


def write_scores(
    data: Any,
    out: str,
    *,
    columns: Columns,
    listed_by: ListedBy,
    reads_edges: bool,
    scorer: PartScorer,
    release: Sequence[Path],
    example: Predicted,
    check: Callable[[Counts], None],
    overwrite: bool,
) -> Counts:
    """Have executors score all rows and write them to a folder of Parquet files.

    Args:
        data: tables of nodes and edges.
        out: the folder, which is there as a whole or not at all; or its address, where Spark's committer
            writes and `_SUCCESS` comes last.
        columns: that the run keeps.
        listed_by: the end of an edge that lists the other one.
        reads_edges: whether predictions read edges at all.
        scorer: of a part; what is not known yet is filled in.
        release: the files that executors predict from.
        example: one prediction, whose columns are those that are written.
        check: refuses what was counted.
        overwrite: whether what is there is replaced.

    Raises:
        InputError: where tables cannot be used, or executors lack something.
    """
    lacking = [name for name in ("pandas", "pyarrow") if importlib.util.find_spec(name) is None]
    if lacking:
        raise InputError(
            f"executors score by {' and '.join(lacking)}; pip install 'pyspark[sql]' here and there"
        )
    with open_database() as (connection, folder):
        files = find_sources(data, connection, folder)
        draft = None if is_elsewhere(out) else folder / "predictions"
        target = out if draft is None else draft.absolute().as_uri()
        with open_frames(files, columns) as frames, name_errors(partial(_explain, out)):
            if not reads_edges:
                none = {name: table.limit(0) for name, table in frames.edges.items()}
                frames = frames._replace(edges=none)
            scorer = replace(scorer, archive=_send(frames.session, release))
            counts = _score(frames, target, columns, listed_by, scorer, example, overwrite)
        check(counts)
        if draft is not None:
            _check_here(connection, draft, counts.rows)
            _replace(draft, Path(out))
    return counts


def _check_here(connection: Any, draft: Path, rows: int) -> None:
    """Refuse a folder that lacks what executors wrote: they see another file system."""
    counted = 0
    if any(draft.glob("*.parquet")):
        pattern = re.sub(r"([\[*?])", r"[\1]", str(draft.absolute())) + "/*.parquet"
        sql = "SELECT sum(num_rows) FROM parquet_file_metadata(?)"
        (counted,) = connection.execute(sql, [pattern]).fetchone()
    if counted != rows:
        raise WriteError(
            f"{draft}: executors of Spark wrote {rows:,} predictions, and this process finds {counted:,}; "
            "choose by --out an address, or a file system that driver and executors share"
        )


def _replace(draft: Path, out: Path) -> None:
    """Give a folder its name; one that is there is replaced if it is of Spark."""
    if out.is_dir() and not (out / "_SUCCESS").exists():
        raise WriteError(
            f"out={out}: a folder without predictions of Spark; remove it, or choose another name"
        )
    try:
        if out.is_dir():
            shutil.rmtree(out)
        else:
            out.unlink(missing_ok=True)
        draft.rename(out)
    except OSError as error:
        raise WriteError(f"out={out}: cannot be written ({error.strerror}); choose another name") from None


def _score(
    frames: Frames,
    target: str,
    columns: Columns,
    listed_by: ListedBy,
    scorer: PartScorer,
    example: Predicted,
    overwrite: bool,
) -> Counts:
    """Write the scores of opened tables to an address."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as f

    kinds = _find_id_types(frames, columns)
    kind = "bigint" if {*kinds} <= {*_INTEGERS, *_FLOATS} else "string"
    # Elsewhere too, ids of the graph have the type that they have in the table of nodes.
    is_integer = kind == "bigint" if scorer.options.get("new") else kinds[0] in _INTEGERS
    nodes, edges, skipped, (parts, files) = _join_rows(frames, columns, listed_by, kind)
    if not is_integer:
        example = replace(example, names=np.array([""]))
    named: dict[str, Any] = {"origins": frames.origins, "relations": tuple(frames.edges)}
    scorer = replace(scorer, **named, integer_ids=is_integer)
    settings = {"spark.sql.shuffle.partitions": str(parts)}
    settings["spark.sql.adaptive.coalescePartitions.enabled"] = "false"
    with change_settings(frames.session, settings):
        seen = Observation()

        # Spark counts the arguments of a function, and would count `self`.
        def score_part(nodes: Any, edges: Any) -> Any:
            return scorer(nodes, edges)

        pairs = nodes.groupBy(quote(_PART)).cogroup(edges.groupBy(quote(_PART)))
        names = f.array_sort(f.array_distinct(f.flatten(f.collect_list(quote(_NAMES)))))
        sums = {name: f.sum(quote(_count(name))) for name in _COUNTED[:-1]}
        sums["places"] = f.max(quote(_count("places")))
        scored = pairs.applyInArrow(score_part, _find_schema(example, scorer.probabilities))
        # Edges decided how rows were cut, and are private: files and the order in them follow from ids alone.
        name = quote(next(iter(example.to_columns(probabilities=scorer.probabilities))))
        written = scored.repartition(files, name).sortWithinPartitions(name)
        counted = written.observe(
            seen,
            f.count(f.lit(1)).alias("rows"),
            f.slice(names, 1, _NAMED).alias("names"),
            *(f.coalesce(total, f.lit(0)).alias(name) for name, total in sums.items()),
        )
        mode = "overwrite" if overwrite else "errorifexists"
        counted.drop(*map(_count, _COUNTED), _NAMES).write.mode(mode).parquet(target)
        counts = seen.get
    return Counts(
        rows=int(counts["rows"]),
        listed=int(counts["listed"]),
        unknown=int(counts["unknown"]),
        unknown_names=tuple(counts["names"]),
        skipped=skipped - int(counts["owned"]) if skipped else 0,
        trained=int(counts["trained"]),
        places=int(counts["places"]),
    )


def _join_rows(
    frames: Frames, columns: Columns, listed_by: ListedBy, kind: str
) -> tuple[DataFrame, DataFrame, int, tuple[int, int]]:
    """Nodes and edges with the number of their part; edges that may be skipped; how many parts and files."""
    from pyspark.sql import functions as f

    edges = _stack_edges(frames, columns, kind)
    source, target = f.col(quote(_SOURCE)), f.col(quote(_TARGET))
    sizes = f.count(f.lit(1)), f.count_if(source.isNull() | target.isNull()), f.count_if(source != target)
    # Numbers alone: how many edges, how many without an end, how many that are no loops; how many nodes.
    ((num_edges, num_open, num_between),) = edges.agg(*sizes).collect()
    ((num_nodes,),) = frames.nodes.agg(sizes[0]).collect()
    if not num_nodes:
        raise GraphError(f"{frames.origins[0].name}: no rows; expected one node per row")
    are_dropped = columns.unknown_ids == "drop" or columns.places is not None
    if num_open and not are_dropped and columns.edge_date is None:
        raise GraphError(
            f"{frames.origins[1].name}: {num_open:,} edges have an empty {columns.source!r} or "
            f"{columns.target!r}; expected the id of a node"
        )
    files = math.ceil(num_nodes / _PART_ROWS)
    parts = max(files, math.ceil(num_edges / _PART_EDGES))

    own_id = f.col(quote(columns.id)).cast(kind)
    whose = own_id.cast("string")
    if columns.person in frames.nodes.columns:
        # Every kind of space, as where a part is read.
        person = f.regexp_replace(f.col(quote(str(columns.person))).cast("string"), r"^\p{Zs}+|\p{Zs}+$", "")
        whose = f.coalesce(f.when(person != "", person), whose)
    nodes = frames.nodes.withColumn(_PART, f.pmod(f.xxhash64(whose), f.lit(parts)).cast("int"))
    ids = nodes.select(own_id.alias("id"), f.col(quote(_PART)).alias("part")).distinct()
    # A record of a place belongs to the person, whichever it names first.
    is_either = listed_by == "either" or columns.places is not None
    owners = []
    for end, key, flag in (("source", _SOURCE, _NEW_SOURCE), ("target", _TARGET, _NEW_TARGET)):
        if is_either or end == listed_by:
            rows = ids.select(f.col("id").alias(f"{flag} id"), f.col("part").alias(f"{flag} part"))
            edges = edges.join(rows, f.col(quote(key)) == f.col(quote(f"{flag} id")), "left")
            part = f.col(quote(f"{flag} part"))
            edges = edges.withColumn(flag, part.isNotNull())
            owners.append(part)
        else:
            edges = edges.withColumn(flag, f.lit(False))
    # An edge of rows of two parts is in both, and is counted in one.
    copies = f.posexplode(f.array_distinct(f.array_compact(f.array(*owners)))).alias("copy", _PART)
    kept = [
        f.col(quote(name))
        for name in edges.columns
        if not name.startswith((_NEW_SOURCE + " ", _NEW_TARGET + " "))
    ]
    edges = edges.select(*kept, copies).withColumn(_FIRST, f.col("copy") == 0).drop("copy")
    is_plain = len(frames.edges) == 1 and not columns.has_relations
    return nodes, edges, num_between if is_plain else 0, (parts, files)


def _stack_edges(frames: Frames, columns: Columns, kind: str) -> DataFrame:
    """The tables of edges as one: their ends as ids are compared, and the columns of each as they are."""
    from pyspark.sql import functions as f

    tables = []
    for number, table in enumerate(frames.edges.values()):
        own = [f.col(quote(name)).alias(f"{number}:{name}") for name in table.columns]
        ends = ((columns.source, _SOURCE), (columns.target, _TARGET))
        ids = [_cast_id(table, name, kind).alias(key) for name, key in ends]
        tables.append(table.select(*own, *ids, f.lit(number).alias(_TABLE)))
    return reduce(partial(type(tables[0]).unionByName, allowMissingColumns=True), tables)


def _cast_id(table: DataFrame, name: str, kind: str) -> Column:
    """An end of an edge as ids are compared: a missing one may have turned integers into floats."""
    from pyspark.sql import functions as f

    cell = f.col(quote(name))
    if dict(table.dtypes)[name] not in _FLOATS:
        return cell.cast(kind)
    integer = f.when(cell == f.floor(cell), cell.cast("bigint"))
    return integer if kind == "bigint" else f.coalesce(integer.cast("string"), cell.cast("string"))


def _find_id_types(frames: Frames, columns: Columns) -> list[str]:
    """The types of ids of nodes and of the ends of edges; GraphError for a type that cannot be compared."""
    ends = (columns.source, columns.target)
    kinds = []
    for origin, frame, names in zip(
        frames.origins,
        (frames.nodes, *frames.edges.values()),
        ((columns.id,), *[ends] * len(frames.edges)),
        strict=True,
    ):
        types = dict(frame.dtypes)
        allowed = (*_INTEGERS, "string", *(_FLOATS if names is ends else ()))
        for name in names:
            if name not in types:
                raise GraphError(
                    f"{origin.name}: no column {name!r}; add or rename it ({FIXED}); it has "
                    f"{', '.join(map(repr, list(types)[:6]))}"
                )
            if types[name] not in allowed:
                raise GraphError(
                    f"{origin.name}: column {name!r} holds {types[name]}; executors compare ids as integers "
                    "or text; store one of these"
                )
            kinds.append(types[name])
    return kinds


def _count(name: str) -> str:
    """The column of a count."""
    return f"hushgraph {name}"


def _find_schema(example: Predicted, probabilities: bool) -> str:
    """The columns of an example as Spark declares them, and those of counts."""
    columns = example.to_columns(probabilities=probabilities)
    kinds = {
        name: _TYPES.get(each.dtype.kind) or _TYPES[each.dtype.str[1:]] for name, each in columns.items()
    }
    kinds |= {**{_count(name): "bigint" for name in _COUNTED}, _NAMES: "array<string>"}
    return ", ".join(f"{quote(name)} {kind}" for name, kind in kinds.items())


def _send(session: Any, files: Sequence[Path]) -> str:
    """Give the files of a release to executors; return the name under which they unpack them.

    The archive stays as long as the session: an executor that comes later asks for all that was ever sent.
    """
    key = tuple((str(each.absolute()), each.stat().st_size, each.stat().st_mtime_ns) for each in files)
    sent = _sent.setdefault(session, {})
    if key not in sent:
        folder = Path(tempfile.mkdtemp(prefix="hushgraph-"))
        weakref.finalize(session, shutil.rmtree, folder, ignore_errors=True)
        archive = folder / f"{folder.name}.zip"
        with zipfile.ZipFile(archive, "w") as packed:
            for path in files:
                packed.write(path, path.name)
        session.addArtifacts(str(archive), archive=True)
        sent[key] = archive.name
    return sent[key]


def _explain(target: str, reason: str) -> Exception:
    """What stands in the way of scoring."""
    if "No module named" in reason:
        return InputError(
            f"executors of Spark lack a package ({reason[:100]}); install hushgraph {__version__} where they "
            "run, or choose their Python by PYSPARK_PYTHON"
        )
    return WriteError(f"{target}: Spark cannot write predictions there ({reason[:200]})")
