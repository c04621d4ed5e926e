"""Load a checked graph from files and objects, without running any code that a file contains."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from hushgraph.datasets.building import EVERY_NODE, LabelKind, build_graph, resplit
from hushgraph.datasets.catalog.registry import load, names
from hushgraph.datasets.networkx import arrays_from_networkx, is_networkx
from hushgraph.datasets.npz import read_npz
from hushgraph.datasets.paths import format_path, name_in_errors, path_exists
from hushgraph.datasets.pyg import arrays_from_hetero, arrays_from_pyg, is_hetero, read_pt
from hushgraph.datasets.splits import DEFAULT_SPLIT
from hushgraph.datasets.tables.files import is_tables, name_tables
from hushgraph.errors import GraphError, MissingSplitError
from hushgraph.graph.columns import Columns
from hushgraph.graph.graph import Graph
from hushgraph.tasks.labels import Labels
from hushgraph.tasks.number import Number
from hushgraph.tasks.task import Task, no_label


def name_labels(task: Task) -> LabelKind:
    """Return the argument `task` with which `load_graph` reads the labels of a task again."""
    if isinstance(task, Labels):
        return "labels"
    return task if isinstance(task, Number) else None


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
    task: LabelKind = None,
    edge_weight: str | None = None,
    people: str | None = None,
    person: Any = None,
) -> Graph:
    """Load any supported kind of data as a checked `Graph`.

    Args:
        data: a `Graph`, a PyG `Data`, a NetworkX graph (read with the defaults of `from_networkx`), the path
            of an `.npz` or `.pt` file, a folder or a pair of tables, a pair of DataFrames of pandas or Polars
            (nodes, edges), the TOML file that names tables, or the name of a dataset.
        symmetrize: add the reverse of every edge.
        split: "0.6/0.2/0.2" draws a split with `random_split` and replaces any split of the data.
        split_seed: the seed of that draw.
        root: the folder where named datasets keep their files.
        num_classes, directed: as in `Graph.from_arrays`.
        columns: the roles of the columns of tables. A mapping of some of them takes precedence over a TOML
            file. Other kinds of data ignore it.
        labels: False loads data to predict on. Only features and edges are read; labels and splits may be
            missing. Every node is then unlabelled and in the training split.
        task: `Number` for labels that are numbers, "labels" for sets of labels; otherwise they are classes. A
            `Graph` has its own task, and tables say by `columns` that a node has several labels.
        edge_weight: where the weights of edges come from, as `Columns.edge_weight` says: a column of tables,
            an array of PyG or `.npz`, or an attribute of edges in NetworkX; "count" counts repeats. Weights
            are never read unless it is given.
        people: of a PyG `HeteroData`, the type of nodes that are people; all others are places.
        person: whose every node is, where people have several nodes: the name of a column of tables, of an
            attribute of a PyG `Data`, of the people of a `HeteroData` or of NetworkX nodes, or of a key of an
            `.npz` file; or an array as `Graph.with_persons` takes it.

    Returns:
        The checked graph.

    The keys of an `.npz` file are `edge_index` int [2, E]; features `x` [N, d], or sparse rows `x_indptr`,
    `x_indices`, `x_data` (of length 1 if all values are equal) and `x_shape`; `y` int [N], -1 for no label;
    and, unless `split` is given, `train_idx`, `val_idx`, `test_idx` or the masks `train_mask`, `val_mask`,
    `test_mask`. For several labels a node, `y` is [N, L] of 0 and 1, a row of -1 for no label; or sparse rows
    `y_indptr` and `y_indices`, in which an empty row is an empty set and a row of -1 alone has no label.
    An integer `num_classes` declares the number of classes, or of labels. Other keys are ignored.

    A `.pt` file holds a PyG `Data`, or a dictionary of tensors with the names of its fields, which is read
    without torch-geometric. Splits of both are masks or index tensors with the names above. Sparse `x` stays
    sparse; labels may have shape [N, 1], and NaN means no label.

    Guarantees:
        Whatever a file contains, the result is a checked graph or a `GraphError` that names the file.
        Nothing of an `.npz` file is unpickled. Of a `.pt` file, only tensors, plain containers and PyG's own
        `Data` are (`torch.load(weights_only=True)`).

    Examples:
        >>> import hushgraph as hg
        >>> graph = hg.datasets.load_graph("generated-100", split="0.5/0.25/0.25")
        >>> graph.num_nodes
        100
    """
    options: dict[str, Any] = {"split": split, "split_seed": split_seed, "symmetrize": symmetrize}
    options |= {"num_classes": num_classes, "directed": directed, "labels": labels}
    if person is not None and not isinstance(person, str):
        own: dict[str, Any] = {"root": root, "columns": columns, "task": task}
        own |= {"edge_weight": edge_weight, "people": people}
        return _give_persons(load_graph(data, **options, **own), person, split, split_seed)
    is_named = isinstance(data, str) and data in names()
    if edge_weight is not None and (isinstance(data, Graph) or is_named):
        raise GraphError(
            f"edge_weight={edge_weight!r}: a Graph has its records already; build it with relations=[...]"
        )
    if people is not None and not is_hetero(data):
        raise GraphError(
            f"people={people!r}: it is for PyG's HeteroData, which has types of nodes; leave it out"
        )
    # A folder named like a dataset, such as `demo`, does not hide the dataset.
    if isinstance(data, Graph) or is_named:
        _refuse_person(person, data)
        return _adapt(load(data, root) if isinstance(data, str) else data, **options)
    # Of sets of labels, it is the number of labels; numbers have none.
    options["num_classes"] = None if isinstance(task, Number) else num_classes
    if is_tables(data):
        return _load_tables(data, _add_columns(columns, edge_weight, person), task=task, **options)
    path = Path(data) if isinstance(data, (str, Path)) else None
    if path is not None and path.suffix not in (".npz", ".pt"):
        if isinstance(data, Path) or path_exists(path):
            raise GraphError(
                f"{format_path(path)}: unknown kind of file; expected .npz, .pt, tables or a dataset name"
            )
        return _adapt(load(data, root), **options)
    with nullcontext() if path is None else name_in_errors(format_path(path)):
        reading: dict[str, Any] = {"splits": split is None, "labels": labels, "edge_weight": edge_weight}
        reading["person"] = person if labels else None
        arrays = _read_arrays(data if path is None else path, people, task, reading)
        declared = arrays.pop("num_classes", None)
        if options["num_classes"] is None and not isinstance(task, Number):
            options["num_classes"] = declared
        return build_graph(arrays, task=task, edge_weight=edge_weight, **options)


def _read_arrays(
    data: Any, people: str | None, task: LabelKind, reading: Mapping[str, Any]
) -> dict[str, Any]:
    """What `build_graph` takes, from an object or from a file; `reading` says which parts of it are read."""
    if isinstance(data, Path) and data.suffix == ".npz":
        return read_npz(data, **reading)
    if is_networkx(data):
        if task == "labels":
            raise GraphError(
                "task='labels' with a NetworkX graph: sets of labels are read from tables, .npz and PyG; "
                "build a graph with Graph.from_arrays(task=Labels(num_labels=L))"
            )
        others = {name: value for name, value in reading.items() if name != "splits"}
        return arrays_from_networkx(data, split="split" if reading["splits"] else None, **others)
    if is_hetero(data):
        return arrays_from_hetero(data, people, classes=task is None, **reading)
    fields = read_pt(data) if isinstance(data, Path) else data
    return arrays_from_pyg(fields, classes=task is None, **reading)


def _refuse_person(person: Any, data: Any) -> None:
    """Refuse a name where nothing has names."""
    if person is not None:
        name = data if isinstance(data, str) else "a Graph"
        raise GraphError(
            f"person={person!r}: {name} has no columns; give an array to Graph.with_persons, or to "
            "hushgraph.datasets.load_graph(data, person=array)"
        )


def _give_persons(graph: Graph, persons: Any, split: str | None, seed: int) -> Graph:
    """A graph whose nodes are these persons', with a split by person where one is drawn."""
    graph = graph.with_persons(persons)
    return graph if split is None or "/" not in split else resplit(graph, split, seed)


