"""Weights under which what a root reads decides the direction of its gradient, and nothing else does.

Initial weights are public, so an attacker may choose them, and a row may hold any features. Here features
are huge and the encoder's weights are tiny, so that the whole network is linear to within rounding, and the
encoder's weights get nearly all of the gradient: the weighted sum of the features of a tree. A hot node makes
that sum positive, a tree of cold nodes has a negative one, and the gradient is turned around. Its norm is
far above the stability constant of the clipping, so that its clipped norm is C.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from hushgraph.audit.scene import Temperatures
from hushgraph.models.gnn import GNN
from hushgraph.privacy.plans import PrivacyPlan

HIDDEN = 2

_COLD = -1e4
# What the network's hidden values are at most: small enough for tanh to be the identity.
_LARGEST_HIDDEN = 1e-3

Weights = dict[str, Tensor]


def new_model(model: str, plan: PrivacyPlan, *, hidden: int = HIDDEN) -> GNN:
    """The small model that is attacked."""
    return GNN(
        1,
        2,
        model=model,  # type: ignore[arg-type]
        num_layers=plan.num_layers,
        hidden=hidden,
        attends=plan.reads_edges,
    )


def pointed_temperatures(num_layers: int) -> Temperatures:
    """Features so that one hot node outweighs the cold ones of a tree, whose shares halve in every layer."""
    return Temperatures(hot=-_COLD * 2.0 ** (num_layers + 4), cold=_COLD)


def pointed(model: GNN) -> list[Weights]:
    """Two settings of the weights that give the canary opposite gradients."""
    hot = pointed_temperatures(model.depth).hot
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            part, _, last = name.rpartition(".")
            if last != "weight" or part.endswith(("query", "key")):
                # Queries and keys of zero attend to all alike.
                parameter.zero_()
            elif part.startswith("encoder"):
                # Sums of what is read at most double a value in every layer.
                parameter.fill_(_LARGEST_HIDDEN / (hot * 2.0**model.depth))
            elif part.startswith("decoder"):
                parameter.copy_(torch.tensor([[1.0], [-1.0]]).expand_as(parameter))
            else:
                parameter.copy_(_repeat_identity(*parameter.shape))
    first = _copy(model)
    second = {name: -value if name.startswith("decoder") else value for name, value in first.items()}
    return [first, second]


def spread(model: GNN, *, seed: int) -> list[Weights]:
    """Weights under which every parameter has a gradient."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) / 2)
    return [_copy(model)]


def use(model: nn.Module, weights: Weights) -> None:
    """Give `model` these weights."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(weights[name])


def _repeat_identity(rows: int, columns: int) -> Tensor:
    """The identity, repeated where a layer is wider than its input and averaged where it is narrower."""
    size = min(rows, columns)
    same = torch.arange(rows)[:, None] % size == torch.arange(columns)[None, :] % size
    return same.float() / same.sum(1, keepdim=True)


def _copy(model: nn.Module) -> Weights:
    return {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
