"""The encoder, run once per distinct node although many roots read it.

Going forwards, what a node's features become does not depend on who reads it. Going backwards, every root
has a gradient of its own; the norms are taken per entry, and the weighted sum goes back through shared rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from hushgraph.gradients import norms as pairs
from hushgraph.models import blocks as rowsums
from hushgraph.models.blocks import Reads, RowGradient


def is_shareable(encoder: nn.Module) -> bool:
    """Whether `encoder` is Linear layers with biases, each followed by tanh or relu."""
    modules = list(encoder) if isinstance(encoder, nn.Sequential) else []
    if not modules or len(modules) % 2:
        return False
    linears, activations = modules[::2], modules[1::2]
    return all(type(m) is nn.Linear and m.bias is not None for m in linears) and all(
        type(m) in (nn.Tanh, nn.ReLU) for m in activations
    )


@dataclass(frozen=True, eq=False)
class SharedEncoder:
    """One pass of an encoder over shared rows: per layer (layer, inputs, activated outputs, whether relu)."""

    passes: list[tuple[nn.Linear, Tensor, Tensor, bool]]

    @classmethod
    def run(cls, encoder: nn.Sequential, x: Tensor) -> SharedEncoder:
        passes: list[tuple[nn.Linear, Tensor, Tensor, bool]] = []
        modules = list(encoder)
        with torch.no_grad():
            for layer, activation in zip(modules[::2], modules[1::2], strict=True):
                if not isinstance(layer, nn.Linear):
                    raise TypeError(f"{type(layer).__name__} in an encoder that is not shareable")
                relu = isinstance(activation, nn.ReLU)
                z = layer(x)
                out = z.relu_() if relu else z.tanh_()
                passes.append((layer, x, out, relu))
                x = out
        return cls(passes)

    @property
    def output(self) -> Tensor:
        return self.passes[-1][2]

    def squared_norms(
        self, gradient: RowGradient, index: Tensor, pointers: Tensor, most_rows: int
    ) -> tuple[Tensor, Tensor]:
        """Per root, over all layers of the encoder; `gradient` is that of the output, per entry."""
        squares: list[Tensor] = []
        sizes: list[Tensor] = []
        for number in reversed(range(len(self.passes))):
            layer, inputs, outputs, relu = self.passes[number]
            norms, singles = pairs.shared_linear_norms(
                inputs, outputs, relu, index, gradient, pointers, most_rows=most_rows
            )
            squares.append(norms)
            sizes.append(singles)
            if number:
                rows = pairs.through_activation(pairs.entry_gradients(gradient), outputs[index], relu)
                rows = rows @ layer.weight.detach()
                gradient = RowGradient(rows, None, None)
        return sum(squares[1:], squares[0]), sum(sizes[1:], sizes[0])

    def weighted_sums(self, gradient: RowGradient, reads: Reads, entry_factors: Tensor) -> dict[str, Tensor]:
        """Per parameter of the encoder: the sum over entries of factor times gradient."""
        parents, coefficients = gradient.parents, gradient.coefficients
        if parents is None:
            parents = torch.arange(reads.num_entries, device=entry_factors.device)
        weights = entry_factors if coefficients is None else entry_factors * coefficients
        rows = rowsums.scatter_sum(gradient.upper, parents, weights, *reads.by_lower)
        sums = {}
        for number in reversed(range(len(self.passes))):
            layer, inputs, outputs, relu = self.passes[number]
            rows = pairs.through_activation(rows, outputs, relu)
            sums[f"{2 * number}.weight"] = rows.T @ inputs
            sums[f"{2 * number}.bias"] = rows.sum(0)
            if number:
                rows = rows @ layer.weight.detach()
        return sums


def total_gradient(gradients: list[RowGradient]) -> RowGradient:
    """One gradient per entry where the output was used several times."""
    if len(gradients) == 1:
        return gradients[0]
    return RowGradient(torch.stack([pairs.entry_gradients(g) for g in gradients]).sum(0), None, None)