def _adapt(
    graph: Graph,
    *,
    symmetrize: bool,
    labels: bool,
    num_classes: int | None,
    directed: bool | None,
    split: str | None,
    split_seed: int,
) -> Graph:
    """A checked graph as the arguments of `load_graph` ask for it."""
    if symmetrize:
        graph = graph.symmetrized()
    if not labels:
        graph, split = replace(graph, y=np.full_like(graph.y, no_label(graph.y.dtype))), EVERY_NODE
    if num_classes is not None:
        graph = replace(graph, num_classes=num_classes, has_declared_classes=True)
    if directed is not None:
        graph = replace(graph, is_directed=directed)
    return graph if split is None else resplit(graph, split, split_seed)


def load_for_training(data: Any, *, split: str | None = None, **how: Any) -> tuple[Graph, str | None]:
    """Load a graph and draw the default split if the data has none; return the graph and the split drawn."""
    try:
        return load_graph(data, split=split, **how), split
    except MissingSplitError:
        return load_graph(data, split=DEFAULT_SPLIT, **how), DEFAULT_SPLIT


def from_networkx(
    graph: Any,
    *,
    features: str | Sequence[str] = "x",
    label: str = "y",
    classes: Sequence[str] | None = None,
    labels: bool = True,
    split: str = "split",
    split_seed: int = 0,
    symmetrize: bool = False,
    num_classes: int | None = None,
    directed: bool | None = None,
    edge_weight: str | None = None,
    relation: Mapping[str, Sequence[str]] | None = None,
    person: str | None = None,
) -> Graph:
    """Build a graph from a NetworkX graph. The nodes keep their order.

    Args:
        graph: an undirected or directed graph. In a directed graph the head of an edge reads its tail.
        features: the node attribute that holds a number or a list of numbers, or a list of attributes that
            hold one number each.
        label: the attribute of the class: a number from 0, or a name in `classes`. A node without it has no
            label.
        classes: the names of the classes, in the order of their numbers.
        labels: False builds a graph to predict on: labels and splits are not read.
        split: the attribute that holds "train", "val" or "test"; a node without it is in no split. Fractions
            such as "0.6/0.2/0.2" draw a split instead.
        split_seed: the seed of that draw.
        symmetrize, num_classes, directed: as in `Graph.from_arrays`.
        edge_weight: as in `load_graph`: an attribute of edges, such as "weight". Edges of a multigraph
            between two nodes are summed.
        relation: the attribute of edges that says of which kind each is, and the kinds, which are declared:
            {"kind": ["calls", "pays"]}; "key" stands for the keys of a multigraph. Others are dropped.
        person: the attribute that says whose a node is, where people have several; a node without it is a
            person of its own.

    Returns:
        The checked graph; `node_names` holds the nodes of the NetworkX graph.
    """
    if classes is not None and num_classes is None:
        num_classes = len(classes)
    # The name of an attribute, or fractions to draw a split with.
    fractions = split if "/" in split else None
    arrays = arrays_from_networkx(
        graph,
        features=features,
        label=label,
        classes=classes,
        split=None if fractions else split,
        labels=labels,
        edge_weight=edge_weight,
        relation=None if relation is None else Columns(relation=relation).relation,
        person=person,
    )
    return build_graph(
        arrays,
        split=fractions,
        split_seed=split_seed,
        symmetrize=symmetrize,
        num_classes=num_classes,
        directed=directed,
        labels=labels,
        edge_weight=edge_weight,
    )


def _add_columns(
    columns: Columns | Mapping[str, Any] | None, edge_weight: str | None, person: str | None
) -> Columns | Mapping[str, Any] | None:
    """Return the columns with those of weights and of persons added, where they are given."""
    named = {"edge_weight": edge_weight, "person": person}
    given: dict[str, Any] = {name: value for name, value in named.items() if value is not None}
    return replace(columns, **given) if isinstance(columns, Columns) else {**(columns or {}), **given} or None


def _load_tables(
    data: Any, columns: Columns | Mapping[str, Any] | None, *, task: LabelKind, **options: Any
) -> Graph:
    from hushgraph.datasets.tables.reading import arrays_from_tables

    labels = options["labels"]
    how: dict[str, Any] = {"splits": labels and options["split"] is None}
    how |= {"num_classes": options.pop("num_classes"), "kind": "number" if isinstance(task, Number) else task}
    arrays = arrays_from_tables(data, columns=columns, labels=labels, **how)
    is_set = arrays.pop("are_sets")
    with name_in_errors(name_tables(data)):
        return build_graph(arrays, task="labels" if is_set else task, **options)
