"""Whole runs in which people have several nodes: every source of data, a kill, the release, new nodes.

Given boards and weights, predictions for other persons do not depend on a person: bit for bit.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import networkx
import numpy as np
import pandas as pd
import pytest
import torch

import hushgraph as hg
from hushgraph import Graph
from hushgraph.billboard.ballots import GRID
from hushgraph.billboard.board import cast
from hushgraph.figures.tables import NoisyTables
from hushgraph.graph.records import Relation
from hushgraph.privacy.changes import Change
from hushgraph.privacy.ledger import Ledger
from hushgraph.tasks.number import Number
from hushgraph.training.boards import make_ballots

N, EACH, PLACES = 90, 3, 12
WHOSE = np.arange(N) // EACH
SHORT: dict[str, Any] = {"epsilon": 4.0, "steps": 6, "hidden": 4, "device": "cpu"}
KINDS = ("weights", "relations", "places", "hashed", "together", "plain")


@cache
def make_graph(kind: str) -> Graph:
    """Persons with three nodes each: payments with weights, calls, and devices, which are no people."""
    rng = np.random.default_rng(8)
    pays = Relation.between_people(
        "pays", rng.integers(0, N, (2, 400)), num_nodes=N, weights=rng.lognormal(0, 3, 400)
    )
    calls = Relation.between_people("calls", rng.integers(0, N, (2, 200)), num_nodes=N)
    ends = rng.integers(0, N, 150), rng.integers(0, PLACES, 150)
    uses, hashed = (
        Relation.to_places("devices", *ends, num_nodes=N, num_places=PLACES, is_hashed=is_hashed)
        for is_hashed in (False, True)
    )
    relations = {
        "weights": [pays],
        "relations": [replace(pays, weights=None, info=replace(pays.info, is_weighted=False)), calls],
        "places": [calls, uses],
        "hashed": [hashed],
        "together": [pays, calls, uses],
        "plain": [],
    }[kind]
    return Graph.from_arrays(
        edge_index=None if relations else rng.integers(0, N, (2, 400)),
        relations=relations,
        x=rng.normal(size=(N, 3)),
        y=rng.integers(0, 3, N),
        train_idx=np.arange(48),
        val_idx=np.arange(48, 69),
        test_idx=np.arange(69, N - 6),
        num_classes=3,
        persons=WHOSE,
    )


@cache
def make_run(kind: str, folder: Path) -> hg.Run:
    return hg.train(make_graph(kind), out=folder / kind, **SHORT)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("node", [3, 55, N - 1], ids=["training", "validation", "none"])
def test_an_emptied_person_moves_both_boards_by_at_most_1_and_no_other_prediction(
    kind: str, node: int, folder: Path
) -> None:
    """The boards and weights of the run, read in either world; a person of every split, and of none."""
    run, graph = make_run(kind, folder), make_graph(kind)
    emptied = graph.with_row_emptied(node, run.plan.edge_owner)
    assert run.result["unit"] == "person"
    assert run.folder.num_boards == 2
    for place in range(2):
        tallies = [cast(each, make_ballots(run.folder, each, place)) for each in (graph, emptied)]
        moved = sum(int(value) ** 2 for value in (tallies[0] - tallies[1]).flat)
        assert moved <= GRID**2
        # Onto the first board persons with training nodes cast, onto the second everybody.
        assert (moved > 0) == (place == 1 or node < 48)
    before, after = (run.predict_proba(each) for each in (graph, emptied))
    others = WHOSE[node] != WHOSE
    assert np.array_equal(before[others], after[others])
    assert not np.array_equal(before[node], after[node])


def test_epsilon_of_a_person_is_that_of_a_row_and_an_edge_costs_what_is_proven(folder: Path) -> None:
    edges = {"weights": 6, "relations": 4, "places": 4, "hashed": 4, "together": 6, "plain": 4}
    plain = make_run("plain", folder)
    for kind, squared in edges.items():
        run = make_run(kind, folder)
        assert (run.epsilon, run.plan.num_train_nodes) == (plain.epsilon, 16)
        charge = run.plan.charges[0]
        assert charge.move(Change("edge", ("training",) * 2)) ** 2 == pytest.approx(squared)
        assert ("epsilon_pair" in run.result) == (len(make_graph(kind).relations) > 1)
        text = (run.folder.path / "release" / "README.md").read_text()
        assert "person-level" in text


@pytest.mark.parametrize("kind", ["plain", "together"])
@pytest.mark.parametrize("stop_at", [1, 3, 4])
def test_a_killed_run_goes_on_with_the_boards_it_has(kind: str, stop_at: int, tmp_path: Path) -> None:
    """Before the second board, at it and behind it."""

    def stop(done: int, total: int, epsilon: float, accuracy: float | None) -> None:
        if done >= stop_at:
            raise KeyboardInterrupt

    graph, out = make_graph(kind), tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        hg.train(graph, out=out, observer=stop, **SHORT)
    boards = {path.name: path.read_bytes() for path in out.glob("board-*")}
    assert boards
    other = replace(graph, persons=None)
    with pytest.raises(hg.HushgraphError, match="give the data it began with"):
        hg.resume(out, other, device="cpu")
    resumed = hg.resume(out, graph, device="cpu")
    for name, content in boards.items():
        assert (out / name).read_bytes() == content
    ledger = Ledger.open(resumed.folder.ledger_path, read_only=True)
    assert (ledger.releases_charged, ledger.steps_charged) == (3, 6)
    assert (resumed.result["guarantee"], resumed.result["unit"]) == ("holds", "person")
    assert resumed.epsilon == resumed.plan.epsilon


@pytest.mark.parametrize("settings", [{"model": "mlp"}, {"max_readers": 0}], ids=["mlp", "K = 0"])
def test_a_killed_run_without_boards_goes_on(settings: dict[str, Any], tmp_path: Path) -> None:
    def stop(done: int, total: int, epsilon: float, accuracy: float | None) -> None:
        raise KeyboardInterrupt

    graph, out = make_graph("plain"), tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        hg.train(graph, out=out, observer=stop, batch_size=5, **SHORT, **settings)
    resumed = hg.resume(out, graph, device="cpu")
    assert (resumed.result["guarantee"], resumed.result["unit"]) == ("holds", "person")
    assert (resumed.plan.num_train_nodes, resumed.plan.changed_trees) == (16, 1)
    assert resumed.epsilon == resumed.plan.epsilon <= 4


def test_what_is_published_predicts_the_same(folder: Path, tmp_path: Path) -> None:
    """The release alone, away from the run; a new account of a known person, and of an unknown one."""
    run, graph = make_run("together", folder), make_graph("together")
    released = hg.Run.load(shutil.copytree(run.folder.path / "release", tmp_path / "release"), device="cpu")
    assert np.array_equal(released.predict_proba(graph), run.predict_proba(graph))
    ledger = run.folder.ledger_path.read_bytes()
    lists: dict[str, Any] = {"pays": [[3, 4, 3]], "calls": [[5]], "devices": [[1, 2]]}
    found = [
        each.predict_new(graph.x[:1], lists, weights={"pays": [[1.0, 2.0, 0.5]]}) for each in (run, released)
    ]
    assert np.array_equal(found[0][0], found[1][0])
    assert found[0][1].tolist() == [0]
    assert run.folder.ledger_path.read_bytes() == ledger


def test_k_0_reads_no_edge_and_counts_persons() -> None:
    """Trees without messages: sums of a person's gradients, batches of persons; nothing reads an edge."""
    graph = make_graph("plain")
    run = hg.train(graph, max_readers=0, batch_size=4, **SHORT)
    assert (run.plan.protects, run.plan.num_train_nodes, run.plan.sampling_rate) == ("person", 16, 0.25)
    assert run.plan.changed_trees == 1
    others = WHOSE[5] != WHOSE
    before, after = (run.predict_outputs(each) for each in (graph, graph.with_row_emptied(5, "sender")))
    assert np.array_equal(before[others], after[others]) == (run.plan.covers_predictions)


