"""What is exported gives the predictions of the run, served by the very lines of its README."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pytest

import hushgraph as hg
from hushgraph import Graph
from hushgraph.cli.app import main
from hushgraph.errors import InputError, RunError
from hushgraph.export.bundle import export_run
from hushgraph.tasks.labels import Labels
from hushgraph.tasks.number import Number
from hushgraph.tasks.two_classes import TwoClasses
from hushgraph.training.parts import Parts
from own_parts import train_with

pytest.importorskip("onnx", reason="onnx is not installed: pip install 'hushgraph[export]'")
pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: pip install 'hushgraph[export]'")

NODES, FEATURES = 90, 5
SETTINGS: dict[str, Any] = {"epsilon": 4.0, "steps": 4, "hidden": 6, "device": "cpu"}
RNG = np.random.default_rng(5)
LABELS: dict[str, tuple[Any, Any]] = {
    "classes": (None, RNG.integers(4, size=NODES)),
    "binary": (TwoClasses(), RNG.integers(2, size=NODES)),
    "rare": (TwoClasses(positive=0, rare=True), (RNG.random(NODES) > 0.2).astype(np.int64)),
    "labels": (Labels(num_labels=3), RNG.integers(2, size=(NODES, 3))),
    "number": (Number(low=-20.0, high=50.0), RNG.uniform(-1, 1, NODES).astype(np.float32)),
}


def make_graph(task: str) -> Graph:
    ends = RNG.integers(NODES, size=(2, 400))
    return Graph.from_arrays(
        edge_index=np.unique(ends[:, ends[0] != ends[1]], axis=1),
        x=RNG.normal(size=(NODES, FEATURES)).astype(np.float32),
        y=LABELS[task][1],
        task=LABELS[task][0],
        train_idx=np.arange(60),
        val_idx=np.arange(60, 75),
        test_idx=np.arange(75, NODES),
    )


def read_code(folder: Path) -> str:
    """The lines of Python in the README of an export."""
    blocks = re.findall(r"```python\n(.*?)```", (folder / "README.md").read_text(), re.DOTALL)
    code = "\n".join(blocks)
    assert "hushgraph" not in code
    return code


def serve(folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The functions of the README, run in the folder."""
    monkeypatch.chdir(folder)
    names: dict[str, Any] = {}
    exec(read_code(folder), names)
    return names


def make_lists(rows: int) -> list[list[int]]:
    """Lists with repeats, with places that there are not, and an empty one."""
    return [[], *(RNG.integers(NODES + 10, size=RNG.integers(1, 9)).tolist() for _ in range(rows - 1))]


