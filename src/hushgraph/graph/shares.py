"""What a read counts: the weights of a reader's records, as shares of what it reads of one relation."""

from __future__ import annotations

from collections.abc import Sequence

import numba
import numpy as np
import numpy.typing as npt

from hushgraph.graph.graph import Array
from hushgraph.graph.records import Relation

Shares = npt.NDArray[np.float32]
_ALIKE = np.empty(0, np.float64)


def find_shares(relations: Sequence[Relation], indptr: Array, indices: Array) -> Shares | None:
    """float32 [relations, reads]: the weight of every read over the sum of its reader's in that relation.

    Args:
        relations: of the graph; those that name places are left out, as nobody reads a place.
        indptr, indices: what every node reads, in compressed rows with ascending ids: all reads of the graph,
            or the kept ones of them.

    Returns:
        The shares, 0 where a read is of other relations; None where every read counts the same.

    Guarantees:
        The shares of a reader depend on its own reads alone. In each relation they are at least 0 and add up
        to 1, or are all 0.
    """
    people = [each for each in relations if each.names_people]
    if not people or (len(people) == 1 and people[0].weights is None):
        return None
    shares = np.zeros((len(people), len(indices)), np.float32)
    for row, relation in zip(shares, people, strict=True):
        weights = _ALIKE if relation.weights is None else relation.weights
        _divide(indptr, indices, relation.indptr, relation.indices, weights, row)
    return shares


@numba.njit(cache=True, nogil=True)
def _divide(indptr, indices, starts, named, weights, shares):  # type: ignore[no-untyped-def]
    """Look up the weight of every read among ascending records, and divide by the sum of its row."""
    most = 0
    for row in range(len(indptr) - 1):
        most = max(most, indptr[row + 1] - indptr[row])
    values = np.empty(most, np.float64)
    for row in range(len(indptr) - 1):
        begin, length = indptr[row], indptr[row + 1] - indptr[row]
        at, end = starts[row], starts[row + 1]
        largest = 0.0
        for i in range(length):
            values[i] = 0.0
            while at < end and named[at] < indices[begin + i]:
                at += 1
            if at < end and named[at] == indices[begin + i]:
                values[i] = weights[at] if len(weights) else 1.0
                largest = max(largest, values[i])
        if largest == 0.0:
            continue
        # Divided by the largest first: the sum must not overflow.
        total = 0.0
        for i in range(length):
            values[i] /= largest
            total += values[i]
        for i in range(length):
            shares[begin + i] = values[i] / total
