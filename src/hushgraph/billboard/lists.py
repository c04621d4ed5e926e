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
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numba
import numpy as np
import numpy.typing as npt

from hushgraph.billboard.names import NameIndex, as_integers_or_text
from hushgraph.errors import GraphError
from hushgraph.graph.graph import EdgeOwner, Graph
from hushgraph.graph.records import PEOPLE, PlaceKind, RelationInfo

# One unit is 2^-24 of a ballot's norm. With fewer than 2^31 rows, sums stay below 2^56: int64 holds them.
GRID_BITS = 24
GRID = 1 << GRID_BITS

Int64Array = npt.NDArray[np.int64]
Int32Array = npt.NDArray[np.int32]
# Digits of a hash that become a number, as columns of hashed features have them.
_HEX_DIGITS = 15
# Records are sorted by about this many groups of owners before they are put into rows.
_OWNER_GROUPS = 512


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
        blocks: of the board, one for each relation.
        indptr: int64 [R + 1]; row v lists `places[indptr[v]:indptr[v + 1]]`. It begins at 0 unless `cut_rows`
            has left rows out.
        places: int64, ascending within a row and without repeats; numbers on the whole board.
        coefficients: int64 of 0 or more, in units of 1 / GRID.

    Guarantees:
        The squares of the coefficients of a row sum to at most GRID^2, in integers. They depend on the
        records of that row alone.
    """

    blocks: tuple[Block, ...]
    indptr: Int64Array
    places: Int64Array
    coefficients: Int64Array

    @property
    def sizes(self) -> Int64Array:
        """int64 [R]: how many places every row lists, over all relations."""
        return np.diff(self.indptr)

    @property
    def num_places(self) -> int:
        """How many places the board has."""
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


def build_lists(graph: Graph, edge_owner: EdgeOwner) -> Lists | None:
    """What every row of a graph lists; None where it has no relations.

    Guarantees:
        The list of a row depends on the records that the row owns, and on nothing else.
    """
    if not graph.relations:
        return None
    blocks = list_blocks(graph)
    starts = find_starts(blocks)
    is_own = [edge_owner == "reader" or not relation.names_people for relation in graph.relations]
    sizes = np.zeros(graph.num_nodes, np.int64)
    for relation, is_by_owner in zip(graph.relations, is_own, strict=True):
        indptr, indices = relation.indptr, relation.indices
        sizes += np.diff(indptr) if is_by_owner else np.bincount(indices, minlength=len(sizes))
    ends = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    places, weights = np.empty(ends[-1], np.int64), np.empty(ends[-1])
    # Blocks come in order within a row, and places within each: they are ascending.
    free = ends[:-1].copy()
    for relation, is_by_owner, start in zip(graph.relations, is_own, starts, strict=False):
        given = np.empty(0) if relation.weights is None else relation.weights
        put = put_records if is_by_owner else put_reversed
        put(relation.indptr, relation.indices, given, start, free, places, weights)
    return _divide(blocks, ends, places, weights)


def lists_of_rows(
    blocks: tuple[Block, ...],
    indptr: npt.ArrayLike,
    places: npt.ArrayLike,
    weights: npt.ArrayLike | None = None,
) -> Lists:
    """What rows list that are given one by one, such as nodes that arrived after the board.

    Args:
        blocks: of the board.
        indptr: [R + 1]; row i lists `places[indptr[i]:indptr[i + 1]]`.
        places: numbers on the whole board; -1 for a place that it does not have, which is skipped. Repeats
            count once, or their weights are summed where the relation has weights.
        weights: of every entry, after the declared function; 1 unless given. What is not finite and above 0
            counts as 0.
    """
    starts, listed = np.asarray(indptr, np.int64), np.asarray(places, np.int64)
    given = np.ones(len(listed)) if weights is None else np.asarray(weights, np.float64)
    rows = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    ends = find_starts(blocks)
    relation = np.clip(np.searchsorted(ends, listed, side="right") - 1, 0, len(blocks) - 1)
    is_weighted = np.array([block.is_weighted for block in blocks], np.bool_)[relation]
    values = np.where(is_weighted, given, 1.0)
    known = (listed >= 0) & (listed < ends[-1]) & np.isfinite(values) & (values > 0)
    rows, listed, values, is_weighted = (each[known] for each in (rows, listed, values, is_weighted))
    order = np.lexsort((listed, rows))
    rows, listed, values, is_weighted = (each[order] for each in (rows, listed, values, is_weighted))
    is_first = np.ones(len(rows), np.bool_)
    is_first[1:] = (rows[1:] != rows[:-1]) | (listed[1:] != listed[:-1])
    first = np.flatnonzero(is_first)
    with np.errstate(over="ignore"):
        sums = np.add.reduceat(values, first) if len(first) else values
    sums = np.where(is_weighted[first], sums, 1.0)
    kept = np.isfinite(sums)
    counts = np.bincount(rows[first][kept], minlength=len(starts) - 1)
    ends_of_rows = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    return _divide(blocks, ends_of_rows, listed[first][kept], sums[kept])


def restrict(lists: Lists, rows: npt.NDArray[Any]) -> Lists:
    """The lists of these rows alone."""
    sizes = lists.sizes[rows]
    indptr = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    taken = np.repeat(lists.indptr[rows] - indptr[:-1], sizes) + np.arange(indptr[-1])
    return replace(lists, indptr=indptr, places=lists.places[taken], coefficients=lists.coefficients[taken])


def cut_rows(lists: Lists, begin: int, end: int) -> Lists:
    """The lists of the rows from `begin` to the one before `end`, without a copy of their entries."""
    return replace(lists, indptr=lists.indptr[begin : end + 1])


def _divide(
    blocks: tuple[Block, ...], indptr: Int64Array, places: Int64Array, weights: npt.NDArray[np.float64]
) -> Lists:
    """Coefficients from weights, which are finite and above 0 and are written over."""
    # In the same memory: a weight is not needed once its coefficient is known.
    coefficients = weights.view(np.int64)
    divide_weights(indptr, places, weights, find_starts(blocks), coefficients)
    return Lists(blocks=blocks, indptr=indptr, places=places, coefficients=coefficients)


@numba.njit(cache=True, nogil=True)
def put_records(indptr, indices, given, start, free, places, weights):  # type: ignore[no-untyped-def]
    """Put the records of a relation behind those that their owners have already.

    Args:
        indptr, indices, given: of the relation; `given` is empty where every record counts 1.
        start: of its block on the board.
        free: the next free entry of every row, which moves.
        places, weights: what is written.
    """
    for row in range(len(indptr) - 1):
        for i in range(indptr[row], indptr[row + 1]):
            at = free[row]
            free[row] = at + 1
            places[at] = start + indices[i]
            weights[at] = given[i] if len(given) else 1.0


@numba.njit(cache=True, nogil=True)
def put_reversed(indptr, indices, given, start, free, places, weights):  # type: ignore[no-untyped-def]
    """As `put_records`, of a relation whose `indices` own the records.

    They are sorted by groups of owners first: a group's lists are close together, so that the caches hold
    what is written at random.
    """
    bits = 0
    while len(free) >> bits > _OWNER_GROUPS:
        bits += 1
    groups = np.zeros((len(free) >> bits) + 2, np.int64)
    for i in range(len(indices)):
        groups[(indices[i] >> bits) + 1] += 1
    for group in range(1, len(groups)):
        groups[group] += groups[group - 1]
    owners, named = np.empty(len(indices), np.int32), np.empty(len(indices), np.int32)
    moved = np.empty(len(given))
    for row in range(len(indptr) - 1):
        for i in range(indptr[row], indptr[row + 1]):
            group = indices[i] >> bits
            at = groups[group]
            groups[group] = at + 1
            owners[at], named[at] = indices[i], row
            if len(given):
                moved[at] = given[i]
    for i in range(len(owners)):
        at = free[owners[i]]
        free[owners[i]] = at + 1
        places[at] = start + named[i]
        weights[at] = moved[i] if len(given) else 1.0


@numba.njit(cache=True, nogil=True)
def divide_weights(indptr, places, weights, starts, coefficients):  # type: ignore[no-untyped-def]
    """Divide the weights of every row by their norm within a relation and by the root of its relations.

    The sum of squares is checked in integers; a row that fails is scaled down. `weights` are written over,
    and `coefficients` may be in the same memory.
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
                largest = max(largest, weights[stop])
                stop += 1
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
                total += coefficients[i] * coefficients[i]
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
