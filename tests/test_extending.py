"""A task, a mechanism, a clipping rule and an engine from outside the package: trained, audited and reported.

Each is one file in `docs/examples/extending`, which `docs/extending.md` shows as it is.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import math
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

import hushgraph as hg
from hushgraph.accounting.accountants import gaussian_delta, gaussian_epsilon
from hushgraph.audit.checks import Check, check_data, check_runs
from hushgraph.audit.result import Attack
from hushgraph.audit.runs import plant_nothing
from hushgraph.errors import PlanError
from hushgraph.gradients.clip import Clipping
from hushgraph.gradients.rows import RowSums
from hushgraph.graph.graph import Graph
from hushgraph.privacy import clipping
from hushgraph.privacy.changes import ONE_EDGE, ONE_LABEL, TRAINING_ROW, row_emptied
from hushgraph.privacy.charges import epsilon
from hushgraph.privacy.clipping import register_clipping
from hushgraph.privacy.ledger import Ledger
from hushgraph.privacy.plans import BillboardPlan
from hushgraph.runs.consistency import BOARD_FILES
from hushgraph.runs.folder import RunFolder
from hushgraph.tasks.classes import Classes
from hushgraph.training.memory import Memory
from hushgraph.training.parts import Parts
from hushgraph.training.running import run_plan

ROOT = Path(__file__).parent.parent
EXAMPLES = sorted((ROOT / "docs" / "examples" / "extending").glob("*.py"))


def load(name: str) -> ModuleType:
    """Import an example by its file, once."""
    [path] = [each for each in EXAMPLES if each.stem == name]
    spec = importlib.util.spec_from_file_location(f"extending_{name}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def hour() -> ModuleType:
    return load("hour")


@pytest.fixture(scope="module")
def count() -> ModuleType:
    return load("count")


@pytest.fixture(scope="module")
def smooth() -> ModuleType:
    return load("smooth")


@pytest.fixture(scope="module")
def engine() -> ModuleType:
    return load("sqlite_engine")


@pytest.fixture(scope="module")
def graph() -> Graph:
    return hg.datasets.synthetic(num_nodes=240, num_classes=3, num_features=6, seed=2)


def hours_graph(task: Any) -> Graph:
    """Two shifts: features tell whose it is, neighbours share it, a few hours are missing."""
    base = hg.datasets.synthetic(num_nodes=240, num_classes=2, num_features=6, seed=3)
    rng = np.random.default_rng(0)
    hours = (np.where(base.y > 0, 22.0, 9.0) + rng.normal(size=base.num_nodes)) % 24
    hours[base.train_idx[:3]] = np.nan
    splits = {name: getattr(base, name) for name in ("train_idx", "val_idx", "test_idx")}
    edges = np.stack([np.concatenate(ends) for ends in zip(*base.edge_chunks(), strict=True)])
    return Graph.from_arrays(edge_index=edges, x=base.x, y=hours.astype(np.float32), task=task, **splits)


def list_failures(checks: tuple[Check, ...]) -> list[str]:
    return [f"{check.name}: {check.failure}" for check in checks if check.failure]


def check_reported(run: hg.Run, folder: Path, *, says: str = "") -> None:
    run.report(folder / "report.html")
    page = (folder / "report.html").read_text()
    assert says in page
    told = json.loads((folder / "report.json").read_text())["guarantee"]["epsilon"]
    assert float(told) == run.epsilon


def test_the_page_shows_the_files() -> None:
    page = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
    assert len(EXAMPLES) == 4
    for path in EXAMPLES:
        shown = f"```python\n{path.read_text(encoding='utf-8')}```\n"
        assert shown in page, f"extending.md: it does not show {path.name} as it is"


@pytest.mark.parametrize("method", ["billboard", "trees"])
def test_a_task_from_outside(hour: ModuleType, method: str, tmp_path: Path) -> None:
    graph = hours_graph(hour.Hour())
    how: dict[str, Any] = {"max_readers": 2} if method == "trees" else {}
    # Noise decides less than what is learned: trees read few neighbours, and pay for them at every step.
    epsilon = {"billboard": 50.0, "trees": 400.0}[method]
    given: dict[str, Any] = {"epsilon": epsilon, "steps": 40, "method": method, "hidden": 8, **how}
    run = hg.train(graph, out=tmp_path / "run", **given)
    assert run.result["guarantee"] == "holds"
    assert run.result["test_closeness"] > {"billboard": 0.5, "trees": 0.0}[method]
    assert hg.Run.load(tmp_path / "run").folder.task == graph.task
    check_reported(run, tmp_path)
    if method == "billboard":
        # Midnight is near both 23 and 1.
        assert hour.Hour().predict(torch.tensor([[1.0, 0.0], [0.0, 1.0]])).tolist() == pytest.approx([0, 6])
        _, plan, _ = hg.prepare(graph, **given | {"epsilon": 4.0, "steps": 4})
        assert list_failures(check_data(graph, plan)) == []


def test_a_mechanism_from_outside(count: ModuleType, graph: Graph, tmp_path: Path) -> None:
    run = count.train_with_count(graph, tmp_path / "run", epsilon=4.0, steps=20, hidden=8)
    assert run.result["guarantee"] == "holds"
    assert run.result["method"] == "counted-rows"
    noise, sigma = run.plan.count_noise, run.plan.sigma_over_clip
    # One Gaussian: the count moves by 1, and each of 20 whole batches by C.
    assert run.plan.sampling_rate == 1.0
    shift = math.sqrt(noise**-2 + 20 * sigma**-2)
    assert 0.99 * 4.0 < run.epsilon <= 4.0
    assert hg.PrivacyPlan.from_json(run.plan.to_json()) == run.plan
    assert run.epsilon == pytest.approx(gaussian_epsilon(shift, run.delta), rel=1e-9)
    charge, steps, figures = run.plan.charges
    assert (charge.name, steps.is_step, figures.name) == ("count", True, "figures")
    # Rows that figures are computed from pay for them what training rows pay for the rest.
    assert 0.99 * 4.0 < run.plan.epsilon_evaluated <= 4.0
    for unmoved in (ONE_EDGE, ONE_LABEL, row_emptied("evaluated")):
        assert epsilon([charge], unmoved, delta=1e-6) == 0
    ledger = Ledger.open(run.folder.ledger_path, read_only=True)
    assert ledger.count_charged(charge) == 1
    assert ledger.spent_epsilon() == pytest.approx(run.epsilon)
    released = json.loads((tmp_path / "run" / "count.json").read_text())
    assert abs(released - len(graph.train_idx)) < 8 * noise
    check_reported(run, tmp_path, says="The number of training rows that have a label is released once")
    plan = replace(run.plan, steps=4).calibrated(epsilon=4.0)
    assert list_failures(check_data(graph, plan, begin=count.begin_with_count)) == []
    # Without its charge the run would show more than it paid for, and the audit says so.
    assert "count" in list_failures(check_data(graph, plan))[0]


def test_the_mechanism_is_attacked(count: ModuleType, graph: Graph) -> None:
    """What tells the two worlds apart is at most what the charge says, and nearly that."""
    _, rows, _ = hg.prepare(graph, epsilon=4.0, method="trees", model="mlp", steps=4)
    charge, noise = count.CountCharge(name="count", noise_std=0.5), 0.5
    emptied = graph.with_row_emptied(int(graph.train_idx[0]), "sender")
    there, gone = (
        np.array([count.release_count(world, noise) for _ in range(3000)]) for world in (graph, emptied)
    )
    event = charge.event(TRAINING_ROW)
    claimed = epsilon([charge], [TRAINING_ROW], delta=rows.delta)
    attack = partial(Attack.measure, "count", there, gone, plan=rows, confidence=0.99)
    found = attack(claimed=claimed, charges=[(event, 1)])
    assert 0.7 * claimed < found.lower_bound <= claimed
    half = replace(charge, noise_std=2 * noise)
    cheap = epsilon([half], [TRAINING_ROW], delta=rows.delta)
    assert attack(claimed=cheap, charges=[(half.event(TRAINING_ROW), 1)]).exceeds


@pytest.mark.parametrize("spent", [0.1, 1.0, 4.0])
def test_randomised_response_costs_at_most_the_gaussian_of_the_page(spent: float) -> None:
    """Its hockey-stick divergence is at most that of the Gaussian; both are equal at epsilon 0."""
    truth = math.exp(spent) / (1 + math.exp(spent))
    mu = 2 * stats.norm.ppf(truth)
    for order in np.linspace(0, 1.5 * spent, 40):
        assert truth - math.exp(order) * (1 - truth) <= gaussian_delta(mu, order) + 1e-12
    assert gaussian_delta(mu, 0.0) == pytest.approx(2 * truth - 1, rel=1e-6)


@pytest.mark.parametrize("method", ["billboard", "trees"])
def test_a_clipping_rule_from_outside(smooth: ModuleType, graph: Graph, method: str, tmp_path: Path) -> None:
    how: dict[str, Any] = {"max_readers": 2} if method == "trees" else {}
    run = hg.train(
        graph, epsilon=8.0, method=method, clipping="smooth", steps=30, hidden=8, out=tmp_path / "run", **how
    )
    assert (run.result["guarantee"], run.plan.clipping) == ("holds", "smooth")
    check_reported(run, tmp_path)
    if method == "billboard":
        plan = BillboardPlan(num_train_nodes=100, batch_size=100, steps=4, clipping="smooth", clip=0.5)
        assert list_failures(check_runs(plan.calibrated(epsilon=4.0), plant_nothing)) == []


def test_factors_of_the_rule_by_hand(smooth: ModuleType) -> None:
    norms = torch.tensor([0.0, 0.75, 1e10, math.inf, math.nan], dtype=torch.float64)
    factors = Clipping(kind="smooth", clip=1.0).factors(norms.square()[None])[0]
    assert factors.tolist() == pytest.approx([1.0, 0.8, 1e-10, 0.0, 0.0])
    with pytest.raises(TypeError, match="clipping='smooth': expected a built-in rule"):
        _ = Clipping(kind="smooth").rule


def test_large_batches_clip_by_the_rule_too(smooth: ModuleType) -> None:
    """The kernels for large batches know built-in rules alone; a row adds the same in a batch of any size."""
    graph = hg.datasets.synthetic(num_nodes=3000, num_classes=3, num_features=120, seed=1)
    _, plan, config = hg.prepare(graph, epsilon=4.0, method="trees", model="mlp", hidden=8)
    folder = RunFolder.describe("unused", graph, plan, config, data="")
    view = Memory(folder, graph, device=torch.device("cpu"), parts=Parts()).read(0)
    model, rule = folder.build_model(seed=1), Clipping(kind="smooth", clip=0.2)
    table = view.graph.features
    together = RowSums()(model, table.take(graph.train_idx), rule)
    single: dict[str, Any] = {}
    for part in np.array_split(graph.train_idx, 40):
        for name, value in RowSums()(model, table.take(part), rule).items():
            single[name] = single.get(name, 0.0) + value
    for name, value in together.items():
        torch.testing.assert_close(value, single[name], rtol=1e-4, atol=1e-4)


def exceed(norms: torch.Tensor, clip: float) -> torch.Tensor:
    return 2 * clip / (norms + clip)


def share(norms: torch.Tensor, clip: float) -> torch.Tensor:
    return clip / (norms + norms.mean() + clip)


def drop(norms: torch.Tensor, clip: float) -> torch.Tensor:
    return torch.full_like(norms, math.nan)


@pytest.mark.parametrize(
    ("rule", "fault"),
    [
        (exceed, "a root adds .* with clip=0.001; expected at most clip"),
        (share, "the factor of a root depends on others; expected its own norm alone"),
        (drop, "expected a finite factor of at least 0 for every root"),
    ],
)
def test_a_rule_that_breaks_its_promise_is_refused(rule: Callable[..., torch.Tensor], fault: str) -> None:
    with pytest.raises(PlanError, match=rf"clipping='broken': {fault}"):
        register_clipping("broken")(rule)
    with pytest.raises(PlanError, match="clipping='flat': it is built in; choose another name"):
        register_clipping("flat")(rule)
    with pytest.raises(PlanError, match="clipping='broken': expected 'normalised'"):
        Clipping(kind="broken")


def test_no_rule_contributes_more_than_c(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rule that the probe did not see through is cut off where it is used."""
    monkeypatch.setitem(clipping._RULES, "broken", exceed)
    norms = torch.tensor([0.1, 1.0, 1e6], dtype=torch.float64)
    contributions = Clipping(kind="broken").factors(norms.square()[None])[0] * norms
    assert contributions.tolist() == pytest.approx([2 * 0.1 / 1.1, 1.0, 1.0])
    assert contributions.max() <= 1.0


