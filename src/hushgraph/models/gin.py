"""Graph isomorphism network layer."""

from __future__ import annotations

from torch import Tensor, nn

from hushgraph.models.blocks import Reads
from hushgraph.models.parts import ACTIVATIONS, Activation, Scale, mlp


class GINLayer(nn.Module):
    """activation(MLP((1 + epsilon) * row + sum of what it reads)), the MLP of two layers."""

    def __init__(self, size: int, activation: Activation) -> None:
        super().__init__()
        self.scale = Scale()
        self.mlp = mlp([size, size, size], activation, activate_last=False)
        self.activation = ACTIVATIONS[activation]()

    def forward(self, h: Tensor, reads: Reads) -> Tensor:
        out: Tensor = self.activation(self.mlp(self.scale(reads.own(h)) + reads.sum_of_reads(h)))
        return out
