"""`hushgraph.train`: what it trains, what it promises, what it refuses, and that it leaves nothing behind."""

from __future__ import annotations

import gc
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import sparse
from torch import Tensor, nn

import hushgraph as hg
from hushgraph.errors import BudgetExceededError, GraphError, InputError, ModelError, PlanError
from hushgraph.graph.graph import Graph
from hushgraph.models.blocks import Reads
from hushgraph.privacy.ledger import Ledger
from hushgraph.sampling.batches import PoissonBatches
from hushgraph.training import tree_batches

Weights = dict[str, Tensor]
# Enough to go through every part of a step, and little enough to be quick.
QUICK: dict[str, Any] = {"steps": 6, "hidden": 8, "batch_size": 40, "max_readers": 2, "device": "cpu"}


@pytest.fixture(scope="module")
def graph() -> Graph:
    return hg.datasets.synthetic(num_nodes=240, num_classes=3, num_features=12, average_degree=6, seed=3)


@pytest.fixture(scope="module")
def directed() -> Graph:
    return hg.datasets.synthetic(num_nodes=240, num_classes=3, num_features=12, directed=True, seed=4)


def weights(run: hg.Run) -> Weights:
    return {name: p.detach().clone() for name, p in run.model.named_parameters()}


def distance(one: Weights, two: Weights) -> float:
    """The largest difference of any two weights, relative to the largest weight."""
    assert one.keys() == two.keys()
    largest = max(float(p.abs().max()) for p in one.values())
    return max(float((one[name] - two[name]).abs().max()) for name in one) / largest


def without_edges(graph: Graph) -> Graph:
    return replace(graph, indptr=np.zeros(graph.num_nodes + 1, np.int64), indices=graph.indices[:0])


@pytest.mark.parametrize(
    ("model", "layers"), [("gcn", 1), ("gin", 1), ("gat", 1), ("mlp", 1), ("gcn", 3), ("gcn", 0), ("gin", 2)]
)
def test_every_architecture_trains(graph: Graph, model: str, layers: int) -> None:
    run = hg.train(graph, model=model, num_layers=layers, epsilon=8.0, exact_figures=True, **QUICK)
    assert run.plan.num_layers == (0 if model == "mlp" else layers)
    assert 0 < run.epsilon <= 8.0
    assert run.result["guarantee"] == "holds"
    assert all(torch.isfinite(p).all() for p in run.model.parameters())
    predicted = run.predict(graph)
    assert (predicted.shape, predicted.dtype) == ((240,), np.int64)
    exact = run.result if run.result["figures"] == "not covered" else run.result["exact_figures"]
    assert np.isclose(exact["test_accuracy"], np.mean((predicted == graph.y)[graph.test_idx]))
    assert np.isclose(exact["val_accuracy"], np.mean((predicted == graph.y)[graph.val_idx]))
    assert np.array_equal(run.predict_proba(graph).argmax(1), predicted)


@pytest.mark.parametrize(("max_readers", "max_reads"), [(0, None), (2, 0), (2, None)])
def test_attention_is_trained_only_where_training_reads_edges(
    graph: Graph, max_readers: int, max_reads: int | None
) -> None:
    bounded = {"max_readers": max_readers, "max_reads": max_reads}
    run = hg.train(graph, model="gat", epsilon=8.0, **QUICK | bounded)
    attends = any("query" in name for name, _ in run.model.named_parameters())
    assert attends == (max_readers > 0 and max_reads != 0)
    again = hg.Run.load(run.folder.path)
    assert np.array_equal(again.predict(graph), run.predict(graph))


def test_no_readers_still_passes_messages_at_inference(graph: Graph) -> None:
    run = hg.train(graph, epsilon=8.0, **QUICK | {"max_readers": 0})
    assert run.plan.changed_trees == 1
    alone = run.predict_proba(without_edges(graph))
    assert np.abs(run.predict_proba(graph) - alone).max() > 1e-3


