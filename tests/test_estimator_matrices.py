"""`fit(X, y, graph)` of `NodeClassifier` and `NodeRegressor`: every kind of X, y and graph, and pipelines."""

from __future__ import annotations

import pickle
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import sparse
from sklearn import metrics
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

import hushgraph as hg
from hushgraph.datasets.splits import random_split
from hushgraph.errors import GraphError, InputError, NotFittedError

N = 300
QUICK: dict[str, Any] = {"steps": 40, "hidden": 8, "device": "cpu", "epsilon": 20.0}
RNG = np.random.default_rng(0)
GROUP = RNG.integers(2, size=N)
X = RNG.normal(size=(N, 4)) + 1.5 * GROUP[:, None]
# Edges within groups.
EDGES = np.array(
    [(u, w) for u in range(N) for w in RNG.choice(np.flatnonzero(GROUP[u] == GROUP), 4) if u != w]
).T
NAMED = np.where(GROUP == 1, "fraud", "fine").astype(object)
NAMED[::10] = None
NUMBERS = 40.0 + 20 * GROUP + RNG.normal(size=N)
TEST = random_split(N, (0.6, 0.2, 0.2))[2]


def classify(**how: Any) -> hg.NodeClassifier:
    return hg.NodeClassifier(**QUICK | how)


@pytest.fixture(scope="module")
def fitted() -> hg.NodeClassifier:
    return classify(classes=["fine", "fraud"]).fit(X, NAMED, EDGES)


def test_names_come_back(fitted: hg.NodeClassifier) -> None:
    assert fitted.classes_.tolist() == ["fine", "fraud"]
    assert (fitted.epsilon_ <= 20, fitted.n_features_in_) == (True, 4)
    assert fitted.run_.result["guarantee"] == "holds"
    assert fitted.run_.folder.assumptions == ()
    predicted = fitted.predict(X, EDGES)
    assert set(predicted) <= {"fine", "fraud"}
    assert (predicted == np.where(GROUP == 1, "fraud", "fine")).mean() > 0.8
    probabilities = fitted.predict_proba(X, EDGES)
    assert np.array_equal(predicted, fitted.classes_[probabilities.argmax(1)])
    odds = fitted.decision_function(X, EDGES)
    assert odds.shape == (N,)
    assert np.allclose(odds, np.log(probabilities[:, 1] / probabilities[:, 0]), atol=1e-3)


def test_it_is_what_train_does_with_the_same_arrays() -> None:
    codes = np.where(NAMED == "fraud", 1, 0)
    codes[NAMED == None] = -1  # noqa: E711
    ours = classify(seed=1, classes=["fine", "fraud"]).fit(X, NAMED, EDGES)
    graph = hg.Graph.from_arrays(edge_index=EDGES, x=X, y=codes, train_idx=[0], num_classes=2)
    theirs = hg.train(graph, seed=1, split="0.6/0.2/0.2", **QUICK)
    assert np.array_equal(ours.predict_proba(X, EDGES), theirs.predict_proba(graph))


def test_the_split_is_drawn_from_places_and_never_among_labelled_rows(fitted: hg.NodeClassifier) -> None:
    train = random_split(N, (0.6, 0.2, 0.2))[0]
    assert fitted.plan_.num_train_nodes == len(train)
    fewer = np.where(np.arange(N) % 3 == 0, None, NAMED)
    other = classify(classes=["fine", "fraud"], steps=1).fit(X, fewer, EDGES)
    assert other.run_.folder.split_id == fitted.run_.folder.split_id


def test_score_is_the_accuracy_of_labelled_test_rows(fitted: hg.NodeClassifier) -> None:
    labelled = np.array([place for place in TEST if NAMED[place] is not None])
    right = fitted.predict(X, EDGES) == NAMED
    assert fitted.score(X, NAMED, EDGES) == pytest.approx(right[labelled].mean())
    everybody = np.flatnonzero([label is not None for label in NAMED])
    assert fitted.score(X, NAMED, EDGES, split="all") == pytest.approx(right[everybody].mean())
    # Labels of one class alone are still counted by the classes that fit knew.
    only = np.where(NAMED == "fraud", NAMED, None)
    assert fitted.score(X, only, EDGES) == pytest.approx(right[[n for n in TEST if only[n]]].mean())


