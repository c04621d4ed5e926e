"""The input of a billboard model: a row's own features and its own reading, nothing of other rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from hushgraph.billboard.ballots import Ballots
from hushgraph.billboard.board import Board, combine_boards, read
from hushgraph.errors import InputError
from hushgraph.gradients.batch import RowTable
from hushgraph.graph.graph import EdgeOwner, Graph
from hushgraph.inference.in_memory import WholeGraph, scores

Float32Array = npt.NDArray[np.float32]


def read_boards(
    boards: Sequence[Board],
    graph: Graph,
    edge_owner: EdgeOwner,
    *,
    own: Sequence[Ballots],
    scale: float,
    radius: float,
) -> Float32Array:
    """Read all boards together for every node, float32 [N, classes], in public units.

    Args:
        boards: the released boards.
        graph: the graph whose lists are used.
        edge_owner: whose row holds an edge record.
        own: the ballots cast onto each board; a row's own ballot is subtracted from its reading.
        scale, radius: as in `scale_readings`.
    """
    board, parts = combine_boards(boards)
    readings = read(board, graph, edge_owner, own=list(zip(parts, own, strict=True)))
    return scale_readings(readings, board, scale=scale, radius=radius)


def scale_readings(readings: Float32Array, board: Board, *, scale: float, radius: float) -> Float32Array:
    """Scale readings for the model; the result of a row depends on its reading and public numbers alone.

    Args:
        readings: float32 [R, classes].
        board: the board that was read; without noise, one ballot is the unit.
        scale: the value of one standard deviation of the noise.
        radius: readings are shrunk so that their norm stays below this.
    """
    scaled = readings * np.float32(scale / (board.noise_std or 1.0))
    squares = np.square(scaled).sum(axis=1, keepdims=True)
    shrunk: Float32Array = scaled / np.sqrt(1 + squares / np.float32(radius**2))
    return shrunk


def average_over_neighbours(probabilities: Tensor, graph: Graph) -> Tensor:
    """Add the mean of the neighbours' log-probabilities, read in the clear, to a node's own."""
    logs = probabilities.cpu().clamp(min=1e-12).log()
    counts = torch.from_numpy(np.diff(graph.indptr).astype(np.int64))
    readers = torch.repeat_interleave(torch.arange(graph.num_nodes), counts)
    sources = torch.from_numpy(np.asarray(graph.indices).astype(np.int64))
    sums = torch.zeros_like(logs).index_add_(0, readers, logs[sources])
    total = logs + sums / counts.clamp(min=1)[:, None]
    return total.softmax(1).to(probabilities.device)


def score_table(model: nn.Module, graph: Graph, table: RowTable) -> Tensor:
    """Compute the scores of all rows of a table, float32 [N, classes]."""
    return scores(model, WholeGraph(graph, table), depth=0)


def check_width(given: int, expected: int) -> None:
    """Raise InputError if rows do not have as many features as the model was trained on."""
    if given != expected:
        raise InputError(
            f"the rows have {given} features, the model was trained on {expected}; give the same columns"
        )
