"""Rows of a graph by parts: the predictions of the whole, for every kind of record."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest

import hushgraph as hg
import two_tables
from benchmark_scripts import script
from hushgraph.datasets.tables.files import TableFiles
from hushgraph.datasets.tables.table import Origin
from hushgraph.errors import RunError
from hushgraph.inference import in_memory

# Of benchmarks/engine_settings.py: every task and kind of record, both boards, drawn splits, persons with and
# without a training node, integers and texts as identifiers.
NUMBERS = (0, 1, 2, 3, 4, 5, 6, 7, 13, 24, 40)


def cut(folder: Path, tables: tuple[Path, Path], run: hg.Run, *, by: str, parts: int) -> Iterator[TableFiles]:
    """The tables in parts, each with the edges that have an end in it: those of others are nobody's there."""
    is_text = tables[0].suffix == ".csv"
    nodes, edges = (f"read_csv('{each}', all_varchar = true)" if is_text else f"'{each}'" for each in tables)
    for number in range(parts):
        rows = f"SELECT * FROM {nodes} WHERE hash({by}) % {parts} = {number}"
        ends = " OR ".join(f"{end} IN (SELECT id FROM ({rows}))" for end in ("source", "target"))
        paths, origins = [], {}
        for name, sql in (("nodes", rows), ("edges", f"SELECT * FROM {edges} WHERE {ends}")):
            path = folder / f"{name}-{number}"
            path.mkdir()
            (count,) = duckdb.execute(f"COPY ({sql}) TO '{path}/a.parquet'").fetchone() or (0,)
            if name == "nodes" and not count:
                break
            origins[path] = Origin(name, is_text, int(count))
            paths.append(path)
        if len(paths) < 2:
            continue
        own: Any = np.array([])
        yield TableFiles(nodes=(paths[0],), edges=(paths[1],), columns={}, origins=origins, also_new=own)


