"""Sets of labels from tables, `.npz` files and PyG: every way to write one set gives the same rows."""

from __future__ import annotations

import shlex
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import hushgraph as hg
from hushgraph.cli.app import main
from hushgraph.datasets import load_graph
from hushgraph.errors import GraphError, InputError
from hushgraph.graph.columns import Columns
from hushgraph.tasks.labels import Labels, read_sets, read_sparse_sets

GENRES = ("rock", "pop", "jazz")
# A list, an empty set, no label, one label, repeats and blanks, nothing but what is not declared.
CELLS = ("rock;jazz", ";", "", "pop", " jazz ;rock;; rock", "polka", "pop;polka", "rock")
SETS = np.array([[1, 0, 1], [0, 0, 0], [-1, -1, -1], [0, 1, 0], [1, 0, 1], [0, 0, 0], [0, 1, 0], [1, 0, 0]])
EDGES = "source,target\n" + "".join(f"p{n},p{(n + 1) % 8}\n" for n in range(8))
SPLITS = ("train", "train", "train", "train", "val", "val", "test", "test")
QUICK: dict[str, Any] = {"epsilon": 4.0, "steps": 2, "hidden": 4, "device": "cpu", "progress": False}


def write_tables(folder: Path, header: str, cells: Any) -> Path:
    folder.mkdir(exist_ok=True)
    lines = [f"id,age,{header},split"]
    lines += [f"p{n},{20 + n},{cell},{SPLITS[n]}" for n, cell in enumerate(cells)]
    (folder / "nodes.csv").write_text("\n".join(lines) + "\n")
    (folder / "edges.csv").write_text(EDGES)
    return folder


def flag_cells() -> list[str]:
    """The same sets as columns of 0 and 1; an empty cell means no label."""
    return ["1,,0" if row[0] < 0 else ",".join(map(str, row)) for row in SETS]


@pytest.mark.parametrize("mark", [None, "|", ", ", "/"])
def test_a_column_of_lists_is_read_by_its_separator(tmp_path: Path, mark: str | None) -> None:
    cells = [f'"{cell.replace(";", mark or ";")}"' if cell else "" for cell in CELLS]
    folder = write_tables(tmp_path / "people", "genres", cells)
    columns: dict[str, Any] = {"label": "genres", "classes": GENRES}
    graph = load_graph(folder, columns=columns | ({} if mark is None else {"separator": mark}), task="labels")
    assert np.array_equal(graph.y, SETS)
    assert graph.task == Labels(num_labels=3)
    assert graph.columns is not None
    assert graph.columns.features == ("age",)
    # A separator says by itself that a node may have several labels.
    if mark is not None:
        assert load_graph(folder, columns=columns | {"separator": mark}).task == graph.task


def test_columns_of_0_and_1_name_their_labels(tmp_path: Path) -> None:
    header = ",".join(f"genre_{name}" for name in GENRES)
    folder = write_tables(tmp_path / "people", header, flag_cells())
    names = [f"genre_{name}" for name in GENRES]
    by_name = load_graph(folder, columns={"label": names})
    by_pattern = load_graph(folder, columns={"label": "genre_*"})
    mixed = load_graph(folder, columns={"label": ["genre_rock", "genre_*"]})
    for graph in (by_name, by_pattern, mixed):
        assert np.array_equal(graph.y, SETS)
        assert graph.columns is not None
        assert tuple(graph.columns.classes or ()) == tuple(names)
        assert graph.columns.features == ("age",)
        assert Columns.from_json(graph.columns.to_json()) == graph.columns
    words = [cell.replace("1", "yes").replace("0", "No") for cell in flag_cells()]
    assert np.array_equal(
        load_graph(write_tables(tmp_path / "words", header, words), columns={"label": names}).y, SETS
    )


def test_data_frames_have_lists_and_flags(tmp_path: Path) -> None:
    nodes = pd.DataFrame({"id": [f"p{n}" for n in range(8)], "age": range(8), "split": SPLITS})
    ends = pd.DataFrame(
        {"source": [f"p{n}" for n in range(8)], "target": [f"p{(n + 1) % 8}" for n in range(8)]}
    )
    lists = [None if cell == "" else [part for part in cell.split(";") if part] for cell in CELLS]
    how: dict[str, Any] = {"columns": {"label": "genres", "classes": GENRES}, "task": "labels"}
    assert np.array_equal(load_graph((nodes.assign(genres=lists), ends), **how).y, SETS)
    # A missing cell makes floats of a column of 0 and 1.
    flags = np.where(SETS < 0, np.nan, SETS)
    frame = nodes.assign(**{name: flags[:, place] for place, name in enumerate(GENRES)})
    assert np.array_equal(load_graph((frame, ends), columns={"label": list(GENRES)}).y, SETS)


