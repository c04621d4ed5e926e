"""Graphs made for attacks on boards: one row whose ballots, or whose label, differ between two worlds.

Nothing of the user's data is in them. Three classes, of which one is the canary's alone. The canary has one
huge feature, which decides its gradient; other rows have none, so that given the boards they are alike in
both worlds.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from hushgraph.audit.scene import count_bystanders
from hushgraph.graph.graph import EdgeOwner, Graph
from hushgraph.privacy.plans import BillboardPlan

NUM_CLASSES = 3
# The class that only the canary has, and the one that a flipped label becomes.
UNIQUE, FLIPPED = 2, 1
HOT = 1e8
# Readers of the canary's place: so many that a reading which knows the canary's row turns the sum around.
# Each lists the square of that many places.
_CROWD = 8

Difference = Literal["emptied", "flipped", "unlabelled"]
Split = Literal["train", "val", "test"]


@dataclass(frozen=True, kw_only=True, eq=False)
class BoardScene:
    """Two neighbouring graphs, with the canary's row and without it, or with another label.

    Attributes:
        graphs: the two worlds.
        canary: the node whose row differs.
        witnesses: nodes that read a place of the canary's.
    """

    graphs: tuple[Graph, Graph]
    canary: int
    witnesses: npt.NDArray[np.int64]


@dataclass(eq=False)
class _Rows:
    """A graph while it grows: rows with the places that they list."""

    features: list[float] = field(default_factory=list)
    labels: list[int] = field(default_factory=list)
    splits: list[Split] = field(default_factory=list)
    records: list[tuple[int, int]] = field(default_factory=list)

    def add(
        self, *, places: Iterable[int] = (), label: int = -1, split: Split = "train", feature: float = 0.0
    ) -> int:
        node = len(self.labels)
        self.features.append(feature)
        self.labels.append(label)
        self.splits.append(split)
        self.records += [(node, place) for place in places]
        return node

    def count(self, split: Split) -> int:
        return self.splits.count(split)

    def graph(self, owner: EdgeOwner) -> Graph:
        records = np.array(self.records, dtype=np.int64).reshape(-1, 2)
        train, val, test = (
            [node for node, split in enumerate(self.splits) if split == wanted]
            for wanted in ("train", "val", "test")
        )
        return Graph.from_arrays(
            edge_index=(records if owner == "sender" else records[:, ::-1]).T,
            x=np.array(self.features, np.float32)[:, None],
            y=np.array(self.labels),
            train_idx=np.array(train, np.int64),
            val_idx=np.array(val, np.int64),
            test_idx=np.array(test, np.int64),
            num_classes=NUM_CLASSES,
            directed=True,
        )


def plant_row(
    plan: BillboardPlan, *, degree: int, difference: Difference = "emptied", alone: bool = False
) -> BoardScene:
    """A canary that lists `degree` places, and a few others.

    Args:
        plan: whose edge owner and sampling rate the graph is for.
        degree: places that the canary lists.
        difference: "emptied" empties a row with a training label; "unlabelled" one of the validation split,
            whose label nobody may use; "flipped" changes the label.
        alone: the canary and its places only, for an attack on one board.
    """
    rows = _Rows()
    places = [rows.add(split="test") for _ in range(degree)]
    split: Split = "val" if difference == "unlabelled" else "train"
    canary = rows.add(places=places, label=UNIQUE, split=split, feature=HOT)
    # Where batches are drawn, whether somebody else joins would only hide the canary.
    others_vote = plan.sampling_rate == 1
    witnesses = [
        rows.add(places=[*places, canary], label=0 if others_vote else -1),
        rows.add(places=places, split="test"),
    ]
    if not alone:
        for number in range(count_bystanders(rows.count("train"), plan.sampling_rate)):
            rows.add(places=[places[0]], label=number % 2 if others_vote else -1)
    graph = rows.graph(plan.edge_owner)
    return _pair(graph, plan.edge_owner, canary, witnesses, difference)


def plant_crowd(plan: BillboardPlan) -> BoardScene:
    """A canary whose one place many training rows read, each with a gradient that points where they read.

    The crowd has the other two classes, in equal parts, and lists so much that it casts half a ballot against
    the canary's class onto that place: the tally without noise changes its sign when the canary goes.
    """
    rows = _Rows()
    place = rows.add(split="test")
    canary = rows.add(places=[place], label=UNIQUE, feature=HOT)
    crowd = []
    for number in range(_CROWD):
        spare = [rows.add(split="test") for _ in range(_CROWD**2 - 2)]
        crowd.append(rows.add(places=[place, canary, *spare], label=number % 2))
    # The crowd reads the canary's own place too; what it cast there is made up for.
    rows.add(places=[canary, *(rows.add(split="test") for _ in range(3))], label=UNIQUE)
    for _ in range(count_bystanders(rows.count("train"), plan.sampling_rate)):
        rows.add()
    return _pair(rows.graph(plan.edge_owner), plan.edge_owner, canary, crowd, "emptied")


def move_billboard(plan: BillboardPlan, scene: BoardScene) -> BillboardPlan:
    """The plan for the rows and classes of the scene, with the same noise and nearly the same batches."""
    nodes = len(scene.graphs[0].train_idx)
    return replace(
        plan,
        num_train_nodes=nodes,
        batch_size=max(1, round(plan.sampling_rate * nodes)),
        num_classes=NUM_CLASSES,
    )


def repeat_graph(graph: Graph, copies: int) -> Graph:
    """So many copies side by side, without an edge between them: a board of all is a board of each."""
    source, target = (np.concatenate(ends) for ends in zip(*graph.edge_chunks(), strict=True))
    begins = np.arange(copies)[:, None] * graph.num_nodes

    def shifted(nodes: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        return (nodes[None, :].astype(np.int64) + begins).ravel()

    return Graph.from_arrays(
        edge_index=np.stack([shifted(source), shifted(target)]),
        x=np.tile(graph.x, (copies, 1)),
        y=np.tile(graph.y, copies),
        train_idx=shifted(graph.train_idx),
        val_idx=shifted(graph.val_idx),
        test_idx=shifted(graph.test_idx),
        num_classes=graph.num_classes,
        directed=graph.is_directed,
    )


def _pair(
    graph: Graph, owner: EdgeOwner, canary: int, witnesses: list[int], difference: Difference
) -> BoardScene:
    if difference == "flipped":
        labels = graph.y.copy()
        labels[canary] = FLIPPED
        other = replace(graph, y=labels)
    else:
        other = graph.with_row_emptied(canary, owner)
    return BoardScene(graphs=(graph, other), canary=canary, witnesses=np.array(witnesses, np.int64))
