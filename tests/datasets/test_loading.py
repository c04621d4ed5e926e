"""Files: what loads, what is refused, and with which words."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from scipy import sparse
from torch_geometric.data import Data

from hushgraph.datasets import load_graph, npz, synthetic
from hushgraph.errors import GraphError, MissingSplitError
from hushgraph.graph.graph import Graph

REAL = Path(os.environ.get("HUSHGRAPH_DATA", Path(__file__).parents[3] / "shared" / "data"))

X = np.array([[0, 1, 0], [2, 0, 3], [0, 0, 0]], np.float32)
DENSE: dict[str, Any] = {
    "edge_index": np.array([[0, 1, 2], [1, 2, 1]], np.int32),
    "x": X,
    "y": np.array([0, 1, 1], np.int16),
    "train_idx": np.array([0], np.int32),
    "val_idx": np.array([1]),
    "test_idx": np.array([2]),
    "school": np.array(["extra", "keys", "are ignored"]),
}
SPARSE = {key: value for key, value in DENSE.items() if key != "x"} | {
    "x_indptr": np.array([0, 1, 3, 3], np.int32),
    "x_indices": np.array([1, 0, 2], np.uint16),
    "x_data": np.array([1, 2, 3], np.uint8),
    "x_shape": np.array([3, 3]),
}


def save(folder: Path, base: dict[str, Any], name: str = "graph.npz", **changes: Any) -> Path:
    path = folder / name
    np.savez_compressed(path, **{key: value for key, value in (base | changes).items() if value is not None})
    return path


def test_dense_and_sparse_files_give_the_same_graph(tmp_path: Path) -> None:
    dense = load_graph(save(tmp_path, DENSE))
    rows = load_graph(save(tmp_path, SPARSE, "sparse.npz"))
    assert isinstance(dense.x, np.ndarray)
    assert sparse.issparse(rows.x)
    np.testing.assert_array_equal(dense.x, X)
    np.testing.assert_array_equal(rows.x.toarray(), X)
    for name in ("indptr", "indices", "y", "train_idx", "val_idx", "test_idx"):
        np.testing.assert_array_equal(getattr(dense, name), getattr(rows, name))


def test_one_value_stands_for_all(tmp_path: Path) -> None:
    graph = load_graph(save(tmp_path, SPARSE, x_data=np.array([5], np.uint8)))
    assert graph.x.toarray().tolist() == [[0, 5, 0], [5, 0, 5], [0, 0, 0]]


def test_options(tmp_path: Path) -> None:
    path = save(tmp_path, DENSE)
    graph = load_graph(path, symmetrize=True, num_classes=4)
    assert graph.num_edges == 4
    assert not graph.is_directed
    assert graph.num_classes == 4
    assert load_graph(str(path), directed=False).is_directed is False


def test_masks_are_a_split_too(tmp_path: Path) -> None:
    path = save(
        tmp_path,
        DENSE,
        **dict.fromkeys(("train_idx", "val_idx", "test_idx")),
        train_mask=np.array([[True], [False], [False]]),
        test_mask=np.array([False, True, True]),
    )
    graph = load_graph(path)
    assert (graph.train_idx.tolist(), graph.val_idx.tolist(), graph.test_idx.tolist()) == ([0], [], [1, 2])
    # Node numbers go before.
    assert (
        load_graph(save(tmp_path, DENSE, train_mask=np.zeros(9))).train_idx.tolist()
        == DENSE["train_idx"].tolist()
    )


def test_split_argument_replaces_the_file_s_split(tmp_path: Path) -> None:
    big = synthetic(num_nodes=200, num_classes=2, num_features=2)
    sources, targets = next(big.edge_chunks())
    labels = np.where(np.arange(200) % 4, big.y, -1)
    path = save(tmp_path, {"edge_index": np.stack([sources, targets]), "x": big.x, "y": labels})
    graph = load_graph(path, split="0.5/0.25/0.25", split_seed=3)
    for part in (graph.train_idx, graph.val_idx, graph.test_idx):
        assert (graph.y[part] < 0).any()
    again = load_graph(path, split="0.5/0.25/0.25", split_seed=3)
    other = load_graph(path, split="0.5/0.25/0.25", split_seed=4)
    assert np.array_equal(graph.train_idx, again.train_idx)
    assert not np.array_equal(graph.train_idx, other.train_idx)
    assert load_graph(save(tmp_path, DENSE, "small.npz"), split="1/0/0").train_idx.tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("base", "changes", "message"),
    [
        (DENSE, {"y": None, "edge_index": None}, "missing edge_index, y; expected the keys edge_index, y, x"),
        (DENSE, {"x": None}, "missing x; expected the keys"),
        (SPARSE, {"x_shape": None}, "missing x_shape; expected the keys edge_index, y, x_indptr, x_indices"),
        (
            DENSE,
            {"train_idx": None, "train_mask": np.ones(3)},
            r"train_mask has dtype float64 and shape \[3\]; expected bool \[3\]",
        ),
        (
            DENSE,
            {"train_idx": None, "train_mask": np.ones((3, 2), bool)},
            "train_mask has 2 columns; expected one split; pick a column of each mask",
        ),
        (DENSE, {"train_idx": None}, "missing train_idx, or train_mask: no training split; give split="),
        (SPARSE, {"x": X}, "both x and sparse features"),
        (DENSE, {"y": np.array([0, None, 1])}, "y is an object array, which is never unpickled"),
        (DENSE, {"edge_index": DENSE["edge_index"].astype(float)}, "edge_index has dtype float64"),
        (DENSE, {"x": np.full((3, 2), np.nan)}, r"x\[0, 0\]=nan is not a finite float32"),
        (DENSE, {"x": X[:2]}, r"edge_index\[0, 2\]=2: expected 0..1; x has 2 rows"),
        (SPARSE, {"x_shape": np.array([3])}, r"x_shape=\[3\]: expected \[nodes, features\]"),
        (SPARSE, {"x_shape": np.array([3, -3])}, r"x_shape=\[3, -3\]"),
        (SPARSE, {"x_shape": np.array([3, 2**40])}, "x_shape=.* each below 2.31"),
        (SPARSE, {"x_shape": np.array([3.0, 3.0])}, "x_shape has dtype float64; expected integers"),
        (SPARSE, {"x_shape": np.array([10**6, 3])}, "x_indptr has 4 values; expected 1000001"),
        (SPARSE, {"x_indptr": np.array([0, 1, 9, 3])}, r"x_indptr\[2\]=9: expected 0..3"),
        (
            SPARSE,
            {"x_indptr": np.array([0, 2, 1, 3])},
            r"x_indptr\[2\]=1: expected values increasing from 0 to 3",
        ),
        (SPARSE, {"x_indptr": np.array([1, 1, 3, 3])}, r"x_indptr\[0\]=1: expected values increasing"),
        (
            SPARSE,
            {"x_indptr": np.array([0, 1, 2, 2])},
            r"x_indptr\[3\]=2: expected values increasing from 0 to 3",
        ),
        (
            SPARSE,
            {"x_indices": np.array([1, 0, 3])},
            r"x_indices\[2\]=3: expected 0..2; x_shape has 3 columns",
        ),
        (SPARSE, {"x_data": np.ones(2)}, r"x_data has shape \[2\]; expected \[1\] or \[3\]"),
        (SPARSE, {"x_data": np.array(["a"])}, "x_data has dtype <U1; expected real numbers"),
        (SPARSE, {"x_data": np.array([1.0, np.inf, 1.0])}, r"x\[1, 0\]=inf is not a finite float32"),
    ],
)
def test_npz_refused(tmp_path: Path, base: dict[str, Any], changes: dict[str, Any], message: str) -> None:
    with pytest.raises(GraphError, match=message) as caught:
        load_graph(save(tmp_path, base, **changes))
    assert "graph.npz: " in str(caught.value)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("symmetrize", [False, True])
@pytest.mark.parametrize("write", [np.savez, np.savez_compressed])
def test_edges_read_in_parts_give_the_same_graph(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Any, symmetrize: bool, order: Any
) -> None:
    edges = np.array(np.random.default_rng(1).integers(0, 50, (2, 999)), order=order)
    path = tmp_path / "graph.npz"
    write(path, edge_index=edges, x=np.ones((50, 1)), y=np.zeros(50, int), train_idx=[0])
    whole = load_graph(path, symmetrize=symmetrize)
    monkeypatch.setattr(npz, "_HELD_BYTES", 0)
    monkeypatch.setattr(npz, "_PART", 100)
    parts = load_graph(path, symmetrize=symmetrize)
    assert isinstance(npz.read_npz(path, splits=True)["edge_index"], npz.StoredEdges)
    np.testing.assert_array_equal(parts.indptr, whole.indptr)
    np.testing.assert_array_equal(parts.indices, whole.indices)
    assert parts.duplicates_removed == whole.duplicates_removed > 0
    assert parts.self_loops_removed == whole.self_loops_removed > 0
    edges[1, 345] = 50
    write(path, edge_index=edges, x=np.ones((50, 1)), y=np.zeros(50, int), train_idx=[0])
    with pytest.raises(GraphError, match=r"graph\.npz: edge_index\[1, 345\]=50: expected 0\.\.49"):
        load_graph(path, symmetrize=symmetrize)


def test_edges_in_parts_of_a_file_that_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(npz, "_HELD_BYTES", 0)
    path = save(tmp_path, DENSE)
    edges = npz.read_npz(path, splits=True)["edge_index"]
    assert len(list(edges(3)())) == 1
    save(tmp_path, DENSE, y=np.array([1, 1, 1]), more=np.arange(9))
    with pytest.raises(GraphError, match="the file has changed while it was read; load it again"):
        list(edges(3)())


def test_damaged_edges_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "graph.npz"
    edges = np.arange(200).reshape(2, 100)
    np.savez(path, edge_index=edges, x=np.ones((200, 1)), y=np.zeros(200, int), train_idx=[0])
    content = path.read_bytes()
    at = content.index(edges.tobytes()) + 8 * 150
    path.write_bytes(content[:at] + b"\x07" + content[at + 1 :])
    monkeypatch.setattr(npz, "_HELD_BYTES", 0)
    with pytest.raises(GraphError, match=r"edge_index cannot be read \(BadZipFile\); the file is damaged"):
        load_graph(path)


def test_files_that_are_no_archives(tmp_path: Path) -> None:
    with pytest.raises(GraphError, match=r"none\.npz: no such file"):
        load_graph(tmp_path / "none.npz")
    (tmp_path / "text.npz").write_text("edge_index,x,y\n")
    with pytest.raises(GraphError, match=r"text\.npz: not an \.npz archive"):
        load_graph(tmp_path / "text.npz")
    with (tmp_path / "array.npz").open("wb") as file:
        np.save(file, X)
    with pytest.raises(GraphError, match=r"array\.npz: not an \.npz archive"):
        load_graph(tmp_path / "array.npz")
    content = save(tmp_path, DENSE).read_bytes()
    (tmp_path / "torn.npz").write_bytes(content[: len(content) // 2])
    with pytest.raises(GraphError, match=r"torn\.npz: not an \.npz archive"):
        load_graph(tmp_path / "torn.npz")


def test_long_and_odd_paths_make_short_lines(tmp_path: Path) -> None:
    with pytest.raises(GraphError) as caught:
        load_graph(tmp_path / ("a\n" * 400 + ".npz"))
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 120


FIELDS = {
    "edge_index": torch.from_numpy(DENSE["edge_index"]).long(),
    "x": torch.from_numpy(X),
    "y": torch.tensor([0, 1, 1]),
    "train_mask": torch.tensor([True, False, False]),
    "test_mask": torch.tensor([False, False, True]),
}


def test_pt_files(tmp_path: Path) -> None:
    expected = load_graph(Data(**FIELDS))
    forms = {"data": Data(**FIELDS), "dict": FIELDS, "dataset": (Data(**FIELDS).to_dict(), None, Data)}
    for name, form in forms.items():
        torch.save(form, tmp_path / f"{name}.pt")
        graph = load_graph(tmp_path / f"{name}.pt")
        np.testing.assert_array_equal(graph.indices, expected.indices)
        np.testing.assert_array_equal(graph.x, expected.x)
        assert graph.train_idx.tolist() == [0]
        assert graph.test_idx.tolist() == [2]
    assert load_graph(tmp_path / "data.pt", symmetrize=True, num_classes=5).num_classes == 5


class Payload:
    """Unpickling this creates a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


