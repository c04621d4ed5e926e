"""Cells as people write them: each rule against a reading by hand, and refused where it does not hold."""

from __future__ import annotations

import math
from datetime import datetime
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest

from hushgraph.datasets import load_graph
from hushgraph.datasets.tables.cells import number_sql
from hushgraph.errors import GraphError, InputError
from hushgraph.graph.columns import Columns, merge_columns

EDGES = "source,target\na,b\n"


def write(folder: Path, cells: list[str], *, delimiter: str = ";") -> Path:
    """Two tables with one feature `x`, which holds these cells."""
    folder.mkdir()
    lines = [f"{chr(97 + n)}{delimiter}{cell}{delimiter}{n % 2}" for n, cell in enumerate(cells)]
    head = delimiter.join(("id", "x", "label"))
    (folder / "nodes.csv").write_text("\n".join([head, *lines]) + "\n", encoding="utf-8")
    (folder / "edges.csv").write_text(EDGES)
    return folder


def read(folder: Path, cells: list[str], **columns: Any) -> list[float]:
    graph = load_graph(write(folder, cells), columns=columns, split="1/0/0")
    return [float(value) for value in np.asarray(graph.x)[:, 0]]


@pytest.mark.parametrize(
    ("cells", "columns", "wanted"),
    [
        (["1,5", "-2,25", "3"], {"decimal": ","}, [1.5, -2.25, 3]),
        (["1,5", "3", "2e3"], {"decimal": {"x": ","}}, [1.5, 3, 2000]),
        (["1.234,5", "12.345.678", "7"], {"decimal": ",", "thousands": "."}, [1234.5, 12345678, 7]),
        (["1,234.5", "12"], {"thousands": ","}, [1234.5, 12]),
        (["1 234", "12"], {"thousands": " "}, [1234, 12]),
        (["1\u202f234,5", "12"], {"thousands": "\u202f", "decimal": ","}, [1234.5, 12]),
        (["1'234", "12"], {"thousands": "'"}, [1234, 12]),
        (["12%", "0.5 %", "0.07"], {"percent": ["x"]}, [0.12, 0.005, 0.07]),
        (["12,5%", "3%"], {"percent": ["*"], "decimal": ","}, [0.125, 0.03]),
        (["true", "No", "YES", "0"], {"booleans": ["x"]}, [1, 0, 1, 0]),
        (["2000-01-11", "1999-12-31", "2000-01-01T12:00"], {"dates": {"x": "2000-01-01"}}, [10, -1, 0.5]),
        (["11.01.2000", "1.2.2000"], {"dates": {"x": "2000-01-01"}, "date_format": "%d.%m.%Y"}, [10, 31]),
        (["NA", "2000-01-02"], {"dates": {"x": "2000-01-01"}, "missing": ["NA"], "fill": 7}, [7, 1]),
        (["", "1,5"], {"decimal": ",", "fill": {"x": 2}}, [2, 1.5]),
    ],
)
def test_a_rule_reads_what_a_person_reads(
    cells: list[str], columns: dict[str, Any], wanted: list[float], tmp_path: Path
) -> None:
    assert read(tmp_path / "t", cells, **columns) == pytest.approx(wanted, rel=1e-6)


@pytest.mark.parametrize(
    ("cell", "columns", "words"),
    [
        ("1.5", {"decimal": ","}, "'1.5' is not a number; a number with a point is read with --decimal x=."),
        ("1.2", {"decimal": ",", "thousands": "."}, "'1.2' is not a number"),
        ("12.34.567", {"decimal": ",", "thousands": "."}, "'12.34.567' is not a number"),
        ("1,5", {}, "'1,5' is not a number; decimal commas are read with --decimal ,"),
        ("1.234,5", {}, "such numbers are read with --decimal , --thousands ."),
        ("1,234,567", {}, "such numbers are read with --thousands ,"),
        ("1 234", {}, "such numbers are read with --thousands ' '"),
        ("12%", {}, "percentages are read with --percent x"),
        ("yes", {}, "booleans are read with --boolean x"),
        ("2020-01-31", {}, "dates are read with --date x=2000-01-01"),
        ("31.01.2020", {}, "--date x=2000-01-01 --date-format x=%d.%m.%Y"),
        ("31.01.2020", {"dates": {"x": "2000-01-01"}}, "not year-month-day; correct it, or say how"),
        ("2020-01-31", {"dates": {"x": "2000-01-01"}, "date_format": "%d.%m.%Y"}, "is not %d.%m.%Y"),
        ("2020-02-30", {"dates": {"x": "2000-01-01"}}, "'2020-02-30' is not year-month-day"),
        ("epoch", {"dates": {"x": "2000-01-01"}}, "'epoch' is not year-month-day"),
        ("maybe", {"booleans": ["x"]}, "'maybe' is not true, false, yes, no, 1 or 0"),
        ("1e5%%", {"percent": ["x"]}, "is not a number"),
        ("", {"dates": {"x": "2000-01-01"}}, "empty; expected a number; fill empty cells"),
    ],
)
def test_a_cell_that_breaks_the_rule_is_refused_with_its_place(
    cell: str, columns: dict[str, Any], words: str, tmp_path: Path
) -> None:
    folder = write(tmp_path / "t", ["2000-01-01" if columns.get("dates") else "1", cell])
    if columns.get("date_format"):
        folder = write(tmp_path / "u", ["01.01.2000", cell])
    with pytest.raises(GraphError) as caught:
        load_graph(folder, columns=columns, split="1/0/0")
    message = str(caught.value)
    assert "nodes.csv line 3, column 'x'" in message
    assert words in message
    assert "\n" not in message


