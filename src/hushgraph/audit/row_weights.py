"""Weights of a billboard model that an attacker would choose; initial weights and optimisers are public."""

from __future__ import annotations

from typing import cast

import torch
from torch import nn

from hushgraph.audit.board_scene import FLIPPED, HOT, NUM_CLASSES, UNIQUE
from hushgraph.audit.weights import Weights
from hushgraph.models.gnn import ReadingMLP

_NUM_FEATURES = 1
# What the hidden unit is at most, where the network is to be linear.
_LARGEST_HIDDEN = 1e-3
# A score that decides, and one that no probability is left to.
_SURE, _NEVER = 60.0, -60.0


def new_row_model() -> ReadingMLP:
    """The billboard's model with one feature and one hidden unit."""
    return ReadingMLP(_NUM_FEATURES, NUM_CLASSES, hidden=1)


def _first_layer(model: ReadingMLP) -> nn.Linear:
    return cast(nn.Linear, model.encoder[0])


def copy_weights(model: nn.Module) -> Weights:
    """The parameters by name."""
    return {name: parameter.detach().clone() for name, parameter in model.named_parameters()}


def point_at_features() -> list[Weights]:
    """Two settings that give the canary opposite gradients, and give either label of a flip opposite ones.

    Only the classes of the flip have a chance, an equal one. The canary's feature is so large that the
    gradient of its weight outweighs all others, those by the readings too: they are bounded by a public
    radius.
    """
    model = new_row_model()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        _first_layer(model).weight[:, :_NUM_FEATURES] = _LARGEST_HIDDEN / HOT
        model.decoder.bias.fill_(_NEVER)
        model.decoder.bias[[FLIPPED, UNIQUE]] = 0.0
        model.decoder.weight[FLIPPED], model.decoder.weight[UNIQUE] = 1.0, -1.0
    first = copy_weights(model)
    second = {name: -value if name == "decoder.weight" else value for name, value in first.items()}
    return [first, second]


def point_at_readings() -> list[Weights]:
    """Two settings under which the gradient of a row without features points where its reading points.

    Scores do not depend on the reading, so that its direction alone decides.
    """
    model = new_row_model()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        # Nobody in the crowd has this class, so that the gradients of all have one sign.
        model.decoder.weight[UNIQUE] = _SURE
    first = copy_weights(model)
    second = {name: -value if name == "decoder.weight" else value for name, value in first.items()}
    return [first, second]


def follow_readings() -> Weights:
    """Weights that predict by the reading, and with certainty for a row with a huge feature."""
    model = new_row_model()
    with torch.no_grad():
        for parameter in (*model.encoder.parameters(), *model.decoder.parameters()):
            parameter.zero_()
        _first_layer(model).weight[:, :_NUM_FEATURES] = 1.0
        model.decoder.weight.fill_(_NEVER)
        model.decoder.weight[UNIQUE] = _SURE
    return copy_weights(model)
