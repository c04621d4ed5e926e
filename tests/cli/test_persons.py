"""`--person`: tables, graph.toml, NetworkX and PyG; check proposes it; budgets and trees refuse."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import networkx
import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import hushgraph as hg
from hushgraph.cli.app import build_app
from hushgraph.datasets import from_networkx, load_graph
from hushgraph.errors import HushgraphError
from hushgraph.privacy.units import _OF_PERSONS, speak


def write_tables(folder: Path, *, gap: bool = False) -> Path:
    """60 accounts of 20 customers; a column says whose each is."""
    rng = np.random.default_rng(0)
    folder.mkdir()
    lines = ["id,age,customer_id,label"]
    for node in range(60):
        owner = "" if gap and node == 7 else f"c{node // 3}"
        lines.append(f"a{node},{rng.integers(20, 60)},{owner},{node // 3 % 2}")
    (folder / "nodes.csv").write_text("\n".join(lines) + "\n")
    ends = rng.integers(0, 60, (150, 2))
    edges = ["source,target", *(f"a{u},a{w}" for u, w in ends)]
    (folder / "edges.csv").write_text("\n".join(edges) + "\n")
    return folder


def call(*arguments: str) -> dict[str, Any]:
    found = CliRunner().invoke(build_app(), [*arguments, "--json"])
    assert found.exit_code == 0, found.output + str(found.exception)
    values: dict[str, Any] = json.loads(found.stdout.splitlines()[-1])
    return values


def test_a_run_on_tables_protects_persons_to_the_end(tmp_path: Path) -> None:
    people, out, budget = write_tables(tmp_path / "people"), tmp_path / "run", tmp_path / "b.ledger"
    call("budget", str(budget), "--epsilon", "20", "--delta", "1e-4")
    flags = ["--person", "customer_id", "--symmetrize", "--num-classes", "2", "--epsilon", "4"]
    planned = call("plan", str(people), *flags)
    assert (planned["unit"], planned["train_nodes"] <= 20) == ("person", True)
    assert planned["adjacency"] == "person-level, zero-out"
    assert "every single person" in planned["statement"]
    small = ["--steps", "3", "--hidden", "4", "--device", "cpu"]
    result = call("train", str(people), *flags, *small, "--out", str(out), "--budget", str(budget))
    assert result["unit"] == "person"
    assert call("budget", str(budget))["unit"] == "person"
    run = hg.Run.load(out / "release")
    assert run.plan.protects == "person"
    assert run.predict_proba(people).shape == (60, 2)
    # A new node of a known person cast nothing, so that nothing is taken off its reading.
    assert run.predict_new(np.array([[40.0]], np.float32), [["a1", "a2"]])[0].shape == (1, 2)
    for text in (run.card(), (out / "release" / "README.md").read_text()):
        assert "person-level" in text
        assert "epsilon, one node" not in text
    with pytest.raises(HushgraphError, match="protect each person, and this one each node"):
        hg.train(people, epsilon=1.0, num_classes=2, ignore=["customer_id"], steps=2, budget=budget)


def test_check_proposes_the_person_and_lists_gaps(tmp_path: Path) -> None:
    checked = hg.check(write_tables(tmp_path / "people", gap=True))
    assert checked.settings["person"] == "customer_id"
    assert "person" in checked.settings["looked_up"]
    assert any("1 node has no person" in each.what for each in checked.problems)
    graph = load_graph(tmp_path / "people", columns=checked.to_columns(), split="0.6/0.2/0.2")
    assert graph.persons is not None
    assert list(graph.persons[[6, 7, 8]]) == [6, 7, 6]


def test_splits_are_by_person() -> None:
    graph = load_graph("generated-100", person=np.arange(100) // 4, split="0.5/0.25/0.25")
    assert graph.persons is not None
    for name in ("train_idx", "val_idx", "test_idx"):
        assert set(np.bincount(graph.persons[getattr(graph, name)])) <= {0, 4}
    given = load_graph("generated-100", split="0.5/0.25/0.25").with_persons(np.arange(100) // 4)
    trained = given.persons[given.train_idx]  # type: ignore[index]
    assert not np.isin(given.persons[given.val_idx], trained).any()  # type: ignore[index]


def test_attributes_of_networkx_and_pyg() -> None:
    graph = networkx.path_graph(6)
    for node in graph:
        graph.nodes[node].update(x=[float(node)], y=node % 2, split="train")
        if node < 4:
            graph.nodes[node]["owner"] = "ab"[node // 2]
    read = from_networkx(graph, person="owner")
    assert read.persons is not None
    assert list(read.persons) == [0, 0, 2, 2, 4, 5]
    # 0-1 and 2-3 are records between nodes of one person.
    assert read.num_edges == 6
    data = SimpleNamespace(
        edge_index=torch.tensor([[0, 1], [1, 2]]),
        x=torch.eye(3),
        y=torch.tensor([0, 1, 1]),
        train_idx=torch.tensor([0, 1]),
        owner=torch.tensor([5, 5, -1]),
    )
    assert hg.prepare(data, epsilon=4.0, person="owner", steps=2).plan.protects == "person"
    with pytest.raises(HushgraphError, match="no 'nobody', given as person"):
        load_graph(data, person="nobody")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_readers": 2}, "trees with messages"),
        ({"person": "nobody"}, "nobody"),
        ({"person": "age", "features": ["age"]}, "column .age. is given as"),
    ],
)
def test_what_cannot_work_is_one_line(tmp_path: Path, settings: dict[str, Any], message: str) -> None:
    people = write_tables(tmp_path / "people")
    given = {"person": "customer_id", "num_classes": 2, "epsilon": 4.0, **settings}
    with pytest.raises(HushgraphError, match=message) as error:
        hg.prepare(people, **given)
    assert "\n" not in str(error.value)


def test_every_phrase_about_nodes_has_a_form_about_persons() -> None:
    for phrase, form in _OF_PERSONS:
        assert speak(phrase, "person") == form
        assert speak(phrase, "node") == phrase


@pytest.mark.parametrize(
    "flags",
    [
        ["--edge-weight", "amount"],
        ["--relation", "kind=a|b"],
        ["--places", "hash:8"],
        ["--person", "customer_id"],
        ["--person", "customer_id", "--edge-weight", "amount:log1p"],
        ["--person", "customer_id", "--relation", "kind=a|b", "--places", "hash:8"],
        ["--person", "customer_id", "--model", "mlp"],
        ["--person", "customer_id", "--max-readers", "0"],
    ],
    ids=" ".join,
)
def test_a_plan_without_data_prices_what_flags_say_about_records(tmp_path: Path, flags: list[str]) -> None:
    """Edges, pairs and the unit as for data with these columns."""
    people = write_tables(tmp_path / "people")
    lines = (people / "edges.csv").read_text().splitlines()
    more = [f"{line},{number % 5},{'ab'[number % 2]}" for number, line in enumerate(lines[1:])]
    (people / "edges.csv").write_text("\n".join(["source,target,amount,kind", *more]) + "\n")
    usual = ["--num-classes", "2", "--epsilon", "4", "--numbers", "as-is"]
    ignored = [] if "--person" in flags else ["--ignore", "customer_id"]
    known = call("plan", str(people), *usual, *flags, *ignored)
    usual = usual[:4] if "--max-readers" not in flags else usual[2:4]
    shape = ["--steps", str(known["steps"]), "--batch-size", str(known["batch_size"])]
    found = call("plan", "--train-nodes", str(known["train_nodes"]), *usual, *shape, *flags)
    names = ("unit", "adjacency", "epsilon_edge", "epsilon_pair", "epsilon_label", "changed_trees")
    assert {name: found.get(name) for name in names} == {name: known.get(name) for name in names}


def test_a_weighted_edge_without_data_is_priced_at_6() -> None:
    usual = ["plan", "--train-nodes", "5000", "--num-classes", "5", "--epsilon", "4"]
    plain, weighted, persons = (
        call(*usual, *more)["epsilon_edge"] for more in ([], ["--edge-weight", "w"], ["--person", "p"])
    )
    assert plain < persons < weighted
    with pytest.raises(AssertionError, match="trees with messages"):
        call("plan", "--train-nodes", "5000", "--epsilon", "4", "--person", "p", "--max-readers", "2")
    with pytest.raises(AssertionError, match="without DATA: there is nothing to read"):
        call(*usual, "--id", "name")
