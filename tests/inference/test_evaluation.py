"""Accuracy, per class and macro-F1, against counts done by hand."""

from __future__ import annotations

import numpy as np

from hushgraph.inference.in_memory import evaluate


def test_by_hand() -> None:
    labels = np.array([0, 0, 0, 1, 1, -1, 2, 9])
    predicted = np.array([0, 0, 1, 1, 0, 0, 1, 0])
    found = evaluate(predicted, labels, np.arange(7), 4)
    assert found is not None
    assert found.accuracy == 3 / 6
    np.testing.assert_array_equal(found.class_counts, [3, 2, 1, 0])
    np.testing.assert_allclose(found.class_accuracy, [2 / 3, 1 / 2, 0, np.nan])
    # Class 0: precision 2/3, recall 2/3. Class 1: precision 1/3, recall 1/2. Class 2: never predicted.
    assert found.macro_f1 == np.mean([2 / 3, 0.4, 0.0])


def test_nothing_to_look_at() -> None:
    assert evaluate(np.zeros(3, int), np.array([-1, -1, 0]), np.array([0, 1]), 2) is None
    assert evaluate(np.zeros(3, int), np.zeros(3, int), np.array([], int), 2) is None
