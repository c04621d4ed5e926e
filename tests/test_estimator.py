"""`NodeClassifier`: it stores, fits, predicts and scores as scikit-learn's estimators do."""

from __future__ import annotations

import doctest
import inspect
import math
import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data

import hushgraph as hg
from hushgraph.errors import GraphError, InputError, PlanError
from hushgraph.estimator import NodeClassifier, NotFittedError
from hushgraph.graph.graph import Graph
from hushgraph.models.blocks import Reads

QUICK: dict[str, Any] = {"steps": 4, "hidden": 8, "batch_size": 40, "max_readers": 1, "device": "cpu"}


@pytest.fixture(scope="module")
def graph() -> Graph:
    return hg.datasets.synthetic(num_nodes=200, num_classes=3, num_features=6, average_degree=4, seed=3)


@pytest.fixture(scope="module")
def fitted(graph: Graph) -> NodeClassifier:
    return NodeClassifier(epsilon=8.0, **QUICK).fit(graph)


def clone(one: NodeClassifier) -> NodeClassifier:
    return type(one)(**one.get_params(deep=False))


class OwnModel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.before = nn.Linear(6, 4)
        self.after = nn.Linear(4, 3)

    def forward(self, x: Tensor, blocks: tuple[Reads, ...]) -> Tensor:
        h = torch.tanh(self.before(x))
        for reads in reversed(blocks):
            h = reads.mean(h)
        return self.after(h)


def test_parameters_are_those_of_train_with_its_defaults() -> None:
    usual = {name: p.default for name, p in inspect.signature(hg.train).parameters.items()}
    params = NodeClassifier().get_params()
    assert params == {name: usual[name] for name in params}
    assert usual.keys() - params.keys() == {
        *("data", "observer", "on_notes", "on_start"),
        *("bounds", "unit", "engine", "memory"),
    }


def test_the_constructor_takes_keywords_and_only_stores() -> None:
    with pytest.raises(TypeError):
        NodeClassifier("gcn")  # type: ignore[misc]
    nonsense = {name: object() for name in NodeClassifier().get_params()}
    one = NodeClassifier(**nonsense)
    assert vars(one) == nonsense == one.get_params() == one.get_params(deep=False)


def test_set_params_changes_all_or_nothing() -> None:
    one = NodeClassifier(epsilon=1.0)
    assert one.set_params(epsilon=2.0, steps=7) is one
    assert (one.epsilon, one.steps, one.get_params()["steps"]) == (2.0, 7, 7)
    assert one.set_params() is one
    with pytest.raises(InputError, match=r"^epsilom: NodeClassifier has no such argument; did you mean eps"):
        one.set_params(steps=9, epsilom=3.0)
    with pytest.raises(InputError, match=r"^zzzzzz: NodeClassifier has no such argument$"):
        one.set_params(zzzzzz=3.0)
    assert one.steps == 7


def test_the_text_names_what_differs_from_the_defaults() -> None:
    assert repr(NodeClassifier()) == "NodeClassifier()"
    assert repr(NodeClassifier(steps=3, epsilon=4.0)) == "NodeClassifier(epsilon=4.0, steps=3)"
    assert repr(NodeClassifier(private=False, seed=0)) == "NodeClassifier(private=False, seed=0)"


def test_fit_gives_itself_back_with_what_it_learnt(graph: Graph, fitted: NodeClassifier) -> None:
    fresh = clone(fitted)
    assert not any(name.endswith("_") for name in vars(fresh))
    before = fresh.get_params()
    assert fresh.fit(graph, None) is fresh
    assert fresh.get_params() == before
    run = fresh.run_
    assert (fresh.model_, fresh.plan_, fresh.epsilon_) == (run.model, run.plan, run.epsilon)
    assert 0 < fresh.epsilon_ <= 8.0
    assert fresh.plan_.steps == 4
    assert (fresh.classes_.tolist(), fresh.n_features_in_) == ([0, 1, 2], 6)


