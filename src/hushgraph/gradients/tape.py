"""Recording what per-root gradients are made of: every layer's input rows and output-gradient rows.

While a model is taped, its supported layers keep these rows and compute no parameter gradients of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from hushgraph.models.gnn import Scale


@dataclass(eq=False)
class Record:
    """One call of a layer: input rows and output-gradient rows.

    Attributes:
        inputs: [rows, ...], all dimensions before the last flattened; [rows] of an Embedding.
        tree_rows: how many rows of the trees these are; `rows` is a multiple of it.
        gradients: [rows, d] once the backward pass has come by.
    """

    inputs: Tensor
    tree_rows: int
    gradients: Tensor | None = None


@dataclass(eq=False)
class Tape:
    """The records of every taped layer, by the layer's name in the model."""

    records: dict[str, list[Record]] = field(default_factory=dict)


class _Recorded(torch.autograd.Function):
    """The output of a layer as it is; its gradient is recorded, whether or not the inputs need one."""

    @staticmethod
    def forward(ctx: Any, out: Tensor, parameter: Tensor, record: Record) -> Tensor:
        ctx.record = record
        ctx.mark_dirty(out)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        ctx.record.gradients = grad.reshape(-1, grad.shape[-1])
        return grad, None, None


def _linear(layer: nn.Linear, x: Tensor) -> tuple[Tensor, Tensor]:
    bias = None if layer.bias is None else layer.bias.detach()
    return _rows(x), functional.linear(x, layer.weight.detach(), bias)


def _layer_norm(layer: nn.LayerNorm, x: Tensor) -> tuple[Tensor, Tensor]:
    normalised = functional.layer_norm(x, layer.normalized_shape, eps=layer.eps)
    weight, bias = layer.weight.detach(), layer.bias
    out = normalised * weight if bias is None else torch.addcmul(bias.detach(), normalised, weight)
    return _rows(normalised), out


def _scale(layer: Scale, x: Tensor) -> tuple[Tensor, Tensor]:
    return _rows(x), x * (1.0 + layer.epsilon.detach())


def _embedding(layer: nn.Embedding, index: Tensor) -> tuple[Tensor, Tensor]:
    return index.detach().reshape(-1), functional.embedding(index, layer.weight.detach())


def _rows(x: Tensor) -> Tensor:
    return x.detach().reshape(-1, x.shape[-1])


# From a layer and its input to the input rows that are recorded and the output.
TAPED: dict[type[nn.Module], Callable[[Any, Tensor], tuple[Tensor, Tensor]]] = {
    nn.Linear: _linear,
    nn.LayerNorm: _layer_norm,
    nn.Embedding: _embedding,
    Scale: _scale,
}


@contextmanager
def taped(model: nn.Module, tape: Tape, *, leave_out: nn.Module | None = None) -> Iterator[None]:
    """Within this context the layers of `model`, those inside `leave_out` excepted, write to `tape`."""
    skipped = set() if leave_out is None else set(leave_out.modules())
    patched: list[nn.Module] = []

    def forward_of(layer: nn.Module, name: str, parameter: nn.Parameter) -> Callable[[Tensor], Tensor]:
        def forward(x: Tensor) -> Tensor:
            rows, out = TAPED[type(layer)](layer, x)
            record = Record(rows, x.shape[0])
            tape.records.setdefault(name, []).append(record)
            recorded: Tensor = _Recorded.apply(out, parameter, record)  # type: ignore[no-untyped-call]
            return recorded

        return forward

    try:
        for name, layer in model.named_modules():
            parameter = next(layer.parameters(recurse=False), None)
            if type(layer) in TAPED and layer not in skipped and parameter is not None:
                layer.forward = forward_of(layer, name, parameter)
                patched.append(layer)
        yield
    finally:
        for layer in patched:
            del layer.forward
