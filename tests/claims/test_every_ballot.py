"""Promise: what a row casts has norm at most 1, in integers: every task, every label, any list."""

from __future__ import annotations

import itertools

import numpy as np
import numpy.typing as npt
import pytest
import torch

from hushgraph.billboard.ballots import GRID, ballot_entries, ballots_of_lists, with_predictions
from hushgraph.tasks.classes import Classes
from hushgraph.tasks.labels import Labels
from hushgraph.tasks.number import Number
from hushgraph.tasks.task import Task
from hushgraph.tasks.two_classes import TwoClasses

MOST = 10**6
SIZES = np.unique(
    np.concatenate(
        [
            np.arange(1, 300),
            2 ** np.arange(20),
            np.arange(1, 1001) ** 2,
            np.random.default_rng(0).integers(1, MOST, 500),
            [999_983, MOST - 1, MOST],
        ]
    )
)
FEW_SIZES = np.array([1, 2, 3, 5, 7, 10, 99, 1_000, 4_097, 65_536, 123_456, 999_983, MOST])

TASKS: list[Task] = [
    *(Classes(num_classes=c) for c in (2, 3, 4, 7, 40, 333, 1_000)),
    *(TwoClasses(positive=positive, rare=rare) for positive in (0, 1) for rare in (False, True)),
    *(Labels(num_labels=count) for count in (1, 2, 5, 8, 84, 1_000)),
    Number(low=-3.0, high=11.0),
]


def name_task(task: Task) -> str:
    return f"{task.name}-{task.num_outputs}{'-rare' if getattr(task, 'rare', False) else ''}"


def list_labels(task: Task) -> npt.NDArray[np.generic]:
    """Every label of the task; of many labels, all sets of few labels, and of each size one that is drawn."""
    if isinstance(task, Classes):
        return np.arange(task.num_classes)
    if isinstance(task, Number):
        given = [-1.0, 1.0, 0.0, 1e-30, 0.1, 1 / 3, 5.0, -np.inf, np.inf, *np.linspace(-1, 1, 2_001)]
        return np.array(given, np.float32)
    count = task.num_outputs
    if count <= 8:
        return np.array(list(itertools.product([0, 1], repeat=count)))
    rng, sizes = np.random.default_rng(count), np.unique(np.append(np.arange(0, count, 7), [1, 2, 3, count]))
    sets = np.zeros((len(sizes), count), np.int64)
    for row, size in enumerate(sizes):
        sets[row, rng.permutation(count)[:size]] = 1
    return sets


def cross(labels: npt.NDArray[np.generic], sizes: npt.NDArray[np.int64]) -> tuple[np.ndarray, np.ndarray]:
    """Every label with every size."""
    return np.repeat(labels, len(sizes), axis=0), np.tile(sizes, len(labels))


def check(
    ballots: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64], norms: npt.NDArray[np.float64]
) -> None:
    """d |b|^2 <= GRID^2 in integers, and |b| as near to `norms` as rounding towards 0 leaves it."""
    squares = sizes * np.square(ballots).sum(axis=1)
    assert squares.dtype == np.int64
    assert squares.max() <= GRID**2
    lost = np.sqrt(sizes * float(ballots.shape[1])) + 1e-6 * GRID
    assert (np.sqrt(squares) >= norms * GRID - lost).all()


@pytest.mark.parametrize("task", TASKS, ids=name_task)
def test_a_label_casts_at_most_one_whatever_it_is_and_however_long_the_list(task: Task) -> None:
    labels, sizes = cross(list_labels(task), FEW_SIZES)
    cast = ballots_of_lists(sizes, labels, "sender", task=task)
    exact = task.make_ballots(labels)
    check(cast.dense(np.arange(len(sizes))), sizes, np.minimum(1.0, np.linalg.norm(exact, axis=1)))
    # The largest change of a label is the one that is charged.
    first = task.make_ballots(list_labels(task))[:300]
    squares = np.square(first).sum(1)
    changes = squares[:, None] + squares - 2 * first @ first.T
    assert changes.max() <= task.label_change + 1e-9
    # One label alone has no other one to change into.
    if task.name != "labels" or task.num_outputs > 1:
        assert changes.max() >= task.label_change - 1e-9


def test_centred_ballots_of_3_to_1000_classes_and_lists_to_a_million() -> None:
    """All widths with 2,000 sizes: label and list enter by these two numbers alone."""
    nearest = 0.0
    for c in range(2, 1_001):
        own, rest = ballot_entries(SIZES, Classes(num_classes=c).entry_squares)
        squares = SIZES * (own * own + (c - 1) * rest * rest)
        assert squares.max() <= GRID**2
        assert (np.sqrt(squares) >= GRID - np.sqrt(c * SIZES)).all()
        nearest = max(nearest, float(squares.max()) / GRID**2)
    assert nearest > 1 - 1e-6


def test_sets_of_1_to_1000_labels_and_lists_to_a_million() -> None:
    """A set of k labels casts k equal numbers, so that the width matters by k alone."""
    task = Labels(num_labels=1_000)
    counts = np.unique(np.append(np.arange(1, 1_001, 31), 1_000))
    sets = (np.arange(1_000) < counts[:, None]).astype(np.int64)
    for size in SIZES[:: len(SIZES) // 40]:
        sizes = np.full(len(sets), size)
        cast = ballots_of_lists(sizes, sets, "sender", task=task).dense(np.arange(len(sets)))
        check(cast, sizes, np.ones(len(sets)))


@pytest.mark.parametrize("task", TASKS, ids=name_task)
def test_a_prediction_casts_at_most_one_whatever_the_model_says(task: Task) -> None:
    """Onto a second board: also numbers that are huge, or none."""
    rng = np.random.default_rng(7)
    outputs = np.concatenate(
        [
            rng.normal(size=(40, task.num_outputs)) * 10.0 ** rng.integers(-3, 3, (40, 1)),
            np.full((3, task.num_outputs), [[1e38], [-1e38], [60.0]]),
            np.full((3, task.num_outputs), [[np.inf], [-np.inf], [np.nan]]),
            rng.choice([0.0, 1e30, -np.inf, np.nan], (10, task.num_outputs)),
        ]
    ).astype(np.float32)
    outputs, sizes = cross(outputs, FEW_SIZES)
    nobody = -1 if task.name != "number" else np.nan
    shape = (len(sizes), task.num_outputs) if task.name == "labels" else len(sizes)
    ballots = ballots_of_lists(sizes, np.full(shape, nobody), "sender", task=task)
    assert not ballots.is_cast.any()
    cast = with_predictions(ballots, torch.from_numpy(outputs), task).dense(np.arange(len(sizes)))
    with np.errstate(all="ignore"):
        norms = np.linalg.norm(task.predict_ballots(torch.from_numpy(outputs)), axis=1)
    check(cast, sizes, np.minimum(1.0, np.where(np.isfinite(norms), norms, 0.0)))
    # What is not finite casts nothing.
    assert not cast[~np.isfinite(norms)].any()


def test_an_empty_set_and_an_empty_list_cast_nothing() -> None:
    task = Labels(num_labels=4)
    sets = np.array([[0, 0, 0, 0], [1, 1, 0, 0], [-1, -1, -1, -1]])
    cast = ballots_of_lists(np.array([3, 0, 3]), sets, "sender", task=task)
    assert not cast.dense(np.arange(3)).any()
    # The empty set is a label all the same: a second board does not replace it by a prediction.
    assert cast.is_cast.tolist() == [True, False, False]