@pytest.mark.parametrize("number", NUMBERS)
def test_parts_have_the_predictions_of_the_whole(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the release alone, bit for bit; every training row, or person, is in one part."""
    # Kernels score the whole graph too, as they do where graphs are not tiny.
    monkeypatch.setattr(in_memory, "_FEW_NUMBERS", 0)
    settings = script("engine_settings")
    tables, setting = settings.write_tables(tmp_path, number), settings.make_setting(number)
    hg.train(tables, out=tmp_path / "run", progress=False, **setting)
    run = hg.Run.load(tmp_path / "run" / "release", device="cpu")
    whole = run.predict_table(tables)
    places = {str(name): place for place, name in enumerate(np.asarray(whole.names))}
    rows, trained, by = [], 0, setting.get("person", "id")
    for files in cut(tmp_path, tables, run, by=by, parts=3):
        part, counts = run.predict_part(files)
        here = [places[str(name)] for name in np.asarray(part.names)]
        np.testing.assert_array_equal(part.probabilities, whole.probabilities[here])
        rows += here
        trained += counts.trained
        assert counts.places == len(places)
    assert sorted(rows) == [*range(len(places))]
    assert trained == run.plan.num_train_nodes


@pytest.mark.parametrize("number", [10, 15])
def test_how_new_rows_are_cut_changes_no_bit(number: int, tmp_path: Path) -> None:
    """Edges of all rows decide into how many parts a table is cut, and so how many rows a part has."""
    settings = script("engine_settings")
    tables, setting = settings.write_tables(tmp_path, number), settings.make_setting(number)
    run = hg.train(tables, out=tmp_path / "run", progress=False, **setting | {"hidden": 32})
    new = settings.write_new_tables(tmp_path, tables)
    whole = run.predict_table(new, new=True)
    shown: list[dict[str, Any]] = []
    for parts in (1, 3, 80):
        (folder := tmp_path / str(parts)).mkdir()
        shown.append({})
        for files in cut(folder, new, run, by="id", parts=parts):
            part, _ = run.predict_part(files, new=True)
            shown[-1] |= zip(np.asarray(part.names).tolist(), part.probabilities.tolist(), strict=True)
    assert shown[0] == shown[1] == shown[2]
    scores = [shown[0][name] for name in np.asarray(whole.names).tolist()]
    np.testing.assert_allclose(scores, whole.probabilities, rtol=0, atol=1e-5)


def test_how_many_nodes_others_list_changes_no_bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A part has the nodes that its rows list, so that its size is private: it chooses nothing."""
    settings = script("engine_settings")
    tables, setting = settings.write_tables(tmp_path, 1), settings.make_setting(1)
    run = hg.train(tables, out=tmp_path / "run", progress=False, **setting)
    rows = f"SELECT * FROM '{tables[0]}' ORDER BY id LIMIT 9"
    # What the last of these rows lists, and no other row of the part.
    ids = f"(SELECT id FROM ({rows}))"
    alone = f"(SELECT max(id) FROM ({rows})) IN (source, target)"
    shown = []
    for number, kept in enumerate(("true", f"NOT ({alone} AND NOT (source IN {ids} AND target IN {ids}))")):
        # The part is tiny without these records, and is not with them.
        monkeypatch.setattr(in_memory, "_FEW_NUMBERS", number << 30)
        (folder := tmp_path / str(number)).mkdir()
        nodes, edges = folder / "nodes.parquet", folder / "edges.parquet"
        duckdb.execute(f"COPY ({rows}) TO '{nodes}'")
        duckdb.execute(f"COPY (SELECT * FROM '{tables[1]}' WHERE {kept}) TO '{edges}'")
        (files,) = cut(folder, (nodes, edges), run, by="id", parts=1)
        part, _ = run.predict_part(files)
        order = np.argsort(np.asarray(part.names))
        shown.append((np.asarray(part.names)[order], part.probabilities[order]))
    assert shown[0][0].tolist() == shown[1][0].tolist()
    np.testing.assert_array_equal(shown[0][1][:8], shown[1][1][:8])
    assert (shown[0][1][8] != shown[1][1][8]).any()


def test_a_part_need_not_have_a_training_row(tmp_path: Path) -> None:
    tables = two_tables.folder_of(tmp_path / "two") / "nodes.csv", tmp_path / "two" / "edges.csv"
    run = hg.train(
        tables, **two_tables.CITY, num_classes=2, epsilon=4.0, steps=2, hidden=4, out=tmp_path / "run"
    )
    whole = run.predict_table(tables)
    trained = []
    for files in cut(tmp_path, tables, run, by="split = 'train'", parts=64):
        part, counts = run.predict_part(files)
        here = [[*np.asarray(whole.names)].index(name) for name in np.asarray(part.names)]
        np.testing.assert_allclose(part.probabilities, whole.probabilities[here], rtol=0, atol=1e-6)
        trained.append(counts.trained)
    assert min(trained) == 0
    assert sum(trained) == 2


def test_a_record_without_an_end_stops_nobody_where_places_are_declared(tmp_path: Path) -> None:
    """It is dropped, as in training."""
    folder = two_tables.folder_of(tmp_path / "two", edges=two_tables.EDGES + "a,phone\nb,\n")
    tables = folder / "nodes.csv", folder / "edges.csv"
    run = hg.train(
        tables,
        **two_tables.CITY,
        num_classes=2,
        epsilon=4.0,
        steps=2,
        hidden=4,
        places=["phone"],
        out=tmp_path / "run",
    )
    whole = run.predict_table(tables)
    (files,) = cut(tmp_path, tables, run, by="id", parts=1)
    part, _ = run.predict_part(files)
    order = [[*np.asarray(whole.names)].index(name) for name in np.asarray(part.names)]
    np.testing.assert_allclose(part.probabilities, whole.probabilities[order], rtol=0, atol=1e-6)


def test_persons_have_to_come_together(tmp_path: Path) -> None:
    """Cut by their ids instead, what other nodes of a person cast stays in readings: the test can fail."""
    settings = script("engine_settings")
    tables, setting = settings.write_tables(tmp_path, 13), settings.make_setting(13)
    run = hg.train(tables, out=tmp_path / "run", progress=False, **setting)
    whole = run.predict_table(tables)
    places = {str(name): place for place, name in enumerate(np.asarray(whole.names))}
    apart = 0.0
    for files in cut(tmp_path, tables, run, by="id", parts=3):
        part, _ = run.predict_part(files)
        here = [places[str(name)] for name in np.asarray(part.names)]
        apart = max(apart, float(np.abs(part.probabilities - whole.probabilities[here]).max()))
    assert apart > 1e-5


def test_a_row_without_a_place_is_refused(tmp_path: Path) -> None:
    settings = script("engine_settings")
    tables, setting = settings.write_tables(tmp_path, 1), settings.make_setting(1)
    run = hg.train(tables, out=tmp_path / "run", progress=False, **setting)
    nodes, edges = settings.write_new_tables(tmp_path, tables)
    files = next(cut(tmp_path, (nodes, edges), run, by="id", parts=1))
    with pytest.raises(RunError, match=r"'1000\d+' was not there at training; give new nodes by --new"):
        run.predict_part(files)
