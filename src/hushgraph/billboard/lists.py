"""What a row casts where, in integers: the places it lists over all relations, with a coefficient for each.

The places of all relations stand one behind another on one board, a block for each relation. Row v has for
every place u that it lists a coefficient a_vu = w_vu / (|w_v| sqrt(rho)), where |w_v| is over the records of
that relation and rho is how many relations v has records of. It casts a_vu b_v, and it reads with the same
coefficients.

Records are used as they are stored, by the rows that own them or by the places that these list: what is kept
beside them is one coefficient for each row and relation or, of weights, one for each record.

In a graph without relations every coefficient is 1 / sqrt(|L_v|), which ballots have in them already.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numba
import numpy as np
import numpy.typing as npt

from hushgraph import _arrays
from hushgraph._arrays import FloatArray, Int32Array, Int64Array
from hushgraph.billboard.names import NameIndex, as_integers_or_text
from hushgraph.billboard.owned import GRID as GRID
from hushgraph.billboard.owned import GRID_BITS as GRID_BITS
from hushgraph.billboard.owned import Records
from hushgraph.errors import GraphError
from hushgraph.graph.checks import check_owner, id_type
from hushgraph.graph.graph import EdgeOwner, Graph
from hushgraph.graph.records import PEOPLE, PlaceKind, RelationInfo, sum_repeats

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
    """What some rows list over all relations, with coefficients. Private.

    Attributes:
        indptr: int64 [R + 1]; row v lists `places[indptr[v]:indptr[v + 1]]`.
        places: integers, ascending within a row and without repeats; numbers on the whole board.
        coefficients: int32 of 0 or more, in units of 1 / GRID.
    """

    indptr: Int64Array
    places: npt.NDArray[Any]
    coefficients: Int32Array

    @property
    def arrays(self) -> tuple[Int64Array, npt.NDArray[Any], Int32Array]:
        """`indptr`, `places` and `coefficients`, as kernels take them."""
        return self.indptr, self.places, self.coefficients


@dataclass(frozen=True, kw_only=True, eq=False)
class RowRecords:
    """What rows list: the records of every relation, each with its coefficient. Private.

    Attributes:
        blocks: of the board, one for each relation; empty for a graph without relations.
        relations: their records; of a graph without relations those of its edges, which all count GRID.
        sizes: int64 [R], how many places every row lists, over all relations.

    Guarantees:
        The squares of the coefficients of a row over all relations, if there are some, sum to at most GRID^2,
        in integers. They depend on the records of that row alone.
    """

    blocks: tuple[Block, ...]
    relations: tuple[Records, ...]
    sizes: Int64Array

    @property
    def num_places(self) -> int:
        """How many places a board has; without relations these are the rows."""
        return sum(block.size for block in self.blocks) if self.blocks else len(self.sizes)

    @property
    def starts(self) -> list[int]:
        """Where the places of every relation begin on a board, and the end."""
        return find_starts(self.blocks).tolist() if self.blocks else [0, self.num_places]

    def list_rows(self, rows: Int64Array) -> Lists:
        """What these rows list over all relations; no row twice."""
        wanted = np.full(len(self.sizes), -1, np.int64)
        wanted[rows] = np.arange(len(rows))
        indptr = _arrays.find_ends(self.sizes[rows])
        free = indptr[:-1].copy()
        places = np.empty(indptr[-1], id_type(self.num_places))
        coefficients = np.empty(indptr[-1], np.int32)
        # Blocks come in order within a row, and places within each: they are ascending.
        for start, each in zip(self.starts, self.relations, strict=False):
            each.put(start, wanted, free, places, coefficients)
        return Lists(indptr=indptr, places=places, coefficients=coefficients)


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
    return _arrays.find_ends([block.size for block in blocks])


def find_records(graph: Graph, edge_owner: EdgeOwner, divided: RowRecords | None = None) -> RowRecords:
    """What every row of a graph lists; `divided` is what `divide_records` gave, if it has run."""
    divided = divided or divide_records(graph, edge_owner)
    if divided is not None:
        return divided
    records = plain_records(graph, edge_owner)
    return RowRecords(blocks=(), relations=(records,), sizes=records.count())


def plain_records(graph: Graph, edge_owner: EdgeOwner) -> Records:
    """The edges of a graph; by place where the lists of senders would fill memory."""
    check_owner(edge_owner)
    if edge_owner == "sender" and _arrays.find_disk() is None:
        return Records(indptr=graph.indptr, indices=graph.indices, is_by_owner=False)
    indptr, places = graph.lists_of(edge_owner)
    return Records(indptr=indptr, indices=places, is_by_owner=True)


def divide_records(graph: Graph, edge_owner: EdgeOwner) -> RowRecords | None:
    """What every row of a graph lists, with coefficients; None where it has no relations.

    Guarantees:
        Those of a row depend on the records that the row owns, and on nothing else.
    """
    check_owner(edge_owner)
    if not graph.relations:
        return None
    records = [
        Records(
            indptr=each.indptr,
            indices=each.indices,
            is_by_owner=edge_owner == "reader" or not each.names_people,
        )
        for each in graph.relations
    ]
    return _divide(list_blocks(graph), records, [each.weights for each in graph.relations])


def _divide(
    blocks: tuple[Block, ...], records: Sequence[Records], weights: Sequence[FloatArray | None]
) -> RowRecords:
    """Give records their coefficients: weights divided by their norm in a row, which its relations share.

    The sum of squares is checked in integers; a row that fails is scaled down.
    """
    sizes = [each.count() for each in records]
    listed, relations = np.zeros((2, len(sizes[0])), np.int64)
    for size in sizes:
        listed += size
        relations += size > 0
    divided = [
        _divide_one(each, size, given, relations)
        for each, size, given in zip(records, sizes, weights, strict=True)
    ]
    # A millionth undoes rounding errors in one try; more and more is taken off, so that it ends in any case.
    for bits in itertools.chain(range(20, 0, -1), itertools.repeat(1)):
        totals = np.zeros(len(listed), np.int64)
        for each, size in zip(divided, sizes, strict=True):
            if each.shares is not None:
                totals += size * np.square(each.shares, dtype=np.int64)
            else:
                _add_squares(each.indptr, each.indices, each.is_by_owner, each.coefficients, totals)
        is_long = totals > GRID**2
        if not is_long.any():
            break
        for each in divided:
            each.shorten(is_long, bits)
    return RowRecords(blocks=blocks, relations=tuple(divided), sizes=listed)


def _divide_one(
    records: Records, sizes: Int64Array, weights: FloatArray | None, relations: Int64Array
) -> Records:
    """The records of one relation with coefficients.

    Args:
        records: without them.
        sizes: how many of them every row owns.
        weights: of the records; None where every weight is 1.
        relations: how many relations every row has records of.
    """
    stored = (records.indptr, records.indices, records.is_by_owner)
    # Of every row its largest weight and, in units of it, what it divides by. Side by side, since rows are
    # looked up in any order.
    units = np.ones((len(sizes), 2))
    units[:, 1] = sizes
    if weights is not None:
        units.fill(0.0)
        _find_largest(*stored, weights, units)
        _add_weights(*stored, weights, units)
    # The norm of a ballot is shared by the relations of its row.
    np.sqrt(units[:, 1] * relations, out=units[:, 1])
    if weights is None:
        norms = np.where(sizes > 0, units[:, 1], np.inf)
        return replace(records, shares=(1.0 / norms * GRID).astype(np.int32))
    coefficients = _arrays.empty(len(weights), np.int32)
    _divide_weights(*stored, weights, units, coefficients)
    return replace(records, coefficients=coefficients)


def lists_of_rows(
    blocks: tuple[Block, ...],
    num_places: int,
    indptr: Int64Array,
    places: Int64Array,
    weights: npt.ArrayLike | None = None,
) -> RowRecords:
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
    # A graph without relations has no weights.
    is_weighted = np.array([block.is_weighted for block in blocks] or [False])
    given = 1.0 if weights is None else np.asarray(weights, np.float64)
    values = np.where(is_weighted[np.searchsorted(starts[1:-1], places, side="right")], given, 1.0)
    is_known = (places >= 0) & (places < num_places) & np.isfinite(values) & (values > 0)
    keys, sums = sum_repeats((rows * num_places + places)[is_known], values[is_known])
    ends = np.searchsorted(keys, np.arange(len(indptr)) * num_places)
    listed = keys % max(1, num_places)
    if not blocks:
        alike = Records(indptr=ends, indices=listed, is_by_owner=True)
        return RowRecords(blocks=(), relations=(alike,), sizes=alike.count())
    records, weights_of = [], list[FloatArray | None]()
    relation = np.searchsorted(starts[1:-1], listed, side="right")
    for number, block in enumerate(blocks):
        mine = np.flatnonzero(relation == number)
        of_block = Records(
            indptr=np.searchsorted(mine, ends), indices=listed[mine] - starts[number], is_by_owner=True
        )
        records.append(of_block)
        weights_of.append(sums[mine] if block.is_weighted else None)
    return _divide(blocks, records, weights_of)


@numba.njit(cache=True, nogil=True)
def _find_largest(indptr, indices, is_by_owner, weights, units):  # type: ignore[no-untyped-def]
    """The largest weight of every row."""
    for number in range(len(indptr) - 1):
        for i in range(indptr[number], indptr[number + 1]):
            row = number if is_by_owner else indices[i]
            units[row, 0] = max(units[row, 0], weights[i])


@numba.njit(cache=True, nogil=True)
def _add_weights(indptr, indices, is_by_owner, weights, units):  # type: ignore[no-untyped-def]
    """Add up the squared weights of every row, in units of its largest: their sum must not overflow."""
    for number in range(len(indptr) - 1):
        for i in range(indptr[number], indptr[number + 1]):
            row = number if is_by_owner else indices[i]
            weight = weights[i] / units[row, 0]
            units[row, 1] += weight * weight


@numba.njit(cache=True, nogil=True)
def _divide_weights(indptr, indices, is_by_owner, weights, units, coefficients):  # type: ignore[no-untyped-def]
    """Divide weights by the largest of their row and by its norm in units of that, towards zero."""
    for number in range(len(indptr) - 1):
        for i in range(indptr[number], indptr[number + 1]):
            row = number if is_by_owner else indices[i]
            coefficients[i] = np.int64(weights[i] / units[row, 0] / units[row, 1] * GRID)


@numba.njit(cache=True, nogil=True)
def _add_squares(indptr, indices, is_by_owner, coefficients, totals):  # type: ignore[no-untyped-def]
    """Add up the squares of coefficients in every row, in integers."""
    for number in range(len(indptr) - 1):
        for i in range(indptr[number], indptr[number + 1]):
            row = number if is_by_owner else indices[i]
            totals[row] += np.int64(coefficients[i]) * coefficients[i]


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
