"""Load a checked graph from files and objects, without running any code that a file contains."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any, TypedDict, Unpack

import numpy as np

from hushgraph.datasets.building import EVERY_NODE, LabelKind, build_graph, resplit, weigh
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
    if isinstance(data, Graph) or is_named:
        _refuse_person(person, data)
    if isinstance(data, Graph):
        return _adapt(data, **options)
    # A folder named like a dataset, such as `demo`, does not hide the dataset.
    if is_named:
        return _adapt(load(data, root), **options)
    # Of sets of labels, it is the number of labels; numbers have none.
    known = None if isinstance(task, Number) else num_classes
    reading = options | {"num_classes": known, "task": task}
    if is_tables(data):
        if person is not None and not isinstance(columns, Columns):
            columns = {**(columns or {}), "person": person}
        return _load_tables(data, _with_weight(columns, edge_weight), **reading)
    reading["edge_weight"] = edge_weight
    if is_hetero(data):
        arrays = arrays_from_hetero(
            data, people, edge_weight=edge_weight, splits=split is None, labels=labels, classes=task is None
        )
        arrays |= _read_persons(data[people], person if labels else None)
        return build_graph(arrays, **reading | {"edge_weight": None})
    own_person = person if labels else None
    if is_networkx(data):
        if task == "labels":
            raise GraphError(
                "task='labels' with a NetworkX graph: sets of labels are read from tables, .npz and PyG; "
                "build a graph with Graph.from_arrays(task=Labels(num_labels=L))"
            )
        return _build_from_networkx(data, {"person": own_person}, **reading | {"split": split or "split"})
    if not isinstance(data, (str, Path)):
        arrays = arrays_from_pyg(
            data, splits=split is None, labels=labels, classes=task is None, edge_weight=edge_weight
        )
        return build_graph(arrays | _read_persons(data, own_person), **reading)
    reading["person"], path = own_person, Path(data)
    if path.suffix == ".npz":
        return load_npz(path, **reading)
    if path.suffix == ".pt":
        return load_pt(path, **reading)
    if isinstance(data, Path) or path_exists(path):
        raise GraphError(
            f"{format_path(path)}: unknown kind of file; expected .npz, .pt, tables or a dataset name"
        )
    return _adapt(load(data, root), **options)


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


def _read_persons(data: Any, person: str | None) -> dict[str, Any]:
    """The persons of an object with attributes, as an argument of `Graph.from_arrays`."""
    if person is None:
        return {}
    if getattr(data, person, None) is None:
        raise GraphError(
            f"person={person!r}: the data has no such attribute; expected one that says whose every node is"
        )
    return {"persons": getattr(data, person)}


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


class FileSettings(TypedDict, total=False):
    """What `load_npz` and `load_pt` take beside the path, as `load_graph` does."""

    symmetrize: bool
    num_classes: int | None
    directed: bool | None
    split: str | None
    split_seed: int
    labels: bool
    task: LabelKind
    edge_weight: str | None
    person: str | None


def load_npz(path: str | PathLike[str], **settings: Unpack[FileSettings]) -> Graph:
    """Load a graph from an `.npz` file.

    The keys are `edge_index` int [2, E]; features `x` [N, d], or sparse rows `x_indptr`, `x_indices`,
    `x_data` (of length 1 if all values are equal) and `x_shape`; `y` int [N], -1 for no label; and, unless
    `split` is given, `train_idx`, `val_idx`, `test_idx` or the masks `train_mask`, `val_mask`, `test_mask`.
    For several labels a node, `y` is [N, L] of 0 and 1, a row of -1 for no label; or sparse rows `y_indptr`
    and `y_indices`, in which an empty row is an empty set and a row of -1 alone has no label.
    An integer `num_classes` declares the number of classes, or of labels. Other keys are ignored.

    Args:
        path: the file.
        settings: symmetrize, num_classes, directed, split, split_seed, labels, task, edge_weight and person,
            as in `load_graph`. With labels=False, neither `y` nor a split is read; edge_weight is the key of
            an array [E] of weights.

    Returns:
        The checked graph.

    Guarantees:
        Whatever the file contains, the result is a checked graph or a `GraphError` that names the file.
        Nothing is unpickled.
    """
    given = _complete(settings)
    with name_in_errors(format_path(Path(path))):
        arrays = read_npz(Path(path), **_name_parts(given), person=given.pop("person"))
        declared = arrays.pop("num_classes", None)
        if given["num_classes"] is None and not isinstance(given["task"], Number):
            given["num_classes"] = declared
        return build_graph(arrays, **given)


def load_pt(path: str | PathLike[str], **settings: Unpack[FileSettings]) -> Graph:
    """Load a graph from a `.pt` file: a PyG `Data`, or a dictionary of tensors with the names of its fields.

    Args:
        path: the file. A dictionary of tensors can be read without torch-geometric.
        settings: as in `load_npz`.

    Returns:
        The checked graph.

    Guarantees:
        Only tensors, plain containers and PyG's own `Data` are unpickled (`torch.load(weights_only=True)`).
    """
    given = _complete(settings)
    with name_in_errors(format_path(Path(path))):
        fields = read_pt(Path(path))
        arrays = arrays_from_pyg(fields, **_name_parts(given), classes=given["task"] is None)
        return build_graph(arrays | _read_persons(fields, given.pop("person")), **given)


def _complete(settings: FileSettings) -> dict[str, Any]:
    """Return the settings, with defaults for those that are not given."""
    usual: dict[str, Any] = dict.fromkeys(FileSettings.__annotations__)
    return usual | {"symmetrize": False, "split_seed": 0, "labels": True} | settings


def _name_parts(given: Mapping[str, Any]) -> dict[str, Any]:
    """Which parts of the data are read."""
    return {"splits": given["split"] is None, "labels": given["labels"], "edge_weight": given["edge_weight"]}


def from_pyg(
    data: Any,
    *,
    symmetrize: bool = False,
    num_classes: int | None = None,
    directed: bool | None = None,
    edge_weight: str | None = None,
) -> Graph:
    """Build a graph from a `torch_geometric.data.Data`, or any object with its fields.

    Splits are boolean `train_mask`, `val_mask`, `test_mask` [N] or index tensors `train_idx`, `val_idx`,
    `test_idx`. Sparse `x` stays sparse. Labels may have shape [N, 1], and NaN means no label.

    Args:
        data: the object. torch-geometric is not imported.
        symmetrize, num_classes, directed: as in `Graph.from_arrays`.
        edge_weight: as in `load_graph`, such as "edge_weight".

    Returns:
        The checked graph.

    Examples:
        >>> import torch
        >>> from types import SimpleNamespace
        >>> import hushgraph as hg
        >>> edges, y = torch.tensor([[0, 1], [1, 2]]), torch.tensor([0, 1, 1])
        >>> data = SimpleNamespace(edge_index=edges, x=torch.eye(3), y=y, train_idx=torch.tensor([0, 1]))
        >>> hg.datasets.from_pyg(data).num_edges
        2
    """
    arrays = weigh(arrays_from_pyg(data, edge_weight=edge_weight), edge_weight)
    return Graph.from_arrays(**arrays, symmetrize=symmetrize, num_classes=num_classes, directed=directed)


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
    reading: dict[str, Any] = {"features": features, "label": label, "classes": classes, "person": person}
    if relation is not None:
        reading["relation"] = Columns(relation=relation).relation
    options: dict[str, Any] = {"split": split, "split_seed": split_seed, "symmetrize": symmetrize}
    options |= {"num_classes": num_classes, "directed": directed}
    return _build_from_networkx(graph, reading, labels=labels, edge_weight=edge_weight, **options)


def _build_from_networkx(
    graph: Any,
    reading: Mapping[str, Any],
    *,
    split: str,
    labels: bool,
    edge_weight: str | None,
    **options: Any,
) -> Graph:
    """Build a graph from NetworkX; `split` is an attribute, or fractions to draw a split with."""
    fractions = split if "/" in split else None
    attribute = None if fractions else split
    arrays = arrays_from_networkx(graph, split=attribute, labels=labels, edge_weight=edge_weight, **reading)
    return build_graph(arrays, split=fractions, labels=labels, edge_weight=edge_weight, **options)


def _with_weight(columns: Columns | Mapping[str, Any] | None, edge_weight: str | None) -> Any:
    """Return the columns with the column of weights added."""
    if edge_weight is None:
        return columns
    if isinstance(columns, Columns):
        return replace(columns, edge_weight=edge_weight)
    return {**(columns or {}), "edge_weight": edge_weight}


def _load_tables(data: Any, columns: Columns | Mapping[str, Any] | None, **options: Any) -> Graph:
    from hushgraph.datasets.tables.reading import arrays_from_tables

    labels = options["labels"]
    how: dict[str, Any] = {"splits": labels and options["split"] is None}
    task: LabelKind = options.pop("task", None)
    how |= {"num_classes": options.pop("num_classes"), "kind": "number" if isinstance(task, Number) else task}
    arrays = arrays_from_tables(data, columns=columns, labels=labels, **how)
    is_set = arrays.pop("are_sets")
    try:
        return build_graph(arrays, task="labels" if is_set else task, **options)
    except GraphError as error:
        raise GraphError(f"{name_tables(data)}: {error}") from None
