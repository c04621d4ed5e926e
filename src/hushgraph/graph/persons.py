"""Persons: whose every node is, where people have several nodes. Public, as identifiers are.

A person is named by the first of their nodes, so that nodes of one's own are named by themselves.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from hushgraph._arrays import Int64Array, find_ends
from hushgraph.errors import GraphError

PERSON_GRID = 1 << 16
"""How many steps one count has where a person's nodes share it."""


class Members(NamedTuple):
    """Some nodes, those of one person together, persons and nodes ascending.

    Attributes:
        nodes: int64; person i has `nodes[pointers[i]:pointers[i + 1]]`.
        pointers: int64 [persons + 1].
    """

    nodes: Int64Array
    pointers: Int64Array

    @property
    def sizes(self) -> Int64Array:
        """How many of the nodes every person has."""
        return np.diff(self.pointers)


def name_persons(given: Any, num_nodes: int) -> Int64Array:
    """int64 [N]: the first node of the person that every node belongs to.

    Args:
        given: for every node a text or a number that tells its person; None, NaN, an empty text or a number
            below 0 is a gap, and the node a person of its own.
        num_nodes: N.
    """
    values = np.asarray(given.detach().cpu() if hasattr(given, "detach") else given)
    if values.shape != (num_nodes,):
        raise GraphError(
            f"persons has shape {list(values.shape)}; expected one person per node, [{num_nodes}]"
        )
    if values.dtype.kind in "iuf":
        _, first, of = np.unique(values, return_index=True, return_inverse=True)
        return np.where(values >= 0, first[of.reshape(-1)], np.arange(num_nodes))
    names = np.empty(num_nodes, np.int64)
    seen: dict[Any, int] = {}
    for node, value in enumerate(values.tolist()):
        try:
            names[node] = node if _is_gap(value) else seen.setdefault(value, node)
        except (TypeError, ValueError):
            raise GraphError(f"persons[{node}]={value!r:.40}; expected a text or a number") from None
    return names


def _is_gap(value: Any) -> bool:
    """Whether a value tells nobody; NaN is not equal to itself, and NA of pandas to nothing that it tells."""
    if value is None or (isinstance(value, str) and not value.strip()):
        return True
    try:
        return bool(value != value)
    except TypeError:
        return True


def gather(persons: Int64Array, nodes: Int64Array) -> Members:
    """Some nodes by person."""
    order = np.argsort(persons[nodes], kind="stable")
    _, sizes = np.unique(persons[nodes], return_counts=True)
    return Members(nodes[order], find_ends(sizes))


def count_members(persons: Int64Array, is_counted: npt.NDArray[np.bool_]) -> Int64Array:
    """int64 [N]: of every node's person, how many nodes are counted."""
    sizes: Int64Array = np.bincount(persons[is_counted], minlength=len(persons))[persons]
    return sizes


def share_count(persons: Int64Array | None, nodes: Int64Array, num_nodes: int) -> Int64Array | None:
    """int64 [N]: what each of these nodes adds to a count, in steps of `PERSON_GRID`; None for one step each.

    Guarantees:
        What the nodes of one person add sums to at most `PERSON_GRID`, whatever their rows hold: k of them
        add floor(PERSON_GRID / k) each, and k is public.
    """
    if persons is None:
        return None
    is_counted = np.zeros(num_nodes, np.bool_)
    is_counted[nodes] = True
    return PERSON_GRID // np.maximum(count_members(persons, is_counted), 1)
