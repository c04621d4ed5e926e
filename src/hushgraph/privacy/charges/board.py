"""The price of a board: noisy tallies of ballots of norm 1, released once.

Nothing is charged here: `release_board` in `training/releases.py` does that.

How far a change moves it, where a ballot has norm 1:

| change                  | cast by labelled training rows            | cast by everybody |
|-------------------------|-------------------------------------------|-------------------|
| m rows emptied          | how many of them are training rows        | m                 |
| one undirected edge     | sqrt(how many of its ends are training)   | 4                 |
| one directed record     | 1 if its owner is a training row          | 2                 |
| one label changed       | `label_move` if the row is a training row | the same          |
| all relations of a pair | as below                                  | as edge or record |

Where records have weights, the other records of a row grow when one goes or its weight changes: one ballot,
whose coefficients are 0 or more before and after, moves by at most 2 squared. Two ends move by 1 + 1 at each
other's place and by (1 + 1)^2 at a third one: 6. All records of a pair over several relations move no more.

Where people have several nodes, a row is a person's. One undirected edge then moves a board of labels by as
many as its training ends: a list that becomes empty changes what the other nodes of its person cast, by at
most 1 for each end, and both ends may move the same places. With weights, a person of whom one node casts
moves as a row without persons does, so that 6 and 2 stand. All records of a pair are those between all nodes
of two persons: a ballot of norm 1 may become any other, which is a move of 2 for each training end. Proofs
are in docs/persons.md.

An edge record of a row without a training label changes its reading, and with it the probabilities that it
casts onto a board that everybody casts onto: a ballot of norm 1 may become any other, which is a move of 2
for each end.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from hushgraph._text import digits_down
from hushgraph.privacy.changes import Change
from hushgraph.privacy.charges.gaussian import GaussianCharge


@dataclass(frozen=True, kw_only=True)
class BoardCharge(GaussianCharge):
    """One board; its noise is in units of the norm of one ballot.

    Attributes:
        by_everybody: whether rows without a training label cast a ballot too.
        label_move: the norm by which a ballot changes where its label becomes another; sqrt(2 c / (c - 1))
            for c classes.
        is_weighted: whether records have weights.
        by_person: whether a row is that of a person with several nodes.
    """

    by_everybody: bool = False
    label_move: float = 2.0
    is_weighted: bool = False
    by_person: bool = False

    kind: ClassVar[str] = "board"
    noun: ClassVar[str] = "boards"

    def move(self, change: Change) -> float:
        """See the table above."""
        training = change.num_training
        if change.what == "rows":
            return len(change.kinds) if self.by_everybody else training
        if change.what == "label":
            return self.label_move if training else 0.0
        if self.by_everybody:
            return 2.0 * (1 if change.what == "record" else len(change.kinds))
        if self.by_person and change.what == "pair":
            return 2.0 * training
        if self.by_person and not self.is_weighted:
            return float(training)
        if self.is_weighted or change.what == "pair":
            return math.sqrt((0, 2, 6)[training])
        return math.sqrt(training)

    def to_json(self) -> dict[str, Any]:
        """As in `Charge`; lines of plain boards stay as they were."""
        unused = [name for name in ("is_weighted", "by_person") if not getattr(self, name)]
        return {name: value for name, value in super().to_json().items() if name not in unused}

    @property
    def figures(self) -> tuple[tuple[str, str], ...]:
        """The noise."""
        return ((f"noise of {self.name}, one ballot being 1", digits_down(self.noise_std, digits=6)),)

    @property
    def bounds(self) -> tuple[str, ...]:
        """How far one row moves it, and the noise."""
        spread = digits_down(self.noise_std, digits=3)
        return ("moved by at most 1", f"noise {spread} on every number, once")

    @property
    def sentence(self) -> str:
        """Who casts, and the noise."""
        who = "every row" if self.by_everybody else "every labelled training row"
        return (
            f"A board is released once: {who} casts one ballot of norm 1 onto the places it lists, and noise "
            f"with standard deviation {digits_down(self.noise_std, digits=6)} is added to every number of it."
        )


def name_board(place: int) -> str:
    """What the release of a board is called, by its place in the run, from 0."""
    return f"board-{place + 1}"
