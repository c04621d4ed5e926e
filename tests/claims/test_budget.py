"""Promise: a budget never shows less than what happened, and the total is what the accountant composes."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dp_accounting import dp_event
from dp_accounting.pld import pld_privacy_accountant

import hushgraph as hg
from benchmark_scripts import ROOT
from effort import choose
from hushgraph.accounting.accountants import gaussian_epsilon
from hushgraph.accounting.events import GaussianEvent, PoissonDraw, StepEvent
from hushgraph.errors import BudgetExceededError, RunError
from hushgraph.graph.graph import Graph
from hushgraph.privacy.budget import DataBudget
from hushgraph.privacy.charges import BoardCharge, list_events
from hushgraph.privacy.guarantee import Guarantee
from hushgraph.privacy.plans import BillboardPlan, PrivacyPlan
from hushgraph.privacy.run_charge import RunCharge, compose_charges
from hushgraph.training.session import Session
from plans import plan_steps
from run_charges import write_charge

DELTA = 1e-6
KILLS = choose(4, 200)
SETTINGS: dict[str, Any] = {"hidden": 8, "steps": 4, "device": "cpu", "model": "mlp"}


def trees(**others: Any) -> PrivacyPlan:
    plan = {"num_train_nodes": 2000, "num_layers": 1, "max_readers": 0, "batch_size": 200, "steps": 300}
    return plan_steps(**{**plan, **others}).calibrated(epsilon=1.5)


def billboard(batch_size: int) -> PrivacyPlan:
    plan = BillboardPlan(num_train_nodes=2000, num_classes=4, batch_size=batch_size, steps=300)
    return plan.calibrated(epsilon=1.5)


def charge_for(plan: PrivacyPlan, run: str) -> RunCharge:
    return RunCharge.of_plan(plan, Guarantee.of(plan), run=run, command="train", data="people")


@pytest.fixture(scope="module")
def five() -> list[RunCharge]:
    plans = {
        "billboard, whole batches": billboard(2000),
        "billboard, a tenth": billboard(200),
        "trees, K = 0": trees(),
        "mlp, whole batches": trees(num_layers=0, batch_size=2000, steps=40),
        "mlp": trees(num_layers=0, batch_size=500),
    }
    return [charge_for(plan, name) for name, plan in plans.items()]


@pytest.fixture(scope="module")
def of_trees() -> RunCharge:
    """A run in which one row changes several trees, for which dp_accounting has no event."""
    return charge_for(trees(max_readers=2, max_reads=12), "trees, K = 2")


@pytest.fixture(scope="module")
def graph() -> Graph:
    return hg.datasets.synthetic(num_nodes=120, num_classes=3, num_features=6, average_degree=4)


@pytest.mark.parametrize("reads", [False, True])
def test_runs_cost_at_most_the_sum(five: list[RunCharge], of_trees: RunCharge, reads: bool) -> None:
    charges = [*five[:4], of_trees] if reads else five
    together = compose_charges(charges, DELTA)
    alone = [compose_charges([charge], DELTA) for charge in charges]
    by_basic_composition = sum(compose_charges([charge], DELTA / 5) for charge in charges)
    assert max(alone) < together < sum(alone) < by_basic_composition
    # Much less than the sum, or composing would not be worth it.
    assert together < 0.65 * sum(alone)


def test_composition_is_that_of_dp_accounting(five: list[RunCharge]) -> None:
    accountant = pld_privacy_accountant.PLDAccountant(
        neighboring_relation=pld_privacy_accountant.NeighborRel.ADD_OR_REMOVE_ONE,
        value_discretization_interval=2e-5,
    )
    for charge in five:
        for event, count in list_events(charge.charges):
            accountant.compose(translate(event), count)
    assert compose_charges(five, DELTA) == pytest.approx(accountant.get_epsilon(DELTA), rel=1e-3)


def translate(event: Any) -> dp_event.DpEvent:
    """The event of dp_accounting that says the same."""
    if isinstance(event, GaussianEvent):
        return dp_event.GaussianDpEvent(1 / event.shift_over_sigma)
    assert isinstance(event, StepEvent)
    assert isinstance(event.draw, PoissonDraw)
    assert (event.changed_trees, event.gone) == (1, 1)
    return dp_event.PoissonSampledDpEvent(event.draw.rate, dp_event.GaussianDpEvent(event.sigma_over_clip))


def test_a_file_that_is_cut_never_shows_less(tmp_path: Path, five: list[RunCharge]) -> None:
    path = tmp_path / "people.ledger"
    budget = DataBudget.create(path, epsilon=20.0, delta=1e-2)
    for charge in five[:3]:
        write_charge(budget, charge)
    content = path.read_bytes()
    whole = DataBudget.open(path)
    last = content.rstrip(b"\n").rfind(b"\n") + 1
    counted = {"exactly": 0, "by epsilon and delta": 0, "as infinite": 0}
    shown: dict[tuple[float, int], float] = {}
    for end in range(last + 1, len(content)):
        path.write_bytes(content[:end])
        cut = DataBudget.open(path)
        assert len(cut.charges) == 3
        [torn] = cut.charges[2:]
        key = (torn.epsilon, len(torn.charges))
        # Cuts of one kind show the same; pricing each would take long.
        if key not in shown:
            shown[key] = cut.spent
        assert shown[key] >= whole.spent
        if math.isinf(torn.epsilon):
            counted["as infinite"] += 1
        elif torn.charges:
            counted["exactly"] += 1
            assert torn == whole.charges[2]
        else:
            counted["by epsilon and delta"] += 1
            assert (torn.epsilon, torn.delta) == (five[2].epsilon, five[2].delta)
    assert counted["exactly"] == 1
    # Of most cuts epsilon and delta are left, and basic composition is never less.
    assert counted["by epsilon and delta"] > 5 * counted["as infinite"] > 0


def test_a_torn_line_stays_counted_after_the_next_charge(tmp_path: Path, five: list[RunCharge]) -> None:
    path = tmp_path / "people.ledger"
    budget = DataBudget.create(path, epsilon=20.0, delta=1e-2)
    for charge in five[:2]:
        write_charge(budget, charge)
    path.write_bytes(path.read_bytes()[:-40])
    write_charge(budget, five[2])
    epsilons = [charge.epsilon for charge in DataBudget.open(path).charges]
    assert epsilons == [charge.epsilon for charge in five[:3]]
    assert path.read_bytes().count(b"\n") == 4


def test_a_budget_with_two_names_is_one_budget(tmp_path: Path, graph: Graph) -> None:
    """One lock, one place for copies of ledgers, and no file of its own where a torn line is replaced."""
    budget = DataBudget.create(tmp_path / "people.ledger", epsilon=None, delta=DELTA)
    (tmp_path / "project").mkdir()
    link = tmp_path / "project" / "budget"
    link.symlink_to(budget.path)
    hg.train(graph, epsilon=1.0, out=tmp_path / "one", budget=budget.path, **SETTINGS)
    line = budget.path.read_bytes().splitlines()[1]
    budget.path.write_bytes(budget.path.read_bytes() + line[:60])
    hg.train(graph, epsilon=1.0, out=tmp_path / "two", budget=link, **SETTINGS)
    assert link.is_symlink()
    assert [*link.parent.iterdir()] == [link]
    for path in (budget.path, link):
        assert len(DataBudget.open(path).charges) == 3


def test_nothing_is_allowed_after_a_line_of_unknown_cost(tmp_path: Path, five: list[RunCharge]) -> None:
    path = tmp_path / "people.ledger"
    budget = DataBudget.create(path, epsilon=20.0, delta=1e-2)
    path.write_bytes(path.read_bytes() + b'{"epsilon": 0.0')
    assert math.isinf(DataBudget.open(path).spent)
    with pytest.raises(BudgetExceededError):
        write_charge(budget, five[0])


def test_damage_anywhere_else_is_an_error(tmp_path: Path, five: list[RunCharge]) -> None:
    path = tmp_path / "people.ledger"
    budget = DataBudget.create(path, epsilon=20.0, delta=1e-2)
    for charge in five[:3]:
        write_charge(budget, charge)
    content = path.read_bytes()
    lines = content.splitlines(keepends=True)
    damaged = [content.replace(b"trees", b"three"), content.replace(b'"delta": 0.00005', b'"delta": 0.00001')]
    damaged += [b"".join(lines[:number] + lines[number + 1 :]) for number in range(3)]
    damaged += [b"".join([lines[0], lines[2], lines[1], lines[3]]), content + b"\n", b"\n" + content]
    for changed in damaged:
        path.write_bytes(changed)
        if changed == content:
            continue
        with pytest.raises(RunError, match="count the whole budget as spent"):
            DataBudget.open(path)


def test_two_processes_at_once_both_count(tmp_path: Path) -> None:
    """Each of two processes charges until the total is reached: together they never exceed it."""
    path = tmp_path / "people.ledger"
    DataBudget.create(path, epsilon=2.0, delta=DELTA)
    program = """
