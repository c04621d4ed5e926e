"""Runs in MLflow: loaded and served models predict as the run, and only what was released is logged."""

from __future__ import annotations

import json
import re
import socket
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import hushgraph as hg
from hushgraph import Graph
from hushgraph.errors import InputError, RunError
from hushgraph.tasks.labels import Labels
from hushgraph.tasks.number import Number
from hushgraph.tasks.two_classes import TwoClasses
from hushgraph.training.tracking import ServedRun

mlflow = pytest.importorskip("mlflow", reason="mlflow is not installed: pip install 'hushgraph[mlflow]'")

# MLflow's and its dependencies' own.
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore:.*is inferred as AnyType:UserWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
NODES, FEATURES = 90, 4
SETTINGS: dict[str, Any] = {"epsilon": 4.0, "steps": 3, "hidden": 4, "device": "cpu"}
RNG = np.random.default_rng(5)
LABELS: dict[str, tuple[Any, Any]] = {
    "classes": (None, RNG.integers(4, size=NODES)),
    "binary": (TwoClasses(), RNG.integers(2, size=NODES)),
    "rare": (TwoClasses(rare=True), (RNG.random(NODES) < 0.2).astype(np.int64)),
    "labels": (Labels(num_labels=3), RNG.integers(2, size=(NODES, 3))),
    "number": (Number(low=-20.0, high=50.0), RNG.uniform(-1, 1, NODES).astype(np.float32)),
}


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty store of MLflow, which is a folder."""
    place = tmp_path / "store"
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.chdir(tmp_path)
    mlflow.set_tracking_uri(place.as_uri())
    return place


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


def make_frame(x: Any, lists: list[list[int]]) -> pd.DataFrame:
    return pd.DataFrame(x, columns=[f"x{number}" for number in range(FEATURES)]).assign(places=lists)


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize("task", LABELS)
def test_a_loaded_model_predicts_as_the_run(task: str, tmp_path: Path) -> None:
    run = hg.train(make_graph(task), out=tmp_path / "run", **SETTINGS)
    model = mlflow.pyfunc.load_model(run.log_mlflow())
    x, lists = RNG.normal(size=(3, FEATURES)).astype(np.float32), [[1, 2, 999], [], [4]]
    shown = model.predict(make_frame(x, lists))
    expected, _ = run.predict_new(x, lists)
    columns = run.folder.task.tabulate(expected, np.arange(expected.shape[1]), with_scores=True, label=None)
    assert list(shown) == list(columns)
    for name, values in columns.items():
        assert np.array_equal(shown[name].to_numpy(), values), name


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize("kind", ["weights", "relations", "places"])
def test_records_are_served_as_by_the_run(kind: str, tmp_path: Path) -> None:
    records: dict[str, dict[str, Any]] = {
        "weights": {
            "edge_weight": "amount:log1p",
            "edge_date": "day",
            "since": "2024-01-01",
            "date_format": {"day": "%d.%m.%Y"},
        },
        "relations": {"relation": {"kind": ["calls", "pays"]}, "edge_weight": "amount"},
        "places": {"places": "hash:7"},
    }
    nodes, edges = make_tables()
    edges = edges.assign(
        amount=RNG.lognormal(size=len(edges)),
        kind=RNG.choice(["calls", "pays"], len(edges)),
        day="05.01.2024",
    )
    if kind == "places":
        edges.loc[::2, "target"] = [f"phone{n % 9}" for n in range(len(edges.loc[::2]))]
    columns = {"id": "person", "label": "school", "classes": ["a", "b"], "fill": 0, "ignore": ["city", "job"]}
    run = hg.train((nodes, edges), columns=columns | records[kind], out=tmp_path / "run", **SETTINGS)
    model = mlflow.pyfunc.load_model(run.log_mlflow())
    names = {"weights": ["people"], "relations": ["calls", "pays"], "places": ["people", "places"]}[kind]
    lists = {name: [["p1", "p2", "p1"], [], ["p7"]] for name in names}
    weights = {name: [[1.0, 20.0, 0.5], [], [3.0]] for name in names}
    x = pd.DataFrame({"age": [20.0, 30, 40], "height": [1.5, 1.8, 1.9]})
    given = {"weights": weights} if kind != "places" else {}
    expected, _ = run.predict_new(x.to_numpy(), lists, **given)

    def put(table: dict[str, Any]) -> list[Any]:
        cells = [{name: rows[row] for name, rows in table.items()} for row in range(3)]
        return [each["people"] for each in cells] if kind == "weights" else cells

    frame = x.assign(places=put(lists), **{name: put(table) for name, table in given.items()})
    assert np.array_equal(model.predict(frame).select_dtypes("float").to_numpy(), expected)
    alone = model.predict(x).select_dtypes("float").to_numpy()
    assert not np.array_equal(alone, expected)
    if kind != "weights":
        with pytest.raises(
            InputError, match="row 0, column places: found 'p1'; expected a dictionary of lists"
        ):
            ServedRun(run).predict(x.assign(places=[["p1"]] * 3))


@pytest.mark.usefixtures("store")
def test_a_private_mlp_takes_features_alone(tmp_path: Path) -> None:
    graph = make_graph("classes")
    run = hg.train(graph, model="mlp", out=tmp_path / "run", **SETTINGS)
    model = mlflow.pyfunc.load_model(run.log_mlflow())
    frame = make_frame(graph.x, [[]] * NODES).drop(columns="places")
    assert np.array_equal(model.predict(frame).select_dtypes("float").to_numpy(), run.predict_proba(graph))


def make_tables() -> tuple[pd.DataFrame, pd.DataFrame]:
    rng = np.random.default_rng(3)
    nodes = pd.DataFrame(
        {
            "person": [f"p{n}" for n in range(NODES)],
            "age": rng.integers(18, 90, NODES),
            "height": [None if n % 7 == 0 else round(rng.normal(1.7, 0.1), 2) for n in range(NODES)],
            "city": [("Oslo", "Bergen", None)[n % 3] for n in range(NODES)],
            "job": [f"job {n % 11}" for n in range(NODES)],
            "school": rng.choice(["a", "b"], NODES),
            "split": np.repeat(["train", "val", "test"], [60, 15, 15]),
        }
    )
    ends = rng.integers(NODES, size=(2, 300))
    names = nodes["person"].to_numpy()
    return nodes, pd.DataFrame({"source": names[ends[0]], "target": names[ends[1]]})


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> hg.Run:
    return hg.train(
        make_tables(),
        columns={
            "id": "person",
            "label": "school",
            "classes": ["a", "b"],
            "categorical": {"city": ["Oslo", "Bergen"]},
            "hashed": {"job": 7},
            "fill": {"height": 1.5},
        },
        out=tmp_path_factory.mktemp("somewhere-private") / "run",
        exact_figures=True,
        **SETTINGS,
    )


ROWS = [
    {"age": 41, "height": None, "city": "Oslo", "job": "job 3", "places": ["p1", "p5", "zoe"]},
    {"age": 20, "height": 1.9, "city": None, "job": None, "places": []},
]


def predict_rows(run: hg.Run) -> Any:
    nodes = pd.DataFrame(ROWS).drop(columns="places").assign(person=["n0", "n1"])
    lists = pd.DataFrame({"source": "n0", "target": ROWS[0]["places"]})
    return run.predict_table((nodes, lists), new=True).probabilities


@pytest.mark.usefixtures("store")
def test_a_served_model_answers_over_http(run: hg.Run) -> None:
    import uvicorn
    from mlflow.pyfunc import scoring_server

    app = scoring_server.init(mlflow.pyfunc.load_model(run.log_mlflow()))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = uvicorn.Server(uvicorn.Config(app, port=port, log_level="error"))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive()
            time.sleep(0.05)
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}/invocations",
            json.dumps({"dataframe_records": ROWS}).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            predictions = json.load(answer)["predictions"]
    finally:
        server.should_exit = True
        thread.join()
    expected = predict_rows(run)
    served = np.array([[each["p_a"], each["p_b"]] for each in predictions], np.float32)
    assert np.array_equal(served, expected)
    assert [each["class"] for each in predictions] == ["ab"[place] for place in expected.argmax(1)]


def read_everything(store: Path) -> dict[str, str]:
    """Every file that MLflow keeps, as text."""
    files = [file for file in sorted(store.rglob("*")) if file.is_file()]
    return {str(file.relative_to(store)): file.read_bytes().decode("latin-1") for file in files}


def test_nothing_but_what_was_released_is_logged(run: hg.Run, store: Path) -> None:
    """Guarantees: everything that is logged is a function of files of the release."""
    exact = run.result["exact_figures"]
    assert exact
    run.log_mlflow()
    files = read_everything(store)
    assert any(name.endswith("metrics/epsilon") for name in files)
    released = {file.read_bytes().decode("latin-1") for file in (run.folder.path / "release").iterdir()}
    # Files of the release are what they are; everything else is read.
    own = {name: text for name, text in files.items() if text not in released}
    assert len(files) - len(own) >= len(released)
    text = "\n".join(own.values())
    numbers = {float(each) for each in re.findall(r"\d+\.\d{3,}", text)}
    hidden = {float(value) for value in _list_numbers(exact)}
    covered = {row["value"] for row in run.figures}
    assert not {each for each in hidden - covered if each not in (0.0, 1.0)} & numbers
    for word in ("somewhere-private", str(Path.home()), "seconds", "loss", "device", "exact_figures", "seed"):
        assert word not in text.replace("split_seed", "").replace("steps_lost", ""), word
    [logged] = mlflow.search_runs(output_format="list")
    wanted = {key for key in logged.data.metrics if key not in ("epsilon", "delta")}
    assert len(wanted) == len([row for row in run.figures if row["value"] is not None])
    assert all(value in covered for key, value in logged.data.metrics.items() if key in wanted)
    assert logged.data.metrics["epsilon"] == run.epsilon
    assert logged.data.tags["mlflow.source.name"] == "hushgraph"
    assert "val_accuracy" not in logged.data.params


def test_what_else_lies_in_the_folder_of_a_release_stays_there(run: hg.Run, store: Path) -> None:
    """Such as what was predicted of people, written where the model is."""
    own = run.folder.path / "release" / "predictions.csv"
    own.write_text("person,school\np1,a\n")
    try:
        mlflow.pyfunc.load_model(run.log_mlflow())
    finally:
        own.unlink()
    names = {Path(name).name for name in read_everything(store)}
    assert own.name not in names
    assert {file.name for file in own.parent.iterdir()} <= names


def _list_numbers(values: Any) -> list[float]:
    if isinstance(values, dict):
        return [each for value in values.values() for each in _list_numbers(value)]
    if isinstance(values, (list, tuple)):
        return [each for value in values for each in _list_numbers(value)]
    return [float(values)] if isinstance(values, float) else []


@pytest.mark.usefixtures("store")
def test_an_active_run_is_logged_to_and_stays_active(run: hg.Run) -> None:
    with mlflow.start_run() as active:
        run.log_mlflow(name="schools")
        assert mlflow.active_run().info.run_id == active.info.run_id
    assert mlflow.get_run(active.info.run_id).data.params["task"] == "binary"


@pytest.mark.usefixtures("store")
def test_a_run_without_a_release_is_refused_and_nothing_is_logged(tmp_path: Path, store: Path) -> None:
    seeded = hg.train(make_graph("classes"), seed=1, out=tmp_path / "seeded", **SETTINGS)
    with pytest.raises(RunError, match="its guarantee does not hold, so nothing of it"):
        seeded.log_mlflow()
    assert mlflow.search_runs(output_format="list") == []


@pytest.mark.parametrize("empty", [["height"], ["city"], ["job"], ["height", "city", "job"]])
def test_one_row_with_empty_cells_is_read(run: hg.Run, empty: list[str]) -> None:
    given = {**ROWS[0], "height": 1.6, "places": []}
    shown = ServedRun(run).predict(pd.DataFrame([given | dict.fromkeys(empty)]))
    several = ServedRun(run).predict(pd.DataFrame([given | dict.fromkeys(empty), given]))
    assert shown.iloc[0].tolist() == several.iloc[0].tolist()
    assert several.iloc[0].tolist() != several.iloc[1].tolist()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"places": "p1"}, "row 0, column places: found 'p1'; expected a list of identifiers"),
        ({"age": None}, "lack 'age'; expected the columns age, height, city, job"),
        ({"city": "Rome"}, "'Rome' is not among its 2 values"),
    ],
)
def test_rows_that_cannot_be_read_are_refused(run: hg.Run, change: dict[str, Any], words: str) -> None:
    row = {key: value for key, value in (ROWS[0] | change).items() if key != "age" or value is not None}
    with pytest.raises(InputError, match=re.escape(words)):
        ServedRun(run).predict(pd.DataFrame([row]))
