"""Tables in several files: names, patterns, folders and lists, each read as one table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest

from hushgraph.datasets import load_graph
from hushgraph.datasets.tables.new_rows import new_rows_from_tables
from hushgraph.errors import GraphError

HEAD, ENDS = ["id", "age", "label", "split"], ["source", "target", "day"]
PEOPLE = [[f"p{n}", str(20 + n), str(n % 2), ("train", "val", "test")[n % 3]] for n in range(12)]
LINKS = [[f"p{n}", f"p{(n * 5 + 1) % 12}", "1"] for n in range(12)]


def write(path: Path, head: list[str], rows: list[list[str]], delimiter: str = ",") -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join(delimiter.join(row) for row in [head, *rows]) + "\n")
    return path


@pytest.fixture
def parts(tmp_path: Path) -> Path:
    """Two files of people and three of edges; orders of columns, delimiters and endings differ."""
    write(tmp_path / "people_1.csv", HEAD, PEOPLE[:5])
    write(tmp_path / "people_2.csv", HEAD[::-1], [row[::-1] for row in PEOPLE[5:]], ";")
    write(tmp_path / "tx" / "a.csv", ENDS, LINKS[:4], "|")
    write(tmp_path / "tx" / "b.TSV", ENDS[::-1], [row[::-1] for row in LINKS[4:7]], "\t")
    write(tmp_path / "tx" / "c.txt", ENDS, LINKS[7:], ";")
    (tmp_path / "tx" / "notes.md").write_text("not a table")
    return tmp_path


@pytest.fixture
def whole(tmp_path: Path) -> Any:
    """The graph of the same rows in one file each."""
    folder = tmp_path / "whole"
    write(folder / "nodes.csv", HEAD, PEOPLE)
    write(folder / "edges.csv", ENDS, LINKS)
    return load_graph(folder)


def assert_same(one: Any, other: Any) -> None:
    for name in ("x", "y", "indptr", "indices", "train_idx", "val_idx", "test_idx"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    assert list(one.node_names) == list(other.node_names)


def test_however_the_files_are_named(parts: Path, whole: Any) -> None:
    nodes = [parts / "people_1.csv", parts / "people_2.csv"]
    edges = [parts / "tx" / name for name in ("a.csv", "b.TSV", "c.txt")]
    for data in (
        (parts / "people_*.csv", parts / "tx"),
        (str(parts / "people_?.csv"), str(parts / "tx" / "*.[ctT][sxS]*")),
        (nodes, edges),
        (tuple(map(str, nodes)), [parts / "tx" / "a.csv", parts / "tx" / "[bc].*"]),
    ):
        assert_same(load_graph(data), whole)


def test_a_toml_file_names_several(parts: Path, whole: Any) -> None:
    (parts / "tx" / "graph.toml").write_text(
        'nodes = ["../people_1.csv", "../people_2.csv"]\nedges = "[abc].*"\n[columns]\nid = "id"\n'
    )
    assert_same(load_graph(parts / "tx"), whole)
    assert_same(load_graph((parts / "tx" / "graph.toml", parts / "tx" / "?.[cCtT]*")), whole)


def test_a_folder_of_nodes_with_other_names(parts: Path, whole: Any) -> None:
    (parts / "tx").rename(parts.parent / f"{parts.name}-tx")
    data = (parts, parts.parent / f"{parts.name}-tx")
    assert_same(load_graph(data), whole)


def test_parquet_parts(parts: Path, whole: Any, tmp_path: Path) -> None:
    with duckdb.connect() as connection:
        for number, kind in enumerate(("INTEGER", "BIGINT")):
            rows = f"SELECT * REPLACE (CAST(age AS {kind}) AS age, CAST(label AS {kind}) AS label) FROM "
            source = f"read_csv('{parts / f'people_{number + 1}.csv'}', all_varchar = true)"
            connection.execute(f"COPY ({rows} {source}) TO '{tmp_path / f'part{number}.parquet'}'")
    assert_same(load_graph((tmp_path / "part*.parquet", parts / "tx")), whole)
    with duckdb.connect() as connection:
        connection.execute(
            f"COPY (SELECT id, 1.5::DOUBLE AS age, label, split FROM '{tmp_path}/part0.parquet') "
            f"TO '{tmp_path}/part2.parquet'"
        )
    with pytest.raises(
        GraphError, match=r"'age' holds DOUBLE, and INTEGER in .*part0.*store one type in all"
    ):
        load_graph((tmp_path / "part*.parquet", parts / "tx"))
    with pytest.raises(GraphError, match="Parquet and CSV in one table"):
        load_graph(([parts / "people_1.csv", tmp_path / "part1.parquet"], parts / "tx"))


def test_a_name_is_not_a_pattern_where_the_file_exists(tmp_path: Path) -> None:
    write(tmp_path / "nodes[1].csv", HEAD, PEOPLE)
    write(tmp_path / "nodes1.csv", HEAD, PEOPLE[:3])
    write(tmp_path / "edges.csv", ENDS, LINKS)
    assert load_graph((tmp_path / "nodes[1].csv", tmp_path / "edges.csv")).num_nodes == 12


def test_messages_name_the_file_and_the_line_in_it(parts: Path) -> None:
    text = (parts / "people_2.csv").read_text()
    for old, new, words in (
        (";27;", ";x27;", r"people_2\.csv line 4, column 'age': 'x27' is not a number"),
        ("p8", "p2", r"people_2\.csv line 5, column 'id': 'p2' is the id of people_1\.csv line 4 too"),
    ):
        (parts / "people_2.csv").write_text(text.replace(old, new))
        with pytest.raises(GraphError, match=words):
            load_graph((parts / "people_*.csv", parts / "tx"))
    (parts / "people_2.csv").write_text(text)
    edges = (parts / "tx" / "c.txt").read_text()
    (parts / "tx" / "c.txt").write_text(edges.replace("p8;", "q8;"))
    with pytest.raises(
        GraphError, match=r"c\.txt line 3, column 'source': 'q8' is not an id in people_1.csv and 1"
    ):
        load_graph((parts / "people_*.csv", parts / "tx"))
    (parts / "tx" / "c.txt").write_text(edges + "p1;p2;1;4\n")
    with pytest.raises(GraphError, match=r"c\.txt line 7: 4 cells, the last under column 'day'; expected 3"):
        load_graph((parts / "people_*.csv", parts / "tx"))


def test_mixed_line_ends_in_one_of_the_files(parts: Path, whole: Any) -> None:
    text = (parts / "tx" / "a.csv").read_text().replace("\n", "\r\n", 2)
    (parts / "tx" / "a.csv").write_bytes(text.encode())
    assert_same(load_graph((parts / "people_*.csv", parts / "tx")), whole)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (("people_*.csv", "ty/*.csv"), "no file matches this pattern, given for edges"),
        (("peple_1.csv", "tx"), "no such file; did you mean 'people_1.csv'?"),
        (("people_*.csv", "tx/d.csv"), r"no such file; did you mean '[abc]\..*'?"),
        (("people_*.csv", "empty"), "no table in this folder, given for edges; expected files that end in"),
        (
            (["people_1.csv", "people_?.csv"], "tx"),
            "people_1.csv: given twice for nodes; give each file once",
        ),
        (("tx", "people_1.csv"), "a.csv: no column 'split'"),
        (
            ("people_*.csv", ["tx", "odd.csv"]),
            "odd.csv: no column 'target', which .*a.csv has, and has 'tarjet'",
        ),
        (("people_*.csv", ["tx", "odd.csv"]), "did you mean 'tarjet'?"),
        (
            ("people_*.csv", ["tx", "more.csv"]),
            "a.csv: no column 'z', which .*more.csv has; name the columns",
        ),
    ],
)
def test_mistakes(data: Any, words: str, parts: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(parts)
    Path("empty").mkdir()
    write(Path("odd.csv"), ["source", "tarjet", "day"], LINKS[:1])
    write(Path("more.csv"), [*ENDS, "z"], [[*LINKS[0], "1"]])
    with pytest.raises(GraphError, match=words.replace("?", r"\?")):
        load_graph(data)


def test_a_folder_without_the_usual_names_says_what_it_has(parts: Path) -> None:
    with pytest.raises(
        GraphError, match=r"no nodes\.parquet.*it has 'people_1.csv', 'people_2.csv': give the"
    ):
        load_graph(parts)


def test_a_header_decides_the_delimiter_and_lines_do_not(tmp_path: Path) -> None:
    """Rows full of other delimiters are read by the header all the same."""
    write(tmp_path / "nodes.csv", HEAD, [["a;b|c", "1", "0", "train"], ["d", "2", "1", "test"]])
    write(tmp_path / "edges.csv", ["source", "target"], [["d", "a,b"], ["d,d", "x"]], ";")
    graph = load_graph(tmp_path, columns={"unknown_ids": "drop"})
    assert list(graph.node_names) == ["a;b|c", "d"]
    assert graph.num_edges == 0
    (tmp_path / "nodes.csv").write_text('"id";"age";"label";"split"\na;1;0;train\n')
    assert load_graph(tmp_path, columns={"unknown_ids": "drop"}).num_nodes == 1
    for names in (["id;age|label", "x"], ["id|a;b"]):
        write(tmp_path / "nodes.csv", names, [["1"] * len(names)])
        with pytest.raises(GraphError, match=r"no column 'split'|holds ';' and '\|'; give --delimiter ';'"):
            load_graph(tmp_path)


def test_new_nodes_in_several_files(parts: Path) -> None:
    from hushgraph.graph.columns import Columns

    columns = Columns(features=["age"])
    data = (parts / "people_*.csv", parts / "tx")
    with new_rows_from_tables(data, columns=columns, listed_by="source") as rows:
        assert list(np.asarray(rows.names)) == [row[0] for row in PEOPLE]
        assert rows.x[:, 0].tolist() == [float(row[1]) for row in PEOPLE]
        assert len(rows.places) == sum(row[0] != row[1] for row in LINKS)
