"""Weights under which what a root reads decides the direction of its gradient, and little else does.

Initial weights are public, so an attacker may choose them. Here every hidden unit is near +1 for a hot root
and near -1 for a cold one, and the decoder is zero: a root's gradient is then its hidden row, turned around
when the row turns cold, and its direction depends on nothing else.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from hushgraph.models.gnn import GNN
from hushgraph.privacy.plan import PrivacyPlan

HIDDEN = 10

# Hidden value of a cold node before messages, and the slopes that push everything to +1 or -1.
_COLD = -0.69
_HEAT = 6.0
_SLOPE, _LIFT = 10.0, 3.0
# Of the layers' parts; everything else is zero, so that attention attends to all alike and scores are zero.
_SLOPES = {"linear": _SLOPE, "mlp.0": _SLOPE, "mlp.2": _SLOPE, "value": 1.0, "output": _SLOPE}
_CONSTANTS = {
    ("encoder.0", "weight"): _HEAT,
    ("encoder.0", "bias"): _COLD,
    ("linear", "bias"): _LIFT,
    ("mlp.0", "bias"): _LIFT,
    ("output", "bias"): _LIFT,
}

Weights = dict[str, Tensor]


def new_model(model: str, plan: PrivacyPlan) -> GNN:
    """The small model that is attacked."""
    return GNN(
        1,
        2,
        model=model,  # type: ignore[arg-type]
        num_layers=plan.num_layers,
        hidden=HIDDEN,
        attends=plan.reads_edges,
    )


def pointed(model: GNN) -> list[Weights]:
    """Two settings of the weights that give the canary opposite gradients."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            part, _, last = name.rpartition(".")
            if part.startswith("layers"):
                part = part.split(".", 2)[2]
            if last == "weight" and part in _SLOPES:
                parameter.copy_(_SLOPES[part] * torch.eye(HIDDEN))
            else:
                parameter.fill_(_CONSTANTS.get((part, last), 0.0))
    first = _copied(model)
    # The network is odd in these: hidden rows change sign, scores stay as they are.
    second = {
        name: -value if name.startswith("encoder") or name.endswith("bias") else value
        for name, value in first.items()
    }
    return [first, second]


def spread(model: GNN, *, seed: int) -> list[Weights]:
    """Weights under which every group of layers has a gradient, for clipping by groups."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) / 2)
    return [_copied(model)]


def use(model: nn.Module, weights: Weights) -> None:
    """Give `model` these weights."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(weights[name])


def _copied(model: nn.Module) -> Weights:
    return {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
