"""Ballots and readings of some rows at a time: of ranges of sorted records, and of tables of Spark."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from hushgraph.billboard.ballots import (
    Ballots,
    Int64Array,
    add_label_ballots,
    ballot_entries,
    ballots_of_lists,
)
from hushgraph.billboard.board import Board
from hushgraph.billboard.reading import (
    NOTHING,
    add_own,
    add_records,
    combine_boards,
    normalise,
    place_weights,
    scale_readings,
    take_off,
)
from hushgraph.engines.records import Int32Array, Records
from hushgraph.tasks.classes import Classes

if TYPE_CHECKING:
    import pandas as pd

Float32Array = npt.NDArray[np.float32]

# Rows whose ballots are computed at a time.
_BLOCK = 1 << 20


def list_entries(
    sizes: Int32Array, labels: Int32Array, num_classes: int
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """int32 [N] each: what a row adds to its class beyond the rest, and what it takes from all classes."""
    gain, rest = np.empty(len(sizes), np.int32), np.empty(len(sizes), np.int32)
    for begin in range(0, len(sizes), _BLOCK):
        block = slice(begin, begin + _BLOCK)
        # The owner of edges makes no difference to what is cast.
        ballots = ballots_of_lists(
            sizes[block].astype(np.int64),
            labels[block].astype(np.int64),
            "sender",
            task=Classes(num_classes=num_classes),
        )
        gain[block], rest[block] = ballots.own + ballots.rest, ballots.rest
    return gain, rest


def cast_range(
    records: Records,
    begin: int,
    end: int,
    labels: Int32Array,
    gain: Int32Array,
    rest: Int32Array,
    num_classes: int,
) -> Int64Array:
    """int64 [end - begin, c]: the tally of these places. Private."""
    tally = np.zeros((end - begin, num_classes), np.int64)
    taken = np.zeros(end - begin, np.int64)
    for owners, places in records.of_places(begin):
        owners, places = _within(owners, places, places, begin, end)
        add_label_ballots(owners, places - begin, labels, gain, rest, tally, taken)
    tally -= taken[:, None]
    return tally


def read_range(
    records: Records, begin: int, end: int, board: Board, weights: npt.NDArray[np.float64], ballots: Ballots
) -> Float32Array:
    """float32 [end - begin, c]: the readings of these rows, their own ballots taken off."""
    count = end - begin
    sums, slots = np.zeros((count, board.width)), np.arange(count)
    square, own_weight = np.zeros(count), np.zeros(count)
    for owners, places in records.of_owners(begin):
        owners, places = _within(owners, places, owners, begin, end)
        owners = owners - begin
        add_records(owners, places, slots, weights, board.values, sums, square)
        add_own(owners, places, slots, weights, own_weight, NOTHING, np.empty(0, np.int32), False)
    take_off(sums, own_weight, ballots, slots)
    return normalise(sums, square)


def _within(
    owners: Int64Array, places: Int64Array, keys: Int64Array, begin: int, end: int
) -> tuple[Int64Array, Int64Array]:
    """The records whose key is in the range; all of them where the file holds no others."""
    inside = (keys >= begin) & (keys < end)
    return (owners, places) if inside.all() else (owners[inside], places[inside])


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
        take_off(sums, table["own_weight"].to_numpy(np.float64), ballots, np.arange(len(sums)))
        readings = normalise(sums, table["square"].to_numpy(np.float64))
        board = Board(values=np.zeros((1, num_classes), np.float32), noise_std=noise_std)
        scaled = scale_readings(readings, board, scale=scale, radius=radius)
        yield table[["id"]].assign(**{f"reading_{k}": scaled[:, k] for k in range(num_classes)})
