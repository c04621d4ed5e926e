"""From the arrays that readers give to a checked graph: labels of every task, weights, a drawn split."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import numpy as np
from scipy import sparse

from hushgraph.datasets.npz import SparseSets
from hushgraph.datasets.splits import parse_fractions, random_split
from hushgraph.errors import GraphError
from hushgraph.graph.checks import check_edges, check_shape
from hushgraph.graph.graph import Array, Graph
from hushgraph.graph.records import PEOPLE, EdgeWeight, Relation
from hushgraph.tasks.labels import Labels, read_sets, read_sparse_sets
from hushgraph.tasks.number import Number

# The split of a graph that is only predicted on: a graph needs one, and this one reads nothing.
EVERY_NODE = "1/0/0"

LabelKind = Number | Literal["labels"] | None
"""What labels are: numbers, sets of labels, or classes."""


def build_graph(
    arrays: dict[str, Any], *, split: str | None, split_seed: int, labels: bool, **options: Any
) -> Graph:
    """Build a graph from arrays, with a drawn split if `split` is given, and without labels if not wanted."""
    given = arrays | options
    given = _weigh(given, given.pop("edge_weight", None))
    task: LabelKind = given.get("task")
    if not labels:
        # No label of any task.
        given["task"] = None
        given["y"], split = np.full(check_shape("x", given["x"], ndim=2)[0], -1, np.int8), EVERY_NODE
        # A run that predicts knows its classes; the graph only needs a valid number.
        given["num_classes"] = 1 if given["num_classes"] is None else given["num_classes"]
    elif task == "labels":
        given["y"] = _read_sets(given["y"], given["num_classes"])
        given["task"] = Labels(num_labels=given["y"].shape[1])
    elif task is not None:
        given["y"] = task.scale(_check_numbers(given["y"]))
    elif _holds_sets(given["y"]):
        raise GraphError(
            "y holds several labels for each node; expected one class; give task='labels' (--task labels)"
        )
    if split is None:
        return Graph.from_arrays(**given)
    return resplit(Graph.from_arrays(**given, train_idx=[0]), split, split_seed)


def _weigh(arrays: dict[str, Any], edge_weight: str | None) -> dict[str, Any]:
    """Arrays with relations in place of edges, where weights or relations are declared."""
    raw, kinds = arrays.pop("weights", None), arrays.pop("kinds", None)
    if "relations" in arrays or (edge_weight is None and kinds is None):
        return arrays
    declared = None if edge_weight is None else EdgeWeight.of(edge_weight)
    num_nodes = check_shape("x", arrays["x"], ndim=2)[0]
    edges = arrays["edge_index"]
    if callable(edges):
        parts = [np.stack(part) for part in edges(num_nodes)()]
        edges = np.concatenate([np.empty((2, 0), np.int64), *parts], axis=1)
    edges = check_edges(edges, num_nodes)
    names, codes = kinds or ((PEOPLE,), np.zeros(edges.shape[1], np.int64))
    counted = None if declared is None else declared.read(raw, edges.shape[1])
    relations = [
        Relation.between_people(
            name,
            edges[:, codes == number],
            num_nodes=num_nodes,
            weights=None if counted is None else counted[codes == number],
        )
        for number, name in enumerate(names)
    ]
    return arrays | {"edge_index": None, "relations": relations}


def _holds_sets(labels: Any) -> bool:
    """Whether labels are a table rather than a list."""
    if isinstance(labels, SparseSets) or sparse.issparse(labels):
        return True
    shape = np.shape(labels)
    return len(shape) == 2 and shape[1] != 1


def _read_sets(labels: Any, num_labels: int | None) -> Array:
    """Sets of labels, [N, L]; lists of labels do not say how many there are."""
    if not isinstance(labels, SparseSets):
        return read_sets(labels, num_labels)
    if num_labels is None or num_labels < 1:
        raise GraphError(
            f"num_classes={num_labels}: y_indices does not say how many labels there are, and counting them "
            "would look at rows; give num_classes (--num-classes), or store it in the file"
        )
    return read_sparse_sets(*labels, num_labels)


def _check_numbers(labels: Any) -> Array:
    """Numbers to predict, [N] or [N, 1], NaN for none."""
    if _holds_sets(labels):
        raise GraphError("y holds several numbers for each node; expected one; for labels give task='labels'")
    array = np.asarray(labels)
    if array.dtype.kind not in "fiu" or array.size != len(array):
        raise GraphError(
            f"y has dtype {array.dtype} and shape {list(array.shape)}; expected one number per node, NaN for "
            "none"
        )
    return array.reshape(-1)


def resplit(graph: Graph, split: str, seed: int) -> Graph:
    parts = random_split(graph.num_nodes, parse_fractions(split), seed=seed, persons=graph.persons)
    return replace(graph, train_idx=parts[0], val_idx=parts[1], test_idx=parts[2])