def edges_and_labels() -> dict[str, Any]:
    rng = np.random.default_rng(2)
    return {
        "edges": rng.integers(0, N, (2, 300)),
        "weights": rng.random(300) + 0.1,
        "x": rng.normal(size=(N, 3)).astype(np.float32),
        "y": rng.integers(0, 3, N),
    }


def write_npz(folder: Path, parts: dict[str, Any]) -> Any:
    np.savez(
        folder / "people.npz",
        edge_index=parts["edges"],
        x=parts["x"],
        y=parts["y"],
        train_idx=np.arange(48),
        val_idx=np.arange(48, N),
        amount=parts["weights"],
        owner=WHOSE,
    )
    return folder / "people.npz"


def make_pyg(folder: Path, parts: dict[str, Any]) -> Any:
    return SimpleNamespace(
        edge_index=torch.from_numpy(parts["edges"]),
        x=torch.from_numpy(parts["x"]),
        y=torch.from_numpy(parts["y"]),
        train_idx=torch.arange(48),
        val_idx=torch.arange(48, N),
        amount=torch.from_numpy(parts["weights"]),
        owner=torch.from_numpy(WHOSE),
    )


def write_pt(folder: Path, parts: dict[str, Any]) -> Any:
    torch.save(vars(make_pyg(folder, parts)), folder / "people.pt")
    return folder / "people.pt"


