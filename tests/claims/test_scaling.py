"""Promise: scaling of numbers is paid for, released once, and serves new rows as it served training rows."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

import hushgraph as hg
from contour_price import Release, divergences
from effort import choose
from hushgraph.accounting.accountants import gaussian_epsilon
from hushgraph.billboard.combined import combine_boards
from hushgraph.billboard.new_rows import read_rows
from hushgraph.billboard.scaled import add_free_inputs, scale_readings
from hushgraph.errors import InputError, RunError
from hushgraph.graph.columns import Columns
from hushgraph.graph.graph import Graph
from hushgraph.inference.new_nodes import score_rows
from hushgraph.noise import normal
from hushgraph.noise.normal import seeded_keys
from hushgraph.privacy.changes import rows_emptied
from hushgraph.privacy.charges import SCALING, ScalingCharge, epsilon
from hushgraph.privacy.ledger import Ledger
from hushgraph.privacy.lines import write_line
from hushgraph.privacy.plans import BillboardPlan, PrivacyPlan, RowPlan, TreePlan
from hushgraph.runs.folder import RunFolder
from hushgraph.scaling.histograms import NoisyHistograms, count_numbers, release_histograms

QUICK: dict[str, Any] = {"epsilon": 4.0, "steps": 4, "hidden": 4, "device": "cpu", "classes": ["no", "yes"]}
PEOPLE = 90
EXTREMES = (0.0, 1e-30, -1e-30, 3e38, -3e38, 1.0, -7.5, 40_000.0)


def write_people(folder: Path, count: int = PEOPLE, *, row: int | None = None, cells: str = "") -> Path:
    """Tables with an income, an age and a balance of everybody; `row` has these cells instead."""
    folder.mkdir()
    rng = np.random.default_rng(4)
    lines = ["id,income,age,balance,city,label,split"]
    for n in range(count):
        income, age, balance = rng.lognormal(10, 1), rng.integers(18, 80), rng.normal(0, 5_000)
        about = f"{income:.2f},{age},{balance:.2f},{('Oslo', 'Bergen')[n % 2]},{('no', 'yes')[n % 3 == 0]}"
        part = ("train", "train", "val", "test")[n % 4]
        lines.append(f"p{n},{cells if n == row else about},{part}")
    edges = [f"p{n},p{(n + step) % count}" for n in range(count) if n != row for step in (1, 2)]
    (folder / "nodes.csv").write_text("\n".join(lines) + "\n")
    (folder / "edges.csv").write_text("source,target\n" + "\n".join(edges) + "\n")
    return folder


def read_people(folder: Path, **columns: Any) -> Graph:
    given = {"categorical": {"city": ["Oslo", "Bergen"]}, "classes": ["no", "yes"]} | columns
    return hg.datasets.load_graph(folder, columns=given)


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_people(tmp_path_factory.mktemp("data") / "people")


@pytest.fixture(scope="module")
def run(people: Path, tmp_path_factory: pytest.TempPathFactory) -> hg.Run:
    out = tmp_path_factory.mktemp("runs") / "run"
    return hg.train(people, out=out, categorical={"city": ["Oslo", "Bergen"]}, **QUICK)


def draw_table(rng: np.random.Generator) -> Graph:
    """A few rows with numbers of all sizes, categories, filled cells and flags, and rows without anything."""
    rows, numbers = int(rng.integers(2, 7)), int(rng.integers(1, 5))
    x = rng.choice([*EXTREMES, *rng.normal(0, 10, 4)], (rows, numbers)).astype(np.float32)
    filled = rng.random((rows, numbers)) < 0.2
    x[filled] = 3.0
    category, flag = rng.integers(0, 2, (rows, 1)), filled[:, :1]
    x = np.concatenate([x, category, flag], axis=1).astype(np.float32)
    x[rng.random(rows) < 0.15] = 0
    names = [f"n{k}" for k in range(numbers)]
    columns = Columns(features=names, categorical={"c": ["a"]}, fill=3.0, indicators=["n0"])
    parts = np.split(rng.permutation(rows), np.sort(rng.integers(1, rows + 1, 2)))
    return Graph.from_arrays(
        edge_index=rng.integers(0, rows, (2, 6)),
        x=x,
        y=rng.integers(-1, 2, rows),
        num_classes=2,
        **dict(zip(("train_idx", "val_idx", "test_idx"), parts, strict=True)),
        columns=columns,
        filled=filled,
    )


def distance(graph: Graph, other: Graph, names: Any) -> float:
    return float(np.linalg.norm(count_numbers(graph, names) - count_numbers(other, names)))


def test_an_emptied_row_moves_the_histograms_by_what_is_charged() -> None:
    rng = np.random.default_rng(11)
    most = 0.0
    for _ in range(choose(300, 2000)):
        graph = draw_table(rng)
        assert graph.columns is not None
        names = graph.columns.features
        charge = ScalingCharge(num_columns=len(names), noise_std=1.0)
        for v in range(graph.num_nodes):
            kind = "training" if v in graph.train_idx else "other"
            (change,) = [each for each in rows_emptied() if each.kinds == (kind,)]
            event = charge.event(change)
            claimed = 0.0 if event is None else event.largest_shift
            moved = distance(graph, graph.with_row_emptied(v, "sender"), names)
            assert moved <= claimed + 1e-12
            most = max(most, moved / claimed if claimed else 0.0)
        first, second = rng.integers(0, graph.num_nodes, 2)
        both = graph.with_row_emptied(int(first), "sender").with_row_emptied(int(second), "sender")
        assert distance(graph, both, names) <= 2 * math.sqrt(len(names)) + 1e-12
        # Labels and edges are not looked at.
        other = replace(graph, y=np.full_like(graph.y, -1)).symmetrized()
        assert distance(graph, other, names) == 0
    assert most == pytest.approx(1.0)


@pytest.mark.parametrize("row", [0, 1, 2, 3])
def test_a_row_without_cells_is_an_emptied_row(tmp_path: Path, row: int) -> None:
    """Also where empty cells are filled with a constant and have a flag: they are counted nowhere."""
    rules: dict[str, Any] = {"fill": 50.0, "indicators": ["income", "age"]}
    full = read_people(write_people(tmp_path / "full"), **rules)
    empty = read_people(write_people(tmp_path / "empty", row=row, cells=",,,,"), **rules)
    names = ["income", "age", "balance"]
    counted = count_numbers(empty, names)
    assert (counted == count_numbers(full.with_row_emptied(row, "sender"), names)).all()
    assert distance(full, empty, names) == pytest.approx(math.sqrt(3) if row in (0, 1) else 0.0)


@pytest.mark.parametrize(("columns", "claim", "tail"), [(1, 1.0, 0.05), (4, 1.0, 0.05), (9, 4.0, 0.003)])
def test_an_attack_comes_close_to_the_claim_and_not_above(columns: int, claim: float, tail: float) -> None:
    """12,000 releases of each of two worlds, told apart by the bins of the row that one of them lacks."""
    delta = 0.02
    charge = ScalingCharge(num_columns=columns).with_shift(_find_shift(claim, delta))
    assert epsilon([charge], rows_emptied(), delta=delta) == pytest.approx(claim, rel=1e-6)
    names = [f"n{k}" for k in range(columns)]
    graph = Graph.from_arrays(
        edge_index=np.empty((2, 0), np.int64),
        x=np.full((5, columns), 20.0, np.float32),
        y=np.zeros(5, np.int64),
        num_classes=2,
        train_idx=range(5),
        columns=Columns(features=names),
    )
    place = count_numbers(graph, names)[0].argmax()
    scores = []
    for world, name in ((graph, "with"), (graph.with_row_emptied(2, "sender"), "without")):
        draws = partial(normal.draw, keys=seeded_keys(f"{name} {columns} {claim}"))
        # Many releases one below the other; every bin has draws of its own.
        tiled = np.tile(count_numbers(world, names), (1_000, 1))
        parts = [
            release_histograms(tiled, names=names * 1_000, noise_std=charge.noise_std, draws=draws).counts
            for _ in range(12)
        ]
        scores.append(np.concatenate(parts)[:, place].reshape(-1, columns).sum(axis=1))
    far = -stats.norm.ppf(tail) * charge.noise_std * math.sqrt(columns)
    assert 0.8 * claim <= _estimate(*scores, far=far, delta=delta) <= claim


def _find_shift(claim: float, delta: float) -> float:
    low, high = 0.0, 20.0
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if gaussian_epsilon(middle, delta) <= claim else (low, middle)
    return low


def _estimate(present: np.ndarray, absent: np.ndarray, *, far: float, delta: float) -> float:
    """log((P(E) - delta) / Q(E)) of what is farther than `far`: the mean over both directions."""
    low, high = absent.mean() + far, present.mean() - far
    sides = [
        ((present >= low).mean(), (absent >= low).mean()),
        ((absent <= high).mean(), (present <= high).mean()),
    ]
    return float(np.mean([math.log((p - delta) / q) for p, q in sides]))


def price_by_hand(plan: PrivacyPlan) -> list[Release]:
    """Scaling moves by the root of the number of columns, a board by 1, a step by one example or n trees."""
    releases = [Release(upper=1, lower=0, rate=1.0, sigma=plan.scaling_noise / math.sqrt(plan.num_scaled))]
    if isinstance(plan, BillboardPlan):
        releases += [Release(upper=1, lower=0, rate=1.0, sigma=noise) for noise in plan.board_noise]
    n = 1 + plan.max_readers if plan.num_layers else 1
    rate = plan.batch_size / plan.num_train_nodes
    steps = Release(upper=n, lower=n - 1, rate=rate, sigma=plan.sigma_over_clip, count=plan.steps)
    return [*releases, steps]


@pytest.mark.parametrize("batch", [100, 2_000])
@pytest.mark.parametrize(
    "make", [partial(BillboardPlan, num_classes=3), RowPlan, partial(TreePlan, num_layers=1, max_readers=3)]
)
def test_the_price_is_that_of_a_second_method(make: Callable[..., PrivacyPlan], batch: int) -> None:
    plan = make(num_train_nodes=2_000, batch_size=batch, steps=60, num_scaled=6).calibrated(epsilon=2.0)
    here, below = divergences(price_by_hand(plan), [plan.epsilon, plan.epsilon / 1.001])
    assert here <= plan.delta * (1 + 1e-6)
    assert below > plan.delta
    # Noise of half the size would not do.
    assert replace(plan, scaling_noise=plan.scaling_noise / 2).epsilon > 2.02


def test_scaling_is_charged_and_released_first(run: hg.Run) -> None:
    assert run.plan.num_scaled == 3
    assert run.epsilon <= 4.0
    assert [charge.name for charge in run.plan.charges][:2] == ["scaling", "board-1"]
    lines = [json.loads(line) for line in run.folder.ledger_path.read_text().splitlines()[1:3]]
    histograms = NoisyHistograms.load(run.folder.scaling_path, plan=run.plan.fingerprint())
    assert lines[0]["charge"] == run.plan.scaling_charge.to_json()
    assert (lines[1]["released"], lines[1]["digest"]) == (SCALING, histograms.digest)
    assert histograms.noise_std >= run.plan.scaling_noise
    assert histograms.names == ("income", "age", "balance")


def test_new_rows_are_scaled_bit_for_bit_as_training_rows(run: hg.Run, people: Path) -> None:
    raw, scaled = run.folder.read_raw_graph(people), run.folder.read_graph(people)
    assert not (raw.x == scaled.x).all()
    assert run.folder.scale_features(raw.x[5:6]).tobytes() == scaled.x[5:6].tobytes()
    assert (scaled.x[:, 3:] == raw.x[:, 3:]).all()
    assert np.abs(scaled.x).max() <= 4
    # By hand, from what the file says.
    column = json.loads(run.folder.scaling_path.read_text())["columns"][1]
    age = (np.arcsinh(float(raw.x[5, 1])) - column["centre"]) / column["spread"]
    assert scaled.x[5, 1] == pytest.approx(np.clip(age, -4, 4), rel=1e-6)


def test_new_nodes_are_given_raw_numbers(run: hg.Run, people: Path, tmp_path: Path) -> None:
    raw = run.folder.read_raw_graph(people)
    by_array, _ = run.predict_new(raw.x[:2], [["p1", "p4"], ["p9"]])
    new = tmp_path / "new"
    new.mkdir()
    header, *rows = (people / "nodes.csv").read_text().splitlines()
    renamed = [row.replace(f"p{n},", f"q{n},", 1) for n, row in enumerate(rows[:2])]
    (new / "nodes.csv").write_text("\n".join([header, *renamed]) + "\n")
    (new / "edges.csv").write_text("source,target\nq0,p1\nq0,p4\nq1,p9\n")
    by_table = run.predict_table(new, new=True).probabilities
    np.savez(tmp_path / "new.npz", x=raw.x[:2], places_indptr=[0, 2, 3], places=["p1", "p4", "p9"])
    assert (by_array == by_table).all()
    assert (by_array == run.predict_table(tmp_path / "new.npz", new=True).probabilities).all()
    # By hand: what the model says of the rows as training saw them, with these readings.
    config, task = run.config, run.folder.task
    board, _ = combine_boards(run.folder.load_boards(), centred=task.is_centred)
    places = board.places_of(np.array(["p1", "p4", "p9"]))
    seen = read_rows(board, np.array([0, 2, 3]), places, damped=config.damped)
    scaling: dict[str, Any] = {"scale": config.reading_scale, "radius": config.reading_radius}
    readings = add_free_inputs(
        scale_readings(seen.values, board, **scaling),
        board,
        np.array([2, 1]),
        list_size=config.list_size,
        own_places=np.array([-1, -1]),
        **scaling,
    )
    scaled = run.folder.read_graph(people).x[:2]
    scores = score_rows(run.model, scaled, readings, feature_norm=config.feature_norm)
    assert (by_array == task.show(scores).numpy()).all()


def test_the_release_alone_predicts_the_same(run: hg.Run, people: Path, tmp_path: Path) -> None:
    shutil.copytree(run.folder.path / "release", tmp_path / "release")
    released = hg.Run.load(tmp_path / "release", device="cpu")
    assert (tmp_path / "release" / "scaling.json").read_bytes() == run.folder.scaling_path.read_bytes()
    assert (released.predict_proba(people) == run.predict_proba(people)).all()
    raw = run.folder.read_raw_graph(people).x[:1]
    assert (released.predict_new(raw, [["p1"]])[0] == run.predict_new(raw, [["p1"]])[0]).all()
    (tmp_path / "release" / "scaling.json").unlink()
    with pytest.raises(RunError, match=r"scaling\.json is missing"):
        hg.Run.load(tmp_path / "release", device="cpu").predict_proba(people)


class StoppedError(Exception):
    """Ends a run at once."""


@pytest.fixture
def stopped(people: Path, tmp_path: Path) -> Path:
    """A run that was stopped after its first step."""

    def stop(*others: Any) -> None:
        raise StoppedError

    with pytest.raises(StoppedError):
        hg.train(
            people, out=tmp_path / "stopped", observer=stop, categorical={"city": ["Oslo", "Bergen"]}, **QUICK
        )
    return tmp_path / "stopped"


def test_scaling_is_released_once(stopped: Path, people: Path) -> None:
    path = stopped / "scaling.json"
    content = path.read_bytes()
    path.rename(stopped.parent / "kept.json")
    for _ in range(3):
        with pytest.raises(RunError, match="scaling was released and is missing"):
            hg.resume(stopped, people, device="cpu")
        assert not path.exists()
    plan = RunFolder.open(stopped).plan.fingerprint()
    histograms = NoisyHistograms.load(stopped.parent / "kept.json", plan=plan)
    path.write_text(json.dumps(replace(histograms, counts=histograms.counts + 1).to_json()))
    with pytest.raises(RunError, match="is not the one that this run released"):
        hg.resume(stopped, people, device="cpu")
    path.write_bytes(content)
    run = hg.resume(stopped, people, device="cpu")
    assert run.result["guarantee"] == "holds"
    assert path.read_bytes() == content
    lines = run.folder.ledger_path.read_text().splitlines()
    names = [json.loads(line).get("charge", {}).get("name") for line in lines]
    assert names.count(SCALING) == 1


def test_a_charge_without_a_release_pays_for_it(stopped: Path, people: Path) -> None:
    """As if the run had been killed between the charge and the count."""
    entries = [json.loads(line) for line in (stopped / "ledger.jsonl").read_text().splitlines()]
    checksum, lines = "", []
    for entry in entries[:2]:
        entry.pop("sum")
        line, checksum = write_line(entry, after=checksum)
        lines.append(line)
    (stopped / "ledger.jsonl").write_bytes(b"".join(lines))
    for name in ("scaling.json", "board-1.safetensors", "checkpoint.safetensors", "metrics.jsonl"):
        (stopped / name).unlink(missing_ok=True)
    run = hg.resume(stopped, people, device="cpu")
    ledger = Ledger.open(run.folder.ledger_path, plan=run.plan, read_only=True)
    assert ledger.count_charged(run.plan.scaling_charge) == 1
    assert (stopped / "scaling.json").exists()


def test_a_finished_run_with_another_file_is_refused(run: hg.Run, people: Path, tmp_path: Path) -> None:
    shutil.copytree(run.folder.path, tmp_path / "run")
    other = hg.train(people, out=tmp_path / "other", categorical={"city": ["Oslo", "Bergen"]}, **QUICK)
    shutil.copyfile(other.folder.scaling_path, tmp_path / "run" / "scaling.json")
    with pytest.raises(RunError, match="scaling is not the one that this run released"):
        hg.Run.load(tmp_path / "run", device="cpu")


@pytest.mark.parametrize("method", [{}, {"method": "trees", "max_readers": 2}, {"model": "mlp"}])
def test_every_method_is_scaled_and_stays_within_epsilon(people: Path, method: dict[str, Any]) -> None:
    run = hg.train(people, **QUICK | method, ignore=["city"])
    assert run.plan.charges[0].name == SCALING
    assert run.epsilon <= 4.0
    assert run.result["guarantee"] == "holds"
    assert run.predict_proba(people).shape == (PEOPLE, 2)
    assert np.isfinite(run.predict_proba(people)).all()


def test_without_privacy_histograms_are_exact(people: Path) -> None:
    settings = {name: value for name, value in QUICK.items() if name != "epsilon"}
    run = hg.train(people, private=False, ignore=["city"], **settings)
    histograms = NoisyHistograms.load(run.folder.scaling_path, plan=run.plan.fingerprint())
    raw = run.folder.read_raw_graph(people)
    assert (histograms.counts == count_numbers(raw, histograms.names)).all()
    assert histograms.noise_std == 0


def test_a_seed_gives_the_same_noise_and_no_guarantee(people: Path) -> None:
    first, second = (hg.train(people, seed=3, ignore=["city"], **QUICK) for _ in range(2))
    assert first.folder.scaling_path.read_bytes() == second.folder.scaling_path.read_bytes()
    assert (first.predict_proba(people) == second.predict_proba(people)).all()
    assert first.result["guarantee"] == "none"


def test_declared_constants_are_free(people: Path) -> None:
    scale = {"income": {"centre": 30_000, "spread": 1, "log": True}, "age": {"centre": 45, "spread": 15}}
    common: dict[str, Any] = {**QUICK, "ignore": ["city"], "scale": scale}
    some = hg.train(people, **common)
    assert some.plan.num_scaled == 1
    assert some.folder.paid_columns == ("balance",)
    free = hg.train(people, numbers="declared", **common)
    assert free.plan.num_scaled == 0
    assert not free.folder.scaling_path.exists()
    raw, scaled = free.folder.read_raw_graph(people).x, free.folder.read_graph(people).x
    assert scaled[:, 1] == pytest.approx((raw[:, 1] - 45) / 15, rel=1e-6)
    assert scaled[:, 0] == pytest.approx(np.arcsinh(raw[:, 0]) - math.asinh(30_000), abs=1e-5)
    assert (scaled[:, 2] == raw[:, 2]).all()
    plain = hg.train(people, numbers="as-is", **common)
    assert (plain.folder.read_graph(people).x == raw).all()
    assert plain.plan == free.plan


def test_what_is_decided_does_not_depend_on_rows(tmp_path: Path) -> None:
    """The plan, and which columns are scaled, follow from roles: also where a column has no number at all."""
    full, poor = (
        hg.prepare(
            write_people(tmp_path / name, row=row, cells="0,0,0,,"),
            epsilon=4.0,
            ignore=["city"],
            classes=["no", "yes"],
        )
        for name, row in (("full", None), ("poor", 1))
    )
    assert full.plan == poor.plan
    assert full.config == poor.config


def test_data_without_columns_stays_as_it_is() -> None:
    data = hg.datasets.synthetic(num_nodes=120, num_classes=3, seed=1)
    _, plan, config = hg.prepare(data, epsilon=4.0)
    assert (plan.num_scaled, config.numbers) == (0, "as-is")
    for numbers in ("private", "declared"):
        with pytest.raises(InputError, match=f"numbers='{numbers}': it is for tables"):
            hg.prepare(data, epsilon=4.0, numbers=numbers)
    with pytest.raises(InputError, match="numbers='raw': expected one of private, declared, as-is"):
        hg.prepare(data, epsilon=4.0, numbers="raw")


def test_the_paper_accountant_has_no_price_for_scaling(people: Path) -> None:
    settings: dict[str, Any] = {"epsilon": 4.0, "accountant": "paper", "ignore": ["city"]}
    settings |= {"classes": ["no", "yes"]}
    assert hg.prepare(people, **settings).config.numbers == "declared"
    with pytest.raises(InputError, match="numbers='private' with accountant='paper'"):
        hg.prepare(people, numbers="private", **settings)


def test_a_plan_for_other_columns_is_refused(people: Path, tmp_path: Path) -> None:
    from hushgraph.training.running import run_plan

    graph, plan, config = hg.prepare(people, epsilon=4.0, steps=2, ignore=["city"], classes=["no", "yes"])
    with pytest.raises(RunError, match="its plan scales 2 columns, its data has 3 to scale"):
        run_plan(tmp_path / "run", graph, replace(plan, num_scaled=2), config)


@pytest.mark.parametrize(
    ("scale", "words"),
    [
        ({"age": {"centre": 1}}, "scale age=.*: expected a centre, a spread above 0"),
        ({"age": {"centre": 1, "spread": 0}}, "expected a centre, a spread above 0"),
        ({"age": {"centre": "x", "spread": 1}}, "expected a centre, a spread above 0"),
        ({"age": {"centre": math.inf, "spread": 1}}, "expected a centre, a spread above 0"),
        ({"age": {"centre": 1, "spread": 1, "log": 2}}, "expected a centre, a spread above 0"),
        ({"age": {"centre": 1, "spread": 1, "step": 2}}, "expected a centre, a spread above 0"),
        ({"age": 4}, "expected a centre, a spread above 0"),
        (["age"], "expected one entry per column"),
        ({"city": {"centre": 1, "spread": 1}}, "it is given as scale, but is not a column of numbers"),
        ({"nobody": {"centre": 1, "spread": 1}}, "no column 'nobody', given as scale"),
    ],
)
def test_bad_constants_are_refused_in_one_line(people: Path, scale: Any, words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        hg.prepare(people, epsilon=4.0, ignore=["city"], scale=scale)
    assert "\n" not in str(caught.value)


def test_the_report_says_what_was_scaled_and_how(run: hg.Run, people: Path, tmp_path: Path) -> None:
    from hushgraph.report.attributes import describe_attributes

    run.report(tmp_path / "report.html")
    facts = json.loads((tmp_path / "report.json").read_text())
    assert facts["charges"][0]["name"] == SCALING
    assert facts["charges"][0]["share"] == pytest.approx(0.05, rel=1e-3)
    assert any("noisy histograms" in ground for ground in facts["rests_on"])
    [paid] = [each for each in facts["attributes"]["columns"] if "age" in each["columns"]]
    assert paid["columns"] == ["income", "age", "balance"]
    assert "noisy histogram" in paid["treatment"]
    folder = RunFolder.open(run.folder.path)
    declared = replace(folder.columns, scale={"age": {"centre": 4, "spread": 1}})
    [one] = [
        each
        for each in describe_attributes(replace(folder, columns=declared))["columns"]
        if each["columns"] == ["age"]
    ]
    assert "declared constants" in one["treatment"]


def test_an_audit_of_a_run_on_tables_attacks_boards_and_steps(run: hg.Run) -> None:
    from hushgraph.audit.source import settings_of_run

    plan = settings_of_run(run.folder.path).plan
    assert [charge.name for charge in plan.charges] == [charge.name for charge in run.plan.charges][1:]
    assert plan.sigma_over_clip == run.plan.sigma_over_clip
    # Evaluated rows pay for figures as before; what training rows pay is less by the histograms.
    assert plan.with_evaluation(0).epsilon < run.plan.epsilon


def test_the_note_about_magnitudes_is_for_data_that_stays_as_it_is(people: Path) -> None:
    from hushgraph.training.cautions import list_notes

    graph = read_people(people)
    notes = {
        numbers: list_notes(graph, symmetrize=True, directed=False, numbers=numbers)
        for numbers in ("private", "declared", "as-is")
    }
    told = {numbers: any("differ by a factor" in note for note in each) for numbers, each in notes.items()}
    assert told == {"private": False, "declared": True, "as-is": True}