def test_it_predicts_what_the_plain_function_predicts(graph: Graph) -> None:
    ours = NodeClassifier(epsilon=8.0, seed=5, **QUICK).fit(graph)
    plain = hg.train(graph, epsilon=8.0, seed=5, **QUICK)
    found = ours.predict_proba(graph)
    assert np.array_equal(found, plain.predict_proba(graph))
    assert (found.shape, found.dtype) == ((200, 3), np.float32)
    assert np.allclose(found.sum(1), 1, atol=1e-5)
    assert np.array_equal(ours.predict(graph), ours.classes_[found.argmax(1)])
    assert ours.score(graph) == plain.result["test_accuracy"]
    assert ours.score(graph, split="val") == plain.result["val_accuracy"]


@pytest.mark.parametrize(
    "how",
    [
        {"setting": "inductive"},
        {"split": "0.5/0.2/0.3", "split_seed": 4},
        {"symmetrize": True},
        {"num_classes": 5},
    ],
)
def test_score_reads_data_as_fit_did(how: dict[str, Any]) -> None:
    directed = hg.datasets.synthetic(
        num_nodes=200, num_classes=3, num_features=6, average_degree=8, directed=True, seed=4
    )
    # Enough steps that predictions depend on edges, so that reading them otherwise would show.
    one = NodeClassifier(private=False, seed=1, **how, **QUICK | {"steps": 60}).fit(directed)
    assert one.score(directed) == one.run_.result["test_accuracy"]
    assert one.score(directed, split="val") == one.run_.result["val_accuracy"]
    assert len(one.classes_) == how.get("num_classes", 3)


def test_score_is_the_accuracy_on_the_split_asked_for(graph: Graph, fitted: NodeClassifier) -> None:
    hit = fitted.predict(graph) == graph.y
    for split in ("train", "val", "test"):
        assert np.isclose(fitted.score(graph, split=split), hit[getattr(graph, f"{split}_idx")].mean())
    assert np.isclose(fitted.score(graph, split="all"), hit.mean())


def test_a_graph_without_splits_can_be_predicted_and_scored_whole(
    graph: Graph, fitted: NodeClassifier
) -> None:
    target = np.repeat(np.arange(graph.num_nodes), np.diff(graph.indptr))
    bare = Data(
        x=torch.from_numpy(graph.x),
        y=torch.from_numpy(graph.y),
        edge_index=torch.from_numpy(np.stack([graph.indices, target]).astype(np.int64)),
    )
    assert np.array_equal(fitted.predict(bare), fitted.predict(graph))
    assert fitted.score(bare, split="all") == fitted.score(graph, split="all")
    with pytest.raises(GraphError, match="no training split"):
        fitted.score(bare)


def test_predictions_read_neither_labels_nor_splits(graph: Graph, fitted: NodeClassifier) -> None:
    target = np.repeat(np.arange(graph.num_nodes), np.diff(graph.indptr))
    edges = torch.from_numpy(np.stack([graph.indices, target]).astype(np.int64))
    bare = Data(x=torch.from_numpy(graph.x), edge_index=edges)
    odd = Data(x=bare.x, edge_index=edges, y=torch.full((graph.num_nodes,), 70), train_mask=torch.ones(3))
    more = replace(graph, y=graph.y + 5, num_classes=graph.num_classes + 5)
    for data in (bare, odd, more):
        assert np.array_equal(fitted.predict(data), fitted.predict(graph))
        assert np.array_equal(fitted.predict_proba(data), fitted.predict_proba(graph))
        with pytest.raises(GraphError, match=r"missing y|y\["):
            fitted.score(data, split="all")
    narrow = Data(x=torch.from_numpy(graph.x[:, 1:]), edge_index=edges, y=odd.y)
    wanted = f"the rows have {graph.num_features - 1} features, the model was trained on {graph.num_features}"
    with pytest.raises(InputError, match=wanted):
        fitted.predict(narrow)


@pytest.mark.parametrize("ask", ["predict", "predict_proba", "score"])
def test_before_fit_there_is_one_clear_line(graph: Graph, ask: str) -> None:
    asked: Callable[[Graph], Any] = getattr(NodeClassifier(epsilon=1.0), ask)
    with pytest.raises(NotFittedError, match=r"^this NodeClassifier is not fitted; call fit\(data\) first$"):
        asked(graph)
    for kind in (hg.HushgraphError, ValueError, AttributeError):
        assert issubclass(NotFittedError, kind)


