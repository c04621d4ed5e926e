"""The budget of a data set: what is refused, what is shown, what is recorded."""

from __future__ import annotations

import json
import math
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hushgraph.accounting.events import FixedSizeDraw, PoissonDraw
from hushgraph.errors import BudgetExceededError, PlanError, RunError, WriteError
from hushgraph.privacy.budget import BudgetEntry, DataBudget
from hushgraph.privacy.charges import BoardCharge, TreeSteps
from hushgraph.privacy.guarantee import Guarantee
from hushgraph.privacy.lines import write_line
from hushgraph.privacy.plans import PrivacyPlan, RowPlan
from hushgraph.privacy.run_charge import RunCharge, compose_charges
from plans import make_plan
from run_charges import write_charge

PLAN = make_plan(
    num_train_nodes=1000, num_layers=1, max_readers=2, batch_size=50, steps=40, paper_noise_multiplier=1.0
)

STEPS = TreeSteps(
    draw=FixedSizeDraw(size=50, population=1000),
    changed_trees=3,
    num_trees=1000,
    trees_of_record=math.inf,
    sigma_over_clip=12.0,
    times=10,
)


def gaussian(run: str, shift: float = 0.5, **others: Any) -> RunCharge:
    fields: dict[str, Any] = {
        "run": run,
        "epsilon": 1.0,
        "delta": 1e-6,
        "accountant": "pair",
        "charges": (BoardCharge(name="board-1", noise_std=1 / shift),),
        "command": "train",
        "data": "people",
    }
    return RunCharge(**{**fields, **others})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "people.ledger"


def test_a_new_budget_is_whole(path: Path) -> None:
    budget = DataBudget.create(path, epsilon=10, delta=1e-6)
    assert (budget.total, budget.delta, budget.spent, budget.left) == (10.0, 1e-6, 0.0, 10.0)
    assert DataBudget.open(path) == budget
    assert DataBudget.create(path.with_name("other"), delta=1e-6).left is None


@pytest.mark.parametrize(
    ("epsilon", "delta", "words"),
    [
        (0, 1e-6, "epsilon=0"),
        (math.inf, 1e-6, "epsilon=inf"),
        ("ten", 1e-6, "epsilon='ten'"),
        (1.0, 0.0, "delta=0.0"),
        (1.0, 1.0, "delta=1.0"),
        (None, None, "delta=None"),
    ],
)
def test_a_total_that_means_nothing_is_refused(
    path: Path, epsilon: object, delta: object, words: str
) -> None:
    with pytest.raises(PlanError, match=words):
        DataBudget.create(path, epsilon=epsilon, delta=delta)  # type: ignore[arg-type]
    assert not path.exists()


def test_a_budget_is_created_once_and_must_exist(path: Path) -> None:
    with pytest.raises(RunError, match="no such file; set it up with hushgraph budget"):
        DataBudget.open(path)
    DataBudget.create(path, epsilon=1.0, delta=1e-6)
    before = path.read_bytes()
    with pytest.raises(RunError, match="exists already"):
        DataBudget.create(path, epsilon=100.0, delta=1e-6)
    assert path.read_bytes() == before


def test_charges_come_back_as_they_were(path: Path) -> None:
    budget = DataBudget.create(path, epsilon=10.0, delta=1e-6)
    charges = (
        gaussian("a", folder="runs/a", plan="f" * 64),
        RunCharge.of_plan(PLAN, Guarantee.of(PLAN), run="b", command="compare", data='"quoted" \u00e9\n'),
    )
    for charge in charges:
        write_charge(budget, charge)
    assert DataBudget.open(path).charges == charges


def test_one_run_is_charged_once(path: Path) -> None:
    budget = DataBudget.create(path, epsilon=10.0, delta=1e-6)
    for _ in range(3):
        write_charge(budget, gaussian("a"))
    assert len(DataBudget.open(path).charges) == 1


def test_a_charge_beyond_the_total_writes_nothing(path: Path) -> None:
    budget = DataBudget.create(path, epsilon=3.0, delta=1e-6)
    write_charge(budget, gaussian("a"))
    before, ran = path.read_bytes(), False
    with (
        pytest.raises(BudgetExceededError, match="take a smaller epsilon"),
        budget.charging(gaussian("b", 0.6)),
    ):
        ran = True
    assert (path.read_bytes(), ran) == (before, False)
    assert BudgetExceededError.exit_code == 3


def test_nothing_is_charged_where_the_body_fails(path: Path) -> None:
    budget = DataBudget.create(path, epsilon=3.0, delta=1e-6)
    with pytest.raises(FileNotFoundError), budget.charging(gaussian("a")):
        raise FileNotFoundError
    assert DataBudget.open(path).charges == ()


