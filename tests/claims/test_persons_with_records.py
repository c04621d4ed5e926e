"""People with several nodes whose records have weights, are of several relations or name places.

Emptying a person, all their nodes, is what emptying a row is elsewhere: boards move by at most 1 in integers,
nobody else's reading changes, and one training example does. `benchmarks/record_search.py` holds the search;
`benchmarks/records/record_search.jsonl` is what it found on 2,000 graphs of every combination.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmark_scripts import ROOT, script
from hushgraph.billboard.ballots import GRID, Ballots, label_ballots
from hushgraph.billboard.board import Board, cast
from hushgraph.billboard.combined import place_weights
from hushgraph.billboard.lists import list_blocks
from hushgraph.billboard.reading import read
from hushgraph.datasets import load_graph
from hushgraph.errors import GraphError
from hushgraph.graph.graph import Graph
from hushgraph.graph.records import Relation
from hushgraph.privacy.changes import Change
from hushgraph.privacy.charges import BoardCharge
from hushgraph.tasks.classes import Classes
from hushgraph.tasks.number import Number
from row_lists import list_records, list_rows

search = script("record_search")
RECORD = ROOT / "benchmarks" / "records" / "record_search.jsonl"
PERSONS = [mode for mode in search.MODES if mode.endswith("+persons")]
SOME = ["weights+persons", "relations+persons", "places+persons", "weights+relations+hashed+persons"]
NEARLY = 1 - 1e-5


@pytest.mark.parametrize("mode", SOME)
def test_an_emptied_person_moves_a_board_by_at_most_1_and_nobody_elses_reading(mode: str) -> None:
    found = search.search_rows(mode, 40)
    assert max(*found.moved, found.moved_by_several) <= 1
    assert min(*found.moved, found.moved_by_several) > 0.9
    assert (found.others_changed, found.examples_changed, found.uncast_moved) == (0, 1, 0)


@pytest.mark.parametrize("mode", SOME)
def test_every_change_moves_a_board_by_at_most_its_figure(mode: str) -> None:
    figures = search.search_figures(mode, 5, most_nodes=4)
    assert {what for what in figures if "board" not in what} == {
        *("record", "edge", "pair", "one-way pair", "label", "2 rows", "3 rows")
    }
    for what, figure in figures.items():
        assert figure["excess"] <= search.SLACK, what


@pytest.fixture(scope="module")
def records() -> list[dict[str, Any]]:
    return [json.loads(line) for line in RECORD.read_text().splitlines()]


def test_the_record_is_of_2_000_graphs_of_every_combination(records: list[dict[str, Any]]) -> None:
    assert [record["mode"] for record in records] == search.MODES
    assert len(search.MODES) == 23
    for record in records:
        assert record["graphs"] == 2_000
        assert max(record["moved"]) <= 1
        assert min(record["moved"]) > NEARLY
        assert (record["others_changed"], record["uncast_moved"], record["examples_changed"]) == (0, 0, 1)
        if record["mode"] in PERSONS:
            assert NEARLY < record["moved_by_several"] <= 1
        for figure in record["figures"].values():
            assert figure["excess"] <= search.SLACK


def test_the_page_shows_the_record(records: list[dict[str, Any]]) -> None:
    assert search.write_table(records) in (ROOT / "docs" / "persons.md").read_text()


def several(nodes: int, **kinds: Any) -> tuple[Graph, Ballots]:
    """One person with so many nodes of one label, all of which list the same two places in every relation."""
    count, ends = nodes + 2, (np.repeat(np.arange(nodes), 2), np.tile([nodes, nodes + 1], nodes))
    weights = np.tile([3.0, 4.0], nodes)
    relations = [
        Relation.between_people(f"r{n}", np.stack(ends), num_nodes=count, weights=weights if w else None)
        for n, w in enumerate(kinds.get("people", (True,)))
    ]
    if "places" in kinds:
        named = ends[0], ends[1] - nodes
        relations.append(Relation.to_places("p", *named, num_nodes=count, num_places=2, weights=weights))
    graph = Graph.from_arrays(
        edge_index=None,
        relations=relations,
        x=np.eye(count),
        y=[0] * count,
        train_idx=np.arange(nodes),
        persons=[7] * nodes + [1, 2],
        num_classes=3,
    )
    return graph, label_ballots(graph, "sender", task=graph.task)


@pytest.mark.parametrize("nodes", [1, 2, 5, 100, 1_000])
def test_any_number_of_nodes_casts_a_ballot_of_norm_1(nodes: int) -> None:
    """Over three relations: each has a third of it, and 3 to 4 within one that has weights."""
    graph, ballots = several(nodes, people=(True, False), places=True)
    tally = cast(graph, ballots)
    # Of many nodes each is rounded towards zero.
    assert 0.999 * GRID**2 < search.square(tally) <= GRID**2
    ends = np.cumsum([block.size for block in list_blocks(graph)])[:-1]
    for part in np.split(tally, ends):
        assert search.square(part) / GRID**2 == pytest.approx(1 / 3, abs=1e-3)
    first = np.linalg.norm(tally[nodes : nodes + 2] / GRID, axis=1)
    assert first[1] / first[0] == pytest.approx(4 / 3, abs=1e-3)


def test_nodes_counted_one_by_one_would_move_it_by_their_number() -> None:
    graph, _ = several(5)
    alone = label_ballots(replace(graph, persons=None), "sender", task=graph.task)
    assert search.square(cast(graph, alone)) > 24 * GRID**2


def test_records_between_nodes_of_one_person_go_before_anything_is_divided() -> None:
    """Node 0 has nearly all of its weight on its own node 1; what is left is all that it casts."""
    edges = np.array([[0, 0], [1, 2]])
    relations = [
        Relation.between_people("pays", edges, num_nodes=3, weights=np.array([1e9, 2.0])),
        Relation.between_people("calls", edges[:, :1], num_nodes=3),
    ]
    graph = Graph.from_arrays(
        edge_index=None,
        relations=relations,
        x=np.eye(3),
        y=[1, -1, -1],
        train_idx=[0],
        num_classes=3,
        persons=["a", "a", "b"],
    )
    lists = list_rows(graph, "sender")
    assert lists.places.tolist() == [2]
    # The relation in which nothing is left has no share either.
    assert lists.coefficients.tolist() == [GRID]
    with pytest.raises(GraphError, match="a node reads another node of its person"):
        replace(graph, relations=tuple(relations))


def test_what_any_node_of_a_person_cast_is_taken_off_by_relation() -> None:
    """S_v = sum a_vu (B_u - what nodes of the person cast onto u) / |a_v w|, of every relation."""
    for number, mode in enumerate(PERSONS * 4):
        small = search.draw(mode, 1_000 + number)
        graph = small.graph()
        ballots = small.ballots(graph)
        lists = list_records(ballots.records)
        rng = np.random.default_rng(number)
        values = rng.normal(size=(lists.num_places, 3)).astype(np.float32)
        board = Board(values=values, noise_std=1.0, blocks=lists.blocks)
        found = read(board, graph, small.owner, own=ballots).reshape(graph.num_nodes, -1, 3)
        weights, dense = place_weights(board), ballots.dense(np.arange(graph.num_nodes)) / GRID
        shares = np.zeros((graph.num_nodes, lists.num_places))
        for v in range(graph.num_nodes):
            mine = slice(lists.indptr[v], lists.indptr[v + 1])
            shares[v, lists.places[mine]] = lists.coefficients[mine] / GRID
        for v in range(graph.num_nodes):
            own = np.flatnonzero(small.whose == small.whose[v])
            left = values - shares[own].T @ dense[own]
            for relation, (start, end) in enumerate(zip(lists.starts, lists.starts[1:], strict=False)):
                a = (shares[v] * weights)[start:end]
                expected = a @ left[start:end] / (np.linalg.norm(a) or 1.0)
                np.testing.assert_allclose(found[v, relation], expected, atol=1e-5)


def test_what_was_cast_is_taken_off_though_lists_have_changed() -> None:
    """Onto places that are listed now and were listed then, the casts of then."""
    for number in range(20):
        small = search.draw("weights+relations+places+persons", 2_000 + number)
        graph, rng = small.graph(), np.random.default_rng(number)
        changed = [table.shares * rng.choice([0.0, 1.0, 2.0], table.shares.shape) for table in small.tables]
        now = small.graph(
            [m if t.is_weighted else np.minimum(m, 1) for m, t in zip(changed, small.tables, strict=True)]
        )
        ballots = small.ballots(graph)
        then, listed = list_records(ballots.records), list_rows(now, small.owner)
        values = rng.normal(size=(then.num_places, 3)).astype(np.float32)
        board = Board(values=values, noise_std=1.0, blocks=then.blocks)
        found = read(board, now, small.owner, own=ballots, cast_graph=graph, damped=False)
        dense = ballots.dense(np.arange(graph.num_nodes)) / GRID
        shares = np.zeros((2, graph.num_nodes, then.num_places))
        for which, lists in enumerate((then, listed)):
            for v in range(graph.num_nodes):
                mine = slice(lists.indptr[v], lists.indptr[v + 1])
                shares[which, v, lists.places[mine]] = lists.coefficients[mine] / GRID
        for v in range(graph.num_nodes):
            own = np.flatnonzero(small.whose == small.whose[v])
            left = board.values - shares[0, own].T @ dense[own]
            for relation, (start, end) in enumerate(zip(then.starts, then.starts[1:], strict=False)):
                a = shares[1, v, start:end]
                expected = a @ left[start:end] / (np.linalg.norm(a) or 1.0)
                np.testing.assert_allclose(found[v].reshape(-1, 3)[relation], expected, atol=1e-5)


def charge(**kind: bool) -> BoardCharge:
    return BoardCharge(name="board-1", noise_std=1.0, by_person=True, **kind)


@pytest.mark.parametrize(
    ("is_weighted", "edge", "record"), [(False, 4, 1), (True, 6, 2)], ids=["plain", "weights"]
)
def test_what_one_edge_of_persons_is_priced_at(is_weighted: bool, edge: float, record: float) -> None:
    priced = charge(is_weighted=is_weighted)
    both, one = ("training", "training"), ("training",)
    assert priced.move(Change("edge", both)) ** 2 == pytest.approx(edge)  # type: ignore[arg-type]
    assert priced.move(Change("record", one)) ** 2 == pytest.approx(record)  # type: ignore[arg-type]
    assert priced.move(Change("pair", both)) ** 2 == 16  # type: ignore[arg-type]
    assert priced.move(Change("pair", one)) ** 2 == 4  # type: ignore[arg-type]
    assert priced.move(Change("edge", ("other", "evaluated"))) == 0


def test_a_weighted_edge_of_persons_reaches_6() -> None:
    """Two persons, of each of whom one node casts, as without persons."""
    edges = np.array([[0, 0, 1], [1, 2, 2]])

    def tally(weight: float) -> np.ndarray:
        weights = np.array([weight, 1.0, 1.0])
        made = Relation.between_people("knows", edges, num_nodes=5, weights=weights, symmetrize=True)
        graph = Graph.from_arrays(
            edge_index=None,
            relations=[made],
            x=np.eye(5),
            y=[0, 0, -1, -1, -1],
            train_idx=[0, 1],
            persons=[0, 1, 2, 0, 1],
            task=Classes(num_classes=3),
        )
        return cast(graph, label_ballots(graph, "reader", task=graph.task))

    assert search.square(tally(1e9) - tally(1e-9)) / GRID**2 == pytest.approx(6, abs=1e-4)


@pytest.mark.parametrize(("both", "least"), [(False, 3.9), (True, 15.5)])
def test_all_records_of_two_persons_may_turn_a_ballot_around(both: bool, least: float) -> None:
    """Most nodes of a person say 1 of nodes of the other one, each of its own; the rest says -1 of z.

    Without these records all speak of z. So 4 for a person, and 16 for two who do so at once, is the price.
    """
    size = 200
    agree = int(0.6 * size)
    z = 2 * size

    def tally(*, gone: bool) -> np.ndarray:
        edges, weights = [], []
        for person in range(1 + both):
            first, other = person * size, (1 - person) * size
            for node in range(size):
                edges.append((first + node, z))
                weights.append(1.0)
                if node < agree and not gone:
                    edges.append((first + node, other + node))
                    weights.append(1e6)
        made = Relation.between_people("pays", np.array(edges).T, num_nodes=z + 1, weights=np.array(weights))
        labels = np.where(np.arange(z + 1) % size < agree, 1.0, -1.0)
        graph = Graph.from_arrays(
            edge_index=None,
            relations=[made],
            x=np.ones((z + 1, 1)),
            y=np.where(np.arange(z + 1) < z, labels, np.nan).astype(np.float32),
            train_idx=np.arange(z),
            persons=np.arange(z + 1) // size,
            task=Number(low=-1.0, high=1.0),
        )
        return cast(graph, label_ballots(graph, "sender", task=graph.task))

    moved = search.square(tally(gone=False) - tally(gone=True)) / GRID**2
    assert least < moved <= (16 if both else 4)


def write_tables(folder: Path, edges: str) -> Path:
    folder.mkdir()
    (folder / "nodes.csv").write_text(
        "id,age,owner,label,split\na,1,X,0,train\nb,2,X,1,train\nc,3,Y,1,train\nd,4,,1,val\n"
    )
    (folder / "edges.csv").write_text("source,target,amount,kind\n" + edges)
    return folder


@pytest.mark.parametrize("places", ["hash:5", ["shop", "cafe"]])
def test_places_of_persons_are_declared_and_not_looked_up_in_rows(
    tmp_path: Path, places: str | list[str]
) -> None:
    """A place that one person alone names is not on the board because of that person."""
    how: dict[str, Any] = {
        "columns": {"places": places, "person": "owner", "edge_weight": "amount"},
        "num_classes": 2,
    }
    mine = "a,shop,1,x\nb,shop,2,x\nb,cafe,3,x\na,b,9,x\n"
    full = load_graph(write_tables(tmp_path / "full", mine + "c,shop,1,x\nc,a,2,x\n"), **how)
    poor = load_graph(write_tables(tmp_path / "poor", "c,shop,1,x\nc,a,2,x\n"), **how)
    assert [block.info for block in list_blocks(full)] == [block.info for block in list_blocks(poor)]
    one, other = (list_rows(each, "sender") for each in (full, poor))
    assert one.places[one.indptr[2] :].tolist() == other.places[other.indptr[2] :].tolist()
    assert one.coefficients[one.indptr[2] :].tolist() == other.coefficients[other.indptr[2] :].tolist()
    tallies = [cast(each, label_ballots(each, "sender", task=full.task)) for each in (full, poor)]
    moved = search.square(tallies[0] - tallies[1])
    assert 0 < moved <= GRID**2


def test_names_of_persons_are_hashed_before_anything_is_added_up(tmp_path: Path) -> None:
    """Two nodes name four shops each, all of one bucket: the person has a ballot of norm 1 there."""
    edges = "".join(f"{node},shop{number},1,x\n" for node in "ab" for number in range(4))
    columns = {"places": "hash:1", "person": "owner"}
    graph = load_graph(write_tables(tmp_path / "t", edges), columns=columns, num_classes=2)
    graph = replace(graph, y=np.array([1, 1, -1, -1]))
    assert graph.persons is not None
    assert graph.persons.tolist() == [0, 0, 2, 3]
    tally = cast(graph, label_ballots(graph, "sender", task=graph.task))
    assert NEARLY * GRID**2 < search.square(tally) <= GRID**2
