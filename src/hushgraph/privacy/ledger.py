"""Ledger: what a run has spent, on disk before the step that it pays for."""

from __future__ import annotations

import contextlib
import math
import os
from collections import Counter
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, cast

from hushgraph._files import write_whole
from hushgraph.accounting.events import Event, GaussianEvent, StepEvent
from hushgraph.errors import BudgetExceededError, HushgraphError, RunError, WriteError
from hushgraph.privacy import ledger_file

if TYPE_CHECKING:
    from hushgraph.accounting.accountant import AccountantName

VERSION = 1
_MALFORMED = (KeyError, TypeError, ValueError, AttributeError, OverflowError, HushgraphError)


class Budget(Protocol):
    """What a ledger needs to know of a plan."""

    @property
    def epsilon(self) -> float: ...
    @property
    def delta(self) -> float: ...
    @property
    def accountant(self) -> str: ...
    @property
    def steps(self) -> int: ...
    @property
    def step_event(self) -> StepEvent: ...
    @property
    def charges(self) -> tuple[tuple[Event, int], ...]: ...
    def fingerprint(self) -> str: ...


class Ledger:
    """Append-only record of every step a run has paid for, one line of JSON a charge.

    Make one with `Ledger.create` or `Ledger.open`; closing it, or leaving its `with` block, releases the
    lock.

    Attributes:
        path: the file.
        fingerprint: of the plan that the budget belongs to.
        budget: the most epsilon that may be spent at `delta`; infinite for training without privacy.
        delta: the delta of the budget.
        accountant: the name of the accountant that prices the steps.
        planned_steps: how many of the plan's own steps the budget was made for.
        planned_event: what one of the plan's own steps costs.

    Guarantees:
        A charge is on disk (flushed and synced) before `charge` returns; where it raises, take no step.
        A ledger that was removed, replaced or moved while it is open takes no charge.
        A charge beyond the budget raises BudgetExceededError and writes nothing.
        A line that a crash cut short counts as spent, though the step it was to pay for never began.
        Reopening forgets nothing; a damaged line anywhere else is an error, not a smaller sum.
        One process at a time can write.
    """

    def __init__(self, path: Path, header: dict[str, Any], checksum: str, *, lock: int | None) -> None:
        self.path = path
        self.fingerprint: str = header["plan"]
        self.budget = math.inf if header["epsilon"] == "inf" else float(header["epsilon"])
        self.delta = float(header["delta"])
        self.accountant: str = header["accountant"]
        self.planned_steps = int(header["steps"])
        self.planned_charges = [
            (ledger_file.event_from_json(event), int(count)) for event, count in header.get("charges", [])
        ]
        self.planned_event = ledger_file.event_from_json(header["event"])
        self._counts: Counter[Event] = Counter()
        self._largest = 1
        self._last_sum = checksum
        self._lock = lock
        self._file: int | None = None

    @classmethod
    def create(cls, path: str | os.PathLike[str], plan: Budget) -> Ledger:
        """A new ledger whose budget is the plan's epsilon; RunError if the file is already there."""
        target = Path(path)
        header = {
            "ledger": VERSION,
            "plan": plan.fingerprint(),
            "epsilon": "inf" if math.isinf(plan.epsilon) else plan.epsilon,
            "delta": plan.delta,
            "accountant": plan.accountant,
            "steps": plan.steps,
            "event": ledger_file.event_to_json(plan.step_event),
        }
        if len(plan.charges) > 1:
            charges: Counter[Event] = Counter()
            for event, count in plan.charges:
                charges[event] += count
            header["charges"] = [[ledger_file.event_to_json(e), count] for e, count in charges.items()]
        line, checksum = ledger_file.written(header, after="")
        ledger = cls(target, header, checksum, lock=ledger_file.lock(target))
        if target.exists():
            ledger.close()
            raise RunError(f"ledger={target}: it exists already; open it to go on, or choose another folder")
        try:
            write_whole(target, line)
            ledger._start_writing()
        except BaseException:
            ledger.discard()
            raise
        return ledger

    @classmethod
    def open(
        cls, path: str | os.PathLike[str], *, plan: Budget | None = None, read_only: bool = False
    ) -> Ledger:
        """The ledger at `path`, with everything that was ever charged to it.

        Args:
            path: the file.
            plan: when given, it must be the plan that the ledger was created for.
            read_only: look without locking, also while another process writes; `charge` then refuses.
        """
        target = Path(path)
        if not target.is_file():
            raise RunError(f"ledger={target}: no such file; expected the ledger of a run")
        lock = None if read_only else ledger_file.lock(target)
        try:
            ledger = cls._read(target, lock)
            if plan is not None and plan.fingerprint() != ledger.fingerprint:
                raise RunError(
                    f"ledger={target}: it belongs to another plan; resume with the plan of this run"
                )
            if not read_only:
                ledger._start_writing()
        except BaseException:
            if lock is not None:
                ledger_file.unlock(lock)
            raise
        return ledger

    @classmethod
    def _read(cls, path: Path, lock: int | None) -> Ledger:
        """Read and check every line; a torn last one is replaced by what it counts as."""
        try:
            content = original = path.read_bytes()
        except OSError as error:
            raise RunError(f"ledger={path}: cannot be read ({error.strerror}); allow it") from None
        lines = content.removesuffix(b"\n").split(b"\n")
        first = ledger_file.parsed(lines[0], after="")
        if first is None or first[0].get("ledger") != VERSION:
            raise RunError(f"ledger={path}: its first line is damaged or not a ledger's; restore the file")
        try:
            ledger = cls(path, *first, lock=lock)
        except _MALFORMED:
            raise RunError(f"ledger={path}: its first line is not a ledger's; restore the file") from None
        for number, raw in enumerate(lines[1:], start=2):
            found = ledger_file.parsed(raw, after=ledger._last_sum)
            if found is not None:
                entry, checksum = found
                try:
                    event, count = ledger_file.event_from_json(entry["event"]), entry["count"]
                    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
                        raise ValueError(count)
                except _MALFORMED:
                    raise RunError(f"ledger={path}: line {number} is no charge; restore the file") from None
                ledger._book(event, count, checksum)
            elif number == len(lines):
                count = max(1, min(ledger._largest, ledger.planned_steps - ledger.steps_charged))
                event = ledger.planned_event
                line, checksum = ledger._charge_line(event, ledger.steps_charged, count, torn=True)
                content = b"".join(good + b"\n" for good in lines[:-1]) + line
                ledger._book(event, count, checksum)
            else:
                raise RunError(
                    f"ledger={path}: line {number} is damaged, so what was spent is unknown; restore the file"
                )
        if lock is not None:
            content = content.removesuffix(b"\n") + b"\n"
            if content != original:
                write_whole(path, content)
        return ledger

    @property
    def steps_charged(self) -> int:
        """How many steps have been paid for, of any kind."""
        return sum(count for event, count in self._counts.items() if isinstance(event, StepEvent))

    @property
    def boards_charged(self) -> int:
        """How many boards have been paid for."""
        return sum(count for event, count in self._counts.items() if isinstance(event, GaussianEvent))

    @property
    def remaining_steps(self) -> int:
        """How many more of the plan's own steps the budget allows, at most as many as were planned."""
        if self._only_planned():
            return max(0, self.planned_steps - self.steps_charged)
        fits, too_many = 0, self.planned_steps + 1
        while too_many - fits > 1:
            middle = (fits + too_many) // 2
            if self._allows(self.planned_event, middle):
                fits = middle
            else:
                too_many = middle
        return fits

    def spent_epsilon(self, delta: float | None = None) -> float:
        """Epsilon of everything charged so far, at `delta` (the budget's unless given)."""
        return self._price(self._counts, self.delta if delta is None else delta)

    def charge(self, event: Event, *, step: int | None = None, count: int = 1) -> None:
        """Pay for `count` steps of `event` before they are taken.

        Args:
            event: what one step costs.
            step: the number of the first step, for the record; the steps charged so far unless given.
            count: how many steps to pay for at once. They count as spent whether or not they are taken.

        Raises:
            BudgetExceededError: the budget does not allow it; nothing was written.
            RunError: the charge could not be written, or the ledger is not open for writing.
        """
        if self._file is None:
            raise RunError(f"ledger={self.path}: it is not open for writing; reopen it")
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise RunError(f"count={count!r}: expected a whole number of at least 1")
        if not self._allows(event, count):
            raise BudgetExceededError(
                f"epsilon={self.budget:.6g} at delta={self.delta:.6g} does not allow {count} more steps "
                f"after {self.steps_charged}; stop here, or start a run with a larger budget"
            )
        line, checksum = self._charge_line(event, self.steps_charged if step is None else step, count)
        self._check_place()
        try:
            if os.write(self._file, line) != len(line):
                raise OSError("the line was cut short")
            os.fsync(self._file)
        except OSError as error:
            # What reached the disk is unknown: only reading it again can tell.
            self.close()
            reason = error.strerror or error
            raise WriteError(
                f"ledger={self.path}: cannot be written ({reason}); free space, then resume the run"
            ) from None
        self._book(event, count, checksum)

    def discard(self) -> None:
        """Remove the files of a ledger that was created in vain, and close it."""
        for file in (self.path, ledger_file.lock_path(self.path)):
            with contextlib.suppress(OSError):
                file.unlink(missing_ok=True)
        self.close()

    def close(self) -> None:
        """Stop writing and release the lock."""
        if self._file is not None:
            os.close(self._file)
        if self._lock is not None:
            ledger_file.unlock(self._lock)
        self._file = self._lock = None

    def __enter__(self) -> Ledger:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _start_writing(self) -> None:
        try:
            self._file = os.open(self.path, os.O_WRONLY | os.O_APPEND)
        except OSError as error:
            raise WriteError(f"ledger={self.path}: cannot be written ({error.strerror}); allow it") from None

    def _check_place(self) -> None:
        """Refuse to pay into a file that nobody will find again, or that is no longer locked."""
        files = ((self._file, self.path), (self._lock, ledger_file.lock_path(self.path)))
        for descriptor, path in files:
            if descriptor is None or not ledger_file.is_same(descriptor, path):
                self.close()
                raise WriteError(
                    f"ledger={self.path}: {path.name} was removed or replaced while the run went on, so no "
                    "further step was taken; restore the folder and resume, or start anew"
                )

    def _charge_line(self, event: Event, step: int, count: int, *, torn: bool = False) -> tuple[bytes, str]:
        entry = {"step": step, "count": count, "event": ledger_file.event_to_json(event)}
        return ledger_file.written({**entry, "torn": True} if torn else entry, after=self._last_sum)

    def _book(self, event: Event, count: int, checksum: str) -> None:
        self._counts[event] += count
        self._largest = max(self._largest, count)
        self._last_sum = checksum

    def _only_planned(self) -> bool:
        return not set(self._counts) - {self.planned_event}

    def _allows(self, event: Event, count: int) -> bool:
        """Whether the budget covers `count` more of `event`."""
        if math.isinf(self.budget):
            return True
        if self._is_planned(event, count):
            return True
        # The budget is the price of exactly the planned steps, so pricing them again would say the same.
        planned = event == self.planned_event and self._only_planned()
        if planned and self.steps_charged + count <= self.planned_steps:
            return True
        return self._price(self._counts + Counter({event: count}), self.delta) <= self.budget

    def _is_planned(self, event: Event, count: int) -> bool:
        planned = Counter(dict(self.planned_charges))
        return (
            bool(planned) and self._counts[event] + count <= planned[event] and not (self._counts - planned)
        )

    def _price(self, counts: Counter[Event], delta: float) -> float:
        """Epsilon of so many steps of each kind."""
        if not counts:
            return 0.0
        if any(math.isinf(event.largest_shift) for event in counts):
            return math.inf
        # Imported here: reading or creating a ledger should not wait for the accountants' libraries.
        from hushgraph.accounting import make_accountant

        books = make_accountant(cast("AccountantName", self.accountant))
        for event, count in counts.items():
            books.compose(event, count=count)
        return float(books.epsilon(delta))
