"""Rows of edges to sample from, what sampled lists hold, and the nodes and roots of every level of trees."""

from __future__ import annotations

import numpy as np

from hushgraph._arrays import Int32Array, Int64Array
from hushgraph.graph.checks import check_edges, cut_edges
from hushgraph.graph.reads import build_reads
from hushgraph.sampling.lists import BoundedLists, Rows
from hushgraph.sampling.trees import Trees


def rows_of(source: np.ndarray, target: np.ndarray, num_nodes: int) -> Rows:
    """What every node reads, as a graph of these edges has it."""
    edges = check_edges(np.stack([source, target]), num_nodes)
    reads = build_reads(cut_edges(edges, num_nodes), num_nodes)
    return reads.indptr, reads.indices


def are_equal(one: BoundedLists, other: BoundedLists) -> bool:
    """Whether two samples are the same, weights of reads included."""
    pairs = ((getattr(one, name), getattr(other, name)) for name in ("indptr", "indices", "shares"))
    return all(a is b or (a is not None and b is not None and np.array_equal(a, b)) for a, b in pairs)


def read_lists(lists: BoundedLists) -> list[list[int]]:
    """The nodes that every node reads."""
    return [reads_of(lists, node).tolist() for node in range(len(lists.indptr) - 1)]


def reads_of(lists: BoundedLists, reader: int) -> Int32Array:
    """The nodes that `reader` reads, sorted."""
    return lists.indices[lists.indptr[reader] : lists.indptr[reader + 1]]


def count_readers(lists: BoundedLists) -> Int64Array:
    """int64 [num_nodes]: how many training nodes read each node."""
    return np.bincount(lists.indices, minlength=len(lists.indptr) - 1)


def nodes_at(trees: Trees, level: int) -> Int64Array:
    """int64 [rows of the level]: node identifiers, from the copies in the levels below."""
    nodes = trees.nodes
    for block in reversed(trees.blocks[level:]):
        nodes = nodes[block.indptr[:-1]]
    return nodes


def owners_of(trees: Trees) -> list[Int64Array]:
    """Per level, int64 [rows]: the position in `roots` of the root of a row."""
    ends = np.arange(len(trees.roots) + 1)
    levels = [ends]
    for block in trees.blocks:
        levels.append(block.indptr[levels[-1]])
    return [np.repeat(ends[:-1], np.diff(each)) for each in levels]
