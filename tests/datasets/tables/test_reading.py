"""Tables: CSV and Parquet give the same graph as arrays, in any order, within a limit of memory."""

from __future__ import annotations

import csv
import hashlib
import tempfile
from pathlib import Path

import duckdb
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy import sparse

from effort import choose
from hushgraph.datasets import load_graph
from hushgraph.datasets.tables import edge_table, node_table, reading, table
from hushgraph.errors import GraphError
from hushgraph.graph.columns import Columns
from hushgraph.graph.graph import Graph
from two_tables import CITY, EDGES, NODES, folder_of, to_parquet

ARRAYS = ("indptr", "indices", "x", "y", "train_idx", "val_idx", "test_idx")


def assert_same(actual: Graph, expected: Graph) -> None:
    for name in ARRAYS:
        np.testing.assert_array_equal(getattr(actual, name), getattr(expected, name))
    assert (actual.num_classes, actual.is_directed) == (expected.num_classes, expected.is_directed)


@pytest.mark.parametrize("kind", ["csv", "parquet", "mixed"])
def test_what_is_in_two_tables(tmp_path: Path, kind: str) -> None:
    folder = folder_of(tmp_path)
    if kind != "csv":
        to_parquet(folder / "nodes.csv")
    if kind == "parquet":
        to_parquet(folder / "edges.csv")
    graph = load_graph(folder, columns=CITY)
    # age, then Bergen, then Oslo; the empty city is all zeros.
    assert graph.x.tolist() == [[1.5, 0, 1], [2, 1, 0], [-300, 0, 0], [0, 0, 1]]
    assert graph.y.tolist() == [0, 1, -1, 1]
    assert (graph.train_idx.tolist(), graph.val_idx.tolist(), graph.test_idx.tolist()) == ([0, 2], [1], [])
    assert graph.indptr.tolist() == [0, 0, 2, 3, 3]
    assert graph.indices.tolist() == [0, 2, 1]
    assert (graph.duplicates_removed, graph.self_loops_removed) == (1, 1)
    assert graph.node_names is not None
    assert graph.node_names.tolist() == ["a", "b", "c", "d"]
    assert graph.columns is not None
    assert graph.columns.features == ("age",)
    assert graph.columns.split == "split"


def test_a_row_of_any_split_may_lack_its_label(tmp_path: Path) -> None:
    graph = load_graph(folder_of(tmp_path, NODES.replace("2,1,val", "2,,val")), columns=CITY)
    assert (graph.y.tolist(), graph.val_idx.tolist()) == ([0, -1, -1, 1], [1])


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_no_rows_are_no_edges(tmp_path: Path, kind: str) -> None:
    folder = folder_of(tmp_path, edges="source,target\n")
    if kind == "parquet":
        with duckdb.connect() as connection:
            connection.execute(
                f"COPY (SELECT 'a' AS source, 'b' AS target WHERE false) TO '{folder}/edges.parquet' "
                "(FORMAT parquet)"
            )
        (folder / "edges.csv").unlink()
    graph = load_graph(folder, columns=CITY)
    assert (graph.num_nodes, graph.num_edges) == (4, 0)


def test_a_toml_file_names_files_and_columns(tmp_path: Path) -> None:
    expected = load_graph(folder_of(tmp_path / "plain"), columns=CITY)
    folder = tmp_path / "own"
    folder.mkdir()
    (folder / "people.csv").write_text(NODES.replace("id,age", "person,age").replace(",", ";"))
    (folder / "friends.csv").write_text(EDGES.replace("source,target", "from,to").replace(",", ";"))
    (folder / "graph.toml").write_text(
        'nodes = "people.csv"\nedges = "friends.csv"\n[columns]\nid = "person"\nsource = "from"\n'
        'target = "to"\ndelimiter = ";"\n[columns.categorical]\ncity = ["Bergen", "Oslo"]\n'
    )
    for data in (folder, folder / "graph.toml", str(folder / "graph.toml")):
        assert_same(load_graph(data), expected)
    # What is given besides goes before the file, column by column.
    assert load_graph(folder, columns={"ignore": ["city"]}).x.shape == (4, 1)
    assert load_graph(folder, columns={"hashed": {"city": 5}}).x.shape == (4, 6)
    own = Columns(id="person", source="from", target="to", delimiter=";", ignore=["city"])
    assert load_graph(folder, columns=own).x.shape == (4, 1)


def test_hashed_columns_follow_md5(tmp_path: Path) -> None:
    names = ["Oslo", "Bergen", "Tromsø", "5", "'; DROP TABLE nodes", ""]
    rows = "".join(f"{place},{place % 2},train,{name}\n" for place, name in enumerate(names))
    folder = folder_of(tmp_path, "id,label,split,city\n" + rows, "source,target\n0,1\n")
    graph = load_graph(folder, columns={"hashed": {"city": 13}})
    for row, name in enumerate(names):
        expected = np.zeros(13)
        if name:
            expected[int(hashlib.md5(name.encode()).hexdigest()[:15], 16) % 13] = 1
        np.testing.assert_array_equal(graph.x[row], expected)