def test_no_readers_read_no_edge_in_training(graph: Graph) -> None:
    settings = QUICK | {"max_readers": 0, "paper_noise_multiplier": 1.0, "seed": 1}
    assert (
        distance(weights(hg.train(graph, **settings)), weights(hg.train(without_edges(graph), **settings)))
        == 0
    )


def test_private_training_learns() -> None:
    graph = hg.datasets.synthetic(num_nodes=4000, num_classes=4, num_features=32, seed=5)
    run = hg.train(graph, epsilon=8.0, steps=60, hidden=32, max_readers=1, learning_rate=0.03, device="cpu")
    assert run.result["guarantee"] == "holds"
    # Guessing gives 0.25; six runs reached 0.66 to 0.67.
    assert run.result["test_accuracy"] > 0.5


@pytest.mark.parametrize("size", [1, 40, None])
def test_any_batch_size_works_and_empty_batches_do(
    graph: Graph, size: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    real = PoissonBatches.draw

    def draw(self: PoissonBatches) -> Any:
        drawn = real(self)
        sizes.append(len(drawn))
        return drawn

    monkeypatch.setattr(PoissonBatches, "draw", draw)
    all_nodes = len(graph.train_idx)
    run = hg.train(
        graph, paper_noise_multiplier=1.0, seed=2, **QUICK | {"batch_size": size or all_nodes, "steps": 12}
    )
    assert all(torch.isfinite(p).all() for p in run.model.parameters())
    assert run.plan.sampling_rate == (size or all_nodes) / all_nodes
    # With q = 1 nothing is drawn: everybody is in.
    assert (0 in sizes) == (size == 1)
    assert len(sizes) == (0 if size is None else 12)


def test_an_empty_batch_still_gets_noise(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PoissonBatches, "draw", lambda self: np.empty(0, np.int64))
    settings = QUICK | {"steps": 1, "seed": 1, "average": 0.0}
    runs = [weights(hg.train(graph, paper_noise_multiplier=noise, **settings)) for noise in (1.0, 2.0)]
    plain = weights(hg.train(graph, private=False, **settings))
    # Adam's first step has length lr whatever the noise, so only its being there can be seen.
    assert distance(runs[0], plain) > 0
    sgd = [
        weights(hg.train(graph, paper_noise_multiplier=noise, optimizer="sgd", **settings))
        for noise in (1.0, 2.0)
    ]
    for name, start in plain.items():
        assert torch.allclose(sgd[1][name] - start, 2 * (sgd[0][name] - start), atol=1e-5)


def test_a_graph_without_edges_trains(graph: Graph) -> None:
    run = hg.train(without_edges(graph), epsilon=8.0, num_layers=2, **QUICK)
    assert run.result["guarantee"] == "holds"


def test_unlabelled_training_nodes_train(graph: Graph) -> None:
    labels = graph.y.copy()
    labels[graph.train_idx[::2]] = -1
    settings = QUICK | {"paper_noise_multiplier": 1.0, "seed": 1}
    half = hg.train(replace(graph, y=labels), **settings)
    assert half.plan.num_train_nodes == len(graph.train_idx)
    assert distance(weights(half), weights(hg.train(graph, **settings))) > 0
    labels[graph.train_idx] = -1
    none = hg.train(replace(graph, y=labels), **settings)
    assert all(torch.isfinite(p).all() for p in none.model.parameters())


def test_unlabelled_validation_and_test_nodes_are_not_scored(graph: Graph) -> None:
    labels = graph.y.copy()
    labels[graph.val_idx[1:]] = -1
    labels[graph.test_idx] = -1
    settings = QUICK | {"paper_noise_multiplier": 1.0, "seed": 1}
    run, whole = hg.train(replace(graph, y=labels), **settings), hg.train(graph, **settings)
    assert distance(weights(run), weights(whole)) == 0
    node = graph.val_idx[0]
    assert run.result["val_accuracy"] == float(run.predict(graph)[node] == graph.y[node])
    assert run.result["test_accuracy"] is None


def test_inductive_drops_edges_between_splits(graph: Graph) -> None:
    settings = QUICK | {"paper_noise_multiplier": 1.0, "seed": 1}
    inductive = hg.train(graph, setting="inductive", **settings)
    assert distance(weights(inductive), weights(hg.train(graph.disjoint(), **settings))) == 0
    assert distance(weights(inductive), weights(hg.train(graph, **settings))) > 0


class OwnModel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.before = nn.Linear(12, 8)
        self.norm = nn.LayerNorm(8)
        self.after = nn.Linear(8, 3)

    def forward(self, x: Tensor, blocks: tuple[Reads, ...]) -> Tensor:
        h = torch.relu(self.before(x))
        for reads in reversed(blocks):
            h = reads.mean(h)
        return self.after(self.norm(h))


def test_own_modules_train_and_load_again(graph: Graph, tmp_path: Path) -> None:
    run = hg.train(graph, model=OwnModel(), epsilon=8.0, out=tmp_path / "run", **QUICK)
    assert isinstance(run.model, OwnModel)
    assert run.config.model == "own"
    again = hg.Run.load(tmp_path / "run", model=OwnModel())
    assert np.array_equal(again.predict(graph), run.predict(graph))
    with pytest.raises(hg.RunError, match="it trained a module of your own; pass it as model="):
        hg.Run.load(tmp_path / "run")


@pytest.mark.parametrize("model", [OwnModel, "gcn", "own"])
def test_a_run_of_an_own_module_goes_on_with_an_instance_alone(
    graph: Graph, tmp_path: Path, model: Any
) -> None:
    with pytest.raises(InputError, match="an instance"):
        hg.resume(tmp_path / "run", graph, model=model)


def test_own_modules_that_mix_examples_leave_nothing_behind(graph: Graph, tmp_path: Path) -> None:
    model = OwnModel()
    model.norm = nn.BatchNorm1d(8)  # type: ignore[assignment]
    with pytest.raises(ModelError, match="norm"):
        hg.train(graph, model=model, epsilon=8.0, out=tmp_path / "run", **QUICK)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "optimizer", [torch.optim.RMSprop, torch.optim.Adagrad, lambda p: torch.optim.SGD(p, lr=0.5)]
)
def test_any_optimizer_trains_at_its_own_rate(graph: Graph, optimizer: Callable[..., Any]) -> None:
    rates: list[float] = []

    def build(parameters: Any) -> torch.optim.Optimizer:
        built = optimizer(parameters)
        step = built.step

        def counted() -> None:
            rates.append(built.param_groups[0]["lr"])
            step()

        built.step = counted
        return built

    run = hg.train(graph, epsilon=8.0, optimizer=build, **QUICK)
    wanted = optimizer([nn.Parameter(torch.zeros(1))]).param_groups[0]["lr"]
    assert rates == pytest.approx([wanted * (1 + math.cos(math.pi * step / 6)) / 2 for step in range(6)])
    assert run.config.optimizer == "own"


