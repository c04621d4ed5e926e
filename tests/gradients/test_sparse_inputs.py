"""Sparse features stay sparse: the same clipped sums as of dense ones, and products with SciPy's."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

import numpy as np
import pytest
import torch
from scipy import sparse
from torch import Tensor, nn

from hushgraph.gradients import clip, ghost, norms, norms_cpu, unclipped
from hushgraph.gradients.batch import TreeBatch, tree_batch
from hushgraph.gradients.clip import Clipping
from hushgraph.graph.graph import Graph
from hushgraph.inputs.features import Features
from hushgraph.inputs.sparse_inputs import SparseInputs, write_out
from hushgraph.models.blocks import Reads
from hushgraph.models.gnn import GNN
from hushgraph.privacy.choices import Activation, Model
from hushgraph.sampling.lists import BoundedLists
from hushgraph.sampling.trees import grow

COLUMNS = 40


def random_rows(rng: np.random.Generator, rows: int, columns: int = COLUMNS, fill: float = 0.1) -> Any:
    """Rows with some entries, of which the first and the last are empty."""
    values = rng.standard_normal((rows, columns)).astype(np.float32) * (rng.random((rows, columns)) < fill)
    values[[0, -1]] = 0
    return sparse.csr_array(values)


def random_graph(seed: int, *, nodes: int, most_reads: int) -> tuple[Graph, BoundedLists]:
    """A graph with sparse features; some nodes read nobody, some read others twice."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(0, most_reads + 1, nodes)
    graph = Graph.from_arrays(
        edge_index=np.empty((2, 0), np.int64),
        x=random_rows(rng, nodes),
        y=rng.integers(-1, 3, nodes),
        train_idx=np.arange(nodes),
        num_classes=3,
    )
    indptr = np.concatenate([[0], np.cumsum(counts)])
    return graph, BoundedLists(indptr=indptr, indices=rng.integers(0, nodes, counts.sum()).astype(np.int32))


def sparse_batch(graph: Graph, lists: BoundedLists, depth: int) -> TreeBatch:
    batch = tree_batch(grow(lists, np.arange(0, graph.num_nodes, 2), depth), Features(graph), graph.y)
    assert isinstance(batch.x, SparseInputs)
    return batch


def assert_same(one: dict[str, Tensor], other: dict[str, Tensor]) -> None:
    assert one.keys() == other.keys()
    scale = max(float(value.abs().max()) for value in other.values())
    for name, value in other.items():
        torch.testing.assert_close(
            one[name], value, rtol=1e-5, atol=1e-6 * scale, check_dtype=False, msg=name
        )


@pytest.fixture
def rows() -> Any:
    return random_rows(np.random.default_rng(0), 50)


def test_rows_are_those_of_scipy(rows: Any) -> None:
    inputs = SparseInputs.of(rows)
    assert inputs.shape == rows.shape
    assert torch.equal(inputs.dense, torch.from_numpy(rows.toarray()))
    np.testing.assert_allclose(inputs.squares, np.square(rows.toarray().astype(np.float64)).sum(1))
    pointers, places, values = (tensor.numpy() for tensor in inputs.by_columns)
    columns = rows.tocsc()
    assert pointers.tolist() == columns.indptr.tolist()
    assert places.tolist() == columns.indices.tolist()
    assert values.tolist() == columns.data.tolist()


def test_rows_are_taken_in_any_order_and_more_than_once(rows: Any) -> None:
    chosen = [3, 0, 3, 49, 7]
    taken = SparseInputs.of(rows).take(torch.tensor(chosen))
    assert torch.equal(taken.dense, torch.from_numpy(rows.toarray()[chosen]))
    assert SparseInputs.of(rows).take(torch.tensor([], dtype=torch.int64)).shape == (0, COLUMNS)


def test_rows_are_scaled_as_the_model_scales_them(rows: Any) -> None:
    inputs, model = SparseInputs.of(rows), GNN(COLUMNS, 2, hidden=2, feature_norm=6.0)
    torch.testing.assert_close(inputs.scale(6.0).dense, model.scaled(torch.from_numpy(rows.toarray())))
    assert inputs.scale(0.0) is inputs
    assert inputs.scale(6.0) is inputs.scale(6.0)


def test_a_square_beyond_float32_is_infinite() -> None:
    inputs = SparseInputs.of(sparse.csr_array(np.array([[3e19, 0], [1e19, 0]], np.float32)))
    assert torch.isinf(inputs.squares).tolist() == [True, False]
    # Scaling has digits enough for both.
    assert inputs.scale(2.0).dense.tolist() == [[2, 0], [2, 0]]


@pytest.mark.parametrize("width", [1, 5, 64])
@pytest.mark.parametrize("fill", [0.02, 0.3, 1.0])
def test_a_layer_gives_what_it_gives_of_dense_rows(width: int, fill: float) -> None:
    rng = np.random.default_rng(1)
    given, layer = random_rows(rng, 70, fill=fill), nn.Linear(COLUMNS, width)
    found = SparseInputs.of(given).multiply(layer.weight, layer.bias)
    torch.testing.assert_close(found, layer(torch.from_numpy(given.toarray())).detach())


