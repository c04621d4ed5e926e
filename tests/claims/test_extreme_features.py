"""Promise: no features that float32 can hold, however large or small, get more than C past the clip."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from effort import IS_THOROUGH
from hushgraph.gradients import ghost
from hushgraph.gradients.batch import TreeBatch, tree_batch
from hushgraph.gradients.clip import Clipping
from hushgraph.graph.graph import Graph
from hushgraph.inputs.features import Features
from hushgraph.models.blocks import Reads
from hushgraph.models.gnn import GNN, Scale
from hushgraph.sampling.lists import BoundedLists
from hushgraph.sampling.trees import grow

LARGEST = float(np.finfo(np.float32).max)
SMALLEST = float(np.finfo(np.float32).smallest_subnormal)
NODES, COLUMNS, CLASSES = 12, 6, 3

# What one node's features may be, from draws of standard normal numbers.
ROWS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "ordinary": lambda row: row,
    "1e30": lambda row: 1e30 * row,
    "largest": lambda row: LARGEST * np.sign(row),
    "largest, one sign": lambda row: np.full_like(row, LARGEST),
    "near the root of the largest": lambda row: 1.8e19 * row,
    "smallest": lambda row: SMALLEST * np.sign(row),
    "denormal": lambda row: 1e-40 * row,
    "smallest that is normal": lambda row: 1.2e-38 * row,
    "zero": np.zeros_like,
    "minus zero": lambda row: np.full_like(row, -0.0),
    "one huge column": lambda row: np.where(np.arange(len(row)) == 2, 1e37, 1e-3 * row),
    "one huge column among zeros": lambda row: np.where(np.arange(len(row)) == 2, -LARGEST, 0.0),
    "largest and smallest": lambda row: np.where(np.arange(len(row)) % 2, LARGEST, SMALLEST),
    "every scale": lambda row: row * 10.0 ** np.linspace(-44, 37, len(row)),
}
CLIPPINGS = {
    "flat": Clipping(kind="flat", clip=1e-3),
    "normalised": Clipping(stability=0.0),
    "usual": Clipping(),
    "groups": Clipping(kind="groups", clip=1e-4),
}


class WithLayerNorm(nn.Module):
    """A model of the caller's with every other layer that can be trained privately."""

    depth = 1

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Linear(COLUMNS, 8)
        self.before, self.after = nn.LayerNorm(COLUMNS), nn.LayerNorm(8)
        self.scale = Scale()
        self.decoder = nn.Linear(8, CLASSES)

    def forward(self, x: Tensor, blocks: tuple[Reads, ...]) -> Tensor:
        h = torch.tanh(self.encoder(self.before(x)))
        scores: Tensor = self.decoder(self.scale(self.after(blocks[0].mean(h))))
        return scores


MODELS: dict[str, Callable[[], nn.Module]] = {
    f"{name}, {activation}, feature norm {feature_norm:g}": lambda n=name, a=activation, f=feature_norm: GNN(  # type: ignore[misc]
        COLUMNS, CLASSES, model=n, num_layers=1 + (n == "gcn"), hidden=8, activation=a, feature_norm=f
    )
    for name in ("gcn", "gin", "gat", "mlp")
    for activation in ("tanh", "relu")
    for feature_norm in (0.0, 1.0)
}
MODELS["own, LayerNorm"] = WithLayerNorm


def lists() -> BoundedLists:
    """Every node reads the next three; node 0 reads all others."""
    reads = [[*range(1, NODES)], *[[(node + k) % NODES for k in (1, 2, 3)] for node in range(1, NODES)]]
    indptr = np.cumsum([0, *map(len, reads)], dtype=np.int64)
    return BoundedLists(indptr=indptr, indices=np.concatenate(reads).astype(np.int32))


def graph_of(rows: list[np.ndarray]) -> Graph:
    return Graph.from_arrays(
        edge_index=np.empty((2, 0), np.int64),
        x=np.stack(rows).astype(np.float32),
        y=np.arange(NODES) % CLASSES,
        train_idx=np.arange(NODES),
        num_classes=CLASSES,
    )


def batch_of(graph: Graph, model: nn.Module, roots: list[int]) -> TreeBatch:
    return tree_batch(grow(lists(), roots, int(model.depth)), Features(graph), graph.y)  # type: ignore[arg-type]


def model_of(name: str, scale: float) -> nn.Module:
    torch.manual_seed(0)
    model = MODELS[name]()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(scale)
    return model


def norm(sums: dict[str, Tensor]) -> float:
    assert all(bool(value.isfinite().all()) for value in sums.values())
    return math.sqrt(sum(float(value.double().square().sum()) for value in sums.values()))