def test_without_privacy_epsilon_is_infinite(graph: Graph) -> None:
    run = hg.train(graph, private=False, **QUICK)
    assert run.epsilon == math.inf
    assert (run.result["epsilon"], run.result["guarantee"]) == ("inf", "none")
    assert np.isclose(run.result["train_accuracy"], np.mean((run.predict(graph) == graph.y)[graph.train_idx]))


@pytest.mark.parametrize("private", [True, False])
def test_a_seed_makes_runs_equal_and_not_private(graph: Graph, private: bool) -> None:
    settings = QUICK | ({"paper_noise_multiplier": 1.0} if private else {"private": False})
    one, two = (hg.train(graph, seed=7, **settings) for _ in range(2))
    assert distance(weights(one), weights(two)) == 0
    assert distance(weights(one), weights(hg.train(graph, seed=8, **settings))) > 0
    assert one.result["guarantee"] == "none"
    assert ("not private" in one.result.get("why_none", "")) == private


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize(
    "settings",
    [{}, {"batch_size": 60}, {"max_readers": 2, "max_reads": 4}, {"max_readers": 2, "batch_size": 60}],
    ids=str,
)
def test_a_gpu_takes_the_steps_of_a_cpu(graph: Graph, settings: dict[str, int]) -> None:
    # Noise and batches of a seed are the same; so many steps that those of the GPU are replayed.
    runs = [
        hg.train(graph, paper_noise_multiplier=2.0, steps=9, hidden=8, seed=1, device=device, **settings)  # type: ignore[arg-type]
        for device in ("cpu", "cuda")
    ]
    on_cpu, on_gpu = (run.model.state_dict() for run in runs)
    for name, weight in on_cpu.items():
        torch.testing.assert_close(on_gpu[name].cpu(), weight, rtol=1e-3, atol=1e-4)


