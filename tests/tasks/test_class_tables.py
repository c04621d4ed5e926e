"""Tables of evaluated rows: where a row is counted, and figures of exact counts against scikit-learn's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from hushgraph.tasks.class_tables import (
    CONFIDENCE_CENTRES,
    SCORE_CENTRES,
    SCORE_EDGES,
    choose_threshold,
    compute_calibration_figures,
    compute_confusion_figures,
    compute_score_figures,
)
from hushgraph.tasks.classes import Classes

metrics = pytest.importorskip("sklearn.metrics", reason="scikit-learn is not installed")


def count(task: Classes, shown: np.ndarray, labels: np.ndarray) -> list[np.ndarray]:
    """[1, *shape] for every table, one row after another."""
    tables = [np.zeros(table.shape) for table in task.tables]
    for cells in task.locate(shown, labels):
        for table, cell in zip(tables, cells, strict=True):
            if cell >= 0:
                table.flat[cell] += 1
    return [table[None] for table in tables]


def random_rows(c: int, rows: int, *, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities that know something about labels; a few rows have no label."""
    rng = np.random.default_rng(seed)
    labels = rng.choice(c, rows, p=np.arange(1, c + 1) / (c * (c + 1) / 2))
    outputs = 2.0 * rng.standard_normal((rows, c)) + 2.0 * np.eye(c)[labels]
    labels[rng.random(rows) < 0.05] = -1
    return torch.from_numpy(outputs.astype(np.float32)).softmax(1).numpy(), labels


@pytest.mark.parametrize("c", [2, 3, 7])
def test_figures_of_exact_counts_are_those_of_scikit_learn(c: int) -> None:
    task = Classes(num_classes=c)
    shown, labels = random_rows(c, 3000)
    figures = {name: value[0] for name, value in task.compute_figures(count(task, shown, labels)).items()}
    kept = labels >= 0
    truth, best = labels[kept], shown[kept].argmax(1)
    assert figures["accuracy"] == pytest.approx(metrics.accuracy_score(truth, best), abs=1e-12)
    assert figures["macro_f1"] == pytest.approx(metrics.f1_score(truth, best, average="macro"), abs=1e-12)
    precision, recall, f1, counts = metrics.precision_recall_fscore_support(truth, best)
    expected = {"precision": precision, "recall": recall, "f1": f1, "share": counts / counts.sum()}
    for name, values in expected.items():
        np.testing.assert_allclose(figures[name], values, atol=1e-12)
    assert figures["majority_baseline"] == pytest.approx(counts.max() / counts.sum())
    evaluation = task.evaluate(best, truth)
    assert (figures["accuracy"], figures["macro_f1"]) == pytest.approx(
        (evaluation.figures["accuracy"], evaluation.figures["macro_f1"])
    )


def test_ranking_of_tied_scores_is_exact_and_of_others_close() -> None:
    task = Classes(num_classes=2)
    shown, labels = random_rows(2, 4000, seed=1)
    truth = labels[labels >= 0]
    figures = task.compute_figures(count(task, shown, labels))
    scores = shown[labels >= 0, 1]
    assert figures["roc_auc"][0] == pytest.approx(metrics.roc_auc_score(truth, scores), abs=5e-4)
    assert figures["average_precision"][0] == pytest.approx(
        metrics.average_precision_score(truth, scores), abs=2e-3
    )
    # On every second centre no bin has a neighbour, so that a tie is a tie and counts one half.
    tied = SCORE_CENTRES[1::2][np.searchsorted(SCORE_CENTRES[1::2], shown[:, 1]).clip(max=20)]
    tables = count(task, np.stack([1 - tied, tied], 1), labels)
    expected = metrics.roc_auc_score(truth, tied[labels >= 0])
    assert task.compute_figures(tables)["roc_auc"][0] == pytest.approx(expected, abs=1e-12)


def test_average_precision_by_hand() -> None:
    scores = np.zeros((1, len(SCORE_CENTRES), 2))
    scores[0, 30], scores[0, 10] = [1, 3], [7, 1]
    # Precision is 3/4 throughout the upper bin, and falls to 4/12 at the end of the lower one.
    expected = (3 * 3 / 4 + 1 * (3 / 4 + 4 / 12) / 2) / 4
    assert compute_score_figures(scores, 0.0)["average_precision"][0] == pytest.approx(expected)


