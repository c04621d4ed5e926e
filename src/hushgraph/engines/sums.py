"""Tallies and readings of a range of rows, from sorted records that are streamed from disk."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from hushgraph.billboard.ballots import Ballots, Int64Array, add_label_ballots, ballots_of_lists
from hushgraph.billboard.board import Board
from hushgraph.billboard.reading import NOTHING, add_own, add_records, normalise, take_off
from hushgraph.engines.records import Int32Array, Records

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
            sizes[block].astype(np.int64), labels[block].astype(np.int64), "sender", num_classes=num_classes
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
    sums, slots = np.zeros((count, board.num_classes)), np.arange(count)
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
