"""Changes: how two data sets can differ, by kinds of rows. The columns of the table of charges.

Every row is of one kind, by the public splits alone: a training row, an evaluated row (validation or test
split), or any other. A figure, such as epsilon for one row or for one edge, is a set of changes: a charge
names its event for each, an accountant composes each by itself, and the figure is the largest.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations_with_replacement
from typing import Literal, get_args

from hushgraph.errors import PlanError

Kind = Literal["training", "evaluated", "other"]
KINDS: tuple[Kind, ...] = get_args(Kind)


@dataclass(frozen=True)
class Change:
    """One way in which two data sets differ.

    Attributes:
        what: "rows" (the rows of `kinds` are emptied together), "edge" (one undirected edge between rows of
            these two kinds is removed), "record" (one directed record, which a row of this kind owns, is
            removed), "pair" (all records between two rows of these kinds, or of one row of this kind to
            another, over all relations, are removed), or "label" (the label of a row of this kind becomes
            another).
        kinds: of the rows that it touches.
    """

    what: Literal["rows", "edge", "record", "pair", "label"]
    kinds: tuple[Kind, ...]

    @property
    def num_training(self) -> int:
        """How many of the rows are training rows."""
        return self.kinds.count("training")


def rows_emptied(count: int = 1) -> tuple[Change, ...]:
    """`count` rows, of any kinds, are emptied together."""
    if count < 1:
        raise PlanError(f"count={count}: expected 1 row or more")
    return tuple(Change("rows", kinds) for kinds in combinations_with_replacement(KINDS, count))


def row_emptied(kind: Kind) -> tuple[Change, ...]:
    """One row of this kind is emptied."""
    return (Change("rows", (kind,)),)


(TRAINING_ROW,) = row_emptied("training")
ONE_EDGE = tuple(Change("edge", ends) for ends in combinations_with_replacement(KINDS, 2))
ONE_RECORD = tuple(Change("record", (kind,)) for kind in KINDS)
ONE_PAIR = tuple(Change("pair", ends) for ends in combinations_with_replacement(KINDS, 2))
ONE_WAY_PAIR = tuple(Change("pair", (kind,)) for kind in KINDS)
ONE_LABEL = tuple(Change("label", (kind,)) for kind in KINDS)
