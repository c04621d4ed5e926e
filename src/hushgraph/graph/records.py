"""Records as people have them: with weights, of several relations, naming places that are not people.

A graph without any of these has no relations: its reads are its records. Otherwise each relation holds its
records, cleaned from each row alone: identifiers are numbers of places already, weights that are not finite
and above 0 are gone, and repeats of a pair are one record with the sum of their weights.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from hushgraph._arrays import FloatArray, Int64Array, find_ends
from hushgraph.errors import GraphError, InputError

WeightFunction = Literal["none", "log1p", "sqrt"]
PlaceKind = Literal["nodes", "places", "hashed"]
COUNT = "count"
"""Stands for no column: a weight is how often a pair is recorded."""
MOST_BUCKETS = 1 << 24
_HASH = "hash:"
PEOPLE = "people"
"""The relation of records between people, where nobody has named one."""
PLACES = "places"
"""The relation of records that name places which are not people."""


@dataclass(frozen=True, kw_only=True)
class EdgeWeight:
    """Where weights come from, as `--edge-weight` declares it.

    Attributes:
        column: of the edges; None counts records.
        function: what is applied to a weight before repeats of a pair are summed.
    """

    column: str | None
    function: WeightFunction = "none"

    @classmethod
    def of(cls, text: str) -> EdgeWeight:
        """Read COLUMN, COLUMN:log1p, COLUMN:sqrt, COLUMN:none, or count."""
        column, colon, function = text.rpartition(":")
        if not colon:
            column, function = text, "none"
            if text == COUNT:
                return cls(column=None)
        if not column or function not in ("none", "log1p", "sqrt"):
            raise InputError(
                f"edge_weight={text!r}: expected a column, alone or with log1p, sqrt or none, as "
                "amount:log1p; or count, which counts the records of a pair"
            )
        return cls(column=column, function=function)  # type: ignore[arg-type]

    def apply(self, weights: Any) -> FloatArray:
        """The declared function of weights, 0 for whatever is not finite and above 0 after it."""
        with np.errstate(all="ignore"):
            values = np.asarray(weights, np.float64)
            if self.function == "log1p":
                values = np.log1p(values)
            elif self.function == "sqrt":
                values = np.sqrt(values)
            return np.where(np.isfinite(values) & (values > 0), values, 0.0)

    def read(self, given: Any, num_edges: int, *, where: str = "") -> FloatArray:
        """The weights of edges after the declared function, from an array [E] or [E, 1]; None is 1 each."""
        weights: npt.NDArray[Any] = np.ones(num_edges) if given is None else np.asarray(given)
        if weights.ndim == 2 and weights.shape[1] == 1:
            weights = weights[:, 0]
        if weights.shape != (num_edges,) or weights.dtype.kind not in "biuf":
            raise GraphError(
                f"{self.column}{where} has dtype {weights.dtype} and shape {list(weights.shape)}; expected "
                f"one number for each of {num_edges} edges"
            )
        return self.apply(weights)

    def describe(self) -> str:
        """Say what a record counts, as words inside a sentence."""
        if self.column is None:
            return "how often the pair is recorded"
        function = "" if self.function == "none" else f", as {self.function}"
        return f"{self.column!r}{function}"


def read_places(given: Any, folder: Path | None = None) -> tuple[str, ...] | str:
    """Declared places: a list of names, or the text hash:N.

    Args:
        given: such a list, that text, or the path of a file with one name a line.
        folder: what a path is relative to; the current one unless given.
    """
    if isinstance(given, str) and given.startswith(_HASH):
        count_buckets(given)
        return given
    shown = "places"
    if isinstance(given, (str, os.PathLike)) and os.fspath(given):
        shown = f"places={os.fspath(given)!r}:"
        path = (folder or Path()) / Path(given).expanduser()
        try:
            lines = path.read_text(encoding="utf-8-sig").splitlines()
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or "not UTF-8 text"
            raise InputError(
                f"places={os.fspath(given)!r}: {reason}; expected a file with one name of a place a line, or "
                "hash:N"
            ) from None
        names = [line.strip() for line in lines]
    elif isinstance(given, Iterable) and not isinstance(given, (str, bytes, Mapping)):
        names = [str(each) for each in given]
    else:
        raise InputError(f"places={given!r}: expected names of places, a file of them, or hash:N")
    kept = tuple(dict.fromkeys(name for name in names if name))
    if not kept:
        raise InputError(f"{shown} holds no name; expected at least one place, or hash:N")
    return kept


def count_buckets(text: str) -> int:
    """N of hash:N."""
    number = text.removeprefix(_HASH)
    if not number.isdecimal() or not 1 <= int(number) <= MOST_BUCKETS:
        raise InputError(
            f"places={text!r}: expected hash:N with a number of places from 1 to {MOST_BUCKETS}, as hash:4096"
        )
    return int(number)


@dataclass(frozen=True, kw_only=True)
class RelationInfo:
    """What is public about a relation.

    Attributes:
        name: of the relation.
        num_places: how many places it names that are not people; None where it names nodes.
        is_weighted: whether records have weights.
        is_hashed: whether names of places are hashed into `num_places` buckets.
    """

    name: str
    num_places: int | None = None
    is_weighted: bool = False
    is_hashed: bool = False

    @property
    def kind(self) -> PlaceKind:
        """What its places are."""
        if self.num_places is None:
            return "nodes"
        return "hashed" if self.is_hashed else "places"


@dataclass(frozen=True, kw_only=True, eq=False)
class Relation:
    """Records of one kind, in compressed rows, each pair once.

    Attributes:
        info: what is public about it.
        indptr: int64 [N + 1]. Of places, node v names `indices[indptr[v]:indptr[v + 1]]`. Of nodes it is as
            in `Graph`: node w reads them, and who owns the record is declared elsewhere.
        indices: int64, ascending within a row.
        weights: float64, finite and above 0, one for each record; None where all count the same.
        place_names: what places are called, [num_places]; None where they are numbered from 0, or hashed.
    """

    info: RelationInfo
    indptr: npt.NDArray[np.int64]
    indices: npt.NDArray[np.int64]
    weights: FloatArray | None = None
    place_names: npt.NDArray[Any] | None = None

    def __post_init__(self) -> None:
        width = self.num_nodes if self.info.num_places is None else self.info.num_places
        if self.indices.size and not (self.indices.min() >= 0 and self.indices.max() < width):
            raise GraphError(
                f"relation {self.info.name!r} names place {int(self.indices.max())}; expected 0..{width - 1}"
            )
        if (self.weights is not None) != self.info.is_weighted:
            has = "weights" if self.weights is not None else "no weights"
            raise GraphError(
                f"relation {self.info.name!r} has {has} and is_weighted={self.info.is_weighted}; expected "
                "weights where is_weighted, and none otherwise"
            )

    @property
    def num_nodes(self) -> int:
        """N."""
        return len(self.indptr) - 1

    @property
    def names_people(self) -> bool:
        """Whether its places are nodes."""
        return self.info.num_places is None

    @classmethod
    def between_people(
        cls,
        name: str,
        edge_index: npt.NDArray[Any],
        *,
        num_nodes: int,
        weights: FloatArray | None = None,
        symmetrize: bool = False,
    ) -> Relation:
        """Build the records of edges [2, E]: the target reads the source.

        Args:
            name: of the relation.
            edge_index: numbers of nodes. Self-loops are dropped.
            num_nodes: N.
            weights: [E], after the declared function; None where every pair counts once.
            symmetrize: add the reverse of every edge, with the same weight.
        """
        source, target = (np.asarray(end, np.int64) for end in edge_index)
        kept = source != target
        values = None if weights is None else weights[kept]
        source, target = source[kept], target[kept]
        if symmetrize:
            source, target = np.concatenate([source, target]), np.concatenate([target, source])
            values = None if values is None else np.concatenate([values, values])
        info = RelationInfo(name=name, is_weighted=weights is not None)
        return _collect(info, target, source, values, num_nodes)

    @classmethod
    def to_places(
        cls,
        name: str,
        persons: npt.NDArray[Any],
        places: npt.NDArray[Any],
        *,
        num_nodes: int,
        num_places: int,
        weights: FloatArray | None = None,
        place_names: npt.NDArray[Any] | None = None,
        is_hashed: bool = False,
    ) -> Relation:
        """Build the records of people who name places; they belong to the people.

        Args:
            name: of the relation.
            persons, places: [E], numbers of nodes and of places.
            num_nodes, num_places: N and how many places there are, which is declared.
            weights: as in `between_people`.
            place_names: what places are called.
            is_hashed: whether the numbers are buckets of names.
        """
        info = RelationInfo(
            name=name, num_places=num_places, is_weighted=weights is not None, is_hashed=is_hashed
        )
        built = _collect(
            info, np.asarray(persons, np.int64), np.asarray(places, np.int64), weights, num_nodes
        )
        return replace(built, place_names=place_names)

    def with_rows_emptied(self, nodes: npt.NDArray[Any], edge_owner: str) -> Relation:
        """The same records without those that these nodes own."""
        rows, named = self.list_pairs()
        owners = named if self.names_people and edge_owner == "sender" else rows
        return self._filter(~np.isin(owners, nodes))

    def between_persons(self, persons: npt.NDArray[Any]) -> Relation:
        """The same records without those between nodes of one person, as `Graph.persons` tells."""
        if not self.names_people:
            return self
        return self._filter(persons[self.indices] != np.repeat(persons, np.diff(self.indptr)))

    def symmetrized(self) -> Relation:
        """The same records and their reverses; weights of the two directions add up."""
        if not self.names_people:
            return self
        from scipy import sparse

        matrix = self._matrix()
        both = sparse.csr_array(matrix + matrix.T)
        both.sort_indices()
        return self._from_matrix(both)

    def within(self, group: npt.NDArray[Any]) -> Relation:
        """The same records without those between nodes of different groups."""
        if not self.names_people:
            return self
        return self._filter(group[self.indices] == np.repeat(group, np.diff(self.indptr)))

    def list_pairs(self) -> npt.NDArray[np.int64]:
        """[2, records]: the row of every record and what it names."""
        return np.stack([np.repeat(np.arange(self.num_nodes), np.diff(self.indptr)), self.indices])

    def _matrix(self) -> Any:
        from scipy import sparse

        values = np.ones(len(self.indices)) if self.weights is None else self.weights
        width = self.num_nodes if self.info.num_places is None else self.info.num_places
        return sparse.csr_array((values, self.indices, self.indptr), shape=(self.num_nodes, width))

    def _from_matrix(self, matrix: Any) -> Relation:
        matrix.sort_indices()
        return replace(
            self,
            indptr=matrix.indptr.astype(np.int64),
            indices=matrix.indices.astype(np.int64),
            weights=None if self.weights is None else _drop_infinite(matrix.data),
        )

    def _filter(self, kept: npt.NDArray[np.bool_]) -> Relation:
        before = find_ends(kept)
        return replace(
            self,
            indptr=before[self.indptr],
            indices=self.indices[kept],
            weights=None if self.weights is None else self.weights[kept],
        )


def _collect(
    info: RelationInfo,
    rows: npt.NDArray[np.int64],
    named: npt.NDArray[np.int64],
    weights: FloatArray | None,
    num_nodes: int,
) -> Relation:
    """Sort records into rows; repeats become one, with the sum of their weights."""
    # It loads SciPy, which reading settings does without.
    from hushgraph.graph.checks import check_range

    width = num_nodes if info.num_places is None else info.num_places
    check_range(f"relation {info.name!r}, rows", rows, 0, num_nodes - 1, f"there are {num_nodes} nodes")
    check_range(f"relation {info.name!r}, places", named, 0, width - 1, f"there are {width} places")
    if weights is None:
        from scipy import sparse

        matrix = sparse.csr_array((np.ones(len(rows)), (rows, named)), shape=(num_nodes, width))
        matrix.sum_duplicates()
        return Relation(
            info=info, indptr=matrix.indptr.astype(np.int64), indices=matrix.indices.astype(np.int64)
        )
    is_counted = np.isfinite(weights) & (weights > 0)
    pairs, sums = sum_repeats((rows * width + named)[is_counted], weights[is_counted])
    return Relation(
        info=info,
        indptr=np.searchsorted(pairs, np.arange(num_nodes + 1) * width),
        indices=pairs % max(1, width),
        weights=sums,
    )


def sum_repeats(pairs: Int64Array, weights: FloatArray) -> tuple[Int64Array, FloatArray]:
    """The different pairs, ascending, and the sum of the weights of each, but for infinite sums.

    Args:
        pairs: numbers of 0 or more, one for each record.
        weights: of the records, finite.

    Guarantees:
        A sum depends on the weights of its pair alone, bit for bit: neither on their order nor on other
        records, which may be of other rows.
    """
    order = np.argsort(pairs)
    pairs, weights = pairs[order], weights[order]
    first = np.flatnonzero(np.diff(pairs, prepend=-1))
    sizes = np.diff(first, append=len(pairs))
    # Sums of more than two numbers are rounded by the order in which these are added.
    several = np.flatnonzero(np.repeat(sizes > 2, sizes))
    weights[several] = weights[several][np.lexsort((weights[several], pairs[several]))]
    with np.errstate(over="ignore"):
        sums = np.add.reduceat(weights, first) if len(first) else np.empty(0)
    is_finite = np.isfinite(sums)
    return pairs[first][is_finite], sums[is_finite]


def _drop_infinite(weights: FloatArray) -> FloatArray:
    """Weights of both directions, summed; of one that is infinite, the largest finite number."""
    return np.minimum(weights, np.finfo(np.float64).max)


def join_people(relations: Sequence[Relation]) -> npt.NDArray[np.int64]:
    """[2, E]: the edges of all relations between people, sources first, each pair as often as it occurs."""
    pairs = [each.list_pairs()[::-1] for each in relations if each.names_people]
    return np.concatenate([np.empty((2, 0), np.int64), *pairs], axis=1)
