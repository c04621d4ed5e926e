"""What rows cast themselves, taken off what they read: no label helps to predict its own person."""

from __future__ import annotations

import itertools

import numba
import numpy as np

from hushgraph._arrays import FloatArray, find_ends
from hushgraph.billboard.ballots import Ballots
from hushgraph.billboard.lists import GRID
from hushgraph.billboard.persons import PersonLists, add_casts, cut_product

# Rows whose ballots are written out at a time.
_ROWS = 1 << 14


def take_off(sums: FloatArray, own_weight: FloatArray, own: Ballots, begin: int = 0) -> None:
    """Subtract the own part of every row that cast a ballot; sums are of rows from `begin` on."""
    rows = slice(begin, begin + len(sums))
    casters = np.flatnonzero((own.labels[rows] >= 0) | (own.soft_rows[rows] >= 0))
    for first in range(0, len(casters), _ROWS):
        block = casters[first : first + _ROWS]
        sums[block] -= own_weight[block, None] * (own.dense(begin + block) / float(GRID))


def take_off_others(
    sums: FloatArray,
    part: float,
    own: Ballots,
    now: PersonLists,
    weights: FloatArray,
    begin: int,
    places: tuple[int, int],
) -> None:
    """Subtract from every sum what the other nodes of its person cast onto the places it lists.

    Args:
        sums: of consecutive rows, over the places of one relation.
        part: of the board in those that were combined.
        own: what was cast, with the lists of then.
        now: the lists that are read.
        weights: of places.
        begin: the first of the rows.
        places: the first place of the relation and the one behind its last.
    """
    then = own.person_lists
    if then is None:
        return
    nodes, pointers = now.members
    persons = now.find_persons(begin, begin + len(sums))
    sizes = pointers[persons + 1] - pointers[persons]
    ends = find_ends(sizes)
    cuts = np.unique(np.append(np.searchsorted(ends, np.arange(0, ends[-1], _ROWS)), len(persons)))
    for first, last in itertools.pairwise(cuts):
        who = ends[first : last + 1] - ends[first]
        starts = pointers[persons[first:last]]
        members = np.arange(who[-1]) + np.repeat(starts - who[:-1], sizes[first:last])
        rows = nodes[members] - begin
        rows[(rows < 0) | (rows >= len(sums))] = -1
        lists = (*now.lists.arrays, *then.lists.arrays)
        _take_off_others(
            who, starts, rows, *lists, own.dense(nodes[members]), part / GRID, weights, *places, sums
        )


@numba.njit(cache=True, nogil=True)
def _take_off_others(  # type: ignore[no-untyped-def]
    who,
    starts,
    rows,
    indptr,
    places,
    coefficients,
    cast_indptr,
    cast_places,
    cast_coefficients,
    ballots,
    unit,
    weights,
    begin,
    behind,
    sums,
):
    """For every person, add up what was cast by place, and take off what a node did not cast itself.

    Person p has `ballots[who[p]:who[p + 1]]` and as many `rows`, -1 for one that is not wanted; the lists of
    its first member are those numbered `starts[p]`.
    """
    for person in range(len(starts)):
        own, here = ballots[who[person] : who[person + 1]], rows[who[person] : who[person + 1]]
        first, last = starts[person], starts[person] + len(own)
        known = np.unique(cast_places[cast_indptr[first] : cast_indptr[last]])
        known = known[np.searchsorted(known, begin) : np.searchsorted(known, behind)]
        cast = add_casts(first, last, cast_indptr, cast_places, cast_coefficients, own, known)
        for i in range(first, last):
            row, mine, cast_end = here[i - first], cast_indptr[i], cast_indptr[i + 1]
            if row < 0:
                continue
            for at in range(indptr[i], indptr[i + 1]):
                place = places[at]
                local = np.searchsorted(known, place)
                if local == len(known) or known[local] != place:
                    continue
                while mine < cast_end and cast_places[mine] < place:
                    mine += 1
                share = np.int64(0)
                if mine < cast_end and cast_places[mine] == place:
                    share = np.int64(cast_coefficients[mine])
                weight = weights[place] * (coefficients[at] / GRID)
                for k in range(ballots.shape[1]):
                    others = cast[local, k] - cut_product(share, own[i - first, k])
                    sums[row, k] -= weight * (others * unit)