def test_classes_that_were_not_declared_are_an_assumption() -> None:
    one = classify(steps=1).fit(X, GROUP + 4, EDGES)
    assert one.classes_.tolist() == [4, 5]
    assert [each.code for each in one.run_.folder.assumptions] == ["classes-from-labels"]
    assert set(one.predict(X, EDGES)) <= {4, 5}
    assert classify(steps=1).fit(X, GROUP == 1, EDGES).run_.folder.assumptions == ()


ADJACENCY = sparse.coo_array((np.ones(EDGES.shape[1]), EDGES), shape=(N, N)).tocsr()
NX = nx.DiGraph()
NX.add_edges_from(EDGES.T.tolist())
PEOPLE = [f"p{n}" for n in range(N)]
FRAME = pd.DataFrame(X, columns=list("abcd"), index=PEOPLE)
LISTS = pd.DataFrame({"source": np.array(PEOPLE)[EDGES[0]], "target": np.array(PEOPLE)[EDGES[1]]})


@pytest.mark.parametrize(
    "graph",
    [ADJACENCY, NX, pd.DataFrame({"source": EDGES[0], "target": EDGES[1]})],
    ids=["SciPy", "NetworkX", "frame"],
)
def test_every_kind_of_graph_gives_the_same(graph: Any) -> None:
    how: dict[str, Any] = {"seed": 1, "steps": 3, "num_classes": 2}
    expected = classify(**how).fit(X, GROUP, EDGES).predict_proba(X, EDGES)
    assert np.array_equal(classify(**how).fit(X, GROUP, graph).predict_proba(X, graph), expected)
    sparse_rows = sparse.csr_array(X)
    by_rows = classify(**how).fit(sparse_rows, GROUP, graph).predict_proba(sparse_rows, graph)
    assert np.allclose(by_rows, expected, atol=1e-4)


@pytest.mark.parametrize(
    ("frame", "graph"),
    [(FRAME, LISTS), (FRAME, EDGES), (pl.DataFrame(X, schema=list("abcd")), EDGES)],
    ids=["pandas", "pandas and array", "Polars"],
)
def test_columns_of_a_frame_are_scaled_within_the_budget(frame: Any, graph: Any) -> None:
    one = classify(classes=["fine", "fraud"]).fit(frame, NAMED, graph)
    assert one.plan_.num_scaled == 4
    assert one.epsilon_ <= 20
    assert (one.predict(frame, graph) == np.where(GROUP == 1, "fraud", "fine")).mean() > 0.8
    assert one.score(frame, NAMED, graph) > 0.7
    number = hg.NodeRegressor(bounds=(0, 100), **QUICK).fit(frame, NUMBERS, graph)
    assert number.plan_.num_scaled == 4
    assert number.predict(frame, graph).shape == (N,)


def test_text_in_a_frame_needs_a_role() -> None:
    frame = FRAME.assign(city="Oslo", label=1.0, node=2.0)
    with pytest.raises(GraphError, match="column 'city' holds VARCHAR; expected numbers"):
        classify(classes=["fine", "fraud"]).fit(frame, NAMED, LISTS)
    one = classify(classes=["fine", "fraud"], steps=1, hashed={"city": 4}).fit(frame, NAMED, LISTS)
    # Columns called as ours are features like any other.
    assert one.n_features_in_ == 4 + 2 + 4
    assert one.predict(frame, LISTS).shape == (N,)


