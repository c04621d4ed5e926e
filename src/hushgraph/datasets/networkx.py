"""Arrays from a NetworkX graph. NetworkX is never imported: a caller that has a graph has imported it."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from hushgraph.datasets.tables.cells import SPLITS
from hushgraph.errors import GraphError, MissingSplitError
from hushgraph.graph.records import EdgeWeight

_LARGEST_LABEL = 2**31
KEY = "key"
"""Stands for the keys of a multigraph, where relations are declared."""


def is_networkx(data: Any) -> bool:
    """Return whether this is a NetworkX graph, without importing NetworkX."""
    networkx = sys.modules.get("networkx")
    return networkx is not None and isinstance(data, networkx.Graph)


def arrays_from_networkx(
    graph: Any,
    *,
    features: str | Sequence[str] = "x",
    label: str = "y",
    classes: Sequence[str] | None = None,
    split: str | None = "split",
    labels: bool = True,
    edge_weight: str | None = None,
    relation: Mapping[str, Sequence[str]] | None = None,
    person: str | None = None,
) -> dict[str, Any]:
    """Return the arguments of `Graph.from_arrays`; without `labels`, no split is read either.

    Weights are under "weights", where `edge_weight` names an attribute of edges; names of relations and the
    number of each edge's are under "kinds", where `relation` declares some.
    """
    if not is_networkx(graph):
        raise GraphError(f"graph is a {type(graph).__name__}; expected a NetworkX graph")
    nodes = list(graph.nodes)
    number = {node: position for position, node in enumerate(nodes)}
    names: npt.NDArray[Any] = np.empty(len(nodes), object)
    names[:] = nodes
    if nodes and all(type(node) is int and abs(node) < 2**63 for node in nodes):
        names = names.astype(np.int64)
    ends = list_ends(graph, [number[node] for edge in graph.edges() for node in edge])
    arrays: dict[str, Any] = {"edge_index": ends, "node_names": names}
    column = None if edge_weight is None else EdgeWeight.of(edge_weight).column
    if column is not None:
        arrays["weights"] = list_weights(graph, column)
    for attribute, kinds in (relation or {}).items():
        arrays["kinds"] = kinds, _add_reverses(graph, _read_kinds(graph, attribute, kinds))
    arrays["x"] = _read_features(graph, nodes, features)
    if not labels:
        return arrays
    if person is not None:
        arrays["persons"] = _read_persons(graph, nodes, person)
    arrays["y"] = _read_labels(graph, nodes, label, classes)
    if split is not None:
        arrays |= _read_splits(graph, nodes, split)
    return arrays


def _read_kinds(graph: Any, attribute: str, kinds: Sequence[str]) -> npt.NDArray[np.int64]:
    """The number of the declared relation of every edge, -1 for others."""
    if attribute == KEY and graph.is_multigraph():
        values = [key for _, _, key in graph.edges(keys=True)]
    else:
        values = [value for _, _, value in graph.edges(data=attribute)]
    known = {kind: number for number, kind in enumerate(kinds)}
    return np.array([known.get(str(value), -1) for value in values], np.int64)


def list_ends(graph: Any, numbers: list[int]) -> npt.NDArray[np.int64]:
    """[2, E]: the ends of edges from the numbers of their nodes; of an undirected graph, reverses too."""
    ends = np.array(numbers, np.int64).reshape(-1, 2).T
    return ends if graph.is_directed() else np.concatenate([ends, ends[::-1]], axis=1)


def list_weights(graph: Any, column: str) -> npt.NDArray[np.float64]:
    """[E]: the weights of the same edges, NaN where there is none."""
    weights = [as_weight(value) for _, _, value in graph.edges(data=column)]
    return _add_reverses(graph, np.array(weights, np.float64))


def _add_reverses(graph: Any, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return values if graph.is_directed() else np.concatenate([values, values])


def as_weight(value: Any) -> float:
    """The weight of an edge; NaN, which counts as 0, where it has none."""
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return float("nan")


def _read_features(graph: Any, nodes: list[Any], features: str | Sequence[str]) -> npt.NDArray[np.float64]:
    wanted = [features] if isinstance(features, str) else list(features)
    if not wanted:
        raise GraphError("features is empty; expected the names of node attributes")
    parts = []
    for name in wanted:
        values = [graph.nodes[node].get(name) for node in nodes]
        lacking = next((node for node, value in zip(nodes, values, strict=True) if value is None), None)
        if lacking is not None:
            raise GraphError(f"node {_format(lacking)} has no attribute {name!r}; expected the feature there")
        try:
            part = np.asarray(values, np.float64)
        except (TypeError, ValueError, OverflowError):
            raise GraphError(
                f"node attribute {name!r} must be a number, or a list of numbers of one length, at every node"
            ) from None
        if part.ndim > 2 or (part.ndim == 2 and not isinstance(features, str)):
            raise GraphError(
                f"node attribute {name!r} has shape {list(part.shape[1:])} at each node; expected a number, "
                "or features=NAME of one attribute with a list of numbers"
            )
        parts.append(part.reshape(len(nodes), -1) if nodes else np.empty((0, 1)))
    x: npt.NDArray[np.float64] = np.concatenate(parts, axis=1)
    invalid = np.argwhere(~np.isfinite(x))
    if len(invalid):
        row, column = invalid[0]
        raise GraphError(
            f"node {_format(nodes[row])}: feature {column} is {x[row, column]}; expected finite numbers"
        )
    return x


def _read_labels(
    graph: Any, nodes: list[Any], name: str, classes: Sequence[str] | None
) -> npt.NDArray[np.int64]:
    codes = None if classes is None else {each: number for number, each in enumerate(classes)}
    y = np.full(len(nodes), -1, np.int64)
    for position, node in enumerate(nodes):
        value = graph.nodes[node].get(name)
        if value is None or (isinstance(value, (float, np.floating)) and np.isnan(value)):
            continue
        code = codes.get(value) if codes is not None else value
        if (
            isinstance(code, bool)
            or not isinstance(code, (int, np.integer))
            or not 0 <= code < _LARGEST_LABEL
        ):
            expected = "a number from 0" if codes is None else f"one of {len(codes)} classes"
            advice = "; give classes=[...] for names" if codes is None and isinstance(value, str) else ""
            raise GraphError(
                f"node {_format(node)}: {name}={_format(value)}; expected {expected}, or no attribute for no "
                f"label{advice}"
            )
        y[position] = int(code)
    return y


def _read_persons(graph: Any, nodes: list[Any], name: str) -> npt.NDArray[Any]:
    whose: npt.NDArray[Any] = np.empty(len(nodes), object)
    whose[:] = [graph.nodes[node].get(name) for node in nodes]
    if all(each is None for each in whose):
        raise GraphError(
            f"person={name!r}: no node has such an attribute; expected one that says whose it is"
        )
    return whose


def _read_splits(graph: Any, nodes: list[Any], name: str) -> dict[str, npt.NDArray[np.int64]]:
    codes = np.full(len(nodes), -1)
    for position, value in enumerate(graph.nodes[node].get(name) for node in nodes):
        if value is None or (isinstance(value, str) and not value):
            continue
        if not isinstance(value, str) or value not in SPLITS:
            raise GraphError(
                f"node {_format(nodes[position])}: {name}={_format(value)}; expected train, val or test, "
                "or no attribute"
            )
        codes[position] = SPLITS.index(value)
    if not (codes == 0).any():
        # Without any value there is no split; values without "train" are a mistake.
        kind = MissingSplitError if (codes < 0).all() else GraphError
        raise kind(
            f"no node has {name}='train'; name the attribute, give split='0.6/0.2/0.2' to draw a split, or "
            "labels=False for a graph to predict on"
        )
    return {f"{part}_idx": np.flatnonzero(codes == code) for code, part in enumerate(SPLITS)}


def _format(value: Any) -> str:
    return repr(value)[:40]
