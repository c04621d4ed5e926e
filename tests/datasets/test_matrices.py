"""X, y and a graph: labels of every kind, edges of every kind, checked by eye."""

from __future__ import annotations

from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from scipy import sparse

from hushgraph.datasets.matrices import (
    build_tables,
    count_rows,
    encode_classes,
    encode_numbers,
    encode_sets,
    list_row_names,
    read_edges,
)
from hushgraph.errors import GraphError, InputError

EDGES = [[0, 1, 2], [1, 2, 0]]


@pytest.mark.parametrize(
    ("y", "codes", "classes", "declared"),
    [
        ([5, 3, -1, 5], [1, 0, -1, 1], [3, 5], False),
        (np.array([0.0, np.nan, 2.0, 0.0]), [0, -1, 1, 0], [0, 2], False),
        (["no", None, "yes", ""], [0, -1, 1, -1], ["no", "yes"], False),
        (np.array(["no", "no", "yes", "yes"]), [0, 0, 1, 1], ["no", "yes"], False),
        ([True, True, True, True], [1, 1, 1, 1], [False, True], True),
        (pd.Series(["b", "a", pd.NA, "a"]), [1, 0, -1, 0], ["a", "b"], False),
        (pd.Series([1, None, 0, 1], dtype="Int64"), [1, -1, 0, 1], [0, 1], False),
        (pd.Series(["b", "a", None, "a"], dtype="category"), [1, 0, -1, 0], ["a", "b"], False),
        (pl.Series(["b", "a", None, "a"]), [1, 0, -1, 0], ["a", "b"], False),
        (torch.tensor([[1], [0], [-1], [1]]), [1, 0, -1, 1], [0, 1], False),
    ],
    ids=["integers", "floats", "list", "text", "booleans", "Series", "Int64", "category", "Polars", "tensor"],
)
def test_classes_are_numbered(y: Any, codes: list[int], classes: list[Any], declared: bool) -> None:
    encoded = encode_classes(y, 4)
    assert (encoded.codes.tolist(), encoded.classes.tolist()) == (codes, classes)
    assert encoded.is_declared == declared


def test_declared_classes_keep_their_order() -> None:
    encoded = encode_classes(["b", "a", None], 3, classes=["b", "c", "a"])
    assert (encoded.codes.tolist(), encoded.is_declared) == ([0, 2, -1], True)
    assert encode_classes([2, 0, -1], 3, num_classes=4).classes.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("y", "how", "words"),
    [
        ([0, 1], {}, "y has shape [2] and X has 3 rows; expected one label for each row, with None, NaN"),
        (np.zeros((3, 2)), {}, "y has shape [3, 2] and X has 3 rows"),
        ([0.5, 1.0, 2.0], {}, "y holds 0.5, which is no class; expected names or whole numbers; for numbers"),
        ([0, "a", 1], {}, "y holds labels of several types (int, str); expected one; convert them"),
        ([b"a", b"b", b"a"], {}, "y holds a bytes; expected names, whole numbers or booleans"),
        (
            ["yes", "yess", "no"],
            {"classes": ["no", "yes"]},
            "y holds 'yess', which is not among the",
        ),
        (
            [0, 1, 7],
            {"num_classes": 2},
            "y holds 7, which is not among the declared classes; expected",
        ),
        ([True, False, True], {"num_classes": 2}, "y holds True, which is not among the declared classes"),
    ],
)
def test_what_is_no_class_is_refused(y: Any, how: dict[str, Any], words: str) -> None:
    with pytest.raises(GraphError) as refused:
        encode_classes(y, 3, **how)
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_list_of_classes_has_two_or_more() -> None:
    for classes in (["a"], ["a", "a"]):
        with pytest.raises(InputError, match="expected two or more different classes"):
            encode_classes(["a"], 1, classes=classes)


def test_numbers_are_numbers() -> None:
    given = encode_numbers([1, None, 2.5, np.nan, pd.NA], 5)
    assert np.array_equal(given, [1, np.nan, 2.5, np.nan, np.nan], equal_nan=True)
    assert np.isnan(encode_numbers(pl.Series([None, 1.0]), 2)[0])
    with pytest.raises(GraphError, match=r"^y\[1\]='many': expected a number, or None or NaN$"):
        encode_numbers([1, "many"], 2)


def test_sets_of_labels_are_tables_of_0_and_1() -> None:
    sets, names = encode_sets([[1, 0], [-1, -1], [0, 0]], 3)
    assert (sets.tolist(), names.tolist()) == ([[1, 0], [-1, -1], [0, 0]], [0, 1])
    frame = pd.DataFrame({"rock": [1.0, np.nan], "pop": [0.0, np.nan]})
    sets, names = encode_sets(frame, 2)
    assert (sets.tolist(), names.tolist()) == ([[1, 0], [-1, -1]], ["rock", "pop"])
    assert encode_sets(sparse.csr_array([[1, 0], [0, 1]]), 2)[0].tolist() == [[1, 0], [0, 1]]
    for y, words in (
        ([[1, 0]], "y has shape [1, 2]; expected [2, labels]"),
        ([[1, 2], [0, 0]], "y holds other numbers than 0 and 1"),
        ([[1, -1], [0, 0]], "y holds other numbers than 0 and 1"),
        ([["a", "b"], ["c", "d"]], "y holds text; expected 0 or 1"),
    ):
        with pytest.raises(GraphError) as refused:
            encode_sets(y, 2)
        assert words in str(refused.value)


