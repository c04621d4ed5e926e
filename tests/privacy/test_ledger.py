"""The ledger's file, counts, prices and refusals."""

from __future__ import annotations

import json
import math
import os
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from hushgraph.accounting.accountants import make_accountant
from hushgraph.accounting.events import FixedSizeDraw, GaussianEvent, PoissonDraw, StepEvent
from hushgraph.errors import BudgetExceededError, PlanError, RunError
from hushgraph.privacy.changes import TRAINING_ROW, rows_emptied
from hushgraph.privacy.charges import BoardCharge, Charge, RecordedCharge, RowSteps, epsilon
from hushgraph.privacy.ledger import Ledger
from hushgraph.privacy.lines import write_line
from plans import make_plan

PLAN = make_plan(
    num_train_nodes=1000, num_layers=1, max_readers=2, batch_size=50, steps=12, paper_noise_multiplier=1.0
)
STEP = PLAN.step_charge.once


def test_a_new_ledger_knows_its_budget(tmp_path: Path) -> None:
    with Ledger.create(tmp_path / "ledger.jsonl", PLAN) as ledger:
        assert (ledger.budget, ledger.delta, ledger.accountant) == (PLAN.epsilon, PLAN.delta, "pair")
        assert (ledger.steps_charged, ledger.spent_epsilon()) == (0, 0.0)
        assert ledger.fingerprint == PLAN.fingerprint()
        assert ledger.planned_step == STEP


@pytest.mark.parametrize("accountant", ["pair", "paper"])
def test_reopening_gives_the_same_books(tmp_path: Path, accountant: str) -> None:
    plan = replace(PLAN, accountant=accountant, batches=None)
    path = tmp_path / "ledger.jsonl"
    with Ledger.create(path, plan) as ledger:
        for step in range(3):
            ledger.charge(plan.step_charge, step=step, count=1)
        ledger.charge(plan.step_charge, count=4)
        spent = ledger.spent_epsilon()
    with Ledger.open(path, plan=plan) as again:
        assert again.steps_charged == 7
        assert again.spent_epsilon() == spent == replace(plan, steps=7).epsilon
        again.charge(plan.step_charge, count=5)
        with pytest.raises(BudgetExceededError):
            again.charge(plan.step_charge, count=1)
    assert Ledger.open(path, read_only=True).spent_epsilon() == plan.epsilon


