"""Which encoders may run once per distinct node."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from hushgraph.gradients.shared import SharedEncoder, is_shareable
from hushgraph.models.gnn import mlp


@pytest.mark.parametrize(
    ("encoder", "shareable"),
    [
        (mlp([4, 3], "tanh", activate_last=True), True),
        (mlp([4, 3, 3], "relu", activate_last=True), True),
        (mlp([4, 3, 3], "relu", activate_last=False), False),
        (nn.Sequential(), False),
        (nn.Linear(4, 3), False),
        (nn.Sequential(nn.Linear(4, 3, bias=False), nn.Tanh()), False),
        (nn.Sequential(nn.Linear(4, 3), nn.GELU()), False),
        (nn.Sequential(nn.LayerNorm(4), nn.Tanh()), False),
    ],
)
def test_only_linear_layers_with_tanh_or_relu_are_shared(encoder: nn.Module, shareable: bool) -> None:
    assert is_shareable(encoder) is shareable


@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_a_shared_pass_is_the_encoder(activation: str) -> None:
    torch.manual_seed(0)
    encoder = mlp([4, 3, 5], activation, activate_last=True)
    x = torch.randn(7, 4)
    torch.testing.assert_close(SharedEncoder.run(encoder, x).output, encoder(x).detach())


def test_another_layer_in_a_shared_pass_is_an_error() -> None:
    with pytest.raises(TypeError, match="LayerNorm in an encoder that is not shareable"):
        SharedEncoder.run(nn.Sequential(nn.LayerNorm(4), nn.Tanh()), torch.zeros(1, 4))
