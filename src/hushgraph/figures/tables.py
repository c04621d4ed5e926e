"""Tables of counts of evaluated rows: counted, given noise once, and the file that keeps them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from hushgraph._files import write_once
from hushgraph.errors import RunError
from hushgraph.noise import normal
from hushgraph.noise.rounded import Draws, find_divisor, find_std, round_draws
from hushgraph.tasks.task import Task

Int64Array = npt.NDArray[np.int64]
Counts = tuple[Int64Array, ...]
"""The tables of one split in the order of `Task.tables`; with groups, each has an axis of them in front."""
FORMAT = 1


class Scored(NamedTuple):
    """Rows with what the model says of them.

    Attributes:
        shown: float [rows, num_outputs], what `Task.show` gives.
        labels: of the rows, as the task has them.
        groups: int64 [rows], the declared group of every row, -1 for none of them; None without groups.
    """

    shown: npt.NDArray[Any]
    labels: npt.NDArray[Any]
    groups: Int64Array | None = None


def count_rows(task: Task, parts: Iterable[Scored], *, num_groups: int = 0) -> Counts:
    """Count rows in the tables of a task.

    Args:
        task: says which tables there are, and in which cell of each a row is.
        parts: the rows of one split, in as many parts as is convenient.
        num_groups: how many declared groups there are; 0 if the tables have no axis of groups.

    Guarantees:
        A row adds a vector of norm at most sqrt(m), or nothing: one without a label, or of no declared group,
        is counted nowhere. What it adds depends on that row alone.
    """
    sizes = [int(np.prod(table.shape)) for table in task.tables]
    counts = [np.zeros((max(1, num_groups), size), np.int64) for size in sizes]
    for part in parts:
        shown, groups = np.asarray(part.shown, np.float64), np.zeros(len(part.labels), np.int64)
        is_counted = np.ones(len(groups), np.bool_)
        if num_groups:
            if part.groups is None:
                raise RunError("groups: the rows have none, and the run counts by group; give its own data")
            groups, is_counted = part.groups, part.groups >= 0
        first = 0
        for table, size, count in zip(task.tables, sizes, counts, strict=True):
            if table.grid > 1:
                np.add.at(count, groups[is_counted], task.measure(shown, part.labels)[is_counted])
                continue
            cells = task.locate(shown, part.labels)[:, first : first + table.cells_of_a_row]
            first += table.cells_of_a_row
            rows = is_counted & (cells >= 0).all(axis=1)
            flat = (groups[rows, None] * size + cells[rows]).reshape(-1)
            count += np.bincount(flat, minlength=count.size).reshape(count.shape)
    axes = (num_groups,) if num_groups else ()
    return tuple(count.reshape(*axes, *table.shape) for count, table in zip(counts, task.tables, strict=True))


@dataclass(frozen=True, kw_only=True, eq=False)
class NoisyTables:
    """What is released: noisy counts of every evaluated split.

    Attributes:
        splits: the tables of "val" and "test", as far as the data has these splits.
        noise_std: the standard deviation of the noise on every cell, before rounding to integers.
        groups: names of the declared groups; empty if the tables have no axis of groups.
        grids: how many steps one count has in every table; all 1 unless given.
        plan: the fingerprint of the plan that paid for them.
    """

    splits: Mapping[str, Counts]
    noise_std: float
    groups: tuple[str, ...] = ()
    grids: tuple[int, ...] = ()
    plan: str = ""

    @property
    def counts(self) -> dict[str, list[npt.NDArray[np.float64]]]:
        """The tables in counts, by split."""
        return {
            split: [
                table / grid for table, grid in zip(tables, self.grids or (1,) * len(tables), strict=True)
            ]
            for split, tables in self.splits.items()
        }

    @property
    def digest(self) -> str:
        """What tells these tables from any other."""
        return hashlib.sha256(json.dumps(self.to_json(), sort_keys=True).encode()).hexdigest()

    def to_json(self) -> dict[str, Any]:
        """The tables as JSON values."""
        return {
            "format": FORMAT,
            "plan": self.plan,
            "noise_std": self.noise_std.hex(),
            "groups": list(self.groups),
            "grids": list(self.grids),
            "tables": {split: [table.tolist() for table in tables] for split, tables in self.splits.items()},
        }


def release_tables(
    counts: Mapping[str, Counts],
    *,
    noise_std: float,
    draws: Draws = normal.draw,
    groups: tuple[str, ...] = (),
    grids: tuple[int, ...] = (),
    plan: str = "",
) -> NoisyTables:
    """Add noise to all tables of a run, once. Charge it before; a second call is a second charge.

    Args:
        counts: what `count_rows` gave, by split.
        noise_std: s, in counts; above 0.
        draws: the randomness. Every release needs draws of its own.
        groups, grids, plan: as in `NoisyTables`.

    Guarantees:
        A noisy count is a function of count + N(0, s'^2), s' >= s, and of nothing else about the rows: the
        Gaussian mechanism, rounded to integers (`round_draws` has the proof).
    """
    noisy: dict[str, Counts] = {}
    stds = [noise_std]
    for split, tables in counts.items():
        added = []
        for table, grid in zip(tables, grids or (1,) * len(tables), strict=True):
            divisor = find_divisor(noise_std, grid=grid)
            added.append(table + round_draws(draws(table.size), divisor).reshape(table.shape))
            stds.append(find_std(divisor, grid=grid))
        noisy[split] = tuple(added)
    return NoisyTables(splits=noisy, noise_std=max(stds), groups=groups, grids=grids, plan=plan)


def save_tables(tables: NoisyTables, path: Path, announce: Callable[[], None] = lambda: None) -> None:
    """Write these tables into a new file; `announce` is called when they are about to be visible on disk."""
    # In the order of the splits, so that figures of tables that are read again come in the same order.
    write_once(path, json.dumps(tables.to_json()).encode(), announce)


def load_tables(path: Path, *, plan: str) -> NoisyTables:
    """The tables that `save_tables` wrote; RunError where they are missing, damaged or of another run."""
    try:
        values = json.loads(path.read_text())
        if values["format"] != FORMAT:
            raise RunError(
                f"run={path.parent}: {path.name} has format {values['format']!r}; update hushgraph"
            )
        splits = {
            str(split): tuple(np.asarray(table, np.int64) for table in tables)
            for split, tables in values["tables"].items()
        }
        tables = NoisyTables(
            splits=splits,
            noise_std=float.fromhex(values["noise_std"]),
            groups=tuple(map(str, values["groups"])),
            grids=tuple(map(int, values["grids"])),
            plan=str(values["plan"]),
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        reason = type(error).__name__
        raise RunError(
            f"run={path.parent}: {path.name} is missing or damaged ({reason}); restore it"
        ) from None
    if tables.plan != plan:
        raise RunError(f"run={path.parent}: {path.name} belongs to another run; restore the one of this run")
    return tables
