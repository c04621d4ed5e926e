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
    """What `Task.average` makes of a node's own prediction and its neighbours', read in the clear.

    Where records have weights, the average is weighted; records of several relations count one by one.
    """
    if graph.relations:
        return _average_by_weight(task, shown, graph)
    counts = torch.from_numpy(np.diff(graph.indptr).astype(np.int64))
    readers = torch.repeat_interleave(torch.arange(graph.num_nodes), counts)
    sources = torch.from_numpy(np.asarray(graph.indices).astype(np.int64))

    def average(values: Tensor) -> Tensor:
        sums = torch.zeros_like(values).index_add_(0, readers, values[sources])
        return sums / counts.clamp(min=1)[:, None]

    return task.average(shown.cpu(), average, counts == 0).to(shown.device)


def _average_by_weight(task: Task, shown: Tensor, graph: Graph) -> Tensor:
    """The same over all relations between people; places have no prediction."""
    people = [each for each in graph.relations if each.names_people]
    pairs = torch.from_numpy(
        np.concatenate([np.empty((2, 0), np.int64), *(each.list_pairs() for each in people)], 1)
    )
    shares = [np.ones(len(each.indices)) if each.weights is None else each.weights for each in people]
    # Divided by the largest first: their sum must not overflow.
    weights = torch.from_numpy(
        np.concatenate([np.empty(0), *(each / each.max(initial=1e-300) for each in shares)])
    )
    totals = torch.zeros(graph.num_nodes, dtype=weights.dtype).index_add_(0, pairs[0], weights)

    def average(values: Tensor) -> Tensor:
        seen = values[pairs[1]].double() * weights[:, None]
        sums = torch.zeros_like(values, dtype=seen.dtype).index_add_(0, pairs[0], seen)
        return (sums / totals.clamp(min=1e-300)[:, None]).to(values.dtype)

    return task.average(shown.cpu(), average, totals == 0).to(shown.device)


def score_table(model: nn.Module, graph: Graph, table: RowTable) -> Tensor:
    """Compute the scores of all rows of a table, float32 [N, classes]."""
    return scores(model, WholeGraph(graph, table), depth=0)
