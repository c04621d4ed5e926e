"""Scores for every node of a graph from full neighbourhoods, in blocks of rows that fit memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from hushgraph.errors import InputError
from hushgraph.gradients.batch import Features
from hushgraph.graph.graph import Graph
from hushgraph.graph.stored import StoredGraph
from hushgraph.inference.stored import stored_scores
from hushgraph.models.blocks import Reads, whole_graph
from hushgraph.models.gnn import GNN

_BLOCK_FLOATS = 1 << 28
# Reads of up to this many entries, two gigabytes of them, are kept between looks.
_KEPT_ENTRIES = 1 << 28


class WholeGraph:
    """A graph ready for inference: features on a device, and reads made once however often it is looked at.

    Args:
        graph: every node with all its neighbours.
        features: of `graph`, on the device to work on.
        block_floats: floats that the entries of one block of rows may hold; bounds memory.
    """

    def __init__(self, graph: Graph, features: Features, *, block_floats: int = _BLOCK_FLOATS) -> None:
        self.graph, self.features, self.block_floats = graph, features, block_floats
        self._kept: dict[int, list[Reads]] = {}

    def blocks(self, width: int) -> Iterator[Reads]:
        """The reads cut by upper rows, for rows of `width` floats; kept where all of them fit memory."""
        if width in self._kept:
            yield from self._kept[width]
            return
        made = _blocks(self.graph, width, self.block_floats, self.features.device)
        if self.graph.num_edges + self.graph.num_nodes > _KEPT_ENTRIES:
            yield from made
            return
        self._kept[width] = list(made)
        yield from self._kept[width]

    def node_ranges(self) -> Iterator[npt.NDArray[np.int64]]:
        """Nodes in pieces whose features fit a block."""
        size = max(1, self.block_floats // max(1, self.graph.num_features))
        for begin in range(0, self.graph.num_nodes, size):
            yield np.arange(begin, min(begin + size, self.graph.num_nodes))


def check_features(num_features: int, wanted: int) -> None:
    """Refuse a graph that has not as many features as the model was trained on."""
    if num_features != wanted:
        raise InputError(
            f"the graph has {num_features} features, the model was trained on {wanted}; give a graph "
            "with the same columns"
        )


@torch.no_grad()
def scores(model: nn.Module, graph: Graph | WholeGraph, *, depth: int | None = None) -> Tensor:
    """float32 [num_nodes, num_classes] on the model's device.

    Nodes read all their neighbours here: nothing is sampled and nothing is noisy, so a prediction for a node
    is computed from its neighbours' features in the clear.

    Args:
        model: what `train` returned, or any module on the block interface.
        graph: the training graph or another one with the same features.
        depth: rounds of message passing of a module that is not a `GNN`.
    """
    if isinstance(graph, Graph):
        graph = WholeGraph(graph, Features(graph, next(model.parameters()).device))
    features = graph.features
    was_training = model.training
    model.eval()
    try:
        if not isinstance(model, GNN):
            # A module of the caller's says nothing of its layers: it takes the whole graph at once.
            whole = whole_graph(graph.graph.indptr, graph.graph.indices, features.device)
            result: Tensor = model(features.all(), (whole,) * (depth or 0))
            return result
        check_features(features.width, cast(int, model.encoder[0].in_features))
        if isinstance(graph.graph, StoredGraph):
            return stored_scores(model, graph.graph, features, None).to(features.device)
        h = torch.cat([model.encoder(model.scaled(features.rows(nodes))) for nodes in graph.node_ranges()])
        for layer in model.layers:
            h = torch.cat([layer(h, reads) for reads in graph.blocks(h.shape[1])])
        decoded: Tensor = model.decoder(h)
        return decoded
    finally:
        model.train(was_training)


@torch.no_grad()
def best_classes(
    model: nn.Module, whole: WholeGraph, nodes: npt.NDArray[np.int64], *, depth: int
) -> npt.NDArray[np.int64]:
    """int64 [num_nodes]: the class with the highest score, at least for `nodes`; -1 where none was computed.

    Of a stored graph only `nodes`, and what they are computed from, is looked at.
    """
    graph = whole.graph
    if not (isinstance(graph, StoredGraph) and isinstance(model, GNN)):
        every: npt.NDArray[np.int64] = scores(model, whole, depth=depth).argmax(1).cpu().numpy()
        return every
    best = np.full(graph.num_nodes, -1, dtype=np.int64)
    wanted = np.unique(nodes)
    was_training = model.training
    model.eval()
    try:
        if len(wanted):
            best[wanted] = stored_scores(model, graph, whole.features, wanted).argmax(1).numpy()
    finally:
        model.train(was_training)
    return best


def _blocks(graph: Graph, width: int, block_floats: int, device: torch.device) -> Iterator[Reads]:
    """The whole graph's reads, cut by upper rows so that a block has at most so many entries."""
    entries = graph.indptr + np.arange(graph.num_nodes + 1)
    limit = max(1, block_floats // width)
    begin = 0
    while begin < graph.num_nodes:
        reach = int(np.searchsorted(entries, entries[begin] + limit, side="right")) - 1
        end = min(graph.num_nodes, max(reach, begin + 1))
        yield _block(graph, begin, end, device)
        begin = end


def _block(graph: Graph, begin: int, end: int, device: torch.device) -> Reads:
    counts = np.diff(graph.indptr[begin : end + 1])
    indptr = np.concatenate([[0], np.cumsum(counts + 1)]).astype(np.int64)
    index = np.empty(indptr[-1], dtype=np.int64)
    is_self = np.zeros(len(index), dtype=bool)
    is_self[indptr[:-1]] = True
    index[is_self] = np.arange(begin, end)
    index[~is_self] = graph.indices[graph.indptr[begin] : graph.indptr[end]]
    return Reads(
        indptr=torch.from_numpy(indptr).to(device),
        index=torch.from_numpy(index).to(device),
        num_lower=graph.num_nodes,
    )
