"""Graphs made to let one row change as many training trees as it can, and each of them as much as it can.

Nothing of the user's data is in them. One feature tells hot nodes, the canary among them, from cold ones. A
tree with a hot node in it and a tree without one have opposite gradients (`weights`).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from hushgraph.errors import InputError
from hushgraph.graph.graph import Graph
from hushgraph.privacy.plans import PrivacyPlan
from hushgraph.sampling.keys import pair_key, seed_word

CANARIES = ("strongest", "read", "hub")
# Roots in every batch that no canary reaches: they add the same to both worlds.
# Seven and a canary that nobody reads make eight: dividing by that batch size loses no digits.
_BYSTANDERS = 7
_RATE_TOLERANCE = 0.005
# The published sampler bounds nothing here, so the hub may read as many as one likes.
_READS_PER_CHANGED_TREE = 8
# Group thresholds below every group's gradient, so that each group is clipped. Epsilon does not depend on C.
_SMALL_CLIP = 1e-3
# The keys are no secret, so the attacker may choose them; all that matters is that they stay the same.
_FIRST_SEED = 7


@dataclass(frozen=True, kw_only=True, eq=False)
class Scene:
    """Two neighbouring graphs.

    Attributes:
        graph: with the canary's row.
        emptied: the same without it.
        canary: the node whose row it is.
        key_seed: of the sampler's keys.
    """

    graph: Graph
    emptied: Graph
    canary: int
    key_seed: int


@dataclass(frozen=True, kw_only=True)
class Temperatures:
    """The one feature of a hot node and of a cold one."""

    hot: float = 1.0
    cold: float = 0.0


@dataclass(eq=False)
class _Drawing:
    """A graph while it grows."""

    hot: list[bool] = field(default_factory=list)
    labels: list[int] = field(default_factory=list)
    in_training: list[bool] = field(default_factory=list)
    reads: list[tuple[int, int]] = field(default_factory=list)

    def node(self, *, hot: bool = False, label: int = -1, train: bool = True) -> int:
        self.hot.append(hot)
        self.labels.append(label)
        self.in_training.append(train)
        return len(self.hot) - 1

    def readers(self, node: int, *, count: int, depth: int, label: int) -> list[int]:
        """`count` training nodes that read `node`, as many again that read each of them, and so on."""
        if depth == 0:
            return []
        nodes = [self.node(label=label) for _ in range(count)]
        for reader in nodes:
            self.reads.append((node, reader))
            self.readers(reader, count=count, depth=depth - 1, label=label)
        return nodes


def scene_for(
    plan: PrivacyPlan, *, canary: str = "strongest", temperatures: Temperatures | None = None
) -> Scene:
    """The graphs on which the trees that `plan` says may change do change.

    Args:
        plan: whose depth, K, D, edge owner and sampler count. Its number of training nodes does not.
        canary: "strongest" has a label and is read by K nodes, each by K more, and where readers own the
            edges it also holds places that others take when it goes. "read" is outside the training split:
            training reaches it through edges only. "hub" matters only by whom it displaces: where readers
            own the edges, the others who get its places; where senders do, what its readers read instead.
        temperatures: the features of hot and cold nodes. [1 and 0]
    """
    values = temperatures or Temperatures()
    if canary not in CANARIES:
        raise InputError(f"canary={canary!r}: expected one of {', '.join(CANARIES)}")
    if canary != "strongest" and not plan.reads_edges:
        raise InputError(f"canary={canary!r}: this plan reads no edge in training; expected strongest")
    drawing = _Drawing()
    by_reader = plan.edge_owner == "reader"
    only_displaces = canary == "hub" and by_reader
    canary_label = 0 if canary == "strongest" or (canary == "hub" and not by_reader) else -1
    v = drawing.node(hot=True, label=canary_label, train=canary != "read")
    K, r = (plan.max_readers, plan.num_layers) if plan.reads_edges else (0, 0)
    # The published sampler keeps a record for certain where at most K / 2 read a node.
    count = max(1, K // 2) if plan.sampler == "paper" and K else K
    first = [] if only_displaces else drawing.readers(v, count=count, depth=r, label=0)
    seed = _FIRST_SEED
    if r and by_reader and canary != "read":
        if plan.sampler == "paper":
            _crowd(drawing, v, plan)
        else:
            _displaced(drawing, v, plan, seed)
    if r and canary == "hub" and not by_reader:
        seed = _rivals(drawing, v, first, plan)
    for number in range(count_bystanders(sum(drawing.in_training), plan.sampling_rate)):
        # Unlabelled where batches are drawn: whether a bystander joins would only hide the canary.
        drawing.node(hot=number % 2 == 0, label=number % 2 if plan.sampling_rate == 1 else -1)
    graph = Graph.from_arrays(
        edge_index=np.array(drawing.reads, dtype=np.int64).reshape(-1, 2).T,
        x=np.where(drawing.hot, np.float32(values.hot), np.float32(values.cold))[:, None],
        y=np.array(drawing.labels),
        train_idx=np.flatnonzero(drawing.in_training),
        num_classes=2,
        directed=True,
    )
    emptied = graph.with_row_emptied(v, "reader" if by_reader else "sender")
    return Scene(graph=graph, emptied=emptied, canary=v, key_seed=seed)


def move_plan(plan: PrivacyPlan, scene: Scene) -> PrivacyPlan:
    """The plan for the training nodes of the scene, with the same noise and nearly the same batches."""
    nodes = len(scene.graph.train_idx)
    rate = plan.sampling_rate
    changes: dict[str, Any] = {"num_train_nodes": nodes, "batch_size": max(1, round(rate * nodes))}
    if plan.clipping == "groups":
        changes["clip"] = _SMALL_CLIP
    moved = replace(plan, **changes)
    return replace(moved, sigma_over_clip=plan.sigma_over_clip)


def count_bystanders(others: int, rate: float) -> int:
    """How many make the rate of whole batches of all training nodes, the `others` included, nearly `rate`."""
    nodes = others + _BYSTANDERS
    while rate < 1 and abs(max(1, round(rate * nodes)) / nodes - rate) > _RATE_TOLERANCE * rate:
        nodes += 1
    return nodes - others


def _displaced(drawing: _Drawing, v: int, plan: PrivacyPlan, seed: int) -> None:
    """v reads D hot nodes; K others want to read each, and one of them can only when v does not.

    The trees of that one and of its readers turn hot when v goes, where those around v turn cold: the other
    label makes both push the same way.
    """
    word = seed_word(seed)
    K, D, r = plan.max_readers, plan.max_reads or 0, plan.num_layers
    for _ in range(D):
        waiting = [drawing.node() for _ in range(K)]
        while True:
            source = drawing.node(hot=True, train=False)
            keys = {reader: int(pair_key(source, reader, word)) for reader in (v, *waiting)}
            last = max(keys, key=keys.__getitem__)
            if last != v:
                break
        drawing.reads += [(source, reader) for reader in keys]
        drawing.labels[last] = 1
        drawing.readers(last, count=K, depth=r - 1, label=1)


def _crowd(drawing: _Drawing, v: int, plan: PrivacyPlan) -> None:
    """v reads many hot nodes that others read too: the published sampler flips other coins when v goes."""
    others = max(1, plan.max_readers - 1)
    for _ in range(_READS_PER_CHANGED_TREE * plan.changed_trees):
        source = drawing.node(hot=True, train=False)
        drawing.reads += [(source, reader) for reader in (v, *(drawing.node(label=1) for _ in range(others)))]


def _rivals(drawing: _Drawing, v: int, readers: list[int], plan: PrivacyPlan) -> int:
    """Every reader of v has one place and a second offer, for when v's goes; a seed that puts v's first."""
    if plan.max_reads != 1:
        raise InputError(
            f"max_reads={plan.max_reads}: a hub that displaces reads needs full lists; expected max_reads=1, "
            "which costs nothing where senders own the edges"
        )
    offers = [(drawing.node(train=False), reader) for reader in readers]
    drawing.reads += offers
    for seed in range(_FIRST_SEED, 1 << 20):
        word = seed_word(seed)
        if all(int(pair_key(v, w, word)) < int(pair_key(rival, w, word)) for rival, w in offers):
            return seed
    raise InputError(f"max_readers={plan.max_readers}: too many for a hub; expected at most 15")