def test_many_buckets_are_sparse(tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    wide = load_graph(folder, columns={"hashed": {"city": 5000}})
    assert sparse.issparse(wide.x)
    assert wide.x.shape == (4, 5001)
    assert wide.x.toarray()[:, 0].tolist() == [1.5, 2, -300, 0]
    assert wide.x.toarray()[:, 1:].sum(1).tolist() == [1, 1, 0, 1]


def test_class_names_and_numbers(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, NODES.replace(",0,train", ",red,train").replace(",1,", ",deep blue,"))
    graph = load_graph(folder, columns={**CITY, "classes": ["green", "deep blue", "red"]})
    assert graph.y.tolist() == [2, 1, -1, 1]
    assert graph.num_classes == 3
    graph = load_graph(folder_of(tmp_path, NODES.replace(",1,", ",1.0,")), columns=CITY, num_classes=7)
    assert graph.y.tolist() == [0, 1, -1, 1]
    assert graph.num_classes == 7


def test_a_drawn_split_takes_the_place_of_the_column(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, NODES.replace("train", "anything"))
    graph = load_graph(folder, columns=CITY, split="1/0/0")
    assert graph.train_idx.tolist() == [0, 1, 2, 3]
    assert graph.num_features == 3


def test_without_labels_nothing_but_features_and_edges_is_needed(tmp_path: Path) -> None:
    columns = load_graph(folder_of(tmp_path), columns=CITY).columns
    folder_of(tmp_path, "extra,city,id,age\nx,Oslo,p,4\n,,q,5\n", "source,target\np,q\n")
    graph = load_graph(tmp_path, columns=columns, labels=False, split="1/0/0", num_classes=2)
    assert graph.x.tolist() == [[4, 0, 1], [5, 0, 0]]
    assert graph.y.tolist() == [-1, -1]


def test_cells_that_need_quotes_and_odd_lines(tmp_path: Path) -> None:
    nodes = 'id,age,label,split\r\n"a,\r\nb",1,0,train\r\n"say ""hi""",2,1,val\r\n\r\n\' ,3,0,test\r\n'
    edges = 'source,target\r\n"a,\r\nb","say ""hi"""\r\n'
    tmp_path.joinpath("nodes.csv").write_bytes(b"\xef\xbb\xbf" + nodes.encode())
    tmp_path.joinpath("edges.csv").write_bytes(edges.encode())
    graph = load_graph(tmp_path)
    assert graph.node_names is not None
    assert graph.node_names.tolist() == ["a,\r\nb", 'say "hi"', "' "]
    assert graph.indices.tolist() == [0]


def test_no_character_of_a_path_stands_for_other_files(tmp_path: Path) -> None:
    for name in ("a[1]*?", "key=7", 'it\'s "one"'):
        graph = load_graph(folder_of(tmp_path / name), columns=CITY)
        assert graph.num_features == 3


def test_integer_ids_stay_integers(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, "id,f,label,split\n30,1,0,train\n-7,2,1,train\n", "source,target\n-7,30\n")
    for name in ("nodes", "edges"):
        to_parquet(folder / f"{name}.csv")
    graph = load_graph(folder)
    assert graph.node_names is not None
    assert graph.node_names.dtype == np.int64
    assert graph.node_names.tolist() == [30, -7]
    assert graph.indices.tolist() == [1]


def test_small_chunks_change_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = load_graph(folder_of(tmp_path), columns=CITY)
    monkeypatch.setattr(edge_table, "CHUNK", 2)
    assert_same(load_graph(tmp_path, columns=CITY), expected)


def test_ten_thousand_rows_in_order_under_a_tight_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "MEMORY", "100MB")
    monkeypatch.setattr(node_table, "CELLS", 1 << 12)
    count = 10_000
    numbers = np.random.default_rng(3).permutation(count)
    with (tmp_path / "nodes.csv").open("w", newline="") as file:
        csv.writer(file).writerows(
            [("id", "f", "label", "split"), *((f"n{i:x}", i, i % 4, "train") for i in numbers.tolist())]
        )
    with (tmp_path / "edges.csv").open("w", newline="") as file:
        ends = ((f"n{i:x}", f"n{(i * 7 + 1) % count:x}") for i in range(count))
        csv.writer(file).writerows([("source", "target"), *ends])
    graph = load_graph(tmp_path)
    np.testing.assert_array_equal(graph.x[:, 0], numbers)
    (source, target), *_ = graph.edge_chunks()
    np.testing.assert_array_equal((numbers[source] * 7 + 1) % count, numbers[target])


def test_nothing_temporary_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    load_graph(folder_of(tmp_path / "good"), columns=CITY)
    with pytest.raises(GraphError):
        load_graph(folder_of(tmp_path / "bad"), columns={"id": "nobody"})
    assert list(place.iterdir()) == []