def test_each_line_holds_the_charge_and_its_count(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    with Ledger.create(path, PLAN) as ledger:
        ledger.charge(STEP, step=5, count=2)
    header, line = (json.loads(line) for line in path.read_text().splitlines())
    assert header["plan"] == PLAN.fingerprint()
    assert (line["step"], line["count"]) == (5, 2)
    assert line["charge"] == {
        "kind": "tree-steps",
        "name": "steps",
        "draw": {"kind": "poisson", "rate": 0.05},
        "sigma_over_clip": 6.0,
        "changed_trees": 3,
        "num_trees": 1000,
        "trees_of_record": 2,
    }


def test_other_events_are_priced_in_full(tmp_path: Path) -> None:
    cheap = replace(STEP, sigma_over_clip=60.0)
    dear = replace(STEP, sigma_over_clip=0.6)
    path = tmp_path / "ledger.jsonl"
    with Ledger.create(path, PLAN) as ledger:
        ledger.charge(STEP, count=6)
        ledger.charge(cheap, count=2)
        books = make_accountant("pair")
        books.compose(STEP.event(TRAINING_ROW), count=6)
        books.compose(cheap.event(TRAINING_ROW), count=2)
        assert ledger.spent_epsilon() == books.epsilon(PLAN.delta)
        with pytest.raises(BudgetExceededError):
            ledger.charge(STEP, count=6)
        with pytest.raises(BudgetExceededError):
            ledger.charge(dear)
        assert ledger.steps_charged == 8


def test_an_event_the_accountant_refuses_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    with Ledger.create(path, PLAN) as ledger:
        before = path.read_bytes()
        with pytest.raises(PlanError, match="Poisson batches only"):
            ledger.charge(replace(STEP, draw=FixedSizeDraw(size=50, population=1000)))
        assert path.read_bytes() == before


def test_training_without_privacy_is_recorded_and_never_refused(tmp_path: Path) -> None:
    plan = replace(PLAN, sigma_over_clip=0.0)
    path = tmp_path / "ledger.jsonl"
    with Ledger.create(path, plan) as ledger:
        ledger.charge(plan.step_charge, count=100)
        assert (ledger.budget, ledger.spent_epsilon()) == (math.inf, math.inf)
    assert Ledger.open(path, read_only=True).steps_charged == 100


def test_create_refuses_a_ledger_that_exists(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    Ledger.create(path, PLAN).close()
    with pytest.raises(RunError, match="it exists already"):
        Ledger.create(path, PLAN)
    Ledger.open(path).close()


def test_open_refuses_what_is_missing_or_belongs_elsewhere(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    with pytest.raises(RunError, match="no such file"):
        Ledger.open(path)
    Ledger.create(path, PLAN).close()
    with pytest.raises(RunError, match="it belongs to another plan"):
        Ledger.open(path, plan=replace(PLAN, steps=13))
    Ledger.open(path, plan=PLAN).close()


@pytest.mark.parametrize(
    "content", [b"", b"\n", b"hello\n", b'{"ledger": 1}\n', b"[]\n", b"3\n", b"\xff\xfe\n"]
)
def test_a_damaged_first_line_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "ledger.jsonl"
    path.write_bytes(content)
    with pytest.raises(RunError, match="its first line is damaged"):
        Ledger.open(path)
    assert path.read_bytes() == content


def test_one_writer_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    with Ledger.create(path, PLAN) as ledger:
        with pytest.raises(RunError, match="another process is writing to it"):
            Ledger.open(path)
        ledger.charge(STEP)
        reader = Ledger.open(path, read_only=True)
        assert reader.steps_charged == 1
        with pytest.raises(RunError, match="not open for writing"):
            reader.charge(STEP)
    Ledger.open(path).close()


def test_a_closed_ledger_takes_no_charge(tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path / "ledger.jsonl", PLAN)
    ledger.close()
    ledger.close()
    with pytest.raises(RunError, match="not open for writing"):
        ledger.charge(STEP)


@pytest.mark.parametrize("count", [0, -1, 1.5, True])
def test_counts_are_whole_and_positive(tmp_path: Path, count: int) -> None:
    ledger = Ledger.create(tmp_path / "ledger.jsonl", PLAN)
    with ledger, pytest.raises(RunError, match="expected a whole number of at least 1"):
        ledger.charge(STEP, count=count)


def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="cannot be locked"):
        Ledger.create(tmp_path / "missing" / "ledger.jsonl", PLAN)


def test_a_failed_write_closes_the_ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "ledger.jsonl"
    ledger = Ledger.create(path, PLAN)

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(RunError, match="cannot be written"):
            ledger.charge(STEP)
    with pytest.raises(RunError, match="not open for writing"):
        ledger.charge(STEP)
    assert Ledger.open(path, read_only=True).steps_charged == 1


CHARGES: list[Charge] = [
    STEP,
    RowSteps(draw=FixedSizeDraw(size=5, population=9), reads_lists=False),
    BoardCharge(name="board-2", noise_std=4.0, by_everybody=True, label_move=1.5),
    RecordedCharge(name="board-1", cost=GaussianEvent(shift_over_sigma=math.inf)),
    RecordedCharge(
        name="steps", cost=StepEvent(draw=PoissonDraw(rate=1.0), changed_trees=2, sigma_over_clip=0.1, gone=0)
    ),
]


@pytest.mark.parametrize("charge", CHARGES)
def test_charges_are_written_and_read_without_loss(charge: Charge) -> None:
    text = json.dumps(charge.to_json(), allow_nan=False)
    assert Charge.from_json(json.loads(text)) == charge


@pytest.mark.parametrize(
    "edit",
    [
        {"noise_std": -1.0},
        {"noise_std": "much"},
        {"noise_std": None},
        {"noise_std": {"shift_over_sigma": True}},
        {"more": 1},
        {"kind": "dice"},
        {"name": None},
    ],
)
def test_what_is_no_charge_is_refused(edit: dict[str, object]) -> None:
    fields = BoardCharge(name="board-1", noise_std=2.0).to_json()
    with pytest.raises((ValueError, TypeError, KeyError, PlanError)):
        Charge.from_json({**fields, **edit})


@pytest.mark.parametrize(
    "event",
    [
        {"shift_over_sigma": -1.0},
        {"shift_over_sigma": "nan"},
        {"shift_over_sigma": True},
        {"shift_over_sigma": 1.0, "gone": 2},
        {"draw": {"kind": "poisson", "rate": 0.1}, "changed_trees": 3, "sigma_over_clip": 6.0, "more": 1},
        {"draw": {"kind": "poisson", "rate": 0.1}, "changed_trees": 3, "sigma_over_clip": 6.0, "gone": None},
        {"draw": {"kind": "poisson", "rate": 0.1}, "sigma_over_clip": 6.0},
        {"draw": {"kind": "dice", "rate": 0.1}, "changed_trees": 3, "sigma_over_clip": 6.0},
    ],
)
def test_an_old_line_that_is_no_event_is_refused(tmp_path: Path, event: dict[str, object]) -> None:
    path = write_old_ledger(tmp_path, BoardPlan(), [event])
    with pytest.raises(RunError, match="line 2 is no charge and no release"):
        Ledger.open(path)


@dataclass(frozen=True)
class BoardPlan:
    """Boards, then steps: what a ledger needs of such a plan."""

    noise: tuple[float, ...] = (2.0,)
    steps: int = 12
    sigma: float = 2.0
    delta: float = 1e-5
    accountant: str = "pair"

    @property
    def boards(self) -> list[BoardCharge]:
        return [BoardCharge(name=f"board-{n}", noise_std=s) for n, s in enumerate(self.noise, start=1)]

    @property
    def step(self) -> RowSteps:
        return RowSteps(draw=PoissonDraw(rate=0.05), sigma_over_clip=self.sigma)

    @property
    def charges(self) -> tuple[Charge, ...]:
        return (*self.boards, replace(self.step, times=self.steps))

    @property
    def epsilon(self) -> float:
        return epsilon(self.charges, rows_emptied(), delta=self.delta)

    def fingerprint(self) -> str:
        return f"{self.noise} {self.steps}"


def write_old_ledger(folder: Path, plan: BoardPlan, events: list[dict[str, object]]) -> Path:
    """A ledger of version 2, with one line for each event."""
    step = {"draw": {"kind": "poisson", "rate": 0.05}, "changed_trees": 1, "sigma_over_clip": plan.sigma}
    header = {
        "ledger": 2,
        "plan": plan.fingerprint(),
        "epsilon": plan.epsilon,
        "delta": plan.delta,
        "accountant": "pair",
        "steps": plan.steps,
        "event": step,
        "charges": [[{"shift_over_sigma": 0.5}, len(plan.noise)], [step, plan.steps]],
    }
    line, checksum = write_line(header, after="")
    content = line
    for event in events:
        line, checksum = write_line({"step": 0, "count": 1, "event": event}, after=checksum)
        content += line
    path = folder / "old.jsonl"
    path.write_bytes(content)
    return path


def test_an_old_ledger_is_read_as_the_charges_of_its_plan(tmp_path: Path) -> None:
    plan = BoardPlan(noise=(2.0, 2.0))
    step = {"draw": {"kind": "poisson", "rate": 0.05}, "changed_trees": 1, "sigma_over_clip": 2.0}
    path = write_old_ledger(
        tmp_path, plan, [{"shift_over_sigma": 0.5}, step, {"shift_over_sigma": 0.5}, step]
    )
    with Ledger.open(path, plan=plan) as ledger:
        assert [ledger.count_charged(charge) for charge in plan.charges] == [1, 1, 2]
        assert ledger.is_charged("board-2")
        ledger.charge(plan.step, count=10)
        assert ledger.spent_epsilon() == ledger.budget
        with pytest.raises(BudgetExceededError):
            ledger.charge(plan.step)
    # Without the plan the events are all that is known, and they cost the same.
    again = Ledger.open(path, read_only=True)
    assert (again.releases_charged, again.steps_charged) == (2, 12)
    assert again.spent_epsilon() == pytest.approx(plan.epsilon, rel=1e-9)


def test_boards_and_steps_share_one_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = BoardPlan()
    [board] = plan.boards
    path = tmp_path / "ledger.jsonl"
    with Ledger.create(path, plan) as ledger, monkeypatch.context() as patch:
        # What is planned needs no pricing.
        patch.setattr(Ledger, "_price", None)
        ledger.charge(board)
        ledger.charge(plan.step, count=12)
        assert (ledger.releases_charged, ledger.steps_charged) == (1, 12)
    with Ledger.open(path, plan=plan) as again:
        assert again.spent_epsilon() == again.budget == plan.epsilon
        assert (again.count_charged(board), again.count_charged(plan.step)) == (1, 12)
        with pytest.raises(BudgetExceededError, match="does not allow 1 more board-1 after 12 steps"):
            again.charge(board)
        with pytest.raises(BudgetExceededError, match="does not allow 1 more steps after 12 steps"):
            again.charge(plan.step)
    header, first, _ = (json.loads(line) for line in path.read_text().splitlines())
    assert header["charges"] == [[board.to_json(), 1], [plan.step.to_json(), 12]]
    assert (first["charge"], first["count"]) == (board.to_json(), 1)


def test_an_unplanned_board_is_priced(tmp_path: Path) -> None:
    plan = BoardPlan(sigma=0.6)
    with Ledger.create(tmp_path / "ledger.jsonl", plan) as ledger:
        with pytest.raises(BudgetExceededError, match="more large"):
            ledger.charge(BoardCharge(name="large", noise_std=0.2))
        ledger.charge(BoardCharge(name="small", noise_std=10.0))
        assert (ledger.releases_charged, ledger.count_charged(plan.boards[0])) == (1, 0)
        # The small board has taken part of what the planned charges need.
        ledger.charge(plan.boards[0])
        with pytest.raises(BudgetExceededError):
            ledger.charge(plan.step, count=12)
        ledger.charge(plan.step)


@pytest.mark.parametrize("boards", [1, 2])
def test_a_torn_line_counts_as_a_planned_board_first(tmp_path: Path, boards: int) -> None:
    plan = BoardPlan(noise=(5.0, 2.0)[:boards])
    path = tmp_path / "ledger.jsonl"
    with Ledger.create(path, plan) as ledger:
        ledger.charge(plan.step, count=3)
    for count in range(1, boards + 2):
        content = path.read_bytes()
        path.write_bytes(content + b'{"step": 3, "cou')
        with Ledger.open(path, plan=plan) as ledger:
            assert ledger.releases_charged == min(count, boards)
            assert ledger.steps_charged == (3 if count <= boards else 6)
            assert ledger.spent_epsilon() <= ledger.budget
        assert Ledger.open(path, read_only=True).spent_epsilon() == ledger.spent_epsilon()
    lines = [json.loads(line) for line in path.read_text().splitlines()[2:]]
    assert all(line["torn"] for line in lines)
    # Releases come in the order of the plan.
    assert [line["charge"] for line in lines[:boards]] == [board.to_json() for board in plan.boards]
