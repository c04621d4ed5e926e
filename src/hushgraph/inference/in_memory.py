"""Scores of all nodes of a graph from full neighbourhoods, in blocks of rows that fit; how good they are."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from hushgraph import _arrays
from hushgraph.errors import InputError
from hushgraph.gradients.rows import Chain, RowPass, find_chain
from hushgraph.graph.graph import Graph
from hushgraph.graph.shares import Shares, find_shares
from hushgraph.inputs.features import Features
from hushgraph.inputs.sparse_inputs import SparseInputs, write_out
from hushgraph.models.blocks import Reads
from hushgraph.models.gnn import GNN, ReadingMLP
from hushgraph.tasks.task import Evaluation, is_labelled

_BLOCK_FLOATS = 1 << 28
# Numbers of a table up to which torch scores its rows.
_FEW_NUMBERS = 1 << 15
# Rows that are gathered and scored at a time.
_SCORED_ROWS = 1 << 14
# Reads with up to this many entries, 2 GiB, are cached between evaluations.
_LARGEST_CACHE = 1 << 28


@dataclass(eq=False)
class WholeGraph:
    """A graph prepared for inference: features on a device, and reads that are built once and cached.

    Args:
        graph: every node with all its neighbours.
        features: the features of `graph`, on the device to compute on.
        block_floats: the most floats in the entries of one block; bounds the memory used.
    """

    graph: Graph
    features: Features
    block_floats: int = field(default=_BLOCK_FLOATS, kw_only=True)
    _cache: dict[int, list[Reads]] = field(default_factory=dict, init=False, repr=False)

    @cached_property
    def shares(self) -> Shares | None:
        """What every read of the graph counts, as `find_shares` gives it."""
        return find_shares(self.graph.relations, self.graph.indptr, self.graph.indices)

    def blocks(self, width: int) -> Iterator[Reads]:
        """Yield the reads cut by upper rows, for rows of `width` floats; cached if they fit in memory."""
        if width in self._cache:
            yield from self._cache[width]
            return
        blocks = self._cut_reads(width)
        if len(self.graph.indices) + self.graph.num_nodes > _LARGEST_CACHE:
            yield from blocks
            return
        self._cache[width] = list(blocks)
        yield from self._cache[width]

    def node_ranges(self) -> Iterator[npt.NDArray[np.int64]]:
        """Yield the nodes in consecutive pieces whose features fit a block."""
        size = max(1, self.block_floats // max(1, self.graph.num_features))
        for begin in range(0, self.graph.num_nodes, size):
            yield np.arange(begin, min(begin + size, self.graph.num_nodes))

    def read_all(self) -> Reads:
        """The reads of all nodes, in one block."""
        graph = self.graph
        return build_reads(graph.indptr, graph.indices, device=self.features.device, shares=self.shares)

    def _cut_reads(self, width: int) -> Iterator[Reads]:
        """Cut the reads by upper rows so that no block has more than `block_floats` floats."""
        graph, device = self.graph, self.features.device
        entries = graph.indptr + np.arange(graph.num_nodes + 1)
        limit = max(1, self.block_floats // width)
        begin = 0
        while begin < graph.num_nodes:
            reach = int(np.searchsorted(entries, entries[begin] + limit, side="right")) - 1
            end = min(graph.num_nodes, max(reach, begin + 1))
            yield build_reads(graph.indptr, graph.indices, begin, end, device, shares=self.shares)
            begin = end


def check_width(given: int, expected: int) -> None:
    """Raise InputError if rows do not have as many features as the model was trained on."""
    if given != expected:
        raise InputError(
            f"the rows have {given} features, the model was trained on {expected}; give the same columns"
        )


@torch.no_grad()
def scores(model: nn.Module, graph: Graph | WholeGraph, *, depth: int | None = None) -> Tensor:
    """Compute scores, float32 [num_nodes, num_outputs], on the model's device.

    Nodes read all their neighbours. Nothing is sampled and no noise is added: the prediction for a node is
    computed from its neighbours' features in the clear.

    Args:
        model: the model of a run, or any module that takes features and blocks.
        graph: the training graph, or another one with the same features.
        depth: rounds of message passing; only needed for a module that is not a `GNN`.
    """
    if isinstance(graph, Graph):
        graph = WholeGraph(graph, Features(graph, next(model.parameters()).device))
    features = graph.features
    if _is_small(model, features):
        return _score_small(model, features)
    if (chain := _find_row_chain(model, features)) is not None:
        return _score_rows(RowPass(chain), chain.feature_norm, features, np.arange(features.num_nodes))
    was_training = model.training
    model.eval()
    try:
        if not isinstance(model, GNN):
            # The layers of a custom module are unknown, so it takes the graph in one block.
            blocks: tuple[Reads, ...] = (graph.read_all(),) * depth if depth else ()
            result: Tensor = model(features.all(), blocks)
            return result
        check_width(features.width, cast(int, model.encoder[0].in_features))
        h = torch.cat([_encode(model, features, nodes) for nodes in graph.node_ranges()])
        for layer in model.layers:
            h = torch.cat([layer(h, reads) for reads in graph.blocks(h.shape[1])])
        decoded: Tensor = model.decoder(h)
        return decoded
    finally:
        model.train(was_training)


@torch.no_grad()
def score_nodes(
    model: nn.Module, view: WholeGraph, nodes: npt.NDArray[np.int64], *, depth: int
) -> Iterator[tuple[npt.NDArray[np.int64], Tensor]]:
    """Some of `nodes` and their scores, float32 [nodes, num_outputs], until all have had their turn."""
    if _is_small(model, view.features) or (chain := _find_row_chain(model, view.features)) is None:
        yield nodes, scores(model, view, depth=depth)[torch.from_numpy(nodes)]
        return
    rows_alone = RowPass(chain)
    for begin in range(0, len(nodes), _SCORED_ROWS):
        part = nodes[begin : begin + _SCORED_ROWS]
        yield part, _score_rows(rows_alone, chain.feature_norm, view.features, part)


def _encode(model: GNN, features: Features, nodes: npt.NDArray[np.int64]) -> Tensor:
    """The encoder's output for some nodes; sparse features stay sparse on the CPU."""
    inputs, first = features.inputs(nodes), model.encoder[0]
    is_known = type(first) is nn.Linear and first.weight.dtype == torch.float32
    if isinstance(inputs, SparseInputs) and is_known and isinstance(first, nn.Linear):
        z = inputs.scale(model.feature_norm).multiply(first.weight, first.bias)
        encoded: Tensor = model.encoder[1:](z)
    else:
        encoded = model.encoder(model.scaled(write_out(inputs)))
    return encoded


