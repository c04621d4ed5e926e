"""PyG's `Data`: the same graph as arrays, what is refused, and files without torch-geometric."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import sparse
from torch_geometric.data import Data

from hushgraph.datasets import load_graph
from hushgraph.errors import GraphError
from hushgraph.graph.graph import Graph

# 0 -> 1, 2 -> 1, 1 -> 0, 3 -> 2: node 1 reads 0 and 2, node 0 reads 1, node 2 reads 3, node 3 reads nobody.
EDGES = np.array([[2, 0, 1, 3], [1, 1, 0, 2]])
X = np.array([[1.0, 0.0], [0.0, 2.0], [0.0, 0.0], [3.0, 4.0]], np.float32)
ARRAYS: dict[str, Any] = {
    "edge_index": EDGES,
    "x": X,
    "y": [0, 1, -1, 2],
    "train_idx": [1, 0],
    "val_idx": [3],
}


def pyg(**changes: Any) -> Data:
    fields = {
        "edge_index": torch.from_numpy(EDGES),
        "x": torch.from_numpy(X),
        "y": torch.tensor([0, 1, -1, 2]),
        "train_mask": torch.tensor([True, True, False, False]),
        "val_mask": torch.tensor([False, False, False, True]),
    }
    return Data(**{name: value for name, value in (fields | changes).items() if value is not None})


def same(a: Graph, b: Graph) -> bool:
    names = ("indptr", "indices", "y", "train_idx", "val_idx", "test_idx")
    return (
        all(np.array_equal(getattr(a, name), getattr(b, name)) for name in names)
        and np.array_equal(a.dense_features(np.arange(a.num_nodes)), b.dense_features(np.arange(b.num_nodes)))
        and a.num_classes == b.num_classes
    )


def test_pyg_masks_and_indices_equal_arrays() -> None:
    expected = Graph.from_arrays(**ARRAYS)
    assert same(load_graph(pyg()), expected)
    by_index = pyg(
        train_mask=None,
        val_mask=None,
        train_idx=torch.tensor([1, 0]),
        val_idx=torch.tensor([3], dtype=torch.int32),
    )
    assert same(load_graph(by_index), expected)
    columns = pyg(train_mask=pyg().train_mask[:, None], val_mask=pyg().val_mask[:, None])
    assert same(load_graph(columns), expected)
    assert same(load_graph(pyg(), symmetrize=True), expected.symmetrized())
    assert load_graph(pyg(), num_classes=7, directed=False).num_classes == 7


def test_pyg_sparse_features() -> None:
    expected = Graph.from_arrays(**ARRAYS)
    graph = load_graph(pyg(x=torch.from_numpy(X).to_sparse_coo()))
    assert sparse.issparse(graph.x)
    assert same(graph, expected)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch says once per process that CSR is new
        rows = torch.from_numpy(X).to_sparse_csr()
    assert same(load_graph(pyg(x=rows)), expected)


def test_pyg_kinds_of_features_and_labels() -> None:
    expected = Graph.from_arrays(**ARRAYS)
    tracked = torch.from_numpy(X).clone().requires_grad_()
    assert same(load_graph(pyg(x=tracked)), expected)
    assert same(load_graph(pyg(x=torch.from_numpy(X).bfloat16())), expected)
    labels = torch.tensor([[0.0], [1.0], [float("nan")], [2.0]])
    assert same(load_graph(pyg(y=labels)), expected)
    assert same(load_graph(pyg(y=torch.tensor([[0], [1], [-1], [2]]))), expected)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"x": None, "y": None}, "missing x, y; expected a PyG Data with edge_index, x and y"),
        ({"train_mask": None}, "no train_mask and no train_idx: .* split='0.6/0.2/0.2'"),
        ({"train_idx": torch.tensor([0])}, "both train_mask and train_idx; expected one of them"),
        ({"train_mask": torch.ones(4, 3, dtype=torch.bool)}, "train_mask has 3 columns; expected one split"),
        ({"val_mask": torch.ones(4)}, r"val_mask has dtype float32 and shape \[4\]; expected bool \[4\]"),
        ({"val_mask": torch.ones(3, dtype=torch.bool)}, r"val_mask has dtype bool and shape \[3\]"),
        ({"y": torch.tensor([0.5, 1, 0, 2])}, r"y\[0\]=0.5: expected class numbers, or NaN"),
        ({"y": torch.tensor([0.0, float("inf"), 0, 2])}, r"y\[1\]=inf: expected class numbers"),
        (
            {"y": torch.zeros(4, 2)},
            "y holds several labels for each node; .* task='labels'",
        ),
        ({"y": torch.tensor(1)}, r"train_mask has dtype bool and shape \[4\]; expected bool \[\]"),
        ({"y": "text", "train_mask": None, "train_idx": [0]}, r"val_mask .* shape \[4\]; expected bool \[\]"),
        ({"x": [[1.0], [2.0, 3.0]]}, "x is a list that cannot be converted to an array"),
        (
            {"x": torch.from_numpy(X).to_sparse(1)},
            "x is a Tensor that cannot be converted to an array",
        ),
        ({"x": torch.empty(4, 2, device="meta")}, "x is a Tensor that cannot be converted to an array"),
        ({"edge_index": torch.from_numpy(EDGES).float()}, "edge_index has dtype float32; expected integers"),
    ],
)
def test_pyg_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(GraphError, match=message):
        load_graph(pyg(**changes))


def test_any_object_with_the_fields_will_do() -> None:
    class Fields:
        edge_index, x, y = torch.from_numpy(EDGES), torch.from_numpy(X), torch.tensor([0, 1, -1, 2])
        train_idx, val_idx = [1, 0], [3]

    assert same(load_graph(Fields()), Graph.from_arrays(**ARRAYS))


@pytest.fixture
def _without_pyg(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    # Once imported, PyG lets torch load its classes for as long as the process lives.
    registered = torch.serialization.get_safe_globals()
    torch.serialization.clear_safe_globals()
    for name in [name for name in sys.modules if name.startswith("torch_geometric")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "torch_geometric", None)
    yield
    torch.serialization.add_safe_globals(registered)


@pytest.mark.usefixtures("_without_pyg")
def test_without_torch_geometric(tmp_path: Path) -> None:
    torch.save(pyg().to_dict(), tmp_path / "fields.pt")
    assert same(load_graph(tmp_path / "fields.pt"), Graph.from_arrays(**ARRAYS))
    torch.save(torch.ones(3), tmp_path / "tensor.pt")
    with pytest.raises(GraphError, match="missing edge_index, x, y; expected a PyG Data"):
        load_graph(tmp_path / "tensor.pt")
    (tmp_path / "damaged.pt").write_bytes(b"torch_geometric")
    with pytest.raises(GraphError, match=r"damaged\.pt: not a \.pt file of tensors"):
        load_graph(tmp_path / "damaged.pt")


def test_a_saved_data_names_the_extra(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    torch.save(pyg(), tmp_path / "data.pt")
    torch.save((pyg().to_dict(), None, Data), tmp_path / "dataset.pt")
    request.getfixturevalue("_without_pyg")
    for name in ("data.pt", "dataset.pt"):
        with pytest.raises(GraphError, match=r"pip install 'hushgraph\[pyg\]', or save") as caught:
            load_graph(tmp_path / name)
        assert str(caught.value).count("\n") == 0
        assert name in str(caught.value)