def test_average_precision_takes_bins_at_the_top_together_as_long_as_noise_may_be_all_they_hold() -> None:
    scores = np.zeros((1, len(SCORE_CENTRES), 2))
    # 4 rows in the top bin are more than twice their noise of sqrt(2), the 1 of both upper bins is not.
    scores[0, 41], scores[0, 40], scores[0, 39], scores[0, 10] = [0, 4], [-2, -1], [12, 28], [70, 9]
    expected = ((4 - 1 + 28) * 31 / 41 + 9 * (31 / 41 + 40 / 120) / 2) / 40
    assert compute_score_figures(scores, 1.0)["average_precision"][0] == pytest.approx(expected)


# Rows, share of class 1, and log-odds: mean of class 0, mean of class 1, standard deviation.
PLANTED = (
    (2000, 0.2, -2.0, -1.0, 1.0),
    (2000, 0.2, -2.0, 0.0, 1.0),
    (3000, 0.1, -4.0, -2.0, 1.5),
    (1000, 0.5, -0.5, 0.5, 1.0),
    (1500, 0.6, 0.0, 1.5, 2.0),
    (2000, 0.3, -1.0, -0.7, 0.4),
    (20000, 0.05, -4.0, -2.5, 1.0),
    (3000, 0.2, -2.0, 2.0, 3.0),
    (2000, 0.1, -3.0, -3.0, 1.0),
    (3000, 0.9, 2.0, 3.0, 1.0),
    (2000, 0.3, -4.0, 4.0, 1.0),
)


def test_noise_moves_average_precision_by_a_part_of_its_standard_error() -> None:
    errors = []
    for rows, share, low, high, spread in PLANTED:
        rng = np.random.default_rng(0)
        labels = (rng.random(rows) < share).astype(np.int64)
        scores = 1 / (1 + np.exp(-(np.where(labels == 1, high, low) + spread * rng.standard_normal(rows))))
        exact = metrics.average_precision_score(labels, scores)
        bins = np.searchsorted(SCORE_EDGES, scores)
        table = np.stack([np.bincount(bins[labels == k], minlength=len(SCORE_CENTRES)) for k in (0, 1)], 1)
        for noise_std in (1.05, 3.6):
            noisy = table + rng.normal(0, noise_std, (2000, *table.shape))
            figures = compute_score_figures(noisy, noise_std)["average_precision"]
            errors.append((figures.mean() - exact) / figures.std())
    # Less than half of what it is when every bin counts by itself: then 0.59 in the mean square.
    assert np.sqrt(np.mean(np.square(errors))) < 0.3
    assert np.abs(errors).max() < 0.9


@pytest.mark.parametrize("c", [2, 4])
def test_emptying_one_row_takes_one_off_one_cell_of_each_table(c: int) -> None:
    task, rng = Classes(num_classes=c), np.random.default_rng(c)
    for trial in range(200):
        shown, labels = random_rows(c, 12, seed=trial)
        before = count(task, shown, labels)
        v = rng.integers(12)
        emptied, others = shown.copy(), labels.copy()
        # An emptied row has no label; its prediction, from empty features, may be anything.
        emptied[v], others[v] = rng.dirichlet(np.ones(c)), -1
        moved = [np.abs(a - b) for a, b in zip(before, count(task, emptied, others), strict=True)]
        assert all(each.sum() == (labels[v] >= 0) for each in moved)


@pytest.mark.parametrize("c", [2, 5])
def test_the_cells_of_a_row_depend_on_that_row_alone(c: int) -> None:
    task, rng = Classes(num_classes=c), np.random.default_rng(0)
    shown, labels = random_rows(c, 60)
    cells = task.locate(shown, labels)
    assert cells.shape == (60, len(task.tables))
    assert cells.dtype == np.int64
    order = rng.permutation(60)
    np.testing.assert_array_equal(task.locate(shown[order], labels[order]), cells[order])
    for kept in (rng.random(60) < 0.3, np.arange(60) == 7, np.zeros(60, np.bool_)):
        np.testing.assert_array_equal(task.locate(shown[kept], labels[kept]), cells[kept])