def test_runs_without_a_seed_differ(graph: Graph) -> None:
    torch.manual_seed(0)
    one = hg.train(graph, paper_noise_multiplier=1.0, **QUICK)
    torch.manual_seed(0)
    two = hg.train(graph, paper_noise_multiplier=1.0, **QUICK)
    assert distance(weights(one), weights(two)) > 0
    assert one.result["guarantee"] == "holds"


def test_the_callers_generators_are_left_alone(graph: Graph) -> None:
    torch.manual_seed(0)
    np.random.seed(0)  # noqa: NPY002
    wanted = torch.rand(1), np.random.rand()  # noqa: NPY002
    torch.manual_seed(0)
    np.random.seed(0)  # noqa: NPY002
    hg.train(graph, paper_noise_multiplier=1.0, **QUICK)
    assert (torch.rand(1), np.random.rand()) == wanted  # noqa: NPY002


def test_what_was_spent_is_within_the_budget(graph: Graph, tmp_path: Path) -> None:
    run = hg.train(graph, epsilon=3.0, out=tmp_path, **QUICK)
    ledger = Ledger.open(tmp_path / "ledger.jsonl", plan=run.plan, read_only=True)
    assert ledger.steps_charged == 6
    assert 2.9 < ledger.spent_epsilon() == run.epsilon <= 3.0


def test_noise_and_epsilon_give_the_steps(graph: Graph) -> None:
    run = hg.train(
        graph, epsilon=3.0, paper_noise_multiplier=2.0, **{k: v for k, v in QUICK.items() if k != "steps"}
    )
    assert run.epsilon <= 3.0 < replace(run.plan, steps=run.plan.steps + 1).epsilon


def test_the_observer_hears_of_every_step_and_of_no_less_than_was_spent(graph: Graph, tmp_path: Path) -> None:
    heard: list[tuple[int, int, float, float | None]] = []

    def observe(done: int, total: int, epsilon: float, accuracy: float | None) -> None:
        heard.append((done, total, epsilon, accuracy))
        assert epsilon >= Ledger.open(tmp_path / "ledger.jsonl", read_only=True).spent_epsilon()

    run = hg.train(graph, epsilon=3.0, observer=observe, out=tmp_path, evaluate_every=4, **QUICK)
    assert [(done, total) for done, total, _, _ in heard] == [(step, 6) for step in range(1, 7)]
    assert heard[-1][2] == run.epsilon
    assert heard[2][3] is None
    assert heard[3][3] == run.metrics[0]["val_accuracy"]
    assert [entry["step"] for entry in run.metrics] == [4, 6]
    # Paid ahead or not, the weights that were looked at had seen four steps.
    assert run.metrics[0]["epsilon"] == replace(run.plan, steps=4).epsilon < run.epsilon


@pytest.mark.parametrize("owner", ["sender", "reader"])
def test_as_published_is_only_claimed(graph: Graph, owner: str) -> None:
    published = {"sampler": "paper", "accountant": "paper", "clipping": "percentile", "noise": "per-layer"}
    run = hg.train(graph, edge_owner=owner, paper_noise_multiplier=2.0, **published, **QUICK)
    assert run.plan.edge_owner == owner
    assert run.plan.batches == "fixed"
    assert run.result["guarantee"] == "claimed by the paper"
    assert math.isfinite(run.epsilon)


