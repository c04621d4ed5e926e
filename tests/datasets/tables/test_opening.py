"""Opening what Spark wrote: all of its rows or none, and text as in CSV."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from hushgraph.datasets.tables.opening import open_table
from hushgraph.datasets.tables.table import Origin
from hushgraph.errors import GraphError


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """A folder with five rows in two files, which follow each other in the order of their names."""
    folder = tmp_path / "nodes-0"
    folder.mkdir()
    for name, rows in (("part-00001.parquet", "3, 5"), ("part-00000.parquet", "0, 3")):
        duckdb.execute(f"COPY (SELECT i AS id, 'x' AS age FROM range({rows}) AS t(i)) TO '{folder}/{name}'")
    (folder / "_SUCCESS").touch()
    return folder


@pytest.mark.parametrize("rows", [4, 6])
def test_rows_that_are_not_here_are_refused(written: Path, rows: int) -> None:
    origins = {written: Origin("hdfs://people", False, rows)}
    with (
        duckdb.connect() as connection,
        pytest.raises(GraphError, match=f"hdfs://people: executors of Spark wrote {rows} rows to .* finds 5"),
    ):
        open_table(connection, written, delimiter=None, role="nodes", origins=origins)


def test_a_folder_without_a_file_is_refused(tmp_path: Path) -> None:
    origins = {tmp_path: Origin("people", False, 0)}
    with duckdb.connect() as connection, pytest.raises(GraphError, match="where this process finds 0"):
        open_table(connection, tmp_path, delimiter=None, role="nodes", origins=origins)


@pytest.mark.parametrize("is_text", [False, True])
def test_files_are_one_table_and_text_of_csv_may_be_numbers(written: Path, is_text: bool) -> None:
    origins = {written: Origin("people.csv", is_text, 5)}
    with duckdb.connect() as connection:
        table = open_table(connection, written, delimiter=None, role="nodes", origins=origins)
        rows = connection.execute(f"SELECT row_no, c0 FROM {table.rows}", table.patterns).fetchall()
    assert rows == [(number, number) for number in range(5)]
    assert table.place(2, "age") == "people.csv row 3, column 'age'"
    if is_text:
        table.check_number("age")
    else:
        with pytest.raises(GraphError, match=r"people\.csv: column 'age' holds VARCHAR; expected numbers"):
            table.check_number("age")