def write_database(graph: Graph, path: Path) -> sqlite3.Connection:
    """The rows and edges of a graph, with repeats and self-loops, as tables."""
    splits = np.full(graph.num_nodes, None, object)
    for name in ("train", "val", "test"):
        splits[getattr(graph, f"{name}_idx")] = name
    columns = ", ".join(f"x{k} REAL" for k in range(graph.num_features))
    database = sqlite3.connect(path)
    database.execute(f"CREATE TABLE nodes (id INTEGER PRIMARY KEY, label REAL, split TEXT, {columns})")
    database.execute("CREATE TABLE edges (source INTEGER, target INTEGER)")
    cells = graph.dense_features(np.arange(graph.num_nodes)).tolist()
    labels = [None if label < 0 or label != label else label for label in graph.y.tolist()]
    database.executemany(
        f"INSERT INTO nodes VALUES (?, ?, ?{', ?' * graph.num_features})",
        [(node, labels[node], splits[node], *row) for node, row in enumerate(cells)],
    )
    edges = [pair for ends in graph.edge_chunks() for pair in zip(*(e.tolist() for e in ends), strict=True)]
    database.executemany("INSERT INTO edges VALUES (?, ?)", [*edges, edges[0], (5, 5)])
    database.commit()
    return database


def test_an_engine_from_outside(engine: ModuleType, graph: Graph, tmp_path: Path) -> None:
    write_database(graph, tmp_path / "people.db").close()
    run = engine.train_database(
        tmp_path / "people.db", tmp_path / "run", task=Classes(num_classes=3), epsilon=8.0, steps=30, seed=4
    )
    assert 7.9 < run.plan.epsilon <= 8.0
    assert run.plan.num_boards == 1
    # In memory, with the same draws: the board is the same number by number, the weights but for rounding.
    same = run_plan(tmp_path / "memory", graph, run.plan, run.folder.config)
    [board], [expected] = run.folder.load_boards(), same.folder.load_boards()
    assert np.array_equal(board.values, expected.values)
    assert np.abs(run.predict_proba(graph) - same.predict_proba(graph)).max() < 1e-3
    check_reported(run, tmp_path)
    check_released_once(engine, run, graph, tmp_path)


