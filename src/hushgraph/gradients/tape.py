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

    def new(self, name: str, inputs: Tensor, tree_rows: int) -> Record:
        record = Record(inputs, tree_rows)
        self.records.setdefault(name, []).append(record)
        return record


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, record: Record) -> Tensor:
        ctx.record = record
        ctx.save_for_backward(weight)
        return functional.linear(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, None, None, None]:
        ctx.record.gradients = grad.reshape(-1, grad.shape[-1])
        (weight,) = ctx.saved_tensors
        return (grad @ weight if ctx.needs_input_grad[0] else None), None, None, None


class _Affine(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, record: Record) -> Tensor:
        ctx.record = record
        ctx.save_for_backward(weight)
        return x * weight if bias is None else torch.addcmul(bias, x, weight)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, None, None, None]:
        ctx.record.gradients = grad.reshape(-1, grad.shape[-1])
        (weight,) = ctx.saved_tensors
        return (grad * weight if ctx.needs_input_grad[0] else None), None, None, None


class _Embedding(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, index: Tensor, weight: Tensor, record: Record) -> Tensor:
        ctx.record = record
        return functional.embedding(index, weight)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[None, None, None]:
        ctx.record.gradients = grad.reshape(-1, grad.shape[-1])
        return None, None, None


def _rows(x: Tensor) -> Tensor:
    return x.detach().reshape(-1, x.shape[-1])


def _linear(layer: nn.Linear, tape: Tape, name: str, x: Tensor) -> Tensor:
    record = tape.new(name, _rows(x), x.shape[0])
    out: Tensor = _Linear.apply(x, layer.weight, layer.bias, record)  # type: ignore[no-untyped-call]
    return out


def _layer_norm(layer: nn.LayerNorm, tape: Tape, name: str, x: Tensor) -> Tensor:
    normalised = functional.layer_norm(x, layer.normalized_shape, eps=layer.eps)
    if not layer.elementwise_affine:
        return normalised
    record = tape.new(name, _rows(normalised), x.shape[0])
    out: Tensor = _Affine.apply(normalised, layer.weight, layer.bias, record)  # type: ignore[no-untyped-call]
    return out


def _scale(layer: Scale, tape: Tape, name: str, x: Tensor) -> Tensor:
    record = tape.new(name, _rows(x), x.shape[0])
    out: Tensor = _Affine.apply(x, 1.0 + layer.epsilon, None, record)  # type: ignore[no-untyped-call]
    return out


def _embedding(layer: nn.Embedding, tape: Tape, name: str, index: Tensor) -> Tensor:
    record = tape.new(name, index.detach().reshape(-1), index.shape[0])
    out: Tensor = _Embedding.apply(index, layer.weight, record)  # type: ignore[no-untyped-call]
    return out


TAPED: dict[type[nn.Module], Callable[[Any, Tape, str, Tensor], Tensor]] = {
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

    def forward_of(layer: nn.Module, name: str) -> Callable[[Tensor], Tensor]:
        return lambda x: TAPED[type(layer)](layer, tape, name, x)

    try:
        for name, layer in model.named_modules():
            if type(layer) in TAPED and layer not in skipped:
                layer.forward = forward_of(layer, name)
                patched.append(layer)
        yield
    finally:
        for layer in patched:
            del layer.forward
