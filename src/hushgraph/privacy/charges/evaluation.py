"""Evaluation: noisy tables of counts of evaluated rows, released once, at the end of a run.

A row adds 1 to one cell of each of the m tables. Given the boards and the weights, its cells are a function
of that row alone. How far a change moves all tables together, in counts:

| change              | evaluated rows it touches | tables move by                              |
|---------------------|---------------------------|---------------------------------------------|
| rows emptied        | e                         | e sqrt(m): they may share their cells       |
| one undirected edge | 1 or 2 of its ends        | sqrt(2 m) or sqrt(8 m), if rows read lists  |
| one directed record | its owner                 | sqrt(2 m), if rows read lists               |
| one label changed   | 1                         | sqrt(2 m)                                   |

A row that changes leaves one cell of each table and enters another, which is a move of sqrt(2); two rows may
leave the same cell and enter the same other, which is twice that.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from hushgraph.privacy.changes import Change
from hushgraph.privacy.charges.gaussian import CountsCharge

FIGURES = "figures"
"""What the release is called."""


@dataclass(frozen=True, kw_only=True)
class EvaluationCharge(CountsCharge):
    """All tables of the validation and test splits, together.

    Attributes:
        num_tables: m, how many cells one row is counted in. A row is in one split, so that the tables of
            further splits do not count again.
        reads_lists: whether a prediction depends on the list of its row, as a reading of a board does.
    """

    num_tables: int
    reads_lists: bool = True
    name: str = FIGURES

    kind: ClassVar[str] = "evaluation"
    noun: ClassVar[str] = "tables"
    use: ClassVar[str] = "Figures about quality are computed from noisy tables"
    who: ClassVar[str] = "labelled row of the validation and test splits, and no training row,"
    number: ClassVar[str] = "tables that one evaluated row is counted in, m"

    @property
    def num_counted(self) -> int:
        """m."""
        return self.num_tables

    def move(self, change: Change) -> float:
        """See the table above."""
        evaluated = change.kinds.count("evaluated")
        if change.what == "rows":
            return evaluated * self.row_move
        if change.what != "label" and not self.reads_lists:
            return 0.0
        return evaluated * math.sqrt(2 * self.num_tables)