def assert_clipped(model: nn.Module, graph: Graph, clipping: Clipping, about: str) -> None:
    """Alone and in a batch of all: node 0 reads every other, node 3 is among those that node 1 reads."""
    roots = list(range(NODES))
    for root in (0, 3):
        single = ghost.clipped_sum(model, batch_of(graph, model, [root]), clipping)
        assert norm(single) <= clipping.clip * (1 + 1e-6), f"root {root}: {about}"
    whole = ghost.clipped_sum(model, batch_of(graph, model, roots), clipping)
    others = ghost.clipped_sum(model, batch_of(graph, model, roots[1:]), clipping)
    change = {name: whole[name].double() - others[name].double() for name in whole}
    # Both are float32 sums over all roots.
    assert norm(whole) <= NODES * clipping.clip * (1 + 1e-6), about
    assert norm(others) <= NODES * clipping.clip * (1 + 1e-6), about
    assert norm(change) <= clipping.clip * (1 + 1e-6 * NODES), about


@pytest.mark.parametrize("name", MODELS)
def test_no_root_gives_more_than_c_whatever_its_features(name: str) -> None:
    """All nodes alike, then one of them among ordinary ones."""
    rng = np.random.default_rng(1)
    # Every kind of row meets half of the models.
    part = slice(None) if IS_THOROUGH else slice(list(MODELS).index(name) % 2, None, 2)
    for number, (kind, row) in list(enumerate(ROWS.items()))[part]:
        model = model_of(name, (1.0, 30.0, 1e-6)[number % 3])
        how = list(CLIPPINGS)[number % len(CLIPPINGS)]
        draws = rng.standard_normal((NODES, COLUMNS))
        alike = graph_of([row(d) for d in draws])
        one = graph_of([row(d) if node == 3 else d for node, d in enumerate(draws)])
        assert_clipped(model, alike, CLIPPINGS[how], f"{kind}, {how}")
        assert_clipped(model, one, CLIPPINGS[how], f"one of {kind}, {how}")


@pytest.mark.parametrize("name", MODELS)
def test_no_mixture_of_features_gives_more_than_c(name: str) -> None:
    rng = np.random.default_rng(2)
    for how, clipping in CLIPPINGS.items():
        model = model_of(name, float(10 ** rng.uniform(-3, 2)))
        kinds = [str(kind) for kind in rng.choice(list(ROWS), NODES)]
        graph = graph_of([ROWS[kind](rng.standard_normal(COLUMNS)) for kind in kinds])
        assert_clipped(model, graph, clipping, f"{kinds}, {how}")


@pytest.mark.parametrize("name", ["gcn", "gin", "gat", "mlp"])
def test_a_root_that_reads_no_extreme_row_gives_what_it_gave(name: str) -> None:
    """Otherwise one row would change more trees than those that contain it."""
    rng = np.random.default_rng(3)
    model = model_of(f"{name}, tanh, feature norm 0", 1.0)
    draws = list(rng.standard_normal((NODES, COLUMNS)))
    # With depth 1 or 2, root 4 reads nodes 4 to 10; the features of the whole graph are in the batch.
    before = ghost.clipped_sum(model, batch_of(graph_of(draws), model, [4]), Clipping())
    for kind, row in ROWS.items():
        changed = [row(d) if node == 11 else d for node, d in enumerate(draws)]
        after = ghost.clipped_sum(model, batch_of(graph_of(changed), model, [4]), Clipping())
        assert all(torch.equal(before[key], after[key]) for key in before), kind


@pytest.mark.parametrize("feature_norm", [1.0, 32.0])
def test_scaled_features_are_finite_and_no_longer_than_asked(feature_norm: float) -> None:
    rng = np.random.default_rng(4)
    model = GNN(COLUMNS, CLASSES, feature_norm=feature_norm)
    for kind, row in ROWS.items():
        x = torch.from_numpy(row(rng.standard_normal((1, COLUMNS))[0])[None].astype(np.float32))
        length = float(torch.linalg.vector_norm(model.scaled(x).double()))
        assert length <= feature_norm * (1 + 1e-5), kind


def test_the_check_sees_a_root_that_is_not_clipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Clipping, "factors", lambda self, squares, sizes: torch.ones_like(squares))
    draws = list(np.random.default_rng(5).standard_normal((NODES, COLUMNS)))
    with pytest.raises(AssertionError, match="root 0: ordinary"):
        assert_clipped(
            model_of("gcn, tanh, feature norm 0", 1.0), graph_of(draws), CLIPPINGS["flat"], "ordinary"
        )
