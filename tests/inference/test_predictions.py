"""Files of predictions: the same table as CSV, Parquet and arrays, for every task, under the user's names."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest
import torch

from hushgraph.errors import InputError, WriteError
from hushgraph.graph.graph import Graph
from hushgraph.inference.covered import average_over_neighbours
from hushgraph.inference.predicted import Predicted
from hushgraph.inference.predictions import check_out, save
from hushgraph.inference.thresholds import Threshold
from hushgraph.tasks.classes import Classes
from hushgraph.tasks.labels import Labels
from hushgraph.tasks.number import Number
from hushgraph.tasks.task import Task
from hushgraph.tasks.two_classes import TwoClasses

PROBABILITIES = np.array([[0.25, 0.75], [1.0, 0.0], [0.5, 0.5]], np.float32)
NAMES: dict[str, Any] = {
    "names": np.array(["a", 'b "2"', "c, d"], object),
    "class_names": ["no", "it's"],
    "id_name": "user's id",
}
# What every format holds, written out by hand.
ROWS = [["a", "it's", 0.25, 0.75], ['b "2"', "no", 1.0, 0.0], ["c, d", "no", 0.5, 0.5]]
HEADER = ["user's id", "class", "p_no", "p_it's"]


def predicted(task: Task | None = None, shown: np.ndarray = PROBABILITIES, **how: Any) -> Predicted:
    usual = {"task": task or Classes(num_classes=2), "is_covered": True, "reads_neighbours": False}
    return Predicted(probabilities=shown, **usual | how)


def test_csv_and_parquet_hold_the_same_table(tmp_path: Path) -> None:
    for suffix in (".csv", ".parquet"):
        save(tmp_path / f"o'{suffix}", [predicted(**NAMES).to_columns()])
    with (tmp_path / "o'.csv").open(newline="") as file:
        header, *rows = csv.reader(file)
    assert header == HEADER
    assert [[*row[:2], *map(float, row[2:])] for row in rows] == ROWS
    # Before DuckDB 2, a table ends with its connection.
    connection = duckdb.connect()
    table = connection.read_parquet(str(tmp_path / "o'.parquet"))
    assert table.columns == HEADER
    assert [list(row) for row in table.fetchall()] == ROWS
    assert [str(kind) for kind in table.types] == ["VARCHAR", "VARCHAR", "FLOAT", "FLOAT"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["o'.csv", "o'.parquet"]


def test_what_a_notebook_shows_has_no_prediction_of_anybody() -> None:
    shown = "Predicted(3 nodes, covered towards everybody else); to_columns() is a table"
    assert repr(predicted(**NAMES)) == shown
    assert repr(predicted(shown=PROBABILITIES[:1], is_covered=False)).startswith(
        "Predicted(1 node, not covered)"
    )


def test_numbers_stay_numbers(tmp_path: Path) -> None:
    save(tmp_path / "p.parquet", [predicted().to_columns(probabilities=False)])
    # Before DuckDB 2, a table ends with its connection.
    connection = duckdb.connect()
    table = connection.read_parquet(str(tmp_path / "p.parquet"))
    assert (table.columns, table.fetchall()) == (["node", "class"], [(0, 1), (1, 0), (2, 0)])


@pytest.mark.parametrize("name", ["class", "p_0"])
def test_an_id_column_with_one_of_our_names_replaces_nothing(name: str) -> None:
    assert list(predicted(id_name=name).to_columns()) == ["node", "class", "p_0", "p_1"]


@pytest.mark.parametrize(
    ("task", "header", "rows"),
    [
        (TwoClasses(), ["class", "p_yes"], [("yes", 0.75), ("no", 0.0), ("no", 0.5)]),
        (TwoClasses(positive=0), ["class", "p_no"], [("yes", 0.25), ("no", 1.0), ("no", 0.5)]),
        (Classes(num_classes=2), ["class"], [("yes",), ("no",), ("no",)]),
        (Labels(num_labels=2), ["has_no", "has_yes"], [(False, True), (True, False), (False, False)]),
    ],
    ids=["two classes", "first positive", "classes", "labels"],
)
def test_every_task_has_its_columns(task: Task, header: list[str], rows: list[Any]) -> None:
    names = ["no", "yes"]
    columns = predicted(task, class_names=names).to_columns(probabilities=False)
    assert list(columns) == ["node", *header]
    assert list(zip(*(columns[name].tolist() for name in header), strict=True)) == rows
    scores = predicted(task, class_names=names).to_columns()
    assert [scores["p_no"].tolist(), scores["p_yes"].tolist()] == PROBABILITIES.T.tolist()


@pytest.mark.parametrize(
    ("declared", "label", "unit"),
    [("", None, None), ("", "income", "income"), ("EUR", "income", "EUR"), ("EUR", None, "EUR")],
)
def test_a_number_has_its_unit(declared: str, label: str | None, unit: str | None, tmp_path: Path) -> None:
    shown = np.array([[10.5], [20.0]], np.float32)
    task = Number(low=0.0, high=50.0, unit=declared)
    save(tmp_path / "p.csv", [predicted(task, shown, label_name=label).to_columns()])
    header, *rows = (tmp_path / "p.csv").read_text().splitlines()
    if unit is None:
        assert (header, rows) == ("node,number", ["0,10.5", "1,20"])
    else:
        assert (header, rows) == ("node,number,unit", [f"0,10.5,{unit}", f"1,20,{unit}"])


def test_flags_are_columns(tmp_path: Path) -> None:
    one = predicted(TwoClasses(), threshold=Threshold(values=(0.4,), outputs=(1,)))
    save(tmp_path / "p.csv", [one.to_columns(probabilities=False)])
    assert (tmp_path / "p.csv").read_text().split() == [
        "node,class,p_1,flagged",
        "0,1,0.75,1",
        "1,0,0,0",
        "2,0,0.5,1",
    ]
    each = predicted(Labels(num_labels=2), threshold=Threshold(values=(0.4, 0.6), outputs=(0, 1)))
    columns = each.to_columns(probabilities=False)
    assert list(columns) == ["node", "has_0", "has_1", "flagged_0", "flagged_1"]
    assert (columns["flagged_0"].tolist(), columns["flagged_1"].tolist()) == ([0, 1, 1], [1, 0, 0])
    same = predicted(Labels(num_labels=2), threshold=Threshold(values=(0.4, 0.4), outputs=(0, 1)))
    assert same.to_lines()[1:] == ["flagged: scores above 0.4, given; covered towards everybody else"]
    assert [line.partition(":")[0] for line in each.to_lines()[1:]] == ["flagged 0", "flagged 1"]


def test_arrays_keep_their_names(tmp_path: Path) -> None:
    save(tmp_path / "p.npz", [predicted(**NAMES | {"id_name": "file"}).to_arrays()])
    with np.load(tmp_path / "p.npz") as arrays:
        assert set(arrays) == {"node", "class", "probabilities", "class_names"}
        assert arrays["class"].tolist() == ["it's", "no", "no"]
    assert set(predicted().to_arrays(probabilities=False)) == {"node", "class"}


def test_a_file_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "p.parquet").mkdir()
    (tmp_path / "p.parquet" / "file").touch()
    with pytest.raises(WriteError, match="cannot be written"):
        save(tmp_path / "p.parquet", [predicted().to_columns()])
    assert [path.name for path in tmp_path.iterdir()] == ["p.parquet"]


def test_other_suffixes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"expected a name that ends in \.csv, \.npz or \.parquet"):
        check_out(tmp_path / "p.feather", force=False)


def test_neighbours_in_the_clear_are_averaged_as_the_task_says() -> None:
    """Node 0 reads 1 and 2; the others read nobody."""
    graph = Graph.from_arrays(
        edge_index=np.array([[1, 2], [0, 0]]), x=np.eye(3), y=[0, 1, 1], train_idx=[0], num_classes=2
    )
    numbers = torch.tensor([[10.0], [20.0], [40.0]])
    assert average_over_neighbours(Number(low=0, high=50), numbers, graph)[:, 0].tolist() == [20, 20, 40]
    odds = torch.tensor([[1.0], [4.0], [1.0]])
    labels = average_over_neighbours(Labels(num_labels=1), odds / (1 + odds), graph)[:, 0]
    # Odds are multiplied by the geometric mean of the neighbours' odds, 2.
    assert torch.allclose(labels / (1 - labels), torch.tensor([2.0, 4.0, 1.0]))
    pairs = torch.cat([1 / (1 + odds), odds / (1 + odds)], 1)
    classes = average_over_neighbours(TwoClasses(), pairs, graph)
    assert torch.allclose(classes[:, 1] / classes[:, 0], torch.tensor([2.0, 4.0, 1.0]), rtol=1e-4)