def test_the_remedy_of_a_message_reads_the_cell(tmp_path: Path) -> None:
    remedies: dict[str, dict[str, Any]] = {
        "1,5": {"decimal": ","},
        "1.234,5": {"decimal": ",", "thousands": "."},
        "12%": {"percent": ["x"]},
        "yes": {"booleans": ["x"]},
        "2020-01-31": {"dates": {"x": "2000-01-01"}},
        "31.01.2020": {"dates": {"x": "2000-01-01"}, "date_format": {"x": "%d.%m.%Y"}},
    }
    for number, (cell, columns) in enumerate(remedies.items()):
        assert math.isfinite(read(tmp_path / str(number), [cell, cell], **columns)[0])


@pytest.mark.parametrize("decimal", [".", ","])
@pytest.mark.parametrize("thousands", [None, " ", "'", "."])
def test_numbers_that_were_formatted_are_read_back(decimal: str, thousands: str | None) -> None:
    """Against Python's formatting of random numbers."""
    if decimal == thousands:
        return
    rng = np.random.default_rng(1)
    numbers = [round(float(value), 3) for value in rng.normal(scale=10.0 ** rng.integers(-2, 7, 200))]
    texts = [f"{value:,.3f}".replace(",", "G").replace(".", "D") for value in numbers]
    texts = [text.replace("G", thousands or "").replace("D", decimal) for text in texts]
    sql = number_sql("v", decimal=decimal, thousands=thousands)
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE t (n INTEGER, v VARCHAR)")
        connection.executemany("INSERT INTO t VALUES (?, ?)", list(enumerate(texts)))
        found = [value for (value,) in connection.execute(f"SELECT {sql} FROM t ORDER BY n").fetchall()]
    assert found == pytest.approx(numbers)


def test_cycles_are_sine_and_cosine_of_parts_of_a_date(tmp_path: Path) -> None:
    cells = ["2024-02-29 06:00:00", "2023-12-31 18:30:00", "NA"]
    columns = {
        "dates": {"x": "2024-01-01"},
        "cycles": {"x": ["weekday", "month", "day", "hour"]},
        "missing": ["NA"],
        "fill": 0,
    }
    graph = load_graph(write(tmp_path / "t", cells), columns=columns, split="1/0/0")
    assert (graph.num_features, graph.columns.num_features) == (9, 9)
    for row, cell in enumerate(cells[:2]):
        at = datetime.fromisoformat(cell)
        parts = [at.weekday() / 7, (at.month - 1) / 12, (at.day - 1) / 31, (at.hour + at.minute / 60) / 24]
        wanted = [wave(2 * math.pi * part) for part in parts for wave in (math.sin, math.cos)]
        assert graph.x[row][1:].tolist() == pytest.approx(wanted, abs=1e-6)
    assert graph.x[2].tolist() == [0] * 9


