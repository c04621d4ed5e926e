"""The input of a billboard model: a row's own features and its own reading, nothing of other rows."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from hushgraph.graph.graph import Graph
from hushgraph.inference.in_memory import WholeGraph, scores
from hushgraph.inputs.features import RowTable
from hushgraph.tasks.task import Task


def average_over_neighbours(task: Task, shown: Tensor, graph: Graph) -> Tensor:
    """What `Task.average` makes of a node's own prediction and its neighbours', read in the clear."""
    counts = torch.from_numpy(np.diff(graph.indptr).astype(np.int64))
    readers = torch.repeat_interleave(torch.arange(graph.num_nodes), counts)
    sources = torch.from_numpy(np.asarray(graph.indices).astype(np.int64))

    def average(values: Tensor) -> Tensor:
        sums = torch.zeros_like(values).index_add_(0, readers, values[sources])
        return sums / counts.clamp(min=1)[:, None]

    return task.average(shown.cpu(), average, counts == 0).to(shown.device)


def score_table(model: nn.Module, graph: Graph, table: RowTable) -> Tensor:
    """Compute the scores of all rows of a table, float32 [N, classes]."""
    return scores(model, WholeGraph(graph, table), depth=0)
