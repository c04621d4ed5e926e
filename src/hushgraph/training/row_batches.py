"""The batches of a run whose training reads no edges: rows drawn for every step, and nothing of a graph."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass

import torch

from hushgraph._arrays import Int64Array
from hushgraph.accounting.events import Draw
from hushgraph.gradients.rows_torch import DrawnRows
from hushgraph.graph.graph import Graph
from hushgraph.inputs.features import Features
from hushgraph.inputs.rows import Rows
from hushgraph.models.recording import choose_room
from hushgraph.privacy.plans import PrivacyPlan
from hushgraph.sampling.batches import FixedSizeBatches, PoissonBatches
from hushgraph.sampling.random import RandomSource
from hushgraph.training.distributed import Group

# The part of a GPU's memory that the rows of all training nodes may take.
_TABLE_SHARE = 0.25
# Sparse rows that every step uses are copied side by side, which saves a few percent of a step, if they would
# take no more bytes with their zeros.
_COPIED_BYTES = 1 << 30


def choose_roots(plan: PrivacyPlan, rng: RandomSource) -> PoissonBatches | FixedSizeBatches:
    """What draws the roots of every step, by their places in the training split."""
    slots = plan.num_train_nodes
    if plan.batches == "poisson":
        return PoissonBatches(num_slots=slots, rate=plan.sampling_rate, rng=rng)
    return FixedSizeBatches(num_slots=slots, size=plan.batch_size, rng=rng)


@dataclass(eq=False)
class RowBatches:
    """Draws the rows of every step.

    Attributes:
        graph, features: the data, and its features.
        plan: batch size and how batches are drawn.
        rng: of batches, the same in every process. Noise has a generator of its own.
        group: the processes that share the rows of a batch.
        feature_norm: the norm that features are scaled to; 0 leaves them as they are.
        draw: how the rows of one step are drawn, for the accountant.
        has_own_threads: whether clipped sums are computed in threads of `RowPass`.

    Guarantees:
        `draw` describes exactly how the rows of every step are drawn. A row keeps its place in the batch
        whatever it holds, so that no row changes which others it is added up with.
    """

    graph: Graph
    features: Features
    plan: PrivacyPlan
    rng: RandomSource
    group: Group
    feature_norm: float

    def __post_init__(self) -> None:
        self._roots = choose_roots(self.plan, self.rng)
        self.draw: Draw = self._roots.draws
        self.has_own_threads = self.features.device.type == "cpu"

    def iterate(self, first_step: int) -> Generator[list[Rows | DrawnRows], None, None]:
        """Yield batches without end; where every batch has all rows, the same one.

        On a GPU, batches of fewer rows are places in a table that stays there.
        """
        if self.plan.sampling_rate == 1:
            rows = self._take(self.graph.train_idx)
            if self.features.is_sparse and 4 * rows.num_rows * self.features.width <= _COPIED_BYTES:
                rows = rows.gathered()
            while True:
                yield [rows]
        elif self._fits_device():
            table = self.features.take(self.graph.train_idx, norm=self.feature_norm)
            room = choose_room(self.plan.batch_size / self.group.size, self.plan.num_train_nodes)
            while True:
                # One draw over all rows, the same in every process; only then is it shared out.
                yield [DrawnRows(table=table, places=self.group.share(self._roots.draw()), room=room)]
        while True:
            yield [self._take(self.graph.train_idx[self._roots.draw()])]

    def _fits_device(self) -> bool:
        """Whether the rows of all training nodes can be kept on a GPU; by public sizes."""
        device = self.features.device
        if device.type != "cuda":
            return False
        memory = torch.cuda.get_device_properties(device).total_memory
        return 4 * self.plan.num_train_nodes * self.features.width <= _TABLE_SHARE * memory

    def _take(self, nodes: Int64Array) -> Rows:
        if self.group.size > 1:
            nodes = self.group.share(nodes)
        return self.features.take(nodes, norm=self.feature_norm)
