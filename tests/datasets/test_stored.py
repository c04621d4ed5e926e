"""Stored graphs: written from anything, opened without loading, refused in one line when damaged."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest
from scipy import sparse

from hushgraph.datasets import load_graph, store, store_arrays
from hushgraph.datasets.tables import edge_table, node_table
from hushgraph.errors import GraphError
from hushgraph.graph.graph import Graph
from hushgraph.graph.stored import StoredGraph

ARRAYS = ("indptr", "indices", "x", "y", "train_idx", "val_idx", "test_idx")
# 1 reads 0 (given twice), 2 reads 1, 0 reads 2, 3 reads itself.
EDGES = np.array([[0, 1, 2, 3, 0], [1, 2, 0, 3, 1]])
X = np.array([[1.0, 0.5], [2.0, -1.0], [0.0, 3.0], [4.0, 4.0]], np.float32)
REST: dict[str, Any] = {"y": [0, 1, -1, 1], "train_idx": [2, 0], "val_idx": [1], "num_classes": 2}


def given(**changed: Any) -> dict[str, Any]:
    return {"edges": EDGES, "x": X, "directed": True, **REST, **changed}


def assert_same(actual: Graph, expected: Graph) -> None:
    for name in ARRAYS:
        np.testing.assert_array_equal(getattr(actual, name), getattr(expected, name))
    for name in ("num_nodes", "num_classes", "is_directed", "self_loops_removed"):
        assert getattr(actual, name) == getattr(expected, name), name
    if expected.is_directed:
        assert actual.duplicates_removed == expected.duplicates_removed


def test_what_is_stored_is_what_was_given(tmp_path: Path) -> None:
    expected = Graph.from_arrays(edge_index=EDGES, x=X, **REST)
    returned = store_arrays(tmp_path / "g", **given())
    for actual in (returned, load_graph(tmp_path / "g"), load_graph(str(tmp_path / "g"))):
        assert isinstance(actual, StoredGraph)
        assert isinstance(actual.x, np.memmap)
        assert isinstance(actual.indices, np.memmap)
        assert_same(actual, expected)
    assert returned.folder == tmp_path / "g"
    assert repr(returned) == f"Stored{expected!r}"
    assert [each.name for each in tmp_path.iterdir()] == ["g"]
    assert_same(returned.in_memory(), expected)


@pytest.mark.parametrize("kind", [np.float16, np.uint8, np.float64, np.int32, np.bool_])
def test_features_of_other_types_become_float32_by_rows(tmp_path: Path, kind: type) -> None:
    x = np.array([[1, 0], [0, 1], [1, 1], [0, 0]]).astype(kind)
    graph = store_arrays(tmp_path / "g", **given(x=x))
    narrow = np.dtype(kind).itemsize <= 4 and kind is not np.bool_
    assert graph.x.dtype == (kind if narrow else np.float32)
    rows = graph.dense_features(np.array([2, 0]))
    assert rows.dtype == np.float32
    np.testing.assert_array_equal(rows, x[[2, 0]].astype(np.float32))


def test_options_of_load_graph(tmp_path: Path) -> None:
    expected = Graph.from_arrays(edge_index=EDGES, x=X, **REST)
    store_arrays(tmp_path / "g", **given())
    both = load_graph(tmp_path / "g", symmetrize=True)
    assert_same(both, load_graph(expected, symmetrize=True))
    assert isinstance(both, StoredGraph)
    assert load_graph(tmp_path / "g", num_classes=5).num_classes == 5
    assert not load_graph(tmp_path / "g", directed=False).is_directed
    split = load_graph(tmp_path / "g", split="0.5/0.25/0.25", split_seed=3)
    assert_same(split, load_graph(expected, split="0.5/0.25/0.25", split_seed=3))


def test_store_takes_what_load_graph_takes(tmp_path: Path) -> None:
    np.savez(tmp_path / "g.npz", edge_index=EDGES, x=X, **{k: v for k, v in REST.items() if k[0] != "n"})
    actual = store(tmp_path / "g.npz", tmp_path / "one", symmetrize=True)
    assert_same(actual.in_memory(), load_graph(tmp_path / "g.npz", symmetrize=True).symmetrized())
    again = store(tmp_path / "one", tmp_path / "two", directed=True)
    assert again.is_directed
    np.testing.assert_array_equal(again.indices, actual.indices)


def tables(folder: Path) -> Path:
    folder.mkdir()
    with duckdb.connect() as connection:
        for name, rows in {
            "nodes": "(VALUES ('a', 1, 1.5, 'no', 'train'), ('b', 2, 0, 'yes', 'val'), "
            "('c', 3, 1, NULL, 'train')) AS t(id, age, height, label, split)",
            "edges": "(VALUES ('a', 'b'), ('b', 'c'), ('c', 'b'), ('a', 'b')) AS t(source, target)",
        }.items():
            path = folder / f"{name}.parquet"
            connection.execute(f"COPY (SELECT * FROM {rows}) TO '{path}' (FORMAT parquet)")
    return folder


@pytest.mark.parametrize("on_disk", [False, True])
def test_tables_are_streamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, on_disk: bool) -> None:
    if on_disk:
        monkeypatch.setattr(node_table, "IN_MEMORY", 0)
        monkeypatch.setattr(edge_table, "IN_MEMORY", 0)
    columns = {"classes": ["no", "yes"]}
    folder = tables(tmp_path / "tables")
    actual = store(folder, tmp_path / "g", directed=True, columns=columns)
    expected = load_graph(folder, columns=columns)
    assert_same(actual, expected)
    assert list(actual.node_names) == ["a", "b", "c"]
    assert load_graph(tmp_path / "g").columns == expected.columns
    drawn = store(folder, tmp_path / "h", symmetrize=True, columns=columns, split="0.6/0.4/0")
    assert_same(drawn, load_graph(folder, symmetrize=True, columns=columns, split="0.6/0.4/0"))


def test_tables_must_say_what_only_all_of_them_could(tmp_path: Path) -> None:
    folder = tables(tmp_path / "tables")
    with pytest.raises(GraphError, match="directed is not given"):
        store(folder, tmp_path / "g", num_classes=2)
    with pytest.raises(GraphError, match="num_classes is not given"):
        store(folder, tmp_path / "g", directed=True, columns={"ignore": ["label"], "label": "age"})
    assert [each.name for each in tmp_path.iterdir()] == ["tables"]


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"symmetrize": True}, "symmetrize=True and directed=True contradict"),
        ({"edges": EDGES.T}, r"edges has shape \[5, 2\]; expected \[2, E\]"),
        ({"edges": EDGES + 1}, "position 3 is 4; expected a node from 0 to 3"),
        ({"y": [0, 1]}, "y has 2 labels and x has 4 rows"),
        ({"y": [0, 1, -2, 1]}, r"y\[2\]=-2"),
        ({"x": np.full_like(X, np.inf)}, r"x\[0, 0\]=inf is not a finite float32"),
        ({"x": np.array([[1e300], [0], [0], [0]])}, r"x\[0, 0\]=inf is not a finite float32"),
        ({"x": np.array([["a"]] * 4)}, "x has dtype <U1; expected real numbers"),
        ({"val_idx": [2]}, "node 2 is in both train_idx and val_idx"),
        ({"num_classes": 0}, "num_classes=0"),
    ],
)
def test_what_cannot_be_stored_leaves_nothing(tmp_path: Path, changed: dict[str, Any], says: str) -> None:
    with pytest.raises(GraphError, match=says) as caught:
        store_arrays(tmp_path / "g", **given(**changed))
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_is_never_written_over(tmp_path: Path) -> None:
    store_arrays(tmp_path / "g", **given())
    with pytest.raises(GraphError, match="it exists already"):
        store_arrays(tmp_path / "g", **given())
    (tmp_path / "h.draft").mkdir()
    with pytest.raises(GraphError, match="left over from an interrupted store"):
        store_arrays(tmp_path / "h", **given())
    (tmp_path / "file").write_text("")
    with pytest.raises(GraphError, match="cannot be created"):
        store_arrays(tmp_path / "file" / "g", **given())


def about(**changed: Any) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        about = json.loads((folder / "graph.json").read_text())
        (folder / "graph.json").write_text(json.dumps({**about, **changed}))

    return change


def values(name: str, array: Any) -> Callable[[Path], None]:
    return lambda folder: np.save(folder / f"{name}.npy", np.array(array))


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda folder: (folder / "x.npy").unlink(), "x.npy is missing"),
        (lambda folder: (folder / "y.npy").write_bytes(b"\x93NUMPY"), "y.npy is not a .npy file"),
        (lambda folder: (folder / "graph.json").write_text("{"), "graph.json is not JSON"),
        (lambda folder: (folder / "graph.json").write_text("[]"), "version=None"),
        (about(version=3), "version=3; expected 1 or 2"),
        (about(version=True), "version=True; expected 1 or 2"),
        (about(version=2), "x_indptr.npy is missing"),
        (lambda folder: (folder / "graph.json").write_text('{"version": 1}'), "lacks num_nodes, num_reads"),
        (about(num_nodes="4"), "num_nodes=4; expected an integer"),
        (about(num_nodes=5), r"reads_indptr.npy has shape \[5\]; graph.json says \[6\]"),
        (about(directed=None), "directed=None; expected true or false"),
        (about(columns=[]), r"columns=\[\]; expected an object or null"),
        (about(columns={"idd": "a"}), "unknown key 'idd'; did you mean 'id'"),
        (about(num_classes=1), r"y\[1\]=1; expected -1..0"),
        (values("x", [*X.tolist()[:3], [0.0, np.nan]]), r"x\[3, 1\]=nan is not a finite float32"),
        (values("x", X[:, :1]), r"x.npy has shape \[4, 1\]"),
        (values("reads_indptr", [0, 1, 3, 2, 3]), "does not increase from 0 to 3"),
        (values("reads_indices", np.array([2, 0, 9], np.int32)), "=9; expected 0..3"),
        (values("reads_indices", np.array([2, 1, 1], np.int32)), "holds a self-loop"),
        (values("reads_indices", np.array([2, 0, 1])), "dtype int64; expected int32"),
        (values("train_idx", [0, 0]), "train_idx holds node 0 more than once"),
        (values("train_idx", [0.5]), "train_idx.npy has dtype float64"),
        (values("val_idx", [3, 2]), "is in both train_idx and val_idx"),
    ],
)
def test_damage_is_told_in_one_line(tmp_path: Path, damage: Callable[[Path], None], says: str) -> None:
    store_arrays(tmp_path / "g", **given())
    damage(tmp_path / "g")
    with pytest.raises(GraphError, match=says) as caught:
        load_graph(tmp_path / "g")
    assert str(caught.value).startswith((str(tmp_path / "g"), "..."))
    assert "\n" not in str(caught.value)


def test_names_of_datasets_are_not_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store_arrays("karate", **given())
    assert isinstance(load_graph("karate"), StoredGraph)


SPARSE_X = sparse.csr_array(np.array([[0, 2, 0], [1, 0, 3], [0, 0, 0], [0, 0, 5]], np.float32))


def test_sparse_features_stay_sparse(tmp_path: Path) -> None:
    stored = store_arrays(tmp_path / "g", **given(x=SPARSE_X.astype(np.float64).tocoo()))
    assert sorted(path.name for path in (tmp_path / "g").glob("x*")) == [
        "x_data.npy",
        "x_indices.npy",
        "x_indptr.npy",
    ]
    for graph in (stored, load_graph(tmp_path / "g")):
        assert isinstance(graph, StoredGraph)
        assert sparse.issparse(graph.x)
        assert graph.x.dtype == np.float32
        # On disk until they are read.
        assert not any(a.flags.writeable for a in (graph.x.data, graph.x.indices, graph.x.indptr))
        assert graph.dense_features(np.array([3, 1, 1])).tolist() == SPARSE_X.toarray()[[3, 1, 1]].tolist()
        assert graph.in_memory().x.toarray().tolist() == SPARSE_X.toarray().tolist()
        graph.release_features()
        assert graph.x.toarray().tolist() == SPARSE_X.toarray().tolist()


def test_folders_of_version_1_are_read(tmp_path: Path) -> None:
    """Dense features are stored as they were before sparse ones could be."""
    store_arrays(tmp_path / "g", **given())
    assert json.loads((tmp_path / "g" / "graph.json").read_text())["version"] == 1
    assert np.array_equal(np.load(tmp_path / "g" / "x.npy"), X)
    assert np.array_equal(load_graph(tmp_path / "g").x, X)


def test_repeated_entries_of_sparse_features_are_added_up(tmp_path: Path) -> None:
    twice = sparse.coo_array((np.ones(3), ([0, 0, 3], [1, 1, 0])), shape=(4, 2))
    assert store_arrays(tmp_path / "g", **given(x=twice)).x.toarray()[0].tolist() == [0, 2]


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda folder: (folder / "x_data.npy").unlink(), "x_data.npy is missing"),
        (values("x_indptr", np.array([0, 1, 3, 3], np.int32)), r"x_indptr.npy has shape \[4\]"),
        (
            values("x_indptr", np.array([0, 1, 3, 2, 4], np.int32)),
            "x_indptr.npy does not increase from 0 to 4",
        ),
        (values("x_indptr", np.array([0, 1, 3, 3, 4])), "have types int64, int32, float32"),
        (values("x_data", np.ones(3, np.float32)), "the last two 4 and 3 values"),
        (values("x_data", np.ones(4)), "have types int32, int32, float64"),
        (values("x_data", np.array([1, 1, np.inf, 1], np.float32)), r"x\[1, 2\]=inf is not a finite float32"),
        (values("x_indices", np.array([1, 0, 3, 2], np.int32)), "=3; expected 0..2; there are 3 columns"),
        (values("x_indices", np.array([1, 2, 0, 2], np.int32)), "not ascending in a row"),
        (values("x_indices", np.array([1, 2, 2, 2], np.int32)), "repeats a column"),
    ],
)
def test_damage_of_sparse_features_is_told_in_one_line(
    tmp_path: Path, damage: Callable[[Path], None], says: str
) -> None:
    store_arrays(tmp_path / "g", **given(x=SPARSE_X))
    damage(tmp_path / "g")
    with pytest.raises(GraphError, match=says) as caught:
        load_graph(tmp_path / "g")
    assert "\n" not in str(caught.value)