def compare(served: Any, expected: Any) -> None:
    scale = max(1.0, float(np.abs(expected).max()))
    np.testing.assert_allclose(served / scale, expected / scale, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("boards", "more"), [(2, {}), (1, {"list_size": 0.5, "own_place": True, "activation": "relu"})]
)
@pytest.mark.parametrize("task", LABELS)
def test_every_task_is_served_as_by_the_run(
    task: str, boards: int, more: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = make_graph(task)
    run = train_with(Parts(), graph, tmp_path / "run", num_boards=boards, **SETTINGS, **more)
    exported = serve(run.export(tmp_path / "served"), monkeypatch)
    for rows in (1, 40):
        x, lists = RNG.normal(size=(rows, FEATURES)).astype(np.float32), make_lists(rows)
        compare(exported["predict"](x, lists), run.predict_new(x, lists)[0])
    rules = exported["rules"]
    assert len(rules["output_names"]) == run.folder.task.num_outputs
    assert rules["reading"]["places"] == NODES
    assert rules["privacy"]["epsilon"] == run.epsilon


PHONES = [f"phone{number}" for number in range(9)]
RECORDS: dict[str, dict[str, Any]] = {
    "weights": {"edge_weight": "amount:log1p"},
    "counts": {"edge_weight": "count"},
    "relations": {"relation": {"kind": ["calls", "pays"]}},
    "places": {"places": PHONES, "edge_weight": "amount:sqrt"},
    "hashed": {"places": "hash:7"},
    "all": {
        "relation": {"kind": ["calls", "pays"]},
        "places": PHONES,
        "edge_weight": "amount",
        "person": "whose",
    },
}


@pytest.mark.parametrize("boards", [1, 2])
@pytest.mark.parametrize("kind", RECORDS)
def test_records_are_served_as_by_the_run(
    kind: str, boards: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights, also those that count as 0, relations, places that are not people, persons, repeats."""
    people = np.array([f"p{n}" for n in range(NODES)])
    own = {"classes": ["0", "1", "2"], "features": ["a", "b"], "ignore": [] if kind == "all" else ["whose"]}
    nodes = pd.DataFrame({"id": people, "a": RNG.normal(size=NODES), "b": RNG.normal(size=NODES)})
    nodes = nodes.assign(
        label=RNG.integers(3, size=NODES).astype(str), whose=[f"h{n // 2}" for n in range(NODES)]
    )
    edges = pd.DataFrame({"source": RNG.choice(people, 500), "target": RNG.choice([*people, *PHONES], 500)})
    edges = edges.assign(amount=RNG.lognormal(size=500), kind=RNG.choice(["calls", "pays"], 500))
    run = train_with(
        Parts(),
        (nodes, edges),
        tmp_path / "run",
        num_boards=boards,
        columns=own | RECORDS[kind],
        unknown_ids="drop",
        list_size=0.5,
        own_place=True,
        split="0.6/0.2/0.2",
        **SETTINGS,
    )
    exported = serve(run.export(tmp_path / "served"), monkeypatch)
    x = RNG.normal(size=(3, 2)).astype(np.float32)
    names = {
        each.name: PHONES if each.kind == "places" else people if each.kind == "nodes" else ["x", "y", "z", 7]
        for each in run.folder.load_boards()[0].blocks
    }
    lists = {
        name: [RNG.choice([*known, "nobody"], 6).tolist(), [], [known[0], known[0], known[1]]]
        for name, known in names.items()
    }
    compare(exported["predict"](x, lists), run.predict_new(x, lists)[0])
    if "edge_weight" in RECORDS[kind]:
        weights = {name: [[*RNG.lognormal(size=3), -3, np.nan, 0], [], [1, 2, 3e4]] for name in names}
        compare(exported["predict"](x, lists, weights), run.predict_new(x, lists, weights=weights)[0])
    if len(names) > 1:
        del lists[next(iter(names))]
        compare(exported["predict"](x, lists), run.predict_new(x, lists)[0])


@pytest.mark.parametrize("task", LABELS)
def test_a_private_mlp_takes_features_alone(
    task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = make_graph(task)
    run = hg.train(graph, model="mlp", encoder_layers=2, decoder_layers=2, out=tmp_path / "run", **SETTINGS)
    place = export_run(tmp_path / "run" / "release", tmp_path / "served")
    assert sorted(file.name for file in place.iterdir()) == ["README.md", "model.onnx", "rules.json"]
    compare(serve(place, monkeypatch)["predict"](graph.x), run.predict_proba(graph))


COLUMNS: dict[str, Any] = {
    "id": "person",
    "label": "school",
    "classes": ["a", "b", "c"],
    "categorical": {"city": ["Oslo", "Bergen"], "air": ["x"]},
    "hashed": {"job": 7},
    "missing": ["NA"],
    "fill": {"height": 1.5, "income": 0},
    "indicators": ["height"],
    "scale": {"age": {"centre": 40, "spread": 10}},
}


def make_tables(unknown: str) -> tuple[pd.DataFrame, pd.DataFrame, dict[str, Any]]:
    rng = np.random.default_rng(7)
    nodes = pd.DataFrame(
        {
            "person": [f"p{n}" for n in range(NODES)],
            "age": rng.integers(18, 90, NODES),
            "height": [None if n % 7 == 0 else round(rng.normal(1.7, 0.1), 2) for n in range(NODES)],
            "income": rng.lognormal(10, 1, NODES).round(2),
            "city": [("Oslo", "Bergen", "NA", None)[n % 4] for n in range(NODES)],
            "air": "x",
            "job": [None if n % 9 == 0 else f"job {n % 11}" for n in range(NODES)],
            "school": rng.choice(["a", "b", "c"], NODES),
            "split": np.repeat(["train", "val", "test"], [60, 15, 15]),
        }
    )
    ends = rng.integers(NODES, size=(2, 300))
    edges = pd.DataFrame(
        {"source": nodes["person"].to_numpy()[ends[0]], "target": nodes["person"].to_numpy()[ends[1]]}
    )
    return nodes, edges, COLUMNS | {"unknown_category": unknown}


@pytest.mark.parametrize("numbers", ["private", "declared", "as-is"])
@pytest.mark.parametrize("unknown", ["refuse", "zeros", "other"])
def test_rows_of_tables_are_encoded_by_the_readme(
    numbers: str, unknown: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes, edges, columns = make_tables(unknown)
    run = train_with(
        Parts(),
        (nodes, edges),
        tmp_path / "run",
        columns=columns,
        numbers=numbers,
        unknown_ids="drop",
        **SETTINGS,
    )
    exported = serve(run.export(tmp_path / "served"), monkeypatch)
    new = nodes.head(20).drop(columns=["school", "split"]).assign(person=[f"n{n}" for n in range(20)])
    if unknown != "refuse":
        new.loc[3, "city"] = "Rome"
    lists = edges.head(60).assign(source=[f"n{n % 20}" for n in range(60)])
    expected = run.predict_table((new, lists), new=True)
    x = np.stack([exported["encode"](row) for row in new.to_dict("records")])
    listed = [lists["target"][lists["source"] == name].tolist() for name in new["person"]]
    compare(exported["predict"](x, listed), expected.probabilities)
    if unknown == "refuse":
        with pytest.raises(ValueError, match="Rome"):
            exported["encode"](new.iloc[3].to_dict() | {"city": "Rome"})


def test_rules_say_how_cells_become_numbers(tmp_path: Path) -> None:
    nodes, edges, columns = make_tables("refuse")
    nodes["height"] = "1,5"
    nodes["share"], nodes["member"], nodes["born"] = "12,5 %", "yes", "03.04.1990"
    columns |= {"decimal": ",", "percent": ["share"], "booleans": ["member"], "fill": {}, "indicators": []}
    columns |= {"dates": {"born": "2000-01-01"}, "date_format": "%d.%m.%Y", "cycles": {"born": ["month"]}}
    nodes["age"], nodes["income"] = nodes["age"].astype(str), "7"
    run = hg.train((nodes, edges), columns=columns, out=tmp_path / "run", **SETTINGS)
    rules = json.loads((run.export(tmp_path / "served") / "rules.json").read_text())
    told = {(each["column"], each["kind"]): each.get("rule", "") for each in rules["features"]}
    assert told["share", "number"] == "',' stands before decimals; what ends in % is divided by 100"
    assert told["born", "number"].startswith("days since 2000-01-01")
    assert "%d.%m.%Y" in told["born", "number"]
    assert told["born", "cycle"].startswith("sin and cos of 2 pi month / 12")
    assert told["member", "number"] == "1 for true and yes, 0 for false and no"
    widths = [each["first"] for each in rules["features"]]
    assert widths == sorted(widths)
    assert rules["num_features"] == run.folder.num_features == widths[-1] + 2


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> hg.Run:
    nodes, edges, columns = make_tables("refuse")
    place = tmp_path_factory.mktemp("exported") / "run"
    return hg.train((nodes, edges), columns=columns, out=place, **SETTINGS)


def read_all(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted(folder.iterdir())}


def test_the_release_alone_is_enough(run: hg.Run, tmp_path: Path) -> None:
    shutil.copytree(run.folder.path / "release", tmp_path / "published")
    from_run = read_all(export_run(run.folder.path, tmp_path / "a"))
    from_release = read_all(export_run(tmp_path / "published", tmp_path / "b"))
    assert from_run == from_release
    assert sorted(from_run) == ["README.md", "board.parquet", "model.onnx", "rules.json"]


def test_the_command_writes_the_same(run: hg.Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", str(run.folder.path), "--out", str(tmp_path / "a"), "--json"]) == 0
    said = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert said["files"] == ["README.md", "board.parquet", "model.onnx", "rules.json"]
    assert read_all(tmp_path / "a") == read_all(run.export(tmp_path / "b"))
    assert main(["export", str(run.folder.path), "--out", str(tmp_path / "a")]) == 2
    assert "not an empty folder" in capsys.readouterr().err


def test_nothing_but_what_was_released_is_in_it(run: hg.Run, tmp_path: Path) -> None:
    """Guarantees: every file is a function of files of the release."""
    place = run.export(tmp_path / "served")
    text = (place / "rules.json").read_text() + (place / "README.md").read_text()
    released = "".join(file.read_text() for file in (run.folder.path / "release").glob("*.json"))
    numbers = set(re.findall(r"-?\d+\.\d{4,}(?:e[+-]?\d+)?", (place / "rules.json").read_text()))
    parts = json.loads((place / "rules.json").read_text())["reading"]["board"]
    computed = {repr(parts["noise_std"]), *map(repr, parts["parts"])}
    assert numbers - computed
    assert all(each in released for each in numbers - computed)
    for word in ("seconds", "device", str(tmp_path), str(run.folder.path), os.uname().nodename, "steps_lost"):
        assert word not in text, word
    board = duckdb.sql(f"SELECT * FROM '{place / 'board.parquet'}'").fetchnumpy()
    assert board["place"].tolist() == [f"p{n}" for n in range(NODES)]
    assert list(board) == ["place", "weight", "n0", "n1", "n2"]


def test_the_lines_need_no_hushgraph(run: hg.Run, tmp_path: Path) -> None:
    place = run.export(tmp_path / "served")
    # A module of that name that cannot be imported stands in front of the installed one.
    (tmp_path / "hushgraph.py").write_text("raise ImportError('not here')")
    row = {"age": 41, "height": 1.8, "income": 3e4, "city": "Oslo", "air": "x", "job": "job 3"}
    code = read_code(place) + f"\nprint(json.dumps(predict([encode({row})], [['p1', 'p5', 'zoe']]).tolist()))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=place,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    nodes = pd.DataFrame([{"person": "new", **row}])
    lists = pd.DataFrame({"source": "new", "target": ["p1", "p5", "zoe"]})
    expected = run.predict_table((nodes, lists), new=True).probabilities
    compare(np.array(json.loads(done.stdout.splitlines()[-1])), expected)


def test_a_run_without_a_release_is_refused_with_the_reason(tmp_path: Path) -> None:
    graph = make_graph("classes")
    hg.train(graph, seed=1, out=tmp_path / "seeded", **SETTINGS)
    with pytest.raises(RunError, match=r"its guarantee does not hold, so nothing of it .* seed"):
        export_run(tmp_path / "seeded", tmp_path / "a")
    hg.train(graph, out=tmp_path / "run", **SETTINGS)
    shutil.rmtree(tmp_path / "run" / "release")
    with pytest.raises(RunError, match=r"it has no release, .* hushgraph release"):
        export_run(tmp_path / "run", tmp_path / "a")
    assert not (tmp_path / "a").exists()


def test_predictions_that_read_neighbours_are_refused(tmp_path: Path) -> None:
    hg.train(make_graph("classes"), method="trees", max_readers=4, out=tmp_path / "run", **SETTINGS)
    with pytest.raises(RunError, match="its predictions read the features of neighbours"):
        export_run(tmp_path / "run", tmp_path / "a")


def test_a_folder_that_is_not_empty_is_left_alone(run: hg.Run, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("kept")
    with pytest.raises(InputError, match="not an empty folder"):
        run.export(tmp_path)
    assert (tmp_path / "mine").read_text() == "kept"


def test_what_is_not_installed_names_its_extra(
    run: hg.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(InputError, match=r"pip install 'hushgraph\[export\]'"):
        run.export(tmp_path / "a")
    assert list(tmp_path.iterdir()) == []
