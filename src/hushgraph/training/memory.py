"""A graph in memory as the source of a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from threading import Thread

import numpy as np
import torch
from scipy import sparse
from torch import nn

from hushgraph._arrays import Int64Array
from hushgraph.figures.tables import Scored
from hushgraph.gradients.rows_torch import load_kernels
from hushgraph.graph.chunks import digest_edges
from hushgraph.graph.persons import share_count
from hushgraph.inference.in_memory import WholeGraph, score_nodes
from hushgraph.inputs.features import Features
from hushgraph.privacy.ledger import Ledger
from hushgraph.runs.folder import RunFolder
from hushgraph.training.boards import Boards
from hushgraph.training.distributed import Group
from hushgraph.training.parts import Parts
from hushgraph.training.scaling import find_scaling
from hushgraph.training.source import StepParts
from hushgraph.training.steps import build_steps, takes_rows
from hushgraph.training.trainer import State


@dataclass(eq=False)
class GraphView:
    """The graph, ready for steps and for inference."""

    folder: RunFolder
    graph: WholeGraph

    def build_steps(self, state: State, *, key: int, group: Group, parts: Parts) -> StepParts:
        """See `View`."""
        return build_steps(self.folder, self.graph, state, key=key, group=group, parts=parts)

    def score(self, model: nn.Module, split: str) -> Iterator[Scored]:
        """See `View`."""
        graph, task = self.graph.graph, self.folder.task
        nodes = {"train": graph.train_idx, "val": graph.val_idx, "test": graph.test_idx}[split]
        if not len(nodes):
            return
        # Validation and test split share one noise: a person counts once in both together.
        evaluated = np.concatenate([graph.val_idx, graph.test_idx])
        shares = share_count(graph.persons, evaluated, graph.num_nodes)
        for part, outputs in score_nodes(model, self.graph, nodes, depth=self.folder.plan.num_layers):
            groups = None if graph.groups is None else graph.groups[part]
            own = None if shares is None else shares[part]
            yield Scored(task.show(outputs).cpu().numpy(), graph.y[part], groups, own)


@dataclass(eq=False)
class Memory(Boards):
    """A graph in memory: rows read its boards, or nothing where the run has none.

    Attributes:
        device: to train on.
    """

    device: torch.device = field(kw_only=True)
    _loading: Thread | None = None

    @property
    def num_nodes(self) -> int:
        return self.graph.num_nodes

    @property
    def resume_call(self) -> str:
        """See `Source`."""
        return f"hushgraph.resume({str(self.folder.path)!r}, data)"

    def count_numbers(self) -> Int64Array:
        """See `NumberSource`."""
        return self.parts.count_numbers(self.graph, self.folder.paid_columns)

    def list_facts(self) -> Mapping[str, str]:
        """See `Source`."""
        # Of two graphs, one row could change the trees of both: more of them than the plan covers.
        return {"edges": digest_edges(self.graph)}

    def check(self, ledger: Ledger) -> None:
        """See `Source`."""
        if self.folder.plan.num_scaled:
            find_scaling(self.folder, ledger)
        for place in range(self.folder.num_boards):
            self.find_board(place, ledger)

    def prepare(self, model: nn.Module) -> None:
        """See `Source`: numbers are scaled; only GPUs have something to load."""
        self.graph = self.folder.scale(self.graph)
        if self.device.type == "cuda" and takes_rows(self.folder.plan, model):
            num_sparse = self.graph.num_features if sparse.issparse(self.graph.x) else 0
            options = {"num_sparse": num_sparse}
            self._loading = Thread(target=load_kernels, args=(model, self.device), kwargs=options)
            self._loading.start()

    def read(self, place: int) -> GraphView:
        """See `Source`."""
        features = (
            self.read_boards(place, self.device)
            if self.folder.num_boards
            else Features(self.graph, self.device)
        )
        if self._loading is not None:
            self._loading.join()
        return GraphView(self.folder, WholeGraph(self.graph, features))
