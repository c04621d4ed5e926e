"""Figures with two intervals: what they cover, groups, what is not shown, and that nothing else enters."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from scipy import optimize

from hushgraph.errors import InputError
from hushgraph.figures.describe import describe_figures, fit_counts
from hushgraph.tasks.classes import Classes
from hushgraph.tasks.task import Table, Task

pytestmark = pytest.mark.usefixtures("exact_intervals")

Figures = dict[tuple[Any, ...], dict[str, Any]]


def count(task: Classes, rows: int, *, seed: int = 0, leaning: float = 2.0) -> list[np.ndarray]:
    """The tables of rows with classes of different sizes."""
    rng, c = np.random.default_rng(seed), task.num_classes
    labels = rng.choice(c, rows, p=np.arange(1, c + 1) / (c * (c + 1) / 2))
    outputs = 1.5 * rng.standard_normal((rows, c)) + leaning * np.eye(c)[labels]
    shown = np.exp(outputs) / np.exp(outputs).sum(1, keepdims=True)
    cells = task.locate(shown, labels)
    return [
        np.bincount(column, minlength=math.prod(table.shape)).reshape(table.shape)
        for table, column in zip(task.tables, cells.T, strict=True)
    ]


def index(described: Sequence[dict[str, Any]]) -> Figures:
    return {(each["split"], each["group"], each["figure"], each["class"]): each for each in described}


@pytest.mark.parametrize(("c", "rows", "std", "redraws"), [(2, 1500, 3.0, 25), (4, 2500, 5.0, 50)])
def test_noise_intervals_cover_the_exact_figures(c: int, rows: int, std: float, redraws: int) -> None:
    task, rng = Classes(num_classes=c), np.random.default_rng(3)
    splits = {"val": count(task, rows, seed=1), "test": count(task, rows, seed=2)}
    exact = index(describe_figures(task, splits, noise_std=0.0))
    # A threshold is chosen by each draw, so that the exact recall is another one every time.
    names = [key for key in exact if key[0] == "test" and not key[2].endswith("1_percent")]
    covered = dict.fromkeys(names, 0)
    for _ in range(redraws):
        noisy = {
            split: [table + np.rint(rng.normal(0, std, table.shape)) for table in tables]
            for split, tables in splits.items()
        }
        described = index(describe_figures(task, noisy, noise_std=std))
        for key in names:
            low, high = described[key]["noise"]
            covered[key] += low <= exact[key]["value"] <= high
    # More than three standard errors of a share of 25; intervals of half the width would cover 67%.
    assert min(covered.values()) / redraws >= 0.8
    assert np.mean(list(covered.values())) / redraws == pytest.approx(0.95, abs=0.04)


def test_standard_deviations_of_accuracy_are_those_of_formulas() -> None:
    task, std = Classes(num_classes=5), 0.5
    tables = count(task, 4000)
    accuracy = index(describe_figures(task, {"test": tables}, noise_std=std))["test", None, "accuracy", None]
    value, cells = accuracy["value"], tables[1].size / 2
    # Rounding to integers adds the variance of a uniform number in an interval of 1.
    by_noise = (
        math.hypot(std, math.sqrt(1 / 12)) * math.sqrt(cells * (1 - value) ** 2 + cells * value**2) / 4000
    )
    assert accuracy["noise_std"] == pytest.approx(by_noise, rel=0.03)
    assert accuracy["sampling_std"] == pytest.approx(math.sqrt(value * (1 - value) / 4000), rel=0.06)
    for interval, spread in (("noise", "noise_std"), ("sampling", "sampling_std")):
        low, high = accuracy[interval]
        assert low < value < high
        assert high - low == pytest.approx(2 * 1.96 * accuracy[spread], rel=0.05)


def test_without_noise_the_noise_interval_is_the_value() -> None:
    task = Classes(num_classes=2)
    for each in describe_figures(task, {"test": count(task, 500)}, noise_std=0.0):
        assert each["noise"] == pytest.approx([each["value"]] * 2, abs=1e-12)
        assert each["noise_std"] < 1e-12
        assert set(each) == {
            *("split", "group", "class", "figure", "value"),
            *("noise", "sampling", "noise_std", "sampling_std"),
        }


def test_the_same_tables_give_the_same_json() -> None:
    task = Classes(num_classes=3)
    splits = {"val": count(task, 300), "test": count(task, 300, seed=1)}
    first, second = (json.dumps(describe_figures(task, splits, noise_std=2.0)) for _ in range(2))
    assert first == second
    as_numbers = {split: [table.astype(np.float64) for table in tables] for split, tables in splits.items()}
    assert json.dumps(describe_figures(task, as_numbers, noise_std=2.0)) == first


def test_the_whole_split_is_the_sum_over_groups() -> None:
    task, std = Classes(num_classes=3), 2.0
    parts = [count(task, rows, seed=rows, leaning=lean) for rows, lean in ((900, 1.0), (700, 3.0))]
    grouped = {"test": [np.stack(tables) for tables in zip(*parts, strict=True)]}
    described = index(describe_figures(task, grouped, noise_std=std, groups=("north", "south")))
    assert {key[1] for key in described} == {None, "north", "south"}
    total = [a + b for a, b in zip(*parts, strict=True)]
    # A sum of two cells was rounded twice; one of the two roundings is allowed for anyway.
    alone = index(describe_figures(task, {"test": total}, noise_std=math.sqrt(2 * std**2 + 1 / 12)))
    for key, each in alone.items():
        assert described[key]["value"] == each["value"]
        np.testing.assert_allclose(described[key]["noise"], each["noise"])
    for place, group in enumerate(("north", "south")):
        alone = index(describe_figures(task, {"test": parts[place]}, noise_std=std))
        for (split, _, figure, number), each in alone.items():
            assert described[split, group, figure, number] == each | {"group": group}
    values = [described["test", group, "accuracy", None]["value"] for group in ("north", "south")]
    assert values[0] < values[1]


def test_what_noise_hides_is_not_shown_and_says_why() -> None:
    task = Classes(num_classes=3)
    confusion = np.array([[200, 10, 0], [20, 300, 1], [-3, 2, 1]])
    calibration = np.tile([6, 44], (12, 1))
    described = index(describe_figures(task, {"test": [confusion, calibration]}, noise_std=5.0))
    for figure in ("recall", "precision", "f1"):
        hidden = described["test", None, figure, 2]
        assert hidden["value"] is None
        assert hidden["noise"] is hidden["sampling"] is hidden["noise_std"] is hidden["sampling_std"] is None
    assert described["test", None, "recall", 2]["why"] == "no rows"
    assert described["test", None, "precision", 2]["why"] == "noise"
    assert described["test", None, "recall", 0]["value"] == pytest.approx(200 / 210)
    nobody = describe_figures(task, {"test": [confusion - 200, calibration - 50]}, noise_std=5.0)
    assert {(each["value"], each["why"]) for each in nobody} == {(None, "no rows")}
    few = describe_figures(task, {"test": [np.full((3, 3), 1), np.ones((12, 2))]}, noise_std=5.0)
    assert {each["value"] for each in few} == {None}


def test_values_and_intervals_stay_in_their_range() -> None:
    task = Classes(num_classes=3)
    confusion = np.array([[205, -4, -2], [-5, 300, 1], [3, 2, 151]])
    calibration = np.zeros((12, 2))
    calibration[11] = [-9, 650]
    for each in describe_figures(task, {"test": [confusion, calibration]}, noise_std=4.0):
        numbers = [each["value"], *each["noise"], *each["sampling"]]
        assert 0 <= min(numbers) <= max(numbers) <= 1


def test_fitted_counts_are_the_nearest_without_negative_ones() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        table = rng.normal(1.0, 4.0, (4, 3))
        table += max(0.0, 1.0 - table.sum()) / 12
        fitted = fit_counts(table)
        assert fitted.min() >= 0
        assert fitted.sum() == pytest.approx(table.sum())
        # Second method: the number to take off is a root.
        taken = optimize.brentq(lambda t, x=table: np.maximum(x - t, 0).sum() - x.sum(), -100, 100)
        np.testing.assert_allclose(fitted, np.maximum(table - taken, 0), atol=1e-8)
    assert not fit_counts(np.array([[-3.0, 1.0]])).any()


def test_a_task_without_tables_has_no_figures() -> None:
    class Silent(Classes):
        tables = Task.tables
        locate = Task.locate
        compute_figures = Task.compute_figures
        bound_figure = Task.bound_figure

    task = Silent(num_classes=2)
    assert describe_figures(task, {"test": []}, noise_std=1.0) == []
    assert task.locate(np.zeros((3, 2)), np.zeros(3)).shape == (3, 0)
    assert task.bound_figure("error") == (-math.inf, math.inf)
    assert Table(name="confusion", shape=(2, 2), axes=("label", "predicted class")).shape == (2, 2)


@pytest.mark.parametrize(
    ("tables", "std", "message"),
    [
        (
            [np.zeros((3, 3))],
            1.0,
            r"splits\['test'\] has tables of shapes \[\(3, 3\)\]: expected \[\(3, 3\), \(12",
        ),
        (
            [np.zeros((3, 3)), np.zeros((12, 2))],
            -1.0,
            "noise_std=-1.0: expected a finite number of at least 0",
        ),
        ([np.zeros((3, 3)), np.zeros((12, 2))], math.nan, "noise_std=nan"),
    ],
)
def test_what_does_not_fit_is_refused(tables: list[np.ndarray], std: float, message: str) -> None:
    with pytest.raises(InputError, match=message):
        describe_figures(Classes(num_classes=3), {"test": tables}, noise_std=std)
