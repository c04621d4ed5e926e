"""Every mistake in tables is one line that names the file, the column and the row, and writes nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hushgraph.cli.app import main
from hushgraph.datasets import load_graph
from hushgraph.errors import GraphError
from two_tables import CITY, EDGES, NODES, folder_of, to_parquet


def nodes(text: str) -> Callable[[Path], Any]:
    return lambda path: folder_of(path, text)


def edges(text: str) -> Callable[[Path], Any]:
    return lambda path: folder_of(path, edges=text)


def raw(name: str, content: bytes) -> Callable[[Path], Any]:
    def make(path: Path) -> Path:
        folder_of(path)
        (path / f"{name}.csv").unlink(missing_ok=True)
        (path / name).write_bytes(content)
        return path

    return make


def parquet(nodes: str = NODES, edges: str = EDGES, select: str = "*") -> Callable[[Path], Any]:
    def make(path: Path) -> Path:
        folder_of(path, nodes, edges)
        to_parquet(path / "nodes.csv", select)
        to_parquet(path / "edges.csv")
        return path

    return make


def without(name: str) -> Callable[[Path], Any]:
    def make(path: Path) -> Path:
        (folder_of(path) / name).unlink()
        return path

    return make


IGNORED: dict[str, Any] = {"ignore": ["city"]}
N, E = r"nodes\.csv ", r"edges\.csv "
MISTAKES: list[tuple[str, Callable[[Path], Any], dict[str, Any], str]] = [
    (
        "unknown source",
        edges("source,target\na,b\nzoe,b\n"),
        IGNORED,
        E + "line 3, column 'source': 'zoe' is not an id in nodes.csv, column 'id'",
    ),
    (
        "unknown target",
        edges("source,target\na,zoe\n"),
        IGNORED,
        E + "line 2, column 'target': 'zoe' is not an id",
    ),
    (
        "unknown id in Parquet",
        parquet(edges="source,target\na,b\nc,zoe\n"),
        IGNORED,
        "edges.parquet row 2, column 'target': 'zoe' is not an id",
    ),
    (
        "ids of another type",
        parquet(nodes="id,f,label,split\n1,1,0,train\n", edges="source,target\n1.5,1.5\n"),
        {},
        "'1.5' is not an id .*ids are BIGINT there and DOUBLE here",
    ),
    ("empty end", edges("source,target\na,\n"), IGNORED, E + "line 2, column 'target': empty"),
    (
        "no id column",
        nodes(NODES.replace("id,", "Id,")),
        IGNORED,
        N + r"line 1: no column 'id'; name yours with --id \(columns.id\); did you mean 'Id'",
    ),
    (
        "no label column",
        nodes(NODES.replace("label", "lable")),
        IGNORED,
        N + r"line 1: no column 'label'; name yours with --label \(columns.label\); did you mean 'lable'",
    ),
    (
        "no source column",
        edges("from,target\na,b\n"),
        IGNORED,
        E + r"line 1: no column 'source'; name yours with --source .*; it has 'from', 'target'",
    ),
    ("no target column", edges("source,to\na,b\n"), IGNORED, E + "line 1: no column 'target'"),
    (
        "no feature column",
        nodes(NODES),
        {**IGNORED, "features": ["agee"]},
        N + "line 1: no column 'agee', given as feature; did you mean 'age'",
    ),
    (
        "no ignored column",
        nodes(NODES),
        {"ignore": ["city", "citty"]},
        N + "line 1: no column 'citty', given as ignore",
    ),
    (
        "no column in Parquet",
        parquet(),
        {**IGNORED, "label": "lab"},
        "nodes.parquet: no column 'lab', given as label; did you mean 'label'",
    ),
    (
        "NaN",
        nodes(NODES.replace("-3e2", "nan")),
        IGNORED,
        N + "line 4, column 'age': 'nan' is not a finite float32",
    ),
    (
        "infinity",
        nodes(NODES.replace("-3e2", "-inf")),
        IGNORED,
        N + "line 4, column 'age': '-inf' is not a finite",
    ),
    (
        "too large for float32",
        nodes(NODES.replace("-3e2", "1e39")),
        IGNORED,
        N + "line 4, column 'age': '1e39' is not a finite",
    ),
    (
        "NaN in Parquet",
        parquet(select="* REPLACE (CASE WHEN id = 'b' THEN 'nan'::FLOAT ELSE age END AS age)"),
        IGNORED,
        "nodes.parquet row 2, column 'age': 'nan' is not a finite",
    ),
    (
        "text in a number column",
        nodes(NODES.replace("-3e2", "old")),
        IGNORED,
        N + "line 4, column 'age': 'old' is not a number",
    ),
    (
        "empty number",
        nodes(NODES.replace("-3e2", "")),
        IGNORED,
        N + "line 4, column 'age': empty; expected a number",
    ),
    (
        "text column undeclared",
        nodes(NODES),
        {},
        N + r"line 2, column 'city': 'Oslo' is not a number; .*--categorical.*--hash.*--ignore",
    ),
    (
        "text column in Parquet",
        parquet(),
        {},
        r"nodes.parquet: column 'city' holds VARCHAR; .*--categorical.*--hash.*--ignore",
    ),
    (
        "list column in Parquet",
        parquet(select="* REPLACE ([age] AS age)"),
        IGNORED,
        r"nodes.parquet: column 'age' holds DOUBLE\[\]",
    ),
    (
        "list as id",
        parquet(select="* REPLACE ([id] AS id)"),
        IGNORED,
        r"column 'id', given as id, holds VARCHAR\[\]",
    ),
    (
        "value not listed",
        nodes(NODES),
        {"categorical": {"city": ["Oslo", "Berge"]}},
        N + r"line 3, column 'city': 'Bergen' is not among its 2 values; list it \(--categorical\), .*hash "
        r"the column \(--hash city=16\) or empty the cell; did you mean 'Berge'",
    ),
    (
        "one value listed",
        nodes(NODES),
        {"categorical": {"city": ["Oslo"]}},
        N + "line 3, column 'city': 'Bergen' is not its one value, 'Oslo'; list it",
    ),
    (
        "duplicate ids",
        nodes(NODES.replace("d,0", "b,0")),
        IGNORED,
        N + "line 5, column 'id': 'b' is the id of line 3 too",
    ),
    ("empty id", nodes(NODES.replace("c,-3e2", ",-3e2")), IGNORED, N + "line 4, column 'id': empty"),
    (
        "null id in Parquet",
        parquet(select="* REPLACE (nullif(id, 'a') AS id)"),
        IGNORED,
        "nodes.parquet row 1, column 'id': empty",
    ),
    ("empty file", nodes(""), IGNORED, r"nodes\.csv: the file is empty"),
    ("empty edge file", edges(""), IGNORED, r"edges\.csv: the file is empty"),
    ("header only", nodes(NODES.splitlines()[0] + "\n"), IGNORED, N + "line 1, column 'id': no rows"),
    (
        "header only, no end of line",
        nodes(NODES.splitlines()[0]),
        IGNORED,
        N + "line 1, column 'id': no rows",
    ),
    ("first line empty", nodes("\n" + NODES), IGNORED, r"nodes\.csv: line 1 is empty"),
    (
        "wrong delimiter",
        nodes(NODES.replace(",", ";").replace("split", "split|part")),
        IGNORED,
        r"nodes\.csv: line 1 is one column with delimiter ',', and holds ';' and '\|'; give --delimiter ';'",
    ),
    (
        "tabs where another delimiter is declared",
        edges(EDGES.replace(",", "\t")),
        IGNORED | {"delimiter": ","},
        r"edges\.csv: line 1 is one column with delimiter ',', and holds tab; leave out --delimiter",
    ),
    (
        "unknown split",
        nodes(NODES.replace("val", "later")),
        IGNORED,
        N + r"line 3, column 'split': 'later'; expected train, val, test \(or 0, 1, 2\) or an empty cell",
    ),
    (
        "two splits in a cell",
        nodes(NODES.replace("val", "train test")),
        IGNORED,
        N + "line 3, column 'split': 'train test'",
    ),
    (
        "no training rows",
        nodes(NODES.replace("train", "")),
        IGNORED,
        N + "line 1, column 'split': no row holds train",
    ),
    (
        "no split column",
        nodes(NODES.replace("split", "part")),
        {"ignore": ["city", "part"]},
        r"nodes\.csv: no column 'split'",
    ),
    (
        "split column named wrong",
        nodes(NODES),
        {**IGNORED, "split": "parts"},
        N + "line 1: no column 'parts', given as split",
    ),
    (
        "label outside classes",
        nodes(NODES),
        {**IGNORED, "classes": ["0", "2"]},
        N + r"line 3, column 'label': '1' is not among the 2 classes; name all classes in order \(--classes",
    ),
    (
        "label outside the one class",
        nodes(NODES.replace(",0,train", ",north,train").replace(",1,", ",south,")),
        {**IGNORED, "classes": ["north"]},
        N + r"line 3, column 'label': 'south' is not the one class, 'north'; .* or empty the cell$",
    ),
    (
        "mixed line endings and a long row",
        raw("nodes.csv", NODES.replace("\n", "\r\n").encode() + b"e,1,0,train,Oslo,more\n"),
        CITY,
        N + "line 6: 6 cells, .*expected 5",
    ),
    (
        "mixed line endings and an unfinished quote",
        raw("nodes.csv", NODES.replace("\n", "\r\n").encode() + b'e,1,0,train,"Oslo\n'),
        CITY,
        N + "line 6: not CSV",
    ),
    (
        "text label",
        nodes(NODES.replace(",0,train", ",red,train")),
        IGNORED,
        N + r"line 2, column 'label': 'red' is not a class number; .*--classes",
    ),
    (
        "half a label",
        nodes(NODES.replace(",0,train", ",0.5,train")),
        IGNORED,
        N + "line 2, column 'label': '0.5' is not a class number",
    ),
    (
        "negative label",
        nodes(NODES.replace(",0,train", ",-1,train")),
        IGNORED,
        N + "line 2, column 'label': '-1'; expected 0 or more; leave the cell empty",
    ),
    (
        "label beyond any number of classes",
        nodes(NODES.replace(",0,train", ",99999,train")),
        IGNORED,
        "means more classes than nodes",
    ),
    (
        "short row",
        nodes(NODES + "e,1,0\n"),
        IGNORED,
        N + "line 6: 3 cells, the last under column 'label'; expected 5, .*; write the cells that",
    ),
    ("long row", edges(EDGES + "a,b,c\n"), IGNORED, E + "line 7: 3 cells, .*expected 2"),
    ("quote without end", nodes(NODES + 'e,"1,0,train,x\n'), IGNORED, N + "line 6: not CSV"),
    (
        "not UTF-8",
        raw("nodes.csv", NODES.replace("Bergen", "Troms\xf8").encode("latin-1")),
        CITY,
        N + "line 3, column 'city': not UTF-8",
    ),
    (
        "header not UTF-8",
        raw("nodes.csv", NODES.replace("city", "by\xf8").encode("latin-1")),
        CITY,
        r"nodes\.csv: line 1 is not UTF-8",
    ),
    (
        "two columns of one name",
        nodes(NODES.replace("city", "age")),
        {},
        r"nodes\.csv: line 1: two columns are called 'age'",
    ),
    ("column without a name", nodes(",".join(["", NODES])), {}, r"nodes\.csv: line 1: column 1 has no name"),
    (
        "no features",
        nodes("id,label,split\na,0,train\n"),
        {},
        N + "line 1, column 'id': no column is a feature",
    ),
    ("missing nodes", without("nodes.csv"), IGNORED, "no nodes.parquet, nodes.csv, nodes.tsv in it"),
    ("missing edges", without("edges.csv"), IGNORED, "no edges.parquet, edges.csv, edges.tsv in it"),
    (
        "two tables of nodes",
        raw("nodes.parquet", NODES.encode()),
        IGNORED,
        "both nodes.parquet and nodes.csv",
    ),
    (
        "Parquet called CSV",
        raw("nodes.csv", b"PAR1" + bytes(20) + b"PAR1"),
        IGNORED,
        r"nodes\.csv: this is a Parquet file",
    ),
    (
        "column with two purposes",
        nodes(NODES),
        {**IGNORED, "hashed": {"city": 4}},
        "column 'city' is given as ignore and as hashed",
    ),
    (
        "source is target",
        nodes(NODES),
        {**IGNORED, "source": "target"},
        "source and target are both 'target'",
    ),
    ("unknown key", nodes(NODES), {**IGNORED, "lable": "x"}, "unknown key 'lable'; did you mean 'label'"),
]


@pytest.mark.parametrize(
    ("make", "columns", "wanted"), [case[1:] for case in MISTAKES], ids=[case[0] for case in MISTAKES]
)
def test_a_mistake_is_one_line(
    make: Callable[[Path], Any], columns: dict[str, Any], wanted: str, tmp_path: Path
) -> None:
    data = make(tmp_path / "tables")
    with pytest.raises(Exception, match=wanted) as caught:
        load_graph(data, columns=columns)
    message = str(caught.value)
    assert getattr(caught.value, "exit_code", None) == 2
    assert "\n" not in message
    assert len(message) < 400


def test_the_command_says_one_line_and_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for number, (name, make, columns, _) in enumerate(MISTAKES):
        # Training draws the split that is missing.
        if set(columns) - {"ignore"} or name == "no split column":
            continue
        data = make(tmp_path / f"tables{number}")
        flags = ["--ignore", ",".join(columns["ignore"])] if columns else []
        code = main(["train", str(data), "--epsilon", "1", "--steps", "1", *flags])
        out, err = capsys.readouterr()
        assert (code, out) == (2, ""), name
        assert err.startswith("hushgraph: "), name
        assert err.count("\n") == 1, name
        assert not (tmp_path / "runs").exists(), name


def test_files_that_are_not_what_they_are_called(tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    edges = folder / "edges.csv"
    for content, wanted in (
        (b"", r"x\.parquet: the file is empty"),
        (b"id,age\n", r"x\.parquet: not a Parquet file"),
        (b"PAR1" + bytes(40) + b"PAR1", r"x\.parquet: damaged Parquet"),
        (b"PA", r"x\.parquet: not a Parquet file"),
    ):
        (tmp_path / "x.parquet").write_bytes(content)
        with pytest.raises(GraphError, match=wanted):
            load_graph((tmp_path / "x.parquet", edges))
    (tmp_path / "x.dat").write_text(NODES)
    for data, wanted in (
        ((tmp_path / "none.csv", edges), r"none\.csv: no such file"),
        ((folder / "nodes.csv", tmp_path / "none.parquet"), r"none\.parquet: no such file"),
        ((tmp_path, edges), r"nodes\.csv line 2, column 'city'"),
        ((tmp_path / "x.dat", edges), r"x\.dat: unknown kind of table for nodes"),
        (folder / "nodes.csv", r"nodes\.csv: one table; .*--edges"),
        (tmp_path / "none.csv", r"none\.csv: no such file"),
        (tmp_path / "none.toml", r"none\.toml: no such file"),
    ):
        with pytest.raises(GraphError, match=wanted):
            load_graph(data)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("nodes = [", "not TOML"),
        ("node = 'x'", "unknown key 'node'; did you mean 'nodes'"),
        ("nodes = 3", "nodes=3; expected the name of a file"),
        ("columns = 'id'", r"columns='id'; expected a table"),
        ("[columns]\nlabels = 'x'", "unknown key 'labels'; did you mean 'label'"),
        ("[columns]\nfeatures = 'x'", "features='x': expected a list"),
        ("[columns.hashed]\ncity = 1", r"hashed city=1: expected 2\.\.1048576 buckets"),
        ("nodes = 'none.csv'", r"none\.csv: no such file"),
    ],
)
def test_mistakes_in_the_toml_file(tmp_path: Path, text: str, wanted: str) -> None:
    folder_of(tmp_path)
    (tmp_path / "graph.toml").write_text(text)
    with pytest.raises(Exception, match=wanted) as caught:
        load_graph(tmp_path)
    assert getattr(caught.value, "exit_code", None) == 2
    assert "\n" not in str(caught.value)
