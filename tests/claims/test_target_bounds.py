"""Promise: bounds of a number to predict may be paid for: one histogram more, released once."""

from __future__ import annotations

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hushgraph as hg
from hushgraph.errors import InputError, RunError
from hushgraph.graph.columns import Columns
from hushgraph.graph.graph import Graph
from hushgraph.privacy.changes import ONE_LABEL, rows_emptied
from hushgraph.privacy.charges import SCALING, ScalingCharge
from hushgraph.privacy.lines import write_line
from hushgraph.runs.folder import RunFolder
from hushgraph.scaling.histograms import NUM_BINS, NoisyHistograms, count_numbers, find_bounds, locate
from hushgraph.tasks.number import Number

PRIVATE = Number(bounds="private")
QUICK: dict[str, Any] = {"epsilon": 4.0, "steps": 4, "hidden": 4, "device": "cpu", "bounds": "private"}
NUMBERS = (0.0, 1e-30, -1e-30, 3e38, -3e38, np.inf, -np.inf, 1.0, -7.5, 40_000.0)


def draw_graph(rng: np.random.Generator) -> Graph:
    """A few rows with numbers of all sizes, some of them in no split, without a label or without features."""
    rows, numbers = int(rng.integers(2, 7)), int(rng.integers(0, 4))
    x = np.concatenate([rng.choice([0.0, 2.0, -300.0], (rows, numbers)), np.ones((rows, 1))], axis=1)
    x[rng.random(rows) < 0.2] = 0
    y = rng.choice([*NUMBERS, np.nan], rows).astype(np.float32)
    parts = np.split(rng.permutation(rows), np.sort(rng.integers(1, rows + 1, 2)))
    names = [f"n{k}" for k in range(numbers)]
    return Graph.from_arrays(
        edge_index=rng.integers(0, rows, (2, 6)),
        x=x.astype(np.float32),
        y=y,
        **dict(zip(("train_idx", "val_idx", "test_idx"), parts, strict=True)),
        columns=Columns(features=names, categorical={"c": ["a"]}) if numbers else None,
        task=PRIVATE,
    )


def test_an_emptied_row_or_a_label_moves_the_histograms_by_what_is_charged() -> None:
    rng = np.random.default_rng(5)
    most = {"row": 0.0, "label": 0.0}
    for _ in range(250):
        graph = draw_graph(rng)
        names = graph.columns.features if graph.columns else ()
        counts = count_numbers(graph, names)
        assert counts.shape == (len(names) + 1, NUM_BINS)
        charge = ScalingCharge(num_columns=len(counts), noise_std=1.0, has_target=True)
        for v in range(graph.num_nodes):
            kind = "training" if v in graph.train_idx else "other"
            (change,) = [each for each in rows_emptied() if each.kinds == (kind,)]
            claimed = charge.move(change)
            emptied = graph.with_row_emptied(v, "sender")
            moved = float(np.linalg.norm(counts - count_numbers(emptied, names)))
            assert moved <= claimed + 1e-12
            most["row"] = max(most["row"], moved / claimed if claimed else 0.0)
            relabelled = graph.y.copy()
            relabelled[v] = rng.choice(NUMBERS)
            if np.isnan(graph.y[v]):
                continue
            moved = float(np.linalg.norm(counts - count_numbers(replace(graph, y=relabelled), names)))
            claimed = max(charge.move(each) for each in ONE_LABEL) if kind == "training" else 0.0
            assert moved <= claimed + 1e-12
            most["label"] = max(most["label"], moved / math.sqrt(2))
    assert most == pytest.approx({"row": 1.0, "label": 1.0})


def write_people(folder: Path, *, empty: int | None = None) -> Path:
    """Incomes to predict, from an age; the row `empty` has nothing."""
    folder.mkdir()
    rng = np.random.default_rng(4)
    lines, edges = ["id,age,income,split"], ["source,target"]
    for n in range(600):
        age = rng.integers(18, 80)
        about = f"{age},{age * 500 + rng.normal(0, 900):.2f}"
        lines.append(f"p{n},{'0,' if n == empty else about},{('train', 'train', 'val', 'test')[n % 4]}")
        edges += [f"p{n},p{(n + step) % 600}" for step in (1, 2) if n != empty]
    (folder / "nodes.csv").write_text("\n".join(lines) + "\n")
    (folder / "edges.csv").write_text("\n".join(edges) + "\n")
    return folder


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_people(tmp_path_factory.mktemp("data") / "people")


@pytest.fixture(scope="module")
def run(people: Path, tmp_path_factory: pytest.TempPathFactory) -> hg.Run:
    return hg.train(people, label="income", out=tmp_path_factory.mktemp("runs") / "run", **QUICK)


