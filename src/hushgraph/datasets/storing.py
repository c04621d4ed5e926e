"""Storing a graph: any data becomes a folder of arrays, streamed so that it need not fit memory."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from hushgraph.datasets.paths import is_there, shown
from hushgraph.datasets.splits import parse_fractions, random_split
from hushgraph.datasets.stored import ABOUT, VERSION, is_stored, open_stored
from hushgraph.datasets.tables.files import is_tables
from hushgraph.errors import GraphError
from hushgraph.graph.checks import (
    check_integers,
    check_number_of_classes,
    check_range,
    check_shape,
    disjoint_splits,
)
from hushgraph.graph.chunks import Edges
from hushgraph.graph.columns import Columns
from hushgraph.graph.graph import SPLITS
from hushgraph.graph.mapped import ArrayFile, release, write_array
from hushgraph.graph.stored import StoredGraph

_BLOCK_VALUES = 1 << 24


def store(
    data: Any,
    folder: str | os.PathLike[str],
    *,
    directed: bool | None = None,
    symmetrize: bool = False,
    split: str | None = None,
    split_seed: int = 0,
    num_classes: int | None = None,
    columns: Columns | Mapping[str, Any] | None = None,
) -> StoredGraph:
    """Write a graph into a new folder, from where it is used without being loaded.

    Tables are streamed: neither their features nor their edges need fit memory.

    Arguments:
        data: anything that `load_graph` takes.
        folder: must not be there yet.
        directed: whether some edge lacks its reverse. It decides the default edge owner and is treated as
            public. Tables need it, or `symmetrize`, since finding out would take all edges together.
        symmetrize: add the reverse of every edge.
        split, split_seed, num_classes, columns: as in `load_graph`. Tables need `num_classes` or names of
            classes in `columns`.

    Returns:
        The stored graph.

    Guarantees:
        The folder is there as a whole or not at all.

    Examples:
        >>> import hushgraph as hg
        >>> graph = hg.datasets.synthetic(num_nodes=300, num_classes=3, seed=1)
        >>> stored = hg.datasets.store(graph, "a-graph")
        >>> stored.num_edges == graph.num_edges, hg.datasets.load_graph("a-graph").num_nodes
        (True, 300)
    """
    from hushgraph.datasets.catalog.registry import names
    from hushgraph.datasets.loading import load_graph

    is_name = isinstance(data, str) and data in names()
    if is_tables(data) and not is_stored(data) and not is_name:
        return _store_tables(data, folder, columns, split, split_seed, num_classes, directed, symmetrize)
    graph = load_graph(
        data, symmetrize=symmetrize, split=split, split_seed=split_seed, num_classes=num_classes
    )
    return _stored(
        folder,
        edges=graph,
        x=graph.x,
        y=graph.y,
        num_classes=graph.num_classes,
        directed=graph.is_directed if directed is None else directed,
        node_names=graph.node_names,
        columns=graph.columns,
        removed=(graph.duplicates_removed, graph.self_loops_removed),
        **{name: getattr(graph, name) for name in SPLITS},
    )


def store_arrays(
    folder: str | os.PathLike[str],
    *,
    edges: Edges,
    x: Any,
    y: Any,
    train_idx: Any,
    val_idx: Any = None,
    test_idx: Any = None,
    num_classes: int,
    directed: bool,
    symmetrize: bool = False,
    node_names: Any = None,
    columns: Columns | None = None,
) -> StoredGraph:
    """Write a graph given as arrays, memory maps or chunks of edges into a new folder.

    Arguments:
        folder: must not be there yet.
        edges: integers [2, E]; or an iterable of pairs (sources, targets), read once, where each target
            reads its source. Repeats and self-loops are dropped.
        x: features [N, d]: an array, a memory map or a sparse matrix, which becomes dense. float16 and
            integers stay what they are on disk and become float32 by the rows asked for.
        y: integer labels [N]; -1 means no label.
        train_idx, val_idx, test_idx: node ids, as in `Graph.from_arrays`.
        num_classes: treated as public, as are `directed` and the counts.
        directed: whether some edge lacks its reverse.
        symmetrize: add the reverse of every edge; the graph is undirected then.
        node_names: what the nodes are called, one each.
        columns: how tables became this graph, where it came from tables.

    Returns:
        The stored graph.

    Guarantees:
        The folder is there as a whole or not at all.
    """
    return _stored(
        folder,
        edges=edges,
        x=x,
        y=y,
        train_idx=train_idx,
        val_idx=val_idx,
        test_idx=test_idx,
        num_classes=num_classes,
        directed=directed,
        symmetrize=symmetrize,
        node_names=node_names,
        columns=columns,
    )


def _stored(
    folder: str | os.PathLike[str],
    *,
    edges: Edges,
    x: Any,
    y: Any,
    train_idx: Any,
    val_idx: Any,
    test_idx: Any,
    num_classes: int,
    directed: bool,
    symmetrize: bool = False,
    node_names: Any,
    columns: Columns | None,
    removed: tuple[int, int] = (0, 0),
) -> StoredGraph:
    """`store_arrays`, after so many repeats and self-loops were dropped elsewhere."""
    from hushgraph.graph.external_sort import write_reads

    if symmetrize and directed:
        raise GraphError("symmetrize=True and directed=True contradict each other; leave one of them out")
    if isinstance(edges, np.ndarray) and (edges.ndim != 2 or edges.shape[0] != 2):
        raise GraphError(f"edges has shape {list(edges.shape)}; expected [2, E]: sources, then targets")
    num_nodes, num_features = check_shape("x", x, ndim=2)
    labels = check_integers("y", y, ndim=1)
    if len(labels) != num_nodes:
        raise GraphError(
            f"y has {len(labels)} labels and x has {num_nodes} rows; expected one of each a node"
        )
    check_number_of_classes(num_classes)
    check_range("y", labels, -1, num_classes - 1, "use -1 for no label, or raise num_classes")
    given = zip(SPLITS, (train_idx, val_idx, test_idx), strict=True)
    splits = disjoint_splits(num_nodes, {name: [] if ids is None else ids for name, ids in given})
    with _new_folder(Path(folder)) as draft:
        _write_features(draft / "x.npy", x)
        small = np.int16 if num_classes < 2**15 else np.int64
        write_array(draft / "y.npy", labels.astype(small))
        for name, nodes in splits.items():
            write_array(draft / f"{name}.npy", nodes)
        if node_names is not None:
            found = np.asarray(node_names)
            write_array(
                draft / "node_names.npy", found if found.dtype.kind in "iu" else found.astype(np.str_)
            )
        reads, repeats, loops = write_reads(draft, edges, num_nodes=num_nodes, symmetrize=symmetrize)
        about = {
            "version": VERSION,
            "num_nodes": num_nodes,
            "num_reads": reads,
            "num_features": num_features,
            "num_classes": int(num_classes),
            "directed": bool(directed),
            "duplicates_removed": removed[0] + repeats,
            "self_loops_removed": removed[1] + loops,
            "has_names": node_names is not None,
            "columns": None if columns is None else json.loads(columns.to_json()),
        }
        (draft / ABOUT).write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")
        # Before it gets its name: what cannot be opened is not left behind.
        stored = open_stored(draft)
    return replace(stored, folder=Path(folder))


def _write_features(path: Path, x: Any) -> None:
    kind = x.dtype if hasattr(x, "dtype") else np.asarray(x).dtype
    if kind.kind not in "biuf":
        raise GraphError(f"x has dtype {str(kind)[:40]}; expected real numbers")
    rows = sparse.csr_array(x) if sparse.issparse(x) else np.asanyarray(x)
    narrow = np.float32 if kind.itemsize > 4 or kind.kind == "b" else kind
    with ArrayFile(path, narrow, rows.shape[1]) as file:
        size = max(1, _BLOCK_VALUES // max(1, rows.shape[1]))
        for begin in range(0, rows.shape[0], size):
            block = rows[begin : begin + size]
            with np.errstate(over="ignore", invalid="ignore"):
                file.append(block.toarray() if sparse.issparse(block) else block)
            release(rows)


def _store_tables(
    data: Any,
    folder: str | os.PathLike[str],
    columns: Columns | Mapping[str, Any] | None,
    split: str | None,
    split_seed: int,
    num_classes: int | None,
    directed: bool | None,
    symmetrize: bool,
) -> StoredGraph:
    from hushgraph.datasets.tables.reading import arrays_from_tables

    if directed is None and not symmetrize:
        raise GraphError("directed is not given; expected True or False for tables, or symmetrize=True")
    how = {"splits": split is None, "num_classes": num_classes}
    with arrays_from_tables(data, columns=columns, **how) as arrays:  # type: ignore[arg-type]
        if arrays["num_classes"] is None:
            raise GraphError("num_classes is not given; expected it, or names of the classes, for tables")
        if split is not None:
            parts = random_split(
                len(arrays["y"]), parse_fractions(split), seed=split_seed, labels=arrays["y"]
            )
            arrays |= dict(zip(SPLITS, parts, strict=True))
        edges = arrays.pop("edge_index")
        return store_arrays(folder, edges=edges, directed=bool(directed), symmetrize=symmetrize, **arrays)


@contextmanager
def _new_folder(path: Path) -> Iterator[Path]:
    """A folder to fill that gets its name at the end, and goes if anything is wrong by then."""
    draft = path.with_name(path.name + ".draft")
    if is_there(path):
        raise GraphError(f"{shown(path)}: it is there already; choose another folder")
    try:
        draft.mkdir(parents=True)
    except FileExistsError:
        raise GraphError(f"{shown(draft)}: left over from an interrupted store; remove it") from None
    except OSError as error:
        raise GraphError(f"{shown(path)}: cannot be created ({error.strerror})") from None
    try:
        yield draft
        os.rename(draft, path)
    except OSError as error:
        raise GraphError(f"{shown(path)}: cannot be written ({error.strerror}); free space for it") from None
    finally:
        shutil.rmtree(draft, ignore_errors=True)
