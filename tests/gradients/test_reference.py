"""The reference against gradients written out by hand, and the plain sum against the reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import reference
from hushgraph.gradients.clip import Clipping
from hushgraph.gradients.unclipped import gradient_sum
from hushgraph.models.gnn import GNN


def test_a_gradient_without_reads_is_the_formula_of_a_two_layer_network(made_up: Any) -> None:
    torch.manual_seed(0)
    model = GNN(5, 3, model="mlp", hidden=4).double()
    x, label = made_up.graph.x[4].astype(np.float64), int(made_up.graph.y[4])
    parameters = {name: p.detach().numpy() for name, p in model.named_parameters()}
    h = np.tanh(parameters["encoder.0.weight"] @ x + parameters["encoder.0.bias"])
    scores = parameters["decoder.0.weight"] @ h + parameters["decoder.0.bias"]
    last = np.exp(scores) / np.exp(scores).sum() - np.eye(3)[label]
    first = (parameters["decoder.0.weight"].T @ last) * (1 - h**2)
    expected = {
        "encoder.0.weight": np.outer(first, x),
        "encoder.0.bias": first,
        "decoder.0.weight": np.outer(last, h),
        "decoder.0.bias": last,
    }
    found = reference.root_gradient(model, made_up.graph, made_up.lists, 4, 0)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(found[name].numpy(), value, rtol=1e-6, atol=1e-9)


def test_one_root_is_clipped_to_c(made_up: Any) -> None:
    gradient = {"encoder.weight": torch.tensor([3.0, 0.0]), "decoder.weight": torch.tensor([4.0])}
    flat = reference.clipped(gradient, Clipping(kind="flat", clip=1.0))
    torch.testing.assert_close(flat["encoder.weight"], torch.tensor([0.6, 0.0]), rtol=1e-4, atol=0)
    torch.testing.assert_close(flat["decoder.weight"], torch.tensor([0.8]), rtol=1e-4, atol=0)
    groups = reference.clipped(gradient, Clipping.of_groups((1.0, 1.0, 2.0)))
    torch.testing.assert_close(groups["encoder.weight"], torch.tensor([1.0, 0.0]), rtol=1e-4, atol=0)
    torch.testing.assert_close(groups["decoder.weight"], torch.tensor([2.0]), rtol=1e-4, atol=0)


@pytest.mark.parametrize("depth", [0, 1, 2])
@pytest.mark.parametrize("name", ["gcn", "gin", "gat"])
def test_the_plain_sum_is_the_reference_without_clipping(made_up: Any, name: str, depth: int) -> None:
    torch.manual_seed(depth)
    model = GNN(5, 3, model=name, num_layers=depth, hidden=6, activation="relu")
    found = gradient_sum(model, made_up.batch(depth))
    never = Clipping(kind="flat", clip=1e9)
    expected = reference.clipped_sum(
        model.double(), made_up.graph, made_up.lists, made_up.roots, depth, never
    )
    whole = torch.stack([value.norm() for value in expected.values()]).norm()
    for parameter_name, value in expected.items():
        error = (found[parameter_name].double() - value).norm()
        assert float(error / torch.maximum(value.norm(), 1e-3 * whole)) < 1e-5


def test_the_plain_sum_of_nothing_is_zero(made_up: Any) -> None:
    model = GNN(5, 3, hidden=6)
    assert not any(value.any() for value in gradient_sum(model, made_up.batch(1, [])).values())
    assert not any(value.any() for value in gradient_sum(model, made_up.batch(1, [9])).values())