def test_edges_belong_to_senders_unless_declared(directed: Graph) -> None:
    run = hg.train(directed, epsilon=8.0, **QUICK)
    assert (run.plan.edge_owner, run.plan.directed, run.plan.changed_trees) == ("sender", False, 3)
    run = hg.train(directed, epsilon=8.0, edge_owner="reader", directed=True, **QUICK)
    assert (run.plan.edge_owner, run.plan.directed, run.plan.changed_trees) == ("reader", True, 5)
    assert run.plan.max_reads == 2
    both = hg.train(directed, epsilon=8.0, symmetrize=True, **QUICK)
    assert (both.plan.edge_owner, both.plan.changed_trees) == ("sender", 3)
    # Prediction reads the data as training did.
    assert np.allclose(both.predict_proba(directed), both.predict_proba(directed.symmetrized()))
    assert not np.allclose(both.predict_proba(directed), both.predict_proba(directed, symmetrize=False))


@pytest.mark.parametrize("clipping", ["flat", "groups"])
def test_other_clippings_hold_too(graph: Graph, clipping: str) -> None:
    assert hg.train(graph, epsilon=8.0, clipping=clipping, **QUICK).result["guarantee"] == "holds"


@pytest.mark.parametrize("model", ["gcn", "gin", "gat"])
def test_sparse_features_train_like_dense_ones(graph: Graph, model: str) -> None:
    settings = QUICK | {"model": model, "paper_noise_multiplier": 0.5, "seed": 1}
    thin = replace(graph, x=sparse.csr_array(graph.x))
    one, two = hg.train(graph, **settings), hg.train(thin, **settings)
    assert distance(weights(one), weights(two)) < 1e-5
    assert np.allclose(one.predict_proba(graph), two.predict_proba(thin), atol=1e-5)


