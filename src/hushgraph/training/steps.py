"""How the steps of a run are computed: on rows or on trees, on the CPU or a GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

from hushgraph.gradients import ghost
from hushgraph.gradients.clip import GROUPS, Clipping
from hushgraph.gradients.recorded import RecordedTreeSums
from hushgraph.gradients.rows import RowSums, find_chain
from hushgraph.gradients.rows_torch import RecordedRowSums
from hushgraph.gradients.unclipped import gradient_sum
from hushgraph.graph.graph import Graph
from hushgraph.inference.in_memory import WholeGraph
from hushgraph.models.gnn import GNN, GCNLayer
from hushgraph.models.recording import choose_room
from hushgraph.noise.source import NoiseSource
from hushgraph.privacy.ledger import Ledger
from hushgraph.privacy.plans import PrivacyPlan, bound_tree_size
from hushgraph.runs.folder import RunFolder
from hushgraph.sampling.random import KeyedGenerator
from hushgraph.training.distributed import Group, require_leader
from hushgraph.training.parts import ClippedSum, Parts
from hushgraph.training.row_batches import RowBatches
from hushgraph.training.source import StepParts
from hushgraph.training.trainer import State, Trainer
from hushgraph.training.tree_batches import TreeBatches


def build_steps(
    folder: RunFolder, view: WholeGraph, state: State, *, key: int, group: Group, parts: Parts
) -> StepParts:
    """Batches and sums of a graph in memory.

    How sums are computed follows from plan, model and device, never from the data.

    Args:
        folder, state, group: of the run.
        view: the graph, and what roots see of it.
        key: of the batches, the same in every process.
        parts: lists and clipped sum; an audit replaces some.
    """
    plan, device = folder.plan, view.features.device
    common: dict[str, Any] = {
        "graph": view.graph,
        "features": view.features,
        "plan": plan,
        "rng": KeyedGenerator(key),
        "group": group,
    }
    if takes_rows(plan, state.model) and not has_shared_roots(view.graph):
        rows = RowBatches(**common, feature_norm=getattr(state.model, "feature_norm", 0.0))
        sums = RowSums(state.model) if device.type == "cpu" else RecordedRowSums(device)
        return StepParts(rows, parts.adapt_sum(sums), sums)
    trees = TreeBatches(
        **common,
        resample_every=folder.config.resample_every,
        make_lists=parts.make_lists,
        holds_entries=holds_entries(state.model),
    )
    # A root of several nodes has a row for each, as a tree has.
    clipped_sum = (
        ghost.clipped_sum
        if has_shared_roots(view.graph)
        else choose_tree_sums(plan, view.graph.num_nodes, device)
    )
    return StepParts(trees, parts.adapt_sum(clipped_sum), gradient_sum)


def build_trainer(
    folder: RunFolder,
    state: State,
    steps: StepParts,
    *,
    ledger: Ledger | None,
    noise: NoiseSource | None,
    group: Group,
    parts: Parts,
) -> Trainer:
    """The loop of a run; the arguments are those of `Trainer`."""
    plan = folder.plan
    clipping = (
        Clipping(kind="groups", clip=plan.clip)
        if plan.clipping == "percentile"
        else Clipping(
            kind=plan.clipping,
            clip=plan.clip,
            stability=folder.config.stability,
            class_weights=folder.config.class_weights,
        )
    )
    trainer = Trainer(
        plan=plan,
        config=folder.config,
        state=state,
        clipping=clipping,
        ledger=ledger,
        noise=noise,
        group=group,
        charge=parts.charge,
        **steps._asdict(),
    )
    if plan.clipping == "percentile":
        thresholds = choose_percentile_clipping(trainer).thresholds
        encoder, aggregation, decoder = group.broadcast(lambda: require_leader(thresholds))
        trainer.set_clipping(Clipping.of_groups((encoder, aggregation, decoder)))
    return trainer


def takes_rows(plan: PrivacyPlan, model: nn.Module) -> bool:
    """Whether steps are taken on rows and not on trees; follows from plan and model, never from the data."""
    chain = None if plan.reads_edges or plan.clipping == "percentile" else find_chain(model)
    return chain is not None and chain.is_float32


def holds_entries(model: nn.Module) -> bool:
    """Whether steps hold numbers for every row of a tree: a mean of what one layer encodes needs none."""
    if type(model) is not GNN or not model.depth:
        return True
    return not (type(model.layers[0]) is GCNLayer and len(list(model.encoder)) == 2)


def has_shared_roots(graph: Graph) -> bool:
    """Whether a person has several training nodes, which is public: roots are then persons, not rows."""
    return graph.persons is not None and graph.num_train_units < len(graph.train_idx)


def choose_tree_sums(plan: PrivacyPlan, num_nodes: int, device: torch.device) -> ClippedSum:
    """The clipped sums of trees that suit the device."""
    if device.type != "cuda":
        return ghost.clipped_sum
    largest = bound_tree_size(plan.max_readers, plan.max_reads, plan.num_layers, num_nodes)
    room = None if plan.sampling_rate == 1 else 1 + choose_room(plan.batch_size, plan.num_train_nodes)
    return RecordedTreeSums(largest_tree=largest, room=room)


def choose_percentile_clipping(trainer: Trainer, percentile: float = 75.0) -> Clipping:
    """The paper's thresholds: a percentile of each group's norms at initialisation. Reads private data."""
    batches = trainer.batches
    if not isinstance(batches, TreeBatches):
        raise TypeError(f"{type(batches).__name__}: expected batches of trees")
    pieces = batches.cut_pieces(batches.sample_lists(), batches.graph.train_idx)
    norms = torch.cat([ghost.group_norms(trainer.state.model, piece) for piece in pieces], dim=1)
    # A group without parameters has norm zero everywhere; any threshold serves it.
    encoder, aggregation, decoder = (
        max(float(np.percentile(norms[group].cpu().numpy(), percentile)), 1e-12)
        for group in range(len(GROUPS))
    )
    return Clipping.of_groups((encoder, aggregation, decoder))
