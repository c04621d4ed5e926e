"""The ledger's file, counts, prices and refusals."""

from __future__ import annotations

import json
import math
import os
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from hushgraph.accounting import make_accountant
from hushgraph.accounting.events import Event, FixedSizeDraw, GaussianEvent, PoissonDraw, StepEvent, Terms
from hushgraph.errors import BudgetExceededError, PlanError, RunError
from hushgraph.privacy.ledger import Ledger, event_from_json, event_to_json
from hushgraph.privacy.plan import PrivacyPlan

PLAN = PrivacyPlan(
    num_train_nodes=1000, num_layers=1, max_readers=2, batch_size=50, steps=12, noise_multiplier=1.0
)


def test_a_new_ledger_knows_its_budget(tmp_path: Path) -> None:
    with Ledger.create(tmp_path / "ledger.jsonl", PLAN.terms) as ledger:
        assert (ledger.budget, ledger.delta, ledger.accountant) == (PLAN.epsilon, PLAN.delta, "pair")
        assert (ledger.steps_charged, ledger.remaining_steps, ledger.spent_epsilon()) == (0, 12, 0.0)
        assert ledger.fingerprint == PLAN.fingerprint()
        assert ledger.planned_event == PLAN.step_event


@pytest.mark.parametrize("accountant", ["pair", "paper"])
def test_reopening_gives_the_same_books(tmp_path: Path, accountant: str) -> None:
    plan = replace(PLAN, accountant=accountant, batches=None)
    path = tmp_path / "ledger.jsonl"
    with Ledger.create(path, plan.terms) as ledger:
        for step in range(3):
            ledger.charge(plan.step_event, step=step)
        ledger.charge(plan.step_event, count=4)
        spent = ledger.spent_epsilon()
    with Ledger.open(path, plan=plan) as again:
        assert (again.steps_charged, again.remaining_steps) == (7, 5)
        assert again.spent_epsilon() == spent == replace(plan, steps=7).epsilon
        again.charge(plan.step_event, count=5)
        assert again.remaining_steps == 0
    assert Ledger.open(path, read_only=True).spent_epsilon() == plan.epsilon


