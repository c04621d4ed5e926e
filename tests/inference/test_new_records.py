"""New nodes of runs with weights, relations and places; averages in the clear with weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import hushgraph as hg
from hushgraph import Graph
from hushgraph.errors import GraphError
from hushgraph.graph.records import Relation
from hushgraph.inference.covered import average_over_neighbours
from hushgraph.tasks.number import Number

SMALL: dict[str, Any] = {"epsilon": 4.0, "steps": 3, "hidden": 4, "device": "cpu", "num_classes": 2}


def make_people(count: int = 80) -> tuple[pd.DataFrame, pd.DataFrame]:
    rng = np.random.default_rng(1)
    names = np.array([f"p{number}" for number in range(count)])
    nodes = pd.DataFrame({"id": names, "age": rng.normal(size=count), "label": rng.integers(0, 2, count)})
    ends = rng.integers(0, count, (2, 300))
    edges = pd.DataFrame({"source": names[ends[0]], "target": names[ends[1]]})
    shops = pd.DataFrame(
        {"source": [f"shop{each}" for each in rng.integers(0, 9, 90)], "target": rng.choice(names, 90)}
    )
    edges = pd.concat([edges, shops], ignore_index=True)
    return nodes, edges.assign(amount=rng.random(len(edges)), kind=rng.choice(["calls", "pays"], len(edges)))


NEW = pd.DataFrame({"id": ["n1", "n2"], "age": [0.1, 0.2]})
# The last two: a record of another's row, and one of a relation that is not declared.
NEW_EDGES = pd.DataFrame(
    {
        "source": ["n1", "n1", "shop3", "n2", "p4", "n2"],
        "target": ["p3", "p3", "n1", "shop77", "n2", "p5"],
        "amount": [1.0, 2.0, 2.0, 3.0, 9.0, 1.0],
        "kind": ["calls", "calls", "odd", "pays", "calls", "odd"],
    }
)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> hg.Run:
    places = [f"shop{number}" for number in range(9)]
    how: dict[str, Any] = {
        "places": places,
        "relation": {"kind": ["calls", "pays"]},
        "edge_weight": "amount:sqrt",
    }
    out = tmp_path_factory.mktemp("runs") / "run"
    return hg.train(make_people(), **SMALL, **how, out=out)


def test_new_rows_of_tables_read_as_lists_do(run: hg.Run) -> None:
    predicted = run.predict_table((NEW, NEW_EDGES), new=True)
    nodes = predicted.new_nodes
    assert nodes.indptr.tolist() == [0, 3, 4]
    assert nodes.places.tolist() == [3, 3, 2 * 80 + 3, -1]
    assert predicted.is_covered
    lists = {"calls": [["p3", "p3"], []], "places": [["shop3"], ["shop77"]]}
    weights = {"calls": [[1.0, 2.0], []], "places": [[2.0], [3.0]]}
    shown, unknown = run.predict_new(NEW[["age"]].to_numpy(), lists, weights=weights)
    np.testing.assert_array_equal(shown, predicted.probabilities)
    assert unknown.tolist() == [0, 1]
    other, _ = run.predict_new(NEW[["age"]].to_numpy(), lists, weights={"calls": [[100.0, 2.0], []]})
    with pytest.raises(hg.InputError, match="weights: expected for every row a list of numbers"):
        run.predict_new(NEW[["age"]].to_numpy(), lists, weights={"calls": [1.0, 2.0]})
    # One place of a relation alone has all of its norm, whatever its weight.
    np.testing.assert_allclose(other, shown, atol=1e-6)


def test_new_rows_of_a_file_read_the_same(run: hg.Run, tmp_path: Path) -> None:
    file = tmp_path / "new.npz"
    arrays: dict[str, Any] = {"x": [[0.1], [0.2]], "places_indptr": [0, 2, 3]}
    arrays |= {"places": ["p3", "shop3", "shop77"], "relations": ["calls", "places", "places"]}
    np.savez(file, **arrays, weights=[3.0, 2.0, 3.0])
    lists = {"calls": [["p3"], []], "places": [["shop3"], ["shop77"]]}
    shown, _ = run.predict_new([[0.1], [0.2]], lists)
    released = hg.Run.load(run.folder.path / "release", device="cpu")
    np.testing.assert_allclose(released.predict_table(file, new=True).probabilities, shown, atol=1e-6)
    np.savez(file, **{**arrays, "relations": ["calls"]})
    with pytest.raises(GraphError, match=r"relations has dtype .* expected one for each of 3 places"):
        run.predict_table(file, new=True)
    del arrays["relations"]
    np.savez(file, **arrays)
    with pytest.raises(GraphError, match="say of which each record is"):
        run.predict_table(file, new=True)


def test_what_is_not_read_of_new_rows_is_counted_under_its_own_words(run: hg.Run) -> None:
    edges = NEW_EDGES.assign(amount=[1.0, -2.0, 2.0, float("nan"), 9.0, 1.0])
    nodes = run.predict_table((NEW, edges), new=True).new_nodes
    assert nodes is not None
    # The board has p5, which only a record of an undeclared relation names.
    assert (nodes.unknown_names, nodes.undeclared) == (("shop77",), 1)
    summary = run.predict_table((NEW, edges), new=True).summary
    assert summary.skipped is not None
    assert summary.skipped.unknown == 1
    assert summary.notes == ["records of undeclared relations dropped: 1", "weights that count as 0: 2"]
    plain = run.predict_table((NEW, NEW_EDGES.iloc[:3]), new=True).summary
    assert plain.notes == []


def test_other_relations_are_other_data(run: hg.Run) -> None:
    nodes, edges = make_people()
    assert run.predict_proba((nodes, edges)).shape == (80, 2)
    plain = Graph.from_arrays(
        edge_index=[[0], [1]], x=np.ones((80, 1)), y=nodes["label"], train_idx=[0], num_classes=2
    )
    with pytest.raises(hg.errors.RunError):
        run.predict_proba(plain)


def test_averages_in_the_clear_are_weighted() -> None:
    edges = np.array([[1, 2], [0, 0]])
    relation = Relation.between_people("pays", edges, num_nodes=3, weights=np.array([3.0, 1.0]))
    graph = Graph.from_arrays(
        edge_index=None, relations=[relation], x=np.eye(3), y=[0, 0, 0], train_idx=[0], num_classes=2
    )
    shown = torch.tensor([[0.0], [8.0], [16.0]])
    averaged = average_over_neighbours(Number(low=0, high=50), shown, graph)[:, 0]
    # Half of its own and half of (3 * 8 + 16) / 4; without a neighbour, one's own.
    assert averaged.tolist() == [5.0, 8.0, 16.0]


def test_new_nodes_lack_the_number_whose_cells_have_a_rule() -> None:
    nodes, edges = make_people()
    nodes["label"] = [f"{number},5" for number in nodes["label"]]
    about: dict[str, Any] = {"task": "number", "bounds": (0.0, 2.0), "columns": {"decimal": {"label": ","}}}
    about |= {"unknown_ids": "drop", "split": "0.6/0.2/0.2"}
    run = hg.train((nodes, edges), **SMALL | {"num_classes": None} | about)
    new = pd.DataFrame({"id": ["n1", "n2"], "age": [0.1, 0.2]})
    lists = pd.DataFrame({"source": ["n1"], "target": ["p1"]})
    assert run.predict_table((new, lists), new=True).probabilities.shape == (2, 1)