import sys
from hushgraph.privacy.charges import BoardCharge
from hushgraph.errors import BudgetExceededError
from hushgraph.privacy.budget import DataBudget, make_run_id
from hushgraph.privacy.run_charge import RunCharge
while True:
    charges = (BoardCharge(name='board-1', noise_std=25.0),)
    charge = RunCharge(run=make_run_id("x"), epsilon=1.0, delta=1e-6, accountant="pair", charges=charges,
                    command="train", data="people")
    try:
        with DataBudget.open(sys.argv[1]).charging(charge):
            pass
    except BudgetExceededError:
        break
    print(charge.run, flush=True)
"""
    children = [
        subprocess.Popen([sys.executable, "-c", program, str(path)], stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    begun = [run for child in children for run in child.communicate(timeout=120)[0].split()]
    assert [child.returncode for child in children] == [0, 0]
    budget = DataBudget.open(path)
    assert sorted(charge.run for charge in budget.charges) == sorted(begun)
    # n of them are one release of shift 0.04 sqrt(n): 125 cost 1.9945, and 126 would cost 2.0032.
    assert budget.spent == pytest.approx(gaussian_epsilon(0.04 * math.sqrt(125), DELTA), rel=1e-6)
    assert budget.spent <= 2.0
    assert len(begun) == 125


def test_kills_leave_nothing_uncounted(tmp_path: Path) -> None:
    record = tmp_path / "record.json"
    script = ROOT / "benchmarks" / "kills_budget.py"
    command = [sys.executable, str(script), "--kills", str(KILLS), "--record", str(record)]
    subprocess.run(command, check=True, timeout=300, stdout=subprocess.DEVNULL)
    assert record.exists()


def test_a_run_is_charged_before_it_begins_and_not_again(tmp_path: Path, graph: Graph) -> None:
    budget = DataBudget.create(tmp_path / "people.ledger", epsilon=20.0, delta=DELTA)
    shown: list[int] = []

    def stop(*progress: Any) -> None:
        shown.append(len(DataBudget.open(budget.path).charges))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        hg.train(graph, epsilon=1.0, out=tmp_path / "run", budget=budget.path, observer=stop, **SETTINGS)
    assert shown[0] == 1
    run = hg.resume(tmp_path / "run", graph, device="cpu")
    [charge] = DataBudget.open(budget.path).charges
    assert charge.charges == run.plan.charges
    assert (charge.epsilon, charge.delta, charge.plan) == (run.epsilon, run.delta, run.plan.fingerprint())
    assert Path(charge.folder) == tmp_path / "run"


def test_what_was_charged_is_kept_also_without_a_folder_of_its_own(
    tmp_path: Path, graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The budget paid for it, so that it can go on, although the run itself has spent nothing yet."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    budget = DataBudget.create(tmp_path / "people.ledger", epsilon=20.0, delta=DELTA)
    with monkeypatch.context() as patch:
        patch.setattr(Session, "_load_progress", interrupt)
        with pytest.raises(KeyboardInterrupt) as stopped:
            hg.train(graph, epsilon=1.0, budget=budget.path, **SETTINGS)
    [charge] = DataBudget.open(budget.path).charges
    assert charge.folder in str(stopped.value.__notes__)
    assert hg.resume(charge.folder, graph, device="cpu").epsilon <= 1.0
    assert len(DataBudget.open(budget.path).charges) == 1


def interrupt(*given: Any) -> None:
    raise KeyboardInterrupt


def test_a_run_that_was_never_charged_is_charged_when_it_is_resumed(tmp_path: Path, graph: Graph) -> None:
    """As after a kill between the folder and the charge, or with an older copy of the budget."""
    path = tmp_path / "people.ledger"
    DataBudget.create(path, epsilon=20.0, delta=DELTA)
    before = path.read_bytes()

    def stop(*progress: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        hg.train(graph, epsilon=1.0, out=tmp_path / "run", budget=path, observer=stop, **SETTINGS)
    path.write_bytes(before)
    hg.resume(tmp_path / "run", graph, device="cpu")
    assert len(DataBudget.open(path).charges) == 1


def test_a_run_that_does_not_fit_leaves_nothing_behind(tmp_path: Path, graph: Graph) -> None:
    path = tmp_path / "people.ledger"
    DataBudget.create(path, epsilon=1.0, delta=DELTA)
    before = path.read_bytes()
    for wanted in ({"epsilon": 2.0}, {"private": False}, {"epsilon": 0.1, "seed": 3}):
        with pytest.raises(BudgetExceededError):
            hg.train(graph, out=tmp_path / "run", budget=path, **wanted, **SETTINGS)
        assert not (tmp_path / "run").exists()
    assert path.read_bytes() == before


def test_a_folder_that_is_taken_costs_nothing(tmp_path: Path, graph: Graph) -> None:
    path = tmp_path / "people.ledger"
    DataBudget.create(path, epsilon=20.0, delta=DELTA)
    hg.train(graph, epsilon=1.0, out=tmp_path / "run", budget=path, **SETTINGS)
    with pytest.raises(RunError, match="holds a run already"):
        hg.train(graph, epsilon=1.0, out=tmp_path / "run", budget=path, **SETTINGS)
    assert len(DataBudget.open(path).charges) == 1


def test_a_billboard_charges_its_boards_too(tmp_path: Path, graph: Graph) -> None:
    path = tmp_path / "people.ledger"
    DataBudget.create(path, epsilon=20.0, delta=DELTA)
    run = hg.train(graph, epsilon=1.0, steps=4, hidden=8, device="cpu", budget=path)
    budget = DataBudget.open(path)
    assert any(isinstance(charge, BoardCharge) for charge in budget.charges[0].charges)
    assert budget.charges[0].charges == run.plan.charges


def test_an_audit_spends_nothing(graph: Graph) -> None:
    """What is attacked follows from public figures alone, so there is nothing to charge."""
    from hushgraph.audit.source import settings_for

    rng = np.random.default_rng(1)
    other = Graph.from_arrays(
        edge_index=rng.integers(0, graph.num_nodes, (2, 300)),
        x=rng.normal(size=graph.x.shape),
        y=rng.permutation(graph.y),
        num_classes=graph.num_classes,
        train_idx=graph.train_idx,
        val_idx=graph.val_idx,
        test_idx=graph.test_idx,
    )
    assert other.num_edges != graph.num_edges
    first, second = (
        settings_for(data, epsilon=4.0, delta=1e-4, edge_owner="sender", num_classes=3)
        for data in (graph, other)
    )
    assert first == second
