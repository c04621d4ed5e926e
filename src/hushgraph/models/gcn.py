"""Graph convolution with the inverse-degree normalisation (d + I)^-1 (A + I)."""

from __future__ import annotations

from torch import Tensor, nn

from hushgraph.models.blocks import Reads
from hushgraph.models.parts import ACTIVATIONS, Activation


class GCNLayer(nn.Module):
    """activation(Linear(mean of the row and what it reads))."""

    def __init__(self, size: int, activation: Activation) -> None:
        super().__init__()
        self.linear = nn.Linear(size, size)
        self.activation = ACTIVATIONS[activation]()

    def forward(self, h: Tensor, reads: Reads) -> Tensor:
        out: Tensor = self.activation(self.linear(reads.mean(h)))
        return out