@pytest.mark.parametrize(
    ("plan", "is_seeded"),
    [
        (
            RowPlan(num_train_nodes=9, num_layers=0, max_readers=0, batch_size=9, steps=1),
            False,
        ),
        (PLAN, True),
        (replace(PLAN, clipping="groups", noise="per-layer"), False),
    ],
    ids=["no noise", "seeded", "claimed"],
)
def test_what_has_no_guarantee_is_infinite(path: Path, plan: PrivacyPlan, is_seeded: bool) -> None:
    guarantee = Guarantee.of(plan, seed_is_fixed=is_seeded)
    charge = RunCharge.of_plan(plan, guarantee, run="a", command="train", data="people")
    budget = DataBudget.create(path, epsilon=1e6, delta=1e-6)
    with pytest.raises(BudgetExceededError, match="has no guarantee") as raised:
        write_charge(budget, charge)
    assert guarantee.why[0].sentence in str(raised.value)
    records = DataBudget.create(path.with_name("records"), delta=1e-6)
    write_charge(records, charge)
    write_charge(records, gaussian("b"))
    again = DataBudget.open(records.path)
    assert math.isinf(again.spent)
    assert "without a guarantee" in again.composition
    assert json.loads(json.dumps(again.to_json(), allow_nan=False))["epsilon_spent"] == "inf"


def test_two_accountants_are_added_up() -> None:
    paper = gaussian("b", accountant="paper", charges=(STEPS,))
    both = compose_charges([gaussian("a"), paper], 1e-6)
    apart = [compose_charges([charge], 0.5e-6) for charge in (gaussian("a"), paper)]
    assert both == pytest.approx(sum(apart), rel=1e-12)


def test_words_say_how_it_was_composed(path: Path) -> None:
    budget = DataBudget.create(path, delta=1e-6)
    assert budget.composition == "nothing was charged"
    write_charge(budget, gaussian("a"))
    assert DataBudget.open(path).composition == "all events by the 'pair' accountant"
    write_charge(budget, gaussian("b", accountant="paper", charges=(STEPS,)))
    assert "basic composition of 2 parts" in DataBudget.open(path).composition


def test_many_small_runs_add_up_though_each_alone_costs_nothing() -> None:
    # One such release is (0, delta); a thousand of them are not.
    charges = [gaussian(str(number), 1e-6, epsilon=0.0) for number in range(1000)]
    assert compose_charges(charges[:1], 1e-6) == 0.0
    assert compose_charges(charges, 1e-6) > 0.0


