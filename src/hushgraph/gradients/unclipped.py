"""The gradient sum of a batch without clipping: training without privacy, and the floor of every timing."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from hushgraph.gradients.batch import TreeBatch


def gradient_sum(model: nn.Module, batch: TreeBatch) -> dict[str, Tensor]:
    """Per parameter, the sum over the roots of `batch` of their gradients."""
    parameters = dict(model.named_parameters())
    if batch.num_roots == 0:
        return {name: torch.zeros_like(p) for name, p in parameters.items()}
    with torch.enable_grad():
        loss = functional.cross_entropy(
            model(batch.dense_x, batch.blocks), batch.labels, ignore_index=-1, reduction="sum"
        )
        gradients = torch.autograd.grad(loss, list(parameters.values()), allow_unused=True)
    return {
        name: torch.zeros_like(p) if g is None else g
        for (name, p), g in zip(parameters.items(), gradients, strict=True)
    }
