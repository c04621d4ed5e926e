"""The input of a billboard model: a row's own features and its own reading, nothing of other rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from hushgraph.billboard.ballots import Ballots
from hushgraph.billboard.board import Board, combine_boards, read
from hushgraph.errors import InputError
from hushgraph.gradients.batch import Features, scale_rows
from hushgraph.gradients.rows import Rows
from hushgraph.graph.graph import EdgeOwner, Graph
from hushgraph.inference.in_memory import WholeGraph, scores

Float32Array = npt.NDArray[np.float32]
# Rows that are scaled at a time.
_SCALED_ROWS = 1 << 14


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
    return scale_readings(readings, board, scale=scale, radius=radius, in_place=True)


def scale_readings(
    readings: Float32Array, board: Board, *, scale: float, radius: float, in_place: bool = False
) -> Float32Array:
    """Scale readings for the model; the result of a row depends on its reading and public numbers alone.

    Args:
        readings: float32 [R, classes].
        board: the board that was read; without noise, one ballot is the unit.
        scale: the value of one standard deviation of the noise.
        radius: readings are shrunk so that their norm stays below this.
        in_place: whether `readings` are written over.
    """
    scaled = readings if in_place else readings.copy()
    scaled *= np.float32(scale / (board.noise_std or 1.0))
    for begin in range(0, len(scaled), _SCALED_ROWS):
        block = scaled[begin : begin + _SCALED_ROWS]
        squares = np.square(block).sum(axis=1, keepdims=True)
        block /= np.sqrt(1 + squares / np.float32(radius**2))
    return scaled


class RowTable(Features):
    """Rows of (own features, own reading); all rows of features are scaled to one norm.

    Args:
        graph: the graph with the features: dense, sparse or stored.
        readings: float32 [N, k].
        device: the device to compute on.
        feature_norm: the norm of every row of features; 0 leaves the features unscaled.
    """

    def __init__(
        self, graph: Graph, readings: Float32Array, device: torch.device | str, *, feature_norm: float
    ) -> None:
        super().__init__(graph, device)
        self.readings = readings
        self._readings = torch.from_numpy(readings).to(self.device)
        self._feature_norm = feature_norm
        self.width += readings.shape[1]
        if self._dense is not None:
            self._dense = self._join(self._dense, self._readings)

    def rows(self, nodes: npt.NDArray[np.int64]) -> Tensor:
        """float32 [len(nodes), d + k]."""
        if self._dense is not None:
            return super().rows(nodes)
        index = torch.from_numpy(np.asarray(nodes, np.int64)).to(self.device)
        return self._join(super().rows(nodes), self._readings.index_select(0, index))

    def take(self, nodes: npt.NDArray[np.int64], *, norm: float = 0.0) -> Rows:
        """The rows of these nodes, with labels; sparse features stay sparse. They are scaled already."""
        if not self.is_sparse:
            return super().take(nodes)
        rows = super().take(nodes, norm=self._feature_norm)
        return replace(rows, dense=self._readings[torch.from_numpy(nodes).to(self.device)].cpu().numpy())

    def _join(self, features: Tensor, readings: Tensor) -> Tensor:
        return torch.cat([scale_rows(features, self._feature_norm), readings], dim=1)


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