@pytest.mark.parametrize("content", [b"", b"{}\n", b"no ledger\n", b'{"budget": 1, "epsilon": 3}\n'])
def test_another_file_is_refused(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(RunError, match="first line"):
        DataBudget.open(path)


def test_a_later_version_is_refused(path: Path) -> None:
    path.write_bytes(write_line({"budget": 2, "epsilon": 1.0, "delta": 1e-6}, after="")[0])
    with pytest.raises(RunError, match="version 1"):
        DataBudget.open(path)


def test_a_line_that_is_no_charge_is_refused(path: Path) -> None:
    header, checksum = write_line({"budget": 1, "epsilon": 1.0, "delta": 1e-6}, after="")
    for entry in ({"epsilon": 1.0}, {**gaussian("a").to_json(), "epsilon": -1.0}):
        path.write_bytes(header + write_line(entry, after=checksum)[0])
        with pytest.raises(RunError, match="line 2 is not a charge"):
            DataBudget.open(path)


def test_a_folder_that_cannot_be_read_or_locked_is_told(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RunError, match=r"there is no folder .*missing; make it first"):
        DataBudget.create(path.parent / "missing" / "b", delta=1e-6)

    def refuse(*_: object, **__: object) -> int:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr("hushgraph.privacy.budget.lock_file", refuse)
        with pytest.raises(RunError, match="cannot be locked"):
            DataBudget.create(path, delta=1e-6)
    path.mkdir()
    with pytest.raises(RunError, match="it is a folder; expected the file of a budget"):
        DataBudget.open(path)
    path.rmdir()
    path.write_bytes(b"")
    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.raises(RunError, match="cannot be read"):
        DataBudget.open(path)


def test_a_full_disk_leaves_the_file_as_it_was(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    budget = DataBudget.create(path, epsilon=3.0, delta=1e-6)
    before, write = path.read_bytes(), os.write
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda file, line: write(file, line[:20]))
        with pytest.raises(WriteError, match="free space"):
            write_charge(budget, gaussian("a"))
    assert path.read_bytes() == before
    write_charge(budget, gaussian("a"))
    assert len(DataBudget.open(path).charges) == 1


def test_a_file_that_somebody_else_changes_takes_no_charge(path: Path) -> None:
    budget = DataBudget.create(path, epsilon=3.0, delta=1e-6)
    with pytest.raises(WriteError, match="does not lock it"), budget.charging(gaussian("a")):
        path.write_bytes(path.read_bytes() + b"\n")


def test_a_file_that_cannot_be_opened_for_writing_is_told(path: Path) -> None:
    budget = DataBudget.create(path, epsilon=3.0, delta=1e-6)
    with pytest.raises(WriteError, match="cannot be written"), budget.charging(gaussian("a")):
        path.unlink()


def test_a_lock_that_is_removed_while_somebody_waits_is_taken_anew(path: Path) -> None:
    budget = DataBudget.create(path, epsilon=3.0, delta=1e-6)
    with budget.charging(gaussian("a")):
        path.with_name(path.name + ".lock").unlink()
    write_charge(budget, gaussian("b", 0.1))
    assert [charge.run for charge in DataBudget.open(path).charges] == ["a", "b"]


def test_an_entry_names_the_file_and_a_run_of_its_own(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    DataBudget.create(path, epsilon=3.0, delta=1e-6)
    monkeypatch.chdir(path.parent)
    first, second = (BudgetEntry.of(path.name, PLAN) for _ in range(2))
    assert first.file == second.file == str(path)
    assert first.run != second.run
    assert first.run.startswith(PLAN.fingerprint()[:12])
    assert BudgetEntry.from_json(None) is None
    with pytest.raises(RunError, match="no such file"):
        BudgetEntry.of(path.with_name("missing"), PLAN)


def test_runs_that_fit_are_those_that_can_be_charged(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    budget = DataBudget.create(path, epsilon=3.0, delta=1e-6)
    assert budget.count_runs(gaussian("a", 0.01)) > 1000
    fit = budget.count_runs(gaussian("a", 0.15))
    for number in range(fit):
        write_charge(budget, gaussian(str(number), 0.15))
        assert DataBudget.open(path).count_runs(gaussian("next", 0.15)) == fit - number - 1
    with pytest.raises(BudgetExceededError):
        write_charge(budget, gaussian("one more", 0.15))
    prices: list[int] = []

    def count(charges: Any, delta: float) -> float:
        prices.append(1)
        return compose_charges(charges, delta)

    monkeypatch.setattr("hushgraph.privacy.budget.compose_charges", count)
    many = DataBudget(path=path, total=3.0, delta=1e-6).count_runs(gaussian("a", 0.0005))
    assert many > 100_000
    assert len(prices) <= 2 * math.log2(many) + 2


def test_runs_that_cannot_be_priced_do_not_fit(path: Path) -> None:
    # Sampled steps are not priced at so small a delta.
    steps = replace(STEPS, draw=PoissonDraw(rate=0.1), sigma_over_clip=1e4, times=1)
    budget = DataBudget.create(path, epsilon=3.0, delta=1e-13)
    assert budget.price_more(gaussian("a", charges=(steps,)), 1) == math.inf
    assert budget.count_runs(gaussian("a", charges=(steps,))) == 0
    assert DataBudget.create(path.with_name("records"), delta=1e-6).count_runs(gaussian("a")) is None


def test_a_charge_that_cannot_be_written_leaves_no_copy_behind(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    budget = DataBudget.create(path, epsilon=3.0, delta=1e-6)
    before = {file.name for file in path.parent.iterdir()}
    monkeypatch.setattr(os, "write", lambda file, line: 0)
    with pytest.raises(WriteError, match="free space"):
        write_charge(budget, gaussian("a", has_copy=True))
    assert {file.name for file in path.parent.iterdir()} == before
    assert not DataBudget.may_hold(path, "a")


def test_a_charge_that_may_have_reached_the_disk_keeps_its_copy(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    budget, write = DataBudget.create(path, epsilon=3.0, delta=1e-6), os.write

    def refuse(*_: object) -> None:
        raise OSError("no such call")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda file, line: write(file, line[:20]))
        patch.setattr(os, "ftruncate", refuse)
        with pytest.raises(WriteError, match="free space"):
            write_charge(budget, gaussian("a", has_copy=True))
    assert budget.copy_path("a").exists()
    assert DataBudget.may_hold(path, "a")
    path.unlink()
    assert DataBudget.may_hold(path, "a")
