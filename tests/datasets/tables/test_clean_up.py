"""Imperfect cells and edges: refused by default, and treated by declared constants where asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest

from hushgraph.datasets import load_graph
from hushgraph.errors import InputError
from hushgraph.graph.columns import Columns, looks_like_split, merge_columns
from two_tables import folder_of

NODES = """\
id,age,height,city,label,part
a,1.5,,Oslo,0,0
b,NA,2,Paris,1,1
c,,nan,,,Train
d,4,  ,Bergen,1,2
"""
EDGES = "source,target,weight\na,b,1\nb,a,2\na,b,3\nc,c,1\nz,a,1\na,,1\nd,c,1\n"
CLEAN: dict[str, Any] = {
    "split": "part",
    "missing": ["NA"],
    "fill": {"*": -1, "age": 7.5},
    "categorical": {"city": ["Bergen", "Oslo"]},
    "unknown_category": "zeros",
    "unknown_ids": "drop",
}


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    return folder_of(tmp_path / "people", NODES, EDGES)


def test_every_rule_on_a_table_checked_by_eye(tables: Path) -> None:
    graph = load_graph(tables, columns=CLEAN)
    # age, height, city=Bergen, city=Oslo
    expected = [[1.5, -1, 0, 1], [7.5, 2, 0, 0], [7.5, -1, 0, 0], [4, -1, 1, 0]]
    np.testing.assert_array_equal(graph.x, np.array(expected, np.float32))
    assert graph.y.tolist() == [0, 1, -1, 1]
    assert [each.tolist() for each in (graph.train_idx, graph.val_idx, graph.test_idx)] == [[0, 2], [1], [3]]
    target = np.repeat(np.arange(4), np.diff(graph.indptr))
    assert sorted(zip(graph.indices.tolist(), target.tolist(), strict=True)) == [(0, 1), (1, 0), (3, 2)]
    assert graph.clean_up == {
        "numbers filled": 5,
        "categories not listed": 1,
        "edges to unknown ids dropped": 2,
    }
    assert (graph.duplicates_removed, graph.self_loops_removed) == (1, 1)


def test_other_and_indicators_add_features(tables: Path) -> None:
    columns = CLEAN | {"unknown_category": "other", "indicators": ["height", "age"]}
    graph = load_graph(tables, columns=columns)
    assert graph.columns is not None
    assert graph.num_features == graph.columns.num_features == 7
    # city=Bergen, city=Oslo, city=other, then whether height and age were filled.
    expected = [[0, 1, 0, 1, 0], [0, 0, 1, 0, 1], [0, 0, 0, 1, 1], [1, 0, 0, 1, 0]]
    np.testing.assert_array_equal(graph.x[:, 2:], np.array(expected, np.float32))


def test_parquet_is_treated_as_csv_is(tables: Path) -> None:
    with duckdb.connect() as connection:
        for name in ("nodes", "edges"):
            connection.execute(
                f"COPY (SELECT * FROM read_csv('{tables / name}.csv', all_varchar = true)) "
                f"TO '{tables / name}.parquet'"
            )
    pair = (tables / "nodes.parquet", tables / "edges.parquet")
    # Text is no column of numbers in Parquet, where columns have types.
    columns = CLEAN | {"fill": {}, "ignore": ["age", "height"]}
    from_csv = load_graph((tables / "nodes.csv", tables / "edges.csv"), columns=columns)
    np.testing.assert_array_equal(load_graph(pair, columns=columns).x, from_csv.x)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"missing": []}, r"line 3, column 'age': 'NA' is not a number; .*--missing 'NA' --fill age=0"),
        ({"fill": {"height": 0}}, r"line 3, column 'age': empty; .*--fill age=0.*--ignore age"),
        ({"fill": {"agee": 0}}, r"no column 'agee', given as fill; did you mean 'age'\?"),
        ({"fill": {"label": 0}}, "'label': it is given as fill, but is not a column of numbers"),
        ({"unknown_category": "refuse"}, "'Paris' is not among its 2 values.*--unknown-category zeros"),
        (
            {"unknown_ids": "refuse"},
            r"'z' is not an id in .*add the node, or drop such edges \(--unknown-ids",
        ),
        ({"split": None}, "'part': its name is that of a split.*--split-column part.*--ignore part"),
    ],
)
def test_without_a_rule_the_cell_is_refused(changes: dict[str, Any], words: str, tables: Path) -> None:
    columns = {name: value for name, value in (CLEAN | changes).items() if value is not None}
    # The order of empty cells in `age` is that of the rows: line 3 holds NA, which `missing` makes empty.
    with pytest.raises(InputError, match=words):
        load_graph(tables, columns=columns)


def test_an_infinite_number_is_not_missing(tables: Path) -> None:
    (tables / "nodes.csv").write_text(NODES.replace("1.5", "inf"))
    with pytest.raises(InputError, match="'inf' is not a finite float32"):
        load_graph(tables, columns=CLEAN)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"fill": "lots"}, "fill='lots': expected a finite number"),
        ({"fill": {"age": float("nan")}}, "fill age=nan: expected a finite number"),
        ({"fill": True}, "fill=True: expected a finite number"),
        ({"indicators": ["age"]}, "indicators holds 'age', which has no constant; give one, as --fill age=0"),
        ({"unknown_ids": "keep"}, "unknown_ids='keep': expected one of 'refuse', 'drop'"),
        ({"unknown_category": "zero"}, "unknown_category='zero': expected one of 'refuse', 'zeros', 'other'"),
        ({"missing": "NA"}, "missing='NA': expected a list"),
        ({"missing": ["x"], "classes": ["x", "y"]}, "missing holds 'x', and classes lists it"),
        ({"missing": ["x"], "categorical": {"c": ["x"]}}, "missing holds 'x', and categorical c lists it"),
    ],
)
def test_rules_check_themselves(given: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        Columns.of(given)


def test_a_run_keeps_the_rules() -> None:
    columns = Columns.of(CLEAN | {"indicators": ["age"]}).resolve_names(["id", "age", "height", "label"])
    assert columns.constants == {"age": 7.5, "height": -1.0}
    assert Columns.from_json(columns.to_json()) == columns


def test_a_flag_changes_one_constant_of_a_file() -> None:
    merged = Columns.of(merge_columns({"fill": 0}, {"fill": {"age": 40.0}}))
    assert merged.constants == {"*": 0.0, "age": 40.0}


def test_the_rules_in_words() -> None:
    text = " ".join(Columns.of(CLEAN).describe_clean_up())
    for words in ("'NA'", "filled with 7.5 in 'age'", "filled with -1 in", "becomes all zeros", "not a node"):
        assert words in text
    assert Columns().describe_clean_up() == ["Self-loops and repeats of an edge are dropped."]


@pytest.mark.parametrize("name", ["fold", "Split", "data_split", "cv-fold", "set", "partition"])
def test_names_of_splits(name: str) -> None:
    assert looks_like_split(name)


@pytest.mark.parametrize("name", ["settlement", "party", "unfold", "height", "asset"])
def test_names_of_other_things(name: str) -> None:
    assert not looks_like_split(name)
