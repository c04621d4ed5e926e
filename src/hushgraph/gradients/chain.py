"""A model as a chain of Linear layers over single rows, laid out for the kernels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from hushgraph.gradients import row_kernels as kernels
from hushgraph.gradients.clip import group_of
from hushgraph.gradients.sums import CHUNK
from hushgraph.models.gnn import GNN, GCNLayer, ReadingMLP

Float32Array = npt.NDArray[np.float32]
Float64Array = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, eq=False)
class Chain:
    """Linear layers with one activation between them, and a Linear layer from the last inputs to the scores.

    Attributes:
        layers: names and layers, first to last.
        skip: name and layer of the connection from inputs to scores; None where there is none.
        relu: the activation is relu; tanh otherwise.
        feature_norm: the norm that features are scaled to first; 0 leaves them unscaled.
    """

    layers: tuple[tuple[str, nn.Linear], ...]
    skip: tuple[str, nn.Linear] | None
    relu: bool
    feature_norm: float

    @property
    def is_float32(self) -> bool:
        """Whether the weights have the precision that the kernels compute in."""
        return all(layer.weight.dtype == torch.float32 for _, layer in self.layers)

    @cached_property
    def layout(self) -> Layout:
        """Where everything of the chain stands in flat arrays."""
        return Layout(self)


class Layout:
    """Places of weights, sums and the numbers of a chunk in flat arrays.

    Attributes:
        layers: int64 [layers, 9], the table that the kernels read.
        skip: int64 [9], the same for the skip connection; zero inputs where there is none.
        num_sums: numbers of the weights and biases, padded.
        num_weights: the same with the weights that the backward pass reads.
        num_work: numbers of a chunk.
    """

    def __init__(self, chain: Chain) -> None:
        sizes = [(layer.in_features, layer.out_features) for _, layer in chain.layers]
        self.layers = np.zeros((len(sizes), 9), np.int64)
        self.skip = np.zeros(9, np.int64)
        self.num_sums = self.num_work = 0
        for row, (size_in, size_out) in zip(self.layers, sizes, strict=True):
            width = _pad(size_out)
            row[kernels.SIZE_IN], row[kernels.SIZE_OUT], row[kernels.WIDTH] = size_in, size_out, width
            row[kernels.FORWARD], row[kernels.BIAS] = self.num_sums, self.num_sums + size_in * width
            self.num_sums += (size_in + 1) * width
            row[kernels.OUTPUT], row[kernels.GRADIENT] = self.num_work, self.num_work + CHUNK * width
            self.num_work += 2 * CHUNK * width
        last = self.layers[-1]
        # Scores become their gradients in place.
        last[kernels.GRADIENT] = last[kernels.OUTPUT]
        for row, (name, _) in zip(self.layers, chain.layers, strict=True):
            row[kernels.GROUP] = group_of(name)
        if chain.skip is not None:
            self.skip[kernels.SIZE_IN] = chain.skip[1].in_features
            self.skip[kernels.FORWARD] = self.num_sums
            self.skip[kernels.GRADIENT] = self.num_work
            self.skip[kernels.GROUP] = group_of(chain.skip[0])
            self.num_sums += chain.skip[1].in_features * int(last[kernels.WIDTH])
            self.num_work += CHUNK * int(last[kernels.WIDTH])
        self.num_weights = self.num_sums
        for row, before in zip(self.layers[1:], self.layers[:-1], strict=True):
            row[kernels.BACKWARD] = self.num_weights
            self.num_weights += int(row[kernels.SIZE_OUT] * before[kernels.WIDTH])
        self._chain = chain

    def _forward_blocks(self) -> Iterator[tuple[str, nn.Linear, int, int, int | None]]:
        """Names, layers, places of weights, padded widths and places of biases."""
        for row, (name, layer) in zip(self.layers, self._chain.layers, strict=True):
            yield name, layer, int(row[kernels.FORWARD]), int(row[kernels.WIDTH]), int(row[kernels.BIAS])
        if self._chain.skip is not None:
            name, layer = self._chain.skip
            yield name, layer, int(self.skip[kernels.FORWARD]), int(self.layers[-1][kernels.WIDTH]), None

    @torch.no_grad()
    def pack(self, weights: Tensor) -> None:
        """Copy the weights of the chain into a flat tensor; what is padding stays as it is, zero."""
        for _, layer, place, width, bias in self._forward_blocks():
            size_in, size_out = layer.in_features, layer.out_features
            weights[place : place + size_in * width].view(size_in, width)[:, :size_out] = layer.weight.T
            if bias is not None:
                weights[bias : bias + size_out] = layer.bias
        for row, before, (_, layer) in zip(
            self.layers[1:], self.layers[:-1], self._chain.layers[1:], strict=True
        ):
            place, width = int(row[kernels.BACKWARD]), int(before[kernels.WIDTH])
            block = weights[place : place + layer.out_features * width].view(layer.out_features, width)
            block[:, : layer.in_features] = layer.weight

    def unpack(self, sums: Tensor) -> dict[str, Tensor]:
        """The sums of a flat tensor by the names of the parameters."""
        named = {}
        for name, layer, place, width, bias in self._forward_blocks():
            size_in, size_out = layer.in_features, layer.out_features
            block = sums[place : place + size_in * width].view(size_in, width)
            named[f"{name}.weight"] = block[:, :size_out].T.contiguous()
            if bias is not None:
                named[f"{name}.bias"] = sums[bias : bias + size_out].clone()
        return named


def _pad(size: int) -> int:
    return -(-size // kernels.LANES) * kernels.LANES


def find_chain(model: nn.Module) -> Chain | None:
    """The chain that a model is for a root that reads nothing; None for models that are none."""
    # A subclass may do anything in its forward.
    if type(model) is ReadingMLP:
        encoder, activation = model.encoder
        layers = (("encoder.0", cast(nn.Linear, encoder)), ("decoder", model.decoder))
        return Chain(
            layers=layers, skip=("skip", model.skip), relu=isinstance(activation, nn.ReLU), feature_norm=0.0
        )
    if type(model) is not GNN or not all(type(layer) is GCNLayer for layer in model.layers):
        return None
    linears = tuple((name, part) for name, part in model.named_modules() if type(part) is nn.Linear)
    relu = isinstance(model.encoder[-1], nn.ReLU)
    return Chain(layers=linears, skip=None, relu=relu, feature_norm=model.feature_norm)
