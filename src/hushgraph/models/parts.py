"""The small parts models are made of."""

from __future__ import annotations

from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor, nn

Activation = Literal["tanh", "relu"]

ACTIVATIONS: dict[str, type[nn.Module]] = {"tanh": nn.Tanh, "relu": nn.ReLU}


class Scale(nn.Module):
    """Multiplies by 1 + epsilon with one learned epsilon: the scalar of GIN."""

    def __init__(self) -> None:
        super().__init__()
        self.epsilon = nn.Parameter(torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        return x * (1.0 + self.epsilon)


def mlp(sizes: list[int], activation: Activation, *, activate_last: bool) -> nn.Sequential:
    """Linear layers of the given sizes with the activation between them, and after the last if asked."""
    modules: list[nn.Module] = []
    for number, (size_in, size_out) in enumerate(pairwise(sizes)):
        modules.append(nn.Linear(size_in, size_out))
        if activate_last or number < len(sizes) - 2:
            modules.append(ACTIVATIONS[activation]())
    return nn.Sequential(*modules)