@settings(
    max_examples=choose(5, 50),
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_round_trip(data: st.DataObject, tmp_path: Path) -> None:
    """Any graph, with shuffled text for ids, is the same from CSV, from Parquet and from arrays."""
    text = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=6)
    ids = data.draw(st.lists(text, min_size=2, max_size=8, unique=True))
    count = len(ids)
    number = st.floats(-1e6, 1e6, width=32)
    node = st.integers(0, count - 1)
    x = data.draw(st.lists(st.tuples(number, number), min_size=count, max_size=count))
    y = data.draw(st.lists(st.integers(-1, 3), min_size=count, max_size=count))
    split = [
        "train",
        *data.draw(st.lists(st.sampled_from(["", "train"]), min_size=count - 1, max_size=count - 1)),
    ]
    edges = data.draw(st.lists(st.tuples(node, node), min_size=1, max_size=12))
    expected = Graph.from_arrays(
        edge_index=np.array(edges).T,
        x=np.array(x, np.float32),
        y=np.array(y),
        train_idx=[place for place, name in enumerate(split) if name],
        num_classes=4,
    )
    folder = tmp_path / "written"
    folder.mkdir(exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    nodes = [
        (name, repr(float(np.float32(f))), repr(float(np.float32(g))), "" if label < 0 else str(label), part)
        for name, (f, g), label, part in zip(ids, x, y, split, strict=True)
    ]
    _write(folder / "nodes.csv", ("id", "f", "g", "label", "split"), nodes)
    _write(folder / "edges.csv", ("source", "target"), [(ids[u], ids[w]) for u, w in edges])
    actual = load_graph(folder, num_classes=4)
    assert_same(actual, expected)
    assert actual.node_names is not None
    assert actual.node_names.tolist() == ids
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE n (id VARCHAR, f FLOAT, g FLOAT, label TINYINT, split VARCHAR)")
        connection.execute("CREATE TABLE e (source VARCHAR, target VARCHAR)")
        rows = [tuple(None if cell == "" else cell for cell in row) for row in nodes]
        connection.executemany("INSERT INTO n VALUES (?, ?, ?, ?, ?)", rows)
        connection.executemany("INSERT INTO e VALUES (?, ?)", [(ids[u], ids[w]) for u, w in edges])
        connection.execute(f"COPY n TO '{folder}/nodes.parquet'")
        connection.execute(f"COPY e TO '{folder}/edges.parquet'")
    pair = (folder / "nodes.parquet", folder / "edges.parquet")
    assert_same(load_graph(pair, num_classes=4), expected)


def test_lines_may_end_in_several_ways(tmp_path: Path) -> None:
    expected = load_graph(folder_of(tmp_path / "one"), columns=CITY)
    nodes, edges = NODES.splitlines(keepends=True), EDGES.splitlines(keepends=True)
    folder = folder_of(tmp_path / "several")
    for first in (0, 2, 4):
        for name, lines in (("nodes.csv", nodes), ("edges.csv", edges)):
            ends = [
                line.replace("\n", "\r\n") if first <= n < 4 + first else line for n, line in enumerate(lines)
            ]
            (folder / name).write_bytes("".join(ends).encode())
        assert_same(load_graph(folder, columns=CITY), expected)
    text = "".join(nodes[:4]).replace("\n", "\r\n").replace("-3e2", "old") + nodes[4]
    (folder / "nodes.csv").write_bytes(text.encode())
    with pytest.raises(GraphError, match=r"nodes\.csv line 4, column 'age': 'old' is not a number"):
        load_graph(folder, columns=CITY)


def test_lines_that_duckdb_would_read_otherwise_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = r"nodes\.csv: mixed line endings; save it with one kind"
    folder = folder_of(tmp_path)
    (folder / "nodes.csv").write_bytes(NODES.replace("\n", "\r\n", 2).replace("\nc", "\rc").encode())
    with pytest.raises(GraphError, match=expected):
        load_graph(folder, columns=CITY)
    (folder / "nodes.csv").write_bytes(NODES.replace("\n", "\r\n", 2).encode())
    original = table.Table._check_csv
    monkeypatch.setattr(table.Table, "_check_csv", lambda self: (original(self)[0] + 1, {"\n", "\r\n"}))
    with pytest.raises(GraphError, match=expected):
        load_graph(folder, columns=CITY)


def _write(path: Path, names: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, quoting=csv.QUOTE_ALL).writerows([names, *rows])


def test_a_cell_of_a_file_with_mixed_line_endings_is_named(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, "id,a,label,split\nx,1,0,train\ny,2,1,test\n", "source,target\n")
    (folder / "edges.csv").write_bytes(b"source,target\r\nx,y\nx,nobody\r\n")
    with pytest.raises(GraphError, match=r"edges\.csv line 3, column 'target': 'nobody' is not an id"):
        load_graph(folder)


@pytest.mark.parametrize(
    ("message", "kind"), [("Query interrupted", KeyboardInterrupt), ("another one", RuntimeError)]
)
def test_ctrl_c_in_a_query_is_ctrl_c(message: str, kind: type[BaseException]) -> None:
    with pytest.raises(kind), reading.open_database() as (_, folder):
        # As DuckDB reports that Python has a signal to handle.
        raise RuntimeError(message)
    assert not folder.exists()