@pytest.mark.parametrize("block", [1, 7, 100])
@pytest.mark.parametrize("fill", [0.02, 0.3, 1.0])
def test_products_are_added_up_block_by_block(block: int, fill: float) -> None:
    rng = np.random.default_rng(2)
    given = random_rows(rng, 70, fill=fill)
    inputs, gradients = SparseInputs.of(given), torch.from_numpy(rng.standard_normal((70, 5)))
    total, cursor = torch.zeros(COLUMNS, 5, dtype=torch.float64), inputs.new_cursor()
    for begin in range(0, 70, block):
        inputs.add_products(begin, gradients[begin : begin + block], cursor, total)
    np.testing.assert_allclose(total, given.toarray().T.astype(np.float64) @ gradients.numpy(), atol=1e-12)


@pytest.mark.parametrize("seed", range(12))
def test_clipped_sums_are_those_of_dense_features(seed: int) -> None:
    """Random graphs and models: layers, depths, activations, norms of features, clipping rules."""
    rng = np.random.default_rng(seed)
    depth = int(rng.integers(1, 3))
    graph, lists = random_graph(seed, nodes=60, most_reads=6)
    batch = sparse_batch(graph, lists, depth)
    activations: list[Activation] = ["tanh", "relu"]
    names: list[Model] = ["gcn", "gin", "gat"]
    torch.manual_seed(seed)
    model = GNN(
        COLUMNS,
        3,
        model=names[seed % 3],
        num_layers=depth,
        hidden=int(rng.integers(1, 20)),
        encoder_layers=int(rng.integers(1, 3)),
        activation=activations[int(rng.integers(2))],
        feature_norm=float(rng.choice([0.0, 6.0])),
    )
    kinds: tuple[Literal["flat", "normalised", "groups"], ...] = ("flat", "normalised", "groups")
    clipping = Clipping(kind=kinds[int(rng.integers(3))], clip=0.1)
    dense = dataclasses.replace(batch, x=write_out(batch.x))
    expected = ghost.clipped_sum(model, dense, clipping)
    for _ in range(2):
        assert_same(ghost.clipped_sum(model, batch, clipping), expected)
    assert_same(unclipped.gradient_sum(model, batch), unclipped.gradient_sum(model, dense))
    assert all(value.grad is None for value in model.parameters())


@pytest.mark.parametrize("hidden", [2, 30])
@pytest.mark.parametrize("most_reads", [80, 300])
def test_roots_of_many_rows(hidden: int, most_reads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """More rows than products are kept of, by pairs and by forming the gradient."""
    monkeypatch.setattr(clip, "ROUNDING_MARGIN", 0.0)
    graph, lists = random_graph(5, nodes=400, most_reads=most_reads)
    batch = sparse_batch(graph, lists, 1)
    index = batch.blocks[-1].index
    assert index is not None
    counts = norms.PairProducts.of(batch.x, index, batch.pointers[-1]).counts
    assert counts.min() <= norms_cpu.KEPT_ROWS < counts.max()
    torch.manual_seed(0)
    model = GNN(COLUMNS, 3, num_layers=1, hidden=hidden)
    dense = dataclasses.replace(batch, x=write_out(batch.x))
    torch.testing.assert_close(
        ghost.group_norms(model, batch), ghost.group_norms(model, dense), rtol=1e-5, atol=1e-9
    )
    assert_same(ghost.clipped_sum(model, batch, Clipping()), ghost.clipped_sum(model, dense, Clipping()))


def test_products_of_features_are_kept_with_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, lists = random_graph(3, nodes=30, most_reads=3)
    batch = sparse_batch(graph, lists, 1)
    model = GNN(COLUMNS, 3, num_layers=1, hidden=4, feature_norm=2.0)
    first = ghost.clipped_sum(model, batch, Clipping())
    monkeypatch.setattr(norms.PairProducts, "of", None)
    assert list(batch.products) == [2.0]
    second = ghost.clipped_sum(model, batch, Clipping())
    assert all(torch.equal(first[name], second[name]) for name in first)


class Own(nn.Module):
    """A module of the caller's, which may do anything with its features."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(COLUMNS, 3)

    def forward(self, x: Tensor, blocks: tuple[Reads, ...]) -> Tensor:
        return blocks[0].mean(self.linear(x.abs()))


def test_a_module_of_the_caller_sees_dense_features() -> None:
    graph, lists = random_graph(4, nodes=30, most_reads=3)
    batch = sparse_batch(graph, lists, 1)
    dense = dataclasses.replace(batch, x=write_out(batch.x))
    torch.manual_seed(0)
    own = Own()
    assert_same(ghost.clipped_sum(own, batch, Clipping()), ghost.clipped_sum(own, dense, Clipping()))


def test_a_model_in_float64_sees_dense_features() -> None:
    graph, lists = random_graph(4, nodes=30, most_reads=3)
    batch = sparse_batch(graph, lists, 1)
    assert isinstance(batch.x, SparseInputs)
    model = GNN(COLUMNS, 3, num_layers=1, hidden=4).double()
    dense = dataclasses.replace(batch, x=write_out(batch.x).double())
    given = dataclasses.replace(batch.x, values=batch.x.values.double())
    converted = dataclasses.replace(batch, x=given)
    assert_same(ghost.clipped_sum(model, converted, Clipping()), ghost.clipped_sum(model, dense, Clipping()))
