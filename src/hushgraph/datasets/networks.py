"""Graphs from NetworkX, whose objects bring all that is needed: nothing of it is imported here."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from hushgraph.errors import GraphError, MissingSplitError

_SPLITS = ("train", "val", "test")


def is_networkx(data: Any) -> bool:
    """Whether this is a NetworkX graph; nobody has one who has not imported NetworkX."""
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
) -> dict[str, Any]:
    """The arguments of `Graph.from_arrays` found in a NetworkX graph; without `labels`, no split either."""
    if not is_networkx(graph):
        raise GraphError(f"graph is a {type(graph).__name__}; expected a NetworkX graph")
    nodes = list(graph.nodes)
    number = {node: place for place, node in enumerate(nodes)}
    ends = np.array([(number[u], number[w]) for u, w in graph.edges()], np.int64).reshape(-1, 2).T
    if not graph.is_directed():
        ends = np.concatenate([ends, ends[::-1]], axis=1)
    names: npt.NDArray[Any] = np.empty(len(nodes), object)
    names[:] = nodes
    if nodes and all(type(node) is int and abs(node) < 2**63 for node in nodes):
        names = names.astype(np.int64)
    arrays: dict[str, Any] = {"edge_index": ends, "node_names": names}
    arrays["x"] = _features(graph, nodes, features)
    if not labels:
        return arrays
    arrays["y"] = _labels(graph, nodes, label, classes)
    if split is not None:
        arrays |= _split_nodes(graph, nodes, split)
    return arrays


def _features(graph: Any, nodes: list[Any], features: str | Sequence[str]) -> npt.NDArray[np.float64]:
    wanted = [features] if isinstance(features, str) else list(features)
    if not wanted:
        raise GraphError("features is empty; expected the names of node attributes")
    parts = []
    for name in wanted:
        found = [graph.nodes[node].get(name) for node in nodes]
        bare = next((node for node, value in zip(nodes, found, strict=True) if value is None), None)
        if bare is not None:
            raise GraphError(f"node {_shown(bare)} has no attribute {name!r}; expected the feature there")
        try:
            part = np.asarray(found, np.float64)
        except (TypeError, ValueError):
            raise GraphError(
                f"node attribute {name!r} is not a number, or a list of as many numbers, at every node"
            ) from None
        if part.ndim > 2 or (part.ndim == 2 and not isinstance(features, str)):
            raise GraphError(
                f"node attribute {name!r} has shape {list(part.shape[1:])} at each node; expected a number, "
                "or features=NAME of one attribute with a list of numbers"
            )
        parts.append(part.reshape(len(nodes), -1) if nodes else np.empty((0, 1)))
    x: npt.NDArray[np.float64] = np.concatenate(parts, axis=1)
    wrong = np.argwhere(~np.isfinite(x))
    if len(wrong):
        row, column = wrong[0]
        raise GraphError(
            f"node {_shown(nodes[row])}: feature {column} is {x[row, column]}; expected finite numbers"
        )
    return x


def _labels(graph: Any, nodes: list[Any], name: str, classes: Sequence[str] | None) -> npt.NDArray[np.int64]:
    codes = None if classes is None else {each: place for place, each in enumerate(classes)}
    y = np.full(len(nodes), -1, np.int64)
    for place, node in enumerate(nodes):
        value = graph.nodes[node].get(name)
        if value is None or (isinstance(value, (float, np.floating)) and np.isnan(value)):
            continue
        code = codes.get(value) if codes is not None else value
        if isinstance(code, bool) or not isinstance(code, (int, np.integer)) or code < 0:
            expected = "a number from 0" if codes is None else f"one of {len(codes)} classes"
            advice = "; give classes=[...] for names" if codes is None and isinstance(value, str) else ""
            raise GraphError(
                f"node {_shown(node)}: {name}={_shown(value)}; expected {expected}, or no attribute for no "
                f"label{advice}"
            )
        y[place] = int(code)
    return y


def _split_nodes(graph: Any, nodes: list[Any], name: str) -> dict[str, npt.NDArray[np.int64]]:
    found = [graph.nodes[node].get(name) for node in nodes]
    codes = np.full(len(nodes), -1)
    for place, value in enumerate(found):
        if value is None or value == "":
            continue
        if value not in _SPLITS:
            raise GraphError(
                f"node {_shown(nodes[place])}: {name}={_shown(value)}; expected train, val or test, or no "
                "attribute"
            )
        codes[place] = _SPLITS.index(value)
    if not (codes == 0).any():
        # A graph that names no split at all has none; one that leaves training out is mistaken.
        kind = MissingSplitError if (codes < 0).all() else GraphError
        raise kind(
            f"no node has {name}='train'; name the attribute, give split='0.6/0.2/0.2' to draw a split, or "
            "labels=False for a graph to predict on"
        )
    return {f"{part}_idx": np.flatnonzero(codes == code) for code, part in enumerate(_SPLITS)}


def _shown(value: Any) -> str:
    return repr(value)[:40]
