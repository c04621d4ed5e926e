"""Rows recorded from every kind of layer give the clipped sums of one root at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import reference
from hushgraph.errors import ModelError
from hushgraph.gradients import clip, ghost
from hushgraph.gradients.clip import Clipping
from hushgraph.gradients.tape import TAPED, Tape, taped
from hushgraph.models.blocks import Reads
from hushgraph.models.gnn import Scale


class Model(nn.Module):
    """Linear, whatever `middle` is, a mean over the reads, Linear."""

    def __init__(self, middle: nn.Module) -> None:
        super().__init__()
        self.encoder = nn.Linear(5, 6)
        self.middle = middle
        self.decoder = nn.Linear(6, 3)

    def forward(self, x: Tensor, blocks: Sequence[Reads]) -> Tensor:
        h = self.middle(torch.tanh(self.encoder(x)))
        for reads in reversed(blocks):
            h = reads.mean(h)
        out: Tensor = self.decoder(h)
        return out


class Twice(nn.Module):
    """Calls one Linear layer twice."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = torch.tanh(self.linear(torch.relu(self.linear(x))))
        return out


class OnParts(nn.Module):
    """Calls its layer on [rows, 2, 3]."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = torch.tanh(self.layer(x.view(-1, 2, 3)).flatten(1))
        return out


class Looked(nn.Module):
    """Adds rows of a table, several per row and the same ones again in other rows of a root."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(4, 6)

    def forward(self, x: Tensor) -> Tensor:
        index = (x[:, :3] * 10).long().abs() % 4
        out: Tensor = x + self.table(index).sum(1) * x + self.table(index[:, 0])
        return out


class Unused(nn.Module):
    """Holds a layer that is never called, and one whose result is thrown away."""

    def __init__(self) -> None:
        super().__init__()
        self.idle, self.wasted = nn.Linear(6, 6), nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        self.wasted(x)
        return x


MIDDLES = {
    "scale": Scale,
    "layer norm": lambda: nn.LayerNorm(6),
    "layer norm without bias": lambda: nn.LayerNorm(6, bias=False),
    "plain layer norm": lambda: nn.LayerNorm(6, elementwise_affine=False),
    "linear without bias": lambda: nn.Linear(6, 6, bias=False),
    "in place": lambda: nn.Sequential(nn.Linear(6, 6), nn.ReLU(inplace=True)),
    "twice": Twice,
    "linear on parts": lambda: OnParts(nn.Linear(3, 3)),
    "layer norm on parts": lambda: OnParts(nn.LayerNorm(3)),
    "scale on parts": lambda: OnParts(Scale()),
    "embedding": Looked,
    "unused": Unused,
}


@pytest.mark.parametrize("kind", ["flat", "groups", "normalised"])
@pytest.mark.parametrize("name", MIDDLES)
@pytest.mark.parametrize("depth", [0, 2])
def test_every_layer_has_the_clipped_sum_of_the_reference(
    made_up: Any, name: str, kind: str, depth: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The margin for rounding is larger where rows cancel, which one root at a time does not see.
    monkeypatch.setattr(clip, "ROUNDING_MARGIN", 0.0)
    torch.manual_seed(3)
    model = Model(MIDDLES[name]())
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    clipping = Clipping(kind=kind, clip=0.4)
    found = ghost.clipped_sum(model, made_up.batch(depth), clipping)
    expected = reference.clipped_sum(
        model.double(), made_up.graph, made_up.lists, made_up.roots, depth, clipping
    )
    assert found.keys() == expected.keys()
    # A sum over roots may cancel, and is then measured against a part of what one root can give.
    least = torch.tensor(0.1 * clipping.clip, dtype=torch.float64)
    for parameter_name, value in expected.items():
        error = (found[parameter_name].double() - value).norm()
        assert float(error / torch.maximum(value.norm(), least)) < 1e-5, parameter_name


def test_a_taped_model_computes_the_same_and_keeps_no_gradients() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6), nn.LayerNorm(6), Scale(), nn.Linear(6, 2))
    x = torch.randn(5, 4)
    expected = model(x)
    tape = Tape()
    with taped(model, tape):
        found = model(x)
        found.sum().backward()
    torch.testing.assert_close(found, expected)
    assert all(p.grad is None for p in model.parameters())
    assert list(tape.records) == ["0", "1", "2", "3"]
    assert [tuple(record.inputs.shape) for (record,) in tape.records.values()] == [
        (5, 4),
        (5, 6),
        (5, 6),
        (5, 6),
    ]
    assert torch.equal(tape.records["3"][0].gradients, torch.ones(5, 2))
    assert all("forward" not in vars(layer) for layer in model)


def test_layers_come_back_after_an_error_and_may_be_left_out() -> None:
    model = nn.Sequential(nn.Linear(4, 6), nn.Linear(6, 2))
    with taped(model, Tape(), leave_out=model[1]):
        assert "forward" in vars(model[0])
        assert "forward" not in vars(model[1])
        with pytest.raises(RuntimeError, match="mat1"):
            model(torch.zeros(2, 3))
    assert "forward" not in vars(model[0])


def test_the_supported_layers_are_these() -> None:
    assert set(TAPED) == {nn.Linear, nn.LayerNorm, nn.Embedding, Scale}


class Doubling(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.layer(torch.cat([x, x])).view(2, -1, 6).sum(0)
        return out


def test_rows_of_no_level_are_refused_by_the_layers_name(made_up: Any) -> None:
    with pytest.raises(ModelError, match=r"layer middle\.layer saw 14 rows, which is no level of the trees"):
        ghost.clipped_sum(Model(Doubling()), made_up.batch(0), Clipping())
