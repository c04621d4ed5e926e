"""Read a node table and an edge table, CSV or Parquet, with DuckDB and a memory limit."""

from __future__ import annotations

import shlex
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from hushgraph._arrays import find_disk
from hushgraph.datasets.paths import format_path
from hushgraph.datasets.tables.edge_table import EdgeTable
from hushgraph.datasets.tables.files import TableFiles, find_tables
from hushgraph.datasets.tables.node_table import LabelKind, NodeTable
from hushgraph.datasets.tables.opening import open_table
from hushgraph.datasets.tables.records import build_relations, check_columns
from hushgraph.datasets.tables.table import Table, find_full_disk
from hushgraph.errors import GraphError, InputError, MissingSplitError, WriteError
from hushgraph.graph.columns import Columns, looks_like_split

# The memory limit of DuckDB, which writes what does not fit to the temporary folder.
MEMORY = "2GB"
# What DuckDB says, as a RuntimeError, where Ctrl-C came in the middle of a query.
_INTERRUPTED = "Query interrupted"


def arrays_from_tables(
    data: Any,
    *,
    columns: Columns | Mapping[str, Any] | None = None,
    labels: bool = True,
    splits: bool = True,
    num_classes: int | None = None,
    kind: LabelKind | None = None,
) -> dict[str, Any]:
    """Return the arguments of `Graph.from_arrays` from two tables.

    Args:
        data: a folder, a pair of files or DataFrames, or a TOML file.
        columns: the roles of the columns; a mapping of some of them takes precedence over the TOML file.
        labels: whether labels are read. If not, no label column is needed and every label is -1.
        splits: whether the split column is read.
        num_classes: the number of classes, or of labels, if it is known.
        kind: what labels are: classes unless given, or lists of labels where `columns` say so. The key
            "are_sets" of the result says which.

    Guarantees:
        Whatever the files contain, the result is arrays or a `GraphError` of one line that names file, column
        and row. The temporary folder is removed in any case.
    """
    with open_database() as (connection, folder):
        files = find_tables(data, connection, folder, columns=columns, needs_split=splits)
        given = files.columns_with(columns)
        nodes, edges = open_pair(connection, files, given, is_fixed=isinstance(columns, Columns))
        is_rest = given.features is None
        given = given.resolve_names(nodes.names)
        if given.classes is not None and kind == "number":
            raise InputError(
                "classes with task='number': a number has no classes; leave out one: task and bounds, or "
                f"{_name_classes(files, columns)}"
            )
        if given.classes is not None:
            if num_classes not in (None, len(given.classes)):
                raise GraphError(_count_mismatch(num_classes, len(given.classes), files, columns))
            num_classes = len(given.classes)
        kind = choose_kind(kind, nodes, given)
        if is_rest:
            if given.split is not None:
                nodes.check_exists(given.split, "split")
            _refuse_split_features(nodes, given)
        if splits and given.split is None:
            raise MissingSplitError(
                f"{nodes.shown}: no column 'split'; name one that holds train, val or test, or "
                "give split='0.6/0.2/0.2' to draw train/val/test at random"
            )
        check_records(nodes, edges, given)
        # By the nodes alone, whose ids are public: one edge can change the type of a column of edges.
        integer_ids = nodes.is_integer(given.id)
        reader = NodeTable(
            connection=connection,
            table=nodes,
            columns=given,
            labels=labels,
            splits=splits,
            integer_ids=integer_ids,
            num_classes=num_classes,
            kind=kind,
            edge_names=tuple(name for each in edges for name in each.names),
        )
        arrays = reader.arrays()
        arrays |= _read_edges(connection, edges, nodes, given, arrays)
        arrays["unread"] = tuple(
            dict.fromkeys(name for each in edges for name in each.names if name not in given.edge_columns)
        )
        return {**arrays, "columns": given, "num_classes": num_classes, "are_sets": kind == "labels"}


def _read_edges(
    connection: Any, tables: Sequence[Table], nodes: Table, columns: Columns, arrays: Mapping[str, Any]
) -> dict[str, Any]:
    """Return edges, or relations where records are more than a list of nodes, and what was dropped."""
    num_nodes, counts = len(arrays["y"]), dict(arrays["clean_up"])
    readers = [EdgeTable(connection=connection, table=each, nodes=nodes, columns=columns) for each in tables]
    if len(readers) == 1 and not columns.has_relations:
        edges, dropped = readers[0].array(arrays["node_names"])
        what = "edges to unknown ids dropped" if columns.edge_date is None else "edges dropped"
        return {"edge_index": edges, "clean_up": counts | {what: dropped}}
    read = []
    for reader in readers:
        records, dropped_by = reader.records(num_nodes)
        read.append((reader.table.relation or "", records))
        counts |= {what: counts.get(what, 0) + count for what, count in dropped_by.items()}
    relations = build_relations(read, columns, num_nodes)
    return {"edge_index": None, "relations": relations, "clean_up": counts}