def test_parquet_has_dates_and_text_of_its_own(tmp_path: Path) -> None:
    with duckdb.connect() as connection:
        connection.execute(
            "COPY (SELECT * FROM (VALUES "
            "('a', DATE '2000-01-03', TIMESTAMP '2000-01-02 12:00', '1,5', true, 0), "
            "('b', DATE '2000-01-01', TIMESTAMP '2000-01-01', '2', false, 1)) "
            'AS t(id, day, "at", x, flag, label))'
            f" TO '{tmp_path / 'nodes.parquet'}'"
        )
    (tmp_path / "edges.csv").write_text(EDGES)
    data = (tmp_path / "nodes.parquet", tmp_path / "edges.csv")
    columns = {"dates": {"day": "2000-01-01", "at": "2000-01-01"}, "decimal": {"x": ","}}
    graph = load_graph(data, columns=columns, split="1/0/0")
    assert graph.x.tolist() == [[2, 1.5, 1.5, 1], [0, 0, 2, 0]]
    with pytest.raises(GraphError, match=r"'day' holds DATE; .* read it as dates \(--date day=2000-01-01\)"):
        load_graph(data, columns={"ignore": ["x", "at"]}, split="1/0/0")
    with pytest.raises(GraphError, match="'flag', given as date, holds BOOLEAN; expected dates or text"):
        load_graph(
            data, columns={"dates": {"flag": "2000-01-01"}, "ignore": ["x", "day", "at"]}, split="1/0/0"
        )


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"decimal": "x"}, "decimal='x': expected one of '.', ','"),
        ({"decimal": 5}, "decimal=5: expected one of '.', ','"),
        ({"thousands": ";"}, "thousands=';': expected one of"),
        ({"thousands": {"a": "."}}, "decimal and thousands are both '.' in column 'a'; give another one"),
        ({"decimal": ",", "thousands": ","}, "decimal and thousands are both ','"),
        ({"dates": "x"}, "dates='x': expected one entry per column"),
        ({"dates": {"x": "1.1.2000"}}, "dates x='1.1.2000': expected the day from which days are counted"),
        ({"date_format": "%d.%m"}, "date_format='%d.%m': expected day, month and year"),
        ({"date_format": {"x": "%d.%m.%Y"}}, "date_format holds 'x', which is no date; declare it"),
        ({"cycles": {"x": ["weekday"]}}, "cycles holds 'x', which is no date; declare it, as --date x="),
        ({"cycles": 5}, "cycles=5: expected one entry per column"),
        (
            {"dates": {"x": "2000-01-01"}, "cycles": {"x": ["weekdays"]}},
            "no such part of a date; did you mean 'weekday'?",
        ),
        (
            {"dates": {"x": "2000-01-01"}, "booleans": ["x"]},
            "'x' is given as boolean and as date; give it once",
        ),
        ({"dates": {"x": "2000-01-01"}, "ignore": ["x"]}, "'x' is given as ignore and as date; give it once"),
        ({"booleans": ["id"]}, "'id' is given as id and as boolean; give it once"),
        ({"looked_up": ["class"]}, "looked_up holds 'class'; did you mean 'classes'?"),
        ({"looked_up": ["q"]}, "looked_up holds 'q'; expected classes, id, ends"),
        ({"unknown_ids": "dropp"}, "did you mean 'drop'?"),
    ],
)
def test_rules_that_contradict_or_say_nothing(columns: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError) as caught:
        Columns.of(columns)
    assert words in str(caught.value)


@pytest.mark.parametrize("role", ["decimal", "thousands"])
def test_a_rule_needs_a_column_of_numbers(role: str, tmp_path: Path) -> None:
    folder = write(tmp_path / "t", ["1", "2"])
    with pytest.raises(GraphError, match=f"no column 'y', given as {role}"):
        load_graph(folder, columns={role: {"y": ","}}, split="1/0/0")
    with pytest.raises(GraphError, match=f"given as {role}, but is not a column of numbers"):
        load_graph(folder, columns={role: {"label": ","}}, split="1/0/0")


def test_rules_survive_json_and_are_described() -> None:
    columns = Columns(
        decimal=",",
        thousands={"x": "."},
        percent=["p"],
        booleans=["b"],
        dates={"d": "2000-01-01"},
        date_format="%d.%m.%Y",
        cycles={"d": ["weekday", "month"]},
        looked_up=["numbers"],
    )
    assert Columns.from_json(columns.to_json()) == columns
    assert columns.describe_clean_up()[:-1] == [
        "Numbers have ',' before decimals in every column of numbers.",
        "Numbers have '.' between groups of three digits in 'x'.",
        "A cell that ends in % is divided by 100 in 'p'.",
        "True and yes are 1, false and no are 0 in 'b'.",
        "'d' is a date, written as %d.%m.%Y, as days since 2000-01-01; weekday and month are features too.",
    ]
    assert columns.resolve_names(["id", "label", "x", "p", "b", "d"]).num_features == 4 + 4
    assert Columns(features=["x"], dates={"d": "2000-01-01"}).resolve_names(["x", "d"]).features == ("x", "d")


def test_flags_go_before_the_file_column_by_column() -> None:
    file = {
        "dates": {"d": "2000-01-01", "e": "2000-01-01"},
        "cycles": {"d": ["month"]},
        "date_format": {"d": "%d.%m.%Y"},
        "booleans": ["b"],
        "hashed": {"h": 4},
        "looked_up": ["classes", "dates", "id"],
    }
    merged = merge_columns(file, {"ignore": ["d"], "dates": {"h": "2010-01-01"}, "classes": ["x", "y"]})
    assert merged["dates"] == {"e": "2000-01-01", "h": "2010-01-01"}
    assert (merged["cycles"], merged["date_format"], merged["hashed"]) == ({}, {}, {})
    # What a flag declares anew is not looked up any more; that e is a date still is.
    assert merged["looked_up"] == ["dates", "id"]
    assert merge_columns(file, {"features": ["e", "b"]})["booleans"] == ["b"]
    assert merge_columns(file, {"classes": ["x"], "looked_up": ["classes"]})["looked_up"] == [
        "dates",
        "id",
        "classes",
    ]
