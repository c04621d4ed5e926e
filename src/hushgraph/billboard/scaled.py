"""Readings as inputs of a model: scaled, with what else is free beside them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from hushgraph import _arrays
from hushgraph._arrays import Float32Array
from hushgraph.billboard.board import Board
from hushgraph.billboard.lists import find_starts

# Rows that are scaled at a time.
_SCALED_ROWS = 1 << 14


def scale_readings(
    readings: Float32Array, board: Board, *, scale: float, radius: float, in_place: bool = False
) -> Float32Array:
    """Scale readings for the model; the result of a row depends on its reading and public numbers alone.

    Args:
        readings: float32 [R, width], or of every relation, side by side; each is scaled by itself.
        board: the board that was read; without noise, one ballot is the unit.
        scale: the value of one standard deviation of the noise.
        radius: readings are shrunk so that their norm stays below this.
        in_place: whether `readings` are written over.
    """
    result = readings if in_place else readings.copy()
    scaled = result.reshape(-1, board.width)
    for begin in range(0, len(scaled), _SCALED_ROWS):
        block = scaled[begin : begin + _SCALED_ROWS]
        block *= np.float32(scale / (board.noise_std or 1.0))
        squares = np.square(block).sum(axis=1, keepdims=True)
        block /= np.sqrt(1 + squares / np.float32(radius**2))
    return result


def add_free_inputs(
    readings: Float32Array,
    board: Board,
    sizes: npt.NDArray[Any],
    *,
    list_size: float,
    own_places: npt.NDArray[Any] | None,
    scale: float,
    radius: float,
) -> Float32Array:
    """Readings with what else is free: functions of a row's own list and of the board.

    Args:
        readings: float32 [R, width], scaled.
        board: the board that was read.
        sizes: [R], how many places every row lists.
        list_size: what their logarithm is multiplied by in one column more; 0 for none.
        own_places: [R], the number of every row among the nodes, -1 for a row that has none and reads 0
            there; None leaves out the columns of the board at one's own place, of every relation that has
            nodes as places.
        scale, radius: as in `scale_readings`.
    """
    starts = [] if own_places is None else _find_nodes(board)
    width = readings.shape[1] + len(starts) * board.width + bool(list_size)
    if width == readings.shape[1]:
        return readings
    joined = _arrays.empty((len(readings), width), np.float32)
    for begin in range(0, len(readings), _SCALED_ROWS):
        rows = slice(begin, begin + _SCALED_ROWS)
        joined[rows, : readings.shape[1]] = readings[rows]
        at = readings.shape[1]
        for start in starts:
            places = np.asarray(own_places)[rows]
            own = np.zeros((len(places), board.width), np.float32)
            own[places >= 0] = board.values[start + places[places >= 0]]
            joined[rows, at : at + board.width] = scale_readings(
                own, board, scale=scale, radius=radius, in_place=True
            )
            at += board.width
        if list_size:
            joined[rows, at] = np.log1p(sizes[rows]) * list_size
    return joined


def _find_nodes(board: Board) -> list[int]:
    """Where blocks of nodes begin on a board."""
    starts = find_starts(board.blocks).tolist()
    nodes = [start for start, block in zip(starts, board.blocks, strict=False) if block.kind == "nodes"]
    return nodes if board.blocks else [0]