def choose_kind(kind: LabelKind | None, nodes: Table, columns: Columns) -> LabelKind:
    """What labels are, by what is declared; GraphError where lists of labels lack the names of labels."""
    where = nodes.place(None, columns.label_columns[0])
    if kind == "number" and columns.has_sets:
        raise GraphError(
            f"{where}: a number is one column; leave out separator, and name one column as label"
        )
    if kind == "number" or not (columns.has_sets or kind == "labels"):
        return kind or "classes"
    if columns.classes is None:
        raise GraphError(
            f"{where}: lists of labels, and no list of all labels; name them (--classes a,b,c): they are "
            "declared, never collected from rows"
        )
    return "labels"


def _refuse_split_features(nodes: Table, columns: Columns) -> None:
    """Raise GraphError if a column named like a split would become a feature without being asked for.

    It decides by the name alone: what the column holds is private unless it is the split.
    """
    named = [name for name in columns.features or () if looks_like_split(name)]
    if named:
        quoted = shlex.quote(named[0])
        raise GraphError(
            f"{nodes.place(None, named[0])}: its name is that of a split, and it has no role; if it holds "
            f"train, val, test or 0, 1, 2, give --split-column {quoted} (columns.split), else leave it out "
            f"(--ignore {quoted}) or name all features (--features)"
        )


def open_pair(
    connection: Any, files: TableFiles, columns: Columns, *, is_fixed: bool
) -> tuple[Table, tuple[Table, ...]]:
    """Open the table of nodes and the tables of edges: one, or one for each relation that has a name."""
    options: dict[str, Any] = {"delimiter": columns.delimiter, "is_fixed": is_fixed}
    options["origins"] = files.origins
    nodes = open_table(connection, files.nodes, role="nodes", title=files.titles.get("nodes"), **options)
    if not files.relations:
        title = files.titles.get("edges")
        return nodes, (open_table(connection, files.edges, role="edges", title=title, **options),)
    if columns.relation:
        raise GraphError(
            f"{format_path(files.mapping or files.edges[0])}: tables of edges by relation, and a column that "
            "is the relation; leave out one of the two"
        )
    return nodes, tuple(
        replace(open_table(connection, paths, role="edges", **options), relation=name)
        for name, paths in files.relations.items()
    )


def check_records(nodes: Table, tables: Iterable[Table], columns: Columns) -> None:
    """Raise GraphError unless the tables have their columns of ids and what is declared about records."""
    for edges in tables:
        for name, role in ((columns.source, "source"), (columns.target, "target")):
            edges.check_exists(name, role)
            edges.check_scalar(name, role)
        check_columns(edges, columns)
    nodes.check_exists(columns.id, "id")


def _count_mismatch(num_classes: int | None, names: int, files: TableFiles, columns: Any) -> str:
    where, listed = _name_classes(files, columns), "1 name" if names == 1 else f"{names} names"
    return f"num_classes={num_classes}, but {where} has {listed}; leave out num_classes, or name all classes"


def _name_classes(files: TableFiles, columns: Any) -> str:
    """Where the list of classes is given."""
    by_call = isinstance(columns, Columns) or (columns and "classes" in columns)
    mapping = None if by_call else files.mapping
    return "classes (--classes)" if mapping is None else f"classes in {format_path(mapping)}"


@contextmanager
def open_database() -> Iterator[tuple[Any, Path]]:
    """Yield a DuckDB connection to a database in a temporary folder, and the folder."""
    import duckdb

    disk = find_disk()
    folder = Path(tempfile.mkdtemp(prefix="hushgraph-", dir=None if disk is None else disk.folder))
    limit = MEMORY if disk is None else f"{disk.memory // 2 // 2**20}MiB"
    try:
        # DuckDB would download extensions.
        settings: dict[str, Any] = {"memory_limit": limit, "temp_directory": str(folder / "spill")}
        settings |= dict.fromkeys(("autoinstall_known_extensions", "autoload_known_extensions"), "false")
        with duckdb.connect(str(folder / "tables"), config=settings) as connection:
            yield connection, folder
    except duckdb.Error as error:
        # Out of memory or disk; problems of a file have messages of their own.
        reason = " ".join(str(error).split("\n")[0].split())[:160]
        if why := find_full_disk(error):
            how = "TMPDIR" if disk is None else "--out"
            raise WriteError(
                f"{folder.parent}: no room for work space ({why}); free space, or choose another disk "
                f"by {how}"
            ) from None
        raise GraphError(f"the tables cannot be read ({reason})") from None
    except RuntimeError as error:
        if str(error) != _INTERRUPTED:
            raise
        raise KeyboardInterrupt from None
    finally:
        shutil.rmtree(folder, ignore_errors=True)
