"""Whole runs with weights, relations and places, on two boards: one row, a kill, the release, new nodes.

Given boards and weights, nobody else's prediction depends on a row: bit for bit.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hushgraph as hg
from hushgraph import Graph
from hushgraph.billboard.ballots import GRID
from hushgraph.billboard.board import cast
from hushgraph.billboard.lists import find_starts
from hushgraph.graph.records import Relation
from hushgraph.privacy.ledger import Ledger
from hushgraph.training.boards import make_ballots
from row_lists import list_rows

N, PLACES = 90, 12
SHORT: dict[str, Any] = {"epsilon": 4.0, "steps": 6, "hidden": 4, "device": "cpu"}


def make_graph() -> Graph:
    """Payments with weights, calls, and devices, which are no people."""
    rng = np.random.default_rng(8)
    amounts, used = rng.lognormal(0, 3, 400), rng.random(150)
    return Graph.from_arrays(
        edge_index=None,
        relations=[
            Relation.between_people("pays", rng.integers(0, N, (2, 400)), num_nodes=N, weights=amounts),
            Relation.between_people("calls", rng.integers(0, N, (2, 200)), num_nodes=N),
            Relation.to_places(
                "devices",
                rng.integers(0, N, 150),
                rng.integers(0, PLACES, 150),
                num_nodes=N,
                num_places=PLACES,
                weights=used,
            ),
        ],
        x=rng.normal(size=(N, 3)),
        y=rng.integers(0, 3, N),
        train_idx=np.arange(50),
        val_idx=np.arange(50, 70),
        test_idx=np.arange(70, N - 5),
        num_classes=3,
    )


@pytest.fixture(scope="module")
def graph() -> Graph:
    return make_graph()


@pytest.fixture(scope="module")
def run(graph: Graph, tmp_path_factory: pytest.TempPathFactory) -> hg.Run:
    return hg.train(graph, out=tmp_path_factory.mktemp("runs") / "run", **SHORT)


@pytest.mark.parametrize("node", [3, 55, 75, N - 1], ids=["training", "validation", "test", "none"])
def test_an_emptied_row_moves_both_boards_by_at_most_1_and_no_other_prediction(
    run: hg.Run, graph: Graph, node: int
) -> None:
    """The boards and weights of the run, read in either world; a row of every split, and of none."""
    emptied = graph.with_row_emptied(node, run.plan.edge_owner)
    assert run.folder.num_boards == 2
    for place in range(2):
        tallies = [cast(each, make_ballots(run.folder, each, place)) for each in (graph, emptied)]
        moved = sum(int(value) ** 2 for value in (tallies[0] - tallies[1]).flat)
        assert moved <= GRID**2
        # Onto the first board training rows cast, onto the second everybody.
        assert (moved > 0) == (place == 1 or node < 50)
    before, after = (run.predict_proba(each) for each in (graph, emptied))
    others = np.arange(N) != node
    assert np.array_equal(before[others], after[others])
    assert not np.array_equal(before[node], after[node])


@pytest.mark.parametrize("stop_at", [1, 3, 4])
def test_a_killed_run_goes_on_with_the_boards_it_has(graph: Graph, tmp_path: Path, stop_at: int) -> None:
    """Before the second board, at it and behind it."""

    def stop(done: int, total: int, epsilon: float, accuracy: float | None) -> None:
        if done >= stop_at:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        hg.train(graph, out=tmp_path / "run", observer=stop, **SHORT)
    boards = {path.name: path.read_bytes() for path in (tmp_path / "run").glob("board-*")}
    assert boards
    resumed = hg.resume(tmp_path / "run", graph, device="cpu")
    for name, content in boards.items():
        assert (tmp_path / "run" / name).read_bytes() == content
    ledger = Ledger.open(resumed.folder.ledger_path, read_only=True)
    assert (ledger.releases_charged, ledger.steps_charged) == (3, 6)
    assert resumed.result["guarantee"] == "holds"
    assert resumed.epsilon == resumed.plan.epsilon


def test_what_is_published_predicts_the_same(run: hg.Run, graph: Graph, tmp_path: Path) -> None:
    """The release alone, away from the run."""
    path = shutil.copytree(run.folder.path / "release", tmp_path / "release")
    released = hg.Run.load(path, device="cpu")
    assert np.array_equal(released.predict_proba(graph), run.predict_proba(graph))
    lists: dict[str, Any] = {"pays": [[3, 4, 3]], "calls": [[5]], "devices": [[1, 2]]}
    weights = {"pays": [[1.0, 2.0, 0.5]], "devices": [[9.0, 1.0]]}
    found = [each.predict_new(graph.x[:1], lists, weights=weights) for each in (run, released)]
    assert np.array_equal(found[0][0], found[1][0])
    assert found[0][1].tolist() == found[1][1].tolist() == [0]


def test_a_new_row_reads_what_a_row_that_cast_nothing_reads(run: hg.Run, graph: Graph) -> None:
    """A node of no split casts on the second board alone: what is taken off there is all that differs."""
    ledger = run.folder.ledger_path.read_bytes()
    lists = list_rows(graph, run.plan.edge_owner)
    node, starts = N - 2, find_starts(lists.blocks)
    mine = slice(lists.indptr[node], lists.indptr[node + 1])
    of_blocks, weights = {}, {}
    for number, block in enumerate(lists.blocks):
        is_of = (lists.places[mine] >= starts[number]) & (lists.places[mine] < starts[number + 1])
        of_blocks[block.name] = [(lists.places[mine][is_of] - starts[number]).tolist()]
        weights[block.name] = [lists.coefficients[mine][is_of].astype(float).tolist()]
    weights.pop("calls")
    new, unknown = run.predict_new(graph.x[node], of_blocks, weights=weights)
    assert unknown.tolist() == [0]
    assert np.abs(new[0] - run.predict_proba(graph)[node]).max() < 0.2
    # Nothing is charged for new rows.
    assert run.folder.ledger_path.read_bytes() == ledger
