"""The input of a billboard model: a row's own features and its own reading, nothing of other rows."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from hushgraph.graph.graph import Graph
from hushgraph.inference.in_memory import WholeGraph, scores
from hushgraph.inputs.features import RowTable


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
