"""Splits along the communities of a graph, so that few edges connect different parts."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from scipy import sparse

from hushgraph._arrays import Int64Array
from hushgraph.errors import GraphError
from hushgraph.graph.graph import Graph

# At this resolution the communities of ogbn-arxiv are large enough that only 4% of the edges connect
# different parts, and small enough to fill the parts to size.
_RESOLUTION = 0.5
_SWEEPS = 20
# Shares of the training, validation and test nodes, which are met as closely as communities allow.
_FRACTIONS = (0.67, 0.18, 0.15)


def clustered_split(graph: Graph) -> tuple[Int64Array, Int64Array, Int64Array]:
    """Split a graph into training, validation and test nodes without dividing a community.

    Communities are found by agglomeration: every node starts as its own group, and groups merge as long as
    that increases modularity. Communities are assigned largest first, each to the part that lacks most nodes.

    Args:
        graph: an undirected graph.

    The split is computed from all edges: on a private graph it would reveal information about them. Use it
    on public graphs only.
    """
    if graph.is_directed:
        raise GraphError("a clustered split needs an undirected graph; symmetrize it first")
    community = find_communities(graph)
    sizes = np.bincount(community)
    room = np.array(_FRACTIONS) * graph.num_nodes
    part = np.empty(len(sizes), np.int64)
    for number in np.argsort(-sizes, kind="stable"):
        part[number] = room.argmax()
        room[part[number]] -= sizes[number]
    train, val, test = (np.flatnonzero(part[community] == number) for number in range(3))
    return train, val, test


def find_communities(graph: Graph) -> Int64Array:
    """Return the community of every node, int64 [N], numbered from 0. The result is deterministic."""
    shape = (graph.num_nodes, graph.num_nodes)
    links: Any = sparse.csr_array((np.ones(graph.num_edges), graph.indices, graph.indptr), shape=shape)
    total = max(float(graph.num_edges), 1.0)
    community = np.arange(graph.num_nodes)
    while True:
        count = links.shape[0]
        group = np.arange(count)
        strength = np.asarray(links.sum(axis=1)).ravel() * np.sqrt(_RESOLUTION / total)
        _merge(links.indptr.astype(np.int64), links.indices.astype(np.int64), links.data, strength, group)
        kept, group = np.unique(group, return_inverse=True)
        if len(kept) == count:
            return community
        community = group[community]
        member = sparse.csr_array((np.ones(count), (np.arange(count), group)), shape=(count, len(kept)))
        links = sparse.csr_array(member.T @ links @ member)


@numba.njit(cache=True, nogil=True)
def _merge(indptr, indices, weight, strength, group):  # type: ignore[no-untyped-def]
    """Move each node to the adjacent group where modularity increases most, until few nodes move."""
    nodes = len(group)
    volume = strength.copy()
    link = np.zeros(nodes)
    seen = np.empty(nodes, np.int64)
    for _ in range(_SWEEPS):
        moved = 0
        for node in range(nodes):
            count = 0
            for edge in range(indptr[node], indptr[node + 1]):
                if indices[edge] != node:
                    other = group[indices[edge]]
                    if link[other] == 0:
                        seen[count] = other
                        count += 1
                    link[other] += weight[edge]
            old = group[node]
            volume[old] -= strength[node]
            best = old
            most = link[old] - strength[node] * volume[old]
            for i in range(count):
                gain = link[seen[i]] - strength[node] * volume[seen[i]]
                if gain > most + 1e-9:
                    most = gain
                    best = seen[i]
                link[seen[i]] = 0
            link[old] = 0
            volume[best] += strength[node]
            if best != old:
                group[node] = best
                moved += 1
        if moved * 1000 <= nodes:
            break
