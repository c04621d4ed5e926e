"""The boards of a run as one, and the weight of every place on it: functions of the boards alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from hushgraph import _arrays
from hushgraph.billboard.board import Board

# Places that are computed with at a time.
_PLACES = 1 << 14


def combine_boards(
    boards: Sequence[Board], *, centred: bool = True, in_place: bool = False
) -> tuple[Board, tuple[float, ...]]:
    """The mean of several boards by precision, and the part of each in it; a function of the boards alone.

    Args:
        boards: of one graph, all with noise or all without.
        centred: whether ballots add up to 0, as `Task.is_centred` says. The mean over the numbers of a place
            is then noise and is taken off.
        in_place: whether the first of them is written over, where that is possible.
    """
    precisions = np.array([1 / board.noise_std**2 if board.noise_std else 1.0 for board in boards])
    parts = tuple((precisions / precisions.sum()).tolist())
    first = boards[0].values
    # What is mapped from a file of a run is not written to.
    is_own = in_place and first.flags.writeable
    values = first if is_own else _arrays.looked_up(first.shape, np.float32)
    for begin in range(0, len(values), _PLACES):
        block = np.zeros_like(values[begin : begin + _PLACES])
        for part, board in zip(parts, boards, strict=True):
            block += np.float32(part) * board.values[begin : begin + _PLACES]
        values[begin : begin + _PLACES] = block - block.mean(axis=1, keepdims=True) if centred else block
    std = float(precisions.sum() ** -0.5) if boards[0].noise_std else 0.0
    return replace(boards[0], values=values, noise_std=std), parts


def place_weights(board: Board, *, damped: bool = True) -> npt.NDArray[np.float64]:
    """float64 [N]: the weight of every place; a function of the board alone.

    Args:
        board: what was released.
        damped: turn down loud places; else every weight is 1.

    A board without noise is damped as if its noise were as large as one ballot.
    """
    if not damped:
        return np.ones(board.num_places)
    std, c = board.noise_std or 1.0, board.width
    weights = _arrays.looked_up(board.num_places, np.float64)
    for begin in range(0, board.num_places, _PLACES):
        block = board.values[begin : begin + _PLACES].astype(np.float64) / std
        loudness = np.maximum(np.square(block).sum(axis=1) - c, 0.0) / c
        weights[begin : begin + _PLACES] = 1 / np.sqrt(1 + loudness)
    return weights
