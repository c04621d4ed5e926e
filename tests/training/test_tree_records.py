"""Runs on trees whose records have weights or are of several relations: what they learn, refuse and say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import hushgraph as hg
from hushgraph import Graph
from hushgraph.errors import InputError, ModelError
from hushgraph.graph.records import Relation
from hushgraph.models.gnn import GCNLayer, RelationalGCNLayer
from hushgraph.privacy.ledger import Ledger

N = 300
TINY: dict[str, Any] = {"method": "trees", "max_readers": 3, "epsilon": 4.0, "steps": 4, "hidden": 4}
LEARN: dict[str, Any] = {"method": "trees", "private": False, "steps": 80, "hidden": 16, "seed": 0}
ON_CPU: dict[str, Any] = {"device": "cpu", "progress": False}


def build(relations: list[Relation], y: np.ndarray, seed: int = 1) -> Graph:
    """Features that say a little about the label of their node, and with it about that of its readers."""
    rng = np.random.default_rng(seed)
    return Graph.from_arrays(
        edge_index=None,
        relations=relations,
        x=rng.normal(size=(N, 4)) + 0.5 * (2 * y - 1)[:, None],
        y=y,
        train_idx=np.arange(200),
        test_idx=np.arange(200, N),
        num_classes=2,
    )


def draw(seed: int) -> tuple[np.random.Generator, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng, rng.integers(0, 2, N)


def make_amounts(*, with_weights: bool) -> Graph:
    """Who pays whom says nothing; much is paid to people of the same label alone."""
    rng, y = draw(0)
    edges = rng.integers(0, N, (2, 12 * N))
    amounts = np.where(y[edges[0]] == y[edges[1]], 50.0, 1.0)
    weights = amounts if with_weights else None
    return build([Relation.between_people("pays", edges, num_nodes=N, weights=weights)], y)


def make_kinds(*, as_relations: bool) -> Graph:
    """Friends have the same label and rivals the other one."""
    rng, y = draw(2)
    edges = rng.integers(0, N, (2, 12 * N))
    same = y[edges[0]] == y[edges[1]]
    kinds = {"friend": edges[:, same], "rival": edges[:, ~same]} if as_relations else {"knows": edges}
    return build([Relation.between_people(name, each, num_nodes=N) for name, each in kinds.items()], y)


def measure(graph: Graph, **settings: Any) -> float:
    run = hg.train(graph, **LEARN, **settings, **ON_CPU)
    evaluation = run.evaluate(graph)
    assert evaluation is not None
    return float(evaluation.figures["accuracy"])


@pytest.mark.parametrize("model", ["gcn", "gin", "gat"])
def test_weights_that_carry_the_label_help(model: str) -> None:
    with_weights, without = (
        measure(make_amounts(with_weights=each), model=model, max_readers=8) for each in (True, False)
    )
    assert with_weights > without + 0.05


def test_relations_that_carry_the_label_help() -> None:
    related, alike = (measure(make_kinds(as_relations=each), max_readers=8) for each in (True, False))
    assert related > alike + 0.05


def test_private_training_learns_from_weights_at_a_large_epsilon() -> None:
    """With noise that hardly matters, the private run is as good as the weights allow."""
    settings = {**LEARN, "private": True, "epsilon": 2000.0, "max_readers": 4}
    graphs = [make_amounts(with_weights=each) for each in (True, False)]
    with_weights, without = (
        hg.train(graph, **settings, **ON_CPU).result["test_accuracy"] for graph in graphs
    )
    assert with_weights > without


@pytest.mark.parametrize(
    ("graph", "layer"),
    [(make_amounts(with_weights=True), GCNLayer), (make_kinds(as_relations=True), RelationalGCNLayer)],
)
def test_a_run_says_what_its_records_are(graph: Graph, layer: type, tmp_path: Path) -> None:
    run = hg.train(graph, out=tmp_path / "run", **TINY, **ON_CPU)
    assert type(run.model.layers[0]) is layer  # type: ignore[union-attr, index]
    plain = hg.TreePlan(num_train_nodes=200, num_layers=1, max_readers=3, batch_size=1, steps=1)
    # Neither weights nor relations change n.
    assert run.plan.changed_trees == plain.changed_trees == 4
    assert run.result["guarantee"] == "holds"
    protected = {topic.key: topic.text for topic in run.folder.guarantee.statement.topics}["protected"]
    if run.plan.num_relations > 1:
        words = "Records are of 2 relations, and a pair of nodes in several of them is one read."
        assert "a map for each of 2 relations" in run.plan.describe_model("gcn")
    else:
        words = "A record has a weight, which belongs to the row as well."
    assert words in protected
    run.report(tmp_path / "report.html")
    assert words in (tmp_path / "report.html").read_text()


def test_a_plan_of_plain_records_is_written_as_before() -> None:
    plain = hg.TreePlan(num_train_nodes=200, num_layers=1, max_readers=3, batch_size=1, steps=1)
    assert "num_relations" not in plain.to_json()
    assert "is_weighted" not in plain.to_json()
    related = hg.TreePlan(
        num_train_nodes=200,
        num_layers=1,
        max_readers=3,
        batch_size=1,
        steps=1,
        num_relations=2,
        is_weighted=True,
    )
    assert hg.PrivacyPlan.from_json(related.to_json()) == related
    assert related.epsilon_edge == plain.epsilon_edge


@pytest.mark.parametrize("graph", [make_amounts(with_weights=True), make_kinds(as_relations=True)])
def test_an_interrupted_run_goes_on(graph: Graph, tmp_path: Path) -> None:
    def stop(*told: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        hg.train(graph, out=tmp_path / "run", observer=stop, device="cpu", **TINY | {"steps": 30})
    plain = make_amounts(with_weights=False)
    with pytest.raises(InputError, match="the data has other relations, places or weights than the run"):
        hg.resume(tmp_path / "run", plain, device="cpu")
    resumed = hg.resume(tmp_path / "run", graph, device="cpu")
    assert Ledger.open(resumed.folder.ledger_path, read_only=True).steps_charged == 30
    assert resumed.result["guarantee"] == "holds"
    loaded = hg.Run.load(tmp_path / "run", device="cpu")
    released = hg.Run.load(tmp_path / "run" / "release", device="cpu")
    for each in (loaded, released):
        assert np.array_equal(each.predict_proba(graph), resumed.predict_proba(graph))


def test_predictions_need_the_records_of_training(tmp_path: Path) -> None:
    graph = make_kinds(as_relations=True)
    run = hg.train(graph, **TINY, **ON_CPU)
    with pytest.raises(
        InputError, match="the data has other relations or weights than the run was trained on"
    ):
        run.predict(make_kinds(as_relations=False))
    others = make_kinds(as_relations=True)
    assert run.predict(others).shape == (N,)


def test_weights_of_pyg_are_read_again_for_predictions() -> None:
    pyg = pytest.importorskip("torch_geometric.data")
    graph = make_amounts(with_weights=True)
    (relation,) = graph.relations
    data = pyg.Data(
        x=torch.from_numpy(graph.x),
        y=torch.from_numpy(graph.y),
        edge_index=torch.from_numpy(relation.list_pairs()[::-1].copy()),
        amount=torch.from_numpy(relation.weights),
    )
    for name, nodes in (("train_mask", graph.train_idx), ("test_mask", graph.test_idx)):
        mask = torch.zeros(N, dtype=torch.bool)
        mask[torch.from_numpy(nodes)] = True
        data[name] = mask
    run = hg.train(data, edge_weight="amount", num_classes=2, **TINY, **ON_CPU)
    assert np.array_equal(run.predict_proba(data), run.predict_proba(graph_like(run, graph)))


def graph_like(run: hg.Run, graph: Graph) -> Graph:
    """The same graph with its relation named as the run names it."""
    (info,) = run.folder.relations
    (relation,) = graph.relations
    weights = relation.weights
    pairs = relation.list_pairs()[::-1].copy()
    return build([Relation.between_people(info.name, pairs, num_nodes=N, weights=weights)], graph.y)


@pytest.mark.parametrize("make", [make_amounts, make_kinds], ids=["weights", "relations"])
def test_without_reads_in_training_they_count_in_predictions(make: Any) -> None:
    """K = 0 trains on single rows, with one map for all relations; predictions read by weights."""
    flag = "with_weights" if make is make_amounts else "as_relations"
    graph, plain = make(**{flag: True}), make(**{flag: False})
    runs = [hg.train(each, **TINY | {"max_readers": 0, "seed": 3}, **ON_CPU) for each in (graph, plain)]
    assert runs[0].plan.changed_trees == 1
    weights = [run.model.state_dict() for run in runs]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[1])
    same = np.array_equal(runs[0].predict_proba(graph), runs[1].predict_proba(plain))
    assert same == (make is make_kinds and not differs(graph))


def differs(graph: Graph) -> bool:
    """Whether relations are of different sizes in some row, which equal parts then show."""
    first, second = (np.diff(each.indptr) for each in graph.relations)
    return bool(((first != second) & (first > 0) & (second > 0)).any())


def test_the_private_mlp_reads_no_record() -> None:
    run = hg.train(make_amounts(with_weights=True), model="mlp", epsilon=4.0, steps=4, **ON_CPU)
    assert (run.plan.is_weighted, run.plan.num_relations) == (False, 1)
    assert run.predict(make_kinds(as_relations=True)).shape == (N,)


@pytest.mark.parametrize("model", ["gin", "gat"])
def test_models_of_one_map_refuse_relations(model: str) -> None:
    with pytest.raises(InputError, match=f"model='{model}' with 2 relations: it has one map for all records"):
        hg.train(make_kinds(as_relations=True), **TINY, model=model, **ON_CPU)


def test_trees_refuse_places() -> None:
    _, y = draw(0)
    uses = Relation.to_places("uses", np.arange(9), np.arange(9) % 3, num_nodes=N, num_places=3)
    graph = build([uses], y)
    with pytest.raises(InputError, match="places with rounds of messages: a place has no features"):
        hg.train(graph, **TINY, **ON_CPU)
    assert hg.train(graph, model="mlp", epsilon=4.0, steps=2, **ON_CPU).result["guarantee"] == "holds"


class ByRelation(nn.Module):
    """A module of one's own that reads each relation by itself."""

    def __init__(self, relations: int = 2) -> None:
        super().__init__()
        self.encoder = nn.Linear(4, 8)
        self.maps = nn.ModuleList(nn.Linear(8, 8) for _ in range(relations))
        self.decoder = nn.Linear(8, 2)

    def forward(self, x: Tensor, blocks: tuple[hg.Reads, ...]) -> Tensor:
        h = torch.tanh(self.encoder(x))
        for reads in reversed(blocks):
            h = reads.own(h) + sum(
                torch.tanh(each(reads.mean_of_relation(h, number))) for number, each in enumerate(self.maps)
            )
        out: Tensor = self.decoder(h)
        return out


def test_a_module_of_ones_own_reads_relations() -> None:
    settings = {name: value for name, value in TINY.items() if name != "hidden"}
    graph = make_kinds(as_relations=True)
    run = hg.train(graph, model=ByRelation(), **settings, **ON_CPU)
    assert run.predict(graph).shape == (N,)
    with pytest.raises(ModelError, match="these reads are of one relation"):
        hg.train(make_kinds(as_relations=False), model=ByRelation(), **settings, **ON_CPU)