@pytest.mark.parametrize("model", ["gcn", "gin", "gat", "mlp"])
def test_pieces_of_a_batch_add_up_to_the_batch(
    graph: Graph, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = QUICK | {
        "model": model,
        "paper_noise_multiplier": 0.5,
        "seed": 1,
        "batch_size": 140,
        "num_layers": 2,
    }
    whole = weights(hg.train(graph, **settings))
    monkeypatch.setattr(tree_batches, "PIECE_ROWS", {"cpu": 30})
    assert distance(whole, weights(hg.train(graph, **settings))) < 1e-5


def test_data_may_be_a_file_with_a_split_to_draw(graph: Graph, tmp_path: Path) -> None:
    target = np.repeat(np.arange(graph.num_nodes), np.diff(graph.indptr))
    path = tmp_path / "graph.npz"
    np.savez(path, edge_index=np.stack([graph.indices, target]), x=graph.x, y=graph.y)
    usual = hg.train(path, epsilon=8.0, **QUICK)
    assert (usual.config.split, usual.plan.num_train_nodes) == (
        "0.6/0.2/0.2",
        len(hg.datasets.random_split(240, (0.6, 0.2, 0.2))[0]),
    )
    run = hg.train(path, epsilon=8.0, split="0.5/0.2/0.3", split_seed=4, **QUICK)
    assert (run.config.split, run.config.split_seed) == ("0.5/0.2/0.3", 4)
    assert run.predict(path).shape == (240,)
    other = hg.datasets.synthetic(num_nodes=100, num_classes=3, num_features=12, seed=9)
    assert run.predict(replace(other, y=np.full(100, -1), val_idx=[], test_idx=[])).shape == (100,)
    with pytest.raises(InputError, match="the rows have 11 features, the model was trained on 12"):
        run.predict(hg.datasets.synthetic(num_nodes=100, num_classes=3, num_features=11))


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"epsilon": None}, PlanError, "no budget"),
        ({"private": False}, PlanError, "without privacy there is no budget"),
        ({"epsilon": math.nan}, PlanError, "epsilon=nan"),
        ({"epsilon": math.inf}, PlanError, "epsilon=inf"),
        ({"epsilon": -1.0}, PlanError, "epsilon=-1.0"),
        ({"paper_noise_multiplier": 1.0}, PlanError, "two of them give the third"),
        ({"epsilon": None, "paper_noise_multiplier": 0.0}, PlanError, "paper_noise_multiplier=0.0"),
        ({"epsilon": None, "paper_noise_multiplier": math.nan}, PlanError, "paper_noise_multiplier=nan"),
        ({"delta": 0.0}, PlanError, "delta=0.0"),
        ({"delta": 2.0}, PlanError, "delta=2.0"),
        ({"batch_size": 0}, PlanError, "batch_size=0"),
        ({"batch_size": 10_000}, PlanError, "batch_size=10000"),
        ({"steps": 0}, PlanError, "steps=0"),
        ({"num_layers": -1}, PlanError, "num_layers=-1"),
        ({"sampler": "papr"}, PlanError, "sampler='papr'"),
        ({"model": "gcm"}, InputError, "model='gcm': expected one of gcn, gin, gat, mlp, or in Python an"),
        ({"model": "own"}, InputError, "an instance of a module of your own"),
        ({"model": OwnModel}, InputError, "model=OwnModel: it is a class; pass an instance, OwnModel(...)"),
        ({"optimizer": "adm"}, InputError, "optimizer='adm'"),
        ({"optimizer": "own"}, InputError, "the function that makes it"),
        ({"setting": "both"}, InputError, "setting='both'"),
        ({"learning_rate": math.nan}, InputError, "learning_rate=nan"),
        ({"hidden": 0}, InputError, "hidden=0"),
        ({"seed": -1}, InputError, "seed=-1"),
        ({"seed": 2**64}, InputError, "seed="),
        ({"device": "tpu"}, InputError, "device='tpu'"),
        (
            {"activaton": "relu"},
            InputError,
            "activaton: train has no such argument; did you mean activation?",
        ),
        ({"split": "0.5"}, GraphError, "split='0.5'"),
        ({"num_classes": 2}, GraphError, "raise num_classes"),
        (
            {"paper_noise_multiplier": 0.01, "epsilon": 0.01, "steps": None},
            BudgetExceededError,
            "it pays for no step",
        ),
    ],
)
def test_what_cannot_be_done_leaves_nothing_behind(
    graph: Graph, tmp_path: Path, change: dict[str, Any], error: type[Exception], words: str
) -> None:
    out = tmp_path / "runs" / "run"
    with pytest.raises(error) as caught:
        hg.train(graph, out=out, **QUICK | {"epsilon": 8.0} | change)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not out.parent.exists()


def test_temporary_folders_go(graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(InputError):
        hg.train(graph, epsilon=8.0, **QUICK | {"device": "tpu"})
    assert not list(tmp_path.iterdir())
    run = hg.train(graph, epsilon=8.0, **QUICK)
    assert (run.folder.path / "weights.safetensors").exists()
    del run
    gc.collect()
    assert not list(tmp_path.iterdir())


def test_train_accuracy_of_a_private_run_must_be_asked_for(graph: Graph) -> None:
    assert "train_accuracy" not in hg.train(graph, epsilon=8.0, **QUICK).result
    asked = hg.train(graph, epsilon=8.0, train_accuracy=True, **QUICK)
    wanted = np.mean((asked.predict(graph) == graph.y)[graph.train_idx])
    assert np.isclose(asked.result["train_accuracy"], wanted)


def test_data_without_validation_nodes_trains(graph: Graph) -> None:
    run = hg.train(replace(graph, val_idx=[], test_idx=[]), epsilon=8.0, evaluate_every=2, **QUICK)
    assert (run.result["val_accuracy"], run.result["test_accuracy"]) == (None, None)
    assert {entry["val_accuracy"] for entry in run.metrics} == {None}
