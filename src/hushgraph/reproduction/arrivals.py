"""Accuracy on nodes that arrive later, and in the clear, beside the accuracy of covered predictions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from scipy import sparse

from hushgraph.graph.graph import Graph

if TYPE_CHECKING:
    from hushgraph.training.run import Run


@dataclass(frozen=True, kw_only=True)
class NewNodes:
    """Test nodes that arrive after training: features, and lists of places, -1 where there is no place."""

    features: npt.NDArray[np.float32]
    indptr: npt.NDArray[np.int64]
    places: npt.NDArray[np.int64]
    labels: npt.NDArray[np.int64]


def take_out_test_nodes(graph: Graph) -> tuple[Graph, NewNodes]:
    """Return an undirected graph without its test nodes, and those nodes with their lists, as new nodes.

    Other test nodes have no place on the board of the smaller graph, so a list does not reach them.
    """
    kept = np.ones(graph.num_nodes, np.bool_)
    kept[graph.test_idx] = False
    number = np.where(kept, np.cumsum(kept) - 1, -1)
    shape = (graph.num_nodes, graph.num_nodes)
    reads = sparse.csr_array((np.ones(graph.num_edges, np.bool_), graph.indices, graph.indptr), shape=shape)
    inside = reads[kept][:, kept].tocsr()
    inside.sort_indices()
    lists = reads[graph.test_idx].tocsr()
    smaller = replace(
        graph,
        num_nodes=int(kept.sum()),
        indptr=inside.indptr,
        indices=inside.indices,
        x=graph.x[kept],
        y=graph.y[kept],
        train_idx=number[graph.train_idx],
        val_idx=number[graph.val_idx],
        test_idx=np.empty(0, np.int64),
        node_names=None if graph.node_names is None else graph.node_names[kept],
    )
    return smaller, NewNodes(
        features=graph.dense_features(graph.test_idx),
        indptr=lists.indptr.astype(np.int64),
        places=number[lists.indices],
        labels=graph.y[graph.test_idx],
    )


def measure_new_nodes(run: Run, arrivals: NewNodes) -> float:
    """Return the accuracy on labelled nodes that arrive after training."""
    import torch

    probabilities, _ = run.predict_listed(
        torch.from_numpy(arrivals.features), arrivals.indptr, arrivals.places
    )
    is_labelled = arrivals.labels >= 0
    return float(np.mean(probabilities.argmax(1)[is_labelled] == arrivals.labels[is_labelled]))


def measure_in_the_clear(run: Run, graph: Graph) -> float:
    """Return the accuracy on labelled test nodes of predictions that read neighbours without noise."""
    nodes = graph.test_idx[graph.y[graph.test_idx] >= 0]
    return float(np.mean(run.predict_proba(graph, in_the_clear=True).argmax(1)[nodes] == graph.y[nodes]))