@pytest.mark.parametrize("form", ["dense", "bool", "float", "sparse"])
def test_npz_files_hold_sets_dense_and_sparse(tmp_path: Path, form: str) -> None:
    sets = SETS.copy()
    if form == "bool":
        sets = np.maximum(sets, 0)
    stored: dict[str, Any] = {"y": sets}
    if form == "bool":
        stored = {"y": sets.astype(bool)}
    elif form == "float":
        stored = {"y": np.where(sets < 0, np.nan, sets)}
    elif form == "sparse":
        lists = [[-1] if row[0] < 0 else [*np.flatnonzero(row), 7] for row in sets]
        stored = {
            "y_indptr": np.concatenate([[0], np.cumsum([len(row) for row in lists])]),
            "y_indices": np.concatenate(lists),
        }
        with pytest.raises(GraphError, match=r"num_classes=None: y_indices does not say how many labels"):
            load_graph(save_npz(tmp_path / "without.npz", stored), task="labels")
        stored["num_classes"] = 3
    path = save_npz(tmp_path / "graph.npz", stored)
    graph = load_graph(path, task="labels")
    assert np.array_equal(graph.y, sets)
    with pytest.raises(
        GraphError, match="several labels for each node; expected one class; give task='labels'"
    ):
        load_graph(path)
    assert load_graph(path, labels=False).num_nodes == 8


def save_npz(path: Path, stored: dict[str, Any]) -> Path:
    edges = np.array([[0, 1, 2, 3], [1, 2, 3, 4]])
    np.savez(
        path, edge_index=edges, x=np.eye(8), train_idx=np.arange(4), val_idx=[4, 5], test_idx=[6, 7], **stored
    )
    return path


def test_pyg_data_holds_a_table_of_labels(tmp_path: Path) -> None:
    data = SimpleNamespace(
        edge_index=torch.tensor([[0, 1, 2, 3], [1, 2, 3, 4]]),
        x=torch.eye(8),
        y=torch.from_numpy(SETS).float(),
        train_mask=torch.arange(8) < 6,
        test_mask=torch.arange(8) >= 6,
    )
    assert np.array_equal(load_graph(data, task="labels").y, SETS)
    run = hg.train(data, task="labels", **QUICK)
    assert run.result["task"] == "labels"
    assert run.predict_proba(data).shape == (8, 3)
    torch.save(vars(data), tmp_path / "data.pt")
    assert np.array_equal(load_graph(tmp_path / "data.pt", task="labels").y, SETS)
    with pytest.raises(GraphError, match="give task='labels'"):
        hg.train(data, **QUICK)


@pytest.mark.parametrize("width", [1, 3, 40])
def test_sparse_and_dense_sets_are_the_same(width: int) -> None:
    rng = np.random.default_rng(width)
    sets = rng.integers(0, 2, (50, width))
    sets[rng.random(50) < 0.2] = -1
    lists = [[-1] if row[0] < 0 else np.flatnonzero(row) for row in sets]
    indptr = np.concatenate([[0], np.cumsum([len(row) for row in lists])])
    assert np.array_equal(read_sparse_sets(indptr, np.concatenate(lists).astype(int), width), sets)
    assert np.array_equal(read_sets(sets, width), sets)
    with pytest.raises(GraphError, match=rf"expected 0 or 1 for each label, \[nodes, {width + 1}\]"):
        read_sets(sets, width + 1)
    sets[3] = 2
    with pytest.raises(GraphError, match=r"y\[3, 0\]=2: expected 0, 1, or -1 for no label"):
        read_sets(sets)


def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    cells = [f'"{cell}"' if cell else "" for cell in CELLS]
    folder = write_tables(tmp_path / "people", "genres", cells)
    train = dict(QUICK, label="genres")
    for given, words in [
        ({"task": "labels"}, r"lists of labels, and no list of all labels; name them \(--classes a,b,c\)"),
        ({"task": "labels", "classes": GENRES, "rare": True}, "rare with task='labels': it is for one class"),
        (
            {"separator": ";", "classes": GENRES, "class_weight": {"rock": 0.1}},
            "class_weight with task='labels'",
        ),
        (
            {"separator": ";", "classes": GENRES, "task": "binary"},
            "task='binary': the data has 3 labels of which",
        ),
        (
            {"separator": ";", "classes": GENRES, "bounds": (0, 1)},
            "classes with task='number': a number has no classes",
        ),
        ({"separator": ";", "bounds": (0, 1)}, "a number is one column; leave out separator"),
        ({"task": "labels", "classes": GENRES, "bounds": (0, 1)}, "bounds belong to task='number'"),
        ({"label": ["genres", "age"], "separator": ";"}, "it is for one column of lists; leave out one"),
        ({"label": ["genres", "age"], "classes": GENRES}, "the columns name the labels; leave out classes"),
        ({"label": ["genres"]}, r"'rock;jazz' is not 0 or 1; correct it"),
        (
            {"label": "genre_*"},
            r"label='genre_\*': no column of the table matches; did you mean",
        ),
        ({"label": ["genres", "genres"]}, "label holds 'genres' more than once"),
    ]:
        with pytest.raises(InputError, match=words):
            hg.train(folder, **{**train, **given})
    with pytest.raises(
        InputError, match="task='labels': the data is about 10 classes; expected sets of labels"
    ):
        hg.train("generated-100", task="labels", **QUICK)
    with pytest.raises(
        InputError, match="task='number': the data is about 10 classes; leave out task and bounds"
    ):
        hg.train("generated-100", task="number", bounds=(0, 1), **QUICK)
    networkx = pytest.importorskip("networkx")
    with pytest.raises(InputError, match=r"sets of labels are read from tables, \.npz and PyG"):
        hg.train(networkx.path_graph(3), task="labels", **QUICK)
    with pytest.raises(InputError, match=r"y_indptr: expected values increasing from 0 to 2"):
        load_graph(save_npz(tmp_path / "bad.npz", {"y_indptr": [0, 5], "y_indices": [0, 1]}), task="labels")


