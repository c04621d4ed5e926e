"""Weights, relations and places, from every kind of data."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import torch
from scipy import sparse

import hushgraph as hg
from hushgraph.billboard.lists import hash_names
from hushgraph.datasets import load_graph
from hushgraph.errors import GraphError, InputError
from hushgraph.graph.records import EdgeWeight, Relation
from hushgraph.privacy.guarantee import find_assumptions
from row_lists import list_rows

NODES = "id,age,label,split\na,1,0,train\nb,2,1,train\nc,3,1,val\nd,4,0,test\n"
EDGES = (
    "source,target,amount,kind,day\n"
    "a,b,4,pays,2024-01-01\n"
    "a,b,5,pays,2024-01-31\n"
    "b,c,-1,calls,2024-02-01\n"
    "c,d,nan,calls,2024-02-02\n"
    "d,a,16,odd,never\n"
    "shop,a,1,pays,2024-01-15\n"
    "b,shop,9,calls,2024-01-15\n"
    "c,nowhere,1,pays,2024-01-15\n"
    ",a,1,pays,2024-01-15\n"
)
PLAIN = "\n".join(
    line for line in EDGES.splitlines() if "shop" not in line and "nowhere" not in line and line[0] != ","
)


def write(folder: Path, edges: str = PLAIN, **files: str) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "nodes.csv").write_text(NODES)
    (folder / "edges.csv").write_text(edges + "\n")
    for name, text in files.items():
        (folder / name.replace("_", ".")).write_text(text)
    return folder


def show(relation: Relation, names: str = "abcd") -> dict[str, float]:
    """Every record as "row names", with its weight."""
    pairs = relation.list_pairs().T.tolist()
    weights = np.ones(len(pairs)) if relation.weights is None else relation.weights
    places = names if relation.place_names is None else list(relation.place_names)
    return {f"{names[row]} {places[other]}": float(w) for (row, other), w in zip(pairs, weights, strict=True)}


@pytest.mark.parametrize(
    ("weight", "expected"),
    [
        ("amount", {"b a": 9.0, "a d": 16.0}),
        ("amount:sqrt", {"b a": 2 + 5**0.5, "a d": 4.0}),
        ("amount:log1p", {"b a": np.log1p(4) + np.log1p(5), "a d": np.log1p(16)}),
        ("count", {"b a": 2.0, "c b": 1.0, "d c": 1.0, "a d": 1.0}),
    ],
)
def test_weights_of_tables_are_summed_after_their_function(
    tmp_path: Path, weight: str, expected: dict[str, float]
) -> None:
    graph = load_graph(write(tmp_path / "t"), edge_weight=weight)
    (relation,) = graph.relations
    assert show(relation) == pytest.approx(expected)
    # A weight of 0 is no record.
    assert graph.num_edges == len(expected)
    assert "amount" not in graph.unread or weight == "count"
    both = load_graph(tmp_path / "t", edge_weight=weight, symmetrize=True)
    assert len(show(both.relations[0])) == 2 * len(expected)


def test_dates_drop_records_and_let_them_fade(tmp_path: Path) -> None:
    folder = write(tmp_path / "t")
    dated = {"edge_date": "day", "since": "2024-01-31", "until": "2024-02-01"}
    plain = load_graph(folder, columns=dated)
    assert (plain.relations, plain.num_edges) == ((), 2)
    faded = load_graph(folder, columns={"edge_date": "day", "until": "2024-01-31", "half_life": 31})
    # Ages count from the end of the last day: 31 days and 1.
    assert show(faded.relations[0]) == pytest.approx({"b a": 0.5 + 0.5 ** (1 / 31)})


def test_the_dates_of_edges_may_have_a_format_of_their_own(tmp_path: Path) -> None:
    folder = write(tmp_path / "t")
    edges = (folder / "edges.csv").read_text()
    (folder / "edges.csv").write_text(re.sub(r"(\d{4})-(\d\d)-(\d\d)", r"\3.\2.\1", edges))
    dated = {"edge_date": "day", "since": "2024-01-31", "until": "2024-02-01"}
    columns = {**dated, "date_format": {"day": "%d.%m.%Y"}}
    assert load_graph(folder, columns=columns).num_edges == 2
    assert "1 record without a date ('never')" in str(hg.check(folder, columns=columns))
    assert "5 records without a date" in str(hg.check(folder, columns=dated))


def test_relations_of_a_column_and_of_several_tables(tmp_path: Path) -> None:
    folder = write(tmp_path / "t")
    graph = load_graph(folder, columns={"relation": {"kind": ["calls", "pays", "none"]}})
    assert [each.info.name for each in graph.relations] == ["calls", "pays", "none"]
    assert [show(each) for each in graph.relations] == [{"c b": 1, "d c": 1}, {"b a": 1}, {}]
    header = "source,target,amount\n"
    toml = 'nodes = "nodes.csv"\nedges = {calls = "calls.csv", pays = ["pays.csv"]}\n'
    write(folder, calls_csv=header + "b,c,2\n", pays_csv=header + "a,b,3\na,b,4\n", graph_toml=toml)
    graph = load_graph(folder, edge_weight="amount")
    assert [each.info.name for each in graph.relations] == ["calls", "pays"]
    assert [show(each) for each in graph.relations] == [{"c b": 2}, {"b a": 7}]
    with pytest.raises(GraphError, match="a column that is the relation; leave out one"):
        load_graph(folder, columns={"relation": {"amount": ["2"]}})


def test_places_belong_to_the_person_whichever_end_names_them(tmp_path: Path) -> None:
    folder = write(tmp_path / "t", EDGES, places_txt="shop\ncafe\n\n")
    graph = load_graph(folder, columns={"places": str(folder / "places.txt")}, edge_weight="amount")
    people, places = graph.relations
    assert show(people) == {"b a": 9.0, "a d": 16.0}
    assert show(places) == {"a shop": 1.0, "b shop": 9.0}
    assert places.info.num_places == 2
    toml = '[columns]\nplaces = "places.txt"\n'
    write(folder, EDGES, graph_toml=toml)
    assert show(load_graph(folder).relations[1]) == {"a shop": 1.0, "b shop": 1.0}
    hashed = load_graph((folder / "nodes.csv", folder / "edges.csv"), columns={"places": "hash:3"}).relations[
        1
    ]
    buckets = hash_names(np.array(["shop", "nowhere"]), 3).tolist()
    expected = {(0, buckets[0]), (1, buckets[0]), (2, buckets[1])}
    assert set(map(tuple, hashed.list_pairs().T.tolist())) == expected
    # Who owns a record of a place does not depend on the owner of edges.
    graph = hg.Graph.from_arrays(
        edge_index=None, relations=[hashed], x=np.zeros((4, 1)), y=[0, 1, 0, 1], train_idx=[0]
    )
    for owner in ("sender", "reader"):
        lists = list_rows(graph, owner)
        assert lists.indptr.tolist() == hashed.indptr.tolist()
        assert lists.places.tolist() == hashed.indices.tolist()


def test_frames_read_as_files_do(tmp_path: Path) -> None:
    folder = write(tmp_path / "t", EDGES)
    how: dict[str, Any] = {
        "columns": {"places": ["shop"], "relation": {"kind": ["pays"]}},
        "edge_weight": "amount",
    }
    frames = pd.read_csv(folder / "nodes.csv"), pd.read_csv(folder / "edges.csv")
    for one, other in zip(
        load_graph(folder, **how).relations, load_graph(frames, **how).relations, strict=True
    ):
        assert (one.info, show(one)) == (other.info, show(other))


DATA = {
    "edge_index": torch.tensor([[0, 0, 1, 2], [1, 1, 2, 2]]),
    "x": torch.eye(3),
    "y": torch.tensor([0, 1, 1]),
    "train_idx": torch.tensor([0, 1]),
}


def test_pyg_npz_and_pt_read_weights_only_where_they_are_declared(tmp_path: Path) -> None:
    weights = torch.tensor([1.0, 2.0, float("inf"), 4.0])
    data = SimpleNamespace(**DATA, edge_weight=weights)
    assert load_graph(data).relations == ()
    assert load_graph(data).unread == ("edge_weight",)
    np.savez(tmp_path / "g.npz", **{name: each.numpy() for name, each in vars(data).items()})
    torch.save(vars(data), tmp_path / "g.pt")
    for each in (data, tmp_path / "g.npz", tmp_path / "g.pt"):
        graph = load_graph(each, edge_weight="edge_weight")
        assert show(graph.relations[0], "abc") == {"b a": 3.0}
        assert graph.unread == ()
        assert show(load_graph(each, edge_weight="count").relations[0], "abc") == {"b a": 2.0, "c b": 1.0}
        with pytest.raises(GraphError, match="edge_wait"):
            load_graph(each, edge_weight="edge_wait")
    assert hg.datasets.from_pyg(data, edge_weight="edge_weight:sqrt").relations[0].weights == pytest.approx(
        [1 + 2**0.5]
    )


def test_networkx_attributes_of_multigraphs_are_summed() -> None:
    graph = nx.MultiGraph()
    for node in "abc":
        graph.add_node(node, x=1.0, y=0, split="train")
    graph.add_edges_from([("a", "b", {"amount": 1}), ("a", "b", {"amount": 2.5}), ("b", "c", {})])
    found = load_graph(graph, edge_weight="amount", num_classes=2)
    assert show(found.relations[0], "abc") == {"a b": 3.5, "b a": 3.5}


@pytest.mark.parametrize("kind", [nx.MultiGraph, nx.MultiDiGraph])
def test_networkx_attributes_and_keys_are_relations_where_they_are_declared(kind: Any) -> None:
    graph = kind()
    for node in "abc":
        graph.add_node(node, x=1.0, y=0, split="train")
    graph.add_edge("a", "b", key="pays", how="cash", amount=2.0)
    graph.add_edge("a", "b", key="calls", how="phone", amount=3.0)
    graph.add_edge("b", "c", key="odd", how="phone")
    pairs = ["b a"] if graph.is_directed() else ["a b", "b a"]
    found = hg.datasets.from_networkx(graph, relation={"key": ["calls", "pays"]}, num_classes=2)
    assert [each.info.name for each in found.relations] == ["calls", "pays"]
    assert [show(each, "abc") for each in found.relations] == [dict.fromkeys(pairs, 1.0)] * 2
    found = hg.datasets.from_networkx(
        graph, relation={"how": ["phone", "cash"]}, edge_weight="amount", num_classes=2
    )
    assert [show(each, "abc") for each in found.relations] == [
        dict.fromkeys(pairs, amount) for amount in (3.0, 2.0)
    ]


def test_relations_of_a_networkx_graph_are_trained_on() -> None:
    graph = nx.gnp_random_graph(40, 0.2, seed=1)
    for node in graph:
        graph.nodes[node].update(x=float(node % 3), y=node % 2)
    for number, (u, w) in enumerate(graph.edges):
        graph.edges[u, w]["kind"] = ["calls", "pays", "odd"][number % 3]
    kinds = {"kind": ["calls", "pays"]}
    read = hg.datasets.from_networkx(graph, relation=kinds, split="0.6/0.2/0.2", num_classes=2)
    run = hg.train(read, epsilon=4.0, steps=1, hidden=4, device="cpu")
    assert [block.name for block in run.folder.load_boards()[0].blocks] == ["calls", "pays"]


def hetero() -> Any:
    data = pytest.importorskip("torch_geometric.data").HeteroData()
    data["user"].x, data["user"].y = torch.eye(4), torch.tensor([0, 1, 1, 0])
    data["user"].train_mask = torch.tensor([True, True, False, False])
    data["device"].num_nodes = 3
    data["user", "calls", "user"].edge_index = torch.tensor([[0, 1], [1, 2]])
    data["user", "uses", "device"].edge_index = torch.tensor([[0, 3, 3], [2, 1, 1]])
    data["device", "rev_uses", "user"].edge_index = torch.tensor([[2, 1, 1], [0, 3, 3]])
    data["device", "near", "device"].edge_index = torch.tensor([[0], [1]])
    return data


def test_hetero_data_has_a_relation_for_each_type_of_edges_of_people() -> None:
    graph = load_graph(hetero(), people="user")
    assert [(each.info.name, each.info.num_places) for each in graph.relations] == [
        ("calls", None),
        ("uses device", 3),
    ]
    assert graph.relations[1].list_pairs().T.tolist() == [[0, 2], [3, 1]]
    counted = load_graph(hetero(), people="user", edge_weight="count")
    assert counted.relations[1].weights.tolist() == [1.0, 2.0]
    with pytest.raises(GraphError, match="say which are people, as people='user'"):
        load_graph(hetero())
    with pytest.raises(GraphError, match="people='person' is none of its types"):
        load_graph(hetero(), people="person")
    with pytest.raises(GraphError, match="it is for PyG's HeteroData"):
        load_graph(SimpleNamespace(**DATA), people="user")


def test_hetero_data_is_trained_predicted_and_read_by_new_people(tmp_path: Path) -> None:
    run = hg.train(
        hetero(),
        people="user",
        epsilon=4.0,
        steps=3,
        hidden=4,
        device="cpu",
        num_classes=2,
        out=tmp_path / "r",
    )
    assert run.folder.reading_width >= 2 * run.folder.task.ballot_width
    again = hg.Run.load(tmp_path / "r", device="cpu")
    assert np.array_equal(again.predict_proba(hetero()), run.predict_proba(hetero()))
    lists = {"calls": [[0, 9]], "uses device": [[2]]}
    shown, unknown = again.predict_new(np.ones((1, 4)), lists)
    assert shown.shape == (1, 2)
    assert unknown.tolist() == [1]
    with pytest.raises(InputError, match="give a list for each, by name"):
        again.predict_new(np.ones((1, 4)), [[0]])
    with pytest.raises(InputError, match="no relation 'emails'"):
        again.predict_new(np.ones((1, 4)), {"emails": [[0]]})
    with pytest.raises(InputError, match="places: expected for every row a list of what it lists"):
        again.predict_new(np.ones((1, 4)), {"calls": [0]})
    with pytest.raises(InputError, match="trained without weights"):
        again.predict_new(np.ones((1, 4)), lists, weights={"calls": [[1, 2]]})


def test_the_values_of_a_scipy_matrix_are_weights_where_they_are_declared() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 3)), rng.integers(0, 2, 60)
    graph = sparse.random(60, 60, 0.1, random_state=0)
    usual: dict[str, Any] = {"epsilon": 4.0, "steps": 3, "hidden": 4, "device": "cpu", "num_classes": 2}
    clf = hg.NodeClassifier(**usual, edge_weight="values").fit(X, y, graph)
    assert clf.run_.folder.relations[0].is_weighted
    assert clf.plan_.is_weighted
    assert clf.predict_proba(X, graph).shape == (60, 2)
    assert not hg.NodeClassifier(**usual).fit(X, y, graph).plan_.is_weighted
    with pytest.raises(GraphError, match="an array of edges, which has no weights"):
        hg.NodeClassifier(**usual, edge_weight="values").fit(X, y, np.array([[0], [1]]))


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"edge_weight": "amnt"}, "no column 'amnt', given as edge-weight; did you mean 'amount'?"),
        ({"edge_weight": "amount:log"}, "expected a column, alone or with log1p, sqrt or none"),
        ({"relation": {"knd": ["a"]}}, "no column 'knd', given as relation; did you mean 'kind'?"),
        ({"relation": {"kind": []}}, "relation kind is empty"),
        ({"places": "hash:0"}, "expected hash:N with a number of places"),
        ({"places": "hash:many"}, "expected hash:N with a number of places"),
        ({"places": "gone.txt"}, "expected a file with one name of a place a line"),
        ({"places": []}, "places holds no name"),
        ({"since": "2024-01-01"}, "no column of dates; give --edge-date COLUMN"),
        ({"edge_date": "day"}, "a date alone has no effect; give --since, --until or --half-life"),
        ({"edge_date": "day", "half_life": 30}, "give --until YYYY-MM-DD"),
        ({"edge_date": "day", "until": "2024-02-30"}, "expected a day, as 2024-01-31"),
        ({"edge_date": "day", "until": "2024-01-01", "since": "2024-02-01"}, "give them in order"),
        ({"edge_date": "day", "until": "2024-01-01", "half_life": -1}, "expected a number of days above 0"),
        ({"edge_date": "when", "until": "2024-01-01"}, "no column 'when', given as edge-date"),
    ],
)
def test_what_cannot_work_is_refused_in_one_line(tmp_path: Path, columns: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words.replace("?", r"\?")) as caught:
        load_graph(write(tmp_path / "t"), columns=columns)
    assert "\n" not in str(caught.value)


def test_check_lists_all_problems_of_records_at_once_with_remedies(tmp_path: Path) -> None:
    folder = write(tmp_path / "t", EDGES)
    columns = {
        "edge_weight": "amount",
        "relation": {"kind": ["pays", "calls"]},
        "places": ["shop"],
        "edge_date": "day",
        "until": "2024-12-31",
    }
    checked = hg.check(folder, columns=columns)
    assert checked.can_train
    text = checked.to_text()
    for words in (
        "1 record without a finite weight",
        "1 record with a weight below 0",
        "1 record without a date",
        "1 record of a relation that is not declared",
        "2 edges that name no declared place",
    ):
        assert words in text
    checked.write()
    assert len(load_graph(folder).relations) == 3
    wrong = hg.check(folder, columns={"edge_weight": "amnt", "relation": {"knd": ["a"]}})
    assert not wrong.can_train
    assert wrong.to_text().count("no such column, given as") == 2


def test_check_proposes_flags_and_marks_what_it_read_off_rows(tmp_path: Path) -> None:
    checked = hg.check(write(tmp_path / "t"))
    assert checked.declared["edge_weight"] == "amount:log1p"
    assert checked.declared["relation"] == {"kind": ["calls", "odd", "pays"]}
    assert "records" in checked.looked_up
    shops = "source,target\n" + "".join(f"{person},shop{number}\n" for number, person in enumerate("abcd"))
    checked = hg.check(write(tmp_path / "shops", shops))
    assert checked.declared["places"] == "hash:65536"
    assert "records" in checked.looked_up
    graph = load_graph(tmp_path / "shops", columns=checked.to_columns())
    assert [each.code for each in find_assumptions(graph)][-1] == "records-looked-up"


@pytest.mark.parametrize("are_nodes_alike", [True, False])
@pytest.mark.parametrize(
    ("cells", "numbers"),
    [(("1.312,54", "40,5", "7"), (1312.54, 40.5, 7.0)), (("1,5", "0,25", "2,75"), (1.5, 0.25, 2.75))],
    ids=["groups", "commas"],
)
def test_check_proposes_amounts_with_decimal_commas_and_train_reads_them(
    tmp_path: Path, cells: tuple[str, ...], numbers: tuple[float, ...], are_nodes_alike: bool
) -> None:
    point = "," if are_nodes_alike else "."
    splits = zip("abcd", ("train", "train", "val", "test"), strict=True)
    rows = [f"{name};{n}{point}5;{n % 2};{split}" for n, (name, split) in enumerate(splits)]
    (tmp_path / "nodes.csv").write_text("id;income;label;split\n" + "\n".join(rows) + "\n")
    pairs = zip(("a;b", "b;c", "c;d"), cells, strict=True)
    (tmp_path / "edges.csv").write_text(
        "source;target;amount\n" + "".join(f"{pair};{cell}\n" for pair, cell in pairs)
    )
    checked = hg.check(tmp_path)
    assert checked.declared["edge_weight"] == "amount:log1p"
    assert set(checked.to_columns().looked_up) == {"numbers", "records"}
    assert set(checked.settings["decimal"]) == {"*" if are_nodes_alike else "amount"}
    assert not any("amount" in each.where and each.stops for each in checked.problems)
    graph = load_graph(tmp_path, columns=checked.to_columns())
    expected = dict(zip(("b a", "c b", "d c"), np.log1p(numbers), strict=True))
    assert show(graph.relations[0]) == pytest.approx(expected)
    # The file says it once more.
    checked.write()
    again = load_graph(tmp_path / "graph.toml", edge_weight="amount")
    assert show(again.relations[0]) == pytest.approx(dict(zip(expected, numbers, strict=True)))


def test_a_weight_is_read_as_it_is_declared() -> None:
    assert EdgeWeight.of("a:b:sqrt") == EdgeWeight(column="a:b", function="sqrt")
    assert EdgeWeight.of("count").column is None
    assert EdgeWeight.of("count:none").column == "count"
    assert EdgeWeight(column="a", function="log1p").apply([-2, -0.5, 0, np.nan]).tolist() == [0, 0, 0, 0]
