"""Thresholds: read off released bins, compared with exact scores; who is flagged, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hushgraph as hg
from hushgraph.errors import InputError
from hushgraph.figures.tables import NoisyTables, Scored, count_rows
from hushgraph.graph.graph import Graph
from hushgraph.inference.thresholds import Threshold, give_threshold, parse_top, read_threshold
from hushgraph.tasks.class_tables import SCORE_EDGES
from hushgraph.tasks.classes import Classes
from hushgraph.tasks.labels import Labels
from hushgraph.tasks.number import Number
from hushgraph.tasks.task import Task
from hushgraph.tasks.two_classes import TwoClasses

RELEASED = "released bins of the validation split"


def tables_of(task: Task, noise_std: float = 0.01, **splits: tuple[Any, Any]) -> NoisyTables:
    """The exact counts, as if their noise had been small."""
    counts = {name: count_rows(task, [Scored(*rows)]) for name, rows in splits.items()}
    return NoisyTables(splits=counts, noise_std=noise_std)


def draw_scores(rows: int = 4000, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    scores = 1 / (1 + np.exp(-rng.normal(-3, 2, rows)))
    labels = (rng.random(rows) < scores).astype(np.int64)
    return np.stack([1 - scores, scores], 1).astype(np.float32), labels


@pytest.mark.parametrize("share", [0.01, 0.1, 0.5])
@pytest.mark.parametrize("positive", [0, 1])
def test_it_is_the_lowest_edge_that_at_most_the_share_is_above(share: float, positive: int) -> None:
    shown, labels = draw_scores()
    task = TwoClasses(positive=positive)
    found = read_threshold(task, tables_of(task, val=(shown, labels)), share)
    scores = shown[:, positive].astype(np.float64)
    # By brute force over the public edges.
    expected = min(edge for edge in SCORE_EDGES if (scores > edge).mean() <= share)
    assert found.values == (expected,)
    assert (found.outputs, found.top, found.source) == ((positive,), share, RELEASED)
    assert np.array_equal(found.flag(shown)[:, 0], scores > expected)
    ((middle, low, high),) = found.shares
    assert middle == pytest.approx((scores > expected).mean())
    assert low <= middle <= high <= low + 0.01


def test_noise_of_the_bins_is_in_the_interval_of_the_share() -> None:
    shown, labels = draw_scores()
    task, rng, covered = TwoClasses(), np.random.default_rng(1), 0
    exact = tables_of(task, val=(shown, labels))
    for _ in range(200):
        (table,) = exact.splits["val"]
        noisy = (table + np.rint(rng.normal(0, 3.0, table.shape)).astype(np.int64),)
        found = read_threshold(task, replace(exact, splits={"val": noisy}, noise_std=3.0), "5%")
        share = (shown[:, 1].astype(np.float64) > found.values[0]).mean()
        ((_, low, high),) = found.shares
        covered += low <= share <= high
    # The edge is chosen by the same noise, so that a little less than 95% is right.
    assert 170 <= covered <= 200


def test_every_label_has_a_threshold_of_its_own() -> None:
    rng = np.random.default_rng(0)
    shown = 1 / (1 + np.exp(-rng.normal([1.0, -3.0], 1.0, (3000, 2))))
    labels = (rng.random((3000, 2)) < shown).astype(np.int64)
    task = Labels(num_labels=2)
    found = read_threshold(task, tables_of(task, val=(shown, labels)), 0.2)
    assert found.values[0] > 0.7 > 0.3 > found.values[1]
    flags = found.flag(shown)
    assert flags.shape == (3000, 2)
    assert (flags.mean(0) > 0).all()
    assert (flags.mean(0) <= 0.2).all()


def test_groups_are_added_up() -> None:
    shown, labels = draw_scores()
    task = TwoClasses()
    whole = tables_of(task, val=(shown, labels))
    halves = [count_rows(task, [Scored(shown[part::2], labels[part::2])])[0] for part in (0, 1)]
    by_group = NoisyTables(splits={"val": (np.stack(halves),)}, noise_std=0.01, groups=("a", "b"))
    assert read_threshold(task, by_group, 0.05).values == read_threshold(task, whole, 0.05).values


def test_the_test_split_serves_where_the_validation_split_is_noise() -> None:
    shown, labels = draw_scores()
    task = TwoClasses()
    tables = tables_of(task, noise_std=3.0, val=(shown[:0], labels[:0]), test=(shown, labels))
    assert read_threshold(task, tables, 0.05).source == "released bins of the test split"
    hidden = tables_of(task, noise_std=3.0, val=(shown[:20], labels[:20]), test=(shown[:9], labels[:9]))
    with pytest.raises(InputError, match=r"^top=0.05: noise hides how many rows .* give threshold=T, or"):
        read_threshold(task, hidden, 0.05)


@pytest.mark.parametrize(("given", "share"), [("1%", 0.01), (" 2.5% ", 0.025), ("0.3", 0.3), (0.3, 0.3)])
def test_shares_are_read(given: str | float, share: float) -> None:
    assert parse_top(given) == pytest.approx(share)


@pytest.mark.parametrize("given", ["0%", "200%", "100%", "1", "-1%", "few", "", "%", "nan%", 0.0, 1.0, True])
def test_other_shares_are_refused(given: Any) -> None:
    with pytest.raises(InputError, match=r"expected a share above 0% and below 100%, such as 1% or 0\.01$"):
        parse_top(given)


@pytest.mark.parametrize(
    ("task", "threshold", "words"),
    [
        (TwoClasses(), 1.5, "threshold=1.5: expected a probability, from 0 to 1; nodes above it are flagged"),
        (TwoClasses(), float("nan"), "threshold=nan: expected a probability"),
        (TwoClasses(), "high", "threshold='high': expected a probability"),
        (Labels(num_labels=3), -0.1, "expected a probability"),
        (Number(low=10, high=50), 60, "expected a number within the bounds of the label, from 10 to 50"),
        (Classes(num_classes=7), 0.5, "the run predicts one of 7 classes, and a threshold is for the score"),
    ],
)
def test_thresholds_that_no_score_has_are_refused(task: Task, threshold: Any, words: str) -> None:
    with pytest.raises(InputError) as refused:
        give_threshold(task, threshold)
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


def test_what_has_no_bins_is_refused() -> None:
    number = Number(low=0.0, high=8.0)
    tables = tables_of(number, val=(np.ones((9, 1)), np.zeros(9, np.float32)))
    with pytest.raises(InputError, match="a number from 0 to 8 has no score bins; give threshold=T, above"):
        read_threshold(number, tables, "1%")
    with pytest.raises(InputError, match="the run released no score bins, as trees, a fixed seed and"):
        read_threshold(TwoClasses(), None, "1%")
    with pytest.raises(InputError, match="top='1%': the run predicts one of 3 classes"):
        read_threshold(Classes(num_classes=3), None, "1%")
    assert give_threshold(number, 6.0).flag(np.array([[5.0], [6.0], [7.0]])).tolist() == [[0], [0], [1]]


@pytest.fixture(scope="module")
def data() -> Graph:
    return hg.datasets.synthetic(num_nodes=900, num_classes=2, num_features=6, seed=4)


@pytest.fixture(scope="module")
def run(data: Graph, tmp_path_factory: pytest.TempPathFactory) -> hg.Run:
    out = tmp_path_factory.mktemp("runs") / "run"
    return hg.train(data, epsilon=8.0, steps=30, hidden=8, device="cpu", out=out, split="0.4/0.4/0.2")


def test_a_run_flags_by_what_it_released(run: hg.Run, data: Graph) -> None:
    predicted = run.predict_table(data, top="20%")
    threshold = predicted.threshold
    assert isinstance(threshold, Threshold)
    assert threshold.source == RELEASED
    assert threshold.values[0] in SCORE_EDGES
    scores = run.predict_proba(data)[:, 1].astype(np.float64)
    assert np.array_equal(predicted.flagged, scores > threshold.values[0])
    columns = predicted.to_columns(probabilities=False)
    assert list(columns) == ["node", "class", "p_1", "flagged"]
    about = predicted.to_json()["threshold"]
    assert json.loads(json.dumps(about)) == about
    assert (about["source"], about["covered"], about["top"]) == (RELEASED, True, 0.2)
    assert f"flagged: scores above {threshold.values[0]:.6g}, {RELEASED}, which" in predicted.to_lines()[1]
    given = run.predict_table(data, threshold=0.25)
    assert np.array_equal(given.flagged, scores > 0.25)
    assert given.to_lines()[1] == "flagged: scores above 0.25, given; covered towards everybody else"


def test_a_release_alone_flags_the_same(run: hg.Run, data: Graph) -> None:
    released = hg.Run.load(run.folder.release_path, device="cpu")
    expected = run.predict_table(data, top="10%")
    found = released.predict_table(data, top="10%")
    assert found.threshold == expected.threshold
    assert np.array_equal(found.flagged, expected.flagged)


def test_new_nodes_are_flagged_by_the_same_threshold(run: hg.Run, data: Graph, tmp_path: Path) -> None:
    np.savez(tmp_path / "new.npz", x=data.x[:3], places_indptr=[0, 2, 3, 3], places=[4, 17, 5])
    new = run.predict_table(tmp_path / "new.npz", new=True, top=0.1)
    assert new.threshold == run.predict_table(data, top=0.1).threshold
    assert new.flagged is not None
    assert np.array_equal(new.flagged, new.probabilities[:, 1].astype(np.float64) > new.threshold.values[0])


def test_no_other_row_decides_who_is_flagged(run: hg.Run, data: Graph) -> None:
    """By rank somebody else's flag would move."""
    expected = run.predict_table(data, top="10%").flagged
    assert expected is not None
    for v in np.flatnonzero(expected)[:3]:
        emptied = data.with_row_emptied(int(v), "sender")
        found = run.predict_table(emptied, top="10%").flagged
        assert np.array_equal(np.delete(found, v), np.delete(expected, v))


def test_both_at_once_and_bins_in_the_clear_are_refused(run: hg.Run, data: Graph) -> None:
    with pytest.raises(InputError, match=r"^threshold=0.5 and top=1%: both say who is flagged; leave out"):
        run.predict_table(data, threshold=0.5, top="1%")
    with pytest.raises(InputError, match=r"^top=1% and in_the_clear: the released score bins are of covered"):
        run.predict_table(data, top="1%", in_the_clear=True)
    clear = run.predict_table(data, threshold=0.5, in_the_clear=True)
    assert clear.to_json()["threshold"]["covered"] is False
    assert clear.to_lines()[1] == "flagged: scores above 0.5, given; not covered"


@pytest.mark.parametrize("how", [{"max_readers": 1}, {"seed": 1}, {"private": False, "epsilon": None}])
def test_runs_without_released_bins_say_what_to_do(data: Graph, how: dict[str, Any]) -> None:
    run = hg.train(data, **{"epsilon": 8.0, "steps": 2, "hidden": 4, "device": "cpu"} | how)
    with pytest.raises(InputError, match=r"^top='1%': the run released no score bins.* give threshold=T, or"):
        run.predict_table(data, top="1%")
    assert run.predict_table(data, threshold=0.5).flagged is not None
