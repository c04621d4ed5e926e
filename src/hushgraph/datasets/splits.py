"""Splits, drawn from node ids alone."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from hushgraph.errors import GraphError

_WORD = (1 << 64) - 1
# Drawn for training if the data has no split.
DEFAULT_SPLIT = "0.6/0.2/0.2"


def parse_fractions(text: str) -> tuple[float, float, float]:
    """Parse "0.6/0.2/0.2" into the fractions of training, validation and test nodes."""
    try:
        train, val, test = (float(part) for part in text.split("/"))
    except (ValueError, AttributeError) as error:
        raise GraphError(
            f"split={str(text)[:40]!r}: expected three fractions, train/val/test, such as '0.6/0.2/0.2'"
        ) from error
    return train, val, test


def random_split(
    num_nodes: int,
    fractions: tuple[float, float, float],
    *,
    seed: int = 0,
    persons: npt.NDArray[np.int64] | None = None,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Split nodes 0..num_nodes-1 into training, validation and test nodes.

    Args:
        num_nodes: N.
        fractions: expected shares of the three parts. With a sum below 1, some nodes are in no part.
        seed: another seed gives another split.
        persons: for every node the first node of its person; all nodes of a person are in the part of that
            one.

    Returns:
        Three ascending int64 arrays of node ids.

    Guarantees:
        The part of a node depends only on its id, or its person's, the fractions and the seed: not on labels,
        edges, features, other nodes or the number of nodes.

    Examples:
        >>> import hushgraph as hg
        >>> train, val, test = hg.datasets.random_split(1000, (0.6, 0.2, 0.2))
        >>> len(train) + len(val) + len(test)
        1000
    """
    is_valid = all(math.isfinite(f) and f >= 0 for f in fractions) and sum(fractions) <= 1 + 1e-9
    if not is_valid or fractions[0] == 0:
        raise GraphError(
            f"split fractions={'/'.join(f'{f:g}' for f in fractions)}: expected none below 0, training above "
            "0, and a sum of at most 1, such as 0.6/0.2/0.2"
        )
    ids = np.arange(num_nodes) if persons is None else persons
    position = _hash(ids.astype(np.uint64), seed).astype(np.float64) / 2.0**64
    train_end, val_end = fractions[0], fractions[0] + fractions[1]
    # The largest hashes round to 1.0, so fractions with a sum of 1 must include it.
    test_end = sum(fractions) if sum(fractions) < 1 - 1e-9 else 2.0
    return (
        np.flatnonzero(position < train_end),
        np.flatnonzero((position >= train_end) & (position < val_end)),
        np.flatnonzero((position >= val_end) & (position < test_end)),
    )


def _hash(ids: npt.NDArray[np.uint64], seed: int) -> npt.NDArray[np.uint64]:
    """Hash each id and the seed to 64 bits (two rounds of multiply and shift)."""
    mixed = (ids + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    for constant in (0xBF58476D1CE4E5B9, 0x94D049BB133111EB):
        mixed ^= np.uint64((seed * constant) & _WORD)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(constant)
        mixed ^= mixed >> np.uint64(27)
    return mixed ^ (mixed >> np.uint64(31))