def test_what_cannot_be_used_is_refused(graph: Graph, fitted: NodeClassifier) -> None:
    with pytest.raises(InputError, match="y=ndarray without a graph: give the edges too"):
        clone(fitted).fit(graph, graph.y)
    with pytest.raises(InputError, match="y=ndarray without a graph: give the edges too"):
        fitted.score(graph, graph.y)
    with pytest.raises(InputError, match=r"split='tset': expected one of train, val, test, all"):
        fitted.score(graph, split="tset")
    with pytest.raises(InputError, match="split='test': no node of it has a label"):
        fitted.score(replace(graph, test_idx=graph.test_idx[:0]))
    with pytest.raises(PlanError, match="no budget"):
        NodeClassifier(**QUICK).fit(graph)


def test_a_failed_fit_leaves_an_unfitted_one_unfitted(graph: Graph) -> None:
    one = NodeClassifier(epsilon=-1.0, **QUICK)
    with pytest.raises(PlanError):
        one.fit(graph)
    with pytest.raises(NotFittedError):
        one.predict(graph)


def test_without_privacy_epsilon_is_infinite(graph: Graph) -> None:
    assert NodeClassifier(private=False, **QUICK).fit(graph).epsilon_ == math.inf


def test_a_module_given_stays_as_it_was(graph: Graph) -> None:
    mine = OwnModel()
    before = [p.detach().clone() for p in mine.parameters()]
    one = NodeClassifier(model=mine, private=False, **QUICK).fit(graph)
    assert one.model is mine
    assert all(torch.equal(p, q) for p, q in zip(mine.parameters(), before, strict=True))
    assert not all(torch.equal(p, q) for p, q in zip(one.model_.parameters(), before, strict=True))


def test_a_module_given_predicts_on_its_own_columns_alone(graph: Graph) -> None:
    fitted = NodeClassifier(model=OwnModel(), private=False, **QUICK).fit(graph)
    narrow = replace(graph, x=graph.x[:, 1:])
    with pytest.raises(
        InputError, match=f"the model was trained on {graph.num_features}; give the same columns"
    ):
        fitted.predict(narrow)


def test_out_is_the_folder_of_the_run(graph: Graph, tmp_path: Path) -> None:
    one = NodeClassifier(epsilon=8.0, out=tmp_path / "run", **QUICK).fit(graph)
    again = hg.Run.load(tmp_path / "run", device="cpu")
    assert np.array_equal(again.predict(graph), one.predict(graph))
    assert again.epsilon == one.epsilon_


def test_a_fitted_one_can_be_pickled(graph: Graph, fitted: NodeClassifier) -> None:
    again = pickle.loads(pickle.dumps(fitted))
    assert np.array_equal(again.predict_proba(graph), fitted.predict_proba(graph))


def test_the_example_in_the_documentation_runs() -> None:
    found = doctest.DocTestFinder().find(NodeClassifier, globs={})
    runner = doctest.DocTestRunner()
    results = [runner.run(example) for example in found if example.examples]
    assert [result.failed for result in results] == [0]


def test_scikit_learn_knows_its_own_kind(graph: Graph, fitted: NodeClassifier) -> None:
    base = pytest.importorskip("sklearn.base", reason="scikit-learn is not installed")
    validation = pytest.importorskip("sklearn.utils.validation")
    one = base.clone(fitted)
    assert one.get_params() == fitted.get_params()
    assert not hasattr(one, "run_")
    assert base.is_classifier(one)
    validation.check_is_fitted(fitted)
    with pytest.raises(ValueError, match="not fitted"):
        validation.check_is_fitted(one)
    assert type(base.clone(NodeClassifier(model=OwnModel())).model) is OwnModel


