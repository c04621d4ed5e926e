"""What several nodes of one person cast together, place by place and in integers."""

from __future__ import annotations

from dataclasses import dataclass
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
        num_places: how many places the board has.
    """

    members: Members
    lists: Lists
    num_places: int

    @classmethod
    def of(cls, graph: Graph, edge_owner: EdgeOwner, records: RowRecords | None) -> PersonLists | None:
        """The lists of a graph, and of its records if divided; None where nobody has several nodes."""
        if graph.persons is None:
            return None
        sizes = count_members(graph.persons, np.ones(graph.num_nodes, np.bool_))
        members = gather(graph.persons, np.flatnonzero(sizes > 1))
        if not len(members.nodes):
            return None
        listed = find_records(graph, edge_owner, records)
        return cls(members=members, lists=listed.list_rows(members.nodes), num_places=listed.num_places)

    def square(self, ballots: Int64Array, dtype: type[np.number[Any]]) -> npt.NDArray[Any]:
        """[persons]: the squared norm of what the nodes of each person cast together, place by place.

        Args:
            ballots: int64 [len(members.nodes), width], in units.
            dtype: of the squares: int64 where they are small enough to be exact, else float64.
        """
        squares = np.zeros(len(self.members.pointers) - 1, dtype)
        local = np.full(self.num_places, -1, np.int64)
        _square_casts(self.members.pointers, *self.lists.arrays, ballots, local, squares)
        return squares


@numba.njit(cache=True, nogil=True, inline="always")
def cut_product(share, entry):  # type: ignore[no-untyped-def]
    """A product of two numbers of at most GRID, cut to units towards zero."""
    product = share * entry
    return product >> GRID_BITS if product >= 0 else -(-product >> GRID_BITS)


@numba.njit(cache=True, nogil=True)
def add_casts(first, last, indptr, places, coefficients, ballots, begin, behind, local, cast):  # type: ignore[no-untyped-def]
    """Add up what members from `first` to the one before `last` cast onto places from `begin` on.

    Args:
        indptr, places, coefficients: of all members.
        ballots: of these.
        begin, behind: the first place, and the one behind the last.
        local: int64 [places], -1 for every place before; then the row of `cast`.
        cast: zeros, which what was cast is added to. What a node casts is what `add_shares` adds to a tally.

    Returns:
        How many places they list.
    """
    touched = 0
    for i in range(first, last):
        for at in range(indptr[i], indptr[i + 1]):
            place = places[at]
            if place < begin or place >= behind:
                continue
            if local[place] < 0:
                local[place] = touched
                touched += 1
            share = np.int64(coefficients[at])
            for k in range(ballots.shape[1]):
                cast[local[place], k] += cut_product(share, ballots[i - first, k])
    return touched


@numba.njit(cache=True, nogil=True)
def _square_casts(who, indptr, places, coefficients, ballots, local, squares):  # type: ignore[no-untyped-def]
    """Square and add up what persons cast, place by place; `local` is -1 before and after."""
    for person in range(len(who) - 1):
        first, last = who[person], who[person + 1]
        entries = places[indptr[first] : indptr[last]]
        cast = np.zeros((len(entries), ballots.shape[1]), np.int64)
        own = ballots[first:last]
        touched = add_casts(first, last, indptr, places, coefficients, own, 0, len(local), local, cast)
        for at in range(touched):
            for k in range(ballots.shape[1]):
                entry = squares.dtype.type(cast[at, k])
                squares[person] += entry * entry
        for place in entries:
            local[place] = -1
