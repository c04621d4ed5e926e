"""Trials of the steps of a billboard run, apart from its boards.

The canary's feature outweighs every reading, which a public radius bounds, so that its clipped gradient is
the same whatever the boards are: to within a ten-millionth of C. `anew` does without this shortcut.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hushgraph.audit.board_scene import NUM_CLASSES
from hushgraph.audit.row_weights import new_row_model
from hushgraph.audit.trials import World
from hushgraph.gradients.batch import Features, RowTable
from hushgraph.gradients.rows import RowSums
from hushgraph.graph.graph import Graph
from hushgraph.models.gnn import ReadingMLP
from hushgraph.privacy.plans import PrivacyPlan
from hushgraph.sampling.random import RandomSource
from hushgraph.training.distributed import Group
from hushgraph.training.parts import ClippedSum
from hushgraph.training.row_batches import RowBatches
from hushgraph.training.trainer import Batches
from hushgraph.training.tree_batches import MakeLists


@dataclass(frozen=True, kw_only=True, eq=False)
class RowWorld(World):
    """One of two graphs whose rows are trained on, with readings of zero."""

    def new_model(self) -> ReadingMLP:
        return new_row_model()

    def new_features(self) -> Features:
        readings = np.zeros((self.graph.num_nodes, NUM_CLASSES), np.float32)
        return RowTable(self.graph, readings, "cpu", feature_norm=0.0)

    def new_clipped_sum(self) -> ClippedSum:
        return RowSums()

    def new_batches(self, rng: RandomSource, make_lists: MakeLists | None) -> Batches:
        return new_row_batches(self.graph, self.new_features(), self.plan, rng)


def new_row_batches(graph: Graph, table: Features, plan: PrivacyPlan, rng: RandomSource) -> Batches:
    """The batches of a billboard run."""
    return RowBatches(graph=graph, features=table, plan=plan, rng=rng, group=Group(), feature_norm=0.0)
