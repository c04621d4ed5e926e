"""Graphs from files and from PyG objects, without ever running code that a file brings along."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from hushgraph.datasets.catalog.registry import load, names
from hushgraph.datasets.networks import arrays_from_networkx, is_networkx
from hushgraph.datasets.npz import read_npz
from hushgraph.datasets.paths import is_there, shown
from hushgraph.datasets.pyg import arrays_from_pyg, read_pt
from hushgraph.datasets.splits import USUAL_SPLIT, parse_fractions, random_split
from hushgraph.datasets.stored import is_stored, open_stored
from hushgraph.datasets.tables.files import is_tables
from hushgraph.errors import GraphError, MissingSplitError
from hushgraph.graph.checks import Array, check_shape
from hushgraph.graph.columns import Columns
from hushgraph.graph.graph import Graph

# What a graph to predict on gets in place of its own split, as a graph cannot be without one.
_EVERY_NODE = "1/0/0"


def load_graph(
    data: Any,
    *,
    symmetrize: bool = False,
    split: str | None = None,
    split_seed: int = 0,
    root: str | PathLike[str] | None = None,
    num_classes: int | None = None,
    directed: bool | None = None,
    columns: Columns | Mapping[str, Any] | None = None,
    labels: bool = True,
) -> Graph:
    """Turn whatever a user calls a graph into a checked `Graph`.

    Arguments:
        data: a `Graph`, a PyG `Data`, a NetworkX graph (as `Graph.from_networkx` takes it by default), the
            path of an `.npz` or `.pt` file, the folder of a stored graph, a folder or a pair of tables or the
            TOML file that names them, or a catalog name.
        symmetrize: add the reverse of every edge.
        split: "0.6/0.2/0.2" draws a split with `random_split`, in place of any that the data has.
        split_seed: the seed of that draw.
        root: the folder where named datasets keep their files.
        num_classes, directed: as in `Graph.from_arrays`.
        columns: what the columns of tables mean; a mapping of some of them goes before a TOML file. Other
            data has no use for it.
        labels: False is for data to predict on: features and edges alone are read, whatever labels and splits
            there are or are not. Every node is then unlabelled and in the training split.
    """
    options: dict[str, Any] = {"split": split, "split_seed": split_seed, "symmetrize": symmetrize}
    options |= {"num_classes": num_classes, "directed": directed, "labels": labels}
    is_name = isinstance(data, str) and data in names()
    if is_stored(data) and not is_name:
        data = open_stored(Path(data), num_classes=num_classes if labels else None)
    if is_tables(data) and not is_name:
        return _load_tables(data, columns, **options)
    if is_networkx(data):
        return load_networkx(data, **options | {"split": split or "split"})
    if isinstance(data, (str, Path)):
        path = Path(data)
        if path.suffix == ".npz":
            return load_npz(path, **options)
        if path.suffix == ".pt":
            return load_pt(path, **options)
        # A folder that happens to be called like a dataset, as `make demo` leaves one, hides nothing.
        if isinstance(data, Path) or (data not in names() and is_there(path)):
            raise GraphError(
                f"{shown(path)}: unknown kind of file; expected .npz, .pt, tables or a dataset name"
            )
        data = load(data, root)
    if not isinstance(data, Graph):
        return _build(arrays_from_pyg(data, splits=split is None, labels=labels), **options)
    if symmetrize:
        data = data.symmetrized()
    if not labels:
        data, split = replace(data, y=_no_labels(data.num_nodes)), _EVERY_NODE
    if num_classes is not None:
        data = replace(data, num_classes=num_classes)
    if directed is not None:
        data = replace(data, is_directed=directed)
    return data if split is None else _resplit(data, split, split_seed)


def load_for_training(data: Any, *, split: str | None = None, **how: Any) -> tuple[Graph, str | None]:
    """The graph and the split drawn for it: the one asked for, or the usual one where it has none."""
    try:
        return load_graph(data, split=split, **how), split
    except MissingSplitError:
        return load_graph(data, split=USUAL_SPLIT, **how), USUAL_SPLIT


def load_npz(
    path: str | PathLike[str],
    *,
    symmetrize: bool = False,
    num_classes: int | None = None,
    directed: bool | None = None,
    split: str | None = None,
    split_seed: int = 0,
    labels: bool = True,
) -> Graph:
    """Read a graph from an `.npz` file.

    Keys: `edge_index` int [2, E]; features `x` [N, d], or sparse rows `x_indptr`, `x_indices`, `x_data`
    (length 1 means that every value is that one) and `x_shape`; `y` int [N], -1 for no label; `train_idx`,
    `val_idx`, `test_idx`, or else masks `train_mask` and so on, unless `split` is given. Other keys are not
    read. The arguments are those of `load_graph`; with `labels=False` neither `y` nor a split is read.

    Guarantees:
        Whatever the file holds, the outcome is a checked graph or a `GraphError` that names the file; nothing
        in it is unpickled.
    """
    options: dict[str, Any] = {"num_classes": num_classes, "directed": directed, "symmetrize": symmetrize}
    with _reading(Path(path)) as file:
        arrays = read_npz(file, splits=split is None, labels=labels)
        return _build(arrays, split=split, split_seed=split_seed, labels=labels, **options)


def load_pt(
    path: str | PathLike[str],
    *,
    symmetrize: bool = False,
    num_classes: int | None = None,
    directed: bool | None = None,
    split: str | None = None,
    split_seed: int = 0,
    labels: bool = True,
) -> Graph:
    """Read a graph from a `.pt` file: a PyG `Data`, or a dictionary of tensors with the names of its fields.

    Guarantees:
        Only tensors, plain containers and PyG's own `Data` are unpickled (`torch.load(weights_only=True)`).
    """
    options: dict[str, Any] = {"num_classes": num_classes, "directed": directed, "symmetrize": symmetrize}
    with _reading(Path(path)) as file:
        arrays = arrays_from_pyg(read_pt(file), splits=split is None, labels=labels)
        return _build(arrays, split=split, split_seed=split_seed, labels=labels, **options)


def load_networkx(
    graph: Any,
    *,
    features: str | Sequence[str] = "x",
    label: str = "y",
    classes: Sequence[str] | None = None,
    labels: bool = True,
    split: str = "split",
    split_seed: int = 0,
    **options: Any,
) -> Graph:
    """A graph from NetworkX: arguments as in `Graph.from_networkx`, and `labels` as in `load_graph`."""
    drawn = split if "/" in split else None
    arrays = arrays_from_networkx(
        graph,
        features=features,
        label=label,
        classes=classes,
        split=None if drawn else split,
        labels=labels,
    )
    return _build(arrays, split=drawn, split_seed=split_seed, labels=labels, **options)


def _build(
    arrays: dict[str, Any], *, split: str | None, split_seed: int, labels: bool, **options: Any
) -> Graph:
    given = arrays | options
    if not labels:
        given["y"], split = _no_labels(check_shape("x", given["x"], ndim=2)[0]), _EVERY_NODE
        # Whoever predicts knows the classes; the graph only needs to have some.
        given["num_classes"] = 1 if given["num_classes"] is None else given["num_classes"]
    if split is None:
        return Graph.from_arrays(**given)
    return _resplit(Graph.from_arrays(**given, train_idx=[0]), split, split_seed)


def _no_labels(num_nodes: int) -> Array:
    return np.full(num_nodes, -1, np.int8)


@contextmanager
def _reading(path: Path) -> Iterator[Path]:
    """The path, whose name goes before what is wrong with its file."""
    try:
        yield path
    except PermissionError:
        raise GraphError(f"{shown(path)}: cannot be read (permission denied); allow reading it") from None
    except GraphError as error:
        raise type(error)(f"{shown(path)}: {error}") from None


def _load_tables(data: Any, columns: Columns | Mapping[str, Any] | None, **options: Any) -> Graph:
    from hushgraph.datasets.tables.reading import arrays_from_tables

    labels = options["labels"]
    how = {"splits": labels and options["split"] is None, "num_classes": options.pop("num_classes")}
    with arrays_from_tables(data, columns=columns, labels=labels, **how) as arrays:
        try:
            return _build(arrays, **options)
        except GraphError as error:
            nodes = data[0] if isinstance(data, (tuple, list)) else data
            raise GraphError(f"{shown(Path(nodes))}: {error}") from None


def _resplit(graph: Graph, split: str, seed: int) -> Graph:
    parts = random_split(graph.num_nodes, parse_fractions(split), seed=seed, labels=graph.y)
    return replace(graph, train_idx=parts[0], val_idx=parts[1], test_idx=parts[2])
