"""What several nodes of one person cast together, place by place and in integers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numba
import numpy as np
import numpy.typing as npt

from hushgraph._arrays import Int64Array
from hushgraph.billboard.lists import GRID_BITS, Lists, RowRecords, find_records
from hushgraph.graph.graph import EdgeOwner, Graph
from hushgraph.graph.persons import Members, count_members, gather


@dataclass(frozen=True, kw_only=True, eq=False)
class PersonLists:
    """The lists of persons with several nodes.

    Attributes:
        members: the nodes of these persons.
        lists: of the members, as they come there.
    """

    members: Members
    lists: Lists

    @classmethod
    def of(cls, graph: Graph, edge_owner: EdgeOwner, records: RowRecords | None) -> PersonLists | None:
        """The lists of a graph, and of its records if divided; None where nobody has several nodes."""
        if graph.persons is None:
            return None
        sizes = count_members(graph.persons, np.ones(graph.num_nodes, np.bool_))
        members = gather(graph.persons, np.flatnonzero(sizes > 1))
        if not len(members.nodes):
            return None
        return cls(members=members, lists=find_records(graph, edge_owner, records).list_rows(members.nodes))

    def find_persons(self, begin: int, end: int) -> Int64Array:
        """The persons, ascending, that have a node from `begin` to the one before `end`."""
        nodes, order, owners = self._by_node
        first, last = np.searchsorted(nodes, (begin, end))
        return np.unique(owners[order[first:last]])

    @cached_property
    def _by_node(self) -> tuple[Int64Array, Int64Array, Int64Array]:
        """The nodes of members, ascending; which member each is; and the person of every member."""
        nodes, pointers = self.members
        order = np.argsort(nodes)
        return nodes[order], order, np.repeat(np.arange(len(pointers) - 1), np.diff(pointers))

    def square(self, ballots: Int64Array, dtype: type[np.number[Any]]) -> npt.NDArray[Any]:
        """[persons]: the squared norm of what the nodes of each person cast together, place by place.

        Args:
            ballots: int64 [len(members.nodes), width], in units.
            dtype: of the squares: int64 where they are small enough to be exact, else float64.
        """
        squares = np.zeros(len(self.members.pointers) - 1, dtype)
        _square_casts(self.members.pointers, *self.lists.arrays, ballots, squares)
        return squares


@numba.njit(cache=True, nogil=True, inline="always")
def cut_product(share, entry):  # type: ignore[no-untyped-def]
    """A product of two numbers of at most GRID, cut to units towards zero."""
    product = share * entry
    return product >> GRID_BITS if product >= 0 else -(-product >> GRID_BITS)


@numba.njit(cache=True, nogil=True)
def add_casts(first, last, indptr, places, coefficients, ballots, known):  # type: ignore[no-untyped-def]
    """Add up what members from `first` to the one before `last` cast, place by place.

    Args:
        indptr, places, coefficients: of all members.
        ballots: of these.
        known: the places that count, ascending.

    Returns:
        int64 [places, width]. What a node casts is what `add_ballots` adds to a tally.
    """
    cast = np.zeros((len(known), ballots.shape[1]), np.int64)
    for i in range(first, last):
        for at in range(indptr[i], indptr[i + 1]):
            local = np.searchsorted(known, places[at])
            if local == len(known) or known[local] != places[at]:
                continue
            share = np.int64(coefficients[at])
            for k in range(ballots.shape[1]):
                cast[local, k] += cut_product(share, ballots[i - first, k])
    return cast


@numba.njit(cache=True, nogil=True)
def _square_casts(who, indptr, places, coefficients, ballots, squares):  # type: ignore[no-untyped-def]
    """Square and add up what persons cast, place by place."""
    for person in range(len(who) - 1):
        first, last = who[person], who[person + 1]
        known = np.unique(places[indptr[first] : indptr[last]])
        for entry in add_casts(first, last, indptr, places, coefficients, ballots[first:last], known).flat:
            square = squares.dtype.type(entry)
            squares[person] += square * square