def make_data(folder: Path, parts: dict[str, Any]) -> Any:
    return pytest.importorskip("torch_geometric.data").Data(**vars(make_pyg(folder, parts)))


def make_hetero(folder: Path, parts: dict[str, Any]) -> Any:
    data = pytest.importorskip("torch_geometric.data").HeteroData()
    fields = vars(make_pyg(folder, parts))
    for name in ("x", "y", "train_idx", "val_idx", "owner"):
        data["user"][name] = fields[name]
    data["shop"].num_nodes = 5
    data["user", "pays", "user"].edge_index = fields["edge_index"]
    data["user", "pays", "user"].amount = fields["amount"]
    data["user", "visits", "shop"].edge_index = fields["edge_index"] % 5
    data["user", "visits", "shop"].amount = fields["amount"]
    return data


def make_frames(folder: Path, parts: dict[str, Any]) -> Any:
    nodes = pd.DataFrame(parts["x"], columns=["a", "b", "c"])
    nodes["id"] = [f"n{v}" for v in range(N)]
    nodes["label"], nodes["owner"] = parts["y"], [f"w{v}" for v in WHOSE]
    nodes["split"] = np.where(np.arange(N) < 48, "train", "val")
    edges = pd.DataFrame({"source": nodes["id"][parts["edges"][0]].to_numpy()})
    edges["target"], edges["amount"] = nodes["id"][parts["edges"][1]].to_numpy(), parts["weights"]
    return nodes, edges


def make_networkx(folder: Path, parts: dict[str, Any]) -> Any:
    graph = networkx.MultiDiGraph()
    for v in range(N):
        split = "train" if v < 48 else "val"
        graph.add_node(v, x=parts["x"][v].tolist(), y=int(parts["y"][v]), owner=f"w{WHOSE[v]}", split=split)
    for u, w, weight in zip(*parts["edges"], parts["weights"], strict=True):
        graph.add_edge(int(u), int(w), amount=float(weight))
    return graph


SOURCES = [write_npz, make_pyg, write_pt, make_data, make_hetero, make_frames, make_networkx]


