"""Mistakes with estimators: each is refused with what to do, and doing it works."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hushgraph as hg

COUNT = 60
X = np.random.default_rng(0).normal(size=(COUNT, 3))
Y = np.arange(COUNT) % 2
EDGES = np.stack([np.arange(COUNT), (np.arange(COUNT) + 1) % COUNT])
QUICK: dict[str, Any] = {"epsilon": 4.0, "steps": 1, "hidden": 4, "device": "cpu", "split": "0.6/0.2/0.2"}


def classify(**settings: Any) -> hg.NodeClassifier:
    return hg.NodeClassifier(**QUICK, num_classes=2, **settings)


def regress(**settings: Any) -> hg.NodeRegressor:
    return hg.NodeRegressor(**QUICK, **settings)


Try = Callable[[], object]
MISTAKES: list[tuple[Try, str, Try]] = [
    (
        lambda: classify().fit(X, Y[:-1], EDGES),
        r"y has shape \[59\] and X has 60 rows; expected one label for each row",
        lambda: classify().fit(X, Y, EDGES),
    ),
    (
        lambda: classify().fit(X, Y),
        r"give the edges too, fit\(X, y, graph\)",
        lambda: classify().fit(X, Y, EDGES),
    ),
    (lambda: classify().fit(X, Y, EDGES.T), "give its transpose", lambda: classify().fit(X, Y, EDGES)),
    (
        lambda: classify().fit(X, Y, EDGES + 5),
        r"expected 0\.\.59; x has 60 rows",
        lambda: classify().fit(X, Y, (EDGES + 5) % COUNT),
    ),
    (
        lambda: classify().fit(X[:, 0], Y, EDGES),
        "expected 2 dimensions",
        lambda: classify().fit(X[:, :1], Y, EDGES),
    ),
    (
        lambda: classify().fit(np.where(X > 1, np.nan, X), Y, EDGES),
        "replace it, for example by 0",
        lambda: classify().fit(np.where(X > 1, 0, X), Y, EDGES),
    ),
    (
        lambda: classify().fit(X, X[:, 0], EDGES),
        "for numbers use NodeRegressor",
        lambda: regress(bounds=(-3, 3)).fit(X, X[:, 0], EDGES),
    ),
    (
        lambda: regress().fit(X, X[:, 0], EDGES),
        "needs the lowest and the highest number, as 0,100",
        lambda: regress(bounds=(-3, 3)).fit(X, X[:, 0], EDGES),
    ),
    (
        lambda: regress(bounds=(-3, 3)).fit(X, np.array(["a"] * COUNT), EDGES),
        "expected a number, or None or NaN",
        lambda: regress(bounds=(-3, 3)).fit(X, np.array([None] * 9 + [1.0] * (COUNT - 9)), EDGES),
    ),
    (
        lambda: classify(class_weight="balanced").fit(X, Y, EDGES),
        r"as other=0\.02",
        lambda: classify(class_weight={"0": 0.02}).fit(X, Y, EDGES),
    ),
    (
        lambda: hg.NodeClassifier(epsilon=4.0, stepz=3),
        "did you mean steps?",
        lambda: hg.NodeClassifier(epsilon=4.0, steps=3),
    ),
    (
        lambda: classify().predict(X, EDGES),
        r"is not fitted; call fit\(data\) first",
        lambda: classify().fit(X, Y, EDGES).predict(X, EDGES),
    ),
    (
        lambda: classify().fit(X, Y, EDGES).predict(X),
        "expected the edges between the rows of X, as in fit",
        lambda: classify().fit(X, Y, EDGES).predict(X, EDGES),
    ),
]


@pytest.mark.parametrize(("wrong", "words", "right"), MISTAKES, ids=[words for _, words, _ in MISTAKES])
def test_a_mistake_and_its_remedy(wrong: Try, words: str, right: Try) -> None:
    # Errors of the package, and scikit-learn's where it is not fitted: one line each.
    with pytest.raises((hg.HushgraphError, ValueError), match=words) as error:
        wrong()
    assert "\n" not in str(error.value)
    right()
