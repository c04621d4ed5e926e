"""What a row casts where, in integers: the places it lists over all relations, with a coefficient for each.

The places of all relations stand one behind another on one board, a block for each relation. Row v has for
every place u that it lists a coefficient a_vu = w_vu / (|w_v| sqrt(rho)), where |w_v| is over the records of
that relation and rho is how many relations v has records of. It casts a_vu b_v, and it reads with the same
coefficients.

A graph without relations has no lists of this kind: there every coefficient is 1 / sqrt(|L_v|), which
ballots have in them already.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numba
import numpy as np
import numpy.typing as npt

from hushgraph import _arrays
from hushgraph.billboard.names import NameIndex, as_integers_or_text
from hushgraph.billboard.owned import Int64Array, OwnedRecords, cut_ends
from hushgraph.errors import GraphError
from hushgraph.graph.checks import check_owner, id_type
from hushgraph.graph.graph import EdgeOwner, Graph
from hushgraph.graph.records import PEOPLE, PlaceKind, RelationInfo

# One unit is 2^-24 of a ballot's norm. With fewer than 2^31 rows, sums stay below 2^56: int64 holds them.
GRID_BITS = 24
GRID = 1 << GRID_BITS

Int32Array = npt.NDArray[np.int32]
# Digits of a hash that become a number, as columns of hashed features have them.
_HEX_DIGITS = 15


@dataclass(frozen=True, kw_only=True, eq=False)
class Block:
    """The places of one relation on a board.

    Attributes:
        name: of the relation.
        size: how many places it has.
        kind: "nodes", "places", or "hashed" where a place is a bucket of names.
        is_weighted: whether rows list places with weights.
        names: what the places are called; None where they are numbered from 0, or hashed.
    """

    name: str
    size: int
    kind: PlaceKind = "nodes"
    is_weighted: bool = False
    names: npt.NDArray[Any] | None = None

    @property
    def info(self) -> RelationInfo:
        """What is public about the relation."""
        return RelationInfo(
            name=self.name,
            num_places=None if self.kind == "nodes" else self.size,
            is_weighted=self.is_weighted,
            is_hashed=self.kind == "hashed",
        )

    def find(self, identifiers: npt.ArrayLike) -> Int64Array:
        """The place of every identifier within the block, -1 where it has none of that name."""
        if self.kind == "hashed":
            return hash_names(np.asarray(identifiers), self.size)
        return self._index.find(identifiers)

    @cached_property
    def _index(self) -> NameIndex:
        return NameIndex(self.names, self.size)


@dataclass(frozen=True, kw_only=True, eq=False)
class Lists:
    """What rows list, with coefficients. Private.

    Attributes:
        blocks: of the board, one for each relation; empty for a graph without relations.
        indptr: int64 [R + 1]; row v lists `places[indptr[v]:indptr[v + 1]]`. It begins at 0 unless `cut_rows`
            has left rows out.
        places: integers, ascending within a row and without repeats; numbers on the whole board.
        coefficients: int32 of 0 or more, in units of 1 / GRID; None where each is GRID.

    Guarantees:
        The squares of the coefficients of a row, if it has some, sum to at most GRID^2, in integers. They
        depend on the records of that row alone.
    """

    blocks: tuple[Block, ...]
    indptr: Int64Array
    places: npt.NDArray[Any]
    coefficients: npt.NDArray[Any] | None

    @property
    def sizes(self) -> Int64Array:
        """int64 [R]: how many places every row lists, over all relations."""
        return np.diff(self.indptr)

    @property
    def arrays(self) -> tuple[Int64Array, npt.NDArray[Any], npt.NDArray[Any] | None]:
        """`indptr`, `places` and `coefficients`, as kernels take them."""
        return self.indptr, self.places, self.coefficients

    @property
    def num_places(self) -> int:
        """How many places the blocks have."""
        return sum(block.size for block in self.blocks)

    @property
    def starts(self) -> Int64Array:
        """int64 [relations + 1]: where the blocks begin, and the end."""
        return find_starts(self.blocks)


def list_blocks(graph: Graph) -> tuple[Block, ...]:
    """The blocks of the board of a graph; empty where it has no relations."""
    blocks = []
    for relation in graph.relations:
        info = relation.info
        blocks.append(
            Block(
                name=info.name,
                size=graph.num_nodes if info.num_places is None else info.num_places,
                kind=info.kind,
                is_weighted=info.is_weighted,
                names=graph.node_names if info.kind == "nodes" else relation.place_names,
            )
        )
    return tuple(blocks)


def find_starts(blocks: tuple[Block, ...]) -> Int64Array:
    """int64 [blocks + 1]: where the blocks begin on a board, and the end."""
    return np.concatenate([[0], np.cumsum([block.size for block in blocks])]).astype(np.int64)


class RowLists:
    """What the rows of a graph list, some rows at a time, first to last.

    Args:
        graph: whose lists are given.
        edge_owner: whose row holds an edge record.
        lists: from `build_lists`, where they are there already.

    Attributes:
        blocks: of a board.
        num_places: how many places a board has.
        lists: of all rows; None where they are made when they are asked for: all of them would be as large as
            the edges.
        ends: int64 [N + 1], where the entries of rows begin, and the end.
    """

    def __init__(self, graph: Graph, edge_owner: EdgeOwner, lists: Lists | None = None) -> None:
        self.lists = lists or build_lists(graph, edge_owner) or plain_lists(graph, edge_owner)
        self.blocks = () if self.lists is None else self.lists.blocks
        self.num_places = sum(block.size for block in self.blocks) if self.blocks else graph.num_nodes
        if self.lists is None:
            self._records = OwnedRecords(graph.indptr, graph.indices, None, is_by_owner=False)
            self.ends = _find_ends(self._records.count())
        else:
            self.ends = self.lists.indptr

    def take(self, begin: int, end: int) -> Lists:
        """The lists of the next rows: from `begin`, where the last call ended, to the one before `end`."""
        indptr = self.ends[begin : end + 1]
        if self.lists is not None:
            return replace(self.lists, indptr=indptr)
        indptr = indptr - indptr[0]
        places = np.empty(indptr[-1], self._records.indices.dtype)
        self._records.put((begin, end), indptr[:-1].copy(), places)
        return Lists(blocks=(), indptr=indptr, places=places, coefficients=None)

    def pick(self, rows: Int64Array) -> Lists:
        """The lists of these rows alone, without repeats, instead of calls of `take`."""
        if self.lists is not None:
            return restrict(self.lists, rows)
        ordered, parts = np.sort(rows), list[Lists]()
        for begin, end in itertools.pairwise(cut_ends(self.ends, most_rows=len(self.ends))):
            mine = ordered[slice(*np.searchsorted(ordered, [begin, end]))]
            parts.append(restrict(self.take(begin, end), mine - begin))
        together = Lists(
            blocks=(),
            indptr=_find_ends(np.concatenate([part.sizes for part in parts])),
            places=np.concatenate([part.places for part in parts]),
            coefficients=None,
        )
        return restrict(together, np.searchsorted(ordered, rows))


def plain_lists(graph: Graph, edge_owner: EdgeOwner) -> Lists | None:
    """What rows of a graph without relations list; None where the lists of senders would fill memory."""
    check_owner(edge_owner)
    if edge_owner == "sender" and _arrays.find_disk() is None:
        return None
    indptr, places = graph.lists_of(edge_owner)
    return Lists(blocks=(), indptr=indptr, places=places, coefficients=None)


def build_lists(graph: Graph, edge_owner: EdgeOwner) -> Lists | None:
    """What every row of a graph lists; None where it has no relations.

    Guarantees:
        The list of a row depends on the records that the row owns, and on nothing else.
    """
    if not graph.relations:
        return None
    blocks = list_blocks(graph)
    starts = find_starts(blocks)
    records = [
        OwnedRecords(each.indptr, each.indices, each.weights, edge_owner == "reader" or not each.names_people)
        for each in graph.relations
    ]
    sizes = np.zeros(graph.num_nodes, np.int64)
    for each in records:
        sizes += each.count()
    ends = _find_ends(sizes)
    places, coefficients = np.empty(ends[-1], id_type(int(starts[-1]))), np.empty(ends[-1], np.int32)
    is_weighted = any(each.weights is not None for each in records)
    for first, end in itertools.pairwise(
        cut_ends(ends, most_rows=max(1, graph.num_nodes), relations=len(records))
    ):
        indptr = ends[first : end + 1] - ends[first]
        free, part = indptr[:-1].copy(), slice(ends[first], ends[end])
        weights = np.empty(indptr[-1]) if is_weighted else None
        # Blocks come in order within a row, and places within each: they are ascending.
        for each, start in zip(records, starts.tolist(), strict=False):
            each.put((first, end), free, places[part], weights, start=start)
        divide_weights(indptr, places[part], weights, starts, coefficients[part])
    return Lists(blocks=blocks, indptr=ends, places=places, coefficients=coefficients)


def _find_ends(sizes: Int64Array) -> Int64Array:
    """int64 [N + 1]: where lists of these sizes begin, and the end."""
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64, copy=False)


def lists_of_rows(
    blocks: tuple[Block, ...],
    num_places: int,
    indptr: Int64Array,
    places: Int64Array,
    weights: npt.ArrayLike | None = None,
) -> Lists:
    """What rows list that are given one by one, such as nodes that arrived after the board.

    Args:
        blocks, num_places: of the board.
        indptr: int64 [R + 1]; row i lists `places[indptr[i]:indptr[i + 1]]`.
        places: int64, numbers on the whole board; -1 for a place that it does not have, which is skipped.
            Repeats count once, or their weights are summed where the relation has weights.
        weights: of every entry, after the declared function; 1 unless given. What is not finite and above 0
            counts as 0.
    """
    starts = find_starts(blocks)
    rows = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    is_known = (places >= 0) & (places < num_places)
    sums = None
    if not any(block.is_weighted for block in blocks):
        keys = np.unique(rows[is_known] * num_places + places[is_known])
    else:
        relation = np.searchsorted(starts[1:-1], places, side="right")
        is_weighted = np.array([block.is_weighted for block in blocks])
        given = 1.0 if weights is None else np.asarray(weights, np.float64)
        values = np.where(is_weighted[relation], given, 1.0)
        is_known &= np.isfinite(values) & (values > 0)
        keys = rows * num_places + places
        order = np.flatnonzero(is_known)[np.argsort(keys[is_known], kind="stable")]
        first = np.flatnonzero(np.diff(keys[order], prepend=-1))
        with np.errstate(over="ignore"):
            sums = np.add.reduceat(values[order], first) if len(first) else np.empty(0)
        first = order[first]
        sums = np.where(is_weighted[relation[first]], sums, 1.0)
        keys, sums = keys[first][np.isfinite(sums)], sums[np.isfinite(sums)]
    ends = np.searchsorted(keys, np.arange(len(indptr)) * num_places)
    listed = keys % max(1, num_places)
    if not blocks:
        return Lists(blocks=(), indptr=ends, places=listed, coefficients=None)
    coefficients = np.empty(len(listed), np.int32)
    divide_weights(ends, listed, sums, starts, coefficients)
    return Lists(blocks=blocks, indptr=ends, places=listed, coefficients=coefficients)


def restrict(lists: Lists, rows: npt.NDArray[Any]) -> Lists:
    """The lists of these rows alone."""
    indptr = _find_ends(lists.sizes[rows])
    taken = np.repeat(lists.indptr[rows] - indptr[:-1], np.diff(indptr)) + np.arange(indptr[-1])
    shares = None if lists.coefficients is None else lists.coefficients[taken]
    return replace(lists, indptr=indptr, places=lists.places[taken], coefficients=shares)


def split_relations(lists: Lists) -> Iterator[Lists]:
    """The lists of one relation after another; all but the last one given are written over."""
    if len(lists.blocks) < 2:
        yield lists
        return
    # Close together: the entries of one relation are a small part of every row.
    cursors, size = lists.indptr[:-1].copy(), lists.indptr[-1] - lists.indptr[0]
    places, coefficients = np.empty(size, lists.places.dtype), np.empty(size, np.int32)
    for behind in lists.starts[1:]:
        indptr = np.zeros(len(cursors) + 1, np.int64)
        _cut_relation(*lists.arrays, cursors, behind, indptr, places, coefficients)
        yield replace(lists, indptr=indptr, places=places, coefficients=coefficients)


@numba.njit(cache=True, nogil=True)
def _cut_relation(indptr, places, coefficients, cursors, behind, ends, kept, shares):  # type: ignore[no-untyped-def]
    """Copy what rows list from where `cursors` are, which move, to the place before `behind`."""
    at = 0
    for row in range(len(cursors)):
        i = cursors[row]
        while i < indptr[row + 1] and places[i] < behind:
            kept[at], shares[at] = places[i], coefficients[i]
            at += 1
            i += 1
        cursors[row], ends[row + 1] = i, at


@numba.njit(cache=True, nogil=True)
def divide_weights(indptr, places, weights, starts, coefficients):  # type: ignore[no-untyped-def]
    """Divide the weights of every row by their norm within a relation and by the root of its relations.

    The sum of squares is checked in integers; a row that fails is scaled down. `weights` are written over;
    None where every weight is 1.
    """
    for v in range(len(indptr) - 1):
        begin, end = indptr[v], indptr[v + 1]
        # Block b ends where `starts[b + 1]` is; `behind` is the first start behind a place.
        relations, behind = 0, 0
        for i in range(begin, end):
            if places[i] >= starts[behind]:
                relations += 1
                while places[i] >= starts[behind]:
                    behind += 1
        at, behind = begin, 0
        while at < end:
            while places[at] >= starts[behind]:
                behind += 1
            stop, largest = at, 0.0
            while stop < end and places[stop] < starts[behind]:
                if weights is not None:
                    largest = max(largest, weights[stop])
                stop += 1
            if weights is None:
                coefficients[at:stop] = np.int64(1.0 / np.sqrt(1.0 * (stop - at) * relations) * GRID)
            else:
                square = 0.0
                for i in range(at, stop):
                    weights[i] /= largest
                    square += weights[i] ** 2
                root = np.sqrt(square * relations)
                for i in range(at, stop):
                    coefficients[i] = np.int64(weights[i] / root * GRID)
            at = stop
        while True:
            total = np.int64(0)
            for i in range(begin, end):
                total += np.int64(coefficients[i]) * coefficients[i]
            if total <= GRID * GRID:
                break
            for i in range(begin, end):
                coefficients[i] -= (coefficients[i] >> 20) + (coefficients[i] > 0)


def hash_names(names: npt.NDArray[Any], buckets: int) -> Int64Array:
    """The bucket of every name: the first 15 hexadecimal digits of the MD5 of its text, modulo `buckets`."""
    different, inverse = np.unique(as_integers_or_text(names).astype(np.str_), return_inverse=True)
    numbers = [
        int(
            hashlib.md5(name.encode("utf-8", "surrogatepass"), usedforsecurity=False).hexdigest()[
                :_HEX_DIGITS
            ],
            16,
        )
        % buckets
        for name in different.tolist()
    ]
    return np.array(numbers, np.int64)[inverse.reshape(-1)] if len(numbers) else np.empty(0, np.int64)


def check_blocks(blocks: tuple[Block, ...], expected: tuple[Block, ...]) -> None:
    """Raise GraphError unless a graph has the relations that a board has."""
    given, wanted = ([block.info for block in each] for each in (blocks, expected))
    if given != wanted:
        names = ", ".join(repr(info.name) for info in wanted) or repr(PEOPLE)
        raise GraphError(
            f"the board has the relations {names}; expected data with the same ones, read as in training"
        )
