"""Tables of counts of evaluated rows: counted, and given noise once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from hushgraph._arrays import Int64Array
from hushgraph.errors import RunError
from hushgraph.graph.persons import PERSON_GRID
from hushgraph.noise import normal
from hushgraph.noise.counts import NoisyCounts, add_noise
from hushgraph.noise.rounded import Draws
from hushgraph.tasks.task import Task

Counts = tuple[Int64Array, ...]
"""The tables of one split in the order of `Task.tables`; with groups, each has an axis of them in front."""


class Scored(NamedTuple):
    """Rows with what the model says of them.

    Attributes:
        shown: float [rows, num_outputs], what `Task.show` gives.
        labels: of the rows, as the task has them.
        groups: int64 [rows], the declared group of every row, -1 for none of them; None without groups.
        shares: int64 [rows], what every row counts in steps of `PERSON_GRID`, where people have several; None
            where every row counts 1.
    """

    shown: npt.NDArray[Any]
    labels: npt.NDArray[Any]
    groups: Int64Array | None = None
    shares: Int64Array | None = None


def choose_grids(task: Task, *, by_person: bool) -> tuple[int, ...]:
    """How many steps one count has in every table; with several rows a person, each counts a part of 1."""
    return tuple(max(table.grid, PERSON_GRID if by_person else 1) for table in task.tables)


def count_rows(task: Task, parts: Iterable[Scored], *, num_groups: int = 0) -> Counts:
    """Count rows in the tables of a task.

    Args:
        task: says which tables there are, and in which cell of each a row is.
        parts: the rows of one split, in as many parts as is convenient.
        num_groups: how many declared groups there are; 0 if the tables have no axis of groups.

    Guarantees:
        A row adds a vector of norm at most sqrt(m), or nothing: one without a label, or of no declared group,
        is counted nowhere. What it adds depends on that row alone. Rows with shares add, those of a person
        together, a vector of norm at most sqrt(m) times the grid of `choose_grids`.
    """
    counts = [np.zeros((max(1, num_groups), *table.shape), np.int64) for table in task.tables]
    for part in parts:
        shown, groups = np.asarray(part.shown, np.float64), np.zeros(len(part.labels), np.int64)
        is_counted = np.ones(len(groups), np.bool_)
        if num_groups:
            if part.groups is None:
                raise RunError("groups: the rows have none, and the run counts by group; give its own data")
            groups, is_counted = part.groups, part.groups >= 0
        cells, steps = task.locate(shown, part.labels), task.measure(shown, part.labels)
        grids = choose_grids(task, by_person=part.shares is not None)
        first = 0
        for table, count, grid in zip(task.tables, counts, grids, strict=True):
            own = slice(first, first + table.cells_of_a_row)
            first = own.stop
            rows = is_counted & (cells[:, own] >= 0).all(axis=1)
            flat = groups[rows, None] * count[0].size + cells[rows, own]
            added = steps[rows, own]
            if part.shares is not None:
                # Rounded towards zero, so that no norm grows.
                sizes = np.abs(added) * (grid // table.grid) * part.shares[rows, None] // PERSON_GRID
                added = np.sign(added) * sizes
            np.add.at(count.reshape(-1), flat, added)
    return tuple(counts if num_groups else (count[0] for count in counts))


@dataclass(frozen=True, kw_only=True, eq=False)
class NoisyTables(NoisyCounts):
    """What is released: noisy counts of every evaluated split.

    Attributes:
        splits: the tables of "val" and "test", as far as the data has these splits.
        groups: names of the declared groups; empty if the tables have no axis of groups.
        grids: how many steps one count has in every table; all 1 unless given.
    """

    splits: Mapping[str, Counts]
    groups: tuple[str, ...] = ()
    grids: tuple[int, ...] = ()

    @property
    def counts(self) -> dict[str, list[npt.NDArray[np.float64]]]:
        """The tables in counts, by split."""
        return {
            split: [table / grid for table, grid in _pair_grids(tables, self.grids)]
            for split, tables in self.splits.items()
        }

    def write_tables(self) -> dict[str, Any]:
        """Tables by split, in the order of the splits: figures of tables that are read come in the same."""
        return {
            "groups": list(self.groups),
            "grids": list(self.grids),
            "tables": {split: [table.tolist() for table in tables] for split, tables in self.splits.items()},
        }

    @classmethod
    def read_tables(cls, values: Mapping[str, Any]) -> dict[str, Any]:
        """See `NoisyCounts`."""
        splits = {
            split: tuple(np.asarray(table, np.int64) for table in tables)
            for split, tables in values["tables"].items()
        }
        return {"splits": splits, "groups": tuple(values["groups"]), "grids": tuple(values["grids"])}


def release_tables(
    counts: Mapping[str, Counts],
    *,
    noise_std: float,
    draws: Draws = normal.draw,
    groups: tuple[str, ...] = (),
    grids: tuple[int, ...] = (),
    plan: str = "",
) -> NoisyTables:
    """Add noise to all tables of a run, once, as `add_noise` says.

    Args:
        counts: what `count_rows` gave, by split.
        noise_std, draws: as in `add_noise`.
        groups, grids, plan: as in `NoisyTables`.
    """
    noisy = {
        split: [
            add_noise(table, noise_std=noise_std, draws=draws, grid=grid)
            for table, grid in _pair_grids(tables, grids)
        ]
        for split, tables in counts.items()
    }
    return NoisyTables(
        splits={split: tuple(table for table, _ in tables) for split, tables in noisy.items()},
        noise_std=max([noise_std, *(std for tables in noisy.values() for _, std in tables)]),
        groups=groups,
        grids=grids,
        plan=plan,
    )


def _pair_grids(tables: Counts, grids: tuple[int, ...]) -> Iterable[tuple[Int64Array, int]]:
    return zip(tables, grids or (1,) * len(tables), strict=True)