@pytest.mark.parametrize(
    "graph",
    [
        EDGES,
        np.array(EDGES, np.int32),
        torch.tensor(EDGES),
        sparse.coo_array(([1.0, 2.0, 1.0], EDGES), shape=(3, 3)),
        nx.DiGraph([(0, 1), (1, 2), (2, 0)]),
        pd.DataFrame({"source": EDGES[0], "target": EDGES[1]}),
        pl.DataFrame({"source": EDGES[0], "target": EDGES[1]}),
        pl.LazyFrame({"source": EDGES[0], "target": EDGES[1]}),
    ],
    ids=["lists", "array", "tensor", "SciPy", "NetworkX", "pandas", "Polars", "lazy"],
)
def test_edges_are_read_from_every_kind(graph: Any) -> None:
    assert sorted(read_edges(graph, 3).T.tolist()) == [[0, 1], [1, 2], [2, 0]]
    assert read_edges(graph, 3).dtype == np.int64


def test_a_stored_zero_is_no_edge_and_an_undirected_edge_is_two() -> None:
    stored = sparse.coo_array(([0.0, 1.0], ([0, 1], [1, 2])), shape=(3, 3))
    assert read_edges(stored, 3).tolist() == [[1], [2]]
    assert sorted(read_edges(nx.Graph([(0, 1)]), 3).T.tolist()) == [[0, 1], [1, 0]]
    assert read_edges(np.empty((2, 0)), 3).shape == read_edges(nx.Graph(), 3).shape == (2, 0)


def test_names_are_those_of_the_index() -> None:
    X = pd.DataFrame({"age": [1.0, 2.0]}, index=["ann", "bob"])
    names = list_row_names(X)
    assert list_row_names(np.ones((2, 1))) is list_row_names(pl.DataFrame({"age": [1.0]})) is None
    edges = pd.DataFrame({"source": ["bob"], "target": ["ann"]})
    for graph in (edges, nx.DiGraph([("bob", "ann")])):
        assert read_edges(graph, 2, names=names).tolist() == [[1], [0]]
    renamed = edges.rename(columns={"source": "from", "target": "to"})
    assert read_edges(renamed, 2, names=names, source="from", target="to").tolist() == [[1], [0]]
    shifted = pd.DataFrame({"age": [1.0, 2.0]}, index=[7, 9])
    assert read_edges(nx.DiGraph([(9, 7)]), 2, names=list_row_names(shifted)).tolist() == [[1], [0]]


@pytest.mark.parametrize(
    ("graph", "words"),
    [
        (np.zeros((5, 2), int), "has dtype int64 and shape [5, 2]; give its transpose"),
        (np.zeros((3, 5), int), "shape [3, 5]; expected an array [2, E] of row numbers, a SciPy matrix"),
        (np.zeros((2, 5)), "has dtype float64 and shape [2, 5]; expected an array [2, E]"),
        ("edges.csv", "graph=str has dtype <U9 and shape []; expected an array [2, E]"),
        (sparse.csr_array((4, 4)), "graph has shape [4, 4]; expected [3, 3]"),
        (nx.Graph([("a", "b")]), "graph names the node 'a'; expected row numbers of X, or X as a pandas"),
        (pd.DataFrame({"sorce": [0], "target": [1]}), "no column 'source'; did you mean 'sorce'? It has"),
    ],
)
def test_what_is_no_graph_is_refused(graph: Any, words: str) -> None:
    with pytest.raises(GraphError) as refused:
        read_edges(graph, 3)
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


def test_names_that_no_row_has_are_refused() -> None:
    with pytest.raises(GraphError, match="graph names 'eve', which is not in the index of X; leave it out"):
        read_edges(nx.Graph([("ann", "eve")]), 2, names=np.array(["ann", "bob"]))
    with pytest.raises(GraphError, match=r"the index of X has 'a' twice; .* use X.reset_index\(\)"):
        list_row_names(pd.DataFrame({"age": [1, 2]}, index=["a", "a"]))
    levels = pd.MultiIndex.from_tuples([("a", 1), ("b", 2)])
    with pytest.raises(GraphError, match="the index of X has several levels"):
        list_row_names(pd.DataFrame({"age": [1, 2]}, index=levels))


def test_a_frame_becomes_a_table_of_nodes() -> None:
    X = pd.DataFrame({"age": [1.0, 2.0], "label": [3.0, 4.0]}, index=["ann", "bob"])
    nodes, edges, columns = build_tables(X, [[1], [0]], [None, 1])
    assert columns == {"id": "node", "label": "label_"}
    assert nodes.columns.tolist() == ["age", "label", "node", "label_"]
    assert nodes["node"].tolist() == ["ann", "bob"]
    assert edges.to_dict("list") == {"source": ["bob"], "target": ["ann"]}
    by_name = nx.DiGraph([("bob", "ann")])
    assert build_tables(X, by_name, None)[1].to_dict("list") == edges.to_dict("list")
    nodes, edges, _ = build_tables(pl.DataFrame({"age": [1.0, 2.0]}), [[1], [0]], [0.5, None])
    assert nodes.to_dict(as_series=False) == {"age": [1.0, 2.0], "node": [0, 1], "label": [0.5, None]}
    assert edges.rows() == [(1, 0)]
    assert [count_rows(each) for each in (X, nodes, np.ones((4, 2)), sparse.csr_array((5, 2)))] == [
        2,
        2,
        4,
        5,
    ]
    with pytest.raises(GraphError, match=r"X has shape \[3\]; expected 2 dimensions"):
        count_rows([1, 2, 3])
