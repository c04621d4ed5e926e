"""Read a node table and an edge table, CSV or Parquet, with DuckDB and a memory limit."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hushgraph.datasets.paths import format_path
from hushgraph.datasets.tables.edge_table import EdgeTable
from hushgraph.datasets.tables.files import TableFiles, find_tables
from hushgraph.datasets.tables.node_table import LabelKind, NodeTable
from hushgraph.datasets.tables.table import Table, open_table
from hushgraph.errors import GraphError, MissingSplitError
from hushgraph.graph.columns import Columns, looks_like_split

# The memory limit of DuckDB, which writes what does not fit to the temporary folder.
MEMORY = "2GB"


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
        files = find_tables(data, connection, folder)
        given = files.columns_with(columns)
        nodes, edges = open_pair(connection, files, given, is_fixed=isinstance(columns, Columns))
        is_rest = given.features is None
        given = given.resolve_names(nodes.names)
        if given.classes is not None:
            if num_classes not in (None, len(given.classes)):
                raise GraphError(_count_mismatch(num_classes, len(given.classes), files, columns))
            num_classes = len(given.classes)
        kind = _choose_kind(kind, nodes, given)
        if is_rest:
            if given.split is not None:
                nodes.check_exists(given.split, "split")
            _refuse_split_features(nodes, given)
        if splits and given.split is None:
            raise MissingSplitError(
                f"{nodes.shown}: no column 'split'; name one that holds train, val or test, or "
                "give split='0.6/0.2/0.2' to draw train/val/test at random"
            )
        check_ids(nodes, edges, given)
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
        )
        arrays = reader.arrays()
        ends = EdgeTable(
            connection=connection,
            table=edges,
            nodes=nodes,
            columns=given,
        )
        arrays["edge_index"], dropped = ends.array(len(arrays["y"]))
        arrays["clean_up"] |= {"edges to unknown ids dropped": dropped}
        arrays["unread"] = tuple(name for name in edges.names if name not in (given.source, given.target))
        return {**arrays, "columns": given, "num_classes": num_classes, "are_sets": kind == "labels"}


def _choose_kind(kind: LabelKind | None, nodes: Table, columns: Columns) -> LabelKind:
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
        raise GraphError(
            f"{nodes.place(None, named[0])}: its name is that of a split, and it has no role; if it holds "
            f"train, val, test or 0, 1, 2, give --split-column {named[0]} (columns.split), else leave it out "
            f"(--ignore {named[0]}) or name all features (--features)"
        )


def open_pair(connection: Any, files: TableFiles, columns: Columns, *, is_fixed: bool) -> tuple[Table, Table]:
    """Open the tables of nodes and edges."""
    options: dict[str, Any] = {"delimiter": columns.delimiter, "is_fixed": is_fixed}
    nodes = open_table(connection, files.nodes, role="nodes", title=files.titles.get("nodes"), **options)
    edges = open_table(connection, files.edges, role="edges", title=files.titles.get("edges"), **options)
    return nodes, edges


def check_ids(nodes: Table, edges: Table, columns: Columns) -> None:
    """Raise GraphError unless both tables have their columns of ids."""
    for name, role in ((columns.source, "source"), (columns.target, "target")):
        edges.check_exists(name, role)
        edges.check_scalar(name, role)
    nodes.check_exists(columns.id, "id")


def _count_mismatch(num_classes: int | None, names: int, files: TableFiles, columns: Any) -> str:
    by_call = isinstance(columns, Columns) or (columns and "classes" in columns)
    where = (
        "classes (--classes)"
        if by_call or files.mapping is None
        else f"classes in {format_path(files.mapping)}"
    )
    listed = "1 name" if names == 1 else f"{names} names"
    return f"num_classes={num_classes}, but {where} has {listed}; leave out num_classes, or name all classes"


@contextmanager
def open_database() -> Iterator[tuple[Any, Path]]:
    """Yield a DuckDB connection to a database in a temporary folder, and the folder."""
    import duckdb

    folder = Path(tempfile.mkdtemp(prefix="hushgraph-"))
    try:
        # DuckDB would download extensions.
        settings: dict[str, Any] = {"memory_limit": MEMORY, "temp_directory": str(folder / "spill")}
        settings |= dict.fromkeys(("autoinstall_known_extensions", "autoload_known_extensions"), "false")
        with duckdb.connect(str(folder / "tables"), config=settings) as connection:
            yield connection, folder
    except duckdb.Error as error:
        # Out of memory or disk; problems of a file have messages of their own.
        reason = " ".join(str(error).split("\n")[0].split())[:160]
        raise GraphError(f"the tables cannot be read ({reason})") from None
    finally:
        shutil.rmtree(folder, ignore_errors=True)