def test_pt_never_runs_code(tmp_path: Path) -> None:
    torch.save(FIELDS | {"extra": Payload(tmp_path / "ran")}, tmp_path / "bad.pt")
    with pytest.raises(
        GraphError, match=r"bad.pt: not a .pt file of tensors .* torch.save\(data.to_dict\(\)"
    ):
        load_graph(tmp_path / "bad.pt")
    assert not (tmp_path / "ran").exists()
    torch.load(tmp_path / "bad.pt", weights_only=False)
    assert (tmp_path / "ran").exists(), "the payload would have run"


def test_pt_refused(tmp_path: Path) -> None:
    with pytest.raises(GraphError, match=r"none\.pt: no such file"):
        load_graph(tmp_path / "none.pt")
    torch.save(FIELDS, tmp_path / "complete.pt")
    content = (tmp_path / "complete.pt").read_bytes()
    for length in (0, 10, len(content) // 2, len(content) - 30):
        (tmp_path / "torn.pt").write_bytes(content[:length])
        with pytest.raises(GraphError, match=r"torn\.pt: not a \.pt file of tensors"):
            load_graph(tmp_path / "torn.pt")
    torch.save((FIELDS, {"x": torch.tensor([0, 2, 3])}), tmp_path / "many.pt")
    with pytest.raises(GraphError, match="several graphs in one file; expected one"):
        load_graph(tmp_path / "many.pt")
    torch.save(torch.ones(3), tmp_path / "tensor.pt")
    with pytest.raises(GraphError, match="missing edge_index, x, y; expected a PyG Data"):
        load_graph(tmp_path / "tensor.pt")


def test_load_graph_takes_graphs_and_data() -> None:
    graph = load_graph(Data(**FIELDS))
    assert load_graph(graph) is graph
    changed = load_graph(graph, symmetrize=True, num_classes=9, split="1/0/0")
    assert changed.num_edges == 4
    assert changed.num_classes == 9
    assert changed.train_idx.tolist() == [0, 1, 2]
    assert load_graph(graph, directed=False).is_directed is False
    np.testing.assert_array_equal(load_graph(Data(**FIELDS)).indices, graph.indices)
    unsplit = SimpleNamespace(edge_index=FIELDS["edge_index"], x=FIELDS["x"], y=FIELDS["y"])
    assert load_graph(unsplit, split="1/0/0").train_idx.tolist() == [0, 1, 2]


UNUSABLE = {"y": [7, 0.5, -3], "train_idx": [9, 9], "test_idx": ["a"]}


@pytest.mark.parametrize("others", [{}, UNUSABLE], ids=["missing", "unusable"])
def test_data_to_predict_on_needs_neither_labels_nor_a_split(tmp_path: Path, others: dict[str, Any]) -> None:
    edges, arrays = FIELDS["edge_index"], {key: np.array(value) for key, value in others.items()}
    np.savez(tmp_path / "dense.npz", edge_index=edges, x=X, **arrays)
    rows = {key: SPARSE[key] for key in SPARSE if key.startswith("x_")}
    np.savez(tmp_path / "sparse.npz", edge_index=edges, **rows, **arrays)
    torch.save({"edge_index": edges, "x": FIELDS["x"], **others}, tmp_path / "graph.pt")
    forms: list[Any] = [tmp_path / name for name in ("dense.npz", "sparse.npz", "graph.pt")]
    forms.append(SimpleNamespace(edge_index=edges, x=X, **arrays))
    for data in forms:
        graph = load_graph(data, labels=False, num_classes=2)
        np.testing.assert_array_equal(graph.dense_features(np.arange(3)), X)
        assert (graph.indices.tolist(), graph.num_classes) == ([0, 2, 1], 2)
        assert (graph.y.tolist(), graph.train_idx.tolist()) == ([-1] * 3, [0, 1, 2])
        # The same data to train on or to score is refused, as before.
        with pytest.raises(GraphError, match=r"missing y|y\[|y has"):
            load_graph(data, split="1/0/0", num_classes=2)


def test_graphs_to_predict_on_may_have_more_classes() -> None:
    graph = Graph.from_arrays(edge_index=DENSE["edge_index"], x=X, y=[7, 1, 1], train_idx=[1], test_idx=[0])
    actual = load_graph(graph, labels=False, num_classes=2)
    assert (actual.num_classes, actual.y.tolist(), len(actual.test_idx)) == (2, [-1] * 3, 0)
    with pytest.raises(GraphError, match=r"y\[0\]=7: expected -1\.\.1"):
        load_graph(graph, num_classes=2)


def test_data_to_predict_on_still_has_features_and_edges(tmp_path: Path) -> None:
    np.savez(tmp_path / "graph.npz", x=X)
    with pytest.raises(GraphError, match=r"missing edge_index; expected the keys edge_index, x$"):
        load_graph(tmp_path / "graph.npz", labels=False)
    with pytest.raises(GraphError, match="missing x; expected a PyG Data with edge_index and x, a file"):
        load_graph(Data(edge_index=FIELDS["edge_index"]), labels=False)
    with pytest.raises(GraphError, match=r"x has shape \[3\]"):
        load_graph(Data(edge_index=FIELDS["edge_index"], x=torch.ones(3)), labels=False)
    with pytest.raises(MissingSplitError):
        load_graph(Data(edge_index=FIELDS["edge_index"], x=FIELDS["x"], y=FIELDS["y"]))


def test_files_that_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise PermissionError(13, "Permission denied")

    archive = save(tmp_path, DENSE)
    torch.save(FIELDS, tmp_path / "graph.pt")
    monkeypatch.setattr(Path, "open", refuse)
    monkeypatch.setattr(torch, "load", refuse)
    for path in (archive, tmp_path / "graph.pt"):
        with pytest.raises(
            GraphError, match=r"cannot be read \(permission denied\); allow reading it"
        ) as caught:
            load_graph(path)
        assert f"{path.name}: " in str(caught.value)


def test_load_graph_takes_names() -> None:
    assert load_graph("demo").num_nodes == 20_000
    with pytest.raises(GraphError, match=r"did you mean 'demo'\?"):
        load_graph("demos")


@pytest.mark.parametrize("data", [3, None, [1, 2]])
def test_load_graph_refuses_other_things(data: Any) -> None:
    with pytest.raises(GraphError, match="missing edge_index, x, y; expected a PyG Data"):
        load_graph(data)


def test_load_graph_refuses_other_files(tmp_path: Path) -> None:
    (tmp_path / "graph.dat").write_text("0,1\n")
    for data in (tmp_path / "graph.dat", str(tmp_path / "graph.dat")):
        with pytest.raises(
            GraphError, match=r"unknown kind of file; expected \.npz, \.pt, tables or a dataset"
        ):
            load_graph(data)


@pytest.mark.parametrize(
    ("name", "nodes", "edges", "features", "classes", "directed"),
    [
        ("ogbn_arxiv_hints", 169_343, 1_166_243, 160, 40, True),
        ("facebook_32_schools", 245_197, 9_275_337, 512, 6, True),
        ("coauthor_physics", 34_493, 495_924, 8_415, 5, False),
        ("amazon_computers", 13_752, 287_209, 767, 10, True),
        ("planetoid_cora", 2_708, 10_556, 1_433, 7, False),
        ("planetoid_citeseer", 3_327, 9_104, 3_703, 6, False),
        ("planetoid_pubmed", 19_717, 88_648, 500, 3, False),
    ],
)
def test_real_files(name: str, nodes: int, edges: int, features: int, classes: int, directed: bool) -> None:
    path = REAL / f"{name}.npz"
    if not path.exists():
        pytest.skip(f"{name}.npz is not on this machine; HUSHGRAPH_DATA names its folder")
    has_split = name.startswith(("ogbn", "facebook", "planetoid"))
    graph = load_graph(path, split=None if has_split else "0.6/0.2/0.2")
    assert graph.num_edges + graph.duplicates_removed + graph.self_loops_removed == edges
    assert (graph.num_nodes, graph.num_features, graph.num_classes) == (nodes, features, classes)
    assert graph.is_directed is directed
    assert sparse.issparse(graph.x)
    if name == "ogbn_arxiv_hints":
        assert graph.symmetrized().num_edges == 2_315_598
    if name == "facebook_32_schools":
        assert graph.symmetrized().num_edges == 2 * edges
        assert (len(graph.train_idx), len(graph.val_idx), len(graph.test_idx)) == (123_488, 20_581, 61_745)


def test_a_folder_called_like_a_dataset_hides_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "demo").mkdir()
    assert load_graph("demo").num_nodes == 20_000
