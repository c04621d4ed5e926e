"""What sampled lists hold, and the nodes of every level of trees."""

from __future__ import annotations

import numpy as np

from hushgraph._arrays import Int32Array, Int64Array
from hushgraph.sampling.lists import BoundedLists
from hushgraph.sampling.trees import Trees


def reads_of(lists: BoundedLists, reader: int) -> Int32Array:
    """The nodes that `reader` reads, sorted."""
    return lists.indices[lists.indptr[reader] : lists.indptr[reader + 1]]


def count_readers(lists: BoundedLists) -> Int64Array:
    """int64 [num_nodes]: how many training nodes read each node."""
    return np.bincount(lists.indices, minlength=lists.num_nodes)


def nodes_at(trees: Trees, level: int) -> Int64Array:
    """int64 [rows of the level]: node identifiers, from the copies in the levels below."""
    nodes = trees.nodes
    for block in reversed(trees.blocks[level:]):
        nodes = nodes[block.indptr[:-1]]
    return nodes
