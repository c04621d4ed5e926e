"""Clipped sums where a root is one row: no trees, no gathering, no second pass.

A root that reads nothing has one row in every Linear layer, so its squared gradient norm there is
(|a|^2 + 1) |d|^2 from its input row a and its output-gradient row d, and the clipped sum is one product of
inputs and weighted output gradients. Rows are taken in chunks that stay in the cache.
"""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn

from hushgraph.gradients import ghost
from hushgraph.gradients.batch import TreeBatch
from hushgraph.gradients.clip import GROUPS, Clipping, group_of
from hushgraph.gradients.sums import sums_of_roots
from hushgraph.models.gnn import ReadingMLP

# Rows of a chunk, a multiple of `sums.CHUNK`: few enough that its tensors stay in the cache of a core.
_CHUNK = {"cpu": 4096, "cuda": 1 << 20}


class RowSums:
    """Clipped sums of batches of rows; keeps the norms of inputs that do not change from step to step.

    Used in place of `ghost.clipped_sum`, to which it hands every batch and model that it does not know.

    Guarantees:
        Gives the clipped sum that `ghost.clipped_sum` gives, up to rounding; norms are accumulated in
        float64.
    """

    def __init__(self) -> None:
        self._input: Tensor | None = None
        self._squares = torch.empty(0, dtype=torch.float64)

    def __call__(self, model: nn.Module, batch: TreeBatch, clipping: Clipping) -> dict[str, Tensor]:
        """The clipped sum over the rows of `batch`, per parameter, in float64."""
        if batch.blocks or not _is_known(model):
            return ghost.clipped_sum(model, batch, clipping)
        if self._input is not batch.x:
            self._input, self._squares = batch.x, _squared_norms(batch.x)
        sums = {name: torch.zeros_like(p, dtype=torch.float64) for name, p in model.named_parameters()}
        size = _CHUNK[batch.x.device.type]
        with torch.no_grad():
            for begin in range(0, batch.num_roots, size):
                rows = slice(begin, begin + size)
                _add_chunk(model, batch.x[rows], batch.labels[rows], self._squares[rows], clipping, sums)
        return sums


def _is_known(model: nn.Module) -> bool:
    return isinstance(model, ReadingMLP) and isinstance(model.encoder[-1], nn.Tanh)


def _squared_norms(rows: Tensor) -> Tensor:
    """float64 [rows]: squared norms, without forming a float64 copy of all rows."""
    size = _CHUNK[rows.device.type]
    parts = [rows[i : i + size].double().square().sum(1) for i in range(0, len(rows), size)]
    return torch.cat(parts) if parts else rows.new_zeros(0, dtype=torch.float64)


def _add_chunk(
    model: nn.Module,
    x: Tensor,
    labels: Tensor,
    input_squares: Tensor,
    clipping: Clipping,
    sums: dict[str, Tensor],
) -> None:
    if not isinstance(model, ReadingMLP):
        raise TypeError(f"{type(model).__name__}: expected a ReadingMLP")
    encoder, decoder, skip = cast(nn.Linear, model.encoder[0]), model.decoder, model.skip
    readings = x[:, model.num_features :]
    h = torch.tanh(torch.addmm(encoder.bias, x, encoder.weight.t()))
    scores = torch.addmm(decoder.bias, h, decoder.weight.t()).addmm_(readings, skip.weight.t())
    # Gradient of the cross-entropy by the scores: probabilities less the label; nothing without a label.
    gradient = scores.softmax(1)
    has_label = labels >= 0
    gradient[torch.arange(len(labels), device=labels.device), labels.clamp(min=0)] -= 1
    gradient *= has_label[:, None]
    hidden_gradient = (gradient @ decoder.weight).mul_(1 - h * h)
    squares = x.new_zeros(len(GROUPS), len(labels), dtype=torch.float64)
    gradient_squares, hidden_squares = _squared_norms(gradient), _squared_norms(hidden_gradient)
    squares[group_of("encoder")] += (input_squares + 1) * hidden_squares
    squares[group_of("decoder")] += (_squared_norms(h) + 1) * gradient_squares
    squares[group_of("skip")] += _squared_norms(readings) * gradient_squares
    factors = clipping.factors(squares, torch.zeros_like(squares))
    parts = {
        "encoder.0": (hidden_gradient, x, factors[group_of("encoder")]),
        "decoder": (gradient, h, factors[group_of("decoder")]),
        "skip": (gradient, readings, factors[group_of("skip")]),
    }
    # Zero times infinity is not zero: rows that are not finite have factor 0, and spoil sums all the same.
    clean = not bool(squares.isfinite().all())
    for name, (gradients, inputs, weights) in parts.items():
        weight, bias = sums_of_roots(gradients, inputs, weights, clean=clean)
        sums[f"{name}.weight"] += weight
        if f"{name}.bias" in sums:
            sums[f"{name}.bias"] += bias
