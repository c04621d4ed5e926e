"""Graphs from a node table and an edge table, CSV or Parquet, read by DuckDB within a limit of memory."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hushgraph.datasets.paths import shown
from hushgraph.datasets.tables.edge_table import EdgeTable
from hushgraph.datasets.tables.files import TableFiles, find_tables
from hushgraph.datasets.tables.node_table import NodeTable
from hushgraph.datasets.tables.table import open_table
from hushgraph.errors import GraphError, MissingSplitError
from hushgraph.graph.columns import Columns

# What DuckDB may take; it writes what does not fit to the temporary folder.
MEMORY = "2GB"


@contextmanager
def arrays_from_tables(
    data: Any,
    *,
    columns: Columns | Mapping[str, Any] | None = None,
    labels: bool = True,
    splits: bool = True,
    num_classes: int | None = None,
) -> Iterator[dict[str, Any]]:
    """The arguments of `Graph.from_arrays` found in two tables; they last as long as the context.

    Args:
        data: a folder, a pair of files, or a TOML file.
        columns: what columns mean; a mapping of some names is put over what the TOML file says.
        labels: whether labels are read; where not, no label column is needed and every label is -1.
        splits: whether the split column is read.
        num_classes: the number of classes, where it is known.

    Guarantees:
        Whatever the files hold, the outcome is arrays or a `GraphError` of one line that names file, column
        and row. The temporary folder goes in any case.
    """
    files = find_tables(data)
    given = files.columns_with(columns)
    if given.classes is not None:
        if num_classes not in (None, len(given.classes)):
            raise GraphError(_two_counts(num_classes, len(given.classes), files, columns))
        num_classes = len(given.classes)
    with _database() as (connection, folder):
        how: dict[str, Any] = {"delimiter": given.delimiter, "settled": isinstance(columns, Columns)}
        nodes = open_table(connection, files.nodes, purpose="nodes", **how)
        edges = open_table(connection, files.edges, purpose="edges", **how)
        given = given.named_for(nodes.names)
        if splits and given.split is None:
            raise MissingSplitError(
                f"{shown(files.nodes)}: no column 'split'; name one that says train, val or test, or give "
                "split='0.6/0.2/0.2' to draw train/val/test at random"
            )
        for name, purpose in ((given.source, "source"), (given.target, "target")):
            edges.check_there(name, purpose)
            edges.check_scalar(name, purpose)
        nodes.check_there(given.id, "id")
        whole = nodes.is_whole(given.id) and all(map(edges.is_whole, (given.source, given.target)))
        reader = NodeTable(
            connection=connection,
            table=nodes,
            columns=given,
            labels=labels,
            splits=splits,
            whole_ids=whole,
            num_classes=num_classes,
            folder=folder,
        )
        arrays = reader.arrays()
        ends = EdgeTable(
            connection=connection, table=edges, nodes=nodes, columns=given, whole_ids=whole, folder=folder
        )
        arrays["edge_index"] = ends.array(len(arrays["y"]))
        yield {**arrays, "columns": given, "num_classes": num_classes}


def _two_counts(num_classes: int | None, names: int, files: TableFiles, columns: Any) -> str:
    by_call = isinstance(columns, Columns) or (columns and "classes" in columns)
    where = (
        "classes (--classes)" if by_call or files.mapping is None else f"classes in {shown(files.mapping)}"
    )
    listed = "1 name" if names == 1 else f"{names} names"
    return f"num_classes={num_classes}, but {where} has {listed}; leave out num_classes, or name all classes"


@contextmanager
def _database() -> Iterator[tuple[Any, Path]]:
    """A DuckDB database in a temporary folder, and the folder."""
    import duckdb

    folder = Path(tempfile.mkdtemp(prefix="hushgraph-"))
    try:
        # Extensions would be fetched from the network.
        settings: dict[str, Any] = {"memory_limit": MEMORY, "temp_directory": str(folder / "spill")}
        settings |= dict.fromkeys(("autoinstall_known_extensions", "autoload_known_extensions"), "false")
        with duckdb.connect(str(folder / "tables"), config=settings) as connection:
            yield connection, folder
    except duckdb.Error as error:
        # Memory or the disk ran out; what is wrong with a file has its own message.
        reason = " ".join(str(error).split("\n")[0].split())[:160]
        raise GraphError(f"the tables cannot be read ({reason})") from None
    finally:
        shutil.rmtree(folder, ignore_errors=True)
