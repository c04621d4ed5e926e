"""Write a stored graph: any data becomes a folder of arrays, streamed so that it need not fit in memory."""

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

from hushgraph.datasets.paths import format_path, path_exists
from hushgraph.datasets.splits import parse_fractions, random_split
from hushgraph.datasets.stored_reader import (
    ABOUT,
    DECLARED,
    DENSE_VERSION,
    SPARSE_VERSION,
    X_DENSE,
    X_SPARSE,
    is_stored,
    open_stored,
)
from hushgraph.datasets.tables.files import is_tables
from hushgraph.errors import GraphError
from hushgraph.graph.chunks import Edges
from hushgraph.graph.columns import Columns
from hushgraph.graph.graph import (
    SPLITS,
    check_integers,
    check_number_of_classes,
    check_range,
    check_shape,
    check_splits,
)
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
    """Write a graph to a new folder, where it can be used without loading it into memory.

    Tables are streamed: neither their features nor their edges need to fit in memory.

    Args:
        data: anything that `load_graph` accepts.
        folder: the new folder; it must not exist.
        directed: whether some edge lacks its reverse, which the folder notes and nothing is decided by.
            Tables require it, or `symmetrize`, because computing it needs all edges at once.
        symmetrize: add the reverse of every edge.
        split, split_seed, num_classes, columns: as in `load_graph`. Tables require `num_classes`, or the
            names of the classes in `columns`. The folder keeps whether classes were declared.

    Returns:
        The stored graph.

    Guarantees:
        The folder is created completely or not at all.

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
    return _write(
        folder,
        edges=graph,
        x=graph.x,
        y=graph.y,
        num_classes=graph.num_classes,
        has_declared_classes=graph.has_declared_classes,
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
    """Write a graph given as arrays, memory maps or chunks of edges to a new folder.

    Args:
        folder: the new folder; it must not exist.
        edges: integers [2, E]; or an iterable of pairs (sources, targets), read once, where each target
            reads its source. Repeats and self-loops are dropped.
        x: features [N, d]: an array, a memory map or a sparse matrix, which stays sparse. float16 and
            integers of an array keep their type on disk; rows are converted to float32 when they are read.
        y: integer labels [N]; -1 means no label.
        train_idx, val_idx, test_idx: node ids, as in `Graph.from_arrays`.
        num_classes: declared public.
        directed: whether some edge lacks its reverse.
        symmetrize: add the reverse of every edge; the graph is then undirected.
        node_names: the names of the nodes, one each.
        columns: the roles of the columns, if the graph was read from tables.

    Returns:
        The stored graph.

    Guarantees:
        The folder is created completely or not at all.
    """
    return _write(
        folder,
        edges=edges,
        x=x,
        y=y,
        train_idx=train_idx,
        val_idx=val_idx,
        test_idx=test_idx,
        num_classes=num_classes,
        has_declared_classes=True,
        directed=directed,
        symmetrize=symmetrize,
        node_names=node_names,
        columns=columns,
    )


def _write(
    folder: str | os.PathLike[str],
    *,
    edges: Edges,
    x: Any,
    y: Any,
    train_idx: Any,
    val_idx: Any,
    test_idx: Any,
    num_classes: int,
    has_declared_classes: bool,
    directed: bool,
    symmetrize: bool = False,
    node_names: Any,
    columns: Columns | None,
    removed: tuple[int, int] = (0, 0),
) -> StoredGraph:
    """Like `store_arrays`; `removed` counts the repeats and self-loops that were dropped before."""
    from hushgraph.graph.external_sort import write_reads

    if symmetrize and directed:
        raise GraphError("symmetrize=True and directed=True contradict each other; leave one of them out")
    if isinstance(edges, np.ndarray) and (edges.ndim != 2 or edges.shape[0] != 2):
        raise GraphError(f"edges has shape {list(edges.shape)}; expected [2, E]: sources, then targets")
    num_nodes, num_features = check_shape("x", x, ndim=2)
    labels = check_integers("y", y, ndim=1)
    if len(labels) != num_nodes:
        raise GraphError(
            f"y has {len(labels)} labels and x has {num_nodes} rows; expected one of each per node"
        )
    check_number_of_classes(num_classes)
    check_range("y", labels, -1, num_classes - 1, "use -1 for no label, or raise num_classes")
    given = zip(SPLITS, (train_idx, val_idx, test_idx), strict=True)
    splits = check_splits(num_nodes, {name: [] if ids is None else ids for name, ids in given})
    with _create_folder(Path(folder)) as draft:
        _write_features(draft, x)
        label_type = np.int16 if num_classes < 2**15 else np.int64
        write_array(draft / "y.npy", labels.astype(label_type))
        for name, nodes in splits.items():
            write_array(draft / f"{name}.npy", nodes)
        if node_names is not None:
            names = np.asarray(node_names)
            write_array(
                draft / "node_names.npy", names if names.dtype.kind in "iu" else names.astype(np.str_)
            )
        reads, repeats, loops = write_reads(draft, edges, num_nodes=num_nodes, symmetrize=symmetrize)
        about = {
            "version": SPARSE_VERSION if sparse.issparse(x) else DENSE_VERSION,
            "num_nodes": num_nodes,
            "num_reads": reads,
            "num_features": num_features,
            "num_classes": int(num_classes),
            DECLARED: has_declared_classes,
            "directed": bool(directed),
            "duplicates_removed": removed[0] + repeats,
            "self_loops_removed": removed[1] + loops,
            "has_names": node_names is not None,
            "columns": None if columns is None else json.loads(columns.to_json()),
        }
        (draft / ABOUT).write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")
        # Opened before the folder gets its name, so that a folder that cannot be opened is not left behind.
        stored = open_stored(draft)
    return replace(stored, folder=Path(folder))


def _write_features(folder: Path, x: Any) -> None:
    """Write features in blocks; types wider than float32 are narrowed to it. Sparse ones stay sparse."""
    dtype = x.dtype if hasattr(x, "dtype") else np.asarray(x).dtype
    if dtype.kind not in "biuf":
        raise GraphError(f"x has dtype {str(dtype)[:40]}; expected real numbers")
    if sparse.issparse(x):
        _write_sparse_features(folder, sparse.csr_array(x))
        return
    rows = np.asanyarray(x)
    stored_type = np.float32 if dtype.itemsize > 4 or dtype.kind == "b" else dtype
    with ArrayFile(folder / X_DENSE, stored_type, rows.shape[1]) as file:
        size = max(1, _BLOCK_VALUES // max(1, rows.shape[1]))
        for begin in range(0, rows.shape[0], size):
            with np.errstate(over="ignore", invalid="ignore"):
                file.append(rows[begin : begin + size])
            release(rows)


def _write_sparse_features(folder: Path, x: Any) -> None:
    """Write the arrays of sparse rows: values as float32, ids as int32 where they fit."""
    if not x.has_canonical_format:
        x = x.copy()
        x.sum_duplicates()
    ids = np.int32 if max(x.nnz, x.shape[1]) < 2**31 else np.int64
    for name, array, dtype in zip(
        X_SPARSE, (x.indptr, x.indices, x.data), (ids, ids, np.float32), strict=True
    ):
        with ArrayFile(folder / name, dtype) as file, np.errstate(over="ignore", invalid="ignore"):
            for begin in range(0, len(array), _BLOCK_VALUES):
                file.append(array[begin : begin + _BLOCK_VALUES])


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
        raise GraphError("directed is not given; tables require True or False, or symmetrize=True")
    how = {"splits": split is None, "num_classes": num_classes}
    with arrays_from_tables(data, columns=columns, **how) as arrays:  # type: ignore[arg-type]
        if arrays["num_classes"] is None:
            raise GraphError("num_classes is not given; tables require it, or the names of the classes")
        if split is not None:
            parts = random_split(len(arrays["y"]), parse_fractions(split), seed=split_seed)
            arrays |= dict(zip(SPLITS, parts, strict=True))
        edges = arrays.pop("edge_index")
        # Counts of what reading dropped are private, and the folder would keep them.
        del arrays["clean_up"], arrays["unread"]
        return store_arrays(folder, edges=edges, directed=bool(directed), symmetrize=symmetrize, **arrays)


@contextmanager
def _create_folder(path: Path) -> Iterator[Path]:
    """Yield a temporary folder that is renamed to `path` at the end, or removed after an error."""
    draft = path.with_name(path.name + ".draft")
    if path_exists(path):
        raise GraphError(f"{format_path(path)}: it exists already; choose another folder")
    try:
        draft.mkdir(parents=True)
    except FileExistsError:
        raise GraphError(f"{format_path(draft)}: left over from an interrupted store; remove it") from None
    except OSError as error:
        raise GraphError(f"{format_path(path)}: cannot be created ({error.strerror})") from None
    try:
        yield draft
        os.rename(draft, path)
    except OSError as error:
        raise GraphError(
            f"{format_path(path)}: cannot be written ({error.strerror}); free space for it"
        ) from None
    finally:
        shutil.rmtree(draft, ignore_errors=True)