def check_released_once(engine: ModuleType, run: hg.Run, graph: Graph, tmp_path: Path) -> None:
    """The board of a run is found again; without its file it is refused, not made again."""
    with contextlib.closing(sqlite3.connect(tmp_path / "people.db")) as database:
        source = engine.SqliteEngine(run.folder, graph, Parts(), database)
        ledger = Ledger.open(run.folder.ledger_path, read_only=True)
        assert source.find_board(0, ledger)
        path, away = run.folder.path / BOARD_FILES[0], tmp_path / "away"
        path.rename(away)
        with pytest.raises(hg.RunError, match="board-1"):
            source.find_board(0, ledger)
        away.rename(path)


def test_a_task_and_an_engine_from_outside_together(
    engine: ModuleType, hour: ModuleType, tmp_path: Path
) -> None:
    graph = hours_graph(hour.Hour())
    write_database(graph, tmp_path / "people.db").close()
    run = engine.train_database(
        tmp_path / "people.db", tmp_path / "run", task=hour.Hour(), epsilon=50.0, steps=40, hidden=8
    )
    assert run.result["guarantee"] == "holds"
    assert run.result["test_closeness"] > 0.5
    check_reported(run, tmp_path)


def test_the_engine_is_audited(engine: ModuleType, graph: Graph, tmp_path: Path) -> None:
    _, plan, _ = hg.prepare(graph, epsilon=4.0, steps=4)
    assert isinstance(plan, BillboardPlan)
    plan = replace(plan, num_boards=1, board_noise=(), sigma_over_clip=0.0).calibrated(epsilon=4.0)
    numbers, databases = iter(range(9)), contextlib.ExitStack()

    def begin(folder: RunFolder, graph: Graph, parts: Parts, *, sql: str = "") -> Any:
        database = write_database(graph, tmp_path / f"{next(numbers)}.db")
        databases.callback(database.close)
        source = engine.SqliteEngine(folder, graph, parts, database)
        assert source.ballots.num_nodes == graph.num_nodes
        database.execute(sql)
        return source, folder.start

    # Every ballot is cast three times: what is left of the board is more than noise, and the same again.
    often = "INSERT INTO records SELECT owner, place FROM records, (SELECT 1 UNION SELECT 2)"
    with databases:
        assert list_failures(check_data(graph, plan, begin=begin)) == []
        faults = list_failures(check_data(graph, plan, begin=partial(begin, sql=often)))
    assert [fault.split(":")[0] for fault in faults] == [
        "noise of boards has the planned size",
        "no noise is used twice",
    ]
