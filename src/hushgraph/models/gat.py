"""Graph attention with dot products, as the paper uses it."""

from __future__ import annotations

import math

from torch import Tensor, nn

from hushgraph.errors import ModelError
from hushgraph.models.blocks import Reads
from hushgraph.models.parts import ACTIVATIONS, Activation


class GATLayer(nn.Module):
    """Every row attends to itself and what it reads: softmax of query . key / sqrt(size), per head.

    Heads have `ceil(size / heads)` columns each; an output layer brings them back to `size`. A layer
    that does not attend has no queries and keys and weighs everything alike.
    """

    def __init__(self, size: int, activation: Activation, heads: int = 10, *, attends: bool = True) -> None:
        super().__init__()
        if heads < 1:
            raise ModelError(f"heads={heads}: expected at least 1 attention head")
        self.heads, self.head_size = heads, math.ceil(size / heads)
        inner = self.heads * self.head_size
        self.attends = attends
        if attends:
            self.query = nn.Linear(size, inner)
            self.key = nn.Linear(size, inner)
        self.value = nn.Linear(size, inner)
        self.output = nn.Linear(inner, size)
        self.activation = ACTIVATIONS[activation]()

    def forward(self, h: Tensor, reads: Reads) -> Tensor:
        # The mean of values is the value of the mean.
        read = self._attended(h, reads) if self.attends else self.value(reads.mean(h))
        out: Tensor = self.activation(self.output(read))
        return out

    def _attended(self, h: Tensor, reads: Reads) -> Tensor:
        query = self.query(reads.own(h))
        key = reads.entries(h, self.key)
        value = reads.entries(h, self.value)
        split = (-1, self.heads, self.head_size)
        scores = (query[reads.parents].view(split) * key.view(split)).sum(-1) / math.sqrt(self.head_size)
        weighted = value.view(split) * reads.softmax(scores)[:, :, None]
        return reads.sum_of_entries(weighted.flatten(1))