def test_weights_are_given_by_class() -> None:
    one = classify(classes=["fine", "fraud"], class_weight={"fine": 0.25}, steps=1).fit(X, NAMED, EDGES)
    assert one.run_.config.class_weights == (0.25, 1.0)
    numbered = classify(class_weight={4: 0.5}, positive=4, steps=1).fit(X, GROUP + 4, EDGES)
    assert numbered.run_.config.class_weights == (0.5, 1.0)
    assert numbered.run_.folder.task.positive == 0
    with pytest.raises(InputError, match="would count labels, which are private; declare what you know"):
        classify(class_weight="balanced").fit(X, NAMED, EDGES)
    with pytest.raises(InputError, match="class_weight='frod': no such class; did you mean 'fraud'"):
        classify(class_weight={"frod": 1.0}).fit(X, NAMED, EDGES)
    with pytest.raises(InputError, match="positive='frod': no such class"):
        classify(positive="frod").fit(X, NAMED, EDGES)


def test_more_classes_have_an_output_each() -> None:
    y = np.where(X[:, 0] > 2, 2, GROUP)
    one = classify(num_classes=3, steps=3).fit(X, y, EDGES)
    outputs, probabilities = one.decision_function(X, EDGES), one.predict_proba(X, EDGES)
    assert outputs.shape == (N, 3)
    assert np.allclose(np.exp(outputs) / np.exp(outputs).sum(1, keepdims=True), probabilities, atol=1e-5)


def test_several_labels_are_an_indicator_matrix() -> None:
    y = np.stack([GROUP, 1 - GROUP, GROUP], 1)
    y[::10] = -1
    one = classify(classes=["a", "b", "c"], epsilon=200.0).fit(X, y, EDGES)
    assert one.run_.result["task"] == "labels"
    predicted = one.predict(X, EDGES)
    assert (predicted.shape, set(np.unique(predicted))) == ((N, 3), {0, 1})
    assert np.array_equal(predicted, one.predict_proba(X, EDGES) > 0.5)
    assert (predicted[:, 0] == GROUP).mean() > 0.7
    assert one.classes_.tolist() == ["a", "b", "c"]
    assert one.decision_function(X, EDGES).shape == (N, 3)
    areas = [
        metrics.roc_auc_score(y[y[:, 0] >= 0][:, k], one.predict_proba(X, EDGES)[y[:, 0] >= 0][:, k])
        for k in range(3)
    ]
    assert one.score(X, y, EDGES, split="all") == pytest.approx(np.mean(areas))
    with pytest.raises(InputError, match="no node of it has a label of at least 50 of them"):
        one.score(X, y, EDGES)
    with pytest.raises(InputError, match="classes: expected 3 names, one for each column of y"):
        classify(classes=["a", "b"]).fit(X, y, EDGES)


def test_a_number_is_in_the_unit_of_the_labels() -> None:
    y = NUMBERS.copy()
    y[::10] = np.nan
    # Few rows: with noise there would be little to see.
    how = QUICK | {"private": False, "epsilon": None, "steps": 100}
    one = hg.NodeRegressor(bounds=(0, 100), unit="EUR", **how).fit(X, y, EDGES)
    values = one.predict(X, EDGES)
    assert (values.shape, values.min() >= 0, values.max() <= 100) == ((N,), True, True)
    labelled = np.array([place for place in TEST if not np.isnan(y[place])])
    expected = metrics.r2_score(y[labelled], values[labelled])
    assert one.score(X, y, EDGES) == pytest.approx(expected, abs=1e-4)
    assert expected > 0.6
    assert one.run_.folder.task.unit == "EUR"
    with pytest.raises(InputError, match="needs the lowest and the highest number, as 0,100"):
        hg.NodeRegressor(epsilon=1.0).fit(X, y, EDGES)