@pytest.mark.parametrize("c", [2, 3])
def test_rows_that_are_counted_nowhere(c: int) -> None:
    shown = np.full((5, c), 1 / c, np.float32)
    shown[1, 0], shown[2, 1] = np.nan, np.inf
    cells = Classes(num_classes=c).locate(shown, np.array([0, 0, 0, -1, c]))
    assert (cells[0] >= 0).all()
    assert (cells[1:] == -1).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_half_of_a_score_is_the_predicted_class(dtype: Any) -> None:
    task = Classes(num_classes=2)
    near = [dtype(0.5)]
    for _ in range(4):
        near = [np.nextafter(near[0], dtype(0)), *near, np.nextafter(near[-1], dtype(1))]
    shown = np.array([(a, b) for a in near for b in near], dtype)
    shown = np.concatenate([shown, random_rows(2, 500)[0].astype(dtype)])
    predicted = task.predict(torch.from_numpy(shown)).numpy()
    bins = task.locate(shown, np.zeros(len(shown), np.int64))[:, 0] // 2
    np.testing.assert_array_equal(bins >= len(SCORE_CENTRES) // 2, predicted == 1)
    assert SCORE_EDGES[len(SCORE_EDGES) // 2] == 0.5


def test_the_threshold_is_the_lowest_edge_with_few_rows_above() -> None:
    scores = np.zeros((1, len(SCORE_CENTRES), 2))
    scores[0, 5], scores[0, 20, 0], scores[0, 30, 1], scores[0, 35, 1] = [890, 60], 30, 12, 8
    # 8 of 1,000 rows are above edge 30, which is the upper one of bin 30; 20 are above every edge below it.
    assert choose_threshold(scores, 0.01).tolist() == [30]
    figures = Classes(num_classes=2).compute_figures([scores])
    assert figures["threshold_at_1_percent"][0] == SCORE_EDGES[30]
    assert figures["recall_at_1_percent"][0] == 8 / 80
    assert figures["share_at_1_percent"][0] == 8 / 1000
    assert choose_threshold(np.ones_like(scores), 0.0).tolist() == [len(SCORE_EDGES) - 1]


def test_choices_are_made_on_the_other_split() -> None:
    task = Classes(num_classes=3)
    own = [np.diag([10.0, 60.0, 30.0])[None], np.ones((1, 12, 2))]
    other = [np.diag([10.0, 30.0, 60.0]), np.ones((12, 2))]
    assert task.compute_figures(own)["majority_baseline"][0] == 0.6
    assert task.compute_figures(own, other=other)["majority_baseline"][0] == 0.3


def test_calibration_by_hand() -> None:
    calibration = np.zeros((1, 12, 2))
    calibration[0, 4], calibration[0, 8] = [30, 70], [60, 40]
    assert CONFIDENCE_CENTRES[[4, 8]] == pytest.approx([0.45, 0.85])
    expected = (100 * abs(0.7 - 0.45) + 100 * abs(0.4 - 0.85)) / 200
    assert compute_calibration_figures(calibration, 0.0)["calibration_error"][0] == pytest.approx(expected)
    scores = np.zeros((1, len(SCORE_CENTRES), 2))
    scores[0, 20], scores[0, 21] = [50, 50], [50, 50]
    # Both bins are beside one half and belong to two groups: 0.5 against the probability at their centres.
    assert compute_score_figures(scores, 0.0)["calibration_error"][0] == pytest.approx(
        SCORE_CENTRES[21] - 0.5
    )


def test_noise_adds_less_to_calibration_than_to_plain_differences() -> None:
    calibration = np.zeros((1, 12, 2))
    rights = np.rint(100 * CONFIDENCE_CENTRES)
    calibration[0] = np.stack([100 - rights, rights], 1)
    noisy = calibration + np.random.default_rng(0).normal(0, 6, (4000, 12, 2))
    (exact,) = compute_calibration_figures(calibration, 0.0)["calibration_error"]
    plain = compute_calibration_figures(noisy, 0.0)["calibration_error"].mean() - exact
    reduced = compute_calibration_figures(noisy, 6.0)["calibration_error"].mean() - exact
    assert 0 < reduced < 0.6 * plain


def test_classes_without_rows_do_not_decide_macro_f1() -> None:
    confusion = np.zeros((1, 20, 20))
    confusion[0, :5, :5] = np.diag([500.0] * 5)
    noisy = confusion + np.random.default_rng(1).normal(0, 5, (2000, 20, 20))
    assert compute_confusion_figures(confusion, 0.0)["macro_f1"][0] == 0.25
    bounded = compute_confusion_figures(noisy, 5.0)["macro_f1"]
    free = compute_confusion_figures(noisy, 0.0)["macro_f1"]
    assert bounded.mean() == pytest.approx(0.25, abs=0.2 * bounded.std())
    assert bounded.std() < 0.5 * free.std()


def test_nothing_to_divide_by_is_nan() -> None:
    for c in (2, 3):
        task = Classes(num_classes=c)
        figures = task.compute_figures([np.full((2, *table.shape), -1.0) for table in task.tables])
        for name in set(figures) - {"threshold_at_1_percent"}:
            assert np.isnan(figures[name]).all(), name
    assert task.bound_figure("accuracy") == (0.0, 1.0)
