"""Trees of a batch: the nodes that the loss of each root depends on, level by level."""

from __future__ import annotations

from dataclasses import dataclass

import numba
import numpy as np
import numpy.typing as npt

from hushgraph._arrays import Int64Array
from hushgraph.graph.shares import Shares
from hushgraph.privacy.plans import LARGEST_TREE
from hushgraph.sampling.lists import BoundedLists


@dataclass(frozen=True, kw_only=True, eq=False)
class Block:
    """The reads between two neighbouring levels of the trees.

    Attributes:
        indptr: int64 [num_rows + 1]. Row i of the upper level has rows indptr[i]:indptr[i + 1] of the lower
            level: first a copy of itself, then the nodes it reads.
        shares: float32 [relations, num_lower_rows], those of the lists, 0 of a copy; None where the lists
            have none.
    """

    indptr: Int64Array
    shares: Shares | None = None

    @property
    def num_lower_rows(self) -> int:
        """Rows of the lower level."""
        return int(self.indptr[-1])


@dataclass(frozen=True, kw_only=True, eq=False)
class Trees:
    """The depth-r trees of a set of roots, as r blocks.

    Level 0 holds the roots in the given order. Level l + 1 has one contiguous segment for every row of level
    l: a copy of the row itself, then the nodes it reads in list order. The copy reads its list again at the
    next level, as r rounds of message passing require. Every row below the roots has one parent, and the
    rows of one root are contiguous at each level.

    Attributes:
        roots: int64 [num_roots], node identifiers.
        blocks: r blocks, from level 0 -> 1 to level r - 1 -> r.
        nodes: int64 [rows of level r], node identifiers of the deepest level.
    """

    roots: Int64Array
    blocks: tuple[Block, ...]
    nodes: Int64Array

    @property
    def depth(self) -> int:
        return len(self.blocks)


def tree_sizes(lists: BoundedLists, depth: int, roots: Int64Array) -> Int64Array:
    """Count the rows in the deepest level of each root's tree, int64 [num_roots].

    Counting stops above LARGEST_TREE. Time and memory depend on these trees, not on the size of the graph.
    """
    sizes = np.ones(len(roots), dtype=np.int64)
    if depth > 0:
        _count_rows(lists.indptr, lists.indices, roots, depth, LARGEST_TREE, sizes)
    return sizes


def grow(lists: BoundedLists, roots: npt.ArrayLike, depth: int) -> Trees:
    """Build the trees of `roots`, `depth` reads deep.

    Args:
        lists: what every training node reads.
        roots: integers [num_roots], node identifiers in any order.
        depth: r, at least 0; at 0 a tree is its root alone.
    """
    nodes = rows = np.asarray(roots, np.int64)
    blocks = []
    for _ in range(depth):
        indptr = np.empty(len(nodes) + 1, dtype=np.int64)
        _fill_indptr(lists.indptr, nodes, indptr)
        lower = np.empty(indptr[-1], dtype=np.int64)
        _fill_rows(lists.indptr, lists.indices, nodes, lower)
        blocks.append(Block(indptr=indptr, shares=_find_shares(lists, nodes, indptr)))
        nodes = lower
    return Trees(roots=rows, blocks=tuple(blocks), nodes=nodes)


def _find_shares(lists: BoundedLists, rows: Int64Array, indptr: Int64Array) -> Shares | None:
    """The shares of the rows below `rows`."""
    if lists.shares is None:
        return None
    shares = np.zeros((len(lists.shares), indptr[-1]), np.float32)
    is_read = np.ones(indptr[-1], np.bool_)
    is_read[indptr[:-1]] = False
    # From the place of a read among all to its place in the lists; the copy of a row is before its reads.
    moves = np.repeat(lists.indptr[rows] - indptr[:-1] - 1, np.diff(indptr))
    shares[:, is_read] = lists.shares[:, (np.arange(indptr[-1]) + moves)[is_read]]
    return shares


@numba.njit(cache=True, nogil=True)
def _fill_indptr(list_indptr, rows, indptr):  # type: ignore[no-untyped-def]
    total = 0
    indptr[0] = 0
    for i in range(len(rows)):
        total += 1 + list_indptr[rows[i] + 1] - list_indptr[rows[i]]
        indptr[i + 1] = total


@numba.njit(cache=True, nogil=True)
def _fill_rows(list_indptr, list_indices, rows, lower):  # type: ignore[no-untyped-def]
    at = 0
    for i in range(len(rows)):
        node = rows[i]
        lower[at] = node
        at += 1
        for j in range(list_indptr[node], list_indptr[node + 1]):
            lower[at] = list_indices[j]
            at += 1


@numba.njit(cache=True, nogil=True)
def _count_rows(list_indptr, list_indices, roots, depth, most, sizes):  # type: ignore[no-untyped-def]
    """Count the rows of every tree, depth first, down to the level above the deepest."""
    nodes = np.empty(64, dtype=np.int64)
    heights = np.empty(64, dtype=np.int64)
    for i in range(len(roots)):
        total = 0
        top = 1
        nodes[0] = roots[i]
        heights[0] = depth
        while top > 0 and total <= most:
            top -= 1
            node = nodes[top]
            height = heights[top]
            begin, end = list_indptr[node], list_indptr[node + 1]
            if height == 1:
                total += 1 + end - begin
                continue
            if top + 1 + end - begin > len(nodes):
                size = 2 * (top + 1 + end - begin)
                more_nodes = np.empty(size, dtype=np.int64)
                more_heights = np.empty(size, dtype=np.int64)
                more_nodes[:top] = nodes[:top]
                more_heights[:top] = heights[:top]
                nodes, heights = more_nodes, more_heights
            nodes[top] = node
            heights[top] = height - 1
            top += 1
            for j in range(begin, end):
                nodes[top] = list_indices[j]
                heights[top] = height - 1
                top += 1
        sizes[i] = total
