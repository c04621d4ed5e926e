"""The features of a graph on a device, with readings of boards or without."""

from __future__ import annotations

import threading
from dataclasses import replace

import numba
import numpy as np
import numpy.typing as npt
import torch
from scipy import sparse
from torch import Tensor

from hushgraph import _arrays
from hushgraph.graph.graph import Graph
from hushgraph.inputs.rows import NO_SPARSE_ROWS, Rows, SparseRows, square_rows
from hushgraph.inputs.sparse_inputs import SparseInputs
from hushgraph.models.gnn import row_scales, scale_rows


class Features:
    """The features of a graph on a device.

    Whether features are sparse follows from how they were given, never from what they hold.
    """

    def __init__(self, graph: Graph, device: torch.device | str = "cpu") -> None:
        self._graph = graph
        self.device = torch.device(device)
        self.num_nodes = graph.num_nodes
        self.is_part = graph.is_part
        self.task = graph.task
        self.width = graph.num_features
        self._dense: Tensor | None = None
        self.is_sparse = sparse.issparse(graph.x)
        if isinstance(graph.x, np.ndarray):
            self._dense = torch.from_numpy(graph.x).to(self.device)
        self._sparse: SparseInputs | None = None
        self._sparse_rows: SparseRows | None = None
        self._scales: dict[float, npt.NDArray[np.float32] | None] = {}
        self._squares: dict[float, npt.NDArray[np.float64]] = {}
        self._positions: np.ndarray | None = None
        self._lock = threading.Lock()

    def rows(self, nodes: np.ndarray) -> Tensor:
        """float32 [len(nodes), d]."""
        if self._dense is not None:
            return self._dense.index_select(0, torch.from_numpy(nodes).to(self.device))
        if self.is_sparse and self.device.type != "cpu":
            # Written out where they are needed: what is moved between devices stays small.
            return self._all_sparse().take(torch.from_numpy(nodes).to(self.device)).dense
        return torch.from_numpy(self._graph.dense_features(nodes)).to(self.device)

    def all(self) -> Tensor:
        """float32 [num_nodes, d]."""
        if self._dense is None:
            self._dense = self.rows(np.arange(self.num_nodes))
        return self._dense

    def inputs(self, nodes: np.ndarray | None = None) -> Tensor | SparseInputs:
        """The rows of these nodes, or of all; sparse features stay sparse on the CPU."""
        if not self.is_sparse or self.device.type != "cpu":
            return self.all() if nodes is None else self.rows(nodes)
        features = self._all_sparse()
        return features if nodes is None else features.take(torch.from_numpy(nodes))

    def _all_sparse(self) -> SparseInputs:
        if self._sparse is None:
            self._sparse = SparseInputs.of(self._graph.x, self.device)
        return self._sparse

    def take(self, nodes: np.ndarray, *, norm: float = 0.0) -> Rows:
        """The rows of these nodes, with labels; features are scaled to `norm` unless it is 0.

        Sparse features stay sparse. They are read where they are, unless a GPU computes with them.
        """
        if self._is_read_in_place:
            return self._number_rows(nodes, norm, np.zeros((len(nodes), 0), np.float32))
        labeled = {"labels": self._graph.y[nodes], "loss": self.task.loss}
        if not self.is_sparse:
            dense = scale_rows(self.rows(nodes), norm).cpu().numpy()
            return Rows(dense=np.ascontiguousarray(dense), **labeled)
        features, dense = SparseRows.of(self._graph.x[nodes]), np.zeros((len(nodes), 0), np.float32)
        return Rows(features=features, scales=features.scales(norm), dense=dense, **labeled)

    @property
    def _is_read_in_place(self) -> bool:
        return self.device.type == "cpu"

    def _number_rows(self, nodes: np.ndarray, norm: float, dense: npt.NDArray[np.float32]) -> Rows:
        """The rows of these nodes by their numbers in the graph, with the columns `dense` behind features."""
        features, table = self._tables()
        return Rows(
            features=features,
            table=table,
            scales=self._find_scales(norm),
            squares=self._find_squares(norm),
            dense=dense,
            labels=self._graph.y[nodes],
            loss=self.task.loss,
            nodes=np.asarray(nodes, np.int64),
        )

    def _tables(self) -> tuple[SparseRows, npt.NDArray[np.float32]]:
        """The features of all nodes for `Rows`, sparse and dense, one of which has no columns."""
        if self._sparse_rows is None:
            self._sparse_rows = SparseRows.of(self._graph.x) if self.is_sparse else NO_SPARSE_ROWS
        return self._sparse_rows, np.zeros((0, 0), np.float32) if self.is_sparse else self._graph.x

    def _find_scales(self, norm: float) -> npt.NDArray[np.float32] | None:
        """float32 [num_nodes]: what scales the features of every node to `norm`; None for 0."""
        if norm not in self._scales:
            features, table = self._tables()
            self._scales[norm] = (
                row_scales(torch.from_numpy(table), norm).flatten().numpy()
                if norm and not self.is_sparse
                else features.scales(norm)
            )
        return self._scales[norm]

    def _find_squares(self, norm: float) -> npt.NDArray[np.float64]:
        """float64 [num_nodes]: squared norms of the features, scaled to `norm` unless it is 0."""
        if norm not in self._squares:
            (features, table), scales = self._tables(), self._find_scales(norm)
            self._squares[norm] = features.square(scales) if self.is_sparse else square_rows(table, scales)
        return self._squares[norm]

    def shares_all(self, num_rows: float) -> bool:
        """Whether trees of so many rows take the features of all nodes, and not of those that occur.

        In training the number comes from the plan: the rows of private trees choose nothing.
        """
        return num_rows >= _DISTINCT_BELOW[self.device.type] * self.num_nodes

    def distinct(self, nodes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Distinct nodes in order of appearance, and for each of `nodes` where among them it is."""
        distinct, index = np.empty_like(nodes), np.empty_like(nodes)
        # Kept from batch to batch, since filling it takes time by the nodes of the graph; -1 between batches.
        with self._lock:
            if self._positions is None:
                self._positions = np.full(self.num_nodes, -1, dtype=np.int32)
            count = _distinct(nodes, self._positions, distinct, index)
        return distinct[:count], index


class RowTable(Features):
    """Rows of (own features, own reading); all rows of features are scaled to one norm.

    Args:
        graph: the graph with the features, dense or sparse.
        readings: float32 [N, k].
        device: the device to compute on.
        feature_norm: the norm of every row of features; 0 leaves the features unscaled.
    """

    def __init__(
        self,
        graph: Graph,
        readings: npt.NDArray[np.float32],
        device: torch.device | str,
        *,
        feature_norm: float,
    ) -> None:
        super().__init__(graph, device)
        self._readings = torch.from_numpy(readings).to(self.device)
        self._feature_norm = feature_norm
        self.width += readings.shape[1]
        # Features and readings of all nodes side by side, for those who ask for them.
        self._joined: Tensor | None = None
        if self._dense is not None and self.device.type != "cpu":
            self._joined, self._dense = self._join(self._dense, self._readings), None

    def rows(self, nodes: npt.NDArray[np.int64]) -> Tensor:
        """float32 [len(nodes), d + k]."""
        index = torch.from_numpy(np.asarray(nodes, np.int64)).to(self.device)
        if self._joined is not None:
            return self._joined.index_select(0, index)
        return self._join(super().rows(nodes), self._readings.index_select(0, index))

    def all(self) -> Tensor:
        """float32 [num_nodes, d + k]."""
        if self._joined is None:
            self._joined = self.rows(np.arange(self.num_nodes))
        return self._joined

    def inputs(self, nodes: np.ndarray | None = None) -> Tensor:
        """Dense rows of these nodes, or of all: a reading is no feature."""
        return self.all() if nodes is None else self.rows(nodes)

    def take(self, nodes: npt.NDArray[np.int64], *, norm: float = 0.0) -> Rows:
        """The rows of these nodes, with labels; sparse features stay sparse. The table scales them itself."""
        if self._is_read_in_place:
            return self._number_rows(nodes, self._feature_norm, _arrays.take(self._readings.numpy(), nodes))
        if not self.is_sparse:
            return super().take(nodes)
        rows = super().take(nodes, norm=self._feature_norm)
        return replace(rows, dense=self._readings[torch.from_numpy(nodes).to(self.device)].cpu().numpy())

    def _join(self, features: Tensor, readings: Tensor) -> Tensor:
        return torch.cat([scale_rows(features, self._feature_norm), readings], dim=1)


@numba.njit(cache=True, nogil=True)
def _distinct(nodes, positions, distinct, index):  # type: ignore[no-untyped-def]
    """List distinct nodes in order of first appearance; `positions` is scratch: -1 on entry and on return."""
    count = 0
    for i in range(len(nodes)):
        node = nodes[i]
        if positions[node] < 0:
            positions[node] = count
            distinct[count] = node
            count += 1
        index[i] = positions[node]
    for i in range(count):
        positions[distinct[i]] = -1
    return count


# Looking up which nodes are distinct pays while the trees have fewer rows than this times the graph's nodes.
# A GPU encodes all nodes faster than the CPU finds the distinct ones, until most of that work is for nobody.
_DISTINCT_BELOW = {"cpu": 1.5, "cuda": 0.3}