def test_each_line_holds_the_event_and_its_count(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    with Ledger.create(path, PLAN.terms) as ledger:
        ledger.charge(PLAN.step_event, step=5, count=2)
    header, line = (json.loads(line) for line in path.read_text().splitlines())
    assert header["plan"] == PLAN.fingerprint()
    assert (line["step"], line["count"]) == (5, 2)
    assert line["event"] == {
        "draw": {"kind": "poisson", "rate": 0.05},
        "changed_trees": 3,
        "sigma_over_clip": 6.0,
    }


def test_other_events_are_priced_in_full(tmp_path: Path) -> None:
    cheap = replace(PLAN.step_event, sigma_over_clip=60.0)
    dear = replace(PLAN.step_event, sigma_over_clip=0.6)
    path = tmp_path / "ledger.jsonl"
    with Ledger.create(path, PLAN.terms) as ledger:
        ledger.charge(PLAN.step_event, count=6)
        ledger.charge(cheap, count=2)
        books = make_accountant("pair")
        books.compose(PLAN.step_event, count=6)
        books.compose(cheap, count=2)
        assert ledger.spent_epsilon() == books.epsilon(PLAN.delta)
        assert ledger.remaining_steps == 5
        with pytest.raises(BudgetExceededError):
            ledger.charge(dear)
        assert ledger.steps_charged == 8


def test_an_event_the_accountant_refuses_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    with Ledger.create(path, PLAN.terms) as ledger:
        before = path.read_bytes()
        with pytest.raises(PlanError, match="Poisson batches only"):
            ledger.charge(replace(PLAN.step_event, draw=FixedSizeDraw(size=50, population=1000)))
        assert path.read_bytes() == before


def test_training_without_privacy_is_recorded_and_never_refused(tmp_path: Path) -> None:
    plan = replace(PLAN, noise_multiplier=0.0)
    path = tmp_path / "ledger.jsonl"
    with Ledger.create(path, plan.terms) as ledger:
        ledger.charge(plan.step_event, count=100)
        assert (ledger.budget, ledger.spent_epsilon()) == (math.inf, math.inf)
    assert Ledger.open(path, read_only=True).steps_charged == 100


def test_create_refuses_a_ledger_that_exists(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    Ledger.create(path, PLAN.terms).close()
    with pytest.raises(RunError, match="it exists already"):
        Ledger.create(path, PLAN.terms)
    Ledger.open(path).close()


def test_open_refuses_what_is_missing_or_belongs_elsewhere(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    with pytest.raises(RunError, match="no such file"):
        Ledger.open(path)
    Ledger.create(path, PLAN.terms).close()
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
    with Ledger.create(path, PLAN.terms) as ledger:
        with pytest.raises(RunError, match="another process is writing to it"):
            Ledger.open(path)
        ledger.charge(PLAN.step_event)
        reader = Ledger.open(path, read_only=True)
        assert reader.steps_charged == 1
        with pytest.raises(RunError, match="not open for writing"):
            reader.charge(PLAN.step_event)
    Ledger.open(path).close()


def test_a_closed_ledger_takes_no_charge(tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path / "ledger.jsonl", PLAN.terms)
    ledger.close()
    ledger.close()
    with pytest.raises(RunError, match="not open for writing"):
        ledger.charge(PLAN.step_event)


@pytest.mark.parametrize("count", [0, -1, 1.5, True])
def test_counts_are_whole_and_positive(tmp_path: Path, count: int) -> None:
    ledger = Ledger.create(tmp_path / "ledger.jsonl", PLAN.terms)
    with ledger, pytest.raises(RunError, match="expected a whole number of at least 1"):
        ledger.charge(PLAN.step_event, count=count)


def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="cannot be locked"):
        Ledger.create(tmp_path / "missing" / "ledger.jsonl", PLAN.terms)


def test_a_failed_write_closes_the_ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "ledger.jsonl"
    ledger = Ledger.create(path, PLAN.terms)

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(RunError, match="cannot be written"):
            ledger.charge(PLAN.step_event)
    with pytest.raises(RunError, match="not open for writing"):
        ledger.charge(PLAN.step_event)
    assert Ledger.open(path, read_only=True).steps_charged == 1


EVENTS = [
    (
        StepEvent(draw=PoissonDraw(rate=0.05), changed_trees=3, sigma_over_clip=6.0),
        '{"draw": {"kind": "poisson", "rate": 0.05}, "changed_trees": 3, "sigma_over_clip": 6.0}',
    ),
    (
        StepEvent(draw=FixedSizeDraw(size=5, population=9), changed_trees=4, sigma_over_clip=0.0, gone=2),
        '{"draw": {"kind": "fixed", "size": 5, "population": 9}, "changed_trees": 4, "sigma_over_clip": 0.0, '
        '"gone": 2}',
    ),
    (
        StepEvent(draw=PoissonDraw(rate=1.0), changed_trees=2, sigma_over_clip=0.1, gone=0),
        '{"draw": {"kind": "poisson", "rate": 1.0}, "changed_trees": 2, "sigma_over_clip": 0.1, "gone": 0}',
    ),
    (GaussianEvent(shift_over_sigma=0.25), '{"shift_over_sigma": 0.25}'),
    (GaussianEvent(shift_over_sigma=math.inf), '{"shift_over_sigma": "inf"}'),
]


@pytest.mark.parametrize(("event", "text"), EVENTS)
def test_events_are_written_and_read_without_loss(event: Event, text: str) -> None:
    assert json.dumps(event_to_json(event), allow_nan=False) == text
    assert event_from_json(json.loads(text)) == event


@pytest.mark.parametrize(
    "fields",
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
def test_what_is_no_event_is_refused(fields: dict[str, object]) -> None:
    with pytest.raises((ValueError, TypeError, KeyError)):
        event_from_json(fields)


@dataclass(frozen=True)
class BoardPlan:
    """Boards, then steps: what a ledger needs of such a plan."""

    boards: tuple[GaussianEvent, ...] = (GaussianEvent(shift_over_sigma=0.5),)
    steps: int = 12
    delta: float = 1e-5
    accountant: str = "pair"
    step_event: StepEvent = StepEvent(draw=PoissonDraw(rate=0.05), changed_trees=1, sigma_over_clip=2.0)  # noqa: RUF009

    @property
    def charges(self) -> tuple[tuple[Event, int], ...]:
        return (*((board, 1) for board in self.boards), (self.step_event, self.steps))

    @property
    def epsilon(self) -> float:
        books = make_accountant("pair")
        for event, count in self.charges:
            books.compose(event, count)
        return books.epsilon(self.delta)

    def fingerprint(self) -> str:
        return f"{self.boards} {self.steps}"

    @property
    def terms(self) -> Terms:
        names = ("epsilon", "delta", "accountant", "steps", "step_event", "charges")
        return Terms(fingerprint=self.fingerprint(), **{name: getattr(self, name) for name in names})


def test_boards_and_steps_share_one_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = BoardPlan()
    [board] = plan.boards
    path = tmp_path / "ledger.jsonl"
    with Ledger.create(path, plan.terms) as ledger, monkeypatch.context() as patch:
        # What is planned needs no pricing.
        patch.setattr(Ledger, "_price", None)
        ledger.charge(board)
        ledger.charge(plan.step_event, count=12)
        assert (ledger.boards_charged, ledger.steps_charged, ledger.remaining_steps) == (1, 12, 0)
    with Ledger.open(path, plan=plan) as again:
        assert again.spent_epsilon() == again.budget == plan.epsilon
        assert (again.count_charged(board), again.count_charged(plan.step_event)) == (1, 12)
        with pytest.raises(BudgetExceededError, match="does not allow 1 more boards after 12 steps"):
            again.charge(board)
        with pytest.raises(BudgetExceededError, match="does not allow 1 more steps after 12 steps"):
            again.charge(plan.step_event)
    header, first, _ = (json.loads(line) for line in path.read_text().splitlines())
    assert header["charges"] == [[{"shift_over_sigma": 0.5}, 1], [event_to_json(plan.step_event), 12]]
    assert (first["event"], first["count"]) == ({"shift_over_sigma": 0.5}, 1)


def test_an_unplanned_board_is_priced(tmp_path: Path) -> None:
    plan = BoardPlan(step_event=replace(BoardPlan().step_event, sigma_over_clip=0.6))
    with Ledger.create(tmp_path / "ledger.jsonl", plan.terms) as ledger:
        with pytest.raises(BudgetExceededError, match="more boards"):
            ledger.charge(GaussianEvent(shift_over_sigma=5.0))
        ledger.charge(GaussianEvent(shift_over_sigma=0.1))
        assert (ledger.boards_charged, ledger.count_charged(plan.boards[0])) == (1, 0)
        # The small board has taken part of what the planned charges need.
        ledger.charge(plan.boards[0])
        assert 0 < ledger.remaining_steps < 12


def test_a_header_of_steps_alone_has_no_list_of_charges(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    Ledger.create(path, PLAN.terms).close()
    header = json.loads(path.read_text())
    expected = ["ledger", "plan", "epsilon", "delta", "accountant", "steps", "event", "sum"]
    assert list(header) == expected


@pytest.mark.parametrize("boards", [1, 2])
def test_a_torn_line_counts_as_a_planned_board_first(tmp_path: Path, boards: int) -> None:
    large, small = GaussianEvent(shift_over_sigma=0.5), GaussianEvent(shift_over_sigma=0.2)
    plan = BoardPlan(boards=(small, large)[:boards])
    path = tmp_path / "ledger.jsonl"
    with Ledger.create(path, plan.terms) as ledger:
        ledger.charge(plan.step_event, count=3)
    for count in range(1, boards + 2):
        content = path.read_bytes()
        path.write_bytes(content + b'{"step": 3, "cou')
        with Ledger.open(path, plan=plan) as ledger:
            assert ledger.boards_charged == min(count, boards)
            assert ledger.steps_charged == (3 if count <= boards else 6)
            assert ledger.spent_epsilon() <= ledger.budget
        assert Ledger.open(path, read_only=True).spent_epsilon() == ledger.spent_epsilon()
    lines = [json.loads(line) for line in path.read_text().splitlines()[2:]]
    assert all(line["torn"] for line in lines)
    # The more expensive board comes first.
    assert lines[0]["event"] == event_to_json(max(plan.boards, key=lambda board: board.shift_over_sigma))
