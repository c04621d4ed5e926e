"""Weights that an attacker would choose; initial weights and optimisers are public.

Features are huge and the weights of the first layer tiny, so that the network is linear to within rounding
and the first layer gets nearly all of the gradient: in the column of its own feature, for every canary.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from hushgraph.audit.runs import Weights
from hushgraph.audit.scene import FLIPPED, HOT, UNIQUE, Difference, choose_temperatures
from hushgraph.models.gnn import ReadingMLP
from hushgraph.privacy.plans import PrivacyPlan
from hushgraph.tasks.number import Number
from hushgraph.tasks.task import Task
from hushgraph.tasks.two_classes import TwoClasses

# What hidden values are at most: small enough for tanh to be the identity.
_LARGEST_HIDDEN = 1e-3
# A score that decides, and one that no probability is left to.
_SURE, _NEVER = 60.0, -60.0
# Weights that saturate tanh, and beside which the bias of the outputs has no gradient to speak of.
_STEEP = 1e3


def find_outputs(task: Task) -> tuple[int, int | None]:
    """The output of the canary's label, and that of a flipped one; a number has no other."""
    if isinstance(task, TwoClasses):
        return task.positive, 1 - task.positive
    return (0, None) if isinstance(task, Number) else (UNIQUE, FLIPPED)


def point_rows(model: ReadingMLP, difference: Difference, task: Task) -> list[Weights]:
    """Two settings of a billboard's weights that give every canary opposite gradients.

    Rows without features are predicted by their reading. A canary is predicted with certainty, a label that
    is not its own, or a number far below its own; where labels are flipped, either label has half a chance,
    and a number is predicted in the middle, so that a flip turns the gradient around.
    """
    right, wrong = find_outputs(task)
    weights = {name: torch.zeros_like(parameter) for name, parameter in model.named_parameters()}
    weights["skip.weight"] = 2.0 * torch.eye(*weights["skip.weight"].shape)
    first, last = weights["encoder.0.weight"], weights["decoder.weight"]
    first[:, : model.num_features] = _LARGEST_HIDDEN / HOT
    size = 1.0 if difference == "flipped" else _SURE / _LARGEST_HIDDEN
    last[right] = -size
    if wrong is not None:
        last[wrong] = size
    if difference == "flipped" and wrong is not None:
        weights["decoder.bias"].fill_(_NEVER)
        weights["decoder.bias"][[wrong, right]] = 0.0
    return [weights, _mirror(weights, ("encoder.0.weight", "decoder.weight"))]


def point_trees(model: nn.Module, plan: PrivacyPlan) -> list[Weights]:
    """Two settings under which what a root reads decides the direction of its gradient.

    The gradient is the weighted sum of the features of a tree: positive with a hot node in it, negative
    without one.
    """
    hot, depth = choose_temperatures(plan)[0], plan.num_layers
    # Sums of what is read at most double a value in every layer, or multiply it by relations and one.
    growth = max(2, 1 + sum(name.startswith("layers.0.maps.") for name, _ in model.named_parameters()))
    weights = {}
    for name, parameter in model.named_parameters():
        part, _, last = name.rpartition(".")
        value = torch.zeros_like(parameter)
        # Queries and keys of zero attend to all alike.
        if last == "weight" and not part.endswith(("query", "key")):
            if part.startswith("encoder"):
                value.fill_(_LARGEST_HIDDEN / (hot * float(growth) ** depth))
            elif part.startswith("decoder"):
                value.copy_(torch.tensor([[1.0], [-1.0]]).expand_as(value))
            else:
                value.copy_(_repeat_identity(*value.shape))
        weights[name] = value
    return [weights, _mirror(weights, [name for name in weights if name.startswith("decoder")])]


def point_maps(model: nn.Module, plan: PrivacyPlan) -> list[Weights]:
    """Return two settings of the weights: nearly all of the gradient of a root that reads is in the maps.

    Features are 1 or 0. All layers but the last saturate, and the last is 0: nothing is learned below its
    maps, whose inputs are what was read, and the loss is steep.
    """
    last = f"layers.{plan.num_layers - 1}."
    weights = {name: torch.zeros_like(parameter) for name, parameter in model.named_parameters()}
    for name, value in weights.items():
        if name.startswith("decoder") and name.endswith("weight"):
            value.copy_(_STEEP * torch.tensor([[1.0], [-1.0]]).expand_as(value))
        elif name.startswith("encoder") and name.endswith("weight"):
            value.fill_(_STEEP)
        elif name.endswith("weight") and not name.startswith(last):
            value.copy_(_STEEP * torch.eye(len(value)))
    return [weights, _mirror(weights, [name for name in weights if name.startswith("decoder")])]


def spread(model: nn.Module, *, seed: int) -> list[Weights]:
    """Weights under which every parameter has a gradient."""
    generator = torch.Generator().manual_seed(seed)
    return [{n: torch.randn(p.shape, generator=generator) / 2 for n, p in model.named_parameters()}]


def _mirror(weights: Weights, names: list[str] | tuple[str, ...]) -> Weights:
    return {name: -value if name in names else value.clone() for name, value in weights.items()}


def _repeat_identity(rows: int, columns: int) -> Tensor:
    """The identity, repeated where a layer is wider than its input and averaged where it is narrower."""
    size = min(rows, columns)
    same = torch.arange(rows)[:, None] % size == torch.arange(columns)[None, :] % size
    return same.float() / same.sum(1, keepdim=True)