@pytest.mark.parametrize("make", SOURCES, ids=lambda make: make.__name__)
def test_every_source_of_data_has_persons_with_weights(make: Any, tmp_path: Path) -> None:
    """The same persons, records and split, however they come; a run of each goes to the end."""
    parts = edges_and_labels()
    data = make(tmp_path, parts)
    how = {"people": "user"} if make is make_hetero else {}
    how |= {"numbers": "as-is"} if make is make_frames else {}
    given = {"person": "owner", "edge_weight": "amount", "num_classes": 3, **how}
    prepared = hg.prepare(data, epsilon=4.0, steps=2, **given)
    graph = prepared.graph
    assert graph.persons is not None
    assert np.array_equal(graph.persons, EACH * WHOSE)
    # What is between nodes of one person is gone.
    wanted = Relation.between_people("pays", parts["edges"], num_nodes=N, weights=parts["weights"])
    wanted = wanted.between_persons(WHOSE)
    found = graph.relations[0]
    assert np.array_equal(found.list_pairs(), wanted.list_pairs())
    np.testing.assert_allclose(found.weights, wanted.weights)
    assert len(wanted.indices) < len(np.unique(parts["edges"], axis=1)[0])
    assert (prepared.plan.protects, prepared.plan.num_train_nodes) == ("person", 16)
    run = hg.train(data, epsilon=4.0, steps=2, hidden=4, device="cpu", **given)
    assert (run.result["unit"], run.plan.is_weighted) == ("person", True)
    assert run.predict_proba(data).shape == (N, 3)


@pytest.mark.parametrize("task", ["classes", "number"])
def test_figures_count_persons(task: str, tmp_path: Path) -> None:
    """A person with 20 evaluated nodes counts as one with 1: noise is that of one count."""
    rng = np.random.default_rng(0)
    whose = np.concatenate([np.arange(60), np.full(20, 60), np.arange(61, 101)])
    count = len(whose)
    labels = rng.integers(0, 2, count)
    graph = Graph.from_arrays(
        edge_index=rng.integers(0, count, (2, 300)),
        x=rng.normal(size=(count, 2)) + labels[:, None],
        y=labels if task == "classes" else labels.astype(np.float32),
        train_idx=np.arange(60),
        test_idx=np.arange(60, count),
        persons=whose,
        **({"num_classes": 2} if task == "classes" else {"task": Number(low=0.0, high=1.0)}),
    )
    run = hg.train(graph, out=tmp_path / "run", **SHORT)
    alone = hg.train(replace(graph, persons=None), **SHORT)
    assert run.result["unit"] == "person"
    assert run.result["figures"] == "covered"
    # One person moves every table by at most 1, so that the noise is what one node has without persons.
    assert run.plan.table_noise == pytest.approx(alone.plan.table_noise, rel=1e-6)
    assert run.result["epsilon_evaluated"] <= 4.0
    # 41 persons with 60 nodes; the first table has one cell for each, or the first sum counts them.
    tables = NoisyTables.load(run.folder.figures_path, plan=run.plan.fingerprint())
    table = tables.counts["test"][0]
    counted = float(table.sum() if task == "classes" else table.reshape(-1)[0] * np.sqrt(6))
    assert abs(counted - 41) < 6 * run.plan.table_noise * np.sqrt(table.size) < 60 - 41 + 25


def test_bounds_of_a_number_are_paid_for_by_person(tmp_path: Path) -> None:
    """30 nodes of one person say 1e9; they count as one, and the noise is that of one."""
    rng = np.random.default_rng(0)
    whose = np.concatenate([np.arange(300), np.full(30, 300)])
    graph = Graph.from_arrays(
        edge_index=rng.integers(0, 330, (2, 900)),
        x=rng.normal(size=(330, 2)),
        y=np.concatenate([rng.uniform(100, 200, 300), np.full(30, 1e9)]).astype(np.float32),
        train_idx=np.arange(330),
        persons=whose,
        task=Number(bounds="private"),
    )
    run = hg.train(graph, bounds="private", out=tmp_path / "run", **SHORT)
    assert (run.plan.has_target, run.plan.num_train_nodes) == (True, 301)
    assert run.result["unit"] == "person"
    # So many nodes would be seen above the noise; one person is not.
    assert run.folder.task.high < 1e4
    alone = hg.prepare(
        replace(graph, persons=None), bounds="private", epsilon=4.0, delta=run.plan.delta, steps=6
    )
    assert run.plan.scaling_noise == pytest.approx(alone.plan.scaling_noise, rel=1e-6)
