"""DataFrames of pandas and Polars are read by the same rules as files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hushgraph as hg
from hushgraph.datasets import load_graph
from hushgraph.errors import GraphError
from two_tables import CITY, EDGES, NODES, folder_of

Frames = Callable[[Path], tuple[Any, Any]]


def pandas_frames(folder: Path) -> tuple[Any, Any]:
    pandas = pytest.importorskip("pandas")
    return pandas.read_csv(folder / "nodes.csv"), pandas.read_csv(folder / "edges.csv")


def polars_frames(folder: Path) -> tuple[Any, Any]:
    polars = pytest.importorskip("polars")
    return polars.read_csv(folder / "nodes.csv"), polars.read_csv(folder / "edges.csv").lazy()


@pytest.fixture(params=[pandas_frames, polars_frames], ids=["pandas", "polars"])
def frames(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Any, Any]:
    make: Frames = request.param
    return make(folder_of(tmp_path / "people", NODES, EDGES))


def test_the_graph_is_that_of_the_files(frames: tuple[Any, Any], tmp_path: Path) -> None:
    files, frame = (load_graph(data, columns=CITY) for data in (tmp_path / "people", frames))
    for name in ("x", "y", "indptr", "indices", "train_idx", "val_idx", "node_names"):
        np.testing.assert_array_equal(getattr(frame, name), getattr(files, name))


def test_one_of_the_two_may_be_a_file(frames: tuple[Any, Any], tmp_path: Path) -> None:
    graph = load_graph((frames[0], tmp_path / "people" / "edges.csv"), columns=CITY)
    assert graph.num_edges == 3


def test_messages_name_the_frame(frames: tuple[Any, Any]) -> None:
    with pytest.raises(GraphError, match=r"^the DataFrame of nodes: column 'city' holds VARCHAR"):
        load_graph(frames)


def test_a_named_index_is_a_column(tmp_path: Path) -> None:
    nodes, edges = pandas_frames(folder_of(tmp_path / "people", NODES, EDGES))
    graph = load_graph((nodes.set_index("id"), edges), columns=CITY)
    assert graph.node_names is not None
    assert graph.node_names.tolist() == ["a", "b", "c", "d"]


def test_two_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    nodes = pandas.DataFrame([[1, 2, 3]], columns=["id", "1", 1])
    with pytest.raises(GraphError, match="the DataFrame of nodes: two columns are called '1'; rename one"):
        load_graph((nodes, nodes))


def test_values_that_no_table_holds_are_refused(tmp_path: Path) -> None:
    polars = pytest.importorskip("polars")
    nodes = polars.DataFrame({"id": polars.Series([object()], dtype=polars.Object)})
    with pytest.raises(GraphError, match=r"the DataFrame of nodes: cannot be read as a table \("):
        load_graph((nodes, nodes))


def test_columns_of_nothing_have_no_type(tmp_path: Path) -> None:
    """No edges, and persons of whom nobody is named, in columns of objects."""
    pandas = pytest.importorskip("pandas")
    nodes, edges = pandas_frames(folder_of(tmp_path / "people", NODES, EDGES))
    nodes = nodes.assign(owner=pandas.Series([None] * len(nodes), dtype=object))
    graph = load_graph((nodes, edges[:0].astype(object)), columns={**CITY, "person": "owner"})
    assert graph.num_edges == 0
    assert graph.persons is not None
    assert graph.persons.tolist() == [0, 1, 2, 3]


def make_people(count: int = 60) -> dict[str, list[Any]]:
    return {
        "person": [f"p{n}" for n in range(count)],
        "age": [None if n % 9 == 0 else 20 + n % 7 for n in range(count)],
        "school": [("north", "south")[n % 2] for n in range(count)],
    }


def make_edges(count: int = 60) -> dict[str, list[str]]:
    pairs = [(n, (n + step) % count) for n in range(count) for step in (2, 4)]
    return {"source": [f"p{u}" for u, _ in pairs], "target": [f"p{w}" for _, w in pairs]}


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_train_predict_and_new_rows(library: str) -> None:
    frame = pytest.importorskip(library).DataFrame
    data = (frame(make_people()), frame(make_edges()))
    columns = {"id": "person", "label": "school", "classes": ["north", "south"], "fill": 0}
    run = hg.train(data, epsilon=4.0, columns=columns, symmetrize=True, steps=3, hidden=4, device="cpu")
    assert run.folder.data == "DataFrame"
    assert run.predict(data).shape == (60,)
    new = (
        frame({"person": ["n1", "n2"], "age": [None, 30]}),
        frame({"source": ["n1", "n2"], "target": ["p4", "p7"]}),
    )
    predicted = run.predict_table(new, new=True)
    assert predicted.probabilities.shape == (2, 2)
    assert predicted.names is not None
    assert predicted.names.tolist() == ["n1", "n2"]
