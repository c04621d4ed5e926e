"""The fast clipped sum: empty batches, roots without labels, what is not finite, subclasses."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import reference
from hushgraph.gradients import batch as batches
from hushgraph.gradients import clip, ghost
from hushgraph.gradients.batch import TreeBatch
from hushgraph.gradients.clip import Clipping
from hushgraph.models.blocks import Reads
from hushgraph.models.gnn import GNN


@pytest.fixture(autouse=True)
def no_margin(monkeypatch: pytest.MonkeyPatch) -> None:
    """The margin for rounding is larger where rows cancel, which one root at a time does not see."""
    monkeypatch.setattr(clip, "ROUNDING_MARGIN", 0.0)


@pytest.fixture(autouse=True, params=[3, 8192], ids=["parts", "one part"])
def _roots_of_parts(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "_PART_ROOTS", request.param)


def model_of(name: str = "gcn", depth: int = 2, **options: Any) -> GNN:
    torch.manual_seed(0)
    return GNN(5, 3, model=name, num_layers=depth, hidden=6, **options)


def assert_same(found: dict[str, Tensor], expected: dict[str, Tensor], tolerance: float = 1e-6) -> None:
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(
            found[name], value, rtol=tolerance, atol=tolerance, check_dtype=False, msg=name
        )


@pytest.mark.parametrize("depth", [0, 1, 2])
def test_an_empty_batch_sums_to_zero(made_up: Any, depth: int) -> None:
    model = model_of(depth=depth)
    sums = ghost.clipped_sum(model, made_up.batch(depth, []), Clipping())
    assert {name: value.shape for name, value in sums.items()} == {
        name: p.shape for name, p in model.named_parameters()
    }
    assert not any(value.any() for value in sums.values())


@pytest.mark.parametrize("depth", [0, 2])
def test_a_root_without_label_contributes_nothing(made_up: Any, depth: int) -> None:
    model, clipping = model_of(depth=depth), Clipping()
    assert not any(v.any() for v in ghost.clipped_sum(model, made_up.batch(depth, [9]), clipping).values())
    assert_same(
        ghost.clipped_sum(model, made_up.batch(depth, [0, 9, 4]), clipping),
        ghost.clipped_sum(model, made_up.batch(depth, [0, 4]), clipping),
    )


def test_sums_carry_no_graph_and_leave_the_model_alone(made_up: Any) -> None:
    model = model_of()
    with torch.no_grad():
        sums = ghost.clipped_sum(model, made_up.batch(2), Clipping())
    assert not any(value.requires_grad for value in sums.values())
    assert all(p.grad is None and p.requires_grad for p in model.parameters())


def test_group_norms_are_those_of_single_gradients(made_up: Any) -> None:
    model = model_of("gin")
    found = ghost.group_norms(model, made_up.batch(2))
    gradients = [reference.root_gradient(model, made_up.graph, made_up.lists, v, 2) for v in made_up.roots]
    parts = ("encoder.", "layers.", "decoder.")
    expected = torch.tensor(
        [
            [sum(float(g.norm()) ** 2 for n, g in one.items() if n.startswith(p)) for one in gradients]
            for p in parts
        ]
    ).sqrt()
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6, check_dtype=False)


def planted(batch: TreeBatch, row: int, value: float) -> TreeBatch:
    x = batch.x.clone()
    x[row, 1] = value
    return dataclasses.replace(batch, x=x)


@pytest.mark.parametrize("activation", ["tanh", "relu"])
@pytest.mark.parametrize("name", ["gcn", "gin", "gat"])
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_bad_row_takes_only_its_readers_with_it(
    made_up: Any, name: str, value: float, activation: str
) -> None:
    model, clipping = model_of(name, depth=1, encoder_layers=2, activation=activation), Clipping()
    batch = made_up.batch(1)
    assert batch.is_shared
    # Node 8 is read by the roots 2 and 4.
    (row,) = torch.nonzero((batch.x == torch.from_numpy(made_up.graph.x[8])).all(1)).flatten().tolist()
    found = ghost.clipped_sum(model, planted(batch, row, value), clipping)
    kept = [root for root in made_up.roots if root not in (2, 4)]
    assert_same(found, ghost.clipped_sum(model, made_up.batch(1, kept), clipping))


@pytest.mark.parametrize("value", [math.nan, math.inf, 3e38])
@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_a_bad_row_that_nobody_reads_changes_nothing(made_up: Any, value: float, activation: str) -> None:
    model, clipping = model_of(depth=1, encoder_layers=2, activation=activation), Clipping()
    batch = made_up.batch(1)
    deepest = dataclasses.replace(batch.blocks[-1], num_lower=batch.x.shape[0] + 1)
    extra = torch.full((1, 5), value)
    larger = dataclasses.replace(batch, x=torch.cat([batch.x, extra]), blocks=(*batch.blocks[:-1], deepest))
    assert_same(ghost.clipped_sum(model, larger, clipping), ghost.clipped_sum(model, batch, clipping))


def test_bad_rows_everywhere_leave_zero(made_up: Any) -> None:
    batch = made_up.batch(2)
    bad = dataclasses.replace(batch, x=torch.full_like(batch.x, math.nan))
    assert not any(value.any() for value in ghost.clipped_sum(model_of(), bad, Clipping()).values())


class Halved(GNN):
    """Does something of its own between encoder and propagation."""

    def forward(self, x: Tensor, blocks: Sequence[Reads]) -> Tensor:
        return self.propagate(0.5 * self.encoder(x), blocks)


@pytest.mark.parametrize("name", ["gcn", "gin", "gat"])
def test_a_subclass_is_called_by_its_own_forward(made_up: Any, name: str) -> None:
    torch.manual_seed(0)
    model = Halved(5, 3, model=name, num_layers=2, hidden=6)
    clipping = Clipping(kind="flat", clip=0.2)
    assert_same(
        ghost.clipped_sum(model, made_up.batch(2), clipping),
        reference.clipped_sum(model, made_up.graph, made_up.lists, made_up.roots, 2, clipping),
        tolerance=1e-5,
    )


@pytest.mark.parametrize("depth", [0, 2])
def test_scaled_features_are_what_the_encoder_is_clipped_on(made_up: Any, depth: int) -> None:
    model, clipping = model_of("gcn", depth, feature_norm=7.0), Clipping(kind="flat", clip=0.2)
    assert_same(
        ghost.clipped_sum(model, made_up.batch(depth), clipping),
        reference.clipped_sum(model, made_up.graph, made_up.lists, made_up.roots, depth, clipping),
        tolerance=1e-5,
    )


def test_an_encoder_that_cannot_be_shared_runs_on_every_row(made_up: Any) -> None:
    model = model_of("gin")
    model.encoder = nn.Sequential(nn.Linear(5, 6), nn.LayerNorm(6), nn.Tanh(), nn.Linear(6, 6))
    clipping = Clipping(kind="groups", clip=0.2)
    assert_same(
        ghost.clipped_sum(model, made_up.batch(2), clipping),
        reference.clipped_sum(model, made_up.graph, made_up.lists, made_up.roots, 2, clipping),
        tolerance=1e-5,
    )


def test_the_same_batch_serves_many_steps(made_up: Any) -> None:
    model, batch = model_of("gat"), made_up.batch(2)
    once = ghost.clipped_sum(model, batch, Clipping())
    assert_same(ghost.clipped_sum(model, batch, Clipping()), once, tolerance=0)


@pytest.mark.parametrize("depth", [1, 2])
def test_parts_have_the_shares_of_their_reads(
    made_up: Any, depth: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(1)
    whole = made_up.batch(depth)
    blocks = tuple(
        dataclasses.replace(block, shares=torch.rand(2, block.num_entries) * (1 - block.is_self))
        for block in whole.blocks
    )
    model = model_of(depth=depth, num_relations=2)
    sums = []
    for roots in (2, len(made_up.roots)):
        monkeypatch.setattr(batches, "_PART_ROOTS", roots)
        batch = dataclasses.replace(whole, blocks=blocks)
        assert len(batch.parts) == math.ceil(len(made_up.roots) / roots)
        sums.append(ghost.clipped_sum(model, batch, Clipping(kind="flat", clip=0.2)))
    assert_same(*sums)


def test_the_sum_of_parts_is_written_to_no_tensor_of_the_batch(made_up: Any) -> None:
    model, batch = model_of(depth=1), made_up.batch(1)
    once = ghost.clipped_sum(model, batch, Clipping())
    before = {name: value.clone() for name, value in once.items()}
    ghost.clipped_sum(model_of("gin", depth=1), batch, Clipping())
    assert_same(once, before, tolerance=0)