@pytest.mark.parametrize(
    ("header", "mark", "flags"),
    [
        ("genres", ";", "--label genres"),
        ("genres", "|", "--label genres"),
        ("a_x,a_y,a_z", "", "--label 'a_*'"),
    ],
)
def test_what_check_proposes_runs_as_printed(
    header: str,
    mark: str,
    flags: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(3)
    sets = rng.integers(0, 2, (40, 3))
    lists = [mark.join(np.array(GENRES)[row > 0]) or mark for row in sets]
    cells = [",".join(map(str, row)) for row in sets] if not mark else [f'"{each}"' for each in lists]
    lines = [f"id,age,{header}"] + [f"p{n},{n % 9},{cell}" for n, cell in enumerate(cells)]
    Path("people").mkdir()
    Path("people/nodes.csv").write_text("\n".join(lines) + "\n")
    Path("people/edges.csv").write_text(
        "source,target\n" + "".join(f"p{n},p{(n + k) % 40}\n" for n in range(40) for k in (1, 3))
    )
    assert main(["check", "people", *shlex.split(flags)]) == 0
    shown = capsys.readouterr().out
    command = next(line for line in shown.splitlines() if line.startswith("Next: ")).removeprefix("Next: ")
    if mark:
        assert "3 different ones ('jazz', 'pop', 'rock', ...)" in shown
        assert "--task labels --classes jazz,pop,rock" in command
        assert "--looked-up classes,task" in command
        assert ("--separator" in command) == (mark != ";")
    assert main([*shlex.split(command)[1:], "--steps", "2", "--out", "run", "--quiet"]) == 0
    run = hg.Run.load("run")
    assert run.folder.task == Labels(num_labels=3)
    codes = {each["code"] for each in run.result["assumptions"]}
    assert ({"classes-looked-up", "task-looked-up"} <= codes) == bool(mark)
    assert sorted(run.classes) == sorted(GENRES if mark else ("a_x", "a_y", "a_z"))


def test_check_says_what_lists_hold(tmp_path: Path) -> None:
    cells = [f'"{cell}"' if cell else "" for cell in (*CELLS, *CELLS)]
    lines = ["id,age,genres"] + [f"p{n},{n},{cell}" for n, cell in enumerate(cells)]
    (tmp_path / "nodes.csv").write_text("\n".join(lines) + "\n")
    (tmp_path / "edges.csv").write_text(EDGES)
    checked = hg.check(tmp_path, columns={"label": "genres"})
    assert checked.asked["task"] == "labels"
    assert checked.declared["classes"] == ["jazz", "polka", "pop", "rock"]
    declared = hg.check(tmp_path, columns={"label": "genres", "classes": list(GENRES)})
    assert declared.can_train
    assert declared.asked["task"] == "labels"
    assert declared.looked_up == ("task",)
    texts = [problem.to_text() for problem in declared.problems]
    assert any(
        "4 labels of lists are not among the 3 declared; left out of their lists" in text for text in texts
    )
    flags = write_tables(tmp_path / "flags", ",".join(GENRES), [*flag_cells()[:-1], "1,2,0"])
    wrong = hg.check(flags, columns={"label": list(GENRES)})
    assert not wrong.can_train
    assert any("1 cell is neither 0 nor 1" in problem.what for problem in wrong.problems)


def test_a_row_decides_nothing_about_the_sets_of_others(tmp_path: Path) -> None:
    """Whatever one row holds, the others are read as before and the number of labels stays."""
    cells = [f'"{cell}"' if cell else "" for cell in CELLS]
    how: dict[str, Any] = {"columns": {"label": "genres", "classes": GENRES}, "task": "labels"}
    for number, odd in enumerate(('"new;rock"', '""', '";;;"', '"[]"', "rock", '"rock;' + "x" * 500 + '"')):
        changed = [*cells[:3], odd, *cells[4:]]
        graph = load_graph(write_tables(tmp_path / f"people{number}", "genres", changed), **how)
        others = np.delete(np.arange(8), 3)
        assert np.array_equal(graph.y[others], SETS[others])
        assert graph.task == Labels(num_labels=3)
