"""Columns: what they accept, how flags go before a file, and that JSON keeps them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from hushgraph._text import suggest
from hushgraph.errors import InputError
from hushgraph.graph.columns import Columns, merge_columns


def test_json_keeps_everything_and_order_does_not_matter() -> None:
    columns = Columns(
        id="person",
        features=["z", "a"],
        categorical={"b": ["2", "1"], "a2": [7, 8]},  # type: ignore[list-item]
        hashed={"y": 4, "x": 2},
        classes=["red", "blue"],
        delimiter="tab",
    )
    assert Columns.from_json(columns.to_json()) == columns
    # A file that sorts its keys must not move a feature.
    assert list(columns.categorical) == ["a2", "b"]
    assert columns.categorical["b"] == ("2", "1")
    assert columns.categorical["a2"] == ("7", "8")
    assert list(columns.hashed) == ["x", "y"]
    assert columns.features == ("z", "a")
    assert columns.delimiter == "\t"
    assert columns.num_features == 2 + 4 + 6
    assert json.loads(columns.to_json())["classes"] == ["red", "blue"]


def test_features_are_what_is_left_over() -> None:
    there = ["f", "label", "id", "split", "city", "g", "note"]
    named = Columns(ignore=["note"], hashed={"city": 4}).resolve_names(there)
    assert (named.features, named.split) == (("f", "g"), "split")
    assert Columns(features=["g"]).resolve_names(there).features == ("g",)
    assert Columns(split="part").resolve_names(["id", "split"]).split == "part"
    assert Columns().resolve_names(["id", "label", "f"]).split is None
    assert named.resolve_names(["other"]) == named


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        ({"id": ""}, "id='': expected the name of a column"),
        ({"label": 3}, "label=3: expected the name of a column"),
        ({"features": "age"}, "features='age': expected a list"),
        ({"features": [1.5]}, "features holds 1.5; expected names"),
        ({"features": ["a", "a"]}, "features holds 'a' more than once"),
        ({"classes": []}, "classes is empty"),
        ({"classes": ["a", ""]}, "classes holds ''"),
        ({"categorical": ["city"]}, r"categorical=\['city'\]: expected one entry per column"),
        ({"categorical": {"city": "Oslo"}}, "categorical city='Oslo': expected a list"),
        ({"categorical": {"city": []}}, "categorical city is empty"),
        ({"hashed": {"city": 1}}, r"hashed city=1: expected 2\.\.1048576"),
        ({"hashed": {"city": True}}, "hashed city=True"),
        ({"hashed": {"city": 2**20 + 1}}, "hashed city=1048577"),
        ({"delimiter": ";;"}, "delimiter=';;': expected one character"),
        ({"delimiter": '"'}, "expected one character"),
        ({"source": "x", "target": "x"}, "source and target are both 'x'"),
        ({"id": "x", "label": "x"}, "column 'x' is given as id and as label"),
        ({"features": ["x"], "ignore": ["x"]}, "column 'x' is given as features and as ignore"),
        ({"feature": ["x"]}, "unknown key 'feature'; did you mean 'features'"),
        ({"qqqq": 1}, "unknown key 'qqqq'; expected id, label"),
    ],
)
def test_what_is_refused(values: dict[str, Any], wanted: str) -> None:
    with pytest.raises(InputError, match=wanted):
        Columns.of(values)


def test_flags_go_before_the_file() -> None:
    file = {
        "id": "person",
        "features": ["age", "posts"],
        "ignore": ["note"],
        "categorical": {"city": ["a"], "job": ["b"]},
        "hashed": {"school": 8},
    }
    flags = {"id": "key", "hashed": {"city": 4, "note": 4}, "categorical": {"posts": ["1"]}}
    assert merge_columns(file, flags) == {
        "id": "key",
        "features": ["age"],
        "ignore": [],
        "categorical": {"job": ["b"], "posts": ["1"]},
        "hashed": {"school": 8, "city": 4, "note": 4},
    }
    # Two flags that contradict each other are not silently settled.
    with pytest.raises(InputError, match="column 'a' is given as ignore and as hashed"):
        Columns.of(merge_columns({}, {"ignore": ["a"], "hashed": {"a": 2}}))


def test_the_format_of_dates_goes_with_their_column() -> None:
    file = {"edge_date": "day", "since": "2024-01-01", "dates": {"born": "2000-01-01"}}
    file |= {"date_format": {"day": "%d.%m.%Y", "born": "%d/%m/%Y"}}
    columns = Columns.of(file)
    assert "by 'day', written as %d.%m.%Y" in " ".join(columns.describe_clean_up())
    assert columns.without_records() == Columns(
        dates={"born": "2000-01-01"}, date_format={"born": "%d/%m/%Y"}
    )
    # A flag that names another column takes the format of the first one with it.
    assert Columns.of(merge_columns(file, {"edge_date": "hour"})).date_format == {"born": "%d/%m/%Y"}
    with pytest.raises(InputError, match="date_format holds 'day', which is no date"):
        Columns(date_format={"day": "%d.%m.%Y"})


@pytest.mark.parametrize(
    ("file", "flags", "merged"),
    [
        (",", {"sum": "."}, {"*": ",", "sum": "."}),
        ({"sum": "."}, ",", {"*": ",", "sum": "."}),
        (",", ".", {"*": "."}),
    ],
)
def test_a_rule_of_one_column_is_added_to_that_of_all(file: Any, flags: Any, merged: Any) -> None:
    assert merge_columns({"decimal": file}, {"decimal": flags}) == {"decimal": merged}


def test_the_nearest_name() -> None:
    assert suggest("lable", ["id", "label"]) == "; did you mean 'label'?"
    assert suggest("LABEL", ["id", "Label"]) == "; did you mean 'Label'?"
    assert suggest("zzz", ["id", "label"]) == ""
