"""The gradient sum of a batch without clipping: training without privacy, and the floor of every timing."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from hushgraph.gradients.batch import TreeBatch
from hushgraph.gradients.shared import is_shareable
from hushgraph.inputs.sparse_inputs import SparseInputs
from hushgraph.models.gnn import GNN


def gradient_sum(model: nn.Module, batch: TreeBatch) -> dict[str, Tensor]:
    """Per parameter, the sum over the roots of `batch` of their gradients."""
    parameters = dict(model.named_parameters())
    if batch.num_roots == 0:
        return {name: torch.zeros_like(p) for name, p in parameters.items()}
    with torch.enable_grad():
        loss = batch.loss(_scores(model, batch), batch.labels).sum()
        gradients = torch.autograd.grad(loss, list(parameters.values()), allow_unused=True)
    return {
        name: torch.zeros_like(p) if g is None else g
        for (name, p), g in zip(parameters.items(), gradients, strict=True)
    }


def _scores(model: nn.Module, batch: TreeBatch) -> Tensor:
    """Scores of the roots; sparse features stay sparse where the first layer is known."""
    scores: Tensor
    x = batch.x
    # A subclass may do anything in its forward.
    if isinstance(x, SparseInputs) and type(model) is GNN and is_shareable(model.encoder):
        first = model.encoder[0]
        if first.weight.dtype == torch.float32:
            inputs = x.scale(model.feature_norm)
            z = _SparseLinear.apply(first.weight, first.bias, inputs)  # type: ignore[no-untyped-call]
            scores = model.propagate(model.encoder[1:](z), batch.blocks)
            return scores
    scores = model(batch.dense_x, batch.blocks)
    return scores


class _SparseLinear(torch.autograd.Function):
    """A Linear layer of sparse rows."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, bias: Tensor, inputs: SparseInputs) -> Tensor:
        ctx.inputs = inputs
        return inputs.multiply(weight, bias)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        inputs: SparseInputs = ctx.inputs
        total = torch.zeros(inputs.num_columns, grad.shape[1], dtype=torch.float64)
        inputs.add_products(0, grad.double(), inputs.new_cursor(), total)
        return total.T.to(grad.dtype), grad.sum(0), None
