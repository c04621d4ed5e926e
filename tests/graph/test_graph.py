"""The checked graph: what it stores, what it refuses, and what its methods return."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from hushgraph.errors import GraphError
from hushgraph.graph.graph import Graph
from hushgraph.graph.records import Relation, RelationInfo

# 0 -> 1, 2 -> 1, 1 -> 0, 3 -> 2: node 1 reads 0 and 2, node 0 reads 1, node 2 reads 3, node 3 reads nobody.
EDGES = np.array([[2, 0, 1, 3], [1, 1, 0, 2]])
X = np.array([[1.0, 0.0], [0.0, 2.0], [0.0, 0.0], [3.0, 4.0]], np.float32)


def arrays(**changes: Any) -> dict[str, Any]:
    base = {"edge_index": EDGES, "x": X, "y": [0, 1, -1, 2], "train_idx": [1, 0], "val_idx": [3]}
    return base | changes


def reads_of(graph: Graph) -> list[list[int]]:
    return [graph.indices[a:b].tolist() for a, b in zip(graph.indptr, graph.indptr[1:], strict=False)]


def test_rows_by_eye() -> None:
    graph = Graph.from_arrays(**arrays())
    assert reads_of(graph) == [[1], [0, 2], [3], []]
    assert graph.num_nodes == 4
    assert graph.num_edges == 4
    assert graph.num_classes == 3
    assert graph.num_features == 2
    assert graph.is_directed
    assert graph.train_idx.tolist() == [0, 1]
    assert graph.val_idx.tolist() == [3]
    assert graph.test_idx.tolist() == []
    assert graph.train_mask.tolist() == [True, True, False, False]


def test_array_types_are_compact() -> None:
    graph = Graph.from_arrays(**arrays(x=X.astype(np.float64)))
    assert graph.indptr.dtype == np.int64
    assert graph.indices.dtype == np.int32
    assert graph.x.dtype == np.float32
    assert graph.y.dtype == graph.train_idx.dtype == graph.test_idx.dtype == np.int64


def test_duplicates_and_self_loops_are_removed_and_counted() -> None:
    edges = [[0, 0, 0, 2, 2, 1], [1, 1, 1, 2, 1, 1]]
    graph = Graph.from_arrays(**arrays(edge_index=edges))
    assert reads_of(graph) == [[], [0, 2], [], []]
    assert graph.duplicates_removed == 2
    assert graph.self_loops_removed == 2


def test_symmetrize_adds_reverses_and_does_not_count_them() -> None:
    graph = Graph.from_arrays(**arrays(symmetrize=True))
    assert reads_of(graph) == [[1], [0, 2], [1, 3], [2]]
    assert not graph.is_directed
    assert graph.duplicates_removed == 0
    later = Graph.from_arrays(**arrays()).symmetrized()
    assert reads_of(later) == reads_of(graph)
    assert not later.is_directed


@pytest.mark.parametrize(
    ("edges", "directed"),
    [
        ([[0, 1], [1, 0]], False),
        ([[0, 1, 2, 1], [1, 0, 1, 2]], False),
        ([[0], [1]], True),
        ([[0, 1, 2], [1, 2, 0]], True),  # a cycle: every node reads one and is read by one
        ([[], []], False),
        ([[2], [2]], False),
    ],
)
def test_is_directed_is_computed(edges: Any, directed: bool) -> None:
    assert Graph.from_arrays(**arrays(edge_index=edges)).is_directed is directed


def test_is_directed_can_be_stated() -> None:
    assert Graph.from_arrays(**arrays(directed=False)).is_directed is False
    both = [[0, 1], [1, 0]]
    assert Graph.from_arrays(**arrays(edge_index=both, directed=True)).is_directed is True


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=40),
    st.booleans(),
    st.integers(1, 9),
)
def test_rows_agree_with_sets_of_pairs(pairs: list[tuple[int, int]], symmetrize: bool, chunk: int) -> None:
    edges = np.array(pairs, np.int64).reshape(-1, 2).T
    graph = Graph.from_arrays(
        edge_index=edges, x=np.ones((7, 1)), y=[0] * 7, train_idx=[0], symmetrize=symmetrize
    )
    proper = [pair for pair in pairs if pair[0] != pair[1]]
    expected = set(proper)
    if symmetrize:
        expected |= {(w, u) for u, w in expected}
    actual = [(int(u), int(w)) for s, t in graph.edge_chunks(chunk) for u, w in zip(s, t, strict=True)]
    assert actual == sorted(expected, key=lambda pair: (pair[1], pair[0]))
    assert graph.self_loops_removed == len(pairs) - len(proper)
    assert graph.duplicates_removed == len(proper) - len(set(proper))
    assert graph.is_directed == any((w, u) not in expected for u, w in expected)
    assert all(0 < len(s) <= chunk for s, _ in graph.edge_chunks(chunk))
    ends, places = graph.lists_of("sender")
    listed = [(row, int(place)) for row in range(7) for place in places[ends[row] : ends[row + 1]]]
    assert listed == sorted(expected)
    assert graph.lists_of("reader") == (graph.indptr, graph.indices)
    assert all(s.dtype == t.dtype == np.int32 for s, t in graph.edge_chunks(chunk))


def test_edge_types_do_not_matter() -> None:
    for dtype in (np.int8, np.uint8, np.int32, np.uint64, ">i4"):
        assert reads_of(Graph.from_arrays(**arrays(edge_index=EDGES.astype(dtype)))) == [[1], [0, 2], [3], []]
    assert reads_of(Graph.from_arrays(**arrays(edge_index=np.asfortranarray(EDGES)))) == [
        [1],
        [0, 2],
        [3],
        [],
    ]


def test_sparse_features_stay_sparse_and_equal_dense() -> None:
    dense = Graph.from_arrays(**arrays())
    for form in (sparse.csr_array, sparse.csr_matrix, sparse.coo_array, sparse.csc_matrix):
        graph = Graph.from_arrays(**arrays(x=form(X)))
        assert sparse.issparse(graph.x)
        assert graph.x.format == "csr"
        assert graph.x.dtype == np.float32
        rows = np.array([3, 0, 3])
        np.testing.assert_array_equal(graph.dense_features(rows), dense.dense_features(rows))
    assert isinstance(dense.x, np.ndarray)
    assert dense.dense_features(np.array([3])).tolist() == [[3.0, 4.0]]


def test_repeated_sparse_entries_are_summed_on_a_copy() -> None:
    given_x = sparse.csr_array((np.ones(3, np.float32), [1, 1, 0], [0, 2, 3, 3, 3]), shape=(4, 2))
    graph = Graph.from_arrays(**arrays(x=given_x))
    assert graph.x.toarray().tolist() == [[0, 2], [1, 0], [0, 0], [0, 0]]
    assert given_x.nnz == 3


@pytest.mark.parametrize("form", [np.array, sparse.csr_array])
@pytest.mark.parametrize(
    ("owner", "rows"), [("sender", [[], [0, 2], [3], []]), ("reader", [[1], [], [3], []])]
)
def test_row_emptied(form: Any, owner: Any, rows: list[list[int]]) -> None:
    graph = Graph.from_arrays(**arrays(x=form(X)))
    emptied = graph.with_row_emptied(1, owner)
    assert reads_of(emptied) == rows
    assert emptied.dense_features(np.arange(4)).tolist() == [[1, 0], [0, 0], [0, 0], [3, 4]]
    assert emptied.y.tolist() == [0, -1, -1, 2]
    assert emptied.train_idx.tolist() == [0, 1]
    assert emptied.num_classes == 3
    assert emptied.is_directed is graph.is_directed
    assert graph.dense_features(np.array([1])).tolist() == [[0, 2]]
    assert reads_of(graph) == [[1], [0, 2], [3], []]


def test_row_emptied_keeps_splits_and_public_facts() -> None:
    graph = Graph.from_arrays(**arrays(symmetrize=True))
    emptied = graph.with_row_emptied(3, "sender")
    assert emptied.val_idx.tolist() == [3]
    assert emptied.num_classes == 3
    assert not emptied.is_directed
    again = Graph.from_arrays(
        edge_index=[[], []], x=emptied.x, y=emptied.y, train_idx=[0, 1, 2, 3], num_classes=3
    )
    assert again.train_idx.tolist() == [0, 1, 2, 3]


def test_disjoint_drops_reads_across_splits() -> None:
    edges = [[0, 1, 2, 3, 4, 5, 0, 4], [1, 0, 3, 2, 5, 4, 2, 0]]
    graph = Graph.from_arrays(
        edge_index=edges,
        x=np.ones((6, 1)),
        y=[0, 1, 0, 1, -1, -1],
        train_idx=[0, 1],
        val_idx=[2],
        test_idx=[3],
    )
    # 0 and 1 train; 2 and 3 are in different splits; 4 and 5 in none.
    assert reads_of(graph.disjoint()) == [[1], [0], [], [], [5], [4]]


def test_summary_is_one_line() -> None:
    graph = Graph.from_arrays(**arrays())
    assert graph.summary() == "4 nodes, 4 directed reads, 2 dense features, 3 classes, train/val/test 2/1/0"
    assert repr(graph) == f"Graph({graph.summary()})"


@pytest.mark.parametrize("split", ["train_idx", "val_idx", "test_idx"])
def test_unlabelled_nodes_are_allowed_in_any_split(split: str) -> None:
    """An emptied row keeps its place, and refusing it would tell that it is empty."""
    others = {"train_idx": [0], "val_idx": [], "test_idx": []}
    graph = Graph.from_arrays(**arrays(**others | {split: [1, 2]}))
    assert graph.y[getattr(graph, split)].tolist() == [1, -1]


def test_frozen() -> None:
    with pytest.raises(AttributeError):
        Graph.from_arrays(**arrays()).num_nodes = 3  # type: ignore[misc]


NAN, HUGE = X.copy(), X.astype(np.float64)
NAN[2, 1] = np.nan
HUGE[3, 0] = -1e300


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"edge_index": EDGES.T}, r"edge_index has shape \[4, 2\]; expected \[2, E\]"),
        ({"edge_index": EDGES[0]}, r"edge_index has shape \[4\]"),
        ({"edge_index": EDGES.astype(float)}, "edge_index has dtype float64; expected integers"),
        ({"edge_index": EDGES.astype(bool)}, "edge_index has dtype bool; expected integers"),
        ({"edge_index": EDGES.astype(object)}, "edge_index has dtype object; expected integers"),
        ({"edge_index": [[0, 1], [2]]}, "edge_index is not a rectangular array"),
        ({"edge_index": [[0, 1], [2, 4]]}, r"edge_index\[1, 1\]=4: expected 0..3; x has 4 rows"),
        ({"edge_index": [[0, -1], [2, 1]]}, r"edge_index\[0, 1\]=-1: expected 0..3"),
        ({"edge_index": np.array([[2**64 - 1], [0]], np.uint64)}, r"edge_index\[0, 0\]=18446744073709551615"),
        ({"x": X[0]}, r"x has shape \[2\]; expected 2 dimensions"),
        ({"x": X[:, :0]}, r"x has shape \[4, 0\]; expected at least one node and one feature"),
        ({"x": X[:0], "edge_index": [[], []]}, r"x has shape \[0, 2\]; expected at least one node"),
        ({"x": X.astype(complex)}, "x has dtype complex128; expected real numbers"),
        ({"x": X.astype(object)}, "x has dtype object; expected real numbers"),
        ({"x": X.astype(str)}, "x has dtype <U32; expected real numbers"),
        ({"x": [[1.0], [1.0, 2.0]]}, "x is not a rectangular array"),
        ({"x": NAN}, r"x\[2, 1\]=nan is not a finite float32; expected finite features; replace it"),
        ({"x": HUGE}, r"x\[3, 0\]=-1e\+300 is not a finite float32"),
        ({"x": sparse.csr_array(NAN)}, r"x\[2, 1\]=nan is not a finite float32"),
        ({"x": sparse.coo_array(HUGE)}, r"x\[3, 0\]=-1e\+300 is not a finite float32"),
        ({"x": sparse.csr_array(HUGE)}, r"x\[3, 0\]=-1e\+300 is not a finite float32"),
        ({"x": sparse.csr_array(X.astype(complex))}, "x has dtype complex128"),
        ({"y": [0, 1, 2]}, "y has 3 labels and x has 4 rows; expected one of each per node"),
        ({"y": [[0], [1], [0], [1]]}, r"y has shape \[4, 1\]; expected 1 dimension"),
        ({"y": [0.0, 1.0, 0.0, 1.0]}, "y has dtype float64; expected integers"),
        ({"y": [True, False, True, False]}, "y has dtype bool; expected integers"),
        ({"y": np.array([0, 1, None, 1])}, "y has dtype object; expected integers"),
        ({"y": [0, 1, -2, 1]}, r"y\[2\]=-2: expected -1..1; use -1 for no label"),
        ({"y": [0, 1, 5, 1], "num_classes": 3}, r"y\[2\]=5: expected -1..2; .* raise num_classes"),
        ({"y": [-1] * 4}, "y holds no label, so num_classes is unknown; give num_classes"),
        ({"y": [0, 10**12, 0, 0]}, r"y\[1\]=1000000000000 means more classes than nodes; number the classes"),
        ({"num_classes": 0}, "num_classes=0: expected an integer of at least 1"),
        ({"num_classes": True}, "num_classes=True: expected an integer"),
        ({"num_classes": 2.5}, "num_classes=2.5: expected an integer"),
        ({"train_idx": []}, "train_idx is empty; expected at least one training node"),
        ({"train_idx": [0, 4]}, r"train_idx\[1\]=4: expected 0..3; the graph has 4 nodes"),
        ({"train_idx": [-1]}, r"train_idx\[0\]=-1: expected 0..3"),
        ({"train_idx": [0, 1, 0]}, "train_idx holds node 0 more than once"),
        ({"train_idx": [0.0]}, "train_idx has dtype float64; expected integers"),
        ({"train_idx": [True, False, False, False]}, "train_idx has dtype bool; .* numpy.flatnonzero"),
        ({"train_idx": [[0]]}, r"train_idx has shape \[1, 1\]; expected 1 dimension"),
        ({"val_idx": [1]}, "node 1 is in both train_idx and val_idx; expected disjoint splits"),
        ({"test_idx": [3]}, "node 3 is in both val_idx and test_idx; expected disjoint splits"),
        ({"symmetrize": True, "directed": True}, "symmetrize=True and directed=True contradict"),
    ],
)
def test_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(GraphError, match=message) as caught:
        Graph.from_arrays(**arrays(**changes))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"indptr": [0, 1, 3, 4]}, "indptr does not increase from 0 to 4 in 5 values"),
        ({"indptr": [0, 1, 3, 2, 4]}, "indptr does not increase"),
        ({"indptr": [0, 1, 3, 4, 5]}, "indptr does not increase"),
        ({"indices": [1, 0, 9, 3]}, r"indices\[2\]=9: expected 0..3"),
        ({"indices": [1, 2, 0, 3]}, "indices repeats a read, holds a self-loop or is not ascending"),
        ({"indices": [1, 2, 2, 3]}, "indices repeats a read"),
        ({"indices": [0, 0, 2, 3]}, "indices repeats a read, holds a self-loop"),
        ({"num_nodes": 5}, "y has 4 labels and x has 4 rows"),
    ],
)
def test_direct_construction_is_checked_too(changes: dict[str, Any], message: str) -> None:
    fields = arrays(y=np.array([0, 1, -1, 2])) | {
        "num_nodes": 4,
        "indptr": np.array([0, 1, 3, 4, 4]),
        "indices": np.array([1, 0, 2, 3]),
        "test_idx": [],
        "num_classes": 3,
        "is_directed": True,
    }
    del fields["edge_index"]
    assert reads_of(Graph(**fields)) == [[1], [0, 2], [3], []]
    with pytest.raises(GraphError, match=message):
        Graph(**fields | {name: np.array(v) if isinstance(v, list) else v for name, v in changes.items()})


def test_arguments_of_methods_are_checked() -> None:
    graph = Graph.from_arrays(**arrays())
    with pytest.raises(GraphError, match=r"v=4 is not a node; expected 0..3"):
        graph.with_row_emptied(4, "sender")
    with pytest.raises(GraphError, match="edge_owner='both': expected 'sender' or 'reader'"):
        graph.with_row_emptied(0, "both")  # type: ignore[arg-type]
    with pytest.raises(GraphError, match="chunk_edges=0: expected at least 1"):
        next(graph.edge_chunks(0))


@pytest.mark.parametrize(
    ("is_weighted", "weights", "has"), [(True, None, "no weights"), (False, np.ones(1), "weights")]
)
def test_weights_are_where_a_relation_says_so(is_weighted: bool, weights: Any, has: str) -> None:
    lists = {"indptr": np.array([0, 1, 1]), "indices": np.array([1]), "weights": weights}
    with pytest.raises(GraphError, match=f"^relation 'calls' has {has} and is_weighted={is_weighted};"):
        Relation(info=RelationInfo(name="calls", is_weighted=is_weighted), **lists)


def test_importing_the_graph_does_not_import_torch() -> None:
    code = "import sys, hushgraph.graph; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=300).returncode == 0
