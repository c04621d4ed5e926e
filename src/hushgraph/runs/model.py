"""The model of a run: built in, by its configuration, or the caller's own, which is checked."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn

from hushgraph.errors import RunError
from hushgraph.models.gnn import GNN, ReadingMLP, start_at

if TYPE_CHECKING:
    from hushgraph.runs.folder import RunFolder


def build_model(folder: RunFolder, own: nn.Module | None = None, *, seed: int | None = None) -> nn.Module:
    """See `RunFolder.build_model`."""
    folder.task.check()
    if own is not None:
        return _check_own(folder, own)
    with torch.random.fork_rng(devices=[], enabled=seed is not None):
        if seed is not None:
            torch.manual_seed(seed % 2**63)
        return start_at(_build(folder), folder.task.first_output)


def _build(folder: RunFolder) -> GNN | ReadingMLP:
    if folder.config.model == "own":
        raise RunError(f"run={folder.path}: it trained a module of your own; pass it as model=")
    if folder.num_boards:
        return ReadingMLP(
            folder.num_features,
            folder.task.num_outputs,
            reading_width=folder.reading_width,
            num_readings=folder.num_readings,
            ballot_width=folder.task.ballot_width,
            hidden=folder.config.hidden,
            activation=folder.config.activation,
        )
    return GNN(
        folder.num_features,
        folder.task.num_outputs,
        model=folder.config.model,
        num_layers=folder.plan.num_layers,
        hidden=folder.config.hidden,
        encoder_layers=folder.config.encoder_layers,
        decoder_layers=folder.config.decoder_layers,
        activation=folder.config.activation,
        feature_norm=folder.config.feature_norm,
        attends=folder.plan.reads_edges,
        # Maps that no gradient reaches would be noise alone.
        num_relations=folder.num_own_places if folder.plan.reads_edges else 1,
    )


def _check_own(folder: RunFolder, model: nn.Module) -> nn.Module:
    if folder.config.model != "own":
        raise RunError(f"run={folder.path}: it trains the built-in {folder.config.model}; leave out model")
    from hushgraph.gradients.model_check import check_model

    check_model(
        model,
        num_features=folder.input_width,
        num_outputs=folder.task.num_outputs,
        depth=folder.plan.num_layers,
        relations=folder.relations if folder.plan.num_layers else (),
    )
    return model