def test_each_kind_refuses_the_labels_of_the_other() -> None:
    classes = hg.datasets.synthetic(num_nodes=60, num_classes=3, seed=1)
    with pytest.raises(InputError, match="its labels are 3 classes, not numbers; use NodeClassifier"):
        hg.NodeRegressor(epsilon=1.0, bounds=(0, 1)).fit(classes)
    with pytest.raises(InputError, match="labels are numbers; use NodeRegressor"):
        classify(task="number").fit(classes)
    with pytest.raises(GraphError, match=r"y holds 0.5, which is no class; .* for numbers use NodeRegressor"):
        classify().fit(X, GROUP / 2 + 0.5, EDGES)
    with pytest.raises(InputError, match="rare: NodeRegressor has no such argument"):
        hg.NodeRegressor(rare=True)  # type: ignore[call-arg]
    with pytest.raises(InputError, match="bounds: NodeClassifier has no such argument"):
        hg.NodeClassifier(bounds=(0, 1))  # type: ignore[call-arg]


def test_labels_are_not_in_a_pickle(fitted: hg.NodeClassifier) -> None:
    assert fitted._labels is not None
    data = pickle.dumps(fitted)
    again = pickle.loads(data)
    assert again._labels is None
    with pytest.raises(InputError, match=r"^y=None: the labels that fit was given are needed.* give y$"):
        again.predict(X, EDGES)
    assert np.array_equal(again.predict(X, EDGES, y=NAMED), fitted.predict(X, EDGES))
    # A private MLP reads no board, so that it needs none.
    rows = pickle.loads(pickle.dumps(classify(model="mlp", steps=1).fit(X, NAMED, EDGES)))
    assert rows.predict(X, EDGES).shape == (N,)


def test_what_is_missing_is_said(fitted: hg.NodeClassifier) -> None:
    with pytest.raises(InputError, match="graph=None: expected the edges between the rows of X, as in fit"):
        fitted.predict(X)
    with pytest.raises(InputError, match=r"y=None with a graph: expected the labels of X; give fit\(X, y,"):
        classify().fit(X, graph=EDGES)
    with pytest.raises(InputError, match="y=ndarray without a graph: give the edges too"):
        classify().fit(X, GROUP)
    with pytest.raises(NotFittedError, match="this NodeRegressor is not fitted"):
        hg.NodeRegressor(epsilon=1.0).predict(X, EDGES)
    with pytest.raises(GraphError, match=r"y has shape .* and X has 300 rows"):
        classify().fit(X, GROUP[:5], EDGES)


def test_a_pipeline_of_one_estimator_works() -> None:
    pipeline = Pipeline([("nodes", classify(classes=["fine", "fraud"], steps=3))])
    pipeline.fit(X, NAMED, nodes__graph=EDGES)
    one = pipeline["nodes"]
    assert np.array_equal(pipeline.predict(X, graph=EDGES), one.predict(X, EDGES))
    assert np.array_equal(pipeline.predict_proba(X, graph=EDGES), one.predict_proba(X, EDGES))
    # What a scaler learns is not covered; it can be done, and the pages say so.
    scaled = Pipeline([("scale", StandardScaler()), ("nodes", classify(steps=3))])
    assert scaled.fit(X, NAMED, nodes__graph=EDGES).predict(X, graph=EDGES).shape == (N,)


def test_scikit_learn_knows_both_kinds() -> None:
    number = hg.NodeRegressor(epsilon=4.0, bounds=(0, 1))
    assert clone(number).get_params() == number.get_params()
    assert repr(number) == "NodeRegressor(epsilon=4.0, bounds=(0, 1))"
    assert (is_regressor(number), is_classifier(number)) == (True, False)
    assert (is_regressor(classify()), is_classifier(classify())) == (False, True)


@pytest.mark.parametrize("graph", [EDGES, ADJACENCY, NX], ids=["array", "SciPy", "NetworkX"])
def test_searches_with_a_graph_train_nothing(graph: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows that they leave out are ends of edges."""
    monkeypatch.setattr("hushgraph.training.train.run_session", lambda *_, **__: pytest.fail("a run began"))
    with pytest.raises((InputError, ValueError)):
        cross_val_score(classify(), X, GROUP, params={"graph": graph}, error_score="raise")
    with pytest.raises((InputError, ValueError)):
        GridSearchCV(classify(), {"steps": [1, 2]}, error_score="raise").fit(X, GROUP, graph=graph)
