"""Scores of nodes of a stored graph: layer by layer, in blocks, with large layers on disk."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numba
import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from hushgraph.gradients.batch import Features
from hushgraph.gradients.sparse_inputs import SparseInputs, write_out
from hushgraph.graph.mapped import ArrayFile, MappedRows, open_mapped, release
from hushgraph.graph.stored import StoredGraph
from hushgraph.models.blocks import Reads
from hushgraph.models.gnn import GNN

Nodes = npt.NDArray[np.int64]

# The most floats in the rows of one block: 128 MiB.
BLOCK_FLOATS = 1 << 25
# The latent rows of a layer are kept on disk if they take more bytes.
LATENT_IN_MEMORY = 1 << 30


def stored_scores(model: GNN, graph: StoredGraph, features: Features, nodes: Nodes | None) -> Tensor:
    """Compute scores, float32 [len(nodes), num_classes], from full neighbourhoods.

    Only nodes that the scores depend on are encoded, each once.

    Args:
        model: in evaluation mode.
        graph: the graph; nodes read all their neighbours.
        features: the features of `graph`, on the device to compute on.
        nodes: ascending and distinct; None is all nodes in order.
    """
    levels = [np.arange(graph.num_nodes) if nodes is None else nodes]
    for _ in model.layers:
        levels.append(_add_reads(graph, levels[-1]))
    folder = Path(tempfile.mkdtemp(prefix="hushgraph-"))
    try:
        h = _Latent(folder / "encoded", len(levels[-1]))
        for part in _cut_evenly(levels[-1], max(1, BLOCK_FLOATS // graph.num_features)):
            h.append(encode(model, features, part))
        graph.release_features()
        position = np.zeros(graph.num_nodes, dtype=np.int32)
        steps = zip(model.layers, levels[:0:-1], levels[-2::-1], strict=True)
        for number, (layer, lower, upper) in enumerate(steps):
            position[lower] = np.arange(len(lower), dtype=np.int32)
            following = _Latent(folder / f"layer{number}", len(upper))
            for part in _cut_by_entries(graph, upper, max(1, BLOCK_FLOATS // h.width)):
                indptr, entries = _collect_entries(graph, part)
                distinct, index = features.distinct(entries)
                reads = Reads(
                    indptr=torch.from_numpy(indptr).to(features.device),
                    index=torch.from_numpy(index).to(features.device),
                    num_lower=len(distinct),
                )
                following.append(layer(h.rows(position[distinct], features.device), reads))
            h = following
        parts = _cut_evenly(np.arange(len(levels[0])), max(1, BLOCK_FLOATS // h.width))
        return torch.cat([model.decoder(h.rows(part, features.device)).cpu() for part in parts])
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def encode(model: GNN, features: Features, nodes: Nodes) -> Tensor:
    """The encoder's output for some nodes; sparse features stay sparse on the CPU."""
    inputs, first = features.inputs(nodes), model.encoder[0]
    is_known = type(first) is nn.Linear and first.weight.dtype == torch.float32
    if isinstance(inputs, SparseInputs) and is_known and isinstance(first, nn.Linear):
        z = inputs.scale(model.feature_norm).multiply(first.weight, first.bias)
        encoded: Tensor = model.encoder[1:](z)
    else:
        encoded = model.encoder(model.scaled(write_out(inputs)))
    return encoded


class _Latent:
    """The rows of one layer, appended and then read: in memory if they fit, else in a file.

    Args:
        path: the path of the file.
        count: the number of rows.
    """

    def __init__(self, path: Path, count: int) -> None:
        self.path, self.count, self.width = path, count, 1
        self._filled = 0
        self._memory: npt.NDArray[np.float32] | None = None
        self._file: ArrayFile | None = None
        self._rows: MappedRows | None = None

    def append(self, block: Tensor) -> None:
        rows = block.cpu().numpy()
        if self._filled == 0:
            self.width = rows.shape[1]
            if 4 * self.count * self.width <= LATENT_IN_MEMORY:
                self._memory = np.empty((self.count, self.width), np.float32)
            else:
                self._file = ArrayFile(self.path, np.float32, self.width)
        if self._memory is not None:
            self._memory[self._filled : self._filled + len(rows)] = rows
        if self._file is not None:
            self._file.append(rows)
        self._filled += len(rows)

    def rows(self, places: npt.NDArray[Any], device: torch.device) -> Tensor:
        """float32 [len(places), width]."""
        if self._rows is None:
            if self._file is not None:
                self._file.close()
                self._memory = open_mapped(self.path, ndim=2, kinds="f")
            if self._memory is None:
                raise RuntimeError("rows are read before they are written")
            self._rows = MappedRows(self._memory)
            # A memory map outlives the name of its file.
            self.path.unlink(missing_ok=True)
        return torch.from_numpy(self._rows.take(places)).to(device)


def _add_reads(graph: StoredGraph, nodes: Nodes) -> Nodes:
    """Return these nodes and all nodes that they read, ascending."""
    if len(nodes) == graph.num_nodes:
        return nodes
    is_read = np.zeros(graph.num_nodes, np.bool_)
    for part in _cut_by_entries(graph, nodes, BLOCK_FLOATS):
        is_read[_collect_entries(graph, part)[1]] = True
    return np.flatnonzero(is_read)


def _cut_evenly(nodes: Nodes, size: int) -> Iterator[Nodes]:
    for begin in range(0, len(nodes), size):
        yield nodes[begin : begin + size]


def _cut_by_entries(graph: StoredGraph, nodes: Nodes, limit: int) -> Iterator[Nodes]:
    """Cut the nodes into blocks of at most `limit` entries, nodes themselves included, or one node."""
    ends = np.cumsum(graph.indptr[nodes + 1] - graph.indptr[nodes] + 1)
    release(graph.indptr)
    begin = 0
    while begin < len(nodes):
        done = ends[begin - 1] if begin else 0
        end = max(begin + 1, int(np.searchsorted(ends, done + limit, side="right")))
        yield nodes[begin:end]
        release(graph.indices)
        begin = end


@numba.njit(cache=True, nogil=True)
def _fill_entries(indptr, indices, nodes, out_indptr, out):  # type: ignore[no-untyped-def]
    at = 0
    for i in range(len(nodes)):
        out[at] = nodes[i]
        at += 1
        for j in range(indptr[nodes[i]], indptr[nodes[i] + 1]):
            out[at] = indices[j]
            at += 1
        out_indptr[i + 1] = at


def _collect_entries(graph: StoredGraph, nodes: Nodes) -> tuple[Nodes, Nodes]:
    """Return compressed rows of the nodes that each node reads, itself first."""
    indptr, indices = np.asarray(graph.indptr), np.asarray(graph.indices)
    counts = indptr[nodes + 1] - indptr[nodes]
    out_indptr = np.zeros(len(nodes) + 1, dtype=np.int64)
    out = np.empty(int(counts.sum()) + len(nodes), dtype=np.int64)
    _fill_entries(indptr, indices, nodes, out_indptr, out)
    return out_indptr, out
