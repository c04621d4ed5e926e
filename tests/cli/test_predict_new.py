"""`hushgraph predict` of a billboard run: what it says, and bad input in one line with nothing written."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hushgraph as hg
from hushgraph import Graph

pytestmark = pytest.mark.usefixtures("own_folder")
Run = Callable[..., tuple[int, str, str]]
NEW = "id,f,g\nn0,0.5,1\nn1,-1,2\n"
LISTS = "source,target\nn0,p1\nn0,p2\nn1,p3\nn1,nobody\n"
TRAIN = ["--epsilon", "4", "--steps", "4", "--hidden", "4", "--device", "cpu", "--out", "run", "--quiet"]


def people(graph: Graph, path: Path) -> None:
    """Write a graph as two tables."""
    split = np.full(graph.num_nodes, "", object)
    for name in ("train", "val", "test"):
        split[getattr(graph, f"{name}_idx")] = name
    rows = [f"p{n},{graph.x[n, 0]},{graph.x[n, 1]},{graph.y[n]},{split[n]}" for n in range(graph.num_nodes)]
    source, target = next(graph.edge_chunks())
    path.mkdir()
    (path / "nodes.csv").write_text("\n".join(["id,f,g,label,split", *rows]) + "\n")
    ends = [f"p{u},p{w}" for u, w in zip(source, target, strict=True)]
    (path / "edges.csv").write_text("\n".join(["source,target", *ends]) + "\n")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the tables `data` and the run `run`; and `other`, a run with another board."""
    path = tmp_path_factory.mktemp("trained")
    people(hg.datasets.synthetic(num_nodes=80, num_classes=3, num_features=2, seed=1), path / "data")
    for name, epsilon in (("run", 4.0), ("other", 3.0)):
        hg.train(path / "data", epsilon=epsilon, steps=4, hidden=4, device="cpu", out=path / name)
    return path


@pytest.fixture
def here(trained: Path, tmp_path: Path) -> Path:
    """The working folder, with a copy of everything and with two new nodes."""
    shutil.copytree(trained, tmp_path, dirs_exist_ok=True)
    (tmp_path / "new.csv").write_text(NEW)
    (tmp_path / "lists.csv").write_text(LISTS)
    return tmp_path


PREDICT = ("predict", "run", "new.csv", "--edges", "lists.csv", "--new", "--out", "p.csv")


def test_new_nodes_are_covered_and_free(run: Run, here: Path) -> None:
    ledger = (here / "run/ledger.jsonl").read_bytes()
    code, out, err = run(*PREDICT)
    assert (code, err) == (0, "")
    assert out.startswith("2 predictions in p.csv. ")
    assert "\npredictions: covered towards everybody else\n" in out
    assert "skipped: 1 ('nobody')" in out
    lines = (here / "p.csv").read_text().splitlines()
    assert lines[0] == "id,class"
    assert [line.split(",")[0] for line in lines[1:]] == ["n0", "n1"]
    assert (here / "run/ledger.jsonl").read_bytes() == ledger


