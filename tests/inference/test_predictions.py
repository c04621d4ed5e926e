"""Files of predictions: the same table as CSV, Parquet and arrays, under the user's own names."""

from __future__ import annotations

import csv
from pathlib import Path

import duckdb
import numpy as np
import pytest

from hushgraph.errors import InputError, WriteError
from hushgraph.inference.predictions import check_out, list_columns, save

PROBABILITIES = np.array([[0.25, 0.75], [1.0, 0.0], [0.5, 0.5]], np.float32)
NAMES = {"node_names": np.array(["a", 'b "2"', "c, d"], object), "class_names": ["no", "it's"]}
# What every format holds, written out by hand.
ROWS = [["a", "it's", 0.25, 0.75], ['b "2"', "no", 1.0, 0.0], ["c, d", "no", 0.5, 0.5]]
HEADER = ["user's id", "class", "p_no", "p_it's"]


def test_csv_and_parquet_hold_the_same_table(tmp_path: Path) -> None:
    for suffix in (".csv", ".parquet"):
        save(tmp_path / f"o'{suffix}", PROBABILITIES, with_probabilities=True, id_name="user's id", **NAMES)
    with (tmp_path / "o'.csv").open(newline="") as file:
        header, *rows = csv.reader(file)
    assert header == HEADER
    assert [[*row[:2], *map(float, row[2:])] for row in rows] == ROWS
    table = duckdb.connect().read_parquet(str(tmp_path / "o'.parquet"))
    assert table.columns == HEADER
    assert [list(row) for row in table.fetchall()] == ROWS
    assert [str(kind) for kind in table.types] == ["VARCHAR", "VARCHAR", "FLOAT", "FLOAT"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["o'.csv", "o'.parquet"]


def test_numbers_stay_numbers(tmp_path: Path) -> None:
    save(tmp_path / "p.parquet", PROBABILITIES, with_probabilities=False)
    table = duckdb.connect().read_parquet(str(tmp_path / "p.parquet"))
    assert (table.columns, table.fetchall()) == (["node", "class"], [(0, 1), (1, 0), (2, 0)])


@pytest.mark.parametrize("name", ["class", "p_0"])
def test_an_id_column_with_one_of_our_names_replaces_nothing(name: str) -> None:
    assert list(list_columns(PROBABILITIES, id_name=name)) == ["node", "class", "p_0", "p_1"]


def test_arrays_keep_their_names(tmp_path: Path) -> None:
    save(tmp_path / "p.npz", PROBABILITIES, with_probabilities=True, id_name="file", **NAMES)
    with np.load(tmp_path / "p.npz") as arrays:
        assert set(arrays) == {"node", "class", "probabilities", "class_names"}
        assert arrays["class"].tolist() == ["it's", "no", "no"]


def test_a_file_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "p.parquet").mkdir()
    (tmp_path / "p.parquet" / "file").touch()
    with pytest.raises(WriteError, match="cannot be written"):
        save(tmp_path / "p.parquet", PROBABILITIES, with_probabilities=True)
    assert [path.name for path in tmp_path.iterdir()] == ["p.parquet"]


def test_other_suffixes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"expected a name that ends in \.csv, \.npz or \.parquet"):
        check_out(tmp_path / "p.feather", force=False)
