"""Ledger: what a run has spent and released, on disk before it happens; one process writes at a time."""

from __future__ import annotations

import contextlib
import math
import os
import secrets
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from hushgraph._files import append_line, is_same, lock_file, lock_path, unlock_file, write_whole
from hushgraph.errors import BudgetExceededError, RunError, WriteError, explain
from hushgraph.privacy.changes import TRAINING_ROW, rows_emptied
from hushgraph.privacy.charges import (
    Charge,
    RecordedCharge,
    epsilon,
    name_board,
    read_recorded,
    read_value,
)
from hushgraph.privacy.ledger_copy import SPACE, LedgerCopy
from hushgraph.privacy.lines import MALFORMED, read_line, write_line

if TYPE_CHECKING:
    from hushgraph.privacy.plans import PrivacyPlan

# Ledgers of version 1 have no lines about releases. Up to version 2, lines have the event of one emptied row
# in place of a charge.
VERSION = 3
_VERSIONS = (1, 2, VERSION)
_ANEW = "Restore it, or count this run as spent and train in another folder, which charges the data anew"
_RELEASE_LINE = b'{"released"'
# The key of a line that charges nothing: a session of a run that is in a budget begins.
_SESSION = "session"


class Ledger:
    """Append-only record of what a run has paid for and released, one line of JSON per charge or release.

    Create one with `Ledger.create` or `Ledger.open`. Closing it, or leaving its `with` block, releases the
    lock.

    Attributes:
        path: the file.
        fingerprint: the fingerprint of the plan that the budget belongs to.
        budget: the largest epsilon that may be spent at `delta`; infinite for training without privacy.
        delta: the delta of the budget.
        accountant: the name of the accountant that prices the charges.
        planned_steps: the number of steps in the plan.
        steps_charged: the number of steps paid for, of any kind.
        releases: what was released, by name, with their digests; None where the digest is
            unknown, because the release was begun and perhaps not finished.

    Guarantees:
        A charge is on disk (flushed and synced) before `charge` returns; if it raises, release nothing.
        A ledger that was removed, replaced or moved while it is open takes no charge.
        A charge beyond the budget raises BudgetExceededError and writes nothing.
        A line that a crash cut short counts as spent, although what it was to pay for was never released.
        Reopening forgets nothing; a damaged line anywhere else is an error, not a smaller sum.
        One process at a time can write.
        `check_unreleased` lets a board be made under a charge only if no board can have been visible under it
        before. Restoring an older copy of the ledger and of the folder with it cannot be seen.
        Where there is a copy, a line is in both before what it is about happens.
    """

    def __init__(
        self,
        path: Path,
        header: dict[str, Any],
        checksum: str,
        *,
        lock: int | None,
        plan: PrivacyPlan | None = None,
    ) -> None:
        self.path = path
        self.version = int(header["ledger"])
        self.fingerprint: str = header["plan"]
        self.budget = math.inf if header["epsilon"] == "inf" else float(header["epsilon"])
        self.delta = float(header["delta"])
        self.accountant: str = header["accountant"]
        # What older lines, which have events, are read as.
        self._known = () if plan is None else plan.charges
        planned = _read_planned(header) if self.version == VERSION or plan is None else plan.charges
        self._planned = Counter({charge.once: charge.times for charge in planned})
        self.steps_charged = 0
        self.releases: dict[str, str | None] = {}
        # Of everything that is charged and released once, whether something was charged after it.
        self._is_followed: dict[str, bool] = {}
        # Of these, what a torn line was taken for, which may have been to pay for something else.
        self._guessed: set[str] = set()
        self._counts: Counter[Charge] = Counter()
        self._largest_count = 1
        self._checksum = checksum
        self._lock = lock
        self._file: int | None = None
        self._copy: LedgerCopy | None = None

    @classmethod
    def create(cls, path: str | os.PathLike[str], plan: PrivacyPlan) -> Ledger:
        """Create a ledger whose budget is the epsilon of a plan; raise RunError if the file exists."""
        target = Path(path)
        header: dict[str, Any] = {
            "ledger": VERSION,
            "plan": plan.fingerprint(),
            "epsilon": "inf" if math.isinf(plan.epsilon) else plan.epsilon,
            "delta": plan.delta,
            "accountant": plan.accountant,
            "charges": [[charge.to_json(), charge.times] for charge in plan.charges],
        }
        line, checksum = write_line(header, after="")
        lock = _acquire_lock(target)
        if target.exists():
            unlock_file(lock)
            raise RunError(f"ledger={target}: it exists already; open it to go on, or choose another folder")
        try:
            write_whole(target, line)
            ledger = cls(target, header, checksum, lock=lock)
            ledger._start_writing()
        except BaseException:
            _remove_files(target)
            unlock_file(lock)
            raise
        return ledger

    @classmethod
    def open(
        cls, path: str | os.PathLike[str], *, plan: PrivacyPlan | None = None, read_only: bool = False
    ) -> Ledger:
        """Open the ledger at `path`, with everything that was ever charged to it.

        Args:
            path: the file.
            plan: if given, it must be the plan that the ledger was created for.
            read_only: read without locking, also while another process writes; `charge` then refuses.
        """
        target = Path(path)
        if not target.is_file():
            raise RunError(f"ledger={target}: no such file; expected the ledger of a run")
        lock = None if read_only else _acquire_lock(target)
        try:
            ledger = cls._read(target, lock, plan)
            if plan is not None and plan.fingerprint() != ledger.fingerprint:
                raise RunError(
                    f"ledger={target}: it belongs to another plan; resume with the plan of this run"
                )
            if not read_only:
                ledger._start_writing()
        except BaseException:
            if lock is not None:
                unlock_file(lock)
            raise
        return ledger

    @classmethod
    def _read(cls, path: Path, lock: int | None, plan: PrivacyPlan | None) -> Ledger:
        """Read and check every line; replace a torn last line by what it counts as."""
        with explain(RunError, f"ledger={path}: cannot be read", "check its permissions"):
            content = path.read_bytes()
        lines = content.removesuffix(b"\n").split(b"\n")
        first = read_line(lines[0], after="")
        if first is None or first[0].get("ledger") not in _VERSIONS:
            raise RunError(f"ledger={path}: its first line is damaged or not a ledger's; restore the file")
        try:
            ledger = cls(path, *first, lock=lock, plan=plan)
        except MALFORMED:
            raise RunError(f"ledger={path}: its first line is not a ledger's; restore the file") from None
        for number, raw in enumerate(lines[1:], start=2):
            line = read_line(raw, after=ledger._checksum)
            if line is None and number < len(lines):
                raise RunError(
                    f"ledger={path}: line {number} is damaged, so what was spent is unknown; restore the file"
                )
            if line is None:
                entry = ledger._interpret_torn_line(raw)
                lines[-1], checksum = write_line(entry, after=ledger._checksum)
                line = entry, checksum
            try:
                ledger._book(*line)
            except MALFORMED:
                raise RunError(
                    f"ledger={path}: line {number} is no charge and no release; restore the file"
                ) from None
        repaired = b"\n".join(lines).removesuffix(b"\n") + b"\n"
        if lock is not None and repaired != content:
            write_whole(path, repaired)
        return ledger

    @property
    def planned_steps(self) -> int:
        """The number of steps in the plan."""
        return sum(count for charge, count in self._planned.items() if charge.is_step)

    @property
    def planned_step(self) -> Charge:
        """One step of the plan."""
        return next(charge for charge in self._planned if charge.is_step)

    @property
    def releases_charged(self) -> int:
        """The number of releases paid for that are not steps, such as boards."""
        return sum(count for charge, count in self._counts.items() if not charge.is_step)

    def is_charged(self, name: str) -> bool:
        """Return whether the release of this name was paid for."""
        return name in self._is_followed

    def spent_epsilon(self) -> float:
        """Return the epsilon of all charges at the delta of the budget."""
        return self._price(self._counts, self.delta)

    def count_charged(self, charge: Charge) -> int:
        """Return how often exactly this has been paid for."""
        return self._counts[charge.once]

    def charge(self, charge: Charge, *, step: int | None = None, count: int | None = None) -> None:
        """Pay for releases before they happen.

        Args:
            charge: of the releases.
            step: the number of the first step, for the record; the steps charged so far unless given.
            count: how many of its releases to pay for now, all of them unless given. They count as spent
                whether or not they happen.

        Raises:
            BudgetExceededError: the budget does not allow it; nothing was written.
            RunError: the charge could not be written, or the ledger is not open for writing.
        """
        count = charge.times if count is None else count
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise RunError(f"count={count!r}: expected a whole number of at least 1")
        if not self._allows(charge.once, count):
            raise BudgetExceededError(
                f"epsilon={self.budget:.6g} at delta={self.delta:.6g} does not allow {count} more "
                f"{charge.name} after {self.steps_charged} steps; stop here, or start a run with a larger "
                "budget"
            )
        first = self.steps_charged if step is None else step
        self._append({"step": first, "count": count, "charge": charge.to_json()})

    def record_release(self, name: str, digest: str | None) -> None:
        """Note down that a release leaves the process now; call it before anything of it is visible.

        Args:
            name: of the release, as `name_board` gives it.
            digest: of what is released; None where the release is made piece by piece, so that its digest is
                known at the end, in a second call.
        """
        self._append({"released": name, "digest": digest})

    def check_unreleased(self, name: str) -> None:
        """Refuse to make a release where one may have been visible under the charge that is there.

        Args:
            name: of the release, such as "board-1".

        Raises:
            RunError: if its release is on record, if something was charged after it, or if the ledger is of
                version 1, which has no record of releases.
        """
        if name in self.releases:
            fault = "was released and is missing"
        elif name not in self._is_followed:
            return
        elif self._is_followed[name]:
            fault = "is missing, although the run went on after it"
        elif self.version == 1:
            fault = "is missing, and this ledger does not tell whether it was released"
        else:
            return
        raise RunError(
            f"ledger={self.path}: {name} {fault}, and another one under the same charge would show more than "
            f"was paid for. {_ANEW}"
        )

    def check_digest(self, name: str, digest: str) -> None:
        """Refuse a file that is not the release on record under this name."""
        recorded = self.releases.get(name)
        if recorded is not None and recorded != digest:
            raise RunError(
                f"ledger={self.path}: the file of {name} is not the one that this run released. {_ANEW}"
            )

    def begin_session(self, copy: LedgerCopy) -> None:
        """Note that a session begins, and write this line and all that follow to `copy` too.

        The line is like no other, so that of two copies of a run folder only one can go on from it.
        """
        self._copy = copy
        self._append({_SESSION: secrets.token_hex(8)})

    def _append(self, entry: dict[str, Any]) -> None:
        """Write a line to disk, here before the copy, which never holds what the ledger lacks; count it."""
        if self._file is None:
            raise RunError(f"ledger={self.path}: it is not open for writing; reopen it")
        line, checksum = write_line(entry, after=self._checksum)
        self._check_place()
        try:
            with explain(WriteError, f"ledger={self.path}: cannot be written", SPACE):
                append_line(self._file, line)
            if self._copy is not None:
                self._copy.append(line)
        except BaseException:
            # Only reading the file again can tell what reached the disk.
            self.close()
            raise
        self._book(entry, checksum)

    def _allows(self, charge: Charge, count: int) -> bool:
        """Whether the budget covers `count` more of `charge`."""
        total = self._counts + Counter({charge: count})
        # The budget is the price of the planned charges, so there is no need to price them again.
        if math.isinf(self.budget) or not total - self._planned:
            return True
        return self._price(total, self.delta) <= self.budget

    def _price(self, counts: Counter[Charge], delta: float) -> float:
        charges = [replace(charge, times=count) for charge, count in counts.items()]
        events = [charge.event(TRAINING_ROW) for charge in charges]
        if any(event is not None and math.isinf(event.largest_shift) for event in events):
            return math.inf
        return epsilon(charges, rows_emptied(), delta=delta, accountant=self.accountant)

    def _price_torn_line(self) -> tuple[Charge, int]:
        """The most a torn line can have been: the planned release that is next, else a block of steps."""
        left_steps = self.planned_steps - self.steps_charged
        for charge in self._planned - self._counts:
            # Releases come in the order of the plan, and figures after the last step.
            if not charge.is_step and (_measure(charge) > 0 or not left_steps):
                return charge, 1
        return self.planned_step, max(1, min(self._largest_count, left_steps))

    def _interpret_torn_line(self, raw: bytes) -> dict[str, Any]:
        """The entry that takes the place of a torn line: the most that it can have been."""
        if raw.startswith(_RELEASE_LINE):
            # A release follows its charge at once.
            name = next(reversed(self._is_followed), name_board(0))
            return {"released": name, "digest": None, "torn": True}
        if raw.startswith(f'{{"{_SESSION[:2]}'.encode()):
            # It charged nothing, and its session did not begin.
            return {_SESSION: secrets.token_hex(8), "torn": True}
        charge, count = self._price_torn_line()
        return {"step": self.steps_charged, "count": count, "charge": charge.to_json(), "torn": True}

    def _check_place(self) -> None:
        """Refuse to write into a file that has been moved or replaced, or is no longer locked."""
        files = ((self._file, self.path), (self._lock, lock_path(self.path)))
        for descriptor, path in files:
            if descriptor is None or not is_same(descriptor, path):
                self.close()
                raise WriteError(
                    f"ledger={self.path}: {path.name} was removed or replaced while the run went on, so no "
                    "further step was taken; restore the folder and resume, or start anew"
                )

    def _book(self, entry: dict[str, Any], checksum: str) -> None:
        """Count a line; one of MALFORMED where it is neither a charge, a release nor a session."""
        if "released" in entry:
            self._book_release(str(entry["released"]), entry["digest"])
        elif _SESSION not in entry:
            charge, count = self._read_charge(entry), entry["count"]
            if isinstance(count, bool) or not isinstance(count, int) or count < 1:
                raise ValueError(count)
            self._book_charge(charge, count, is_torn=bool(entry.get("torn")))
        self._checksum = checksum

    def _read_charge(self, entry: dict[str, Any]) -> Charge:
        """The charge of a line; an event of an older line is that of the next such charge of the plan."""
        if "charge" in entry:
            return Charge.from_json(entry["charge"])
        cost = read_value(entry["event"])
        for charge in self._known:
            is_left = charge.is_step or charge.name not in self._is_followed
            if is_left and charge.event(TRAINING_ROW) == cost:
                return charge.once
        return RecordedCharge.of(cost, place=len(self._is_followed))

    def _book_charge(self, charge: Charge, count: int, *, is_torn: bool) -> None:
        self._counts[charge] += count
        if not is_torn:
            # What a torn line was to pay for never happened, and what it was taken for may come much later.
            self._is_followed = {name: name not in self._guessed for name in self._is_followed}
        if charge.is_step:
            self.steps_charged += count
            self._largest_count = max(self._largest_count, count)
        else:
            self._is_followed[charge.name] = False
            if is_torn:
                self._guessed.add(charge.name)

    def _book_release(self, name: str, digest: str | None) -> None:
        known = self.releases.get(name)
        if not isinstance(digest, str | None) or (known is not None and known != digest):
            raise ValueError(digest)
        self.releases[name] = digest

    def _start_writing(self) -> None:
        with explain(WriteError, f"ledger={self.path}: cannot be written", "check its permissions"):
            self._file = os.open(self.path, os.O_WRONLY | os.O_APPEND)

    def discard(self) -> None:
        """Close a ledger whose run could not be created, and remove its files."""
        _remove_files(self.path)
        self.close()

    def close(self) -> None:
        """Stop writing and release the lock."""
        if self._file is not None:
            os.close(self._file)
        if self._lock is not None:
            unlock_file(self._lock)
        if self._copy is not None:
            self._copy.close()
        self._file = self._lock = self._copy = None

    def __enter__(self) -> Ledger:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _remove_files(path: Path) -> None:
    for file in (path, lock_path(path)):
        with contextlib.suppress(OSError):
            file.unlink(missing_ok=True)


def _read_planned(header: dict[str, Any]) -> list[Charge]:
    """The charges of the plan, as the first line of a ledger has them."""
    if header["ledger"] == VERSION:
        return [Charge.from_json(charge, times=int(count)) for charge, count in header["charges"]]
    return read_recorded(header.get("charges", [[header["event"], header["steps"]]]))


def _measure(charge: Charge) -> float:
    event = charge.event(TRAINING_ROW)
    return 0.0 if event is None else event.largest_shift


def _acquire_lock(path: Path) -> int:
    """Lock the ledger at `path`; return a descriptor."""
    with explain(RunError, f"ledger={path}: cannot be locked", "choose a folder you can write to"):
        try:
            return lock_file(lock_path(path))
        except BlockingIOError:
            raise RunError(f"ledger={path}: another process is writing to it; wait for it to end") from None