def test_a_fresh_command_loads_no_kernel_and_ends_in_silence(here: Path) -> None:
    """Loading one takes half a second; DuckDB would list what is not collected when the process ends."""
    code = """
import runpy, sys
try:
    runpy.run_module("hushgraph", run_name="__main__")
finally:
    # What numba needs for any kernel on arrays.
    assert "numba.np.arrayobj" not in sys.modules
"""
    command = [sys.executable, "-c", code, *PREDICT, "--force", "--quiet"]
    done = subprocess.run(command, cwd=here, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_new_nodes_in_json(run: Run, here: Path) -> None:
    code, out, _ = run(*PREDICT, "--probabilities", "--json")
    assert code == 0
    assert json.loads(out.splitlines()[-1]) == {
        "out": "p.csv",
        "run": "run",
        "probabilities": True,
        "nodes": 2,
        "task": "classes",
        "classes": 3,
        "predictions": "covered towards everybody else",
        "covered": True,
        "new": True,
        "unknown_places": 1,
        "unknown_names": ["nobody"],
        "edges_skipped": 0,
    }


def test_nodes_of_the_graph_are_covered_unless_read_in_the_clear(run: Run, here: Path) -> None:
    code, out, _ = run("predict", "run", "data", "--out", "p.csv")
    assert (code, "predictions: covered towards everybody else" in out) == (0, True)
    assert len((here / "p.csv").read_text().splitlines()) == 81
    code, out, _ = run("predict", "run", "data", "--out", "clear.csv", "--in-the-clear")
    assert (code, "predictions: not covered" in out) == (0, True)


def test_a_node_that_lists_itself_and_repeats_change_nothing(run: Run, here: Path) -> None:
    assert run(*PREDICT, "--probabilities")[0] == 0
    before = (here / "p.csv").read_text()
    (here / "lists.csv").write_text(LISTS + "n0,n0\nn0,p1\nn1,p3\n")
    assert run(*PREDICT, "--probabilities", "--force")[0] == 0
    assert (here / "p.csv").read_text() == before


def spoil_board(here: Path) -> None:
    board = here / "run/board-1.safetensors"
    content = bytearray(board.read_bytes())
    content[-1] ^= 1
    board.write_bytes(bytes(content))


def use_arrays(here: Path) -> None:
    (here / "new.csv").write_text("id,f,g\nn0,x,1\n")


BAD: dict[str, tuple[Callable[[Path], Any], str]] = {
    "unknown to the board": (
        lambda here: (here / "lists.csv").write_text("source,target\nn0,q1\n"),
        "none of the 1 listed places is on the board: 'q1'",
    ),
    "on the board": (lambda here: (here / "new.csv").write_text("id,f,g\np4,0,0\n"), "on the board already"),
    "board of another run": (
        lambda here: shutil.copy(here / "other/board-1.safetensors", here / "run/board-1.safetensors"),
        "the file of board-1 is not the one that this run released",
    ),
    "damaged board": (spoil_board, "board-1.safetensors is damaged"),
    "no board": (
        lambda here: (here / "run/board-1.safetensors").unlink(),
        "board-1.safetensors cannot be read",
    ),
    "other features": (
        lambda here: (here / "new.csv").write_text("id,f,h\nn0,1,1\n"),
        "no column 'g'",
    ),
    "no number": (use_arrays, "'x' is not a number"),
    "no edges": (lambda here: (here / "lists.csv").unlink(), "lists.csv: no such file"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_refused_in_one_line(run: Run, here: Path, case: str) -> None:
    spoil, words = BAD[case]
    spoil(here)
    before = sorted(here.rglob("*"))
    code, out, err = run(*PREDICT)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("hushgraph: ")
    assert words in err
    assert sorted(here.rglob("*")) == before


def test_new_nodes_without_the_flag_are_another_graph(run: Run, here: Path) -> None:
    (here / "new.csv").write_text("id,f,g,label,split\nn0,0.5,1,0,train\nn1,-1,2,1,test\np1,0,0,0,\n")
    (here / "lists.csv").write_text("source,target\nn0,p1\n")
    code, out, err = run("predict", "run", "new.csv", "--edges", "lists.csv", "--out", "p.csv")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "predict --new" in err
    assert not (here / "p.csv").exists()


def arrays(**changes: Any) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    given = {
        "edge_index": rng.integers(40, size=(2, 120)),
        "x": rng.random((40, 3)),
        "y": rng.integers(3, size=40),
        "train_idx": np.arange(20),
        "val_idx": np.arange(20, 30),
        "test_idx": np.arange(30, 40),
    }
    return {key: value for key, value in (given | changes).items() if value is not None}


NO_TRAINING_LABELS = np.where(np.arange(40) < 20, -1, np.arange(40) % 3)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"y": NO_TRAINING_LABELS}, "no training node has a label"),
        ({"y": np.full(40, -1)}, "y holds no label"),
        ({"y": None}, "missing y"),
        ({"y": np.zeros(40, int)}, "expected 2 or more"),
    ],
)
def test_nothing_to_learn_is_refused_in_one_line(
    run: Run, tmp_path: Path, changes: dict[str, Any], words: str
) -> None:
    np.savez("data.npz", **arrays(**changes))
    code, out, err = run("train", "data.npz", *TRAIN)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert words in err
    assert [path.name for path in tmp_path.iterdir()] == ["data.npz"]


def test_with_named_classes_no_label_decides_whether_there_is_a_run(run: Run) -> None:
    np.savez("data.npz", **arrays(y=NO_TRAINING_LABELS))
    assert run("train", "data.npz", "--num-classes", "3", *TRAIN)[0] == 0


def test_self_loops_and_repeats_are_trained_on(run: Run) -> None:
    edges = np.random.default_rng(0).integers(40, size=(2, 60))
    edges = np.concatenate([edges, edges, np.tile(np.arange(40), (2, 1))], axis=1)
    np.savez("data.npz", **arrays(edge_index=edges))
    assert run("train", "data.npz", *TRAIN)[0] == 0
    assert run("predict", "run", "data.npz", "--out", "p.csv")[0] == 0
