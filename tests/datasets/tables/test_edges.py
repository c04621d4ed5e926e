"""Edges whose ends are integers are read without a join, and are those that a join finds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest

import hushgraph as hg
from hushgraph.datasets.tables import edge_table
from hushgraph.datasets.tables.edge_table import EdgeTable, NodeNumbers
from hushgraph.errors import GraphError

IDS = {
    "in order": np.arange(5, 65),
    "with gaps": np.random.default_rng(1).permutation(200)[:60] - 90,
    "far apart": np.append(np.arange(59), 2**62),
    "at the ends": np.append(np.arange(-(2**63), -(2**63) + 30), np.arange(2**63 - 30, 2**63 - 1)),
}


def write(folder: Path, ids: np.ndarray, ends: dict[str, str], kinds: tuple[str, ...]) -> tuple[str, str]:
    """A table of nodes, and one of edges in a file for each type; the order of their columns differs."""
    with duckdb.connect() as connection:
        connection.register("given", {"id": ids, "place": np.arange(len(ids))})
        cells = "id, 1.0 AS x, place % 2 AS label, 'train' AS split"
        connection.execute(f"COPY (SELECT {cells} FROM given ORDER BY place) TO '{folder}/nodes.parquet'")
        for number, kind in enumerate(kinds):
            cells = f"CAST(s AS {kind}) AS source, CAST(t AS {kind}) AS target"
            lines = f"SELECT {cells} FROM {ends[kind]} AS e(s, t)"
            chosen = "SELECT source, target" if number % 2 else "SELECT target, 7 AS more, source"
            more = "" if number % 2 == 0 else ", 8 AS more"
            sql = f"COPY ({chosen}{more} FROM ({lines})) TO '{folder}/edges-{number}.parquet'"
            connection.execute(sql)
    return f"{folder}/nodes.parquet", f"{folder}/edges-*.parquet"


def draw_ends(ids: np.ndarray, *, unknown: tuple[str, ...] = ()) -> str:
    rng = np.random.default_rng(2)
    rows = [f"({u}, {w})" for u, w in rng.choice(ids, (150, 2))]
    for place, row in enumerate(unknown):
        rows.insert(40 * place + 3, row)
    return f"(VALUES {', '.join(rows)})"


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(edge_table, "CHUNK", 64)


@pytest.mark.parametrize("name", list(IDS))
@pytest.mark.parametrize("unknown", [(), ("(NULL, 7)", "(1000, 6)", "(-1000, 6)", "(7, NULL)")])
def test_ends_are_those_of_a_join(
    name: str, unknown: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kinds = ("BIGINT", "BIGINT") if name in ("far apart", "at the ends") else ("INTEGER", "BIGINT")
    ends = dict.fromkeys(kinds, draw_ends(IDS[name], unknown=unknown))
    files = write(tmp_path, IDS[name], ends, kinds)
    options: dict[str, Any] = {"num_classes": 2, "columns": {"unknown_ids": "drop"}}
    read = hg.datasets.load_graph(files, **options)
    monkeypatch.setattr(EdgeTable, "_find_numbers", lambda *_: None)
    joined = hg.datasets.load_graph(files, **options)
    assert read.num_edges > 100
    for part in ("indptr", "indices", "node_names"):
        assert np.array_equal(getattr(read, part), getattr(joined, part))
    assert read.clean_up == joined.clean_up
    assert read.clean_up["edges to unknown ids dropped"] == 2 * len(unknown)


def test_which_ids_have_numbers() -> None:
    for name in ("in order", "with gaps"):
        numbers = NodeNumbers.of(IDS[name])
        assert numbers is not None
        assert np.array_equal(numbers.find(IDS[name]), np.arange(60))
        assert numbers.find(np.array([2**63 - 1, -(2**63), int(IDS[name].max()) + 1])).tolist() == [-1] * 3
    assert (len(NodeNumbers.of(IDS["in order"]).table), NodeNumbers.of(IDS["far apart"])) == (0, None)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("(6, 1000)", r"edges-1\.parquet row 4, column 'target': '1000' is not an id in nodes\.parquet"),
        ("(1000, NULL)", r"edges-1\.parquet row 4, column 'source': '1000' is not an id"),
        ("(6, NULL)", r"edges-1\.parquet row 4, column 'target': empty; expected the id of a node"),
    ],
)
def test_the_first_end_that_is_no_node_is_named(row: str, message: str, tmp_path: Path) -> None:
    ends = {"INTEGER": draw_ends(IDS["in order"]), "BIGINT": draw_ends(IDS["in order"], unknown=(row, row))}
    files = write(tmp_path, IDS["in order"], ends, ("INTEGER", "BIGINT"))
    with pytest.raises(GraphError, match=message):
        hg.datasets.load_graph(files, num_classes=2)


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    """Its header is whole, its cells are not."""
    ends = draw_ends(IDS["in order"])
    files = write(tmp_path, IDS["in order"], {"BIGINT": ends}, ("BIGINT",))
    path = tmp_path / "edges-0.parquet"
    content = bytearray(path.read_bytes())
    content[4:60] = bytes(56)
    path.write_bytes(content)
    with pytest.raises(GraphError, match=r"edges-0\.parquet: damaged Parquet"):
        hg.datasets.load_graph(files, num_classes=2)


def test_a_column_that_is_called_like_the_numbers_of_rows(tmp_path: Path) -> None:
    files = write(tmp_path, IDS["in order"], {"BIGINT": draw_ends(IDS["in order"])}, ("BIGINT",))
    edges = tmp_path / "edges-0.parquet"
    duckdb.sql(f"SELECT *, 1 AS file_row_number FROM '{edges}'").write_parquet(
        str(tmp_path / "other.parquet")
    )
    plain = hg.datasets.load_graph(files, num_classes=2)
    other = hg.datasets.load_graph((files[0], tmp_path / "other.parquet"), num_classes=2)
    assert np.array_equal(plain.indices, other.indices)