def test_a_run_pays_for_one_column_more_and_states_the_bounds(run: hg.Run, people: Path) -> None:
    plan = run.plan
    assert (plan.num_scaled, plan.has_target, run.folder.paid_columns) == (2, True, ("age",))
    assert run.epsilon <= 4.0
    assert run.result["guarantee"] == "holds"
    assert plan.charges[0].row_move == pytest.approx(math.sqrt(2))
    low, high = run.result["bounds"]
    assert (run.folder.task.low, run.folder.task.high, run.folder.task.bounds) == (low, high, "released")
    numbers = run.folder.read_raw_graph(people).y
    assert np.quantile(numbers, 0.1) > low
    assert np.quantile(numbers, 0.9) < high < 400_000
    # A function of the released histogram alone, which the file has too.
    values = json.loads(run.folder.scaling_path.read_text())
    histograms = NoisyHistograms.load(run.folder.scaling_path, plan=plan.fingerprint())
    assert values["target"]["bounds"] == [low, high] == list(histograms.bounds)
    assert [low, high] == list(find_bounds(histograms.counts[1], noise_std=histograms.noise_std))
    assert np.abs(run.folder.read_graph(people).y).max() <= 1
    predicted = run.predict_table(people).probabilities
    # As the bounds are in the type of the predictions.
    assert ((predicted >= np.float32(low)) & (predicted <= np.float32(high))).all()


def test_a_changed_label_costs_what_it_moves_the_histogram_by(people: Path) -> None:
    common: dict[str, Any] = {"label": "income", "epsilon": 4.0, "numbers": "as-is"}
    paid, declared = (hg.prepare(people, **common, bounds=each).plan for each in ("private", (0, 50_000)))
    assert (paid.num_scaled, declared.num_scaled) == (1, 0)
    [charge] = [charge for charge in paid.charges if charge.name == SCALING]
    shifts = [charge.event(each).largest_shift for each in ONE_LABEL if charge.event(each)]
    assert max(shifts) == pytest.approx(math.sqrt(2) / paid.scaling_noise)
    # With the target among the columns the figure is larger than without.
    assert paid.epsilon_label > replace(paid, has_target=False).epsilon_label
    assert type(paid).from_json(paid.to_json()) == paid
    assert "has_target" not in declared.to_json()


@pytest.mark.parametrize("method", [{}, {"model": "mlp"}, {"method": "trees", "max_readers": 2}])
def test_arrays_pay_for_the_bounds_alone(method: dict[str, Any], tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 3)).astype(np.float32)
    np.savez(tmp_path / "data.npz", x=x, y=100 + 20 * x[:, 0], edge_index=rng.integers(0, 400, (2, 900)))
    run = hg.train(tmp_path / "data.npz", **QUICK, **method)
    assert run.plan.num_scaled == 1
    assert run.plan.charges[0].row_move == 1.0
    assert run.epsilon <= 4.0
    low, high = run.result["bounds"]
    assert 0 < low < 100 < high < 1_000
    shutil.copytree(run.folder.path / "release", tmp_path / "release")
    released = hg.Run.load(tmp_path / "release", device="cpu")
    assert released.folder.task == run.folder.task
    shown = released.predict_proba(tmp_path / "data.npz")
    assert (shown == run.predict_proba(tmp_path / "data.npz")).all()


def test_new_nodes_and_the_release_alone_have_the_bounds(run: hg.Run, people: Path, tmp_path: Path) -> None:
    shutil.copytree(run.folder.path / "release", tmp_path / "release")
    released = hg.Run.load(tmp_path / "release", device="cpu")
    about = json.loads((tmp_path / "release" / "release.json").read_text())
    assert about["result"]["bounds"] == run.result["bounds"]
    new = np.array([[30.0], [60.0]], np.float32)
    told, again = (each.predict_new(new, [["p1"], ["p4", "p9"]])[0] for each in (run, released))
    assert (told == again).all()
    low, high = run.result["bounds"]
    assert ((told >= low) & (told <= high)).all()
    assert (released.predict_proba(people) == run.predict_proba(people)).all()


def test_a_graph_in_memory_keeps_numbers_as_they_are(run: hg.Run, people: Path) -> None:
    raw = hg.datasets.load_graph(people, columns={"label": "income"}, task=PRIVATE)
    assert raw.task == PRIVATE
    assert raw.y.max() > 1_000
    assert (run.predict_proba(raw) == run.predict_proba(people)).all()
    assert run.evaluate(raw).figures == run.evaluate(people).figures


class StoppedError(Exception):
    """Ends a run at once."""


@pytest.mark.parametrize("is_released", [False, True])
def test_a_run_that_was_killed_before_its_board_goes_on(
    people: Path, tmp_path: Path, is_released: bool
) -> None:
    """Killed between the charge and the histograms, and between the histograms and the board."""

    def stop(*others: Any) -> None:
        raise StoppedError

    with pytest.raises(StoppedError):
        hg.train(people, label="income", out=tmp_path / "run", observer=stop, **QUICK)
    folder = tmp_path / "run"
    released = (folder / "scaling.json").read_bytes()
    entries = [json.loads(line) for line in (folder / "ledger.jsonl").read_text().splitlines()]
    checksum, lines = "", []
    for entry in entries[: 2 + is_released]:
        entry.pop("sum")
        line, checksum = write_line(entry, after=checksum)
        lines.append(line)
    (folder / "ledger.jsonl").write_bytes(b"".join(lines))
    gone = ["board-1.safetensors", "checkpoint.safetensors", "metrics.jsonl"]
    for name in gone if is_released else ["scaling.json", *gone]:
        (folder / name).unlink(missing_ok=True)
    run = hg.resume(folder, people, device="cpu")
    assert run.result["guarantee"] == "holds"
    assert run.result["bounds"] == [run.folder.task.low, run.folder.task.high]
    if is_released:
        assert (folder / "scaling.json").read_bytes() == released
    names = [
        json.loads(line).get("charge", {}).get("name")
        for line in run.folder.ledger_path.read_text().splitlines()
    ]
    assert names.count(SCALING) == 1


