"""Made graphs in which rows of attackers' choice, the canaries, are there or not, many side by side.

Nothing of the user's data is in them. A graph is so many copies of one small drawing, without an edge between
two copies, each with a feature of its own: what boards and the first layer release of one copy has noise of
its own and depends on no other copy. So one run is as many trials as there are copies.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from scipy import sparse

from hushgraph.billboard.lists import Block
from hushgraph.errors import InputError
from hushgraph.graph.graph import EdgeOwner, Graph
from hushgraph.graph.records import Relation, RelationInfo
from hushgraph.privacy.plans import PrivacyPlan
from hushgraph.sampling.keys import pair_key, seed_word
from hushgraph.tasks.classes import Classes
from hushgraph.tasks.labels import Labels
from hushgraph.tasks.number import Number
from hushgraph.tasks.task import Task, is_labelled
from hushgraph.tasks.two_classes import TwoClasses

CANARIES = ("strongest", "read", "hub")
# Labels of attacks on boards, as `choose_labels` lists them: the one that only canaries have, and what a
# flipped label becomes.
NUM_CLASSES, UNIQUE, FLIPPED = 3, 2, 1
HOT, COLD = 1e4, -1e4
# Roots that no canary reaches. Seven and one canary make eight: dividing by that loses no digits.
_BYSTANDERS = 7
_RATE_TOLERANCE = 0.005
# The published sampler bounds nothing here, so the hub may read as many as one likes.
_READS_PER_CHANGED_TREE = 8
# Group thresholds below every group's gradient, so that each group is clipped. Epsilon does not depend on C.
_SMALL_CLIP = 1e-3
# The weight of the first place that a row lists, where that of the others is 1: it has all of the norm.
_HEAVY = 1e9
# Keys are no secret, so the attacker chooses their seed.
KEY_SEED = 7

Difference = Literal["emptied", "flipped", "evaluated"]
Split = Literal["train", "val", "test"]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True, eq=False)
class Scene:
    """Copies of one drawing; in each the canary's row is there, or is emptied or has another label.

    Attributes:
        copies: how many.
        nodes_per_copy: of scenes for boards, where all copies have as many.
        owner: whose row holds a record.
        task: what is asked of its nodes.
        canaries: [copies], the node whose row differs; each is a group of figures of its own.
        witnesses: [copies, count], nodes that read a place of the canary's.
        features, labels, splits: of every node, its feature in the column of its copy; labels are numbers of
            what `choose_labels` lists.
        columns: the column of every node.
        owners: the first node of every node's person; itself where it is a person of its own.
        records: [count, 2], the row that owns a record and the other end.
        flips: whether worlds differ in a label instead of a row.
        is_sparse: how features are stored.
        clip: C of runs on it, where it is not that of the plan.
        blocks: the relations that every record is of, with their places; none where the records are the reads
            of the graph. Hashed places are one for each copy: all names of a copy share it.
    """

    copies: int
    nodes_per_copy: int
    owner: EdgeOwner
    task: Task
    canaries: npt.NDArray[np.int64]
    witnesses: npt.NDArray[np.int64]
    features: npt.NDArray[np.float32]
    labels: npt.NDArray[np.int64]
    splits: npt.NDArray[np.str_]
    columns: npt.NDArray[np.int64]
    records: npt.NDArray[np.int64]
    flips: bool
    is_sparse: bool
    clip: float | None
    owners: npt.NDArray[np.int64]
    blocks: tuple[Block, ...] = ()

    @property
    def has_persons(self) -> bool:
        """Whether canaries are persons with several nodes."""
        return bool((self.owners != np.arange(len(self.owners))).any())

    def count_units(self, nodes: npt.NDArray[Any]) -> int:
        """How many of these nodes there are; with persons, how many persons."""
        return len(np.unique(self.owners[nodes]))

    @cached_property
    def graphs(self) -> tuple[Graph, Graph]:
        """Every canary there, and none."""
        return self.graph(np.ones(self.copies, np.bool_)), self.graph(np.zeros(self.copies, np.bool_))

    def graph(self, is_there: Mask) -> Graph:
        """Build the graph that contains these canaries."""
        features, labels, records = self.features.copy(), self.labels.copy(), self.records
        # All nodes of a canary.
        gone = np.flatnonzero(np.isin(self.owners, self.canaries[~is_there]))
        copy_of = np.full(len(labels), -1)
        # A row that is gone keeps its group, so that it shows if rows without a label are counted.
        copy_of[self.canaries] = np.arange(self.copies)
        groups = copy_of[self.owners]
        if self.flips:
            labels[gone] = FLIPPED
        else:
            features[gone], labels[gone] = 0.0, -1
            records = records[~np.isin(records[:, 0], gone)]
        shape = (len(labels), self.copies)
        x: Any = sparse.csr_matrix((features, (np.arange(len(labels)), self.columns)), shape=shape)
        x.eliminate_zeros()
        split = {name: np.flatnonzero(self.splits == name) for name in ("train", "val", "test")}
        edges = (records if self.owner == "sender" else records[:, ::-1]).T
        return Graph.from_arrays(
            edge_index=None if self.blocks else edges,
            relations=[self._relate(block, records) for block in self.blocks],
            x=x if self.is_sparse else x.toarray(),
            y=choose_labels(self.task)[labels],
            train_idx=split["train"],
            val_idx=split["val"],
            test_idx=split["test"],
            num_classes=self.task.num_outputs if isinstance(self.task, Classes) else None,
            task=self.task,
            directed=True,
            groups=groups,
            persons=self.owners if self.has_persons else None,
        )

    def _relate(self, block: Block, records: npt.NDArray[np.int64]) -> Relation:
        """These records as those of one relation; what places are called is the number of a node or copy."""
        weights, (owners, named) = None, records.T
        if block.is_weighted:
            weights = np.ones(len(records))
            weights[np.unique(owners, return_index=True)[1]] = _HEAVY
        if block.kind == "nodes":
            ends = np.stack([owners, named] if self.owner == "sender" else [named, owners])
            return Relation.between_people(block.name, ends, num_nodes=len(self.labels), weights=weights)
        is_hashed = block.kind == "hashed"
        return Relation.to_places(
            block.name,
            owners,
            self.columns[named] if is_hashed else named,
            num_nodes=len(self.labels),
            num_places=block.size,
            weights=weights,
            is_hashed=is_hashed,
        )

    @property
    def is_evaluated(self) -> bool:
        """Whether canaries are rows that figures are computed from."""
        return bool((self.splits[self.canaries] == "val").all())

    def by_copy(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """[copies, ...]: what belongs to the places of each copy, of values for all places of a board."""
        # Behind the nodes of copies come bystanders, which nobody lists.
        ends = np.cumsum([block.size for block in self.blocks])[:-1]
        used = [
            self.copies if block.kind == "hashed" else self.copies * self.nodes_per_copy
            for block in self.blocks or (Block(name="", size=0),)
        ]
        parts = zip(np.split(values, ends), used, strict=True)
        return np.concatenate([part[:count].reshape(self.copies, -1) for part, count in parts], axis=1)

    @property
    def roots(self) -> tuple[int, int]:
        """Labelled training nodes of a copy, with the canary there and without."""
        there, empty = (
            self.count_units(g.train_idx[is_labelled(g.y[g.train_idx])]) // self.copies for g in self.graphs
        )
        return there, empty


@dataclass(eq=False)
class _Drawing:
    """A graph while it grows, copy by copy."""

    owner: EdgeOwner
    copy: int = 0
    features: list[float] = field(default_factory=list)
    columns: list[int] = field(default_factory=list)
    labels: list[int] = field(default_factory=list)
    splits: list[str] = field(default_factory=list)
    records: list[tuple[int, int]] = field(default_factory=list)
    owners: list[int] = field(default_factory=list)

    def node(
        self, *, feature: float = 0.0, label: int = -1, split: Split = "train", owner: int | None = None
    ) -> int:
        self.features.append(feature)
        self.columns.append(self.copy)
        self.labels.append(label)
        self.splits.append(split)
        self.owners.append(len(self.owners) if owner is None else owner)
        return len(self.labels) - 1

    def person(self, count: int, **about: Any) -> list[int]:
        """Add `count` nodes of one person, all alike; one node is a person of its own."""
        first = self.node(**about)
        return [first, *(self.node(owner=first, **about) for _ in range(count - 1))]

    @property
    def num_training(self) -> int:
        """How many nodes, or persons, are in the training split."""
        each = zip(self.owners, self.splits, strict=True)
        return len({owner for owner, split in each if split == "train"})

    def lists(self, node: int, places: Iterable[int]) -> int:
        self.records += [(node, place) for place in places]
        return node

    def reads(self, source: int, reader: int) -> None:
        self.records.append((source, reader) if self.owner == "sender" else (reader, source))

    def readers(self, node: int, *, count: int, depth: int, label: int, feature: float) -> list[int]:
        """`count` training nodes that read `node`, as many again that read each of them, and so on."""
        if depth == 0:
            return []
        nodes = [self.node(label=label, feature=feature) for _ in range(count)]
        for reader in nodes:
            self.reads(node, reader)
            self.readers(reader, count=count, depth=depth - 1, label=label, feature=feature)
        return nodes


def _repeat(
    plan: PrivacyPlan,
    copies: int,
    draw: Callable[[_Drawing], tuple[int, list[int]]],
    *,
    task: Task,
    flips: bool = False,
    is_sparse: bool = False,
    clip: float | None = None,
    blocks: tuple[Block, ...] = (),
) -> Scene:
    """Repeat what `draw` draws `copies` times; it returns the canary and the witnesses."""
    drawing = _Drawing(owner="reader" if plan.edge_owner == "reader" else "sender")
    planted = []
    for copy in range(copies):
        drawing.copy = copy
        planted.append(draw(drawing))
    size, drawing.copy = len(drawing.labels), 0
    for _ in range(count_bystanders(drawing.num_training, plan.sampling_rate)):
        # Unlabelled: whether a bystander joins a batch would only hide the canaries.
        drawing.node()
    return Scene(
        copies=copies,
        nodes_per_copy=size // copies,
        owner=drawing.owner,
        task=task,
        canaries=np.array([canary for canary, _ in planted], np.int64),
        witnesses=np.array([witnesses for _, witnesses in planted], np.int64).reshape(copies, -1),
        features=np.array(drawing.features, np.float32),
        labels=np.array(drawing.labels, np.int64),
        splits=np.array(drawing.splits),
        columns=np.array(drawing.columns, np.int64),
        records=np.array(drawing.records, np.int64).reshape(-1, 2),
        flips=flips,
        is_sparse=is_sparse,
        owners=np.array(drawing.owners, np.int64),
        clip=clip,
        blocks=tuple(
            replace(block, size=copies if block.kind == "hashed" else len(drawing.labels)) for block in blocks
        ),
    )


def choose_blocks(plan: PrivacyPlan, relations: Sequence[RelationInfo] = ()) -> tuple[Block, ...]:
    """The relations of made graphs; none for plain records, and where training reads none.

    Args:
        plan: has as many as these, with weights where it has weights, if nothing else is known.
        relations: of a run: which have weights, and which name places that are not people.
    """
    if not (plan.num_boards or plan.reads_edges):
        return ()
    if relations:
        return tuple(
            Block(name=each.name, size=0, kind=each.kind, is_weighted=each.is_weighted) for each in relations
        )
    if not (plan.is_weighted or plan.num_relations > 1):
        return ()
    return tuple(
        Block(name=f"relation {number}", size=0, is_weighted=plan.is_weighted)
        for number in range(plan.num_relations)
    )


def shrink(task: Task | None) -> Task:
    """The task of made graphs: of classes or labels three, whatever the plan has; else the same."""
    if isinstance(task, TwoClasses):
        return task
    if isinstance(task, Labels):
        return Labels(num_labels=NUM_CLASSES)
    if isinstance(task, Number):
        return Number()
    return Classes(num_classes=NUM_CLASSES)


def choose_labels(task: Task) -> npt.NDArray[Any]:
    """Labels as the task takes them: those of others, what a flipped one becomes, the canary's, and none.

    A flip changes a ballot by as much as the task allows.
    """
    if isinstance(task, TwoClasses):
        return np.array([1 - task.positive, 1 - task.positive, task.positive, -1])
    if isinstance(task, Labels):
        return np.concatenate([np.eye(NUM_CLASSES, dtype=np.int64), np.full((1, NUM_CLASSES), -1)])
    if isinstance(task, Number):
        return np.array([0.0, -1.0, 1.0, np.nan], np.float32)
    return np.array([0, FLIPPED, UNIQUE, -1])


def plant_rows(
    plan: PrivacyPlan,
    *,
    copies: int,
    degree: int,
    difference: Difference = "emptied",
    nodes_each: int = 1,
    task: Task | None = None,
    blocks: tuple[Block, ...] | None = None,
) -> Scene:
    """Canaries that list `degree` places, which two others read.

    Args:
        plan: whose edge owner and sampling rate the graph is for.
        copies: how many canaries.
        degree: places that each lists.
        difference: "emptied" empties a row with a training label; "evaluated" one of the validation split,
            whose label is counted in tables of figures and nowhere else; "flipped" changes the label.
        nodes_each: how many nodes a canary has, all with the same label, features and places.
        task: what the plan is for; one of c classes unless given.
        blocks: the relations that every record is of, of any size; those of the plan unless given. Of
            weights, a row gives nearly all to the first place it lists.
    """
    if blocks is None:
        blocks = choose_blocks(plan)
    # Where batches are drawn, whether somebody else joins would only hide the canary.
    others_label = 0 if plan.sampling_rate == 1 else -1

    def draw(drawing: _Drawing) -> tuple[int, list[int]]:
        places = [drawing.node(split="test") for _ in range(degree)]
        split: Split = "val" if difference == "evaluated" else "train"
        nodes = drawing.person(nodes_each, label=UNIQUE, split=split, feature=HOT)
        for node in nodes:
            drawing.lists(node, places)
        canary = nodes[0]
        witnesses = [drawing.node(label=others_label), drawing.node(split="test")]
        drawing.lists(witnesses[0], [*places, canary])
        drawing.lists(witnesses[1], places)
        return canary, witnesses

    flips = difference == "flipped"
    return _repeat(plan, copies, draw, task=shrink(task), flips=flips, is_sparse=True, blocks=blocks)


def plant_trees(
    plan: PrivacyPlan,
    *,
    copies: int,
    canary: str = "strongest",
    nodes_each: int = 1,
    temperatures: tuple[float, float] | None = None,
    blocks: tuple[Block, ...] = (),
) -> Scene:
    """Canaries that change as many training trees as the plan counts, and each as much as can be.

    Args:
        plan: whose depth, K, D, edge owner and sampler count. Its number of training nodes does not.
        copies: how many canaries.
        canary: "strongest" has a label and is read by K nodes, each by K more, and where readers own the
            edges it also holds places that others take when it goes. "read" is outside the training split:
            training reaches it through edges only. "hub" matters only by whom it displaces: where readers
            own the edges, the others who get its places; where senders do, what its readers read instead.
        nodes_each: how many nodes a canary has, all alike; for plans that read no edge in training.
        temperatures: the features of hot and cold nodes, where they are not those of the plan.
        blocks: as in `plant_rows`.
    """
    if canary not in CANARIES:
        raise InputError(f"canary={canary!r}: expected one of {', '.join(CANARIES)}")
    if canary != "strongest" and not plan.reads_edges:
        raise InputError(f"canary={canary!r}: this plan reads no edge in training; expected 'strongest'")
    by_reader = plan.edge_owner == "reader"
    K, r = (plan.max_readers, plan.num_layers) if plan.reads_edges else (0, 0)
    # The published sampler keeps a record for certain where at most K / 2 read a node.
    count = max(1, K // 2) if plan.sampler == "paper" and K else K
    label = 0 if canary == "strongest" or (canary == "hub" and not by_reader) else -1
    hot, cold = temperatures or choose_temperatures(plan)

    def draw(drawing: _Drawing) -> tuple[int, list[int]]:
        split: Split = "test" if canary == "read" else "train"
        v = drawing.person(nodes_each, feature=hot, label=label, split=split)[0]
        only_displaces = canary == "hub" and by_reader
        depth = 0 if only_displaces else r
        first = drawing.readers(v, count=count, depth=depth, label=0, feature=cold)
        if r and by_reader and canary != "read":
            (_crowd if plan.sampler == "paper" else _displace)(drawing, v, plan)
        if r and canary == "hub" and not by_reader:
            _rival(drawing, v, first, plan)
        return v, []

    clip = _SMALL_CLIP if plan.clipping == "groups" else None
    return _repeat(plan, copies, draw, task=Classes(num_classes=2), clip=clip, blocks=blocks)


def choose_temperatures(plan: PrivacyPlan) -> tuple[float, float]:
    """Features so that one hot node outweighs the cold ones of a tree, whose shares halve in every layer."""
    return (1.0, 0.0) if plan.clipping == "groups" else (-COLD * 2.0 ** (plan.num_layers + 4), COLD)


def move_plan(plan: PrivacyPlan, scene: Scene) -> PrivacyPlan:
    """The plan for the training nodes of the scene, with the same noise and nearly the same batches."""
    nodes = scene.count_units(np.flatnonzero(scene.splits == "train"))
    changes: dict[str, Any] = {
        "num_train_nodes": nodes,
        "batch_size": max(1, round(plan.sampling_rate * nodes)),
    }
    if plan.num_tables:
        # The tables of the task of the scene, which one row shifts as far as those of the plan.
        tables = scene.task.num_tables
        noise = plan.table_noise * math.sqrt(tables / plan.num_tables)
        changes |= {"num_tables": tables, "table_noise": noise}
    if scene.clip is not None:
        changes["clip"] = scene.clip
    return replace(plan, **changes).with_classes(scene.task.num_outputs)


def count_bystanders(others: int, rate: float) -> int:
    """How many make the rate of whole batches of all training nodes, the `others` included, nearly `rate`."""
    nodes = others + _BYSTANDERS
    while rate < 1 and abs(max(1, round(rate * nodes)) / nodes - rate) > _RATE_TOLERANCE * rate:
        nodes += 1
    return nodes - others


def _displace(drawing: _Drawing, v: int, plan: PrivacyPlan) -> None:
    """v reads D hot nodes; K others want to read each, and one of them can only when v does not.

    The trees of that one and of its readers turn hot when v goes, where those around v turn cold: the other
    label makes both push the same way.
    """
    word = seed_word(KEY_SEED)
    hot, cold = choose_temperatures(plan)
    K, D, r = plan.max_readers, plan.max_reads or 0, plan.num_layers
    for _ in range(D):
        waiting = [drawing.node(feature=cold) for _ in range(K)]
        while True:
            source = drawing.node(feature=hot, split="test")
            keys = {reader: int(pair_key(source, reader, word)) for reader in (v, *waiting)}
            last = max(keys, key=keys.__getitem__)
            if last != v:
                break
        for reader in keys:
            drawing.reads(source, reader)
        drawing.labels[last] = 1
        drawing.readers(last, count=K, depth=r - 1, label=1, feature=cold)


def _crowd(drawing: _Drawing, v: int, plan: PrivacyPlan) -> None:
    """v reads many hot nodes that others read too: the published sampler flips other coins when v goes."""
    others = max(1, plan.max_readers - 1)
    hot, cold = choose_temperatures(plan)
    for _ in range(_READS_PER_CHANGED_TREE * plan.changed_trees):
        source = drawing.node(feature=hot, split="test")
        for reader in (v, *(drawing.node(label=1, feature=cold) for _ in range(others))):
            drawing.reads(source, reader)


def _rival(drawing: _Drawing, v: int, readers: list[int], plan: PrivacyPlan) -> None:
    """Every reader of v has one place, D = 1, and a second offer, for when v's goes."""
    word = seed_word(KEY_SEED)
    _, cold = choose_temperatures(plan)
    for reader in readers:
        while True:
            rival = drawing.node(feature=cold, split="test")
            if int(pair_key(v, reader, word)) < int(pair_key(rival, reader, word)):
                break
        drawing.reads(rival, reader)
