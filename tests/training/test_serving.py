"""A run that is loaded once serves many requests: boards stay, threads do not disturb each other."""

from __future__ import annotations

import pickle
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hushgraph as hg
from hushgraph.billboard.combined import combine_boards
from hushgraph.billboard.new_rows import read_rows
from hushgraph.billboard.scaled import add_free_inputs, scale_readings
from hushgraph.inference.new_nodes import score_rows
from hushgraph.runs import folder as folders
from hushgraph.training.parts import Parts
from own_parts import train_with

NODES = 120
FEATURES = 5


@pytest.fixture(scope="module", params=[1, 2], ids=["one board", "two boards"])
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run with named nodes."""
    home = tmp_path_factory.mktemp("served")
    graph = hg.datasets.synthetic(num_nodes=NODES, num_classes=3, num_features=FEATURES, seed=2)
    rows = [
        f"p{n},{graph.y[n]},{'train' if n in graph.train_idx else 'val'},"
        + ",".join(f"{value:.4f}" for value in graph.x[n])
        for n in range(NODES)
    ]
    names = ",".join(f"f{i}" for i in range(FEATURES))
    (home / "nodes.csv").write_text(f"id,label,split,{names}\n" + "\n".join(rows))
    source, target = next(graph.edge_chunks())
    pairs = "\n".join(f"p{u},p{w}" for u, w in zip(source, target, strict=True))
    (home / "edges.csv").write_text(f"source,target\n{pairs}")
    train_with(
        Parts(),
        (home / "nodes.csv", home / "edges.csv"),
        home / "run",
        epsilon=4.0,
        steps=4,
        hidden=6,
        device="cpu",
        num_classes=3,
        num_boards=request.param,
        list_size=0.3,
        own_place=True,
    )
    return home / "run"


def make_requests(count: int) -> list[tuple[Any, list[list[str]]]]:
    rng = np.random.default_rng(3)
    return [
        (
            rng.normal(size=(rows := int(rng.integers(1, 6)), FEATURES)).astype(np.float32),
            [[f"p{n}" for n in rng.integers(NODES + 20, size=rng.integers(0, 9))] for _ in range(rows)],
        )
        for _ in range(count)
    ]


def predict_from_whole_boards(run: hg.Run, x: Any, lists: list[list[str]]) -> Any:
    """Every step by itself, from boards that are read whole."""
    config, task = run.config, run.folder.task
    boards = run.folder.load_boards()
    board, _ = combine_boards(boards, centred=task.is_centred)
    places = boards[0].places_of(np.array([name for row in lists for name in row], np.str_))
    seen = read_rows(board, np.cumsum([0, *map(len, lists)]), places, damped=config.damped)
    scaling = {"scale": config.reading_scale, "radius": config.reading_radius}
    readings = add_free_inputs(
        scale_readings(seen.values, board, **scaling),
        board,
        seen.known,
        list_size=config.list_size,
        own_places=np.full(len(lists), -1),
        **scaling,
    )
    scaled = run.folder.scale_features(x)
    return task.show(score_rows(run.model, scaled, readings, feature_norm=config.feature_norm)).numpy()


def test_predictions_are_those_of_whole_boards(place: Path) -> None:
    run = hg.Run.load(place, device="cpu")
    for x, lists in make_requests(20):
        served, _ = run.predict_new(x, lists)
        assert served.tobytes() == predict_from_whole_boards(run, x, lists).tobytes()


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The files of boards that were loaded."""
    loaded: list[Path] = []
    load = folders.load_board

    def count(path: Path, **settings: Any) -> Any:
        loaded.append(path)
        return load(path, **settings)

    monkeypatch.setattr(folders, "load_board", count)
    return loaded


def test_boards_are_loaded_once(place: Path, loads: list[Path]) -> None:
    run = hg.Run.load(place, device="cpu")
    assert loads == []
    for x, lists in make_requests(5):
        run.predict_new(x, lists)
    assert len(loads) == len(set(loads)) == run.folder.num_boards


@pytest.fixture
def hasty_threads() -> Iterator[None]:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


@pytest.mark.usefixtures("hasty_threads")
def test_several_threads_get_what_one_gets(place: Path, loads: list[Path]) -> None:
    requests = make_requests(200)
    alone = hg.Run.load(place, device="cpu")
    expected = [alone.predict_new(x, lists) for x, lists in requests]
    run, begin = hg.Run.load(place, device="cpu"), threading.Barrier(8)
    del loads[:]

    def serve(worker: int) -> list[tuple[int, Any]]:
        begin.wait()
        return [(n, run.predict_new(*requests[n])) for n in range(worker, len(requests), 4)]

    with ThreadPoolExecutor(8) as pool:
        answers = [each for part in pool.map(serve, [0, 1, 2, 3] * 2) for each in part]
    assert len(answers) == 2 * len(requests)
    for n, (probabilities, unknown) in answers:
        assert probabilities.tobytes() == expected[n][0].tobytes()
        assert unknown.tolist() == expected[n][1].tolist()
    assert len(loads) == run.folder.num_boards
    assert not run.model.training


def test_a_model_in_training_mode_stays_so(place: Path) -> None:
    run = hg.Run.load(place, device="cpu")
    run.model.train()
    run.predict_new(*make_requests(1)[0])
    assert run.model.training


def test_boards_are_not_in_a_pickle(place: Path) -> None:
    run = hg.Run.load(place, device="cpu")
    x, lists = make_requests(1)[0]
    expected, _ = run.predict_new(x, lists)
    again = pickle.loads(pickle.dumps(run))
    assert again._ready is None
    assert again.predict_new(x, lists)[0].tobytes() == expected.tobytes()