def _score_rows(rows_alone: RowPass, norm: float, features: Features, nodes: npt.NDArray[np.int64]) -> Tensor:
    """Scores of nodes by their own rows, of which few are gathered at a time."""
    result = torch.from_numpy(_arrays.empty((len(nodes), rows_alone.num_outputs), np.float32))
    for begin in range(0, len(nodes), _SCORED_ROWS):
        rows = features.take(nodes[begin : begin + _SCORED_ROWS], norm=norm)
        result[begin : begin + _SCORED_ROWS] = rows_alone.scores(rows)
    return result


def _is_small(model: nn.Module, features: Features) -> bool:
    """Whether torch scores all rows before kernels would be compiled for them; by public sizes.

    The number of nodes of a part is private, since its rows list them; and what torch makes of a row depends,
    in the last bit, on how many others there are. Kernels score every row by itself.
    """
    is_few = features.num_nodes * features.width <= _FEW_NUMBERS and not features.is_part
    return is_few and type(model) is ReadingMLP and features.device.type == "cpu"


def _score_small(model: nn.Module, features: Features) -> Tensor:
    """Scores of all rows, in float64: rounded to float32, they do not depend on the number of threads."""
    exact = cast(ReadingMLP, copy.deepcopy(model)).double()
    check_width(features.width, cast(int, exact.encoder[0].in_features))
    result: Tensor = exact(features.all().double(), ())
    return result.float()


def _find_row_chain(model: nn.Module, features: Features) -> Chain | None:
    """The layers that score single rows, for a model that reads no edges on the CPU; None for others."""
    chain = find_chain(model)
    reads = isinstance(model, GNN) and model.depth > 0
    if chain is None or features.device.type != "cpu" or reads or not chain.is_float32:
        return None
    check_width(features.width, chain.layers[0][1].in_features)
    return chain


def build_reads(
    indptr: npt.NDArray[Any],
    indices: npt.NDArray[Any],
    begin: int = 0,
    end: int | None = None,
    device: torch.device | str = "cpu",
    *,
    shares: Shares | None = None,
) -> Reads:
    """Build the reads of nodes `begin` to `end`, each node itself first, from compressed rows by reader.

    `shares`, of all reads, is as `find_shares` gives it.
    """
    num_nodes = len(indptr) - 1
    end = num_nodes if end is None else end
    starts = np.concatenate([[0], np.cumsum(np.diff(indptr[begin : end + 1]) + 1)]).astype(np.int64)
    index = np.empty(starts[-1], dtype=np.int64)
    is_self = np.zeros(len(index), dtype=bool)
    is_self[starts[:-1]] = True
    index[is_self] = np.arange(begin, end)
    index[~is_self] = indices[indptr[begin] : indptr[end]]
    of_entries = None
    if shares is not None:
        of_entries = np.zeros((len(shares), len(index)), np.float32)
        of_entries[:, ~is_self] = shares[:, indptr[begin] : indptr[end]]
    return Reads(
        indptr=torch.from_numpy(starts).to(device),
        index=torch.from_numpy(index).to(device),
        num_lower=num_nodes,
        shares=None if of_entries is None else torch.from_numpy(of_entries).to(device),
    )


def evaluate(predicted: npt.NDArray[Any], graph: Graph, nodes: npt.NDArray[np.int64]) -> Evaluation | None:
    """Evaluate predictions, [num_nodes], on the labelled ones of `nodes`; None if none has a label."""
    nodes = nodes[is_labelled(graph.y[nodes])]
    return graph.task.evaluate(predicted[nodes], graph.y[nodes]) if len(nodes) else None
