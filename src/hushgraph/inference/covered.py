"""What a billboard model sees of a row: its own features and its own readings, nothing of other rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from hushgraph.billboard.ballots import Ballots
from hushgraph.billboard.board import Board
from hushgraph.billboard.reading import combine_boards, read
from hushgraph.errors import InputError
from hushgraph.gradients.batch import Features
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
    """float32 [N, classes]: the reading of every node from all boards together, in public units.

    Args:
        boards: what was released.
        graph: whose lists are read.
        edge_owner: whose row holds an edge record.
        own: what was cast onto each board, taken off its casters' readings.
        scale, radius: as in `scale_readings`.
    """
    board, parts = combine_boards(boards)
    readings = read(board, graph, edge_owner, own=list(zip(parts, own, strict=True)))
    return scale_readings(readings, board, scale=scale, radius=radius)


def scale_readings(readings: Float32Array, board: Board, *, scale: float, radius: float) -> Float32Array:
    """Readings as the model takes them, each from itself and public numbers alone.

    Args:
        readings: float32 [R, classes].
        board: what was read; one without noise counts ballots.
        scale: one standard deviation of the noise becomes this number.
        radius: readings are shortened so that their norm stays below this.
    """
    scaled = readings * np.float32(scale / (board.noise_std or 1.0))
    squares = np.square(scaled).sum(axis=1, keepdims=True)
    shortened: Float32Array = scaled / np.sqrt(1 + squares / np.float32(radius**2))
    return shortened


class RowTable(Features):
    """Rows of (own features, own readings): every row of features scaled to one norm, readings behind it.

    Args:
        graph: whose features are taken; dense, sparse or stored.
        readings: float32 [N, k].
        device: to compute on.
        feature_norm: every row of features is scaled to this norm, from that row alone; 0 leaves them.
    """

    def __init__(
        self, graph: Graph, readings: Float32Array, device: torch.device | str, *, feature_norm: float
    ) -> None:
        super().__init__(graph, device)
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

    def _join(self, features: Tensor, readings: Tensor) -> Tensor:
        return torch.cat([scale_rows(features, self._feature_norm), readings], dim=1)


def scale_rows(features: Tensor, norm: float) -> Tensor:
    """Scale every row to this norm; 0 leaves them. Rows of almost nothing stay almost nothing."""
    if not norm:
        return features
    norms: Tensor = torch.linalg.vector_norm(features, dim=1, keepdim=True)
    return features * (norm / norms.clamp(min=1e-12))


def average_over_neighbours(probabilities: Tensor, graph: Graph) -> Tensor:
    """A node's own log-probabilities plus the mean of its neighbours', which are read in the clear."""
    logs = probabilities.cpu().clamp(min=1e-12).log()
    counts = torch.from_numpy(np.diff(graph.indptr).astype(np.int64))
    readers = torch.repeat_interleave(torch.arange(graph.num_nodes), counts)
    sources = torch.from_numpy(np.asarray(graph.indices).astype(np.int64))
    sums = torch.zeros_like(logs).index_add_(0, readers, logs[sources])
    total = logs + sums / counts.clamp(min=1)[:, None]
    return total.softmax(1).to(probabilities.device)


def score_table(model: nn.Module, graph: Graph, table: RowTable) -> Tensor:
    """float32 [N, classes]: the scores of every row of the table."""
    return scores(model, WholeGraph(graph, table), depth=0)


def check_width(given: int, wanted: int) -> None:
    """Refuse rows that have not as many features as the model was trained on."""
    if given != wanted:
        raise InputError(
            f"the rows have {given} features, the model was trained on {wanted}; give the same columns"
        )