@pytest.mark.parametrize(
    "check",
    [
        "check_estimator_cloneable",
        "check_estimator_repr",
        "check_estimator_tags_renamed",
        "check_get_params_invariance",
        "check_no_attributes_set_in_init",
        "check_parameters_default_constructible",
        "check_set_params",
        "check_valid_tag_types",
    ],
)
def test_scikit_learns_own_checks_that_need_no_table_of_rows(check: str) -> None:
    checks = pytest.importorskip("sklearn.utils.estimator_checks", reason="scikit-learn is not installed")
    getattr(checks, check)("NodeClassifier", NodeClassifier(epsilon=4.0))


def searches() -> dict[str, Callable[[NodeClassifier, Any], Any]]:
    """Helpers of scikit-learn that fit many times."""
    selection = pytest.importorskip("sklearn.model_selection", reason="scikit-learn is not installed")
    calibration = pytest.importorskip("sklearn.calibration")
    ensemble = pytest.importorskip("sklearn.ensemble")
    grid = {"steps": [2, 3]}
    return {
        "cross_val_score": lambda one, data: selection.cross_val_score(one, data),
        "cross_val_score of rows": lambda one, data: selection.cross_val_score(one, data.x, data.y),
        "cross_validate": lambda one, data: selection.cross_validate(one, data.x, data.y),
        "GridSearchCV": lambda one, data: selection.GridSearchCV(one, grid).fit(data),
        "GridSearchCV of rows": lambda one, data: selection.GridSearchCV(one, grid).fit(data.x, data.y),
        "RandomizedSearchCV": lambda one, data: selection.RandomizedSearchCV(one, grid, n_iter=2).fit(data.x),
        "CalibratedClassifierCV": lambda one, data: calibration.CalibratedClassifierCV(one).fit(
            data.x, data.y
        ),
        "BaggingClassifier": lambda one, data: ensemble.BaggingClassifier(one).fit(data.x, data.y),
    }


@pytest.mark.parametrize(
    "name",
    [
        "cross_val_score",
        "cross_val_score of rows",
        "cross_validate",
        "GridSearchCV",
        "GridSearchCV of rows",
        "RandomizedSearchCV",
        "CalibratedClassifierCV",
        "BaggingClassifier",
    ],
)
def test_a_search_fails_before_anything_is_spent(
    graph: Graph, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A graph cannot be cut into rows."""
    monkeypatch.setattr("hushgraph.training.train.run_session", lambda *_, **__: pytest.fail("a run began"))
    with pytest.raises((InputError, TypeError, ValueError)) as refused:
        searches()[name](NodeClassifier(epsilon=4.0, **QUICK), graph)
    if name in ("cross_val_score of rows", "GridSearchCV of rows"):
        assert "every fit of a search would spend epsilon again" in str(refused.value)
        for instead in ("hushgraph.datasets.synthetic", "hushgraph.compare", "budget=FILE", "split='val'"):
            assert instead in str(refused.value)


def test_a_search_in_a_pipeline_trains_nothing(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    from sklearn.model_selection import GridSearchCV
    from sklearn.pipeline import Pipeline

    monkeypatch.setattr("hushgraph.training.train.run_session", lambda *_, **__: pytest.fail("a run began"))
    search = GridSearchCV(Pipeline([("nodes", NodeClassifier(epsilon=4.0))]), {"nodes__steps": [2, 3]})
    with pytest.raises(ValueError, match="every fit of a search would spend epsilon again"):
        search.fit(graph.x, graph.y)


def test_one_fit_inside_scikit_learn_is_a_fit(graph: Graph) -> None:
    from sklearn.base import clone as copy_of
    from sklearn.pipeline import Pipeline

    one = copy_of(NodeClassifier(epsilon=8.0, **QUICK))
    assert Pipeline([("nodes", one)]).fit(graph)["nodes"].epsilon_ <= 8.0


def test_every_fit_is_charged_to_the_budget_of_the_data(graph: Graph, tmp_path: Path) -> None:
    from hushgraph.privacy.budget import DataBudget

    DataBudget.create(tmp_path / "budget.toml", epsilon=8.5, delta=0.0009)
    one = NodeClassifier(epsilon=8.0, budget=tmp_path / "budget.toml", **QUICK).fit(graph)
    assert one.epsilon_ <= 8.0
    with pytest.raises(hg.BudgetExceededError):
        one.fit(graph)
