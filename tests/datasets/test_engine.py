"""What reads tables: the choice by sizes, limits, and work space that goes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pytest

import hushgraph as hg
from hushgraph import _arrays
from hushgraph._files import lock_file, unlock_file
from hushgraph.datasets import engine as engine_module
from hushgraph.datasets.engine import (
    choose_engine,
    estimate_memory,
    find_free_memory,
    parse_memory,
    use_engine,
    work_folder,
)
from hushgraph.errors import InputError, WriteError


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    """1,000 nodes of 3 columns and 5,000 edges, as Parquet and as CSV."""
    folder = tmp_path / "people"
    folder.mkdir()
    people = "SELECT i AS id, i % 7 AS age, i % 2 AS label FROM range(1000) AS t(i)"
    pairs = "SELECT i % 1000 AS source, (i * 7) % 1000 AS target FROM range(5000) AS t(i)"
    for name, sql in (("nodes", people), ("edges", pairs)):
        for ending in ("parquet", "csv"):
            duckdb.execute(f"COPY ({sql}) TO '{folder}/{name}.{ending}'")
    return folder


def pair(folder: Path, ending: str) -> tuple[str, str]:
    return f"{folder}/nodes.{ending}", f"{folder}/edges.{ending}"


def test_memory_has_a_unit_and_a_least() -> None:
    assert parse_memory("8GiB") == 8 * 2**30
    assert parse_memory("1.5 gb") == 1_500_000_000
    assert parse_memory("1000000000") == 10**9
    for wrong in ("much", "4 apples", "-1GiB", ""):
        with pytest.raises(InputError, match="expected a size such as '8GiB'"):
            parse_memory(wrong)
    with pytest.raises(InputError, match="at least 512MiB"):
        parse_memory("1MB")


def test_sizes_of_files_say_what_memory_would_take(tables: Path) -> None:
    """About what arrays of so many nodes and edges have; from rows, or from bytes of CSV."""
    by_rows = estimate_memory(pair(tables, "parquet"))
    assert 1_000 * 200 < by_rows < 1_000 * 300 + 5_000 * 20
    by_bytes = estimate_memory(pair(tables, "csv"))
    assert by_rows / 6 < by_bytes < by_rows * 6
    frames = pd.DataFrame({"id": [1]}), pd.DataFrame({"source": [1], "target": [1]})
    assert estimate_memory(frames) == 0


def test_auto_says_what_it_chose_and_why(tables: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    data = pair(tables, "parquet")
    assert choose_engine("auto", data, tell=said.append) == "memory"
    monkeypatch.setattr(engine_module, "find_free_memory", lambda: 100_000)
    assert choose_engine("auto", data, tell=said.append) == "duckdb"
    assert choose_engine("auto", data, memory="1GiB", tell=said.append) == "memory"
    assert choose_engine("auto", hg.datasets.synthetic(num_nodes=50), tell=said.append) == "memory"
    assert [text.split(";")[0].split(",")[0] for text in said] == [
        "--engine auto: memory",
        "--engine auto: duckdb",
        "--engine auto: memory",
        "--engine auto: memory",
    ]
    assert said[1].endswith("0.0 GiB are free")
    assert said[2].endswith("1.0 GiB may be used")
    assert find_free_memory() > 2**20


def test_what_no_engine_reads_is_refused_in_one_line(tables: Path) -> None:
    data = pair(tables, "parquet")
    with pytest.raises(InputError, match="only an engine keeps to it; add --engine duckdb"):
        choose_engine("memory", data, memory="8GiB")
    with pytest.raises(InputError, match=r"engine='sparc': expected auto, .* did you mean 'spark'"):
        choose_engine("sparc", data)
    with pytest.raises(InputError, match="it reads tables"), use_engine("duckdb", "people.npz"):
        pass


def test_work_space_is_beside_and_goes(tables: Path, tmp_path: Path) -> None:
    out = tmp_path / "runs" / "a"
    with use_engine("memory", pair(tables, "csv"), beside=out) as is_on_disk:
        assert not is_on_disk
        assert not out.parent.exists()
    with use_engine("duckdb", pair(tables, "csv"), memory="1GiB", beside=out) as is_on_disk:
        assert is_on_disk
        disk = _arrays.find_disk()
        assert disk is not None
        assert disk.memory == 2**30
        assert disk.folder.parent == work_folder(out) == tmp_path / "runs" / "a.work"
        (disk.folder / "tables").write_text("private")
    assert not (tmp_path / "runs").exists()
    with pytest.raises(ZeroDivisionError), use_engine("duckdb", pair(tables, "csv"), beside=out):
        _ = 1 / 0
    assert not (tmp_path / "runs").exists()


def test_work_space_that_a_kill_left_is_removed_and_that_of_others_stays(
    tables: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    work = work_folder(out)
    for name in ("killed", "alive"):
        (work / name).mkdir(parents=True)
        (work / name / "tables").write_text("private")
        (work / name / "lock").touch()
    held = lock_file(work / "alive" / "lock")
    with use_engine("duckdb", pair(tables, "csv"), beside=out):
        assert not (work / "killed").exists()
        assert (work / "alive" / "tables").exists()
    assert [each.name for each in work.iterdir()] == ["alive"]
    unlock_file(held)
    with use_engine("duckdb", pair(tables, "csv"), beside=out):
        pass
    assert not work.exists()


def test_a_folder_that_cannot_be_made_is_one_line(tables: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with (
        pytest.raises(WriteError, match=r"run\.work: cannot be created \(Not a directory\)"),
        use_engine("duckdb", pair(tables, "csv"), beside=tmp_path / "file" / "run"),
    ):
        pass


def test_tables_are_read_in_files(tables: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Features, labels, names and reads are no memory of the process; texts have one length."""
    monkeypatch.setattr(_arrays, "_LEAST_MAPPED", 1)
    named = duckdb.sql(f"SELECT * REPLACE ('p' || id AS id) FROM '{tables}/nodes.parquet'")
    named.write_parquet(f"{tables}/named.parquet")
    ends = "'p' || source AS source, 'p' || target AS target"
    duckdb.sql(f"SELECT {ends} FROM '{tables}/edges.parquet'").write_parquet(f"{tables}/ends.parquet")
    data, options = (tables / "named.parquet", tables / "ends.parquet"), {"split": "0.5/0.2/0.3"}
    plain = hg.datasets.load_graph(data, num_classes=2, **options)
    with use_engine("duckdb", data, beside=tmp_path / "run"):
        graph = hg.datasets.load_graph(data, num_classes=2, **options)
        assert os.listdir(work_folder(tmp_path / "run"))
    mapped: dict[str, Any] = {"x": graph.x, "y": graph.y, "indices": graph.indices, "names": graph.node_names}
    for name, array in mapped.items():
        while isinstance(array, np.ndarray) and not isinstance(array, np.memmap):
            array = array.base
        assert array is not None, name
    assert graph.node_names is not None
    assert graph.node_names.dtype == "U4"
    assert graph.node_names.tolist() == list(plain.node_names if plain.node_names is not None else [])
    for name in ("x", "y", "indptr", "indices", "train_idx", "val_idx", "test_idx"):
        assert np.array_equal(getattr(graph, name), getattr(plain, name))
    assert graph.is_directed == plain.is_directed
