"""Ballots and readings of some rows at a time, in tables of Spark."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from hushgraph.billboard.ballots import ballot_entries, ballots_of_lists
from hushgraph.billboard.board import Board
from hushgraph.billboard.combined import combine_boards, place_weights
from hushgraph.billboard.own_parts import take_off
from hushgraph.billboard.reading import normalise
from hushgraph.billboard.scaled import scale_readings
from hushgraph.tasks.classes import Classes

if TYPE_CHECKING:
    import pandas as pd


def add_entries(tables: Iterator[pd.DataFrame], *, num_classes: int) -> Iterator[pd.DataFrame]:
    """What every row adds to its class beyond the rest, and takes from all classes, in units."""
    for table in tables:
        own, rest = ballot_entries(
            table["size"].to_numpy(np.int64), Classes(num_classes=num_classes).entry_squares
        )
        yield table[["id", "label"]].rename(columns={"id": "owner"}).assign(gain=own + rest, rest=rest)


def weigh_places(tables: Iterator[pd.DataFrame], *, name: str, noise_std: float) -> Iterator[pd.DataFrame]:
    """The released numbers as they are read, and the weight of every place."""
    for table in tables:
        names = [column for column in table.columns if column.startswith("class_")]
        values = np.ascontiguousarray(table[names].to_numpy(np.float32))
        board, _ = combine_boards([Board(values=values, noise_std=noise_std)])
        cells = {f"value_{k}": board.values[:, k].astype(np.float64) for k in range(len(names))}
        renamed = table[[name]].rename(columns={name: "place"})
        yield renamed.assign(weight=place_weights(board), **cells)


def read_rows(
    tables: Iterator[pd.DataFrame], *, num_classes: int, noise_std: float, scale: float, radius: float
) -> Iterator[pd.DataFrame]:
    """Readings from sums over places: own ballots taken off, normalised, in public units."""
    for table in tables:
        sums = np.ascontiguousarray(table[[f"value_{k}" for k in range(num_classes)]].to_numpy(np.float64))
        sizes, labels = table["size"].to_numpy(np.int64), table["label"].to_numpy(np.int64)
        ballots = ballots_of_lists(sizes, labels, "sender", task=Classes(num_classes=num_classes))
        take_off(sums, table["own_weight"].to_numpy(np.float64), ballots)
        readings = normalise(sums, table["square"].to_numpy(np.float64))
        board = Board(values=np.zeros((1, num_classes), np.float32), noise_std=noise_std)
        scaled = scale_readings(readings, board, scale=scale, radius=radius)
        yield table[["id"]].assign(**{f"reading_{k}": scaled[:, k] for k in range(num_classes)})
