"""What a session asks of whatever holds its rows; what `--engine` chooses is in `datasets/engine.py`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple, Protocol

import torch
from torch import nn

from hushgraph.figures.tables import Scored
from hushgraph.privacy.ledger import Ledger
from hushgraph.training.distributed import Group
from hushgraph.training.parts import ClippedSum, Parts
from hushgraph.training.trainer import Batches, State, UnclippedSum


class StepParts(NamedTuple):
    """What steps are computed from."""

    batches: Batches
    clipped_sum: ClippedSum
    unclipped_sum: UnclippedSum


class View(Protocol):
    """Rows as steps and figures see them, once they have read every board so far."""

    def build_steps(self, state: State, *, key: int, group: Group, parts: Parts) -> StepParts:
        """Batches of rows, drawn with `key`, and how their gradients are added up."""
        ...

    def score(self, model: nn.Module, split: str) -> Iterator[Scored]:
        """The rows of a split ("train", "val", "test") and what the model says of them, part by part."""
        ...


class BoardSource(Protocol):
    """Tallies the ballots of rows, and keeps what was released of them."""

    def find_board(self, place: int, ledger: Ledger) -> bool:
        """Whether a board is there; RunError where it was released and is missing, or is another one."""
        ...

    def make_board(self, place: int, ledger: Ledger) -> None:
        """Tally, add noise and write; record the digest in the ledger before the file gets its name."""
        ...


class Source(BoardSource, Protocol):
    """Where the rows of a run are. `Memory` is the one in this package; others come from outside."""

    @property
    def num_nodes(self) -> int:
        """How many nodes the graph has."""
        ...

    @property
    def device(self) -> torch.device:
        """Where the model is trained."""
        ...

    @property
    def resume_call(self) -> str:
        """What to call to go on with an interrupted run."""
        ...

    def list_facts(self) -> Mapping[str, str]:
        """What must be the same in all processes of a group."""
        ...

    def check(self, ledger: Ledger) -> None:
        """Refuse to go on with a run, before anything is charged, where a released board is missing."""
        ...

    def prepare(self, model: nn.Module) -> None:
        """Load what steps need; called once scaling is released and before the first board is made."""
        ...

    def read(self, place: int) -> View:
        """Let every row read all boards up to this one, where the run has boards."""
        ...