def test_bounds_that_were_released_and_are_missing_end_the_run(run: hg.Run, tmp_path: Path) -> None:
    shutil.copytree(run.folder.path, tmp_path / "run")
    (tmp_path / "run" / "scaling.json").unlink()
    with pytest.raises(RunError, match=r"scaling\.json is missing"):
        hg.Run.load(tmp_path / "run", device="cpu")


def test_an_empty_histogram_gives_wide_public_bounds_and_no_error(tmp_path: Path) -> None:
    wide = find_bounds(np.zeros(NUM_BINS, np.int64), noise_std=3.0)
    assert wide == find_bounds(np.full(NUM_BINS, -4), noise_std=1.0)
    assert (-wide[0], wide[1]) == pytest.approx((math.sinh(25), math.sinh(25)), rel=1e-5)
    graph = Graph.from_arrays(
        edge_index=[[0, 1, 2], [1, 2, 0]],
        x=np.ones((3, 1), np.float32),
        y=np.full(3, np.nan, np.float32),
        train_idx=[0, 1],
        val_idx=[2],
        task=PRIVATE,
    )
    run = hg.train(graph, epsilon=4.0, steps=2, hidden=2, device="cpu")
    assert run.result["bounds"] == list(wide)
    assert np.isfinite(run.predict_proba(graph)).all()


@pytest.mark.parametrize("noise", [0.0, 2.0, 5.0])
@pytest.mark.parametrize("count", [1_000, 20_000])
def test_bounds_hold_nearly_all_numbers_and_little_else(count: int, noise: float) -> None:
    rng = np.random.default_rng(count)
    for numbers in (rng.integers(18, 80, count), rng.lognormal(7, 1.5, count), rng.normal(0, 5, count)):
        exact = np.bincount(locate(np.asarray(numbers, float)), minlength=NUM_BINS)
        noisy = exact + np.rint(noise * rng.normal(size=NUM_BINS)).astype(np.int64)
        low, high = find_bounds(noisy, noise_std=noise)
        assert ((numbers >= low) & (numbers <= high)).mean() > 0.8
        usual = np.ptp(np.arcsinh(np.quantile(numbers, [0.01, 0.99])))
        assert math.asinh(high) - math.asinh(low) < usual + 6.4


def test_what_is_planned_does_not_depend_on_rows(people: Path, tmp_path: Path) -> None:
    other = write_people(tmp_path / "other", empty=1)
    plans = [hg.prepare(each, label="income", epsilon=4.0, bounds="private") for each in (people, other)]
    assert plans[0].plan == plans[1].plan
    assert plans[0].config == plans[1].config
    assert plans[0].graph.task == plans[1].graph.task == PRIVATE


def test_what_cannot_be_is_refused_in_one_line(people: Path) -> None:
    with pytest.raises(InputError, match=r"bounds='private' with accountant='paper': it prices steps alone"):
        hg.prepare(people, label="income", epsilon=4.0, bounds="private", accountant="paper")
    with pytest.raises(InputError, match="bounds=private with task='classes': bounds belong to"):
        hg.prepare(people, label="income", epsilon=4.0, bounds="private", task="classes")
    with pytest.raises(InputError, match="bounds=wide: task='number' needs"):
        hg.prepare(people, label="income", epsilon=4.0, bounds="wide")
    scaled = hg.datasets.load_graph(people, columns={"label": "income"}, task=Number(low=0, high=1))
    with pytest.raises(InputError, match="bounds='private': the graph is about a number from 0 to 1"):
        hg.prepare(scaled, epsilon=4.0, bounds="private")


def test_a_folder_that_was_read_again_has_the_bounds(run: hg.Run) -> None:
    folder = RunFolder.open(run.folder.path)
    assert folder.asked == PRIVATE
    assert folder.task == run.folder.task


def test_an_estimator_pays_for_its_bounds_too() -> None:
    rng = np.random.default_rng(0)
    x, edges = rng.normal(size=(300, 3)).astype(np.float32), rng.integers(0, 300, (2, 700))
    model = hg.NodeRegressor(epsilon=4.0, bounds="private", steps=3, device="cpu").fit(
        x, 50 + 5 * x[:, 0], edges
    )
    low, high = model.run_.result["bounds"]
    predicted = model.predict(x, graph=edges)
    assert 0 < low < 50 < high < 1_000
    assert ((predicted > low - 0.01) & (predicted < high + 0.01)).all()
